//! Analytic planners: what a layout, a power budget or a code costs and gives, before anything is built.
//!
//! A planner takes plain values (nodes, copies, watts, sizes) and gives plain values back: it reads no clock and no
//! file, starts no thread, and draws chance only from a seed that was handed in, so the same question has the same
//! answer everywhere. It never measures and never talks to a cluster. What it computes are the formulas of the papers
//! that Ebb follows, as far as they need no running machine, and the numbers that the papers print are held to them in
//! tests, row by row. Where a page and its formula disagree, the code says which one is used and why.
//!
//! Values that cannot be are refused with the reason and the nearest value that can.
//!
//! Reading order:
//! - [`layout`]: what each node stores and how fast a dataset reads at every number of active nodes. The targets
//!   themselves live in `ebb_layout::targets`, where placement can use them too. [`layout::fluid`] is the papers' way of
//!   counting, [`layout::placement`] and [`layout::balance`] lay and assign real blocks.
//! - [`gears`]: gear size against recovery group. [`datasets`]: several datasets and who serves which.
//! - [`power`]: availability, blinking, signals, a month under each policy.
//! - [`raid`]: check bytes by grouping, and the Markov model of loss.
//! - [`table`], [`figure`], [`report`]: how answers are shown; [`plots`] are the planners' figures.
//! - [`papers`]: the papers' numbers beside ours. A further paper is a file there and a line in [`papers::ALL`]; what is
//!   computed elsewhere hands a [`Section`] to the page.
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
