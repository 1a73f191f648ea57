//! The power plan: a value that gives the times at which each node is awake.

use std::collections::BTreeMap;
use std::fmt;

use ebb_types::{DatasetId, NodeId, PlanVersion, Result, WallTime, bail};

use crate::policy::PolicyKind;

pub mod lookup;
pub mod profile;
#[cfg(test)]
mod tests;
pub mod timetable;
pub mod wire;

/// Longest interval, in milliseconds: a day.
pub const INTERVAL_MS_MAX: u64 = 86_400_000;
/// Last moment of a plan, in milliseconds since the Unix epoch: far from where sums of times could overflow.
pub const TIME_MS_MAX: u64 = 1 << 53;
/// Most nodes of a plan.
pub const NODES_MAX: usize = 65_536;
/// Longest sentence of a plan, in bytes.
pub const WHY_MAX: usize = 1_024;
/// Longest name of a file that a plan names, in bytes.
pub const EXAMPLE_MAX: usize = 400;

/// The times at which each node is awake. A pure function of wall-clock time.
///
/// Intervals begin at every whole multiple of `interval_ms` since the Unix epoch, so that plans with the same interval
/// follow each other without a jump, whenever they come into force.
#[derive(Clone, PartialEq, Debug)]
pub struct PowerPlan {
    /// Grows by one with each plan.
    pub version: PlanVersion,
    /// The rule that made it.
    pub policy: PolicyKind,
    /// Time from which it is in force, in milliseconds since the Unix epoch.
    pub start_ms: u64,
    /// Length of the blink interval.
    pub interval_ms: u64,
    /// Margin for clocks that differ: a node counts as waking this much later, and sleeping this much earlier.
    pub guard_ms: u64,
    /// Power for the nodes that it was made for, in milliwatts.
    pub budget_mw: u64,
    /// Every node that follows the power.
    pub nodes: BTreeMap<NodeId, NodePlan>,
    /// Datasets without readable data under this plan, because there is too little power for them.
    pub stalled: Vec<DatasetId>,
    /// Data that it puts out of reach, as known when it was published. Without this field, it would look like a plan
    /// that keeps everything within reach.
    pub out_of_reach: OutOfReach,
    /// The reason for the plan: a sentence for a person.
    pub why: String,
}

/// Data with copies, but without one on a node that a plan wakes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OutOfReach {
    /// Number of metablocks.
    pub metablocks: u64,
    /// The name of a file with one of them, or its beginning; empty if none was known.
    pub example: String,
}

/// One node's part of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodePlan {
    /// The times at which it is powered.
    pub duty: Duty,
    /// It serves nothing before this time, in milliseconds since the Unix epoch: it may have to wake first.
    pub ready_ms: u64,
    /// From the wake-up call to the first answer.
    pub wake_ms: u32,
    /// From the last answer to sleep.
    pub suspend_ms: u32,
}

/// The times at which a node is powered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Duty {
    /// Always.
    On,
    /// Never.
    Off,
    /// From `start_ms` after each interval's beginning for `active_ms`, with the transitions. A part beyond the
    /// interval's end goes on at the next one's beginning.
    Blink {
        /// Before `interval_ms`.
        start_ms: u64,
        /// Above 0 and below `interval_ms`.
        active_ms: u64,
    },
}

impl Duty {
    /// Powered for `active_ms` of each interval from `start_ms` on. The result is `On` for a whole interval, and `Off`
    /// for 0.
    #[must_use]
    pub fn blink(start_ms: u64, active_ms: u64, interval_ms: u64) -> Self {
        match active_ms {
            0 => Self::Off,
            _ if active_ms >= interval_ms => Self::On,
            _ => Self::Blink { start_ms: start_ms % interval_ms, active_ms },
        }
    }

    /// Powered milliseconds of each interval.
    #[must_use]
    pub const fn active_ms(self, interval_ms: u64) -> u64 {
        match self {
            Self::On => interval_ms,
            Self::Off => 0,
            Self::Blink { active_ms, .. } => active_ms,
        }
    }

    /// Whether it is powered at this phase of the interval.
    #[must_use]
    pub const fn is_powered_at(self, phase_ms: u64, interval_ms: u64) -> bool {
        match self {
            Self::On => true,
            Self::Off => false,
            Self::Blink { start_ms, active_ms } => (phase_ms + interval_ms - start_ms) % interval_ms < active_ms,
        }
    }
}

impl NodePlan {
    /// Milliseconds of each interval in which it serves, for callers with clocks that may be off by `guard_ms`.
    #[must_use]
    pub fn serving_ms(&self, interval_ms: u64, guard_ms: u64) -> u64 {
        match self.duty {
            Duty::On => interval_ms,
            Duty::Off => 0,
            Duty::Blink { active_ms, .. } => active_ms.saturating_sub(self.lost_ms(guard_ms)),
        }
    }

    const fn lost_ms(&self, guard_ms: u64) -> u64 {
        self.wake_ms as u64 + self.suspend_ms as u64 + 2 * guard_ms
    }

