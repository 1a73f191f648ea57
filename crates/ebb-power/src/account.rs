//! The energy account: watts, joules, joules for each GiB served, watts above the budget, starts of each disk.
//!
//! Watts are modelled, from each node's observed state and the hardware's figures, or measured by an instrument.

use std::collections::BTreeMap;

use ebb_types::NodeId;

use crate::battery::Battery;
use crate::hardware::Hardware;
use crate::plan::PowerPlan;
use crate::plan::lookup::NodeState;
use crate::policy::DISK_CYCLES_RATED;

/// Observed state of a node during a stretch of time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Seen {
    /// Its state.
    pub state: NodeState,
    /// Share of the stretch in which an awake node worked: between its idle and its active draw.
    pub busy: f64,
    /// Watts that an instrument measured, if there is one.
    pub measured_watts: Option<f64>,
}

impl From<NodeState> for Seen {
    /// A node in this state that works all the time, as plans assume.
    fn from(state: NodeState) -> Self {
        Self { state, busy: 1.0, measured_watts: None }
    }
}

/// One node's account.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct NodeAccount {
    /// Draw in the last stretch.
    pub watts: f64,
    /// Energy since the beginning.
    pub joules: f64,
    /// Time awake, in milliseconds.
    pub awake_ms: u64,
    /// Time asleep, in milliseconds.
    pub asleep_ms: u64,
    /// Time in transitions, in milliseconds.
    pub transition_ms: u64,
    /// Number of wakes, which is the number of starts of each of its disks.
    pub starts: u64,
    was_powered: Option<bool>,
}

impl NodeAccount {
    /// Share of a disk's rated start-stop cycles that is used up.
    #[must_use]
    pub fn wear(&self) -> f64 {
        self.starts as f64 / DISK_CYCLES_RATED as f64
    }
}

/// The cluster's account.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Account {
    /// Each node's.
    pub nodes: BTreeMap<NodeId, NodeAccount>,
    /// Time since the beginning, in milliseconds.
    pub elapsed_ms: u64,
    /// Energy of nodes and of the hardware that is always on.
    pub joules: f64,
    /// Energy that the supply offered.
    pub offered_joules: f64,
    /// Energy that came out of the battery.
    pub battery_joules: f64,
    /// Energy drawn beyond supply and battery.
    pub missing_joules: f64,
    /// Energy drawn above the supply, the battery's part of it included.
    pub over_joules: f64,
    /// Time above the supply, in milliseconds.
    pub over_ms: u64,
    /// Highest draw above the supply, in watts.
    pub over_peak_watts: f64,
    /// Draw in the last stretch, of nodes and of the hardware that is always on.
    pub watts: f64,
    /// Bytes served to programs.
    pub served_bytes: u64,
}

impl Account {
    /// Adds a stretch of time in which no node's state changed, on a supply of `supply_watts` for the whole cluster. A
    /// node without an observation counts as awake.
    pub fn add(
        &mut self,
        hardware: &Hardware,
        seen: &BTreeMap<NodeId, Seen>,
        supply_watts: f64,
        battery: &mut Battery,
        ms: u64,
    ) {
        let seconds = ms as f64 / 1000.0;
        let mut watts = hardware.base_watts();
        for (id, power) in hardware.nodes() {
            let seen = seen.get(id).copied().unwrap_or_else(|| NodeState::Awake.into());
            let modelled = match seen.state {
                NodeState::Asleep => power.asleep_watts,
                NodeState::Awake => {
                    power.idle_watts + (power.active_watts - power.idle_watts) * seen.busy.clamp(0.0, 1.0)
                }
                NodeState::Waking | NodeState::FallingAsleep => power.active_watts,
            };
            let node = self.nodes.entry(*id).or_default();
            node.add(seen.state, seen.measured_watts.unwrap_or(modelled), ms);
            watts += node.watts;
        }
        let over = (watts - supply_watts).max(0.0);
        if over > 1e-6 {
            self.over_ms += ms;
            self.over_joules += over * seconds;
            self.over_peak_watts = self.over_peak_watts.max(over);
        }
        let flow = battery.pass(supply_watts, watts, ms);
        self.battery_joules += flow.drained_joules;
        self.missing_joules += flow.missing_joules;
        self.offered_joules += supply_watts * seconds;
        self.joules += watts * seconds;
        self.watts = watts;
        self.elapsed_ms += ms;
    }

    /// Plays a plan from one moment to another as if every node kept to it, stretch by stretch.
    pub fn play(
        &mut self,
        plan: &PowerPlan,
        hardware: &Hardware,
        from_ms: u64,
        until_ms: u64,
        supply_watts: f64,
        battery: &mut Battery,
    ) {
        let mut at = from_ms;
        while at < until_ms {
            let changes = plan.nodes.keys().filter_map(|node| plan.next_state_ms(*node, at));
            let end = changes.min().unwrap_or(until_ms).min(until_ms);
            let seen = plan.nodes.keys().map(|node| (*node, plan.state(*node, at).into())).collect();
            self.add(hardware, &seen, supply_watts, battery, end - at);
            at = end;
        }
    }

    /// Mean draw since the beginning.
    #[must_use]
    pub fn mean_watts(&self) -> f64 {
        if self.elapsed_ms == 0 { 0.0 } else { self.joules * 1000.0 / self.elapsed_ms as f64 }
    }

    /// Energy for each GiB served. `None` before anything was served.
    #[must_use]
    pub fn joules_per_gib(&self) -> Option<f64> {
        (self.served_bytes > 0).then(|| self.joules / (self.served_bytes as f64 / f64::from(1 << 30)))
    }
}

