//! Blocks whose nodes are not those that their dataset's layout says: they were written or repaired while nodes were
//! missing, or the number of copies was another one. They lie there until they have moved.
//!
//! A cover that follows the layout alone would put such blocks out of reach.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use ebb_types::NodeId;

use super::DatasetChain;
use crate::reach::Holding;

/// Most sets of strays that count as reads. The cover has a node of every set.
const READ_MAX: usize = 128;

/// Strays on the same nodes.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Stray {
    /// Nodes of the chain with their copies.
    pub nodes: Vec<NodeId>,
    /// Their share of the dataset's blocks, rounded down to a power of two: a plan does not change with each block that
    /// moves. Zero if there are too many sets.
    pub share: f64,
}

/// Tells chains of the blocks that lie on no node of any cover. `dead`: nodes that do not answer.
pub fn set_strays(chains: &mut [DatasetChain], holdings: &[Holding], dead: &BTreeSet<NodeId>) {
    chains.iter_mut().for_each(|chain| chain.strays.clear());
    let covered: BTreeSet<NodeId> = chains.iter().flat_map(|chain| chain.cover(dead)).collect();
    // A holding on some of its nodes is of many sets, and no cover can be found for it.
    let is_stray =
        |held: &&Holding| held.copies == held.nodes.len() && !held.nodes.iter().any(|node| covered.contains(node));
    let all: u64 = holdings.iter().map(|held| held.metablocks).sum();
    let mut strays: Vec<&Holding> = holdings.iter().filter(is_stray).collect();
    strays.sort_by_key(|held| Reverse(held.metablocks));
    for (rank, held) in strays.into_iter().enumerate() {
        let on = |chain: &DatasetChain| held.nodes.iter().filter(|node| chain.nodes.contains(node)).count();
        let Some(chain) = chains.iter_mut().rev().max_by_key(|chain| on(chain)).filter(|chain| on(chain) > 0) else {
            continue;
        };
        let nodes = held.nodes.iter().copied().filter(|node| chain.nodes.contains(node)).collect();
        let share = if rank < READ_MAX { power_of_two(held.metablocks as f64 / all as f64) } else { 0.0 };
        chain.strays.push(Stray { nodes, share });
    }
}

/// Adds living nodes until each of these sets has one: first the node that most of those without one have.
pub(super) fn add_for(strays: &[Stray], dead: &BTreeSet<NodeId>, cover: &mut BTreeSet<NodeId>) {
    loop {
        let left =
            strays.iter().map(|stray| &stray.nodes).filter(|nodes| !nodes.iter().any(|node| cover.contains(node)));
        let left: Vec<&NodeId> = left.flatten().filter(|node| !dead.contains(node)).collect();
        let count = |node: &NodeId| left.iter().filter(|other| **other == node).count();
        let most = left.iter().copied().max_by_key(|node| (count(node), Reverse(**node)));
        let Some(node) = most else { return };
        cover.insert(*node);
    }
}

/// The largest power of two that is not above this share.
fn power_of_two(share: f64) -> f64 {
    share.log2().floor().exp2()
}
