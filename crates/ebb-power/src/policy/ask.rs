//! What a policy may know.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::{NodeId, Result, bail};

use super::Schedule;
use crate::battery::Battery;
use crate::chain::DatasetChain;
use crate::hardware::{Hardware, NodePower, Supply};
use crate::plan::profile::SLACK_WATTS;
use crate::plan::{INTERVAL_MS_MAX, PowerPlan};

/// When, and in which steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Length of the blink interval.
    pub interval_ms: u64,
    /// When the plan comes into force, in milliseconds since the Unix epoch.
    pub start_ms: u64,
    /// By how much clocks may differ.
    pub guard_ms: u64,
    /// A node that wakes serves at least this long, or the interval is stretched: waking for less is power for nothing.
    pub least_serving_ms: u64,
    /// How far the interval may be stretched; beyond that, nodes that cannot serve long enough stay asleep.
    pub longest_interval_ms: u64,
}

impl Timing {
    /// The usual timing for an interval: a twentieth of it at least to serve, at most eight times stretched, no guard.
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

/// Whether disks that spin may blink.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rotational {
    /// A policy that would blink them is refused.
    Spare,
    /// Somebody insisted.
    Blink,
}

/// Everything that a policy goes by.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Draw and transitions.
    pub hardware: &'a Hardware,
    /// Power that there is.
    pub supply: Supply,
    /// What carries an excess within an interval; [`Battery::NONE`] if nothing does.
    pub battery: Battery,
    /// Nodes that follow the power, in the order in which they blink.
    pub circle: &'a [NodeId],
    /// Datasets and their chains.
    pub chains: &'a [DatasetChain],
    /// Nodes that do not answer. Others come in their place; they are on only where nobody else needs the power.
    pub dead: &'a BTreeSet<NodeId>,
    /// Those of them that have not been given up: they may be heard again, if they have power to speak.
    pub late: &'a BTreeSet<NodeId>,
    /// Reads that go to each node's data, in any unit; for `load-proportional`.
    pub popularity: &'a BTreeMap<NodeId, f64>,
    /// Whether rotational disks may blink.
    pub rotational: Rotational,
    /// When.
    pub timing: Timing,
    /// The plan before.
    pub last: Option<&'a PowerPlan>,
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

    /// Watts that there are for waking nodes, all of them asleep; below 0 if not even sleep can be fed.
    #[must_use]
    pub fn headroom_watts(&self) -> f64 {
        self.nodes_watts() - self.hardware.asleep_watts()
    }

    /// Nodes that answer when they are woken, in blink order.
    #[must_use]
    pub fn living(&self) -> Vec<NodeId> {
        self.circle.iter().copied().filter(|node| !self.dead.contains(node)).collect()
    }

    /// Nodes that take turns where nodes blink, in blink order: who is late has its turns until it is given up.
    #[must_use]
    pub fn turns(&self) -> Vec<NodeId> {
        let takes_turns = |node: &NodeId| !self.dead.contains(node) || self.late.contains(node);
        self.circle.iter().copied().filter(takes_turns).collect()
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

    /// Whether so many watts beyond sleep can be had.
    pub(super) fn affords(&self, extra_watts: f64) -> bool {
        extra_watts <= self.headroom_watts() + SLACK_WATTS
    }

    /// Least powered time that is worth waking this node for.
    pub(super) fn least_active_ms(&self, node: NodeId) -> u64 {
        self.power(node).transition_ms() + 2 * self.timing.guard_ms + self.timing.least_serving_ms
    }

    /// Least powered time that is worth waking any of these for.
    pub(super) fn least_active_of(&self, nodes: &[NodeId]) -> u64 {
        nodes.iter().map(|node| self.least_active_ms(*node)).max().unwrap_or(0)
    }

    /// The interval, as often as it takes until `share` of it is at least `least_ms`; none if it would grow too long.
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

    /// How a stretched interval is told.
    pub(super) fn told_stretch(&self, interval_ms: u64) -> String {
        if interval_ms == self.timing.interval_ms {
            return String::new();
        }
        format!(
            "; the interval is stretched from {} to {interval_ms} ms, or nodes would wake for less than they can serve",
            self.timing.interval_ms
        )
    }
}
