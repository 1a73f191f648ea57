//! Nodes shared out between live datasets: each node serves exactly one of them (Rabbit, Sec. 3.4).
//!
//! Readers of several datasets crowd the same nodes, and the one with most requests gets most of the disks. If a node
//! serves one dataset, that dataset has a known part of the cluster, and readers of the others cannot take it away.
//!
//! - A dataset claims nodes by a **weight**: its part of the nodes is its part of all weights. Equal weights are the
//!   paper's fair share, and other ones its priorities.
//! - Claims of a higher **priority** come first. They get as many nodes as they can use. The others keep the nodes
//!   without which they could not be read.
//! - Which nodes a dataset gets follows from its chain. A node goes to the dataset for which it scores most: 1 as a
//!   primary, else what it stores of the data. So each dataset keeps its primaries, and lower nodes go where they count.
//! - A node stays with its dataset unless it scores clearly more for another one ([`KEEP`]).
//!
//! An allotment is advice. Data without a copy on the nodes of their dataset are read from others. The order of a read's
//! nodes is in [`crate::read`]. [`live`] says which datasets are live.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ebb_types::{DatasetId, NodeId};

use crate::chain::{ChainShape, DatasetChain, chain_score};

pub mod apportion;
pub mod live;
#[cfg(test)]
mod tests;

use apportion::{Bounds, apportion};

/// A node scores so many times as much for the dataset that it serves already. Nodes far down two chains score almost
/// alike, and would move at every little change.
pub const KEEP: f64 = 1.25;

/// A node with data of a dataset.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Place {
    /// The node.
    pub node: NodeId,
    /// Index in the chain, from 0.
    pub index: u32,
    /// What the node counts for: 1 if it belongs to the nodes that hold everything, else its part of the data.
    pub score: f64,
    /// It is one of the first nodes of the chain, which hold one copy of everything.
    pub is_primary: bool,
    /// It is one of the nodes that hold everything together, while some nodes are away.
    pub is_needed: bool,
}

/// A live dataset that has a share of the nodes.
#[derive(Clone, PartialEq, Debug)]
pub struct Claim {
    /// The dataset.
    pub dataset: DatasetId,
    /// Its part of the nodes, against the weights of the others; above 0.
    pub weight: f64,
    /// Claims of a higher one come first.
    pub priority: u32,
    /// Most nodes that it is to have. `None`: as many as there are.
    pub most: Option<u32>,
    /// Nodes with its data that can serve, in the order of its chain.
    pub places: Vec<Place>,
}

impl Claim {
    /// The claim of a dataset on a chain. `away` names the nodes that cannot serve: they are dead, or no plan wakes them.
    ///
    /// Copies of a dataset without a chain may be anywhere, so all its nodes count alike.
    #[must_use]
    pub fn new(chain: &DatasetChain, weight: f64, priority: u32, away: &BTreeSet<NodeId>) -> Self {
        let has_chain = !matches!(chain.shape(), ChainShape::Anywhere | ChainShape::Ring);
        let primaries = if has_chain { chain.primaries() as usize } else { 0 };
        // While a primary is away, the nodes with the second copies of its data are as important as primaries are.
        let cover: BTreeSet<NodeId> = if has_chain { chain.cover(away).into_iter().collect() } else { BTreeSet::new() };
        let score = |index: usize, node: &NodeId| match chain.shape() {
            _ if cover.contains(node) => 1.0,
            ChainShape::Anywhere | ChainShape::Ring | ChainShape::Halves => {
                f64::from(chain.replicas()) / chain.nodes().len() as f64
            }
            // Nodes of a gear store the same, and are of most use together.
            ChainShape::Geared { gear_size } => {
                let gear = index.saturating_sub(primaries) / gear_size.max(1) as usize + 1;
                1.0 / (primaries + gear_size as usize * gear) as f64
            }
            ChainShape::Simple | ChainShape::EqualWork => chain_score(index, primaries),
        };
        let nodes = chain.nodes().iter().enumerate().take(chain.spread() as usize);
        let places = nodes.filter(|(_, node)| !away.contains(node)).map(|(index, node)| Place {
            node: *node,
            index: u32::try_from(index).expect("a cluster has fewer than 2^32 nodes"),
            score: score(index, node),
            is_primary: index < primaries,
            is_needed: cover.contains(node),
        });
        Self { dataset: chain.dataset, weight, priority, most: chain.wanted_active, places: places.collect() }
    }

    /// Least nodes that are of use to it: its primaries, as far as they serve.
    fn least(&self) -> u32 {
        let primaries = self.places.iter().filter(|place| place.is_primary).count();
        u32::try_from(primaries.max(1)).expect("a cluster has fewer than 2^32 nodes")
    }

