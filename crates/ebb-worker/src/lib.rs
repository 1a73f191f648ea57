//! Function shipping: the work is sent to the metablocks, instead of the data to the work (metablocks paper, G1).
//!
//! What a worker never does:
//! - run code from the network;
//! - write;
//! - count a split twice. Only answers count, and a call without an answer is stopped before it is repeated elsewhere;
//! - begin what the power plan would freeze, if it can be helped ([`ebb_power::work`]).
//!
//! A [`service::Worker`] runs on each host. It counts words, or lines that contain a text, in splits of files. The
//! coordinator ([`job`]) walks a tree, makes one split of each metablock, and sends each split to a worker near its
//! data. It sends many small splits in one call. A split carries the location of its data, so in the normal case a
//! worker asks the master for nothing. The count is that of GNU `wc -w`, or of `grep -a -c -F`, wherever the splits
//! end.
//!
//! Reading order: [`count`] and [`lines`] (the pure counting cores), [`task`] (which of them runs), `split` and
//! `source` (reading one split), [`service`] (the worker), [`plan`] (which worker counts which split, pure), `crew` (what
//! a worker begins now, pure), `walk`, [`job`] and `coordinator`.
#![forbid(unsafe_code)]

mod coordinator;
pub mod count;
mod crew;
pub mod job;
pub mod lines;
mod meter;
pub mod plan;
mod report;
pub mod service;
mod source;
mod split;
pub mod task;
#[cfg(test)]
mod testkit;
mod unprintable;
mod walk;

pub use job::{JobOptions, count_words, count_words_in};
pub use lines::{Pattern, SEARCH_BUFFER};
pub use meter::Carried;
pub use plan::Locality;
pub use report::{Progress, Report, SLOW_AFTER, Slow};
pub use source::Source;
pub use split::{Counted, count_split};
pub use task::{How, Task};
pub use walk::{ClientTree, Tree};
