//! Analytic planners: the costs and benefits of a layout, a power budget or a code, before anything is built.
//!
//! A planner never measures and never talks to a cluster. It reads no clock and no file, and starts no thread.
//! Randomness comes only from a seed in the arguments, so the same question has the same answer everywhere.
//!
//! A planner takes plain values (nodes, copies, watts, sizes) and returns plain values. It computes the formulas of the
//! papers that Ebb follows, where they need no running machine. Tests compare the results with the papers' printed
//! numbers, row by row. Where a page and its formula disagree, the code says which one is used and why. Impossible
//! values are refused, with the reason and the nearest possible value.
//!
//! Reading order:
//! - [`layout`]: how much each node stores, and how fast a dataset reads at every number of active nodes. The targets
//!   themselves are in `ebb_layout::targets`, where placement can use them too. [`layout::fluid`] counts as the papers
//!   do. [`layout::placement`] and [`layout::balance`] place and assign real blocks.
//! - [`gears`]: gear size against recovery group. [`datasets`]: several datasets, and which nodes serve which dataset.
//! - [`power`]: availability, blinking, signals, a month under each policy.
//! - [`raid`]: check bytes by grouping, and the Markov model of loss.
//! - [`table`], [`figure`], [`report`]: the output. [`plots`]: the planners' figures.
//! - [`papers`]: the papers' numbers beside ours. A further paper is a file there and a line in [`papers::ALL`].
//!   Results that are computed elsewhere enter the page as a [`Section`].
#![forbid(unsafe_code)]

pub mod datasets;
pub mod figure;
pub mod gears;
pub mod layout;
pub mod papers;
pub mod plots;
pub mod power;
pub mod raid;
pub mod report;
mod rng;
pub mod table;

pub use figure::{Bars, Chart, Figure, Mark, Scale, Series};
pub use report::{Comparison, Section};
pub use table::{Cell, Column, Table};
