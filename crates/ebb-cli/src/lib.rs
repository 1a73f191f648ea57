//! What the two command lines, `ebb` and `ebb-lab`, have in common.
//!
//! | module | what it is |
//! |---|---|
//! | [`context`] | options of every command: the cluster's directory, JSON |
//! | [`output`] | sentences and tables for people, JSON for programs |
//! | [`path`], [`units`] | paths, sizes and times as arguments |
//! | [`directory`], [`process`], [`private`] | a cluster's directory: its settings and secret, the processes that run, modes of files |
//! | [`admin`] | connections and sessions for one command |
//! | [`programs`] | the other program, beside this one |
//! | [`describe`] | completions and manual pages |
//! | [`program`] | from `main` to the exit code |
//!
//! What never happens here: a command. This crate and the two programs are at the rim and may touch the system directly; everything
//! else goes through `ebb_runtime`.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "the command line lives in the real world")]

pub mod admin;
pub mod context;
pub mod describe;
pub mod directory;
pub mod output;
pub mod path;
pub mod private;
pub mod process;
pub mod program;
pub mod programs;
pub mod units;

pub use context::{Context, Globals};
