//! The common parts of the two command lines, `ebb` and `ebb-lab`.
//!
//! The programs' own commands are not here. The only commands in this crate are those of [`describe`], which both
//! programs have. This crate and the two programs may use the operating system directly, and `ebb_api` asks it for the names of
//! users. The other crates go through `ebb_runtime`, with the exceptions that its documentation lists.
//!
//! | module | contents |
//! |---|---|
//! | [`context`] | options of every command: the cluster's directory, JSON |
//! | [`output`] | sentences and tables for people, JSON for programs |
//! | [`units`] | sizes and times as arguments |
//! | [`directory`], [`keys`], [`process`], [`private`] | a cluster's directory: settings, keys, processes, file modes |
//! | [`host`] | settings of this host: its name, where its processes listen |
//! | [`token`], [`joining`] | how a host becomes a part of a cluster |
//! | [`admin`] | connections and sessions for one command |
//! | [`programs`] | how each program finds and starts the other |
//! | [`describe`] | completions and manual pages |
//! | [`program`], [`verdict`] | from `main` to the exit code; the verdict on an inspected cluster |
//! | [`signals`] | signals that end a command |
//! | [`waiting`] | what a command waits for, on stderr; the time limit of a command |
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "the command line lives in the real world")]

/// The program's version, and that of its JSON answers (`docs/json.md`).
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (JSON answers: version 1)");

pub mod admin;
pub mod attached;
pub mod context;
pub mod describe;
pub mod directory;
pub mod examples;
pub mod host;
pub mod joining;
pub mod keys;
pub mod output;
pub mod private;
pub mod process;
pub mod program;
pub mod programs;
pub mod signals;
pub mod token;
pub mod units;
pub mod values;
pub mod verdict;
pub mod waiting;

pub use context::{Context, Globals};
