use crate::OutOfReach;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ebb_types::{ErrorKind, PlanVersion};
use proptest::prelude::*;

use super::*;
use crate::{Duty, NodePlan, NodeState, PolicyKind, PowerPlan};

const ONE: NodeId = NodeId::new(1);
const INTERVAL_MS: u64 = 400;
/// Two bytes in a millisecond.
const PACE: u64 = 2_000;

fn plan(version: u64, start_ms: u64, duty: Duty) -> PowerPlan {
    PowerPlan {
        version: PlanVersion::new(version),
        policy: PolicyKind::BlinkCircular,
        start_ms,
        interval_ms: INTERVAL_MS,
        guard_ms: 2,
        budget_mw: 50_000,
        nodes: BTreeMap::from([(ONE, NodePlan { duty, ready_ms: 0, wake_ms: 10, suspend_ms: 5 })]),
        stalled: Vec::new(),
        out_of_reach: OutOfReach::default(),
        why: "a test".into(),
    }
}

fn timetable(plans: impl IntoIterator<Item = PowerPlan>) -> Timetable {
    let mut timetable = Timetable::default();
    for plan in plans {
        timetable.accept(plan, 0).unwrap();
    }
    timetable
}

fn blink(start_ms: u64, active_ms: u64) -> Duty {
    Duty::Blink { start_ms, active_ms }
}

fn serves(plans: &Timetable, at_ms: u64) -> bool {
    plans.state(ONE, at_ms) == NodeState::Awake
}

#[test]
fn a_node_that_never_sleeps_or_is_off_has_no_bound() {
    let room_under = |duty| room(&timetable([plan(1, 0, duty)]), ONE, 1_000, PACE);
    assert_eq!(room_under(Duty::On), None);
    assert_eq!(room_under(Duty::Off), None, "its data are copied elsewhere");
    // 10 + 2 ms to wake, 5 + 2 to fall asleep.
    assert_eq!(room_under(blink(100, 119)), Some(200));
    assert_eq!(room(&Timetable::default(), ONE, 1_000, PACE), None);
}

#[test]
fn a_plan_that_was_announced_counts() {
    let sleeps_soon = timetable([plan(1, 0, Duty::On), plan(2, 1_107, blink(350, 50))]);
    // 100 ms less the falling asleep, and the 31 ms of one blink, which lies at 1150.
    assert_eq!(room(&sleeps_soon, ONE, 1_000, PACE), Some(2 * (100 + 31)));
}

/// As where more power is announced, and the plan until then has short intervals.
#[test]
fn a_node_that_only_an_announced_plan_wakes_has_the_room_of_its_first_interval() {
    let wakes_later = timetable([plan(1, 0, Duty::Off), plan(2, 9_000, Duty::On)]);
    assert_eq!(room(&wakes_later, ONE, 1_000, PACE), Some(2 * INTERVAL_MS));
    assert_eq!(room(&wakes_later, ONE, 8_900, PACE), Some(2 * (INTERVAL_MS - 100)), "it wakes within an interval");
}

#[test]
fn a_debt_falls_while_the_node_serves_and_more_is_refused() {
    let plans = timetable([plan(1, 0, blink(100, 119))]);
    let ask = |bytes| BTreeMap::from([(ONE, Ask { bytes, bytes_per_sec: PACE })]);
    let mut owed = Owed::default();
    owed.add_debts(&plans, 0, &ask(150)).unwrap();
    let refused = owed.add_debts(&plans, 50, &ask(51)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Overloaded);
    assert!(refused.to_string().contains("takes 200"), "{refused}");
    owed.add_debts(&plans, 50, &ask(50)).unwrap();
    assert_eq!(owed.bytes(&plans, ONE, 112, PACE), 200, "it has not served yet");
    assert_eq!(owed.bytes(&plans, ONE, 162, PACE), 100);
    // The limit is the bytes that it can take until the same place of the next interval.
    owed.add_debts(&plans, 162, &ask(100)).unwrap();
    assert!(owed.add_debts(&plans, 162, &ask(1)).is_err());
    assert_eq!(owed.bytes(&plans, ONE, 100_000, PACE), 0);
}

