//! A month of a power signal under each policy: energy, cost, work, and what would have to move.

use std::fmt;

use super::signal::{Signal, Step};
use super::{Machines, migration};

/// How nodes follow the power.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Policy {
    /// All nodes are on, whatever the signal says: what is compared with.
    AlwaysOn,
    /// Rabbit: whole nodes along the chain, never fewer than the primaries; stalled below.
    Activation,
    /// Whole nodes, the data moved onto them at each change.
    Migration,
    /// All nodes together for a part of each interval.
    BlinkSync,
    /// The same part for each node, one after the other.
    BlinkStaggered,
    /// As many nodes as the power allows, taking turns around the circle; all asleep where that is none (a battery
    /// could keep one awake).
    BlinkCircular,
}

impl Policy {
    /// Every policy.
    pub const ALL: [Self; 6] =
        [Self::AlwaysOn, Self::Activation, Self::Migration, Self::BlinkSync, Self::BlinkStaggered, Self::BlinkCircular];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AlwaysOn => "always-on",
            Self::Activation => "activation",
            Self::Migration => "migration",
            Self::BlinkSync => "blink-sync",
            Self::BlinkStaggered => "blink-staggered",
            Self::BlinkCircular => "blink-circular",
        }
    }

    const fn blinks(self) -> bool {
        matches!(self, Self::BlinkSync | Self::BlinkStaggered | Self::BlinkCircular)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the month is counted for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Plant {
    /// The nodes that follow the power.
    pub machines: Machines,
    /// Switches, masters, proxies: always drawn, out of the signal's power.
    pub fixed_watts: f64,
    /// Nodes that the activation policy cannot do without.
    pub primaries: u32,
    /// One copy of all data.
    pub data_bytes: f64,
    /// Speed at which the migration policy moves data, all nodes together.
    pub link_bytes_per_s: f64,
    /// Blink interval in seconds.
    pub interval_s: f64,
    /// Time lost at each change between asleep and awake.
    pub transition_s: f64,
    /// Price of a kilowatt-hour where the signal has none.
    pub price: f64,
    /// Length of the time that is counted.
    pub days: f64,
}

/// A month under one policy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Month {
    /// Which.
    pub policy: Policy,
    /// Energy of the nodes and of what is always on.
    pub energy_kwh: f64,
    /// Its price, in the unit of the prices.
    pub cost: f64,
    /// Work that could be served, as a share of all nodes on all the time.
    pub work_share: f64,
    /// Share of the time in which some data cannot be read within a blink interval.
    pub stalled_fraction: f64,
    /// Bytes that changes of power ask to be moved; more than the link can move in time leaves no time for work.
    pub moved_bytes: f64,
    /// Share of the time lost to moving.
    pub moving_fraction: f64,
    /// Times that a node changed between asleep and awake.
    pub transitions: f64,
    /// Share of the time in which more than the signal's power was drawn on average.
    pub over_budget_fraction: f64,
}

