//! Lookups in a plan, for readers, proxies and power clients: states of nodes, and the times at which they change.
//!
//! A node is *powered* from the start of its active time to its end, and *awake* (it serves) between its transitions,
//! which lie inside, less the guard band at both ends. Times are milliseconds since the Unix epoch. Before its start a
//! plan answers as at its start.

use std::time::Duration;

use ebb_types::NodeId;

use super::{Duty, NodePlan, PowerPlan};

/// State of a node at a moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NodeState {
    /// Asleep or off.
    Asleep,
    /// Powered, does not serve yet.
    Waking,
    /// Serves.
    Awake,
    /// Powered, does not serve any more.
    FallingAsleep,
}

impl NodeState {
    /// The name that status shows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Asleep => "asleep",
            Self::Waking => "waking",
            Self::Awake => "awake",
            Self::FallingAsleep => "falling-asleep",
        }
    }

    /// Whether it draws more than a sleeping node.
    #[must_use]
    pub const fn is_powered(self) -> bool {
        !matches!(self, Self::Asleep)
    }
}

/// How long a node still serves from a moment on. The longer time is the greater value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Awake {
    /// It does not serve.
    Asleep,
    /// It serves for so many milliseconds, at least one, and not after them.
    ForMs(u64),
    /// No plan lets it sleep.
    Always,
}

impl Awake {
    /// It serves for so many milliseconds more. 0 means that it does not serve.
    #[must_use]
    pub const fn for_ms(left_ms: u64) -> Self {
        if left_ms == 0 { Self::Asleep } else { Self::ForMs(left_ms) }
    }

    /// Whether it does not serve now.
    #[must_use]
    pub const fn is_asleep(self) -> bool {
        matches!(self, Self::Asleep)
    }

    /// Whether no plan lets it sleep.
    #[must_use]
    pub const fn is_always(self) -> bool {
        matches!(self, Self::Always)
    }

    /// Whether it serves now, and for `need_ms` without a break.
    #[must_use]
    pub const fn serves_for(self, need_ms: u64) -> bool {
        match self {
            Self::Asleep => false,
            Self::ForMs(left_ms) => left_ms >= need_ms,
            Self::Always => true,
        }
    }

    /// How long it still serves: zero if it does not serve, none if no plan lets it sleep.
    #[must_use]
    pub const fn left(self) -> Option<Duration> {
        match self {
            Self::Asleep => Some(Duration::ZERO),
            Self::ForMs(left_ms) => Some(Duration::from_millis(left_ms)),
            Self::Always => None,
        }
    }

    /// When it stops serving, if it serves so long from `from_ms` on. None if it never stops.
    #[must_use]
    pub const fn end_ms(self, from_ms: u64) -> Option<u64> {
        match self {
            Self::Asleep => Some(from_ms),
            Self::ForMs(left_ms) => Some(from_ms.saturating_add(left_ms)),
            Self::Always => None,
        }
    }
}

impl PowerPlan {
    /// State of a node by the plan. A node that is not in the plan is always on.
    #[must_use]
    pub fn state(&self, node: NodeId, at_ms: u64) -> NodeState {
        self.nodes.get(&node).map_or(NodeState::Awake, |plan| self.state_of(plan, at_ms))
    }

    fn state_of(&self, plan: &NodePlan, at_ms: u64) -> NodeState {
        let at_ms = at_ms.max(self.start_ms);
        let waking = at_ms < plan.ready_ms;
        match plan.duty {
            Duty::Off => NodeState::Asleep,
            Duty::On if waking => NodeState::Waking,
            Duty::On => NodeState::Awake,
            Duty::Blink { active_ms, .. } => {
                let since = self.since_start(plan, at_ms);
                if since >= active_ms {
                    NodeState::Asleep
                } else if since + u64::from(plan.suspend_ms) + self.guard_ms >= active_ms {
                    NodeState::FallingAsleep
                } else if waking || since < u64::from(plan.wake_ms) + self.guard_ms {
                    NodeState::Waking
                } else {
                    NodeState::Awake
                }
            }
        }
    }

    /// Time since the node's last regular start.
    fn since_start(&self, plan: &NodePlan, at_ms: u64) -> u64 {
        let start = match plan.duty {
            Duty::Blink { start_ms, .. } => start_ms,
            Duty::On | Duty::Off => 0,
        };
        (at_ms % self.interval_ms + self.interval_ms - start) % self.interval_ms
    }

    /// Whether a node serves.
    #[must_use]
    pub fn is_awake(&self, node: NodeId, at_ms: u64) -> bool {
        self.state(node, at_ms) == NodeState::Awake
    }

