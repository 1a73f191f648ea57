//! RAID sets of a chain's datasets: what is read of them while nodes sleep.
//!
//! A slot is read on its own node. It can also be decoded, while enough of the other parts are on at the same time. So any
//! `k` of `k + m` nodes are enough for a RAID set of `k` slots and `m` rows. On an expansion chain the slots lie on the
//! primaries, which are on anyway, and rows sleep behind them.

use std::collections::BTreeSet;

use ebb_types::NodeId;

use crate::reach::Holding;

/// Steps of the share of the data that is in RAID sets. A plan does not change with each of them.
const SHARE_STEPS: f64 = 16.0;

/// RAID sets with their parts on the same nodes.
#[derive(Clone, PartialEq, Debug)]
pub struct Coded {
    /// Nodes of the chain with slots that files have.
    pub slots: Vec<NodeId>,
    /// Nodes of the chain with any part.
    pub parts: Vec<NodeId>,
    /// Number of parts that a slot is decoded of.
    pub needed: usize,
    /// Share of the datasets' blocks in these slots.
    pub share: f64,
}

impl Coded {
    /// A holding's RAID sets, as far as they lie on these nodes. Its share is not known yet.
    pub(super) fn of(held: &Holding, nodes: &[NodeId]) -> Self {
        let on = |all: &[NodeId]| all.iter().copied().filter(|node| nodes.contains(node)).collect();
        let needed = (held.nodes.len() + 1).saturating_sub(held.copies);
        Self { slots: on(&held.slots), parts: on(&held.nodes), needed, share: 0.0 }
    }

    /// Number of parts on nodes that are on.
    fn parts_on(&self, is_on: impl Fn(&NodeId) -> bool) -> usize {
        self.parts.iter().filter(|node| is_on(node)).count()
    }

    /// Whether all slots can be read at once with these nodes on.
    #[must_use]
    pub fn is_at_hand(&self, is_on: impl Fn(&NodeId) -> bool) -> bool {
        self.slots.iter().all(&is_on) || self.parts_on(is_on) >= self.needed
    }

    /// Further nodes of which some must be on, so that all slots that can be read are at hand. Empty: they are.
    pub(super) fn wanting(&self, dead: &BTreeSet<NodeId>, cover: &BTreeSet<NodeId>) -> Vec<NodeId> {
        let is_alive = |node: &NodeId| !dead.contains(node);
        if self.is_at_hand(|node| cover.contains(node)) {
            return Vec::new();
        }
        // With too few parts left, each slot that lives is read on its own node.
        let of = if self.parts_on(is_alive) >= self.needed { &self.parts } else { &self.slots };
        of.iter().copied().filter(|node| is_alive(node) && !cover.contains(node)).collect()
    }
}

/// Shares of the data, of RAID sets with so many metablocks out of `all`.
///
/// Together they have the part of all that they are, in whole steps. Each has its part of that by a power of two.
pub(super) fn share_out(coded: &mut [(Coded, u64)], all: u64) {
    let weight = |metablocks: u64| 2.0_f64.powi(metablocks.max(1).ilog2() as i32);
    let (mut metablocks, mut weights) = (0, 0.0);
    for (_, one) in coded.iter() {
        (metablocks, weights) = (metablocks + one, weights + weight(*one));
    }
    let part = (metablocks as f64 / all.max(1) as f64 * SHARE_STEPS).round() / SHARE_STEPS;
    coded.iter_mut().for_each(|(one, metablocks)| one.share = part * weight(*metablocks) / weights);
}
