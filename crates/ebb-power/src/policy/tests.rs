use std::collections::BTreeSet;

use ebb_types::DatasetId;
use proptest::prelude::*;

use super::*;
use crate::battery::Battery;
use crate::chain::{ChainShape, DatasetChain};
use crate::hardware::{Hardware, NodePower, Supply};
use crate::reach::{Holding, at_stake};

mod reach;
mod served;

/// A cluster, and the inputs of a policy for it.
#[derive(Debug)]
struct Case {
    hardware: Hardware,
    supply: Supply,
    battery: Battery,
    circle: Vec<NodeId>,
    chains: Vec<DatasetChain>,
    dead: BTreeSet<NodeId>,
    late: BTreeSet<NodeId>,
    popularity: BTreeMap<NodeId, f64>,
    rotational: Rotational,
    timing: Timing,
    /// Whether it is known that the supply stays.
    is_known: bool,
}

impl Case {
    /// The prototype of the BlinkFS paper: nine nodes, a minute, five minutes of battery.
    fn blinkfs(share: f64) -> Self {
        Self::of(9, NodePower::REFERENCE, share)
    }

    fn of(count: u32, power: NodePower, share: f64) -> Self {
        let hardware = Hardware::uniform(40.0, count, power).unwrap();
        Self {
            circle: hardware.nodes().keys().copied().collect(),
            battery: Battery::full(hardware.full_watts(), 300.0),
            hardware,
            supply: Supply::Fraction(share),
            chains: Vec::new(),
            dead: BTreeSet::new(),
            late: BTreeSet::new(),
            popularity: BTreeMap::new(),
            rotational: Rotational::Spare,
            timing: Timing::every(60_000, 1_700_000_000_000),
            is_known: true,
        }
    }

    fn with_chain(mut self, shape: ChainShape, primaries: u32, replicas: u32) -> Self {
        let id = DatasetId::new(self.chains.len() as u64 + 1);
        self.chains.push(DatasetChain::new(id, self.circle.clone(), shape, primaries, replicas).unwrap());
        self
    }

    fn plan(&self, policy: PolicyKind) -> PowerPlan {
        self.try_plan(policy, None).unwrap()
    }

    fn try_plan(&self, policy: PolicyKind, last: Option<&PowerPlan>) -> Result<PowerPlan> {
        let forecast = vec![self.budget(); if self.is_known { 60 } else { 0 }];
        let ask = Ask {
            hardware: &self.hardware,
            supply: self.supply,
            battery: self.battery,
            circle: &self.circle,
            chains: &self.chains,
            dead: &self.dead,
            late: &self.late,
            popularity: &self.popularity,
            rotational: self.rotational,
            timing: self.timing,
            lead_ms: 300,
            forecast: &forecast,
            last,
            kept: last,
        };
        choose(policy, &ask)
    }

    /// (peak, mean) watts of the nodes.
    fn watts(&self, plan: &PowerPlan) -> (f64, f64) {
        let profile = plan.profile(&self.hardware);
        (profile.peak_watts(), profile.mean_watts())
    }

    fn budget(&self) -> f64 {
        self.hardware.nodes_watts(self.supply)
    }
}

/// Moments at which a node of the plan changes its duty, and the ends, through so many intervals.
fn changes(plan: &PowerPlan, intervals: u64) -> Vec<u64> {
    let end = plan.start_ms + intervals * plan.interval_ms;
    let phases = plan.nodes.values().flat_map(|node| match node.duty {
        Duty::Blink { start_ms, active_ms } => vec![start_ms, (start_ms + active_ms) % plan.interval_ms],
        Duty::On | Duty::Off => Vec::new(),
    });
    let first = plan.start_ms / plan.interval_ms;
    let moments = phases.flat_map(|phase| (first..=first + intervals).map(move |at| at * plan.interval_ms + phase));
    let within: BTreeSet<u64> =
        moments.filter(|at| (plan.start_ms..end).contains(at)).chain([plan.start_ms, end]).collect();
    within.into_iter().collect()
}

