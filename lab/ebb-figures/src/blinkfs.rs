//! *BlinkFS: A Distributed File System for Intermittent Power*.

mod compliance;
mod computed;
mod keyvalue;
mod latency;
mod mapreduce;
mod oscillation;
mod policies;
mod requests;
mod search;
mod speed;

use crate::part::Part;

/// Heading of the page.
pub const TITLE: &str = "BlinkFS: A Distributed File System for Intermittent Power";

/// Conditions of all parts.
pub const INTRO: &[&str] = &[
    "Nine block servers of 25 W awake and 1 W asleep, interval 60 s; per cents are of their 225 W, sleepers' watts inside. \
     Reads, writes and jobs are those of the real services in virtual time, under plans of the real policies.",
];

/// Its figures, in the order of the paper; then the policies beside each other, and how they keep to the supply.
pub const PARTS: &[Part] = &[
    Part { sources: computed::SOURCES, make: computed::section },
    Part { sources: speed::SOURCES, make: speed::section },
    Part { sources: latency::SOURCES, make: latency::section },
    Part { sources: oscillation::SOURCES, make: oscillation::section },
    Part { sources: mapreduce::SOURCES, make: mapreduce::section },
    Part { sources: keyvalue::SOURCES, make: keyvalue::section },
    Part { sources: search::SOURCES, make: search::section },
    Part { sources: policies::SOURCES, make: policies::section },
    Part { sources: compliance::SOURCES, make: compliance::section },
];
