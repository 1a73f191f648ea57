use ebb_types::DatasetId;
use proptest::prelude::*;

use super::*;
use crate::chain::ChainShape;
use crate::hardware::NodePower;
use crate::signal::forecast::Step;
use crate::signal::source::Trust;

const INTERVAL: u64 = 60_000;
const MIGRATION: Wanted = Wanted { policy: PolicyKind::Migration, rotational: Rotational::Spare, force: Force::Refuse };

/// A cluster of nine, and a clock.
struct Bench {
    hardware: Hardware,
    circle: Vec<NodeId>,
    chains: Vec<DatasetChain>,
    holdings: Vec<Holding>,
    dead: BTreeSet<NodeId>,
    late: BTreeSet<NodeId>,
    popularity: BTreeMap<NodeId, f64>,
    expected: Option<Forecast>,
    manager: Manager,
    wall_ms: u64,
}

impl Bench {
    fn new(policy: PolicyKind, battery: Battery) -> Self {
        let hardware = Hardware::uniform(40.0, 9, NodePower::REFERENCE).unwrap();
        let circle: Vec<NodeId> = hardware.nodes().keys().copied().collect();
        let chain = DatasetChain::new(DatasetId::new(1), circle.clone(), ChainShape::EqualWork, 2, 3).unwrap();
        let settings =
            Settings { policy, timing: Timing::every(INTERVAL, 0), lead_ms: 2_000, rotational: Rotational::Spare };
        let trust = Trust { fallback_watts: 100.0, silence: Duration::from_secs(600), most_watts: 1_000.0 };
        let source = Source::new(trust, hardware.full_watts()).unwrap();
        let manager = Manager::new(settings, source, battery, Timetable::default()).unwrap();
        let holding = |node: u64| Holding {
            nodes: vec![NodeId::new(node), NodeId::new(node + 4)],
            copies: 2,
            metablocks: 5,
            example: format!("/data/{node}"),
            slots: Vec::new(),
        };
        let holdings = (1..=2).map(holding).collect();
        let (dead, late, popularity) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        Self {
            hardware,
            circle,
            chains: vec![chain],
            holdings,
            dead,
            late,
            popularity,
            expected: None,
            manager,
            wall_ms: 10 * INTERVAL + 17,
        }
    }

    fn now(&self) -> Now {
        Now { moment: Duration::from_millis(self.wall_ms), wall_ms: self.wall_ms }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Manager, Now, &Cluster<'_>) -> T) -> T {
        let cluster = Cluster {
            hardware: &self.hardware,
            circle: &self.circle,
            chains: &self.chains,
            holdings: &self.holdings,
            dead: &self.dead,
            late: &self.late,
            popularity: &self.popularity,
            expected: Expected { from_ms: self.wall_ms, forecast: self.expected.as_ref() },
        };
        let now = Now { moment: Duration::from_millis(self.wall_ms), wall_ms: self.wall_ms };
        act(&mut self.manager, now, &cluster)
    }

    fn read(&mut self, watts: f64) {
        let reading = Reading { supply: Supply::Watts(watts), stamp_ms: None };
        self.with(|manager, now, _| manager.on_reading(now, reading));
    }

    /// Until then no node's power changes, by the plans that there are now.
    fn next_edge(&self) -> u64 {
        let plans = self.manager.plans();
        let of_plan = plans.at(self.wall_ms).into_iter();
        let edges =
            of_plan.flat_map(|plan| self.circle.iter().filter_map(|node| plan.next_state_ms(*node, self.wall_ms)));
        edges.chain(plans.next(self.wall_ms).map(|next| next.start_ms)).min().unwrap_or(u64::MAX)
    }

    fn tick(&mut self) -> Decision {
        self.with(|manager, now, cluster| {
            let decision = manager.decide(now, cluster).unwrap();
            assert_eq!(manager.decide(now, cluster).unwrap(), decision, "to decide changes nothing");
            if let Some(plan) = &decision.publish {
                manager.on_logged(plan.clone(), now).unwrap();
            }
            decision
        })
    }
}

