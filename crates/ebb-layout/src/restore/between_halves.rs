//! Restoring on localized storage nodes: where a first copy belongs is its writer's business, so only two things are wrong. A copy
//! lies off the chain, or a half of the chain has none.

use ebb_types::NodeId;

use super::{Shift, ShiftReason};
use crate::chain::ChainView;
use crate::chain::halves::Half;

/// Whether a block's copies all lie on the chain, with one in each half if there are two.
pub fn is_whole(chain: &ChainView, homes: &[NodeId]) -> bool {
    let is_on_chain = |node: &NodeId| chain.place_of(*node).is_some();
    homes.iter().all(is_on_chain) && (homes.len() < 2 || Half::without(chain, homes).is_none())
}

/// Brings a copy back to the chain, or to the half that has none. It goes to the node with fewest copies.
pub fn choose_shift(chain: &ChainView, homes: &[NodeId], may_take: &impl Fn(NodeId) -> bool) -> Option<Shift> {
    if is_whole(chain, homes) {
        return None;
    }
    let off_chain = homes.iter().copied().find(|node| chain.place_of(*node).is_none());
    let from = match off_chain {
        Some(node) => node,
        // All copies are in one half, and none in the node that both share.
        None => homes.iter().copied().max_by_key(|node| (chain.tally.on(*node), *node))?,
    };
    let staying: Vec<NodeId> = homes.iter().copied().filter(|node| *node != from).collect();
    let half = Half::without(chain, &staying).filter(|_| !staying.is_empty());
    let is_meant = |node: &NodeId| half.is_none_or(|half| half.has_any(chain, &[*node]));
    let open = chain.nodes().iter().copied().filter(|node| !homes.contains(node) && may_take(*node));
    let to = open.filter(is_meant).min_by_key(|node| (chain.tally.on(*node), *node))?;
    let reason = if off_chain.is_some() { ShiftReason::OutOfRun } else { ShiftReason::OneHalf };
    Some(Shift { from, to, reason })
}