    /// Whether its data can be read within each interval.
    #[must_use]
    pub fn is_reachable(&self, interval_ms: u64, guard_ms: u64) -> bool {
        self.serving_ms(interval_ms, guard_ms) > 0
    }
}

impl PowerPlan {
    /// `Invalid`, with the reason, for an impossible plan. A process must check a plan before it follows it.
    pub fn check(&self) -> Result<()> {
        if !(1..=INTERVAL_MS_MAX).contains(&self.interval_ms) {
            bail!(
                Invalid,
                "{}: an interval of {} ms; it must be 1 to {INTERVAL_MS_MAX} ms",
                self.version,
                self.interval_ms
            );
        }
        if self.version == PlanVersion::default() {
            bail!(Invalid, "a plan has a version of 1 or more: 0 means that there is none");
        }
        if self.start_ms > TIME_MS_MAX || self.nodes.values().any(|node| node.ready_ms > TIME_MS_MAX) {
            bail!(Invalid, "{}: it starts, or a node is ready, after the end of time", self.version);
        }
        if self.guard_ms > INTERVAL_MS_MAX || self.why.len() > WHY_MAX {
            bail!(Invalid, "{}: its guard band or its sentence is longer than any can be", self.version);
        }
        if self.out_of_reach.example.len() > EXAMPLE_MAX {
            bail!(Invalid, "{}: its example of data out of reach is longer than any can be", self.version);
        }
        if self.nodes.len() > NODES_MAX || self.stalled.len() > NODES_MAX {
            bail!(Invalid, "{}: {} nodes; at most {NODES_MAX}", self.version, self.nodes.len());
        }
        let bad = self.nodes.iter().find(|(_, node)| match node.duty {
            Duty::On | Duty::Off => false,
            Duty::Blink { start_ms, active_ms } => {
                start_ms >= self.interval_ms || active_ms == 0 || active_ms >= self.interval_ms
            }
        });
        if let Some((node, plan)) = bad {
            bail!(
                Invalid,
                "{}: {node} blinks {:?} within {} ms: it must start within, and be awake for a part of it",
                self.version,
                plan.duty,
                self.interval_ms
            );
        }
        Ok(())
    }

    /// A node's part. `NotFound` for a node that is not in the plan: it is always on, or not of this cluster.
    pub fn node(&self, node: NodeId) -> Result<&NodePlan> {
        self.nodes.get(&node).ok_or_else(|| {
            ebb_types::err!(NotFound, "{} says nothing of {node}: it does not follow the power", self.version)
        })
    }

    /// Whether nodes are powered alike under both plans from the later one's start on.
    #[must_use]
    pub fn is_same_schedule(&self, other: &Self) -> bool {
        let duties = |plan: &Self| plan.nodes.iter().map(|(id, node)| (*id, node.duty)).collect::<Vec<_>>();
        self.interval_ms == other.interval_ms && self.policy == other.policy && duties(self) == duties(other)
    }

    /// The reason for the plan, and the data that it puts out of reach: for a person.
    #[must_use]
    pub fn sentence(&self) -> String {
        let OutOfReach { metablocks, example } = &self.out_of_reach;
        match (metablocks, example.as_str()) {
            (0, _) => self.why.clone(),
            (_, "") => format!("{}; {metablocks} metablocks out of reach", self.why),
            _ => format!("{}; {metablocks} metablocks out of reach, as of {example}", self.why),
        }
    }

    /// Powered milliseconds of each interval, all nodes together.
    #[must_use]
    pub fn node_ms(&self) -> u64 {
        self.nodes.values().map(|node| node.duty.active_ms(self.interval_ms)).sum()
    }

    /// Nodes that blink.
    pub fn blinking(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.iter().filter(|(_, node)| matches!(node.duty, Duty::Blink { .. })).map(|(id, _)| *id)
    }

    /// Nodes that stay off.
    pub fn off(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.iter().filter(|(_, node)| node.duty == Duty::Off).map(|(id, _)| *id)
    }
}

/// Wall-clock time as plans count it: milliseconds since the Unix epoch.
#[must_use]
pub fn wall_ms(wall: WallTime) -> u64 {
    u64::try_from(wall.0 / 1_000_000).unwrap_or(0)
}

impl fmt::Display for PowerPlan {
    /// One line for the plan, one for each node.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} {} from {} ms, interval {} ms, {:.1} W: {}",
            self.version,
            self.policy,
            self.start_ms,
            self.interval_ms,
            self.budget_mw as f64 / 1000.0,
            self.sentence()
        )?;
        for dataset in &self.stalled {
            writeln!(f, "  {dataset} is out of reach")?;
        }
        for (id, node) in &self.nodes {
            writeln!(f, "  {id} {}", node.duty)?;
        }
        Ok(())
    }
}

impl fmt::Display for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::On => f.write_str("on"),
            Self::Off => f.write_str("off"),
            Self::Blink { start_ms, active_ms } => write!(f, "blinks from {start_ms} ms for {active_ms} ms"),
        }
    }
}
