//! Which homes have too much to write: others write for them, as guests (Rabbit, Sec. 3.3, write off-loading at high power).
//!
//! On a chain a copy of every block goes to one of `p` primaries, so that writes have the bandwidth of `p` nodes. With a part
//! of the primaries' copies, and of the second copies of those that follow, on other nodes for a while, all `N` nodes write
//! alike: `N / r` nodes' worth.
//!
//! The measure is the room on a node that **was handed out and is not committed yet**: the node has still to write it.
//! The master knows it before the first byte is on its way, while the requests in heartbeats come too late: a client
//! has several metablocks granted before it has written one. It stays true as time passes, for a node that is slow, or
//! busy with reads, commits later. And it needs no figure of a node's speed: nodes are compared with each other.
//!
//! A home is overloaded when the bytes that wait for it are more than the nodes' mean by [`OverloadRule::ahead_bytes`],
//! and by [`OverloadRule::ahead_metablocks`]; it stays so until it is within half of that. A copy that is off-loaded is
//! written twice and read once more: for a home that is a little busier than others that is not worth it. A cluster
//! with few writers has no guests at all.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::NodeId;

/// When a home counts as overloaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OverloadRule {
    /// Bytes by which more than the mean must wait for it. `None`: no home ever counts as overloaded.
    pub ahead_bytes: Option<u64>,
    /// Metablocks by which more must wait, too: a writer has three of a file before it has committed one.
    pub ahead_metablocks: u64,
    /// Copies of a home that may be away at a time: it will have to take them in again.
    pub away_max: u64,
}

impl Default for OverloadRule {
    /// 64 MiB are half a second of a disk's or a link's time; 2,048 copies of 64 MiB come home in about ten minutes.
    fn default() -> Self {
        Self { ahead_bytes: Some(64 << 20), ahead_metablocks: 4, away_max: 2048 }
    }
}

/// A node that stays on as far as the plans reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Queue {
    /// Bytes that it has been given to write and that are not committed.
    pub waiting_bytes: u64,
    /// Copies that belong to it and lie elsewhere.
    pub away: u64,
}

/// The bytes that would wait for each node if all were spread evenly.
#[must_use]
pub fn mean_bytes(queues: &BTreeMap<NodeId, Queue>) -> u64 {
    let sum: u128 = queues.values().map(|queue| u128::from(queue.waiting_bytes)).sum();
    let nodes = u128::try_from(queues.len().max(1)).expect("a length fits");
    u64::try_from(sum / nodes).expect("a mean is no more than the largest")
}

/// The nodes that have too much to write, for metablocks of so many bytes. `before`: those that had at the last look.
#[must_use]
pub fn choose_overloaded(
    rule: &OverloadRule,
    queues: &BTreeMap<NodeId, Queue>,
    before: &BTreeSet<NodeId>,
    metablock_bytes: u64,
) -> BTreeSet<NodeId> {
    let Some(ahead_bytes) = rule.ahead_bytes else { return BTreeSet::new() };
    let ahead = ahead_bytes.max(rule.ahead_metablocks.saturating_mul(metablock_bytes));
    let mean = mean_bytes(queues);
    let is_over = |(node, queue): &(&NodeId, &Queue)| {
        let ahead = if before.contains(node) { ahead / 2 } else { ahead };
        queue.waiting_bytes >= mean.saturating_add(ahead) && queue.away < rule.away_max
    };
    queues.iter().filter(is_over).map(|(node, _)| *node).collect()
}

impl OverloadRule {
    /// Whether a home for which so many bytes wait has time for returning copies.
    #[must_use]
    pub fn lets_home(&self, waiting_bytes: u64) -> bool {
        self.ahead_bytes.is_none_or(|ahead_bytes| waiting_bytes <= ahead_bytes)
    }
}

#[cfg(test)]
mod tests;
