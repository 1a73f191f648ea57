//! A month of a power signal under each policy: energy, cost, work, and bytes to move.

use std::collections::{BTreeMap, BTreeSet};

pub use ebb_power::PolicyKind as Policy;
use ebb_power::policy::reservoir::steady;
use ebb_power::{
    Ask, Battery, ChainShape, DatasetChain, Duty, Hardware, PowerPlan, Rotational, Supply, Timing, choose,
};
use ebb_types::{DatasetId, NodeId, Result, bail};

use super::signal::{Signal, Step};
use super::{Machines, migration};

/// The installation of the study.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Plant {
    /// The nodes that follow the power.
    pub machines: Machines,
    /// Switches, masters, proxies: always drawn, out of the signal's power.
    pub fixed_watts: f64,
    /// Nodes that hold one copy of everything, which activation always needs.
    pub primaries: u32,
    /// One copy of all data.
    pub data_bytes: f64,
    /// Speed at which the migration policy moves data, all nodes together.
    pub link_bytes_per_s: f64,
    /// Blink interval in seconds.
    pub interval_s: f64,
    /// Time lost at each change between asleep and awake.
    pub transition_s: f64,
    /// Price of a kilowatt-hour if the signal has none.
    pub price: f64,
    /// Length of the time that is counted.
    pub days: f64,
}

/// A month under one policy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Month {
    /// The policy.
    pub policy: Policy,
    /// Energy of the nodes and of the hardware that is always on.
    pub energy_kwh: f64,
    /// Its price, in the unit of the prices.
    pub cost: f64,
    /// Work that could be served, as a share of all nodes on all the time.
    pub work_share: f64,
    /// Share of the time in which some data cannot be read within a blink interval.
    pub stalled_fraction: f64,
    /// Bytes that must move at changes of power. If they are more than the link can move in time, no time is left for
    /// work.
    pub moved_bytes: f64,
    /// Share of the time lost to moving.
    pub moving_fraction: f64,
    /// Times that a node changed between asleep and awake.
    pub transitions: f64,
    /// Share of the time in which more than the signal's power was drawn on average.
    pub over_budget_fraction: f64,
}

/// Time for which the battery carries the whole cluster (BlinkFS, Sec. 5).
const BATTERY_S: f64 = 300.0;
/// Copies of the dataset, if the nodes can hold so many (Sec. 6.2).
const REPLICAS: u32 = 3;

/// Plays the signal over and over until the days are full, with the plans that the live system would make.
pub fn month(plant: &Plant, signal: &Signal, policy: Policy) -> Result<Month> {
    let total = plant.days * 86_400.0;
    let mut player = Player::new(plant, policy)?;
    let mut elapsed = 0.0;
    for step in signal.steps.iter().cycle() {
        let seconds = step.seconds.min(total - elapsed);
        if seconds <= 0.0 {
            break;
        }
        player.play(&Step { seconds, ..*step })?;
        elapsed += seconds;
    }
    Ok(player.month(total))
}

struct Player<'a> {
    plant: &'a Plant,
    policy: Policy,
    hardware: Hardware,
    circle: Vec<NodeId>,
    chain: DatasetChain,
    interval_ms: u64,
    /// The signal takes few values again and again.
    known: BTreeMap<u64, PowerPlan>,
    last: Option<PowerPlan>,
    tally: Tally,
}

#[derive(Default)]
struct Tally {
    joules: f64,
    cost: f64,
    work: f64,
    stalled: f64,
    moved: f64,
    moving: f64,
    transitions: f64,
    over: f64,
}

impl<'a> Player<'a> {
    fn new(plant: &'a Plant, policy: Policy) -> Result<Self> {
        let hardware = plant.machines.hardware(plant.fixed_watts, plant.transition_s)?;
        let circle: Vec<NodeId> = hardware.nodes().keys().copied().collect();
        let replicas = (plant.machines.nodes / plant.primaries.max(1)).clamp(1, REPLICAS);
        let chain =
            DatasetChain::new(DatasetId::default(), circle.clone(), ChainShape::EqualWork, plant.primaries, replicas)?;
        if !(plant.interval_s.is_finite() && plant.interval_s >= 1e-3) {
            bail!(Invalid, "a blink interval of {} s; the nearest possible value is 0.001", plant.interval_s);
        }
        let interval_ms = (plant.interval_s * 1000.0).round() as u64;
        let (known, last, tally) = (BTreeMap::new(), None, Tally::default());
        Ok(Self { plant, policy, hardware, circle, chain, interval_ms, known, last, tally })
    }