fn on(plan: &PowerPlan) -> Vec<u64> {
    plan.nodes.iter().filter(|(_, node)| node.duty == Duty::On).map(|(id, _)| id.raw()).collect()
}

#[test]
fn the_paper_s_stagger_meets_its_budget_as_a_mean_only() {
    let case = Case::blinkfs(0.5);
    let plan = case.plan(PolicyKind::BlinkStaggered);
    let (peak, mean) = case.watts(&plan);
    assert_eq!(peak, 201.0, "8 of 9 awake");
    assert!((mean - 112.5).abs() < 0.01, "{mean}");
    // 60 s * (112.5 - 9) / (225 - 9), and (60 s - 28.75 s) * 4 / 8.
    assert_eq!(plan.nodes[&NodeId::new(5)].duty, Duty::Blink { start_ms: 15_625, active_ms: 28_750 });
}

#[test]
fn the_circle_never_exceeds_its_budget() {
    let case = Case::blinkfs(0.5);
    let plan = case.plan(PolicyKind::BlinkCircular);
    assert_eq!(case.watts(&plan).0, 9.0 + 4.0 * 24.0);
    assert_eq!(plan.node_ms(), 4 * 60_000);
    let alike: Vec<u64> = plan.nodes.values().map(|node| node.duty.active_ms(60_000)).collect();
    assert!(alike.iter().all(|ms| (26_666..=26_667).contains(ms)), "{alike:?}");
}

#[test]
fn below_one_node_the_circle_goes_one_by_one_from_the_battery() {
    // 21 W: 12 of the 24 that one node needs.
    let mut case = Case::blinkfs(21.0 / 225.0);
    let plan = case.plan(PolicyKind::BlinkCircular);
    let (peak, mean) = case.watts(&plan);
    assert_eq!(peak, 33.0, "one at a time");
    assert!(mean <= 21.0 && mean > 20.9, "{mean}");
    assert_eq!(plan.interval_ms % 60_000, 0);
    case.battery = Battery::NONE;
    let plan = case.plan(PolicyKind::BlinkCircular);
    assert_eq!(plan.off().count(), 9);
    assert!(plan.why.contains("no battery"), "{}", plan.why);
}

#[test]
fn a_blink_too_short_to_serve_stretches_the_interval() {
    let mut case = Case::blinkfs(0.2);
    case.timing = Timing::every(6_000, 1_000);
    let plan = case.plan(PolicyKind::BlinkStaggered);
    assert!(plan.interval_ms > 6_000 && plan.interval_ms.is_multiple_of(6_000), "{plan}");
    assert!(plan.nodes.values().all(|node| node.serving_ms(plan.interval_ms, 0) >= case.timing.least_serving_ms));
    case.timing.longest_interval_ms = 6_000;
    assert_eq!(case.plan(PolicyKind::BlinkStaggered).off().count(), 9);
}

#[test]
fn one_node_is_no_division_by_zero_and_less_than_sleep_is_no_negative_time() {
    for policy in PolicyKind::ALL {
        for watts in [0.0, 0.5, 1.0, 13.0, 25.0, 1_000.0] {
            let mut case = Case::of(1, NodePower::REFERENCE, 0.0).with_chain(ChainShape::EqualWork, 1, 1);
            case.supply = Supply::Watts(40.0 + watts);
            let plan = case.plan(*policy);
            assert_eq!(plan.nodes.len(), 1, "{policy} at {watts} W");
            plan.check().unwrap();
        }
    }
}

#[test]
fn activation_follows_the_chain_and_stalls_below_the_floor() {
    let case = Case::blinkfs(0.5).with_chain(ChainShape::EqualWork, 2, 3);
    assert_eq!(on(&case.plan(PolicyKind::Activation)), [1, 2, 3, 4]);
    let low = Case::blinkfs(0.2).with_chain(ChainShape::EqualWork, 2, 3);
    let plan = low.plan(PolicyKind::Activation);
    assert_eq!((on(&plan), plan.stalled.len()), (vec![], 1));
}

