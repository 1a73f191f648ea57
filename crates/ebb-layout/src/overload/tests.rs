//! Overloaded nodes; others write for them until all write alike.

use proptest::prelude::*;

use super::*;

const RULE: OverloadRule = OverloadRule { ahead_bytes: Some(100), ahead_metablocks: 4, away_max: 50 };

fn queues(waiting: &[u64]) -> BTreeMap<NodeId, Queue> {
    let queue = |(place, bytes): (usize, &u64)| {
        (NodeId::new(place as u64 + 1), Queue { waiting_bytes: *bytes, ..Queue::default() })
    };
    waiting.iter().enumerate().map(queue).collect()
}

fn over(waiting: &[u64], before: &[u64], metablock_bytes: u64) -> Vec<u64> {
    let before = before.iter().copied().map(NodeId::new).collect();
    choose_overloaded(&RULE, &queues(waiting), &before, metablock_bytes).iter().map(|node| node.raw()).collect()
}

#[test]
fn a_home_is_overloaded_far_above_the_mean_and_until_it_is_near_it() {
    // The mean is 100 where three have nothing.
    assert_eq!(over(&[400, 0, 0, 0], &[], 10), [1]);
    assert_eq!(over(&[199, 199, 1, 1], &[], 10), [] as [u64; 0], "merely busier");
    assert_eq!(over(&[200, 200, 0, 0], &[], 10), [1, 2]);
    assert_eq!(over(&[151, 151, 49, 49], &[1], 10), [1], "it was, and is not near yet");
    assert_eq!(over(&[149, 151, 50, 50], &[1], 10), [] as [u64; 0]);
    assert_eq!(over(&[1000, 1000, 1000, 1000], &[1, 2], 10), [] as [u64; 0], "all are busy: no node could help");
    assert_eq!(over(&[400, 0, 0, 0], &[], 100), [] as [u64; 0], "the grants of one writer ahead of it");
}

#[test]
fn no_more_is_away_than_can_come_back_and_a_rule_that_is_off_is_off() {
    let mut queues = queues(&[4000, 0, 0, 0]);
    queues.get_mut(&NodeId::new(1)).unwrap().away = 49;
    let over = |rule: &OverloadRule, queues: &_| choose_overloaded(rule, queues, &BTreeSet::new(), 1).len();
    assert_eq!(over(&RULE, &queues), 1);
    assert_eq!(over(&OverloadRule { ahead_bytes: None, ..RULE }, &queues), 0);
    queues.get_mut(&NodeId::new(1)).unwrap().away = 50;
    assert_eq!(over(&RULE, &queues), 0);
    assert!(RULE.lets_home(100) && !RULE.lets_home(101));
}

proptest! {
    /// With any waiting bytes, not all are overloaded, and a node that is not has no more than one that is.
    #[test]
    fn a_node_that_is_on_can_always_write_for_them(waiting in prop::collection::vec(0..5_000_u64, 1..20)) {
        let all = queues(&waiting);
        let over = choose_overloaded(&RULE, &all, &BTreeSet::new(), 1);
        prop_assert!(over.len() < all.len());
        let most = all.iter().filter(|one| !over.contains(one.0)).map(|one| one.1.waiting_bytes).max().unwrap();
        prop_assert!(over.iter().all(|node| all[node].waiting_bytes > most));
    }
}
