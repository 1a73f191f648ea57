//! Every policy against every signal, under faults.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::Duration;

use ebb_layout::LayoutKind;
use ebb_power::PolicyKind;
use ebb_runtime::SeededBug;

use crate::Report;
use crate::power::options::{Fault, PowerOptions, SignalKind};
use crate::power::run::run;
use crate::swarm::{self, Next};

fn good(report: &Report, case: &str) {
    let shown: Vec<_> = report.violations.iter().take(5).collect();
    assert!(report.violations.is_empty(), "seed {} {case}: {shown:#?}\nof {:?}", report.seed, report.injected);
}

/// The run of a seed whose number gives the pair of policy and signal.
fn paired(seed: u64) -> PowerOptions {
    let (policies, signals) = (PolicyKind::ALL, SignalKind::ALL);
    let policy = policies[seed as usize % policies.len()];
    let signal = signals[seed as usize / policies.len() % signals.len()];
    PowerOptions { policy, signal, ..PowerOptions::drawn(seed) }
}

#[test]
fn every_policy_keeps_its_promises_under_every_signal_and_faults() {
    let pairs = (PolicyKind::ALL.len() * SignalKind::ALL.len()) as u64;
    let (mut injected, mut firm, mut reads) = (BTreeSet::new(), 0, 0);
    swarm::run_each(
        0..pairs,
        NonZeroUsize::MIN,
        |seed| run(seed, paired(seed)),
        |report| {
            let options = paired(report.seed);
            good(&report, &format!("{} {:?} at {}", options.policy, options.signal, options.level));
            firm += report.firm;
            reads += report.reads;
            injected.extend(report.injected.into_keys());
            Next::GoOn
        },
    );
    assert!(firm > 1000 && reads > 500, "{firm} calls of fsync, {reads} reads");
    assert!(Fault::ALL.iter().all(|fault| injected.contains(fault.name())), "{injected:?}");
}

/// Where nothing is ever switched off, copies lie elsewhere only while their homes have too much to write. When the
/// writing ends, none does.
#[test]
fn bursts_are_written_by_others_and_go_home() {
    let options = |seed| PowerOptions { policy: PolicyKind::AlwaysOn, bursts: true, ..PowerOptions::drawn(seed) };
    let (mut most, mut calm) = (0, 0);
    swarm::run_each(
        0..6,
        NonZeroUsize::MIN,
        |seed| run(seed, PowerOptions { bursts: seed < 4, ..options(seed) }),
        |report| {
            good(&report, "bursts");
            let seen = if report.seed < 4 { &mut most } else { &mut calm };
            *seen = report.away_from_on.max(*seen);
            Next::GoOn
        },
    );
    assert!(most >= 8, "{most} copies at most lay away from homes that had too much to write");
    assert_eq!(calm, 0, "two writers of single metablocks are no burst");
}

#[test]
fn a_seed_of_power_gives_the_same_run_twice() {
    let options = PowerOptions { chaos: Duration::from_secs(15), ..PowerOptions::drawn(3) };
    assert_eq!(run(3, options.clone()), run(3, options));
}

#[test]
fn mistakes_with_stand_ins_are_found() {
    // Writes that a log lost are missing from a read, or the recovery that knows of them waits for ever.
    for (bug, seeds) in [(SeededBug::StandinUnsynced, 0..200), (SeededBug::LogIgnored, 0..200)] {
        let mut found = false;
        // Nodes that take turns cause much logging. Unsynced logged writes are lost when the log's machine and the
        // writers lose their power at once.
        let options = |seed| PowerOptions {
            bug: Some(bug),
            policy: PolicyKind::BlinkCircular,
            signal: SignalKind::Constant,
            faults: vec![Fault::AlwaysOnAndWriters, Fault::Node],
            fault_pause: Duration::from_millis(700),
            chaos: Duration::from_secs(60),
            ..PowerOptions::drawn(seed)
        };
        swarm::run_each(
            seeds,
            NonZeroUsize::MIN,
            |seed| run(seed, options(seed)),
            |report| {
                found = report.violations.iter().any(|violation| matches!(violation.invariant, "synced" | "reach"));
                if found { Next::Stop } else { Next::GoOn }
            },
        );
        assert!(found, "{bug}");
    }
}

/// Nodes that are gone for moments, while a file on a chain or circle gets longer.
fn layout_under_failures(seed: u64, kept: LayoutKind) -> PowerOptions {
    PowerOptions {
        policy: PolicyKind::AlwaysOn,
        faults: vec![Fault::Node],
        fault_pause: Duration::from_millis(700),
        chaos: Duration::from_secs(40),
        kept: Some(kept),
        ..PowerOptions::drawn(seed)
    }
}

#[test]
fn after_failures_every_node_has_its_share_again() {
    for kept in [LayoutKind::Geared, LayoutKind::PowerBalanced] {
        swarm::run_each(
            0..4,
            NonZeroUsize::MIN,
            |seed| run(seed, layout_under_failures(seed, kept)),
            |report| {
                assert!(report.violations.is_empty(), "{kept:?}, seed {}: {:?}", report.seed, report.violations);
                Next::GoOn
            },
        );
    }
}

/// Goal: that the layout does not come back is seen.
#[test]
fn copies_that_stay_off_their_layout_are_found() {
    let mut found = false;
    let bug = Some(SeededBug::StaysMisplaced);
    swarm::run_each(
        0..100,
        NonZeroUsize::MIN,
        |seed| run(seed, PowerOptions { bug, ..layout_under_failures(seed, LayoutKind::Geared) }),
        |report| {
            found = report.violations.iter().any(|violation| violation.invariant == "placed");
            if found { Next::Stop } else { Next::GoOn }
        },
    );
    assert!(found);
}

#[test]
fn copies_that_stay_away_are_found() {
    let mut found = false;
    let options = |seed| PowerOptions { bug: Some(SeededBug::StaysAway), ..PowerOptions::drawn(seed) };
    swarm::run_each(
        0..200,
        NonZeroUsize::MIN,
        |seed| run(seed, options(seed)),
        |report| {
            found = report.violations.iter().any(|violation| violation.invariant == "home");
            if found { Next::Stop } else { Next::GoOn }
        },
    );
    assert!(found);
}
