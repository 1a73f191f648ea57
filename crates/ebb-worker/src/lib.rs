//! Function shipping: work goes to the metablocks, not the other way round (metablocks paper, G1).
//!
//! A [`service::Worker`] on each host counts words, or lines with a text, in splits of files that its own host holds; the coordinator
//! ([`job`]) walks a tree, makes a split of each metablock, and sends each to a worker near it, many small ones in one
//! call, with the location in the split: on the good path a worker asks the master for nothing. The count is the one
//! of GNU `wc -w`, or of `grep -F -c`, whatever the cuts.
//!
//! What it never does: run code that came over the network, write, or count a split twice (only answers count; a call
//! without one is repeated elsewhere).
//!
//! Reading order: [`count`] and [`lines`] (the pure counting cores), [`task`] (which of them), `split` and `source` (reading one split), [`service`] (the
//! worker), [`plan`] (who counts what: pure), `walk` and [`job`] (the coordinator).
#![forbid(unsafe_code)]

pub mod count;
pub mod job;
pub mod lines;
mod meter;
mod owned;
pub mod plan;
pub mod service;
mod source;
mod split;
pub mod task;
#[cfg(test)]
mod testkit;
mod unprintable;
mod walk;

pub use job::{JobOptions, Progress, Report, count_words, count_words_in};
pub use lines::{Pattern, SEARCH_BUFFER};
pub use plan::Locality;
pub use source::Source;
pub use split::{Counted, count_split};
pub use task::{How, Task};
pub use walk::{ClientTree, Tree};
