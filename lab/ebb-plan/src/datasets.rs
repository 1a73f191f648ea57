//! Several datasets on one cluster, and the nodes shared out between those that are live (Rabbit, Sec. 3.4).
//!
//! Every dataset has an expansion chain of its own; chains are laid so that a node early in one is late in others. Each
//! node serves exactly one live dataset, so each dataset has a known part of the cluster's bandwidth, at the price of
//! some power-proportionality: [`study`] counts that price over all combinations of live datasets, or a sample.

use std::collections::BTreeMap;

use ebb_layout::targets::{Chain, equal_work};
use ebb_power::allot::{Claim, Place};
use ebb_types::{DatasetId, NodeId, Result, bail};

use crate::layout::fluid;
use crate::rng::Rng;

/// Datasets with equal-work layout on one cluster.
#[derive(Clone, PartialEq, Debug)]
pub struct Overlay {
    chain: Chain,
    /// Shares by index in a chain; the same for all datasets.
    shares: Vec<f64>,
    /// For each dataset the nodes of its chain in order.
    chains: Vec<Vec<u32>>,
    scores: Vec<f64>,
}

/// A live dataset and its nodes.
#[derive(Clone, PartialEq, Debug)]
pub struct Allotment {
    /// Index of the dataset.
    pub dataset: usize,
    /// Nodes it should have.
    pub target: u32,
    /// Nodes that serve it, by index in its chain.
    pub indexes: Vec<u32>,
    /// Nodes that serve it, by node number.
    pub nodes: Vec<u32>,
    /// Its primaries that serve another dataset.
    pub lost_primaries: u32,
    /// Degree of power-proportionality. `None` if the nodes may not hold all its data.
    pub degree: Option<f64>,
}

/// Degrees of power-proportionality over some combinations of live datasets.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Study {
    /// Number of combinations.
    pub combinations: u64,
    /// Mean over all live datasets of all combinations.
    pub average: Option<f64>,
    /// Worst of them.
    pub worst: Option<f64>,
    /// Live datasets without a primary, which may lack a copy of some data.
    pub unreadable: u64,
}

/// Limit of the number of datasets.
pub const MAX_DATASETS: u32 = 1_000;

impl Overlay {
    /// Lays the chains one after the other over the nodes with the lowest scores: a node scores 1 for each chain in
    /// which it is a primary and `1 / l` for each in which it is the `l`-th.
    pub fn new(nodes: u32, primaries: u32, replicas: u32, datasets: u32) -> Result<Self> {
        let chain = Chain::new(nodes, primaries, replicas)?;
        if !(1..=MAX_DATASETS).contains(&datasets) {
            let nearest = datasets.clamp(1, MAX_DATASETS);
            bail!(Invalid, "{datasets} datasets cannot be planned; the nearest possible number is {nearest}");
        }
        let shares: Vec<f64> = equal_work::shares(chain).into_iter().take_while(|share| *share > 0.0).collect();
        let mut overlay = Self { chain, shares, chains: Vec::new(), scores: vec![0.0; nodes as usize] };
        (0..datasets).for_each(|_| overlay.lay());
        Ok(overlay)
    }

    fn lay(&mut self) {
        let mut order: Vec<u32> = (0..self.chain.nodes()).collect();
        order.sort_by(|one, other| {
            self.scores[*one as usize].total_cmp(&self.scores[*other as usize]).then(one.cmp(other))
        });
        order.truncate(self.shares.len());
        for (index, node) in order.iter().enumerate() {
            self.scores[*node as usize] += self.score(index);
        }
        self.chains.push(order);
    }

    /// The score that a chain adds to the node at this index.
    fn score(&self, index: usize) -> f64 {
        ebb_power::chain::chain_score(index, self.chain.primaries() as usize)
    }

    /// Number of datasets.
    #[must_use]
    pub fn datasets(&self) -> usize {
        self.chains.len()
    }

    /// Nodes of a dataset's chain in order.
    #[must_use]
    pub fn chain(&self, dataset: usize) -> &[u32] {
        &self.chains[dataset]
    }

