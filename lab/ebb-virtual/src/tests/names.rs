//! Names of one directory that several clients use at a time, under faults.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::time::Duration;

use ebb_runtime::SeededBug;

use super::cluster::good;
use crate::swarm::{self, Next};
use crate::{VirtualOptions, run};

const SEEDS: Range<u64> = 2000..2012;

fn options(seed: u64) -> VirtualOptions {
    VirtualOptions {
        names: true,
        clients: 3,
        // Clients meet at names more often than faults meet clients.
        work_pause_max: Duration::from_millis(60),
        fault_pause: Duration::from_secs(3),
        chaos: Duration::from_secs(25),
        ..VirtualOptions::drawn(seed)
    }
}

/// Goal: one order explains the clients' answers about names, under every kind of fault. Method: replacements,
/// exclusive makers, moves, exchanges, removals, looks and reads of three clients on four names.
#[test]
fn names_are_linearizable_whatever_fails() {
    let mut each = Vec::new();
    swarm::run_all(SEEDS, NonZeroUsize::MIN, options, |report| {
        good(&report);
        each.push(report.names);
        Next::GoOn
    });
    let most = each.len() * 3 / 4;
    assert!(each.iter().filter(|operations| **operations > 300).count() >= most, "operations by seed: {each:?}");
}

/// Goal: a name that is not there while it is replaced is found. Method: when a client opens a file that has just lost
/// its name, the master answers as if there had never been one.
#[test]
fn an_open_that_misses_a_file_whose_name_was_taken_is_found() {
    let found = (0..5).any(|seed| {
        let seeded = VirtualOptions { bug: Some(SeededBug::OpenDisplaced), ..options(seed) };
        run(seed, seeded).violations.iter().any(|violation| violation.invariant == "linear")
    });
    assert!(found, "no seed shows it");
}
