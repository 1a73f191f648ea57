//! Logged bytes that sleeping nodes have still to take.

use std::collections::BTreeMap;

use ebb_types::{NodeId, Result, bail};

use super::{room, taken};
use crate::Timetable;

/// Intervals over which the bytes that a node took are computed. Older debts were taken, or the node is never woken.
const INTERVALS_MAX: u64 = 16;

/// A write's part for one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Bytes that the node has not got.
    pub bytes: u64,
    /// Bytes a second that it takes while it serves.
    pub bytes_per_sec: u64,
}

/// Bytes owed to each node: the logged bytes, less those that the node can have taken since, by the plans and its pace.
/// No message about the bytes really taken is needed: holders send them, and replace a node that they cannot reach.
///
/// It is kept in memory only. After a restart it is empty, and admits at most one interval's writes too many.
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
    /// Bytes owed to a node.
    #[must_use]
    pub fn bytes(&self, plans: &Timetable, node: NodeId, now_ms: u64, bytes_per_sec: u64) -> u64 {
        let Some(debt) = self.nodes.get(&node) else { return 0 };
        let interval_ms = plans.at(now_ms).map_or(0, |plan| plan.interval_ms);
        let from_ms = debt.at_ms.max(now_ms.saturating_sub(interval_ms.saturating_mul(INTERVALS_MAX)));
        debt.bytes.saturating_sub(taken(bytes_per_sec, plans.serves_ms(node, from_ms, now_ms)))
    }

    /// Adds a write's bytes for each of these nodes. `Overloaded`: one of them would not have all its bytes within an
    /// interval, and nothing was added.
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