    /// Gives every node to one live dataset, in the order of the dataset's part of the node's score, up to each
    /// dataset's target. Targets are proportional to the weights.
    ///
    /// `Invalid` if there are not enough nodes for the primaries of all live datasets.
    pub fn allot(&self, live: &[usize], weights: &[f64]) -> Result<Vec<Allotment>> {
        self.check(live, weights)?;
        let claim = |(dataset, weight): (&usize, &f64)| self.claim(*dataset, *weight);
        let claims: Vec<Claim> = live.iter().zip(weights).map(claim).collect();
        let parts = ebb_power::allot::allot(&claims, &BTreeMap::new()).parts;
        let index_of = |chain: &[u32], node: &NodeId| {
            let place = chain.iter().position(|other| u64::from(*other) == node.raw());
            u32::try_from(place.expect("a dataset gets nodes of its chain")).expect("fewer than 2^32 nodes")
        };
        let each = live.iter().zip(parts).map(|(dataset, part)| {
            let indexes = part.nodes.iter().map(|node| index_of(&self.chains[*dataset], node)).collect();
            self.allotment(*dataset, part.target, indexes)
        });
        Ok(each.collect())
    }

    /// A dataset as the master sees it when it is read.
    fn claim(&self, dataset: usize, weight: f64) -> Claim {
        let place = |(index, node): (usize, &u32)| {
            let is_primary = index < self.chain.primaries() as usize;
            Place {
                node: NodeId::new((*node).into()),
                index: index as u32,
                score: self.score(index),
                is_primary,
                is_needed: is_primary,
            }
        };
        let places = self.chains[dataset].iter().enumerate().map(place).collect();
        Claim { dataset: DatasetId::new(dataset as u64), weight, priority: 0, most: None, places }
    }

    /// The allotment with the highest mean degree if every live dataset keeps its primaries. It tries all ways of
    /// giving the other nodes out, one by one. It is a reference for [`Overlay::allot`].
    ///
    /// `Invalid` as for `allot`. None if live datasets share a primary, or if there are more than a million ways.
    pub fn best_allotment(&self, live: &[usize], weights: &[f64]) -> Result<Option<Vec<Allotment>>> {
        self.check(live, weights)?;
        let targets: Vec<u32> = self.allot(live, weights)?.iter().map(|one| one.target).collect();
        let primaries = self.chain.primaries() as usize;
        let place = |dataset: usize, node: u32| self.chains[dataset].iter().position(|other| *other == node);
        let own: Vec<u32> = live.iter().flat_map(|dataset| self.chains[*dataset][..primaries].to_vec()).collect();
        let free: Vec<u32> = (0..self.chain.nodes()).filter(|node| !own.contains(node)).collect();
        let ways = (live.len() as f64).powi(free.len() as i32);
        if free.len() + own.len() > self.chain.nodes() as usize || ways > 1e6 {
            return Ok(None);
        }
        let mut best: Option<(f64, Vec<Allotment>)> = None;
        'ways: for way in 0..ways as u64 {
            let mut given: Vec<Vec<u32>> = vec![(0..primaries as u32).collect(); live.len()];
            let mut digits = way;
            for node in &free {
                let turn = (digits % live.len() as u64) as usize;
                digits /= live.len() as u64;
                let Some(index) = place(live[turn], *node) else { continue 'ways };
                if given[turn].len() == targets[turn] as usize {
                    continue 'ways;
                }
                given[turn].push(index as u32);
            }
            let each = live.iter().zip(&targets).zip(given);
            let all: Vec<Allotment> =
                each.map(|((dataset, target), indexes)| self.allotment(*dataset, *target, indexes)).collect();
            let sum: Option<f64> = all.iter().map(|one| one.degree).sum();
            if let Some(sum) = sum
                && best.as_ref().is_none_or(|best| sum > best.0)
            {
                best = Some((sum, all));
            }
        }
        Ok(best.map(|best| best.1))
    }

    fn allotment(&self, dataset: usize, target: u32, mut indexes: Vec<u32>) -> Allotment {
        indexes.sort_unstable();
        let primaries = indexes.iter().filter(|index| **index < self.chain.primaries()).count() as u32;
        let shares: Vec<f64> = indexes.iter().map(|index| self.shares[*index as usize]).collect();
        let nodes = indexes.iter().map(|index| self.chains[dataset][*index as usize]).collect();
        let lost_primaries = self.chain.primaries() - primaries;
        let degree = if lost_primaries == 0 { fluid::degree(&shares) } else { None };
        Allotment { dataset, target, indexes, nodes, lost_primaries, degree }
    }