#[test]
fn activation_shares_power_between_datasets_and_gears_come_whole() {
    let mut case = Case::of(12, NodePower::REFERENCE, 0.62).with_chain(ChainShape::Geared { gear_size: 2 }, 2, 2);
    // 174 of 288 W for waking: seven nodes, but gears come in twos.
    assert_eq!(on(&case.plan(PolicyKind::Activation)), [1, 2, 3, 4, 5, 6]);
    let second = vec![12, 11, 10, 9].into_iter().map(NodeId::new).collect();
    case.chains.push(DatasetChain::new(DatasetId::new(2), second, ChainShape::EqualWork, 1, 2).unwrap());
    assert_eq!(on(&case.plan(PolicyKind::Activation)), [1, 2, 3, 4, 10, 11, 12]);
    case.chains[0].wanted_active = Some(2);
    let plan = case.plan(PolicyKind::Activation);
    assert_eq!(on(&plan)[..2], [1, 2]);
    assert!(!on(&plan).contains(&3), "{plan}");
}

/// A power client that was away wakes no node: the nodes that were then taken for dead must come back when there is
/// power.
#[test]
fn a_silent_node_is_on_if_that_takes_no_power_from_others() {
    for policy in PolicyKind::ALL {
        let mut case = Case::of(9, NodePower::REFERENCE, 1.0).with_chain(ChainShape::EqualWork, 2, 3);
        case.dead = [3, 4].map(NodeId::new).into();
        let plan = case.plan(*policy);
        assert!(case.dead.iter().all(|node| plan.nodes[node].duty == Duty::On), "{plan}");
        case.dead = case.circle.iter().copied().collect();
        let mut low = Case { dead: case.dead.clone(), ..Case::of(9, NodePower::REFERENCE, 0.5) };
        low.chains = case.chains.clone();
        let silent = low.plan(*policy);
        low.dead.clear();
        let plan = low.plan(*policy);
        assert_eq!(silent, plan, "no node answers: planned for as if all did");
        assert!(plan.nodes.values().any(|node| node.duty != Duty::Off), "{plan}");
    }
}

#[test]
fn always_on_switches_no_silent_node_off() {
    let mut case = Case::blinkfs(0.3);
    case.dead = [3, 4].map(NodeId::new).into();
    assert_eq!(on(&case.plan(PolicyKind::AlwaysOn)), (1..=9).collect::<Vec<_>>());
}

#[test]
fn a_late_node_keeps_its_turns_where_nodes_blink() {
    use PolicyKind::{BlinkCircular, BlinkStaggered, BlinkSynchronous, LoadProportional};
    for policy in [BlinkCircular, BlinkStaggered, BlinkSynchronous, LoadProportional] {
        let mut case = Case::blinkfs(0.3);
        let before = case.plan(policy);
        case.dead = [3, 4].map(NodeId::new).into();
        case.late = case.dead.clone();
        assert_eq!(case.plan(policy), before, "it may have been cut off for a moment");
        case.late.clear();
        let plan = case.plan(policy);
        assert!(case.dead.iter().all(|node| plan.nodes[node].duty == Duty::Off), "given up: {plan}");
    }
}

#[test]
fn tide_gives_late_nodes_turns_with_the_cover() {
    let mut case = Case::of(9, NodePower::REFERENCE, 0.2).with_chain(ChainShape::EqualWork, 2, 3);
    case.dead = [1].map(NodeId::new).into();
    case.late = case.dead.clone();
    let plan = case.plan(PolicyKind::Tide);
    let blinking: BTreeSet<NodeId> = plan.blinking().collect();
    let cover = case.chains[0].cover(&case.dead);
    assert!(cover.iter().chain(&case.late).all(|node| blinking.contains(node)), "{cover:?} {plan}");
}

