use std::collections::BTreeMap;

use ebb_types::PlanVersion;
use proptest::prelude::*;

use super::*;
use crate::plan::{Duty, NodePlan, OutOfReach, PowerPlan};
use crate::policy::PolicyKind;

const INTERVAL_MS: u64 = 10_000;
/// Of such a turn a node serves for 10 ms: less than its clients rest.
const SHORTEST_MS: u64 = 230;
const ONE: NodeId = NodeId::new(1);

fn plan(version: u64, start_ms: u64, duty: Duty) -> PowerPlan {
    PowerPlan {
        version: PlanVersion::new(version),
        policy: PolicyKind::BlinkStaggered,
        start_ms,
        interval_ms: INTERVAL_MS,
        guard_ms: 10,
        budget_mw: 50_000,
        nodes: BTreeMap::from([(ONE, NodePlan { duty, ready_ms: 0, wake_ms: 100, suspend_ms: 100 })]),
        stalled: Vec::new(),
        out_of_reach: OutOfReach::default(),
        why: String::new(),
    }
}

fn timetable(plans: impl IntoIterator<Item = PowerPlan>) -> Timetable {
    let mut timetable = Timetable::default();
    for plan in plans {
        assert!(timetable.accept(plan, 0).unwrap());
    }
    timetable
}

fn blink(start_ms: u64, active_ms: u64) -> Duty {
    Duty::Blink { start_ms, active_ms }
}

const fn awake(left_ms: u64, whole_ms: u64) -> Turn {
    Turn::Awake { left_ms, whole_ms, next_ms: None }
}

#[test]
fn a_turn_is_told_from_the_plans() {
    let blinks = timetable([plan(1, 0, blink(0, 4_220))]);
    assert_eq!(blinks.turn(ONE, 1_110), Turn::Awake { left_ms: 2_750, whole_ms: 3_750, next_ms: Some(9_000) });
    assert_eq!(blinks.turn(ONE, 6_000), Turn::Asleep { wakes_in_ms: 4_110 });
    assert_eq!(Timetable::default().turn(ONE, 6_000), Turn::Always);
    assert_eq!(timetable([plan(1, 0, Duty::On)]).turn(ONE, 6_000), Turn::Always);
    assert_eq!(timetable([plan(1, 0, Duty::Off)]).turn(ONE, 6_000), Turn::Off);
    // The next plan lets it serve on, or lets it sleep for good.
    let stays = timetable([plan(1, 0, blink(0, 4_220)), plan(2, 10_000, Duty::On)]);
    assert_eq!(stays.turn(ONE, 1_110), Turn::Awake { left_ms: 2_750, whole_ms: u64::MAX, next_ms: Some(8_890) });
    let ends = timetable([plan(1, 0, blink(0, 4_220)), plan(2, 10_000, Duty::Off)]);
    assert_eq!(ends.turn(ONE, 1_110), Turn::Awake { left_ms: 2_750, whole_ms: 2_750, next_ms: None });
    assert_eq!(ends.turn(ONE, 6_000), Turn::Off);
}

#[test]
fn a_task_begins_if_it_can_end() {
    let turn = awake(2_000, 4_000);
    assert_eq!(turn.room_ms(), 1_800);
    assert!(turn.may_begin(1_800) && !turn.may_begin(1_801));
    assert!(Turn::Always.may_begin(u64::MAX));
    assert!(!Turn::Off.may_begin(0) && !Turn::Asleep { wakes_in_ms: 1 }.may_begin(0));
    // Longer than any turn: at the beginning of one.
    assert!(!turn.may_begin(9_000));
    assert!(awake(3_700, 4_000).may_begin(9_000));
}

#[test]
fn a_frozen_task_is_begun_anew_if_it_ends_before_its_node_wakes() {
    let asleep = Turn::Asleep { wakes_in_ms: 3_000 };
    assert!(asleep.is_sooner_elsewhere(2_999) && !asleep.is_sooner_elsewhere(3_000));
    assert!(Turn::Off.is_sooner_elsewhere(u64::MAX));
    assert!(!Turn::Always.is_sooner_elsewhere(0) && !awake(1, 1).is_sooner_elsewhere(0));
}

#[test]
fn a_pace_is_learned() {
    let mut pace = Pace::guess(0.5);
    assert_eq!((pace.need_ms(4), pace.units_in(1_000)), (2_000, 2));
    for _ in 0..60 {
        pace.learn(10, Duration::from_secs(1));
    }
    assert!((100..=101).contains(&pace.need_ms(1)), "{pace:?}");
    // Unequal work needs a margin.
    for index in 0..60 {
        pace.learn(10, Duration::from_secs(1 + index % 3));
    }
    assert!(pace.need_ms(1) > 300, "{pace:?}");
}

proptest! {
    #[test]
    fn what_begins_ends_before_the_node_sleeps(
        start_ms in 0..INTERVAL_MS, active_ms in SHORTEST_MS..INTERVAL_MS, at_ms in 0..3 * INTERVAL_MS, need_ms in 0..INTERVAL_MS,
        second in prop::option::of((1..3 * INTERVAL_MS, 0..INTERVAL_MS, SHORTEST_MS..INTERVAL_MS, 0..3_u8)),
    ) {
        let second = second.map(|(from, start, active, duty)| {
            plan(2, from, [blink(start, active), Duty::On, Duty::Off][usize::from(duty)])
        });
        let timetable = timetable([plan(1, 0, blink(start_ms, active_ms))].into_iter().chain(second));
        let turn = timetable.turn(ONE, at_ms);
        prop_assert_eq!(turn.is_awake(), !timetable.awake_for(ONE, at_ms).is_asleep());
        if let Turn::Awake { left_ms, whole_ms, .. } = turn {
            prop_assert!(left_ms <= whole_ms);
            prop_assert!(left_ms > 0 || !turn.may_begin(need_ms.max(1)));
            if turn.may_begin(need_ms) && need_ms + MARGIN_MS <= whole_ms {
                let until_asleep_ms = need_ms + MARGIN_MS + rest_ms(INTERVAL_MS);
                prop_assert!(timetable.awake_for(ONE, at_ms).serves_for(until_asleep_ms));
            }
        }
        if let Turn::Asleep { wakes_in_ms } = turn {
            prop_assert!(timetable.turn(ONE, at_ms + wakes_in_ms).is_awake());
        }
        prop_assert!(!turn.may_begin(need_ms) || turn.is_awake());
    }

    #[test]
    fn estimate_and_bound_agree(times in prop::collection::vec((1..50_u64, 1..5_000_u64), 1..40), room_ms in 0..100_000_u64) {
        let mut pace = Pace::guess(1.0);
        for (units, ms) in times {
            pace.learn(units, Duration::from_millis(ms));
        }
        let units = pace.units_in(room_ms);
        prop_assert!(pace.need_ms(units) <= room_ms + 1);
        prop_assert!(pace.need_ms(units + 1) >= room_ms);
    }
}
