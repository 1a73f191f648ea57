//! One node that is slow for long.

use std::num::NonZeroUsize;
use std::time::Duration;

use ebb_runtime::SeededBug;
use ebb_types::deadlines::WRITE_DEADLINE;

use super::cluster::good;
use crate::VirtualOptions;
use crate::faults::kind::Kind;
use crate::faults::links::{LOSSY, SLOW};
use crate::gray::{GrayReport, Slow, run};
use crate::swarm::{self, Next};

fn check(seed: u64, slow: Slow) -> GrayReport {
    let report = run(seed, slow, None);
    println!("{slow:?} seed {seed}: {:?}, {} synced, {} replaced", report.longest, report.synced, report.replaced);
    let shown: Vec<_> = report.violations.iter().take(5).collect();
    assert!(shown.is_empty(), "{slow:?}, seed {seed}: {shown:#?}\nof {report:?}");
    report
}

#[test]
fn a_slow_disk_delays_writers_for_a_while_and_is_used_again_when_it_is_well() {
    for seed in 0..3 {
        let report = check(seed, Slow::Disk(500.0));
        assert!(report.longest[1] > Duration::from_millis(200) && report.replaced > 0, "{report:?}");
    }
}

#[test]
fn slow_links_delay_writers_for_a_while_and_are_used_again_when_they_are_well() {
    for seed in 0..2 {
        for links in [SLOW, LOSSY] {
            let report = check(seed, Slow::Links(links));
            assert!(report.replaced > 0, "{report:?}");
        }
    }
}

#[test]
fn where_nothing_or_everything_is_slow_nothing_is_gray() {
    let everything = Slow::AllDisks(500.0);
    for (seed, slow) in [(0, Slow::Nothing), (0, everything), (1, everything), (2, everything), (2, Slow::Disk(20.0))] {
        let report = run(seed, slow, None);
        let called: Vec<_> = report.violations.iter().filter(|found| found.detail.contains("is called gray")).collect();
        assert!(called.is_empty(), "{slow:?}: {report:?}");
        // A disk that is 500 times slower, and that many files meet on, passes the deadline of a write. This is no judgement.
        let has_waited = report.longest.iter().max() >= Some(&WRITE_DEADLINE);
        assert_eq!(report.replaced > 0, has_waited, "{slow:?}: {report:?}");
    }
}

#[test]
fn a_master_that_never_judges_or_never_forgives_is_found() {
    for (bug, sentence) in [(SeededBug::NeverGray, "took"), (SeededBug::GrayForGood, "is called gray")] {
        let report = run(0, Slow::Disk(500.0), Some(bug));
        let is_found = report.violations.iter().any(|violation| violation.detail.contains(sentence));
        assert!(is_found, "{bug}: {report:?}");
    }
}

/// All other faults: processes that freeze, die, are cut off, fill up and come back, nodes that are drained and copied.
/// `EBB_GRAY_SEEDS` sets how many seeds (8).
#[test]
fn faults_that_are_no_slowness_make_nothing_gray() {
    let seeds = std::env::var("EBB_GRAY_SEEDS").map_or(8, |text| text.parse().expect("a number of seeds"));
    let is_other = |kind: &Kind| !matches!(kind, Kind::SlowDisk | Kind::GrayLink);
    let kinds: Vec<Kind> = Kind::ALL.iter().copied().filter(is_other).collect();
    let options = |seed| VirtualOptions { faults: Some(kinds.clone()), ..VirtualOptions::drawn(seed) };
    let mut called = Vec::new();
    swarm::run_all(5000..5000 + seeds, NonZeroUsize::MIN, options, |report| {
        good(&report);
        called.extend((report.gray > 0).then_some((report.seed, report.gray, report.injected)));
        Next::GoOn
    });
    assert!(called.is_empty(), "{called:#?}");
}
