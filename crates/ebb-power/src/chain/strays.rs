//! What a cover by the layout's rule for copies leaves out.
//!
//! - **Strays**: blocks whose nodes are not those that their dataset's layout says. They were written or repaired while nodes
//!   were missing, or the number of copies was another one. They lie there until they have moved.
//! - **RAID sets** ([`super::coded`]): they have no copies.
//!
//! A cover that follows the layout alone would put such blocks out of reach.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use ebb_types::NodeId;

use super::DatasetChain;
use super::coded::{Coded, share_out};
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

/// Tells chains of the blocks that lie on no node of any cover, and of the RAID sets on their nodes. `dead`: nodes that do
/// not answer.
pub fn set_strays(chains: &mut [DatasetChain], holdings: &[Holding], dead: &BTreeSet<NodeId>) {
    for chain in &mut *chains {
        chain.strays.clear();
        chain.coded.clear();
    }
    let covered: BTreeSet<NodeId> = chains.iter().flat_map(|chain| chain.cover(dead)).collect();
    // A holding on some of its nodes is of many sets, and no cover can be found for it.
    let is_stray = |held: &&Holding| {
        let is_one_set = held.copies == held.nodes.len() && !held.is_decoded();
        is_one_set && !held.nodes.iter().any(|node| covered.contains(node))
    };
    let all: u64 = holdings.iter().map(|held| held.metablocks).sum();
    for (rank, held) in most_first(holdings.iter().filter(is_stray)).into_iter().enumerate() {
        let Some(chain) = chain_of(chains, held).map(|at| &mut chains[at]) else { continue };
        let nodes = held.nodes.iter().copied().filter(|node| chain.nodes.contains(node)).collect();
        let share = if rank < READ_MAX { power_of_two(held.metablocks as f64 / all as f64) } else { 0.0 };
        chain.strays.push(Stray { nodes, share });
    }
    let mut coded: Vec<Vec<(Coded, u64)>> = chains.iter().map(|_| Vec::new()).collect();
    for held in most_first(holdings.iter().filter(|held| held.is_decoded())) {
        let Some(at) = chain_of(chains, held) else { continue };
        coded[at].push((Coded::of(held, &chains[at].nodes), held.metablocks));
    }
    for (chain, mut coded) in chains.iter_mut().zip(coded) {
        let read = coded.len().min(READ_MAX);
        share_out(&mut coded[..read], all);
        chain.coded = coded.into_iter().map(|(one, _)| one).collect();
    }
}

fn most_first<'a>(holdings: impl Iterator<Item = &'a Holding>) -> Vec<&'a Holding> {
    let mut all: Vec<&Holding> = holdings.collect();
    all.sort_by_key(|held| Reverse(held.metablocks));
    all
}

/// The chain with most of the holding's nodes.
fn chain_of(chains: &[DatasetChain], held: &Holding) -> Option<usize> {
    let on = |at: &usize| held.nodes.iter().filter(|node| chains[*at].nodes.contains(node)).count();
    (0..chains.len()).rev().max_by_key(on).filter(|at| on(at) > 0)
}

/// Adds living nodes until each of these sets has one, and each RAID set is at hand. First the node that most of those want
/// that have not enough, of these the first of the chain.
pub(super) fn add_for(chain: &DatasetChain, dead: &BTreeSet<NodeId>, cover: &mut BTreeSet<NodeId>) {
    loop {
        let strays = chain.strays.iter().map(|stray| &stray.nodes);
        let strays = strays.filter(|nodes| !nodes.iter().any(|node| cover.contains(node))).flatten().copied();
        let coded = chain.coded.iter().flat_map(|coded| coded.wanting(dead, cover));
        let mut wanted: BTreeMap<NodeId, usize> = BTreeMap::new();
        for node in strays.filter(|node| !dead.contains(node)).chain(coded) {
            *wanted.entry(node).or_default() += 1;
        }
        let count = |node: &NodeId| wanted.get(node).copied().unwrap_or_default();
        let most = chain.nodes.iter().rev().max_by_key(|node| count(node)).filter(|node| count(node) > 0);
        let Some(node) = most else { return };
        cover.insert(*node);
    }
}

/// The largest power of two that is not above this share.
fn power_of_two(share: f64) -> f64 {
    share.log2().floor().exp2()
}