#[test]
fn one_nodes_watts_are_set_aside_for_late_nodes() {
    // Power for five nodes, with a cover of two.
    let mut case = Case::of(9, NodePower::REFERENCE, 0.58).with_chain(ChainShape::EqualWork, 2, 3);
    for policy in [PolicyKind::Activation, PolicyKind::Tide] {
        case.dead = [9].map(NodeId::new).into();
        case.late.clear();
        assert_eq!(on(&case.plan(policy)), [1, 2, 3, 4, 5], "given up");
        case.late = case.dead.clone();
        assert_eq!(on(&case.plan(policy)), [1, 2, 3, 4, 9]);
        // Several late nodes have it one after the other.
        case.dead = [7, 8, 9].map(NodeId::new).into();
        case.late = case.dead.clone();
        let plan = case.plan(policy);
        assert_eq!(on(&plan), [1, 2, 3, 4], "{plan}");
        assert_eq!(plan.blinking().collect::<BTreeSet<_>>(), case.late, "{plan}");
        let (peak, _) = case.watts(&plan);
        assert!(peak <= case.budget() + 1e-6, "{peak} W: {plan}");
        // Disks that spin are not blinked for it.
        let spinning = NodePower { rotational_disks: 1, ..NodePower::REFERENCE };
        let mut spin = Case::of(9, spinning, 0.58).with_chain(ChainShape::EqualWork, 2, 3);
        (spin.dead, spin.late) = (case.dead.clone(), case.late.clone());
        assert_eq!(on(&spin.plan(policy)), [1, 2, 3, 4, 7]);
    }
    // Nothing stalls for it.
    let mut least = Case::of(9, NodePower::REFERENCE, 0.0).with_chain(ChainShape::EqualWork, 2, 3);
    least.supply = Supply::Watts(40.0 + least.hardware.asleep_watts() + 2.0 * 24.0);
    least.dead = [9].map(NodeId::new).into();
    least.late = least.dead.clone();
    let plan = least.plan(PolicyKind::Activation);
    assert_eq!((on(&plan), plan.stalled.len()), (vec![1, 2], 0), "{plan}");
}

/// A dead primary's recovery group needs too much power. All the power would go to the dead node, and no node would
/// answer.
#[test]
fn one_node_that_answers_is_on_where_a_dataset_stalls_for_a_dead_one() {
    let mut case = Case::of(9, NodePower::REFERENCE, 0.0).with_chain(ChainShape::EqualWork, 1, 2);
    case.supply = Supply::Watts(40.0 + case.hardware.asleep_watts() + 24.0);
    for policy in [PolicyKind::Activation, PolicyKind::Tide] {
        assert_eq!(on(&case.plan(policy)), [1], "{policy}");
    }
    case.dead.insert(NodeId::new(1));
    let plan = case.plan(PolicyKind::Activation);
    assert_eq!((on(&plan), plan.stalled.len()), (vec![2], 1), "{plan}");
    let tide = case.plan(PolicyKind::Tide);
    assert!(tide.nodes.iter().any(|(node, of)| !case.dead.contains(node) && of.duty != Duty::Off), "{tide}");
    // That node is silent, too: the next one is on.
    case.late.insert(NodeId::new(2));
    case.dead.insert(NodeId::new(2));
    assert_eq!(on(&case.plan(PolicyKind::Activation)), [3]);
}

#[test]
fn a_dead_primary_wakes_its_recovery_group() {
    let mut case = Case::of(12, NodePower::REFERENCE, 0.5).with_chain(ChainShape::Geared { gear_size: 2 }, 2, 2);
    case.dead.insert(NodeId::new(1));
    let plan = case.plan(PolicyKind::Activation);
    // The second node, and the first column: places 2, 4, 6 and 8 behind the primaries; then gear by gear.
    let cover: Vec<u64> = case.chains[0].cover(&case.dead).iter().map(|node| node.raw()).collect();
    assert!(cover.iter().all(|node| on(&plan).contains(node)), "{cover:?} {plan}");
    assert_eq!(plan.nodes[&NodeId::new(1)].duty, Duty::Off);
}