#[test]
fn a_write_for_several_nodes_is_noted_for_all_or_for_none() {
    let two = NodeId::new(2);
    let mut plan = plan(1, 0, blink(100, 119));
    plan.nodes.insert(two, NodePlan { duty: blink(0, 69), ready_ms: 0, wake_ms: 10, suspend_ms: 5 });
    let plans = timetable([plan]);
    let ask = Ask { bytes: 120, bytes_per_sec: PACE };
    let mut owed = Owed::default();
    assert!(owed.add_debts(&plans, 0, &BTreeMap::from([(ONE, ask), (two, ask)])).is_err());
    assert_eq!(owed, Owed::default());
}

#[test]
fn the_pace_is_that_of_the_fastest_look_and_waiting_does_not_count() {
    let mut pace = Pace::default();
    let second = Duration::from_secs;
    pace.begin_write(second(0));
    pace.end(second(1), 15 << 20);
    assert_eq!(pace.bytes_per_sec(), 0, "too few bytes for a rate");
    // Nothing to do for a while.
    pace.begin_write(second(10));
    pace.begin_write(second(10));
    pace.end(second(11), 1 << 20);
    assert_eq!(pace.bytes_per_sec(), 8 << 20, "16 MiB in two seconds");
    pace.end(second(11), 0);
    let look = |pace: &mut Pace, at: u64, took: u64| {
        pace.begin_write(second(at));
        pace.end(second(at + took), 16 << 20);
    };
    look(&mut pace, 20, 1);
    look(&mut pace, 30, 4);
    assert_eq!(pace.bytes_per_sec(), 16 << 20);
    // A disk that has become slow is seen in the end.
    (0..8).for_each(|number| look(&mut pace, 100 + number * 10, 4));
    assert_eq!(pace.bytes_per_sec(), 4 << 20);
}

fn any_duty() -> impl Strategy<Value = Duty> {
    prop_oneof![
        1 => Just(Duty::On),
        6 => (0..INTERVAL_MS, 20..INTERVAL_MS).prop_map(|(start_ms, active_ms)| blink(start_ms, active_ms)),
    ]
}

proptest! {
    #[test]
    fn the_time_a_node_serves_is_the_sum_of_its_milliseconds(
        first in any_duty(),
        second in any_duty(),
        change in 1_u64..1_500,
        from in 0_u64..1_500,
        span in 0_u64..1_500,
    ) {
        let plans = timetable([plan(1, 0, first), plan(2, change, second)]);
        let from = if from < change && change <= from + span { from.min(change - 1) } else { from };
        let naive = (from..from + span).filter(|at| serves(&plans, *at)).count() as u64;
        prop_assert_eq!(plans.serves_ms(ONE, from, from + span), naive);
    }

    /// Goal: admitted bytes are on the node within an interval. Method: a queue that takes two bytes in each
    /// millisecond in which the node serves, step by step. Writes of any size come at any time.
    #[test]
    fn admitted_writes_are_on_the_node_within_an_interval(
        start in 0..INTERVAL_MS,
        active in 30..INTERVAL_MS,
        writes in proptest::collection::vec((0_u64..60, 1_u64..200), 1..80),
    ) {
        let plans = timetable([plan(1, 0, blink(start, active))]);
        let mut owed = Owed::default();
        let mut queue: VecDeque<(u64, u64)> = VecDeque::new();
        let (mut now, mut admitted) = (0, 0_u64);
        for (pause, bytes) in writes {
            for at in now..now + pause {
                let mut takes = if serves(&plans, at) { 2 } else { 0 };
                while takes > 0 && let Some((since, left)) = queue.front_mut() {
                    prop_assert!(at < *since + INTERVAL_MS, "{left} bytes of {since} are still there at {at}");
                    let took = takes.min(*left);
                    (*left, takes) = (*left - took, takes - took);
                    if *left == 0 {
                        queue.pop_front();
                    }
                }
            }
            now += pause;
            let waiting: u64 = queue.iter().map(|(_, left)| left).sum();
            prop_assert_eq!(owed.bytes(&plans, ONE, now, PACE), waiting);
            if owed.add_debts(&plans, now, &BTreeMap::from([(ONE, Ask { bytes, bytes_per_sec: PACE })])).is_ok() {
                queue.push_back((now, bytes));
                admitted += bytes;
            }
        }
        let room = room(&plans, ONE, now, PACE).unwrap_or(u64::MAX);
        prop_assert!(admitted > 0 || room < 200);
    }
}
