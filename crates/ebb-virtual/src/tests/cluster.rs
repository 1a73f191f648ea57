//! The whole cluster.

use std::time::Duration;

use crate::{Report, VirtualOptions, run, run_and_keep};

fn good(report: &Report) {
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
    for seed in [1, 2, 3, 12] {
        let report = run(seed, VirtualOptions::default());
        good(&report);
        assert!(!report.faults.is_empty());
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