#[test]
fn a_plan_is_announced_ahead_and_then_there_is_silence() {
    let mut bench = Bench::new(PolicyKind::Tide, Battery::NONE);
    bench.read(152.5);
    let plan = bench.tick().publish.unwrap();
    // Without a plan all nodes were on, which nothing can power: the first one begins at once.
    assert_eq!((plan.version.raw(), plan.start_ms), (1, bench.wall_ms + 2_000));
    assert_eq!(bench.tick(), Decision::default());
    bench.wall_ms += INTERVAL;
    assert_eq!(bench.tick(), Decision::default());
    bench.read(260.0);
    let more = bench.tick().publish.unwrap();
    assert_eq!((more.version.raw(), more.start_ms), (2, 12 * INTERVAL));
}

#[test]
fn a_plan_that_cannot_be_powered_is_replaced_at_once() {
    let mut bench = Bench::new(PolicyKind::Tide, Battery::NONE);
    bench.read(265.0);
    bench.tick();
    bench.wall_ms += 2 * INTERVAL;
    bench.read(100.0);
    let plan = bench.tick().publish.unwrap();
    assert_eq!(plan.start_ms, bench.wall_ms + 2_000, "as soon as everybody can know");
    assert_eq!(bench.tick(), Decision::default());
}

/// Nodes and seconds from now: when each goes, and when it returns.
fn expected_absences(bench: &mut Bench) -> Vec<(u64, u64, Option<u64>)> {
    let now_ms = bench.wall_ms;
    let seconds = |at_ms: u64| (at_ms - now_ms) / 1000;
    let absences = bench.with(|manager, now, cluster| manager.expected_absences(now, cluster));
    let shown = |(node, absence): (&NodeId, &absence::Absence)| {
        (node.raw(), seconds(absence.leaves_ms), absence.returns_ms.map(seconds))
    };
    absences.iter().map(shown).collect()
}

#[test]
fn a_supply_that_is_known_to_fall_foretells_which_nodes_go_and_when_they_return() {
    let mut bench = Bench::new(PolicyKind::Activation, Battery::NONE);
    let step = |seconds, watts| Step { lasts: Duration::from_secs(seconds), watts };
    let full = bench.hardware.cluster_watts(Supply::Fraction(1.0));
    let five = bench.hardware.base_watts() + 5.0 * 25.0 + 4.0 * 1.0;
    bench.read(full);
    bench.tick();
    bench.wall_ms += 2 * INTERVAL;
    bench.read(full);
    assert_eq!(expected_absences(&mut bench), [], "nothing is known");
    bench.expected = Forecast::from_steps(vec![step(100, full), step(300, five), step(60, full)]).ok();
    let absences = expected_absences(&mut bench);
    assert_eq!(absences.len(), 4, "five are on then: {absences:?}");
    assert!(absences.iter().all(|(_, leaves, returns)| (*leaves, *returns) == (100, Some(400))), "{absences:?}");
    // What comes to pass is what was expected.
    bench.wall_ms += 100_000;
    bench.read(five);
    bench.expected = None;
    let plan = bench.tick().publish.unwrap();
    let off: Vec<u64> = plan.off().map(NodeId::raw).collect();
    assert_eq!(off, absences.iter().map(|absence| absence.0).collect::<Vec<_>>());
    // Those that are off are expected no more, and the others not beyond what is known.
    bench.wall_ms += 10_000;
    bench.read(five);
    let base = bench.hardware.base_watts();
    bench.expected = Forecast::from_steps(vec![step(50, five), step(10_000, base + 2.0 * 25.0 + 7.0)]).ok();
    let absences = expected_absences(&mut bench);
    assert_eq!(absences.len(), 3, "{absences:?}");
    assert!(absences.iter().all(|(node, leaves, returns)| !off.contains(node) && (*leaves, *returns) == (50, None)));
    bench.with(|manager, _, _| manager.force_supply(Some(Supply::Watts(five)))).unwrap();
    assert_eq!(expected_absences(&mut bench), [], "an operator's supply does not change by itself");
}

