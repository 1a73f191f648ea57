use proptest::prelude::*;

use super::lookup::{Awake, NodeState};
use super::timetable::{Action, Timetable};
use super::*;
use crate::hardware::{Hardware, NodePower};

fn node(duty: Duty) -> NodePlan {
    NodePlan { duty, ready_ms: 0, wake_ms: 10, suspend_ms: 5 }
}

fn plan(duties: &[Duty]) -> PowerPlan {
    PowerPlan {
        version: PlanVersion::new(1),
        policy: PolicyKind::BlinkCircular,
        start_ms: 0,
        interval_ms: 1_000,
        guard_ms: 2,
        budget_mw: 50_000,
        nodes: duties.iter().enumerate().map(|(at, duty)| (NodeId::new(at as u64 + 1), node(*duty))).collect(),
        stalled: vec![DatasetId::new(4)],
        out_of_reach: OutOfReach { metablocks: 3, example: "/data/2".into() },
        why: "2 of 3 nodes at a time".into(),
    }
}

const ONE: NodeId = NodeId::new(1);

fn blink(start_ms: u64, active_ms: u64) -> Duty {
    Duty::Blink { start_ms, active_ms }
}

#[test]
fn transitions_and_guard_lie_inside_the_powered_time() {
    let plan = plan(&[blink(900, 300)]);
    let states = [
        (899, NodeState::Asleep),
        (900, NodeState::Waking),
        (911, NodeState::Waking),
        (912, NodeState::Awake),
        (1_192, NodeState::Awake),
        (1_193, NodeState::FallingAsleep),
        (1_199, NodeState::FallingAsleep),
        (1_200, NodeState::Asleep),
    ];
    for (at, state) in states {
        assert_eq!(plan.state(ONE, at), state, "{at}");
    }
    assert_eq!(plan.awake_for(ONE, 1_000), Awake::ForMs(193));
    assert_eq!(plan.next_wake_ms(ONE, 1_193), Some(1_912));
    assert_eq!(plan.next_switch(ONE, 950), Some((1_200, false)));
    assert_eq!(plan.next_switch(ONE, 1_200), Some((1_900, true)));
}

#[test]
fn a_longer_service_is_greater_and_a_sleeping_node_serves_nothing() {
    let all = [Awake::Asleep, Awake::ForMs(5), Awake::ForMs(7), Awake::Always];
    assert!(all.is_sorted());
    assert_eq!(all.map(|one| one.serves_for(6)), [false, false, true, true]);
    assert!(!Awake::Asleep.serves_for(0));
    assert_eq!(all.map(|one| one.end_ms(10)), [Some(10), Some(15), Some(17), None]);
    assert_eq!((Awake::for_ms(0), Awake::for_ms(5)), (Awake::Asleep, Awake::ForMs(5)));
}

#[test]
fn readers_find_the_longest_awake_and_the_first_to_wake() {
    let plan = plan(&[blink(0, 300), blink(100, 300), Duty::Off, blink(500, 16), blink(600, 100)]);
    let ids = || (1..=5).map(NodeId::new);
    assert_eq!(plan.longest_awake(ids(), 150), Some((NodeId::new(2), Awake::ForMs(243))));
    assert_eq!(plan.longest_awake(ids(), 450), None);
    // Node 4 is never awake long enough to serve, node 3 never at all.
    assert_eq!(plan.next_wake_of(ids(), 450), Some((NodeId::new(5), 612)));
    assert_eq!(plan.next_wake_of([NodeId::new(3), NodeId::new(4)], 450), None);
    assert_eq!(plan.awake(150).map(NodeId::raw).collect::<Vec<_>>(), [1, 2]);
    // A node that is not in the plan is always on.
    assert_eq!(plan.longest_awake([NodeId::new(9)], 450), Some((NodeId::new(9), Awake::Always)));
}

#[test]
fn a_plan_prints_its_contents() {
    let printed = plan(&[Duty::On, Duty::Off, blink(5, 7)]).to_string();
    let wanted = "plan1 blink-circular from 0 ms, interval 1000 ms, 50.0 W: 2 of 3 nodes at a time; 3 metablocks out of \
                  reach, as of /data/2\n  ds4 is out of reach\n  n1 on\n  n2 off\n  n3 blinks from 5 ms for 7 ms\n";
    assert_eq!(printed, wanted);
}