    /// Whether these datasets can be live together, each with all its primaries.
    fn check(&self, live: &[usize], weights: &[f64]) -> Result<()> {
        let count = live.len() as u32;
        let (nodes, least) = (self.chain.nodes(), self.chain.primaries());
        if live.is_empty() || live.len() > self.chains.len() {
            let nearest = live.len().clamp(1, self.chains.len());
            bail!(
                Invalid,
                "{count} of {} datasets cannot be live; the nearest possible number is {nearest}",
                self.chains.len()
            );
        }
        if weights.len() != live.len() || weights.iter().any(|weight| !weight.is_finite() || *weight <= 0.0) {
            bail!(Invalid, "{} weights for {count} live datasets: each needs one, above 0", weights.len());
        }
        if count * least > nodes {
            bail!(
                Invalid,
                "{count} live datasets with {least} primaries each need {} nodes, and there are {nodes}; the nearest \
                 possible number of live datasets is {}",
                count * least,
                nodes / least
            );
        }
        Ok(())
    }
}

/// Combinations of live datasets to study.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample {
    /// The combinations, each in ascending order.
    pub combinations: Vec<Vec<usize>>,
    /// Number of all combinations.
    pub of: u128,
}

/// All combinations of `live` out of `datasets`, or `most` of them drawn with a seed if there are more.
#[must_use]
pub fn sample(datasets: usize, live: usize, most: usize, seed: u64) -> Sample {
    let of = choose(datasets as u128, live as u128);
    if of <= most as u128 {
        return Sample { combinations: combinations(datasets, live), of };
    }
    let mut rng = Rng::new(seed);
    let draw = |_| {
        let drawn = rng.distinct(datasets as u32, live as u32);
        let mut drawn: Vec<usize> = drawn.into_iter().map(|one| one as usize).collect();
        drawn.sort_unstable();
        drawn
    };
    Sample { combinations: (0..most).map(draw).collect(), of }
}

fn choose(n: u128, k: u128) -> u128 {
    (0..k).try_fold(1_u128, |ways, i| ways.checked_mul(n - i).map(|ways| ways / (i + 1))).unwrap_or(u128::MAX)
}

fn combinations(datasets: usize, live: usize) -> Vec<Vec<usize>> {
    let mut current: Vec<usize> = (0..live).collect();
    let mut all = Vec::new();
    if live > datasets {
        return all;
    }
    loop {
        all.push(current.clone());
        let Some(at) = (0..live).rev().find(|at| current[*at] != at + datasets - live) else { return all };
        current[at] += 1;
        (at + 1..live).for_each(|later| current[later] = current[later - 1] + 1);
    }
}

/// Average and worst degree of power-proportionality over these combinations. `weights` are those of the live datasets
/// in order. With fair sharing they are equal.
pub fn study(overlay: &Overlay, combinations: &[Vec<usize>], weights: &[f64]) -> Result<Study> {
    study_of(combinations, |live| overlay.allot(live, weights))
}

/// As [`study`], but with the best allotment of each combination. Combinations without one do not count.
pub fn best_study(overlay: &Overlay, combinations: &[Vec<usize>], weights: &[f64]) -> Result<Study> {
    study_of(combinations, |live| Ok(overlay.best_allotment(live, weights)?.unwrap_or_default()))
}