    fn plan(&mut self, watts: f64) -> Result<PowerPlan> {
        if let Some(plan) = self.known.get(&watts.to_bits()) {
            return Ok(plan.clone());
        }
        // A step of the signal is longer than a battery of minutes lasts, so each step is planned for on its own.
        let forecast = steady(self.hardware.nodes_watts(Supply::Watts(watts)));
        let ask = Ask {
            hardware: &self.hardware,
            supply: Supply::Watts(watts),
            battery: Battery::full(self.hardware.base_watts() + self.hardware.full_watts(), BATTERY_S),
            circle: &self.circle,
            chains: std::slice::from_ref(&self.chain),
            dead: &BTreeSet::new(),
            late: &BTreeSet::new(),
            popularity: &BTreeMap::new(),
            rotational: Rotational::Blink,
            timing: Timing::every(self.interval_ms, 0),
            lead_ms: 0,
            forecast: &forecast,
            last: None,
            kept: None,
        };
        let plan = choose(self.policy, &ask)?;
        self.known.insert(watts.to_bits(), plan.clone());
        Ok(plan)
    }

    fn play(&mut self, step: &Step) -> Result<()> {
        let plan = self.plan(step.watts)?;
        let (plant, tally) = (self.plant, &mut self.tally);
        let watts = plant.fixed_watts + plan.profile(&self.hardware).mean_watts();
        tally.joules += watts * step.seconds;
        tally.cost += watts * step.seconds / 3.6e6 * step.price.unwrap_or(plant.price);
        if watts > step.watts + 1e-6 {
            tally.over += step.seconds;
        }
        let mut seconds = step.seconds;
        if let (Policy::Migration, Some(last)) = (self.policy, &self.last) {
            let on = |plan: &PowerPlan| plan.nodes.len() as u32 - plan.off().count() as u32;
            let move_bytes = migration(on(last), on(&plan), plant.data_bytes).bytes;
            let moving = (move_bytes / plant.link_bytes_per_s).min(seconds);
            tally.moved += move_bytes;
            tally.moving += moving;
            seconds -= moving;
        }
        let interval = plan.interval_ms as f64;
        let serving = plan.nodes.values().map(|node| node.serving_ms(plan.interval_ms, 0) as f64 / interval);
        tally.work += serving.sum::<f64>() * seconds;
        tally.transitions += switches(self.last.as_ref(), &plan, step.seconds);
        if !plan.stalled.is_empty() || plan.off().count() == plan.nodes.len() {
            tally.stalled += step.seconds;
        }
        self.last = Some(plan);
        Ok(())
    }

    fn month(self, total: f64) -> Month {
        let Self { plant, policy, tally, .. } = self;
        Month {
            policy,
            energy_kwh: tally.joules / 3.6e6,
            cost: tally.cost,
            work_share: tally.work / (f64::from(plant.machines.nodes) * total),
            stalled_fraction: tally.stalled / total,
            moved_bytes: tally.moved,
            moving_fraction: tally.moving / total,
            transitions: tally.transitions,
            over_budget_fraction: tally.over / total,
        }
    }
}