/// A battery carries nodes through some of a lull, and is filled for it before: nodes go when it says so.
#[test]
fn an_expected_absence_comes_when_it_was_expected_with_a_battery_too() {
    for battery_s in [30.0, 120.0, 300.0] {
        let mut bench = Bench::new(PolicyKind::Activation, Battery::full(225.0, battery_s));
        let step = |seconds, watts| Step { lasts: Duration::from_secs(seconds), watts };
        let full = bench.hardware.cluster_watts(Supply::Fraction(1.0));
        let five = bench.hardware.base_watts() + 5.0 * 25.0 + 4.0 * 1.0;
        let course = Forecast::from_steps(vec![step(400, full), step(700, five), step(600, full)]).unwrap();
        let begin_ms = bench.wall_ms;
        let (mut expected, mut gone) = (BTreeMap::new(), BTreeMap::new());
        while bench.wall_ms < begin_ms + 1_100_000 {
            let elapsed = Duration::from_millis(bench.wall_ms - begin_ms);
            let coming = course.after(elapsed);
            bench.read(coming.steps()[0].watts);
            bench.expected = Some(coming);
            bench.tick();
            let now_ms = bench.wall_ms;
            // From when the first plan is in force on, and before anything happens.
            if elapsed.as_secs() == 120 {
                expected = bench.with(|manager, now, cluster| manager.expected_absences(now, cluster));
            }
            if let Some(plan) = bench.manager.plans.at(now_ms).filter(|_| elapsed.as_secs() > 120) {
                plan.off().for_each(|node| {
                    gone.entry(node).or_insert(now_ms);
                });
            }
            let state = |node: &NodeId| (*node, bench.manager.plans.state(*node, now_ms).into());
            let seen: BTreeMap<NodeId, Seen> = bench.circle.iter().map(state).collect();
            bench.with(|manager, now, cluster| manager.count(now, cluster, &seen));
            bench.wall_ms += 1_000;
            bench.with(|manager, now, cluster| manager.count(now, cluster, &seen));
        }
        // Seconds more or less of the charge decide about one that would go at the very end of the lull.
        let is_long =
            |absence: &absence::Absence| absence.returns_ms.is_none_or(|at| at > absence.leaves_ms + INTERVAL);
        let foretold: Vec<NodeId> =
            expected.iter().filter(|(_, absence)| is_long(absence)).map(|(node, _)| *node).collect();
        let went: Vec<NodeId> = gone.keys().copied().collect();
        assert!(!went.is_empty() && foretold == went, "{battery_s}: {foretold:?} {went:?}");
        for node in went {
            let off_ms = gone[&node].abs_diff(expected[&node].leaves_ms);
            assert!(off_ms <= INTERVAL, "{battery_s}: {node} went {off_ms} ms off what was expected");
        }
    }
}

/// A copy of the master's log was restored: other processes follow plans that this log does not have.
#[test]
fn plans_get_versions_that_no_other_history_gave() {
    let mut bench = Bench::new(PolicyKind::Tide, Battery::NONE);
    let version = PlanVersion::new;
    bench.read(152.5);
    assert_eq!(bench.tick().publish.unwrap().version, version(1));
    // A process follows plan 9: the schedule is published again, with a higher version.
    let others = Others { followed: version(9), doubtful: version(0) };
    bench.manager.on_others(others);
    let again = bench.tick().publish.unwrap();
    assert_eq!(again.version, version(10));
    assert!(again.is_same_schedule(bench.manager.plans().at(0).unwrap()));
    assert_eq!(bench.tick(), Decision::default(), "the tenth is followed");
    // No process has reported yet: the next plan gets a version far ahead, but none is published for that reason.
    bench.manager.on_others(Others { doubtful: version(500), ..others });
    assert_eq!(bench.tick(), Decision::default());
    bench.wall_ms += 2 * INTERVAL;
    bench.read(260.0);
    assert_eq!(bench.tick().publish.unwrap().version, version(501));
}