#[test]
fn tide_gears_down_and_then_blinks_the_cover() {
    let chained = |share| Case::blinkfs(share).with_chain(ChainShape::EqualWork, 2, 3);
    let plan = chained(0.5).plan(PolicyKind::Tide);
    assert_eq!((on(&plan), plan.blinking().count()), (vec![1, 2, 3, 4], 1), "{plan}");
    let plan = chained(0.2).plan(PolicyKind::Tide);
    assert_eq!(plan.blinking().map(NodeId::raw).collect::<Vec<_>>(), [1, 2], "{plan}");
    assert!(plan.stalled.is_empty());
    let (peak, mean) = chained(0.2).watts(&plan);
    assert!(peak <= 9.0 + 2.0 * 24.0 && mean <= 45.0, "both at times, from the battery: {peak} W, {mean} W");
    let mut dry = chained(0.2);
    dry.battery = Battery::NONE;
    assert!(dry.watts(&dry.plan(PolicyKind::Tide)).0 <= 45.0);
}

#[test]
fn on_the_ring_no_read_waits_while_there_is_power_for_its_widest_gap() {
    let ring = |share| Case::blinkfs(share).with_chain(ChainShape::Ring, 0, 3);
    let plan = ring(0.5).plan(PolicyKind::Tide);
    assert!(plan.why.contains("a read waits 0.00 s"), "three neighbours hold everything: {plan}");
    let plan = ring(0.3).plan(PolicyKind::Tide);
    assert!(on(&plan).is_empty() && plan.blinking().count() >= 3, "{plan}");
}

#[test]
fn load_proportional_follows_the_load_and_spends_the_same() {
    let mut case = Case::blinkfs(0.4);
    case.popularity = case.circle.iter().map(|node| (*node, 1.0 / node.raw() as f64)).collect();
    let plan = case.plan(PolicyKind::LoadProportional);
    let active: Vec<u64> = plan.nodes.values().map(|node| node.duty.active_ms(plan.interval_ms)).collect();
    assert!(active.is_sorted_by(|one, next| one >= next) && active[0] > 2 * active[4], "{active:?}");
    let even = case.plan(PolicyKind::BlinkStaggered);
    let (mean, of_even) = (case.watts(&plan).1, case.watts(&even).1);
    assert!((mean - of_even).abs() < 0.1, "{mean} {of_even}");
}

#[test]
fn less_battery_is_less_stagger_and_none_is_within_the_budget() {
    let mut last = f64::INFINITY;
    for seconds in [300.0, 3.0, 1.0, 0.3, 0.0] {
        let mut case = Case::blinkfs(0.5);
        case.battery = Battery::full(225.0, seconds);
        let plan = case.plan(PolicyKind::BlinkStaggered);
        let (peak, mean) = case.watts(&plan);
        assert!(mean <= last + 1e-9, "{seconds} s: {mean} W");
        assert!(seconds > 0.0 || peak <= 112.5, "{peak}");
        last = mean;
    }
    assert!(last > 9.0, "without a battery fewer overlap, but all blink");
}

#[test]
fn rotational_disks_are_not_blinked_unless_the_operator_insists() {
    let spinning = NodePower { rotational_disks: 2, ..NodePower::REFERENCE };
    let mut case = Case::of(9, spinning, 0.5).with_chain(ChainShape::EqualWork, 2, 3);
    let refusal = case.try_plan(PolicyKind::BlinkCircular, None).unwrap_err();
    assert_eq!(refusal.kind(), ebb_types::ErrorKind::NotPermitted);
    assert!(refusal.to_string().contains("35 days") && refusal.to_string().contains("n9"), "{refusal}");
    assert!(case.try_plan(PolicyKind::Activation, None).is_ok());
    case.rotational = Rotational::Blink;
    assert!(case.try_plan(PolicyKind::BlinkCircular, None).is_ok());
}

