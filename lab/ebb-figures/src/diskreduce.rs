//! *DiskReduce: RAIDing the Cloud*.

mod at_hand;
mod chain;
mod deletion;
mod grouping;
mod losses;
mod power;
mod readback;
mod rebuild;
mod reliability;
mod store;
mod waiting;
mod young;

use crate::part::Part;

/// Heading of the page.
pub const TITLE: &str = "DiskReduce: RAIDing the Cloud";

/// Conditions of all parts.
pub const INTRO: &[&str] = &[
    "D1: RAID sets and what they bear. D2: overhead by grouping. D3: encoding in the background, or at once. D4: removed files. \
     D5: degraded reads and rebuilding. D6: reading back three copies or one. D7: bytes lost a year. X2: reads while nodes sleep (ours).",
    "RAID sets are those of the real master, block servers and clients in virtual time, on the machines of docs/lab.md. \
     Shares of space come from the master's records.",
];

/// Its parts, in the order of the paper, and one of our own.
pub const PARTS: &[Part] = &[
    Part { sources: losses::SOURCES, make: losses::section },
    Part { sources: grouping::SOURCES, make: grouping::section },
    Part { sources: young::SOURCES, make: young::section },
    Part { sources: deletion::SOURCES, make: deletion::section },
    Part { sources: rebuild::SOURCES, make: rebuild::section },
    Part { sources: readback::SOURCES, make: readback::section },
    Part { sources: power::SOURCES, make: power::section },
];
