//! The papers' figures: the real services in virtual time on one documented set of machines, beside the printed
//! numbers.
//!
//! **What never happens here.**
//! - The crate has no policy, layout or read rule of its own.
//! - No number of a paper goes into a result.
//! - No parameter differs between figures, unless the paper itself varies it.
//!
//! **What runs.** Figures that a paper computes from formulas are in `ebb-plan`. Figures that a paper measured on a
//! cluster are run here. The real master, block servers, clients, power manager and power client of `ebb-virtual` serve
//! blocks. The real policies decide which nodes sleep. A model of disks and links ([`hardware`]) supplies only the
//! times. Hours pass in seconds. If a part of the paper's system is computed instead of run, its figure says so.
//!
//! **Scale.** Blocks are smaller than the papers' by a factor, and disks and links are slower by the same factor. So a
//! block takes as long as in the paper, and fewer bytes pass through the real code. Messages without data are not
//! scaled. They use the same slow links, except to and from the always-on node. Data sets have fewer blocks.
//!
//! Reading order: [`hardware`], [`testbed`], [`measure`], [`drive`], [`balancer`], [`job`], [`rivals`]; then a figure:
//! [`rabbit`], [`blinkfs`], [`diskreduce`], each a registry of parts. [`part`] defines a part, and [`outcome`] its result.
//! [`agreement`] compares a real cluster with a virtual one, and [`compliance`] measures both around a cut of the power.
//! [`metablocks`] has the settings and numbers of a paper that is measured on a real cluster alone.
#![forbid(unsafe_code)]

pub mod agreement;
pub mod balancer;
pub mod blinkfs;
pub mod compliance;
pub mod data;
pub mod diskreduce;
pub mod drive;
pub mod hardware;
pub mod job;
pub mod lsn;
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