/// Changes between asleep and awake: two in each interval of a node that blinks, one where a node comes or goes for good.
fn switches(last: Option<&PowerPlan>, plan: &PowerPlan, seconds: f64) -> f64 {
    let intervals = seconds * 1000.0 / plan.interval_ms as f64;
    let before = |node: &NodeId| last.map(|last| last.nodes[node].duty);
    let of = |(id, node): (&NodeId, &ebb_power::NodePlan)| match (before(id), node.duty) {
        (_, Duty::Blink { .. }) => 2.0 * intervals,
        (Some(Duty::On), Duty::Off) | (Some(Duty::Off), Duty::On) => 1.0,
        _ => 0.0,
    };
    plan.nodes.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use ebb_power::signal::{Quantity, Trace};

    use super::super::signal::Scale;
    use super::*;

    fn plant() -> Plant {
        Plant {
            machines: Machines::BLINKFS,
            fixed_watts: 40.0,
            primaries: 2,
            data_bytes: 20e9,
            link_bytes_per_s: 1.25e8,
            interval_s: 60.0,
            transition_s: 1.0,
            price: 0.1,
            days: 30.0,
        }
    }

    const SCALE: Scale = Scale { nodes_watts: 225.0, fixed_watts: 40.0 };

    #[test]
    fn energy_is_that_of_the_signal_and_no_policy_but_always_on_takes_more() {
        let signal = Signal::oscillation(0.4, SCALE).unwrap();
        for policy in Policy::ALL {
            let month = month(&plant(), &signal, *policy).unwrap();
            let limit = signal.mean_watts() * 30.0 * 24.0 / 1000.0;
            assert_eq!(month.energy_kwh > limit + 1e-6, *policy == Policy::AlwaysOn, "{month:?}");
            assert_eq!(month.over_budget_fraction > 0.0, *policy == Policy::AlwaysOn);
            assert!((month.cost - month.energy_kwh * 0.1).abs() < 1e-6);
        }
    }

    #[test]
    fn migration_pays_for_each_change_and_blinking_does_not() {
        let plant = Plant { fixed_watts: 0.0, ..plant() };
        let scale = Scale { fixed_watts: 0.0, ..SCALE };
        let quiet = Signal::oscillation(0.0, scale).unwrap();
        let wild = Signal::oscillation(0.5, scale).unwrap();
        let played = |signal, policy| month(&plant, signal, policy).unwrap();
        assert_eq!(played(&quiet, Policy::Migration).moved_bytes, 0.0);
        // Five nodes, then one: 16 of 20 GB in 128 of each 300 s.
        assert!((played(&wild, Policy::Migration).moving_fraction - 128.0 / 300.0).abs() < 1e-3);
        let change =
            played(&wild, Policy::BlinkStaggered).work_share / played(&quiet, Policy::BlinkStaggered).work_share;
        assert!((0.95..=1.05).contains(&change), "{change}");
    }

    #[test]
    fn rabbit_stalls_where_blinking_goes_on() {
        let low = Signal::constant(0.2, SCALE).unwrap();
        let month = |policy| month(&plant(), &low, policy).unwrap();
        assert_eq!(month(Policy::Activation).stalled_fraction, 1.0);
        for policy in [Policy::BlinkStaggered, Policy::BlinkCircular, Policy::LoadProportional, Policy::Tide] {
            assert_eq!(month(policy).stalled_fraction, 0.0, "{policy}");
        }
        assert!(month(Policy::Tide).work_share > month(Policy::BlinkCircular).work_share);
        assert_eq!(month(Policy::Activation).work_share, 0.0);
    }

    #[test]
    fn below_one_node_the_circle_blinks_on_the_battery() {
        let least = Signal::constant(20.0 / 225.0, SCALE).unwrap();
        let month = month(&plant(), &least, Policy::BlinkCircular).unwrap();
        assert_eq!((month.stalled_fraction, month.over_budget_fraction), (0.0, 0.0));
        assert!(month.work_share > 0.03, "{}", month.work_share);
    }

    #[test]
    fn signals_are_read_and_refused_with_the_line() {
        let signal = Signal::parse("s", "seconds,watts,price\n0, 100, 0.05\n# calm\n300,50,0.04\n", SCALE).unwrap();
        assert_eq!((signal.mean_watts(), signal.steps[0].price), (75.0, Some(0.05)));
        let shares = Signal::parse("s", "seconds,fraction\n0,0.2\n", SCALE).unwrap();
        assert_eq!(shares.steps[0].watts, 85.0);
        let refusal = Signal::parse("s", "seconds,watts\n0,100\n300,x\n", SCALE).unwrap_err().to_string();
        assert!(refusal.contains("line 3"), "{refusal}");
        assert!(Signal::constant(1.2, SCALE).unwrap_err().to_string().ends_with("100 %"));
        let prices = Trace::of_stretches(Quantity::Price, &[(300.0, 0.045), (300.0, 0.052), (300.0, 0.035)]).unwrap();
        let budget = Signal::budget(0.01, prices, 265.0).unwrap();
        let watts: Vec<f64> = budget.steps.iter().map(|step| step.watts.round()).collect();
        assert_eq!(watts, [222.0, 192.0, 265.0]);
    }
}
