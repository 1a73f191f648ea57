//! RAID sets under faults of all kinds, with clients that write, cut, append and remove all the while.

use std::num::NonZeroUsize;
use std::time::Duration;

use ebb_runtime::SeededBug;

use crate::swarm::{self, Next};
use crate::tests::cluster::good;
use crate::{VirtualOptions, run};

#[test]
fn without_faults_what_is_cold_is_encoded_and_thawed_and_every_promise_is_kept() {
    let options = VirtualOptions { fault_pause: Duration::ZERO, ..VirtualOptions::raid(2) };
    let report = run(2, options);
    good(&report);
    assert!(report.thawed > 0, "{report:?}");
}

#[test]
fn under_faults_every_promise_is_kept() {
    let mut thawed = 0;
    swarm::run_all(0..24, NonZeroUsize::MIN, VirtualOptions::raid, |report| {
        good(&report);
        thawed += report.thawed;
        Next::GoOn
    });
    assert!(thawed > 100, "{thawed} thawed");
}

/// Each mistake is found in one of a few seeds.
#[test]
fn mistakes_about_raid_sets_are_found() {
    for bug in [SeededBug::WrongRow, SeededBug::SwapUnfilled, SeededBug::ThawsTheCut] {
        let mut found = None;
        swarm::run_all(
            0..60,
            NonZeroUsize::MIN,
            |seed| VirtualOptions { bug: Some(bug), ..VirtualOptions::raid(seed) },
            |report| {
                if report.violations.is_empty() {
                    return Next::GoOn;
                }
                found = Some(report.seed);
                Next::Stop
            },
        );
        assert!(found.is_some(), "{bug} is found by no seed");
    }
}
