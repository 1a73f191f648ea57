//! The whole cluster.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::time::Duration;

use ebb_runtime::SeededBug;

use crate::faults::kind::Kind;
use crate::swarm::{self, Next};
use crate::{Report, VirtualOptions, run, run_and_keep};

pub(super) fn good(report: &Report) {
    let shown: Vec<_> = report.violations.iter().take(5).collect();
    assert!(report.violations.is_empty(), "seed {}: {shown:#?}\nof {:?}", report.seed, report.faults);
}

#[test]
fn without_faults_every_promise_is_kept() {
    let options = VirtualOptions { fault_pause: Duration::ZERO, chaos: Duration::from_secs(20), ..Default::default() };
    let report = run(1, options);
    good(&report);
    assert!(report.firm > 50 && report.reads > 50, "{report:?}");
}

#[test]
fn under_faults_every_promise_is_kept() {
    let (mut kinds, mut injected, mut locks) = (BTreeSet::new(), BTreeSet::new(), 0);
    swarm::run_all(0..32, NonZeroUsize::MIN, VirtualOptions::drawn, |report| {
        good(&report);
        locks += report.locks;
        kinds.extend(report.faults.into_keys());
        injected.extend(report.injected.into_keys());
        Next::GoOn
    });
    assert!(locks > 100, "{locks} locks");
    assert!(kinds.len() > 12, "{kinds:?}");
    assert!(Kind::ALL.iter().all(|kind| injected.contains(&kind.to_string())), "{injected:?}");
}

/// Wall clocks of master, nodes and clients jump by up to an hour, back and forth, several times a second: no lease ends,
/// no node counts as dead, and nothing fails.
#[test]
fn clocks_that_jump_cost_nothing() {
    for seed in 0..3 {
        let options = VirtualOptions {
            faults: Some(vec![Kind::Skew]),
            fault_pause: Duration::from_millis(200),
            chaos: Duration::from_secs(60),
            ..VirtualOptions::default()
        };
        let report = run(seed, options);
        good(&report);
        assert!(report.injected["skew"] > 100 && report.injected.len() == 1, "{:?}", report.injected);
        assert!(report.writes > 100, "{report:?}");
        assert_eq!(report.acked, report.writes, "seed {seed}: every write returned well");
    }
}

#[test]
fn a_seed_gives_the_same_run_twice() {
    let options = VirtualOptions { chaos: Duration::from_secs(20), ..Default::default() };
    let (one, other) = (run_and_keep(7, options.clone(), 500_000), run_and_keep(7, options.clone(), 500_000));
    let parting = one.1.iter().zip(&other.1).position(|(one, other)| one != other);
    if let Some(at) = parting {
        let from = at.saturating_sub(10);
        panic!("event {at} differs:\n{:#?}\nother: {:#?}", &one.1[from..=at], other.1[at]);
    }
    assert_eq!(one.0, other.0);
    assert_ne!(run(7, options.clone()).trace_hash, run(8, options).trace_hash);
}

/// The invariants that a seeded bug breaks in the first of these seeds that notices by one of `invariants`.
fn noticed(mistake: &Mistake, seeds: Range<u64>) -> Vec<&'static str> {
    let Mistake { bug, faults, invariants } = *mistake;
    let mut noticed = Vec::new();
    let options = |seed| {
        let drawn = VirtualOptions::drawn(seed);
        let faults = faults.map(<[Kind]>::to_vec).or(drawn.faults.clone());
        VirtualOptions { bug: Some(bug), faults, ..drawn }
    };
    swarm::run_all(seeds, NonZeroUsize::MIN, options, |report| {
        noticed = report.violations.iter().map(|violation| violation.invariant).collect();
        if noticed.iter().any(|broken| invariants.contains(broken)) { Next::Stop } else { Next::GoOn }
    });
    noticed
}

#[test]
fn seeded_bugs_are_found() {
    for mistake in MISTAKES {
        let found = noticed(mistake, 0..200);
        assert!(found.iter().any(|broken| mistake.invariants.contains(broken)), "{}: {found:?}", mistake.bug);
    }
}

/// A seeded bug, and how it is found.
struct Mistake {
    bug: SeededBug,
    /// Faults that it takes to be noticed; none: any.
    faults: Option<&'static [Kind]>,
    invariants: &'static [&'static str],
}

const fn found_by(bug: SeededBug, invariants: &'static [&'static str]) -> Mistake {
    Mistake { bug, faults: None, invariants }
}

const MISTAKES: &[Mistake] = &[
    found_by(SeededBug::SkipFsync, &["healthy", "synced", "fresh"]),
    found_by(SeededBug::StaleRead, &["fresh", "atomic"]),
    // It takes a holder that writes after its lease was given to another: one seed of seven, and of all faults one of
    // two hundred. Members that differ for good are also never healthy in the eyes of fsck.
    Mistake {
        bug: SeededBug::EpochIgnored,
        faults: Some(&[Kind::Oversleep]),
        invariants: &["synced", "fresh", "healthy"],
    },
    found_by(SeededBug::TornOverwrite, &["synced", "torn", "healthy"]),
    found_by(SeededBug::EarlyDelete, &["synced", "healthy", "disks"]),
    found_by(SeededBug::CommitUnsynced, &["synced", "fresh", "healthy"]),
    found_by(SeededBug::ForgetFsync, &["fresh"]),
];