#[test]
fn a_node_that_slept_is_not_ready_before_it_has_woken() {
    let low = Case::blinkfs(0.5).with_chain(ChainShape::EqualWork, 2, 3);
    let before = low.plan(PolicyKind::Activation);
    let mut case = Case::blinkfs(1.0).with_chain(ChainShape::EqualWork, 2, 3);
    case.timing.start_ms = before.start_ms + 60_000;
    case.timing.guard_ms = 20;
    let after = case.try_plan(PolicyKind::Activation, Some(&before)).unwrap();
    assert_eq!(after.version.raw(), before.version.raw() + 1);
    assert!(after.is_awake(NodeId::new(1), after.start_ms));
    assert!(!after.is_awake(NodeId::new(9), after.start_ms + 1_019));
    assert!(after.is_awake(NodeId::new(9), after.start_ms + 1_020));
}

#[test]
fn names_and_numbers_come_back() {
    for policy in PolicyKind::ALL {
        assert_eq!(policy.name().parse::<PolicyKind>().unwrap(), *policy);
        assert_eq!(PolicyKind::from_number(policy.number()), Some(*policy));
    }
    assert!("rabbit".parse::<PolicyKind>().unwrap_err().to_string().contains("activation, blink-staggered"));
}

#[test]
fn asks_that_make_no_sense_are_refused() {
    let refusal = |change: fn(&mut Case)| {
        let mut case = Case::blinkfs(0.5);
        change(&mut case);
        case.try_plan(PolicyKind::Tide, None).unwrap_err().to_string()
    };
    assert!(refusal(|case| case.supply = Supply::Watts(f64::NAN)).contains("supply"));
    assert!(refusal(|case| case.timing.interval_ms = 0).contains("interval"));
    assert!(refusal(|case| case.circle.push(NodeId::new(1))).contains("twice"));
    assert!(refusal(|case| case.circle.push(NodeId::new(77))).contains("n77"));
    assert!(refusal(|case| case.battery.charge_joules = -1.0).contains("battery"));
}

prop_compose! {
    /// Any cluster: different nodes, any supply, any battery, some nodes dead, two datasets.
    fn cases()(draws in proptest::collection::vec((5.0_f64..60.0, 0.0_f64..4.0, 0_u64..3_000, 0_u64..3_000), 4..14),
        share in 0.0_f64..1.1, battery_s in prop_oneof![Just(0.0), 0.0_f64..3.0, Just(300.0)],
        filled in 0.0_f64..=1.0, efficiency in 0.5_f64..=1.0,
        dead in proptest::collection::btree_set(1_u64..14, 0..4), late in proptest::collection::btree_set(1_u64..14, 0..14),
        start_ms in 0_u64..10_000_000,
        loads in proptest::collection::vec(0.0_f64..9.0, 14), interval_ms in 2_000_u64..90_000,
        guard_ms in 0_u64..100) -> Case {
        let node = |(at, draw): (usize, &(f64, f64, u64, u64))| (NodeId::new(at as u64 + 1), NodePower {
            active_watts: draw.0 + draw.1,
            idle_watts: draw.0 + draw.1,
            asleep_watts: draw.1,
            wake: std::time::Duration::from_millis(draw.2),
            suspend: std::time::Duration::from_millis(draw.3),
            rotational_disks: 0,
        });
        let hardware = Hardware::new(40.0, draws.iter().enumerate().map(node).collect()).unwrap();
        let circle: Vec<NodeId> = hardware.nodes().keys().copied().collect();
        let battery = Battery::full(hardware.full_watts(), battery_s);
        let chains = vec![
            DatasetChain::new(DatasetId::new(1), circle.clone(), ChainShape::EqualWork, 2, 2).unwrap(),
            DatasetChain::new(DatasetId::new(2), circle.clone(), ChainShape::Ring, 0, 3).unwrap(),
        ];
        let dead: BTreeSet<_> = dead.into_iter().map(NodeId::new).filter(|node| circle.contains(node)).collect();
        Case {
            late: late.into_iter().map(NodeId::new).filter(|node| dead.contains(node)).collect(),
            battery: Battery { charge_joules: battery.capacity_joules * filled, efficiency, ..battery },
            popularity: circle.iter().copied().zip(loads).collect(),
            dead,
            supply: Supply::Fraction(share),
            rotational: Rotational::Spare,
            timing: Timing { guard_ms, ..Timing::every(interval_ms, start_ms) },
            hardware, circle, chains, is_known: true,
        }
    }
}

