//! What nodes that sleep are still to take of what was logged for them.

use std::collections::BTreeMap;

use ebb_types::{NodeId, Result, bail};

use super::{room, taken};
use crate::Timetable;

/// Intervals over which it is reckoned what a node took; what was owed before that was taken, or nobody wakes the node.
const INTERVALS_MAX: u64 = 16;

/// What a write would add for one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Bytes that the node has not got.
    pub bytes: u64,
    /// What it takes while it serves.
    pub bytes_per_sec: u64,
}

/// What is owed to each node: what was logged, less what the node can have taken since, by the plans and its pace. Nobody
/// has to tell what it did take: holders send, and whoever cannot be sent to is replaced.
///
/// It is kept in memory alone: a process that begins anew owes nothing, and admits an interval's writes too much at most.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Owed {
    nodes: BTreeMap<NodeId, Debt>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Debt {
    bytes: u64,
    at_ms: u64,
}

impl Owed {
    /// What is owed to a node.
    #[must_use]
    pub fn bytes(&self, plans: &Timetable, node: NodeId, now_ms: u64, bytes_per_sec: u64) -> u64 {
        let Some(debt) = self.nodes.get(&node) else { return 0 };
        let interval_ms = plans.at(now_ms).map_or(0, |plan| plan.interval_ms);
        let from_ms = debt.at_ms.max(now_ms.saturating_sub(interval_ms.saturating_mul(INTERVALS_MAX)));
        debt.bytes.saturating_sub(taken(bytes_per_sec, plans.serves_ms(node, from_ms, now_ms)))
    }

    /// Adds what a write leaves for each of these nodes. `Overloaded`: one of them would not have it within an interval, and
    /// nothing was added.
    pub fn add_debts(&mut self, plans: &Timetable, now_ms: u64, asks: &BTreeMap<NodeId, Ask>) -> Result<()> {
        let mut debts = Vec::with_capacity(asks.len());
        for (node, ask) in asks {
            let Some(room) = room(plans, *node, now_ms, ask.bytes_per_sec) else { continue };
            let owed = self.bytes(plans, *node, now_ms, ask.bytes_per_sec);
            let bytes = owed.saturating_add(ask.bytes);
            if bytes > room {
                bail!(
                    Overloaded,
                    "{node} is to take {owed} bytes when it serves, {} more are asked for, and within an interval it \
                     takes {room}: members must wake first",
                    ask.bytes
                );
            }
            debts.push((*node, Debt { bytes, at_ms: now_ms }));
        }
        self.nodes.extend(debts);
        Ok(())
    }
}