    fn bounds(&self) -> Bounds {
        let places = u32::try_from(self.places.len()).expect("a cluster has fewer than 2^32 nodes");
        let most = self.most.unwrap_or(u32::MAX).min(places).max(self.least());
        Bounds { weight: self.weight, least: self.least(), most }
    }
}

/// Why a dataset has as many nodes as it has.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Reason {
    /// No other dataset with a share is live.
    Alone,
    /// Its weight, of the sum of the weights with its priority.
    Weight {
        /// Its own.
        own: f64,
        /// Of all.
        sum: f64,
    },
    /// Its weight would be good for fewer nodes than hold all its data.
    Least,
    /// It is to have no more, or no more nodes have data of it.
    Most,
    /// Its primaries and those of the live datasets before it are more than there are nodes. It has none of its own, and
    /// shares all of them.
    Crowded,
    /// No node with its data serves.
    NoNode,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone => write!(f, "no other dataset with a share is read"),
            Self::Weight { own, sum } => write!(f, "its share is {own} of {sum}"),
            Self::Least => write!(f, "the least that hold all its data"),
            Self::Most => write!(f, "the most that it can use"),
            Self::Crowded => write!(f, "more datasets are read than the nodes allow, so it shares all of them"),
            Self::NoNode => write!(f, "no node with its data serves"),
        }
    }
}

/// The nodes of one live dataset.
#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    /// The dataset.
    pub dataset: DatasetId,
    /// Nodes that it is to have.
    pub target: u32,
    /// Nodes that serve it, in the order of its chain. Empty: it shares all nodes.
    pub nodes: Vec<NodeId>,
    /// Nodes that it needs to be whole, and that serve other datasets.
    pub lacks: Vec<NodeId>,
    /// Why there are so many.
    pub reason: Reason,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |nodes: &[NodeId]| nodes.iter().map(NodeId::to_string).collect::<Vec<_>>().join(" ");
        match self.nodes.len() {
            0 => write!(f, "shares all nodes: {}", self.reason)?,
            count => write!(f, "{count} of {}: {} ({})", self.target, names(&self.nodes), self.reason)?,
        }
        if self.lacks.is_empty() {
            return Ok(());
        }
        write!(f, "; some of its data are read from {}, which serve others", names(&self.lacks))
    }
}

/// Which node serves which live dataset.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Allotment {
    /// Nodes that serve one dataset. Other nodes serve all.
    pub nodes: BTreeMap<NodeId, DatasetId>,
    /// Each claim's part, in the order of the claims.
    pub parts: Vec<Part>,
}

impl fmt::Display for Allotment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, part) in self.parts.iter().enumerate() {
            if place > 0 {
                writeln!(f)?;
            }
            write!(f, "{}: {part}", part.dataset)?;
        }
        Ok(())
    }
}

/// Shares the nodes out between the live datasets. `held`: the allotment until now, from which few nodes move.
#[must_use]
pub fn allot(claims: &[Claim], held: &BTreeMap<NodeId, DatasetId>) -> Allotment {
    let served = admit(claims);
    let mut bounds: Vec<Bounds> = claims.iter().map(Claim::bounds).collect();
    loop {
        let targets = choose_targets(claims, &served, &bounds);
        let given = give(claims, &targets, held);
        // A dataset whose nodes went to others cannot use its target. Others may use what it leaves over.
        let has = |claim: usize| given.values().filter(|other| **other == claim).count();
        let capped = served.iter().find(|claim| has(**claim) < targets[**claim] as usize);
        let is_used_up = nodes_of(claims, &served).len() == given.len();
        match capped {
            Some(claim) if !is_used_up => {
                bounds[*claim].most = u32::try_from(has(*claim)).expect("no more than its target");
                bounds[*claim].least = bounds[*claim].least.min(bounds[*claim].most);
            }
            _ => return describe(claims, &served, &targets, &given),
        }
    }
}

/// Claims in the order in which they are heard.
fn ranked(claims: &[Claim]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..claims.len()).collect();
    let key = |claim: usize| (claims[claim].priority, claims[claim].weight);
    order.sort_by(|one, other| {
        let (one, other) = (key(*one), key(*other));
        other.0.cmp(&one.0).then(other.1.total_cmp(&one.1))
    });
    order
}

