//! The papers' figures: the real services in virtual time on one documented set of machines, beside the printed numbers.
//!
//! What a paper computes from formulas comes from `ebb-plan`. What it measured on a cluster is run here: the real
//! master, block servers, clients, power manager and power client of `ebb-virtual` serve blocks while the real policies
//! decide who sleeps; a model of disks and links ([`hardware`]) gives nothing but the times. Hours pass in seconds.
//! Where a part of the paper's system is computed instead of run, its figure says so.
//!
//! **Scale.** Blocks are smaller than the papers' by a factor, and disks and links slower by the same one, so that a
//! block takes as long as theirs and fewer bytes pass through the real code. Messages without data are not scaled: they
//! go through the same slow links, except to and from the always-on node. Data sets have fewer blocks.
//!
//! **What never happens here.** No policy, layout or read rule of its own; no number of a paper that goes into a result;
//! no parameter that differs from figure to figure but what the paper itself varies.
//!
//! Reading order: [`hardware`], [`testbed`], [`measure`], [`drive`], [`balancer`], [`job`], [`rivals`]; then a figure: [`rabbit`], [`blinkfs`], each a
//! registry of parts; [`part`] says what a part is, [`outcome`] what comes out.
//! [`agreement`] holds a real cluster against a virtual one; [`metablocks`] has what is said of a paper that is measured on a real
//! cluster alone.
#![forbid(unsafe_code)]

pub mod agreement;
pub mod balancer;
pub mod blinkfs;
pub mod drive;
pub mod hardware;
pub mod job;
pub mod measure;
pub mod metablocks;
pub mod outcome;
pub mod part;
pub mod rabbit;
pub mod rivals;
pub mod signals;
pub mod testbed;

pub use outcome::{Outcome, run};
pub use part::{Effort, Lab, Part};