fn study_of(combinations: &[Vec<usize>], allot: impl Fn(&[usize]) -> Result<Vec<Allotment>>) -> Result<Study> {
    let mut study = Study { combinations: combinations.len() as u64, ..Study::default() };
    let (mut sum, mut count) = (0.0, 0_u64);
    for live in combinations {
        for allotment in allot(live)? {
            let Some(degree) = allotment.degree else {
                study.unreadable += 1;
                continue;
            };
            sum += degree;
            count += 1;
            study.worst = Some(study.worst.map_or(degree, |worst| worst.min(degree)));
        }
    }
    study.average = (count > 0).then(|| sum / count as f64);
    Ok(study)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn two_of_three_datasets_on_a_hundred_nodes_get_fifty_each() {
        let overlay = Overlay::new(100, 5, 4, 3).unwrap();
        let allotments = overlay.allot(&[0, 2], &[1.0, 1.0]).unwrap();
        let counts: Vec<usize> = allotments.iter().map(|allotment| allotment.nodes.len()).collect();
        assert_eq!(counts, [50, 50]);
        assert!(allotments.iter().all(|allotment| allotment.lost_primaries == 0));
    }

    /// The paper does not say how many primaries its 14 nodes had; with three, its statement holds for any number of
    /// datasets; with fewer, some numbers of live datasets fall to 0.86.
    #[test]
    fn the_average_degree_is_above_nine_tenths() {
        for (nodes, primaries, replicas) in [(14, 3, 3), (14, 2, 4), (100, 20, 3)] {
            for stored in 1..=6 {
                let overlay = Overlay::new(nodes, primaries, replicas, stored).unwrap();
                for live in 1..=(stored as usize).min((nodes / primaries) as usize) {
                    let sample = sample(stored as usize, live, 1_000, 1);
                    let study = study(&overlay, &sample.combinations, &vec![1.0; live]).unwrap();
                    assert!(study.average.unwrap() > 0.90, "{live} of {stored} on {nodes}: {study:?}");
                }
            }
        }
    }

    /// If the average falls below nine tenths, no other way of sharing the same chains would lift it: with two
    /// primaries and seven datasets on 14 nodes, every node behind the primaries is a primary of another dataset.
    #[test]
    fn no_allotment_is_much_better_than_ours() {
        let overlay = Overlay::new(14, 2, 3, 7).unwrap();
        for (live, most) in [(3, 0.875), (4, 0.866), (5, 0.89)] {
            let all = sample(7, live, 1_000, 1).combinations;
            let ours = study(&overlay, &all, &vec![1.0; live]).unwrap().average.unwrap();
            let best = best_study(&overlay, &all, &vec![1.0; live]).unwrap().average.unwrap();
            assert!(ours <= best + 1e-12 && best - ours < 0.01 && best < most, "{live} live: {ours} of {best}");
        }
    }

    #[test]
    fn too_many_live_datasets_are_refused_with_the_nearest_number() {
        let overlay = Overlay::new(14, 4, 3, 5).unwrap();
        let refusal = overlay.allot(&[0, 1, 2, 3], &[1.0; 4]).unwrap_err().to_string();
        assert!(refusal.ends_with("the nearest possible number of live datasets is 3"), "{refusal}");
        assert!(overlay.allot(&[0], &[0.0]).is_err());
        assert!(Overlay::new(14, 4, 3, 0).is_err());
    }

    #[test]
    fn combinations_are_all_or_a_sample() {
        assert_eq!(combinations(4, 2), [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
        let drawn = sample(40, 10, 100, 3);
        assert_eq!((drawn.combinations.len(), drawn.of), (100, 847_660_528));
        assert!(drawn.combinations.iter().all(|one| one.is_sorted() && one.len() == 10));
        assert_eq!(drawn, sample(40, 10, 100, 3));
    }

    proptest! {
        #[test]
        fn every_node_serves_one_dataset(primaries in 1_u32..4, more in 0_u32..60, datasets in 1_u32..6,
            weights in proptest::collection::vec(0.1_f64..9.0, 1..5)) {
            let overlay = Overlay::new(primaries * 4 + more, primaries, 3, datasets).unwrap();
            let live: Vec<usize> = (0..weights.len().min(datasets as usize)).collect();
            let given = overlay.allot(&live, &weights[..live.len()]).unwrap();
            let mut nodes: Vec<u32> = given.iter().flat_map(|one| one.nodes.iter().copied()).collect();
            nodes.sort_unstable();
            let before = nodes.len();
            nodes.dedup();
            prop_assert_eq!(nodes.len(), before);
            prop_assert!(given.iter().all(|one| one.nodes.len() <= one.target as usize));
            prop_assert!(given.iter().map(|one| one.target).sum::<u32>() <= primaries * 4 + more);
        }
    }
}
