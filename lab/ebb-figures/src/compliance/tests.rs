use super::report::{Pair, figures, table};
use super::*;

const INTERVAL: Duration = Duration::from_secs(2);

fn run(policy: PolicyKind) -> Compliance {
    let load = Load { low_intervals: 4, ..Load::light(INTERVAL) };
    simulate(3, 9, &Settings::new(policy, INTERVAL), policy, load).unwrap()
}

/// What each policy promises, on a virtual cluster: a cap at each instant after the notice and an interval, or as a
/// mean, what is above it from the battery; no request fails.
#[test]
fn policies_keep_to_the_supply_as_they_promise() {
    for policy in POLICIES {
        let seen = run(policy);
        assert_eq!((seen.broken(), seen.answered.failed()), (None, 0), "{policy}");
        assert!(seen.answered.reads.seconds.len() > 100 && seen.answered.writes.seconds.len() > 5, "{policy}");
        let (within, mean, over) = (seen.record.within(), seen.record.mean_within(), seen.record.over());
        let soon = Some(INTERVAL + NOTICE);
        if policy == PolicyKind::AlwaysOn {
            assert_eq!((within, mean), (None, None), "the bad example");
            continue;
        }
        assert!(mean.is_some() && mean <= soon, "{policy}: {mean:?}");
        assert!(!is_capped(policy) || (within.is_some() && within <= soon), "{policy}: {within:?}");
        assert!(over.missing_joules < 1e-3, "{policy}: {over:?}");
        assert!(seen.record.all_serving() <= Some(INTERVAL * 2), "{policy}: {:?}", seen.record.all_serving());
    }
}

#[test]
fn the_same_seed_gives_the_same_and_both_clusters_have_their_rows_and_lines() {
    let seen = run(PolicyKind::BlinkCircular);
    assert_eq!(run(PolicyKind::BlinkCircular), seen);
    let pairs = [Pair { real: Some(seen.clone()), simulated: Some(seen) }];
    assert_eq!(table(&pairs).rows().len(), 2);
    let figures = figures(&pairs);
    assert_eq!(figures.len(), 5);
    assert!(figures.iter().all(|figure| figure.title.starts_with("Compliance: ") && figure.svg().contains("virtual")));
}

/// A cluster that does not keep its promise is called by it.
#[test]
fn a_policy_that_breaks_its_promise_is_named() {
    let mut seen = run(PolicyKind::BlinkCircular);
    for look in &mut seen.record.looks {
        look.watts = look.watts.max(200.0);
    }
    let broken = seen.broken().unwrap();
    assert!(broken.starts_with("blink-circular: drew more"), "{broken}");
    seen.policy = PolicyKind::AlwaysOn;
    assert_eq!(seen.broken(), None, "it promises nothing");
    seen.answered.add(|answered| &mut answered.writes, INTERVAL, Err(ebb_types::err!(Timeout, "too slow")));
    let broken = seen.broken().unwrap();
    assert!(broken.contains("1 requests failed, the first one: ") && broken.contains("too slow"), "{broken}");
}