/// Blocks of the case's datasets, one for each way in which copies can lie.
fn holdings(case: &Case) -> Vec<Holding> {
    let count = case.circle.len() as u32;
    let ring = (0..count).map(|first| ebb_layout::targets::ring::evenly(count, 3, first));
    // Two copies by equal work: one on a primary, one behind.
    let chain = (0..2).flat_map(|primary| (2..case.chains[0].spread()).map(move |second| vec![primary, second]));
    let holding = |places: Vec<u32>| Holding {
        nodes: places.iter().map(|place| case.circle[*place as usize]).collect(),
        copies: places.len(),
        metablocks: 1,
        example: format!("/{places:?}"),
        slots: Vec::new(),
    };
    ring.chain(chain).map(holding).collect()
}

proptest! {
    #[test]
    fn circle_and_gears_never_exceed_the_budget(case in cases()) {
        use PolicyKind::{Activation, BlinkCircular, Migration};
        let sleepers = case.hardware.asleep_watts();
        let least = case.hardware.nodes().values().map(NodePower::extra_watts).fold(0.0, f64::max);
        for policy in [Activation, BlinkCircular, Migration] {
            let plan = case.plan(policy);
            let (peak, mean) = case.watts(&plan);
            let one_by_one = plan.blinking().count() > 0 && case.budget() < sleepers + least;
            if one_by_one {
                prop_assert!(peak <= sleepers + least + 1e-6, "{plan}");
                prop_assert!(mean <= case.budget() + 1e-6, "{} W: {plan}", case.budget());
                prop_assert!(plan.profile(&case.hardware).is_carried_by(&case.battery, case.budget(), plan.start_ms));
            } else {
                prop_assert!(peak <= case.budget().max(sleepers) + 1e-6, "{} W: {plan}", case.budget());
            }
        }
    }

    #[test]
    fn policies_with_a_mean_budget_keep_it_and_the_battery_carries_the_rest(case in cases()) {
        use PolicyKind::{BlinkStaggered, BlinkSynchronous, LoadProportional, Tide};
        for policy in [BlinkStaggered, BlinkSynchronous, LoadProportional, Tide] {
            let plan = case.plan(policy);
            let (peak, mean) = case.watts(&plan);
            let budget = case.budget().max(case.hardware.asleep_watts());
            prop_assert!(mean <= budget + 1e-6, "{policy}: {mean} W of {budget} W: {plan}");
            // From change to change through three intervals, only a rounding error may be missing.
            let mut battery = case.battery;
            let mut missing_joules = 0.0;
            for span in changes(&plan, 3).windows(2) {
                let watts = plan.nodes_watts_at(&case.hardware, span[0]);
                missing_joules += battery.pass(budget, watts, span[1] - span[0]).missing_joules;
            }
            prop_assert!(missing_joules <= 1e-3, "{policy}: {missing_joules} J are missing: {plan}");
            prop_assert!(battery.capacity_joules > 0.0 || peak <= budget + 1e-6);
        }
    }

    #[test]
    fn nothing_that_a_plan_promises_sleeps_with_its_only_copy(case in cases()) {
        let holdings = holdings(&case);
        for policy in PolicyKind::ALL {
            let plan = case.plan(*policy);
            plan.check().unwrap();
            // A node that was given up gets the power that others leave.
            let lent = case.living_count() > 0 && case.dead.difference(&case.late).any(|node| plan.nodes[node].duty != Duty::Off);
            let is_within = *policy == PolicyKind::AlwaysOn || case.watts(&plan).0 <= case.budget() + 1e-6;
            prop_assert!(!lent || is_within, "{policy}: {plan}");
            // A plan promises all data that it does not declare stalled. Migration promises only data that have been
            // moved.
            let lit = plan.nodes.values().any(|node| node.duty != Duty::Off);
            if plan.stalled.is_empty() && lit && *policy != PolicyKind::Migration {
                let lost = at_stake(&plan, &holdings, &case.dead);
                prop_assert!(lost.is_empty(), "{policy}: {lost:?} {plan}");
            }
            let all_stalled = case.chains.iter().all(|chain| plan.stalled.contains(&chain.dataset));
            prop_assert!(lit || all_stalled || case.living_count() == 0, "dark and not declared: {plan}");
        }
    }

    #[test]
    fn node_seconds_match_the_power(count in 2_u32..30, share in 0.0_f64..1.0) {
        let case = Case::of(count, NodePower::REFERENCE, share);
        let headroom = (case.budget() - case.hardware.asleep_watts()).max(0.0);
        let paid = |plan: &PowerPlan| headroom / 24.0 * plan.interval_ms as f64;
        let staggered = case.plan(PolicyKind::BlinkStaggered);
        if staggered.blinking().count() > 0 && !staggered.why.contains("cut") {
            // Rounding takes less than a millisecond from each node.
            prop_assert!((staggered.node_ms() as f64 - paid(&staggered)).abs() <= f64::from(count) + 1.0, "{staggered}");
        }
        let circular = case.plan(PolicyKind::BlinkCircular);
        let whole = (headroom / 24.0 + 1e-9).floor();
        if whole >= 1.0 && whole < f64::from(count) && circular.blinking().count() > 0 {
            prop_assert_eq!(circular.node_ms(), whole as u64 * circular.interval_ms);
            // At every instant as many nodes.
            let at_once = |phase| circular.nodes.values()
                .filter(|node| node.duty.is_powered_at(phase, circular.interval_ms)).count();
            prop_assert!((0..circular.interval_ms).step_by(37).all(|phase| at_once(phase) == whole as usize));
        }
    }

    #[test]
    fn tide_is_never_worse_than_gears_or_the_circle(share in 0.0_f64..1.0, primaries in 1_u32..4, count in 9_u32..20) {
        let case = Case::of(count, NodePower::REFERENCE, share).with_chain(ChainShape::EqualWork, primaries, 3);
        // Node-seconds of service in an hour, which set the speed of full reads and jobs. The interval is compared,
        // too: one that others had to stretch has fewer transitions, but reads wait longer.
        let served = |policy| {
            let plan = case.plan(policy);
            let one = |node: &NodePlan| node.serving_ms(plan.interval_ms, 0) as f64 / plan.interval_ms as f64;
            let sum = if plan.stalled.is_empty() { plan.nodes.values().map(one).sum::<f64>() } else { 0.0 };
            (sum, plan.interval_ms)
        };
        let (tide, tide_interval) = served(PolicyKind::Tide);
        for other in [PolicyKind::Activation, PolicyKind::BlinkCircular] {
            let (best, interval) = served(other);
            let shorter = tide > 0.0 && tide_interval < interval && interval > case.timing.interval_ms;
            // As near as two rates count as equal, and roundings to milliseconds.
            prop_assert!(tide >= best * 0.999 - 1e-9 || shorter, "{tide} in {tide_interval} ms, {other} {best} in {interval} ms");
        }
    }
}

impl Case {
    fn living_count(&self) -> usize {
        self.circle.iter().filter(|node| !self.dead.contains(node)).count()
    }
}
