//! One fault at a time: no client waits for long.

use std::num::NonZeroUsize;

use ebb_runtime::SeededBug;

use crate::single::{SingleOptions, run};
use crate::swarm::{self, Next};

/// Goal: while one block server is frozen, killed, off or cut off, every create, write, sync and read of a healthy
/// client ends well within its bound; missing copies are made again after; and one node may go then. Method: as many
/// block servers as copies, mostly.
#[test]
fn one_impaired_block_server_keeps_no_client_waiting() {
    let mut bad = Vec::new();
    let run = |seed| run(seed, SingleOptions::drawn(seed));
    swarm::run_each(0..10, NonZeroUsize::MIN, run, |report| {
        eprintln!("seed {}: {} writes, slowest {:?}", report.seed, report.writes, report.slowest);
        assert!(!report.violations.is_empty() || report.writes > 100 && report.reads > 30, "{report:?}");
        bad.extend(report.violations.iter().take(3).map(|violation| format!("seed {}: {violation:?}", report.seed)));
        Next::GoOn
    });
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn a_client_that_waits_until_its_deadline_is_found() {
    let found = (0..20).any(|seed| {
        let seeded = SingleOptions { bug: Some(SeededBug::WaitsToGoOn), ..SingleOptions::drawn(seed) };
        run(seed, seeded).violations.iter().any(|violation| violation.invariant == "available")
    });
    assert!(found, "no seed shows it");
}