#[test]
fn plans_that_cannot_be_are_refused() {
    let refusal = |change: fn(&mut PowerPlan)| {
        let mut plan = plan(&[blink(0, 10)]);
        change(&mut plan);
        plan.check().unwrap_err().to_string()
    };
    assert!(refusal(|plan| plan.interval_ms = 0).contains("interval of 0 ms"));
    assert!(refusal(|plan| plan.interval_ms = 10).contains("n1 blinks"));
    assert!(refusal(|plan| plan.version = PlanVersion::new(0)).contains("1 or more"));
    assert!(refusal(|plan| plan.start_ms = u64::MAX).contains("end of time"));
    assert!(refusal(|plan| plan.why = "x".repeat(2_000)).contains("sentence"));
    assert!(plan(&[]).node(ONE).unwrap_err().to_string().contains("does not follow"));
}

#[test]
fn nodes_that_serve_when_the_first_plan_begins_serve_before_it() {
    let mut table = Timetable::default();
    assert!(table.accept(PowerPlan { start_ms: 500, ..plan(&[Duty::On]) }, 0).unwrap());
    assert_eq!((table.awake_for(ONE, 100), table.state(ONE, 100)), (Awake::Always, NodeState::Awake));
    assert_eq!(table.next_wake_ms(ONE, 100), Some(100));
}

#[test]
fn a_timetable_changes_plans_when_the_next_begins() {
    let mut table = Timetable::default();
    assert_eq!((table.awake_for(ONE, 5), table.state(ONE, 5)), (Awake::Always, NodeState::Awake));
    assert!(table.accept(plan(&[Duty::On]), 0).unwrap());
    let off = PowerPlan { version: PlanVersion::new(2), start_ms: 500, ..plan(&[Duty::Off]) };
    assert!(table.accept(off.clone(), 100).unwrap());
    assert!(!table.accept(off, 100).unwrap(), "known already");
    assert_eq!(table.awake_for(ONE, 100), Awake::ForMs(500 - 100 - 5 - 2));
    assert_eq!(table.state(ONE, 492), NodeState::Awake);
    assert_eq!(table.state(ONE, 493), NodeState::FallingAsleep);
    assert_eq!(table.state(ONE, 500), NodeState::Asleep);
    assert_eq!(table.next_switch(ONE, 100), Some((500, false)));
    assert_eq!(table.next_wake_ms(ONE, 499), None);
    let mut on = PowerPlan { version: PlanVersion::new(3), start_ms: 800, ..plan(&[Duty::On]) };
    on.nodes.get_mut(&ONE).unwrap().ready_ms = 812;
    assert!(table.accept(on, 600).unwrap());
    assert_eq!(table.next_wake_ms(ONE, 600), Some(812));
    assert_eq!(table.state(ONE, 805), NodeState::Waking);
    // A plan that was announced before another one, and starts no earlier than it, never comes into force.
    let sooner = PowerPlan { version: PlanVersion::new(4), start_ms: 700, ..plan(&[Duty::On]) };
    assert!(table.accept(sooner, 600).unwrap());
    assert_eq!(table.at(900).unwrap().version, PlanVersion::new(4));
    assert_eq!(table.at(650).unwrap().version, PlanVersion::new(2), "the one in force stays until then");
}

#[test]
fn nodes_in_turns_meet_under_the_next_plan_or_never() {
    let (two, mut table) = (NodeId::new(2), Timetable::default());
    assert_eq!(table.next_meeting_ms(ONE, two, 7, 100), Some(7), "without a plan all serve");
    table.accept(plan(&[blink(0, 300), blink(500, 300)]), 0).unwrap();
    assert_eq!(table.next_meeting_ms(ONE, two, 0, 1), None);
    let overlap =
        PowerPlan { version: PlanVersion::new(2), start_ms: 5_000, ..plan(&[blink(0, 300), blink(200, 300)]) };
    table.accept(overlap, 0).unwrap();
    assert_eq!(table.next_meeting_ms(ONE, two, 0, 50), Some(5_212));
    assert_eq!(table.next_meeting_ms(ONE, two, 0, 90), None, "too short to send");
    let apart = PowerPlan { version: PlanVersion::new(3), start_ms: 7_000, ..plan(&[Duty::On, Duty::Off]) };
    table.accept(apart, 5_100).unwrap();
    assert_eq!(table.next_meeting_ms(ONE, two, 6_100, 50), Some(6_212));
    assert_eq!(table.next_meeting_ms(ONE, two, 6_300, 50), None, "one of them is off from then on");
}

