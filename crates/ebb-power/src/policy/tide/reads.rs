//! Reads of all data: which nodes can answer them, and at which rate all of it can be read.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::NodeId;

use super::full_read::{Bound, FullRead};
use crate::policy::Ask;

/// Blocks that the same nodes can answer.
#[derive(Clone, PartialEq, Debug)]
pub struct ReadSet {
    /// Places on the circle; any one of them answers.
    pub holders: Vec<usize>,
    /// Other places that answer together.
    pub decoding: Option<Decoding>,
    /// Their share of the data.
    pub share: f64,
}

/// Parts of a RAID set, of which any `needed` give the others.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Decoding {
    /// Places on the circle.
    pub parts: Vec<usize>,
    /// So many have to be on at the same time.
    pub needed: usize,
}

impl ReadSet {
    /// Places that read it under a plan, and how many reads each of its reads takes. `serves` tells which ever serve.
    ///
    /// What a node holds that ever serves is read there. The rest is decoded, at the cost of as many reads as parts are
    /// needed.
    fn work(&self, serves: impl Fn(usize) -> bool) -> (Vec<usize>, f64) {
        let decoding = self.decoding.as_ref().filter(|_| !self.holders.iter().any(|place| serves(*place)));
        let on =
            |decoding: &Decoding| decoding.parts.iter().copied().filter(|place| serves(*place)).collect::<Vec<_>>();
        let Some(decoding) = decoding else { return (self.holders.clone(), self.share) };
        let lit = on(decoding);
        // With too few parts nothing is read: the parts that are missing have all of the work.
        let missing = || decoding.parts.iter().copied().filter(|place| !serves(*place)).collect();
        let places = if lit.len() >= decoding.needed { lit } else { missing() };
        (places, self.share * decoding.needed as f64)
    }
}

/// Reads of all data.
#[derive(Debug)]
pub struct Reads {
    nodes: usize,
    sets: Vec<ReadSet>,
    /// Full reads by the places that never serve, and hold slots.
    full: BTreeMap<Vec<usize>, FullRead>,
}

impl Reads {
    /// Reads of the datasets by their weights. Nodes that do not answer serve nothing. Data that no living nodes can answer
    /// count for no plan. Without datasets each node has data of its own.
    pub fn new(ask: &Ask<'_>) -> Self {
        let places: BTreeMap<NodeId, usize> =
            ask.circle.iter().enumerate().map(|(place, node)| (*node, place)).collect();
        let mut shares: BTreeMap<(BTreeSet<usize>, Option<Decoding>), f64> = BTreeMap::new();
        let living = |node: &NodeId| (!ask.dead.contains(node)).then(|| places[node]);
        let mut add = |holders: BTreeSet<usize>, decoding: Option<Decoding>, share: f64| {
            if share > 0.0 && !(holders.is_empty() && decoding.is_none()) {
                *shares.entry((holders, decoding)).or_insert(0.0) += share;
            }
        };
        for chain in ask.chains {
            let weight = chain.weight.max(f64::MIN_POSITIVE);
            for (set, share) in chain.holder_sets() {
                add(set.iter().filter_map(living).collect(), None, share * weight);
            }
            for coded in chain.coded() {
                let parts: Vec<usize> = coded.parts.iter().filter_map(living).collect();
                let decoding = (parts.len() >= coded.needed).then_some(Decoding { parts, needed: coded.needed });
                for slot in &coded.slots {
                    let share = coded.share / coded.slots.len() as f64 * weight;
                    add(living(slot).into_iter().collect(), decoding.clone(), share);
                }
            }
        }
        if ask.chains.is_empty() {
            ask.circle.iter().filter_map(living).for_each(|place| add([place].into(), None, 1.0));
        }
        let total: f64 = shares.values().sum();
        let set = |((holders, decoding), share): ((BTreeSet<usize>, Option<Decoding>), f64)| ReadSet {
            holders: holders.into_iter().collect(),
            decoding,
            share: share / total,
        };
        Self { nodes: ask.circle.len(), sets: shares.into_iter().map(set).collect(), full: BTreeMap::new() }
    }

    /// Whether there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Blocks that the same nodes can answer.
    pub fn sets(&self) -> &[ReadSet] {
        &self.sets
    }

    /// A full read under a plan that gives each node this share of the time.
    fn full_mut(&mut self, serving: &[f64]) -> &mut FullRead {
        let dark = self.dark(serving);
        let work = |set: &ReadSet| set.work(|place| serving[place] > 0.0);
        let Self { nodes, sets, full } = self;
        full.entry(dark).or_insert_with(|| FullRead::new(*nodes, sets.iter().map(work).collect()))
    }

    /// Places with slots that never serve: their data are decoded.
    fn dark(&self, serving: &[f64]) -> Vec<usize> {
        let coded = self.sets.iter().filter_map(|set| set.decoding.as_ref());
        let places: BTreeSet<usize> = coded.flat_map(|decoding| &decoding.parts).copied().collect();
        places.into_iter().filter(|place| serving[*place] <= 0.0).collect()
    }

    /// Rate of a full read in the long run; see [`FullRead::rate`].
    pub fn rate(&mut self, serving: &[f64]) -> f64 {
        self.full_mut(serving).rate(serving)
    }

    /// The groups that bound a full read under a plan with these shares of the time. Its rate was asked for before.
    pub fn bounds(&self, serving: &[f64]) -> &[Bound] {
        self.full.get(&self.dark(serving)).expect("the rate comes before the bounds").bounds()
    }

    /// Lets all full reads know the groups that bounded any of them.
    pub fn share_bounds(&mut self) {
        if self.full.len() < 2 {
            return;
        }
        let groups: BTreeSet<Vec<usize>> =
            self.full.values().flat_map(FullRead::bounds).map(|bound| bound.nodes.clone()).collect();
        self.full.values_mut().for_each(|full| groups.iter().for_each(|group| full.add_bound(group)));
    }

    /// Each node's share of the work if only these nodes serve, and the nodes of a set share its reads.
    pub fn shares(&self, among: &[usize]) -> Vec<f64> {
        let mut shares = vec![0.0; self.nodes];
        for (places, work) in self.sets.iter().map(|set| set.work(|place| among.contains(&place))) {
            let holders: Vec<usize> = places.into_iter().filter(|place| among.contains(place)).collect();
            for place in &holders {
                shares[*place] += work / holders.len() as f64;
            }
        }
        shares
    }
}
