//! The input of a policy.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::{NodeId, Result, bail};

use super::Schedule;
use crate::battery::Battery;
use crate::chain::DatasetChain;
use crate::hardware::{Hardware, NodePower, Supply};
use crate::plan::profile::SLACK_WATTS;
use crate::plan::{INTERVAL_MS_MAX, PowerPlan};

/// Start and interval of a plan, and limits of its times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Length of the blink interval.
    pub interval_ms: u64,
    /// Time at which the plan comes into force, in milliseconds since the Unix epoch.
    pub start_ms: u64,
    /// Largest difference of clocks.
    pub guard_ms: u64,
    /// Least time for which a node serves at each wake. The interval is stretched for it, because a shorter wake wastes
    /// power.
    pub least_serving_ms: u64,
    /// Longest stretched interval. Nodes that could not serve long enough even then stay asleep.
    pub longest_interval_ms: u64,
}

impl Timing {
    /// The usual timing for an interval: a node serves for at least a twentieth of it, it is stretched at most eight
    /// times, and there is no guard band.
    #[must_use]
    pub fn every(interval_ms: u64, start_ms: u64) -> Self {
        Self {
            interval_ms,
            start_ms,
            guard_ms: 0,
            least_serving_ms: (interval_ms / 20).max(1),
            longest_interval_ms: interval_ms.saturating_mul(8).min(INTERVAL_MS_MAX),
        }
    }
}

/// Whether rotational disks may blink.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rotational {
    /// A policy that would blink them is refused.
    Spare,
    /// The operator insisted.
    Blink,
}

/// All inputs of a policy.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Draw and transitions.
    pub hardware: &'a Hardware,
    /// Available power.
    pub supply: Supply,
    /// The battery that carries an excess within an interval, or [`Battery::NONE`].
    pub battery: Battery,
    /// Nodes that follow the power, in the order in which they blink.
    pub circle: &'a [NodeId],
    /// Datasets and their chains.
    pub chains: &'a [DatasetChain],
    /// Nodes that do not answer. Other nodes replace them, and they are on only if no other node needs the power.
    pub dead: &'a BTreeSet<NodeId>,
    /// Dead nodes that have not been given up: they may answer again if they have power.
    pub late: &'a BTreeSet<NodeId>,
    /// Reads that go to each node's data, in any unit; for `load-proportional`.
    pub popularity: &'a BTreeMap<NodeId, f64>,
    /// Whether rotational disks may blink.
    pub rotational: Rotational,
    /// Start and interval of the plan.
    pub timing: Timing,
    /// Time from a decision to the start of its plan, in milliseconds.
    pub lead_ms: u64,
    /// Expected watts for the nodes in each step from the start on ([`super::reservoir::forecast_step`]). Empty: nothing
    /// is known.
    pub forecast: &'a [f64],
    /// The plan before.
    pub last: Option<&'a PowerPlan>,
    /// The newest plan that is known for the time from the start on. It stays if no other is better.
    pub kept: Option<&'a PowerPlan>,
}