#[test]
fn a_power_client_acts_in_time() {
    let mut table = Timetable::default();
    assert_eq!(table.next_action(ONE, 0), None);
    table.accept(plan(&[blink(200, 300)]), 0).unwrap();
    assert_eq!(table.next_action(ONE, 0), Some((200, Action::Wake)));
    assert_eq!(table.next_action(ONE, 200), Some((495, Action::Sleep)));
    assert_eq!(table.next_action(ONE, 497), Some((497, Action::Sleep)), "late is now");
    // The next plan has it on at its start, and never lets it sleep.
    let on = PowerPlan { version: PlanVersion::new(2), start_ms: 400, ..plan(&[Duty::On]) };
    table.accept(on, 0).unwrap();
    assert_eq!(table.next_action(ONE, 300), None);
    let off = PowerPlan { version: PlanVersion::new(3), start_ms: 1_000, ..plan(&[Duty::Off]) };
    table.accept(off, 0).unwrap();
    assert_eq!(table.next_action(ONE, 300), Some((995, Action::Sleep)));
}

#[test]
fn a_sleeping_node_is_not_overdue_and_one_that_misses_its_wakes_is() {
    let mut timetable = Timetable::default();
    assert!(!timetable.is_overdue(ONE, 1_000, 3_999, 3_000));
    assert!(timetable.is_overdue(ONE, 1_000, 4_000, 3_000), "without a plan a node always serves");
    timetable.accept(plan(&[blink(0, 300), Duty::Off, Duty::On]), 0).unwrap();
    let [two, three] = [2, 3].map(NodeId::new);
    assert!(timetable.is_overdue(three, 1_000, 4_000, 3_000));
    assert!(!timetable.is_overdue(two, 1_000, 1_000_000, 3_000), "it is off");
    // Heard while it served, then silent through the next two wakes, and the whole of a third.
    assert!(!timetable.is_overdue(ONE, 1_100, 3_200, 1_500));
    assert!(timetable.is_overdue(ONE, 1_100, 3_300, 1_500));
    assert!(!timetable.is_overdue(ONE, 1_100, 3_300, 5_000), "not for so long");
}

/// A node that was heard last under a plan before those that switched it off, and on again.
#[test]
fn a_node_that_several_plans_kept_off_and_that_does_not_come_back_is_overdue() {
    let mut table = Timetable::default();
    let announce = |version: u64, duty: Duty| PowerPlan {
        version: PlanVersion::new(version),
        start_ms: version * 1_000,
        ..plan(&[duty])
    };
    let duties = [Duty::On, Duty::Off, Duty::Off, Duty::On, Duty::On];
    for (version, duty) in (1..).zip(duties) {
        table.accept(announce(version, duty), 0).unwrap();
    }
    assert_eq!(table.next_wake_ms(ONE, 2_500), Some(4_000));
    assert_eq!(table.awake_for(ONE, 4_500), Awake::Always);
    assert_eq!(table.serves_ms(ONE, 2_100, 4_700), 700);
    assert!(!table.is_overdue(ONE, 2_100, 5_400, 1_500), "it has had 1,400 ms");
    assert!(table.is_overdue(ONE, 2_100, 5_600, 1_500));
}

#[test]
fn too_many_announcements_are_refused() {
    let mut table = Timetable::default();
    let announce =
        |version: u64| PowerPlan { version: PlanVersion::new(version), start_ms: version * 100, ..plan(&[Duty::On]) };
    assert!((1..=8).all(|version| table.accept(announce(version), 0).unwrap()));
    assert!(table.accept(announce(9), 0).is_err());
    assert!(table.accept(announce(9), 500).unwrap(), "those that are over have made room");
}

#[test]
fn the_previous_format_is_read_and_has_no_data_out_of_reach() {
    let plan = plan(&[Duty::On, blink(5, 7)]);
    let mut bytes = plan.encode();
    assert_eq!(PowerPlan::decode(&bytes).unwrap(), plan);
    let at = 6 + 5 * 8 + 4 + plan.why.len() + 4 + 8;
    bytes.drain(at..at + 8 + 4 + plan.out_of_reach.example.len());
    bytes[4] = 1;
    assert_eq!(PowerPlan::decode(&bytes).unwrap(), PowerPlan { out_of_reach: OutOfReach::default(), ..plan });
}

#[test]
fn hostile_bytes_are_refused_by_name() {
    let bytes = plan(&[Duty::On, blink(5, 7)]).encode();
    let refusal = |bytes: &[u8]| PowerPlan::decode(bytes).unwrap_err().to_string();
    assert!(refusal(b"PLAN").contains("no power plan"));
    let mut other = bytes.clone();
    other[4] = 9;
    assert!(refusal(&other).contains("format 9"));
    other = bytes.clone();
    other[5] = 200;
    assert!(refusal(&other).contains("policy 200"));
    assert!(refusal(&[bytes.clone(), vec![0]].concat()).contains("1 bytes after"));
    // More nodes than there are bytes: refused before room is made for them.
    let count = bytes.len() - 2 * 41 - 4;
    other = bytes;
    other[count..count + 4].copy_from_slice(&60_000_u32.to_le_bytes());
    assert!(refusal(&other).contains("60000 nodes"));
}

