use std::collections::BTreeSet;

use ebb_layout::Distance;
use ebb_wire::pb;
use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn work(inode: u64, mib: u64, holders: &[usize]) -> Work {
    let split = pb::Split { inode, length: mib * MIB, ..Default::default() };
    Work { holders: holders.to_vec(), nearness: Distance::Host, ..Work::new(split) }
}

fn batch(worker: usize, works: impl IntoIterator<Item = Work>) -> Batch {
    let mut batch = Batch::of(worker);
    works.into_iter().for_each(|work| batch.add(work));
    batch
}

/// Workers that read 1 MiB a second, one call at a time.
fn crew(turns: &[Turn]) -> Crew {
    let limits = BatchLimits::default();
    let mut crew = Crew::new(turns.len(), Locality::Located, limits, 1);
    for (worker, turn) in turns.iter().enumerate() {
        crew.set_turn(worker, *turn);
        crew.members[worker].pace = Pace::guess(1.0 / MIB as f64);
    }
    crew
}

const fn awake(left_ms: u64) -> Turn {
    Turn::Awake { left_ms, whole_ms: 10_000, next_ms: Some(60_000) }
}

const fn asleep(wakes_in_ms: u64) -> Turn {
    Turn::Asleep { wakes_in_ms }
}

fn inodes(batch: &Batch) -> Vec<u64> {
    batch.work.iter().map(|work| work.split.inode).collect()
}

#[test]
fn a_call_is_cut_to_what_its_worker_can_end() {
    let mut crew = crew(&[awake(4_500)]);
    crew.add([batch(0, (1..=8).map(|inode| work(inode, 1, &[0])))]);
    let call = crew.next_call(0).unwrap();
    assert_eq!((inodes(&call), call.bytes), (vec![1, 2, 3, 4], 4 * MIB));
    crew.on_begun(0);
    assert_eq!(crew.next_call(0), None, "one call at a time");
    crew.on_over(0);
    // The rest waits for a turn in which it can end.
    crew.set_turn(0, awake(900));
    assert_eq!(crew.next_call(0), None);
    crew.set_turn(0, asleep(10));
    assert_eq!(crew.next_call(0), None);
    crew.set_turn(0, Turn::Always);
    assert_eq!(inodes(&crew.next_call(0).unwrap()), [5, 6, 7, 8]);
    assert_eq!(crew.backlog(), (0, 0));
}

#[test]
fn a_split_longer_than_any_turn_begins_early_in_one() {
    let mut crew = crew(&[awake(8_000)]);
    crew.add([batch(0, [work(1, 30, &[0]), work(2, 1, &[0])])]);
    assert_eq!(crew.next_call(0), None);
    crew.set_turn(0, awake(9_500));
    assert_eq!(inodes(&crew.next_call(0).unwrap()), [1]);
}

#[test]
fn a_free_worker_does_what_sleepers_leave() {
    let mut crew = crew(&[Turn::Always, asleep(20_000), asleep(500)]);
    // 1 is also on the free worker, 2 on another that is awake, 3 on sleepers alone; 4 wakes sooner than it were done.
    crew.add([
        batch(1, [work(1, 1, &[0, 1]), work(2, 1, &[1, 0]), work(3, 1, &[1, 2])]),
        batch(2, [work(4, 1, &[0, 2])]),
    ]);
    let call = crew.next_call(0).unwrap();
    assert_eq!((call.worker, inodes(&call)), (0, vec![2, 1]));
    assert_eq!(crew.next_call(0), None);
    assert_eq!(crew.backlog(), (0, 2));
    assert_eq!(crew.wakes_in_ms(), Some(500));
}

#[test]
fn data_of_a_third_worker_is_read_from_it_while_it_is_awake() {
    let mut crew = crew(&[awake(9_000), awake(1_500), asleep(20_000)]);
    crew.add([batch(2, [work(1, 1, &[1, 2]), work(2, 3, &[1, 2])])]);
    assert_eq!(inodes(&crew.next_call(0).unwrap()), [1], "the copy of 2 sleeps before it is read");
    assert_eq!(crew.next_call(0), None);
}