/// A primary fails while only the primaries are on: its data are brought back at once, not at the next interval.
#[test]
fn data_that_a_failure_puts_out_of_reach_are_brought_back_at_once() {
    let mut bench = Bench::new(PolicyKind::Activation, Battery::NONE);
    bench.chains[0].wanted_active = Some(2);
    bench.read(265.0);
    bench.tick();
    bench.wall_ms += 2 * INTERVAL;
    assert_eq!(bench.manager.plans.at(bench.wall_ms).unwrap().off().count(), 7);
    bench.dead.insert(bench.circle[0]);
    let plan = bench.tick().publish.unwrap();
    assert_eq!(plan.start_ms, bench.wall_ms + 2_000, "as soon as everybody can know");
    assert!(at_stake(&plan, &bench.holdings, &bench.dead).is_empty());
    assert_eq!(bench.tick(), Decision::default());
    // It comes back: nothing is out of reach, and fewer nodes are needed from the next interval on.
    bench.wall_ms += 5_000;
    bench.dead.clear();
    assert_eq!(bench.tick().publish.unwrap().start_ms % INTERVAL, 0);
}

#[test]
fn a_silent_source_is_answered_with_the_fallback() {
    let mut bench = Bench::new(PolicyKind::BlinkCircular, Battery::NONE);
    bench.read(265.0);
    bench.tick();
    bench.wall_ms += 601_000;
    let plan = bench.tick().publish.unwrap();
    assert_eq!(plan.budget_mw, 60_000, "100 W, less 40 W that are always drawn");
}

#[test]
fn a_new_manager_goes_on_from_the_plans_that_nodes_keep_to() {
    let mut bench = Bench::new(PolicyKind::Tide, Battery::NONE);
    bench.read(152.5);
    let plan = bench.tick().publish.unwrap();
    let mut plans = Timetable::default();
    plans.accept(PowerPlan::decode(&plan.encode()).unwrap(), bench.wall_ms).unwrap();
    let fresh = Bench::new(PolicyKind::Tide, Battery::NONE);
    bench.manager = Manager { plans, ..fresh.manager };
    bench.read(152.5);
    assert_eq!(bench.tick(), Decision::default(), "nothing has changed");
    bench.read(265.0);
    assert_eq!(bench.tick().publish.unwrap().version.raw(), 2);
}

#[test]
fn migration_waits_until_data_have_moved_while_there_is_power() {
    let mut bench = Bench::new(PolicyKind::Migration, Battery::full(225.0, 300.0));
    bench.read(265.0);
    bench.tick();
    bench.wall_ms += INTERVAL;
    bench.holdings.push(Holding {
        nodes: vec![NodeId::new(8)],
        copies: 1,
        metablocks: 1,
        example: "/data/late".into(),
        slots: Vec::new(),
    });
    // The battery cannot carry the draw for good: a drop of supply comes first.
    bench.read(265.0 - 24.0);
    bench.wall_ms += 1;
    let shown = bench.with(|manager, now, cluster| manager.check_policy(now, cluster, MIGRATION));
    shown.expect("eight nodes hold everything");
    bench.expected = Some(Forecast::persistence(265.0 - 48.0));
    bench.read(265.0 - 48.0);
    let refused = bench.with(|manager, now, cluster| manager.check_policy(now, cluster, MIGRATION));
    assert!(refused.unwrap_err().error.to_string().contains("/data/late"));
    bench.expected = Some(Forecast::persistence(265.0));
    // The supply is back, but an operator sets less. The plan in force can be powered, so data are moved first.
    bench.read(265.0);
    bench.tick();
    bench.chains[0].wanted_active = Some(3);
    let settings = Settings { policy: PolicyKind::Activation, ..*bench.manager.settings() };
    bench.manager.settings = settings;
    let held = bench.tick();
    assert!(held.publish.is_none() && held.held_back.unwrap().to_string().contains("/data/late"));
    bench.holdings.pop();
    assert_eq!(bench.tick().publish.unwrap().off().count(), 6);
}