/// Plays the signal over and over until the days are full.
#[must_use]
pub fn month(plant: &Plant, signal: &Signal, policy: Policy) -> Month {
    let total = plant.days * 86_400.0;
    let mut tally = Tally::default();
    let mut on = None;
    let mut elapsed = 0.0;
    for step in signal.steps.iter().cycle() {
        let seconds = step.seconds.min(total - elapsed);
        if seconds <= 0.0 {
            break;
        }
        let played = tally.play(plant, policy, &Step { seconds, ..*step }, on);
        on = Some(played);
        elapsed += seconds;
    }
    tally.month(policy, total, plant)
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

impl Tally {
    /// Plays one stretch; nodes on (for good, or on average) at its end.
    fn play(&mut self, plant: &Plant, policy: Policy, step: &Step, before: Option<f64>) -> f64 {
        let machines = &plant.machines;
        let budget = step.watts - plant.fixed_watts;
        let nodes = f64::from(machines.nodes);
        let whole = machines.nodes_on(budget);
        let on = match policy {
            Policy::AlwaysOn => nodes,
            Policy::Activation => {
                if whole >= plant.primaries {
                    f64::from(whole)
                } else {
                    0.0
                }
            }
            Policy::Migration | Policy::BlinkCircular => f64::from(whole),
            Policy::BlinkSync | Policy::BlinkStaggered => nodes * machines.awake_share(budget),
        };
        let watts = plant.fixed_watts + machines.watts_with(on);
        self.joules += watts * step.seconds;
        self.cost += watts * step.seconds / 3.6e6 * step.price.unwrap_or(plant.price);
        if watts > step.watts + 1e-6 {
            self.over += step.seconds;
        }
        let mut seconds = step.seconds;
        if let (Policy::Migration, Some(before)) = (policy, before) {
            let move_bytes = migration(before as u32, on as u32, plant.data_bytes).bytes;
            let moving = (move_bytes / plant.link_bytes_per_s).min(seconds);
            self.moved += move_bytes;
            self.moving += moving;
            seconds -= moving;
        }
        let mut useful = on;
        if policy.blinks() && on < nodes && on > 0.0 {
            let blinks = step.seconds / plant.interval_s;
            self.transitions += 2.0 * nodes * blinks;
            let lost = 2.0 * plant.transition_s / plant.interval_s * nodes;
            useful = (on - lost).max(0.0);
        } else if let Some(before) = before {
            self.transitions += (on - before).abs();
        }
        self.work += useful * seconds;
        if on <= 0.0 {
            self.stalled += seconds;
        }
        on
    }

    fn month(self, policy: Policy, total: f64, plant: &Plant) -> Month {
        Month {
            policy,
            energy_kwh: self.joules / 3.6e6,
            cost: self.cost,
            work_share: self.work / (f64::from(plant.machines.nodes) * total),
            stalled_fraction: self.stalled / total,
            moved_bytes: self.moved,
            moving_fraction: self.moving / total,
            transitions: self.transitions,
            over_budget_fraction: self.over / total,
        }
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn energy_is_what_the_signal_gives_and_no_policy_but_always_on_takes_more() {
        let signal = Signal::oscillation(0.4, 265.0).unwrap();
        for policy in Policy::ALL {
            let month = month(&plant(), &signal, policy);
            let limit = signal.mean_watts() * 30.0 * 24.0 / 1000.0;
            assert_eq!(month.energy_kwh > limit + 1e-6, policy == Policy::AlwaysOn, "{month:?}");
            assert_eq!(month.over_budget_fraction > 0.0, policy == Policy::AlwaysOn);
            assert!((month.cost - month.energy_kwh * 0.1).abs() < 1e-6);
        }
    }

    #[test]
    fn migration_pays_for_each_change_and_blinking_does_not() {
        let plant = Plant { fixed_watts: 0.0, ..plant() };
        let quiet = Signal::oscillation(0.0, 225.0).unwrap();
        let wild = Signal::oscillation(0.5, 225.0).unwrap();
        let played = |signal, policy| month(&plant, signal, policy);
        assert_eq!(played(&quiet, Policy::Migration).moved_bytes, 0.0);
        // Five nodes, then one: 16 of 20 GB in 128 of each 300 s.
        assert!((played(&wild, Policy::Migration).moving_fraction - 128.0 / 300.0).abs() < 1e-3);
        let change =
            played(&wild, Policy::BlinkStaggered).work_share / played(&quiet, Policy::BlinkStaggered).work_share;
        assert!((0.95..=1.05).contains(&change), "{change}");
    }

    #[test]
    fn rabbit_stalls_where_blinking_goes_on() {
        let low = Signal::constant(0.25, 265.0).unwrap();
        assert_eq!(month(&plant(), &low, Policy::Activation).stalled_fraction, 1.0);
        assert_eq!(month(&plant(), &low, Policy::BlinkStaggered).stalled_fraction, 0.0);
    }

    #[test]
    fn signals_are_read_and_refused_with_the_line() {
        let signal = Signal::parse("s", "seconds,watts,price\n300, 100, 0.05\n# calm\n300,50\n").unwrap();
        assert_eq!((signal.mean_watts(), signal.steps[0].price), (75.0, Some(0.05)));
        assert!(Signal::parse("s", "300,100\n300,x\n").unwrap_err().to_string().contains("line 2"));
        assert!(Signal::parse("s", "").is_err() && Signal::parse("s", "300,-1").is_err());
        assert!(Signal::constant(1.2, 100.0).unwrap_err().to_string().ends_with("100 %"));
        let budget = Signal::budget(0.01, &[(300.0, 0.045), (300.0, 0.052), (300.0, 0.035)], 265.0).unwrap();
        let watts: Vec<f64> = budget.steps.iter().map(|step| step.watts.round()).collect();
        assert_eq!(watts, [222.0, 192.0, 265.0]);
    }
}