/// The claims that can have nodes of their own. The last ones share if all primaries together are too many.
fn admit(claims: &[Claim]) -> Vec<usize> {
    let mut served: Vec<usize> = ranked(claims).into_iter().filter(|claim| !claims[*claim].places.is_empty()).collect();
    let is_too_much = |served: &[usize]| {
        let needed: usize = served.iter().map(|claim| claims[*claim].least() as usize).sum();
        needed > nodes_of(claims, served).len()
    };
    while is_too_much(&served) {
        served.pop();
    }
    served
}

fn nodes_of(claims: &[Claim], served: &[usize]) -> BTreeSet<NodeId> {
    served.iter().flat_map(|claim| &claims[*claim].places).map(|place| place.node).collect()
}

/// Nodes for each claim; 0 for one that shares. The highest priority gets what it can use, but for the least of the
/// others.
fn choose_targets(claims: &[Claim], served: &[usize], bounds: &[Bounds]) -> Vec<u32> {
    let mut targets = vec![0; claims.len()];
    let mut left = u32::try_from(nodes_of(claims, served).len()).expect("a cluster has fewer than 2^32 nodes");
    for level in served.chunk_by(|one, other| claims[*one].priority == claims[*other].priority) {
        let lower = served.iter().filter(|claim| claims[**claim].priority < claims[level[0]].priority);
        let reserved: u32 = lower.map(|claim| bounds[*claim].least).sum();
        // In the order of the claims, as it decides between equal remainders.
        let mut level = level.to_vec();
        level.sort_unstable();
        let parts = apportion(left - reserved, &level.iter().map(|claim| bounds[*claim]).collect::<Vec<_>>());
        for (claim, part) in level.iter().zip(parts) {
            targets[*claim] = part;
            left -= part;
        }
    }
    targets
}

/// Gives every node to the claim for which it scores most, up to each claim's target.
fn give(claims: &[Claim], targets: &[u32], held: &BTreeMap<NodeId, DatasetId>) -> BTreeMap<NodeId, usize> {
    let mut wishes: Vec<(usize, Place, f64)> = Vec::new();
    for (claim, asked) in claims.iter().enumerate().filter(|(claim, _)| targets[*claim] > 0) {
        wishes.extend(asked.places.iter().map(|place| {
            let stays = held.get(&place.node) == Some(&asked.dataset);
            (claim, *place, if stays { place.score * KEEP } else { place.score })
        }));
    }
    wishes.sort_by(|(one_claim, one, one_score), (other_claim, other, other_score)| {
        let better = other_score.total_cmp(one_score).then(one.index.cmp(&other.index));
        let first = claims[*other_claim].priority.cmp(&claims[*one_claim].priority).then(one_claim.cmp(other_claim));
        other.is_primary.cmp(&one.is_primary).then(better).then(first)
    });
    let mut given: BTreeMap<NodeId, usize> = BTreeMap::new();
    let mut counts = vec![0; claims.len()];
    for (claim, place, _) in wishes {
        if counts[claim] < targets[claim] && !given.contains_key(&place.node) {
            given.insert(place.node, claim);
            counts[claim] += 1;
        }
    }
    given
}

fn describe(claims: &[Claim], served: &[usize], targets: &[u32], given: &BTreeMap<NodeId, usize>) -> Allotment {
    let part = |(number, claim): (usize, &Claim)| {
        let is_own = |node: &NodeId| given.get(node) == Some(&number);
        let nodes: Vec<NodeId> = claim.places.iter().map(|place| place.node).filter(is_own).collect();
        let needed = claim.places.iter().filter(|place| place.is_needed).map(|place| place.node);
        let lacks = if nodes.is_empty() { Vec::new() } else { needed.filter(|node| !is_own(node)).collect() };
        let reason = reason_of(claims, served, targets, number);
        Part { dataset: claim.dataset, target: targets[number], nodes, lacks, reason }
    };
    let nodes = given.iter().map(|(node, claim)| (*node, claims[*claim].dataset)).collect();
    Allotment { nodes, parts: claims.iter().enumerate().map(part).collect() }
}

fn reason_of(claims: &[Claim], served: &[usize], targets: &[u32], number: usize) -> Reason {
    let (claim, bounds) = (&claims[number], claims[number].bounds());
    let level = served.iter().map(|other| &claims[*other]).filter(|other| other.priority == claim.priority);
    let sum: f64 = level.map(|other| other.weight).sum();
    match targets[number] {
        _ if claim.places.is_empty() => Reason::NoNode,
        0 => Reason::Crowded,
        _ if served.len() == 1 && claim.most.is_none() => Reason::Alone,
        target if target == bounds.most => Reason::Most,
        target if target == bounds.least => Reason::Least,
        _ => Reason::Weight { own: claim.weight, sum },
    }
}