/// A cloud: the supply falls with every reading, faster than plans can begin.
#[test]
fn a_supply_that_falls_with_every_reading_is_followed() {
    for policy in [PolicyKind::BlinkCircular, PolicyKind::Tide, PolicyKind::Activation, PolicyKind::BlinkStaggered] {
        let mut bench = Bench::new(policy, Battery::full(225.0, 10.0));
        let ramp = (0..60).map(|reading| 265.0 - 3.0 * f64::from(reading));
        let mut missing = Vec::new();
        for supply in ramp.chain([88.0; 25]).chain([88.0; 1200]) {
            bench.read(supply);
            bench.tick();
            let states = |bench: &Bench| {
                let state = |node: &NodeId| (*node, bench.manager.plans.state(*node, bench.wall_ms).into());
                bench.circle.iter().map(state).collect::<BTreeMap<NodeId, Seen>>()
            };
            let seen = states(&bench);
            bench.with(|manager, now, cluster| manager.count(now, cluster, &seen));
            bench.wall_ms += 100;
            bench.with(|manager, now, cluster| manager.count(now, cluster, &seen));
            missing.push(bench.manager.account.missing_joules);
        }
        let later = missing[missing.len() - 1] - missing[84];
        // States change within a step of 100 ms now and then.
        assert!(later <= 25.0, "{policy:?}: {later} J are missing when the supply is steady");
    }
}

#[test]
fn the_account_counts_between_ticks() {
    let mut bench = Bench::new(PolicyKind::AlwaysOn, Battery::NONE);
    bench.read(265.0);
    bench.tick();
    let seen = BTreeMap::new();
    bench.with(|manager, now, cluster| manager.count(now, cluster, &seen));
    bench.wall_ms += 10_000;
    bench.with(|manager, now, cluster| manager.count(now, cluster, &seen));
    assert_eq!(bench.manager.account().joules, 2_650.0);
}