#[test]
fn of_a_busy_worker_no_more_is_taken_than_half_and_only_what_is_near() {
    let mut crew = crew(&[Turn::Always, Turn::Always]);
    crew.add([batch(1, (1..=4).map(|inode| work(inode, 1, &[0, 1])).chain((5..=8).map(|inode| work(inode, 1, &[1]))))]);
    assert_eq!(inodes(&crew.next_call(0).unwrap()), [4, 3, 2, 1]);
    assert_eq!(crew.next_call(0), None);
    assert_eq!(inodes(&crew.next_call(1).unwrap()), [5, 6, 7, 8]);
}

#[test]
fn a_worker_that_failed_with_a_split_does_not_take_it_again() {
    let mut crew = crew(&[Turn::Always, asleep(20_000)]);
    crew.add([batch(1, [Work { tried: BTreeSet::from([0]), ..work(1, 1, &[0, 1]) }])]);
    assert_eq!(crew.next_call(0), None);
    crew.bury(0);
    assert_eq!(crew.drain_all().len(), 1);
}

#[test]
fn a_frozen_call_is_stranded_if_another_ends_it_before_its_node_wakes() {
    let call = batch(1, [work(1, 2, &[0, 1])]);
    let free = crew(&[Turn::Always, asleep(3_000)]);
    assert!(free.is_stranded(&call));
    assert!(!crew(&[Turn::Always, asleep(1_900)]).is_stranded(&call), "it wakes sooner");
    assert!(!crew(&[Turn::Always, awake(1_900)]).is_stranded(&call), "it goes on");
    assert!(!crew(&[awake(1_900), asleep(30_000)]).is_stranded(&call), "the other would strand, too");
    let mut busy = free.clone();
    busy.on_begun(0);
    assert!(!busy.is_stranded(&call));
    let mut has_its_own = free;
    has_its_own.add([batch(0, [work(3, 1, &[0])])]);
    assert!(!has_its_own.is_stranded(&call));
}

fn turns() -> impl Strategy<Value = Turn> {
    prop_oneof![
        Just(Turn::Always),
        Just(Turn::Off),
        (1..12_000_u64).prop_map(|left_ms| Turn::Awake { left_ms, whole_ms: 12_000, next_ms: Some(60_000) }),
        (1..60_000_u64).prop_map(asleep),
    ]
}

proptest! {
    /// Whatever waits where, each split is handed out once, to a worker that can end it, and what stays behind waits.
    #[test]
    fn every_split_is_in_one_place(
        turns in prop::collection::vec(turns(), 1..6),
        works in prop::collection::vec((0..5_usize, 1..6_u64, prop::collection::btree_set(0..6_usize, 1..4)), 0..40),
    ) {
        let count = turns.len();
        let mut crew = crew(&turns);
        crew.calls_each = 100;
        for (inode, (worker, mib, holders)) in (1..).zip(&works) {
            let holders: Vec<usize> = holders.iter().map(|holder| holder % count).collect();
            crew.add([batch(worker % count, [work(inode, *mib, &holders)])]);
        }
        let mut found = Vec::new();
        for (worker, turn) in turns.iter().enumerate() {
            while let Some(call) = crew.next_call(worker) {
                prop_assert_eq!(call.worker, worker);
                prop_assert_eq!(call.bytes, call.work.iter().map(Work::bytes).sum::<u64>());
                prop_assert!(turn.may_begin(crew.need_ms(worker, call.bytes)));
                found.extend(inodes(&call));
                crew.on_begun(worker);
            }
        }
        found.extend(crew.drain_all().iter().flat_map(inodes));
        found.sort_unstable();
        prop_assert_eq!(found, (1..=works.len() as u64).collect::<Vec<_>>());
    }
}