    /// Nodes that serve, in the order of their ids.
    pub fn awake(&self, at_ms: u64) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.iter().filter(move |(_, plan)| self.state_of(plan, at_ms) == NodeState::Awake).map(|(node, _)| *node)
    }

    /// Time for which a node still serves.
    #[must_use]
    pub fn awake_for(&self, node: NodeId, at_ms: u64) -> Awake {
        let at_ms = at_ms.max(self.start_ms);
        if !self.is_awake(node, at_ms) {
            return Awake::Asleep;
        }
        match self.nodes.get(&node).map(|plan| (plan, plan.duty)) {
            Some((plan, Duty::Blink { active_ms, .. })) => {
                Awake::for_ms(active_ms - self.since_start(plan, at_ms) - u64::from(plan.suspend_ms) - self.guard_ms)
            }
            _ => Awake::Always,
        }
    }

    /// The node, among `nodes`, that serves longest from now on, and for how long. `None` if all of them sleep. Among
    /// equals it is the first in `nodes`.
    pub fn longest_awake(&self, nodes: impl IntoIterator<Item = NodeId>, at_ms: u64) -> Option<(NodeId, Awake)> {
        let left = nodes.into_iter().map(|node| (node, self.awake_for(node, at_ms)));
        left.filter(|(_, left)| !left.is_asleep()).fold(None, |best: Option<(NodeId, Awake)>, next| match best {
            Some(best) if best.1 >= next.1 => Some(best),
            _ => Some(next),
        })
    }

    /// Time at which a node serves next: `at_ms` itself if it serves now. `None` if the plan never wakes it for long
    /// enough.
    #[must_use]
    pub fn next_wake_ms(&self, node: NodeId, at_ms: u64) -> Option<u64> {
        // Before the plan's start a node is as at its start: one that serves then serves now.
        if self.is_awake(node, at_ms) {
            return Some(at_ms);
        }
        let at_ms = at_ms.max(self.start_ms);
        let Some(plan) = self.nodes.get(&node) else { return Some(at_ms) };
        let Duty::Blink { active_ms, .. } = plan.duty else {
            return (plan.duty == Duty::On).then(|| at_ms.max(plan.ready_ms));
        };
        let (first, end) = (
            u64::from(plan.wake_ms) + self.guard_ms,
            active_ms.saturating_sub(u64::from(plan.suspend_ms) + self.guard_ms),
        );
        if first >= end {
            return None;
        }
        let earliest = at_ms.max(plan.ready_ms);
        let since = self.since_start(plan, earliest);
        Some(match since {
            _ if since < first => earliest + (first - since),
            _ if since < end => earliest,
            _ => earliest + (self.interval_ms - since) + first,
        })
    }

    /// The node, among `nodes`, that serves next, and the time. `None` if none ever serves. Among equals it is the
    /// first in `nodes`.
    pub fn next_wake_of(&self, nodes: impl IntoIterator<Item = NodeId>, at_ms: u64) -> Option<(NodeId, u64)> {
        let wakes = nodes.into_iter().filter_map(|node| Some((node, self.next_wake_ms(node, at_ms)?)));
        wakes.fold(None, |best: Option<(NodeId, u64)>, next| match best {
            Some(best) if best.1 <= next.1 => Some(best),
            _ => Some(next),
        })
    }

    /// Next time after `at_ms` at which a node must be woken or put to sleep, and whether it is powered from then on.
    /// `None` if never. A power client waits for this time.
    #[must_use]
    pub fn next_switch(&self, node: NodeId, at_ms: u64) -> Option<(u64, bool)> {
        if at_ms < self.start_ms {
            return Some((self.start_ms, self.state(node, self.start_ms).is_powered()));
        }
        let plan = self.nodes.get(&node)?;
        let Duty::Blink { active_ms, .. } = plan.duty else { return None };
        let since = self.since_start(plan, at_ms);
        Some(if since < active_ms {
            (at_ms + active_ms - since, false)
        } else {
            (at_ms + self.interval_ms - since, true)
        })
    }

    /// A moment after `at_ms` until which the node's state does not change. `None` if it never changes.
    #[must_use]
    pub fn next_state_ms(&self, node: NodeId, at_ms: u64) -> Option<u64> {
        let plan = self.nodes.get(&node)?;
        let at_ms = at_ms.max(self.start_ms);
        let ready = Some(plan.ready_ms).filter(|ready| *ready > at_ms && plan.duty != Duty::Off);
        let Duty::Blink { active_ms, .. } = plan.duty else { return ready };
        let since = self.since_start(plan, at_ms);
        let edges = [
            u64::from(plan.wake_ms) + self.guard_ms,
            active_ms.saturating_sub(u64::from(plan.suspend_ms) + self.guard_ms),
            active_ms,
            self.interval_ms,
        ];
        // A state may change at an edge. It does not if two edges are at the same time, or in the wrong order.
        let edge = edges.into_iter().filter(|edge| *edge > since).min().unwrap_or(self.interval_ms);
        Some(ready.map_or(at_ms + edge - since, |ready| ready.min(at_ms + edge - since)))
    }

    /// Next time at which two nodes serve together, and the length of that time, in which one can send to the other
    /// directly. `None` if they never serve together for `need_ms` without a break.
    #[must_use]
    pub fn next_meeting(&self, one: NodeId, other: NodeId, at_ms: u64, need_ms: u64) -> Option<(u64, Awake)> {
        let mut at = at_ms.max(self.start_ms);
        let ready = |node| self.nodes.get(&node).map_or(0, |plan: &NodePlan| plan.ready_ms);
        // Two intervals after both are ready everything repeats itself.
        let end = at.max(ready(one)).max(ready(other)) + 2 * self.interval_ms;
        while at <= end {
            let both = self.next_wake_ms(one, at)?.max(self.next_wake_ms(other, at)?);
            match self.awake_for(one, both).min(self.awake_for(other, both)) {
                left if left.serves_for(need_ms) => return Some((both, left)),
                Awake::ForMs(left_ms) => at = both.saturating_add(left_ms),
                Awake::Asleep | Awake::Always => at = both.saturating_add(1),
            }
        }
        None
    }
}
