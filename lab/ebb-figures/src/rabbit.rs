//! *Robust and Flexible Power-Proportional Storage* (CMU-PDL-10-106).

mod computed;
mod failure;
mod sharing;
mod sort;
mod throughput;

use crate::part::Part;

/// Heading of the page.
pub const TITLE: &str = "Rabbit: Robust and Flexible Power-Proportional Storage";

/// Conditions of all parts.
pub const INTRO: &[&str] = &[
    "Full reads and writes, and datasets that are read at once, are those of the real services in virtual time; layouts, gears \
     and degrees of sharing are computed from the functions that the services call. The machines are those of docs/lab.md, and so is the scale.",
];

/// Its figures, in the order of the page.
pub const PARTS: &[Part] = &[
    Part { sources: computed::SOURCES, make: computed::section },
    Part { sources: throughput::SOURCES, make: throughput::section },
    Part { sources: sort::SOURCES, make: sort::section },
    Part { sources: sharing::SOURCES, make: sharing::section },
    Part { sources: failure::SOURCES, make: failure::section },
];