fn duties() -> impl Strategy<Value = Duty> {
    prop_oneof![
        Just(Duty::On),
        Just(Duty::Off),
        (0_u64..1_000, 1_u64..1_000).prop_map(|(start_ms, active_ms)| blink(start_ms, active_ms)),
    ]
}

fn plans() -> impl Strategy<Value = PowerPlan> {
    (proptest::collection::vec((duties(), 0_u64..3_000), 0..8), 0_u64..2_000, 0_u64..20).prop_map(
        |(nodes, start_ms, guard_ms)| {
            let mut plan =
                PowerPlan { start_ms, guard_ms, ..plan(&nodes.iter().map(|node| node.0).collect::<Vec<_>>()) };
            for (node, (_, ready_ms)) in plan.nodes.values_mut().zip(&nodes) {
                node.ready_ms = *ready_ms;
            }
            plan
        },
    )
}

proptest! {
    #[test]
    fn bytes_bring_the_same_plan_back(plan in plans()) {
        prop_assert_eq!(PowerPlan::decode(&plan.encode()).unwrap(), plan);
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
        plan in plans(), at in 0_usize..300, cut in 0_usize..400) {
        let _ = PowerPlan::decode(&bytes);
        let mut good = plan.encode();
        good.truncate(cut.max(6));
        if let (Some(byte), Some(other)) = (good.get_mut(at), bytes.pop()) {
            *byte = other;
        }
        if let Ok(plan) = PowerPlan::decode(&good) {
            // Every lookup must work on a plan that was accepted.
            for node in plan.nodes.keys() {
                let _ = (plan.awake_for(*node, 7), plan.next_wake_ms(*node, 1 << 50), plan.next_switch(*node, 7));
            }
        }
    }

    #[test]
    fn lookups_agree_with_walking_through_time(plan in plans(), from in 0_u64..4_000) {
        for node in plan.nodes.keys().copied() {
            let from = from.max(plan.start_ms);
            let walk = from..from + 4_000;
            let awake = |at: u64| plan.is_awake(node, at);
            prop_assert_eq!(plan.next_wake_ms(node, from), walk.clone().find(|at| awake(*at)), "{} {:?}", node, plan);
            let left = plan.awake_for(node, from).end_ms(from).map_or(4_000, |end| end - from);
            let walked = walk.clone().take_while(|at| awake(*at)).count() as u64;
            prop_assert_eq!(left.min(4_000), walked);
            if let Some(end) = plan.next_state_ms(node, from) {
                prop_assert!(end > from && (from..end).all(|at| plan.state(node, at) == plan.state(node, from)));
            } else {
                prop_assert!(walk.clone().all(|at| plan.state(node, at) == plan.state(node, from)));
            }
            let powered = |at| plan.state(node, at).is_powered();
            let change = walk.clone().find(|at| powered(*at) != powered(from)).map(|at| (at, !powered(from)));
            prop_assert_eq!(plan.next_switch(node, from), change);
        }
    }

    #[test]
    fn meetings_agree_with_walking_through_time(plan in plans(), from in 0_u64..4_000, need in 1_u64..300) {
        let (one, other) = (NodeId::new(1), NodeId::new(2));
        let from = from.max(plan.start_ms);
        let both = |at: u64| plan.is_awake(one, at) && plan.is_awake(other, at);
        let walk: Vec<bool> = (from..from + 6_000).map(both).collect();
        let walked = (0..5_000).find(|at| walk[*at..*at + need as usize].iter().all(|both| *both));
        let met = plan.next_meeting(one, other, from, need);
        prop_assert_eq!(met.map(|(at, _)| at), walked.map(|at| from + at as u64), "{}", plan);
    }

    #[test]
    fn the_profile_is_the_sum_of_the_nodes(plan in plans(), at in 0_u64..1_000) {
        let count = u32::try_from(plan.nodes.len()).unwrap().max(1);
        let hardware = Hardware::uniform(0.0, count, NodePower::REFERENCE).unwrap();
        if plan.nodes.is_empty() {
            return Ok(());
        }
        let profile = plan.profile(&hardware);
        let (watts, at) = (profile.watts_at(at), at + plan.start_ms.next_multiple_of(1_000));
        prop_assert!((watts - plan.nodes_watts_at(&hardware, at)).abs() < 1e-9);
        let mean = 24.0 * plan.node_ms() as f64 / 1_000.0 + f64::from(count);
        prop_assert!((profile.mean_watts() - mean).abs() < 1e-9);
    }
}
