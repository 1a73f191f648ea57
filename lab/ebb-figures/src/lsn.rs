//! *On the Use of Shared Storage in Shared-Nothing Environments* (IEEE Big Data 2013): localized storage nodes (LSNs).
//!
//! The jobs are those of `ebb plan lsn`, with the simulator's lists of steps, slots and cycles. The simulator makes flows of bytes
//! from them. Here the real client reads and writes the bytes, and the real master and block servers place and keep them.
//!
//! Reading order: [`bed`], `stream`, `task`, [`tracker`], `shuffle`, [`job`], [`runner`]; then the figures.

pub mod against;
pub mod bed;
mod deaths;
pub mod job;
mod located;
pub mod runner;
pub mod show;
mod shuffle;
mod stream;
mod studies;
mod task;
pub mod tracker;

#[cfg(test)]
mod tests;

use crate::part::Part;

/// Heading of the page.
pub const TITLE: &str = "Localized storage nodes: On the Use of Shared Storage in Shared-Nothing Environments";

/// Conditions of all parts.
pub const INTRO: &[&str] = &[
    "Jobs run on the real services in virtual time: three copies of a block in the baseline, one copy on LSNs. Disks are those of \
     the paper's testbed in all figures (105 MB/s, 12.7 ms for a seek). The other machines are those of docs/lab.md. A byte stands for \
     256: a chunk, the least that is read, is what a map of the simulator reads at a time.",
];

/// Its figures, in the order of the page, and two of our own.
pub const PARTS: &[Part] = &[
    Part { sources: studies::REAL, make: studies::real },
    Part { sources: studies::TWENTY, make: studies::twenty },
    Part { sources: studies::FIVE, make: studies::five },
    Part { sources: studies::BETTER, make: studies::better },
    Part { sources: deaths::SOURCES, make: deaths::section },
    Part { sources: located::SOURCES, make: located::section },
];