proptest! {
    /// The supply jumps about; nodes follow the timetable to the millisecond. A draw above the supply occurs only
    /// within the lead after a fall, or comes out of the battery.
    #[test]
    fn the_draw_follows_the_supply(policy in prop_oneof![Just(PolicyKind::BlinkCircular),
        Just(PolicyKind::Tide), Just(PolicyKind::Activation), Just(PolicyKind::BlinkStaggered)],
        jumps in proptest::collection::vec((0.0_f64..280.0, 1_u64..90_000), 1..8), battery_s in 0.0_f64..20.0) {
        let mut bench = Bench::new(policy, Battery::full(225.0, battery_s));
        let mut fell = 0;
        let mut last = 0.0;
        for (watts, ms) in jumps {
            let supply = watts + 40.0 + 9.0;
            bench.read(supply);
            if supply < last || bench.manager.plans.version().raw() == 0 {
                fell = bench.wall_ms;
            }
            last = supply;
            bench.tick();
            let end = bench.wall_ms + ms;
            while bench.wall_ms < end {
                let now = bench.now();
                let until = bench.next_edge().min(now.wall_ms + 500).min(end);
                let states = bench.circle.iter().map(|node| (*node, bench.manager.plans.state(*node, now.wall_ms).into()));
                let seen: BTreeMap<NodeId, Seen> = states.collect();
                let missing = bench.manager.account.missing_joules;
                bench.with(|manager, now, cluster| manager.count(now, cluster, &seen));
                bench.wall_ms = until;
                bench.with(|manager, now, cluster| manager.count(now, cluster, &seen));
                let missed = bench.manager.account.missing_joules - missing;
                let is_settled = now.wall_ms >= fell + 2_500;
                // A tenth of a joule: the sum of rounding errors of thousands of stretches.
                prop_assert!(!is_settled || missed <= 0.1, "{missed} J at {}", bench.wall_ms);
                bench.read(supply);
                bench.tick();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// A battery that is large enough for an orderly shutdown: nothing is ever drawn that neither it nor the supply
    /// gives, however the supply falls, and whatever a forecast says.
    #[test]
    fn with_a_battery_nothing_is_missing(policy in prop_oneof![Just(PolicyKind::BlinkCircular),
        Just(PolicyKind::Tide), Just(PolicyKind::Activation), Just(PolicyKind::BlinkStaggered)],
        jumps in proptest::collection::vec((0.0_f64..1.1, 61_000_u64..400_000), 1..8), battery_s in 40.0_f64..300.0,
        filled in 0.3_f64..=1.0, forecast in proptest::collection::vec(0.0_f64..280.0, 0..40)) {
        let mut battery = Battery::full(225.0, battery_s);
        battery.charge_joules *= filled;
        let mut bench = Bench::new(policy, battery);
        let step = |watts| Step { lasts: Duration::from_secs(60), watts };
        bench.expected = Forecast::from_steps(forecast.into_iter().map(step).collect()).ok();
        bench.read(265.0);
        for (share, ms) in jumps {
            // Without a supply the sleeping nodes empty the battery at last.
            let supply = 40.0 + (share * 225.0).max(9.0);
            let begun = bench.wall_ms;
            let end = bench.wall_ms + ms;
            while bench.wall_ms < end {
                bench.read(supply);
                bench.tick();
                let now = bench.now();
                let state = |node: &NodeId| (*node, bench.manager.plans.state(*node, now.wall_ms).into());
                let seen: BTreeMap<NodeId, Seen> = bench.circle.iter().map(state).collect();
                // A manager reads ten times a second. Long after a change every other reading shows nothing new.
                let step_ms = if now.wall_ms < begun + 5_000 { 100 } else { 1_000 };
                let until = bench.next_edge().min(now.wall_ms + step_ms).min(end);
                bench.with(|manager, now, cluster| manager.count(now, cluster, &seen));
                bench.wall_ms = until;
                bench.with(|manager, now, cluster| manager.count(now, cluster, &seen));
                let missing = bench.manager.account.missing_joules;
                prop_assert!(missing <= 0.1, "{missing} J at {}, {:?}", bench.wall_ms, bench.manager.battery);
            }
        }
    }
}

#[test]
fn a_plan_that_puts_data_out_of_reach_says_so() {
    let mut bench = Bench::new(PolicyKind::Migration, Battery::NONE);
    bench.read(90.0);
    let plan = bench.tick().publish.unwrap();
    assert!(plan.sentence().ends_with("; 5 metablocks out of reach, as of /data/2"), "{plan}");
    bench.wall_ms += INTERVAL;
    let again = bench.tick();
    assert_eq!((again.publish, again.held_back), (None, None), "another reason does not make it another plan");
    assert_eq!(again.spoken_of[0].example, "/data/2");
    // All nodes are taken away, and then they are there again.
    let holdings = std::mem::take(&mut bench.holdings);
    let published = bench.tick().publish.unwrap();
    assert!(published.is_same_schedule(&plan) && published.out_of_reach == OutOfReach::default(), "{published}");
    bench.holdings = holdings;
    let published = bench.tick().publish.unwrap();
    assert_eq!((published.version.raw(), published.out_of_reach), (3, plan.out_of_reach));
    bench.read(265.0);
    let plan = bench.tick().publish.unwrap();
    assert!(!plan.sentence().contains("out of reach"), "{plan}");
}
