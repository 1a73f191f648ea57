//! Analytic planners: what a layout, a power budget or a code costs and gives, before anything is built.

pub mod figure;
pub mod gears;
pub mod report;
pub mod table;

pub use figure::{Bars, Chart, Figure, Mark, Scale, Series};
pub use report::{Comparison, Section};
pub use table::{Cell, Column, Table};