impl NodeAccount {
    fn add(&mut self, state: NodeState, watts: f64, ms: u64) {
        self.watts = watts;
        self.joules += watts * ms as f64 / 1000.0;
        match state {
            NodeState::Asleep => self.asleep_ms += ms,
            NodeState::Awake => self.awake_ms += ms,
            NodeState::Waking | NodeState::FallingAsleep => self.transition_ms += ms,
        }
        if self.was_powered == Some(false) && state.is_powered() {
            self.starts += 1;
        }
        self.was_powered = Some(state.is_powered());
    }
}

/// Reads a counter of bytes served that another process keeps, and that restarts at 0 at times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Meter {
    last: Option<(u64, u64)>,
}

impl Meter {
    /// Takes a reading `total` of process `boot`. Returns the bytes since the last reading. The first reading ever
    /// counts as nothing, because its bytes were served before. The counter of another process began at 0 since the
    /// last reading.
    pub fn on_reading(&mut self, boot: u64, total: u64) -> u64 {
        match self.last.replace((boot, total)) {
            None => 0,
            Some((same, before)) if same == boot => total.saturating_sub(before),
            Some(_) => total,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::hardware::{NodePower, Supply};
    use crate::policy::{Ask, PolicyKind, Rotational, Timing, choose};

    fn plan(hardware: &Hardware, policy: PolicyKind, supply: Supply, start_ms: u64) -> PowerPlan {
        let circle: Vec<NodeId> = hardware.nodes().keys().copied().collect();
        let ask = Ask {
            hardware,
            supply,
            battery: Battery::full(1e4, 300.0),
            circle: &circle,
            chains: &[],
            dead: &BTreeSet::new(),
            late: &BTreeSet::new(),
            popularity: &BTreeMap::new(),
            rotational: Rotational::Spare,
            timing: Timing::every(60_000, start_ms),
            lead_ms: 300,
            forecast: &[hardware.nodes_watts(supply); 60],
            last: None,
            kept: None,
        };
        choose(policy, &ask).unwrap()
    }

    #[test]
    fn a_blinking_hour_costs_what_the_budget_pays() {
        let hardware = Hardware::uniform(40.0, 9, NodePower::REFERENCE).unwrap();
        let plan = plan(&hardware, PolicyKind::BlinkStaggered, Supply::Fraction(0.5), 0);
        let mut battery = Battery::full(225.0, 300.0);
        let mut account = Account::default();
        account.play(&plan, &hardware, 0, 3_600_000, 152.5, &mut battery);
        assert!((account.mean_watts() - 152.5).abs() < 0.01, "{}", account.mean_watts());
        assert_eq!((account.elapsed_ms, account.missing_joules), (3_600_000, 0.0));
        assert_eq!(account.over_peak_watts, 201.0 - 112.5);
        assert!((account.battery_joules - account.over_joules).abs() < 1e-6);
        let node = account.nodes[&NodeId::new(5)];
        assert_eq!((node.starts, node.transition_ms), (60, 120_000));
        assert_eq!(node.awake_ms + node.asleep_ms + node.transition_ms, 3_600_000);
        assert!((node.wear() - 60.0 / 50_000.0).abs() < 1e-12);
        account.served_bytes = 10 << 30;
        assert!((account.joules_per_gib().unwrap() - 54_900.0).abs() < 5.0);
    }

    #[test]
    fn instruments_and_idle_nodes_count_as_they_are() {
        let power = NodePower { active_watts: 100.0, idle_watts: 60.0, ..NodePower::REFERENCE };
        let hardware = Hardware::uniform(10.0, 3, power).unwrap();
        let idle = Seen { busy: 0.25, ..NodeState::Awake.into() };
        let measured = Seen { measured_watts: Some(33.0), ..NodeState::Awake.into() };
        let seen = [(NodeId::new(1), idle), (NodeId::new(2), measured), (NodeId::new(3), NodeState::Asleep.into())];
        let mut account = Account::default();
        account.add(&hardware, &seen.into(), 50.0, &mut Battery::NONE.clone(), 2_000);
        assert_eq!(account.watts, 10.0 + 70.0 + 33.0 + 1.0);
        assert_eq!((account.joules, account.over_joules, account.missing_joules), (228.0, 128.0, 128.0));
        assert_eq!(Account::default().joules_per_gib(), None);
    }

    #[test]
    fn a_counter_that_begins_anew_is_read_on_and_earlier_bytes_are_left_out() {
        let mut meter = Meter::default();
        let readings = [(1, 700), (1, 750), (1, 750), (2, 30), (2, 40), (3, 0), (3, 5)];
        assert_eq!(readings.map(|(boot, total)| meter.on_reading(boot, total)), [0, 50, 0, 30, 10, 0, 5]);
    }

    proptest! {
        #[test]
        fn the_account_agrees_with_the_profile(share in 0.0_f64..1.0, start_ms in 0_u64..200_000, blinks in 1_u64..4,
            policy in prop_oneof![Just(PolicyKind::BlinkCircular), Just(PolicyKind::BlinkStaggered)]) {
            let hardware = Hardware::uniform(0.0, 7, NodePower::REFERENCE).unwrap();
            let plan = plan(&hardware, policy, Supply::Fraction(share), start_ms);
            let mut account = Account::default();
            let end = start_ms + blinks * plan.interval_ms;
            account.play(&plan, &hardware, start_ms, end, 1e4, &mut Battery::NONE.clone());
            prop_assert!((account.mean_watts() - plan.profile(&hardware).mean_watts()).abs() < 1e-6);
            let node_ms = |node: &NodeAccount| node.awake_ms + node.transition_ms;
            prop_assert_eq!(account.nodes.values().map(node_ms).sum::<u64>(), blinks * plan.node_ms());
        }
    }
}