impl Ask<'_> {
    pub(super) fn check(&self) -> Result<()> {
        self.battery.check()?;
        let Timing { interval_ms, longest_interval_ms, .. } = self.timing;
        if !(1..=INTERVAL_MS_MAX).contains(&interval_ms) || longest_interval_ms > INTERVAL_MS_MAX {
            bail!(Invalid, "a blink interval of {interval_ms} ms; it must be 1 ms to a day, stretched too");
        }
        let amount = match self.supply {
            Supply::Watts(amount) | Supply::Fraction(amount) => amount,
        };
        if !(amount.is_finite() && amount >= 0.0) {
            bail!(Invalid, "a supply of {amount}: it must be 0 or more");
        }
        let distinct: BTreeSet<NodeId> = self.circle.iter().copied().collect();
        if distinct.len() != self.circle.len() {
            bail!(Invalid, "the circle of nodes names one of them twice");
        }
        if let Some(node) = distinct.iter().find(|node| self.hardware.node(**node).is_none()) {
            bail!(Invalid, "nothing is known of what {node} draws");
        }
        let chained = self.chains.iter().flat_map(DatasetChain::nodes);
        if let Some(node) = chained.into_iter().find(|node| !distinct.contains(node)) {
            bail!(Invalid, "{node} is in an expansion chain, and not among the nodes that follow the power");
        }
        Ok(())
    }

    /// Watts that the nodes may draw.
    #[must_use]
    pub fn nodes_watts(&self) -> f64 {
        self.hardware.nodes_watts(self.supply)
    }

    /// Watts for waking nodes, beyond the draw of all nodes asleep. Negative if even that draw is too much.
    #[must_use]
    pub fn headroom_watts(&self) -> f64 {
        self.nodes_watts() - self.hardware.asleep_watts()
    }

    /// Nodes that answer when they are woken, in blink order.
    #[must_use]
    pub fn living(&self) -> Vec<NodeId> {
        self.circle.iter().copied().filter(|node| !self.dead.contains(node)).collect()
    }

    /// Nodes that take turns if nodes blink, in blink order. A late node keeps its turns until it is given up.
    #[must_use]
    pub fn turns(&self) -> Vec<NodeId> {
        let takes_turns = |node: &NodeId| !self.dead.contains(node) || self.late.contains(node);
        self.circle.iter().copied().filter(takes_turns).collect()
    }

    /// Nodes that together hold everything, in blink order. Without datasets these are all.
    pub(super) fn cover(&self) -> Vec<NodeId> {
        let living = self.living();
        if self.chains.is_empty() {
            return living;
        }
        let needed: BTreeSet<NodeId> = self.chains.iter().flat_map(|chain| chain.cover(self.dead)).collect();
        living.into_iter().filter(|node| needed.contains(node)).collect()
    }

    pub(super) fn power(&self, node: NodeId) -> &NodePower {
        self.hardware.node(node).expect("the circle was checked against the hardware")
    }

    /// Watts that waking a node adds.
    pub(super) fn extra(&self, node: NodeId) -> f64 {
        self.power(node).extra_watts()
    }

    /// Watts that waking all of these adds.
    pub(super) fn extra_of<'n>(&self, nodes: impl IntoIterator<Item = &'n NodeId>) -> f64 {
        nodes.into_iter().map(|node| self.extra(*node)).sum()
    }

    /// Whether the supply has so many watts beyond the draw of all nodes asleep.
    pub(super) fn affords(&self, extra_watts: f64) -> bool {
        extra_watts <= self.headroom_watts() + SLACK_WATTS
    }

    /// Least powered time that is worth waking this node for.
    pub(super) fn least_active_ms(&self, node: NodeId) -> u64 {
        self.power(node).transition_ms() + 2 * self.timing.guard_ms + self.timing.least_serving_ms
    }

    /// Least powered time that is worth waking each of these for.
    pub(super) fn least_active_of(&self, nodes: &[NodeId]) -> u64 {
        nodes.iter().map(|node| self.least_active_ms(*node)).max().unwrap_or(0)
    }

    /// The least multiple of the interval for which `share` of it is at least `least_ms`. `None` if it is too long.
    pub(super) fn stretched(&self, share: f64, least_ms: u64) -> Option<u64> {
        let Timing { interval_ms, longest_interval_ms, .. } = self.timing;
        if share <= 0.0 {
            return None;
        }
        // A millisecond more: rounding down must not undo it.
        let wanted = (least_ms as f64 + 1.0) / share;
        let times = (wanted / interval_ms as f64 - 1e-9).ceil().max(1.0);
        (times * interval_ms as f64 <= longest_interval_ms.max(interval_ms) as f64).then(|| interval_ms * times as u64)
    }

    /// All nodes asleep, all datasets out of reach.
    pub(super) fn all_off(&self, why: impl Into<String>) -> Schedule {
        Schedule {
            duties: BTreeMap::new(),
            interval_ms: self.timing.interval_ms,
            stalled: self.chains.iter().map(|chain| chain.dataset).collect(),
            why: why.into(),
        }
    }

    /// Words about a stretched interval, for the plan's reason; empty if it is not stretched.
    pub(super) fn stretch_note(&self, interval_ms: u64) -> String {
        if interval_ms == self.timing.interval_ms {
            return String::new();
        }
        format!(
            "; the interval is stretched from {} to {interval_ms} ms, or nodes would wake for less than they can serve",
            self.timing.interval_ms
        )
    }
}
