//! The same on the circle of the power-balanced layout (BlinkFS, Sec. 4.2), which has no runs but spacings: the sets of
//! places that copies of one block may have.
//!
//! A block with a copy elsewhere is for one spacing ([`Circle::aim`]), and each move brings a copy more into it, till
//! all are. When all blocks are whole, and some node has not its share, a block of a spacing with more blocks than the
//! average sets out for one with at least two less, by one copy; the others follow. The sum of the spacings' squared
//! counts falls with each block that sets out, and stays as it is while the other copies follow: so the moves come to
//! an end. With as many blocks for each spacing, give or take one, every node has its share.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use ebb_types::NodeId;

use super::{Shift, ShiftReason, lack, slack};
use crate::chain::ChainView;
use crate::chain::circle::Circle;

/// Whether a block's copies are the ones of a spacing.
pub fn is_whole(chain: &ChainView, circle: &Circle, homes: &[NodeId]) -> bool {
    whole(chain, circle, homes).is_some()
}

/// The spacing that has all copies of a block.
fn whole(chain: &ChainView, circle: &Circle, homes: &[NodeId]) -> Option<usize> {
    let places = chain.places_of(homes);
    circle.aim(&places).filter(|spacing| circle.matched(*spacing, &places) == chain.replicas() as usize)
}

/// Brings a copy that lies elsewhere into the spacing that its block is for: to the node that lacks most there, from
/// the node that has most.
pub fn choose_shift(
    chain: &ChainView,
    circle: &Circle,
    homes: &[NodeId],
    may_take: &impl Fn(NodeId) -> bool,
) -> Option<Shift> {
    let aim = chain.aim(homes);
    let fits = |place: usize| aim.is_none_or(|aim| circle.has(aim, place));
    let strays = homes.iter().copied().filter(|node| !chain.place_of(*node).is_some_and(fits));
    let from = strays.min_by(|one, other| lack(chain, *one).total_cmp(&lack(chain, *other)))?;
    let open = (0..chain.nodes().len()).filter(|place| fits(*place)).map(|place| chain.nodes()[place]);
    let open = open.filter(|node| !homes.contains(node) && may_take(*node));
    let to = open.max_by(|one, other| lack(chain, *one).total_cmp(&lack(chain, *other)).then(other.cmp(one)))?;
    Some(Shift { from, to, reason: ShiftReason::OffCircle })
}

/// Has a whole block set out for a spacing with fewer blocks: the one that most of its copies are in already, then the
/// one with the fewest. None, unless it takes from a node with too much, or gives to a node with too little; and none
/// where a further copy could not follow.
pub fn choose_change(
    chain: &ChainView,
    circle: &Circle,
    homes: &[NodeId],
    may_take: &impl Fn(NodeId) -> bool,
) -> Option<Shift> {
    let own = whole(chain, circle, homes)?;
    let (has, all) = (chain.tally.for_spacing(own), circle.all().map(|spacing| chain.tally.for_spacing(spacing)));
    // A spacing with no more than the average gives none: the others have the missing blocks.
    if has * circle.all().len() as u64 <= all.sum() {
        return None;
    }
    let most = has.checked_sub(2)?;
    let node = |place: &usize| chain.nodes()[*place];
    let nodes_of = |spacing: usize| circle.places(spacing).iter().map(node);
    let gives = nodes_of(own).any(|node| -lack(chain, node) > slack(chain, node));
    let lacks = |node: NodeId| lack(chain, node) > slack(chain, node);
    let poorer = circle.all().filter(|spacing| chain.tally.for_spacing(*spacing) <= most);
    let needy: BTreeSet<usize> = poorer.clone().filter(|spacing| nodes_of(*spacing).any(lacks)).collect();
    let due = if needy.is_empty() && gives { poorer.collect() } else { needy };
    let takers: BTreeSet<NodeId> = due.iter().flat_map(|spacing| nodes_of(*spacing)).collect();
    let mut best = None;
    for to in takers.into_iter().filter(|node| !homes.contains(node) && may_take(*node)) {
        for copy in 0..homes.len() {
            let mut moved = homes.to_vec();
            moved[copy] = to;
            let Some(aim) = chain.aim(&moved).filter(|aim| due.contains(aim)) else { continue };
            let is_open = nodes_of(aim).all(|node| moved.contains(&node) || may_take(node));
            let matched = circle.matched(aim, &chain.places_of(&moved));
            let rank = (Reverse(matched), chain.tally.for_spacing(aim), to, copy);
            if is_open && best.is_none_or(|(least, _)| rank < least) {
                best = Some((rank, Shift { from: homes[copy], to, reason: ShiftReason::Spacing }));
            }
        }
    }
    best.map(|(_, shift)| shift)
}
