//! Sets of nodes that hold the same blocks of a dataset, and their shares of the data, by the rules of its layout.
//!
//! A policy weighs plans by them: a block can be read while one node of its set serves. Layouts with few sets are given
//! whole. Of others there is an even sample: a lattice, so that the same chain always has the same sets.

use std::collections::{BTreeMap, BTreeSet};

use ebb_layout::chain::halves::Half;
use ebb_layout::targets::geared::Grid;
use ebb_types::NodeId;

use super::{ChainShape, DatasetChain, ring};

/// Blocks of a sample: a prime, so that the lattice meets every place. Small clusters have few sets, and a large sample
/// gives exact shares.
const SAMPLE_SMALL: u32 = 509;
/// Blocks of a sample in a larger cluster.
const SAMPLE_LARGE: u32 = 251;
/// Largest cluster with the sample of a small one.
const SMALL: usize = 16;
/// Most sets that are listed one by one where copies lie anywhere.
const LISTED_MAX: u64 = 256;
/// Least share of blocks that lie where the layout says.
const IN_PLACE_LEAST: f64 = 1.0 / 64.0;
/// Smaller shares are errors of rounding.
const SHARE_LEAST: f64 = 1e-6;
/// Generator of the lattice: copy `k` of block `b` is at the fraction `b g^k / n` of its run (Korobov, 1959).
const GENERATOR: u64 = 76;

impl DatasetChain {
    /// Sets of nodes with the copies of the same blocks, and each set's share of the data. Blocks that lie elsewhere than
    /// the layout says have sets of their own. The shares add up to 1, with those of its RAID sets.
    #[must_use]
    pub fn holder_sets(&self) -> BTreeMap<BTreeSet<NodeId>, f64> {
        let places = match self.shape {
            ChainShape::Ring => {
                (0..self.count()).map(|first| ring::places(self.count(), self.replicas, first)).collect()
            }
            ChainShape::Anywhere => self.anywhere(),
            ChainShape::Simple | ChainShape::EqualWork => self.sample(|_, _, _| true),
            ChainShape::Geared { gear_size } => self.sample_of_gears(gear_size),
            ChainShape::Halves => self.sample_of_halves(),
        };
        let strays: f64 = self.strays.iter().map(|stray| stray.share).sum();
        let coded: f64 = self.coded.iter().map(|coded| coded.share).sum();
        let in_copies = 1.0 - coded;
        if in_copies < SHARE_LEAST {
            return BTreeMap::new();
        }
        let in_place = (in_copies - strays).max(IN_PLACE_LEAST);
        let total = (strays + in_place) / in_copies;
        let each = in_place / total / places.len().max(1) as f64;
        let mut sets = BTreeMap::new();
        let mut add = |nodes: BTreeSet<NodeId>, share: f64| {
            if share > 0.0 {
                *sets.entry(nodes).or_insert(0.0) += share;
            }
        };
        for set in places {
            add(set.into_iter().map(|place| self.nodes[place]).collect(), each);
        }
        self.strays.iter().for_each(|stray| add(stray.nodes.iter().copied().collect(), stray.share / total));
        sets
    }

    fn sample_size(&self) -> u32 {
        if self.nodes.len() <= SMALL { SAMPLE_SMALL } else { SAMPLE_LARGE }
    }

    /// All sets of so many places, or a sample of them.
    fn anywhere(&self) -> Vec<Vec<usize>> {
        let (count, copies) = (self.nodes.len(), self.replicas as usize);
        let sets = (0..copies as u64).try_fold(1_u64, |sets, copy| {
            let sets = sets * (count as u64 - copy) / (copy + 1);
            (sets <= LISTED_MAX).then_some(sets)
        });
        if sets.is_some() {
            return combinations(count, copies);
        }
        let size = self.sample_size();
        let one = |block: u32| {
            let mut free: Vec<usize> = (0..count).collect();
            let pick = |copy: usize| free.remove((at(block, copy, size) * free.len() as f64) as usize);
            (0..copies).map(pick).collect()
        };
        (0..size).map(one).collect()
    }

    fn sample_of_gears(&self, gear_size: u32) -> Vec<Vec<usize>> {
        let grid = self.chain().and_then(|chain| Grid::new(chain, gear_size)).expect("checked when it was made");
        let primaries = self.primaries as usize;
        self.sample(|primary, copy, place| {
            let column = (place - primaries) as u32 % gear_size;
            grid.source_column(column, copy as u32) == grid.column(primary as u32)
        })
    }

    /// Blocks whose writers are spread over all nodes, with the second copy anywhere in the half without one.
    fn sample_of_halves(&self) -> Vec<Vec<usize>> {
        let (count, size) = (self.nodes.len(), self.sample_size());
        let one = |block: u32| {
            let mut set: Vec<usize> = Vec::new();
            for copy in 0..self.replicas as usize {
                let missing = |half: &Half| !set.iter().any(|place| half.has(*place, count));
                let half = Half::ALL.into_iter().find(missing).filter(|_| copy > 0);
                let is_open = |place: &usize| !set.contains(place) && half.is_none_or(|half| half.has(*place, count));
                let open: Vec<usize> = (0..count).filter(is_open).collect();
                set.push(open[(at(block, copy, size) * open.len() as f64) as usize]);
            }
            set
        };
        (0..size).map(one).collect()
    }

    /// Blocks with their copies spread over the runs of the chain as its targets say. `may` tells whether a copy of a
    /// primary's block may lie at a place.
    fn sample(&self, may: impl Fn(usize, usize, usize) -> bool) -> Vec<Vec<usize>> {
        let targets = self.shares();
        let size = self.sample_size();
        let one = |block: u32| {
            let mut set: Vec<usize> = Vec::new();
            for copy in 0..targets.copies() {
                let is_open = |place: &usize| {
                    let is_used = targets.copy(copy)[*place] > 0 && !set.contains(place);
                    is_used && (copy == 0 || may(set[0], copy, *place))
                };
                let open: Vec<usize> = (0..self.nodes.len()).filter(is_open).collect();
                set.extend(pick(&open, targets.copy(copy), at(block, copy, size)));
            }
            set
        };
        (0..size).map(one).collect()
    }
}

/// Fraction of its run at which a copy of a block lies, from 0 to below 1.
fn at(block: u32, copy: usize, size: u32) -> f64 {
    let size = u64::from(size);
    let step = (0..copy).fold(1, |step, _| step * GENERATOR % size);
    ((u64::from(block) * step % size) as f64 + 0.5) / size as f64
}

/// The place, among `open`, at this fraction of their blocks.
fn pick(open: &[usize], blocks: &[u64], fraction: f64) -> Option<usize> {
    let total: u64 = open.iter().map(|place| blocks[*place]).sum();
    let mut left = fraction * total as f64;
    let found = open.iter().find(|place| {
        left -= blocks[**place] as f64;
        left < 0.0
    });
    found.or(open.last()).copied()
}

/// All sets of `size` of `count` places.
fn combinations(count: usize, size: usize) -> Vec<Vec<usize>> {
    if size == 0 {
        return vec![Vec::new()];
    }
    let longer = |last: usize| {
        combinations(last, size - 1).into_iter().map(move |mut set| {
            set.push(last);
            set
        })
    };
    (size - 1..count).flat_map(longer).collect()
}

#[cfg(test)]
mod tests {
    use ebb_types::DatasetId;
    use proptest::prelude::*;

    use super::*;

    fn chain(nodes: u64, shape: ChainShape, primaries: u32, replicas: u32) -> DatasetChain {
        let nodes = (1..=nodes).map(NodeId::new).collect();
        DatasetChain::new(DatasetId::new(1), nodes, shape, primaries, replicas).unwrap()
    }

    /// Share of the data with a copy on each node.
    fn stored(chain: &DatasetChain) -> Vec<f64> {
        let sets = chain.holder_sets();
        let on = |node: &NodeId| sets.iter().filter(|(set, _)| set.contains(node)).map(|(_, share)| share).sum();
        chain.nodes().iter().map(on).collect()
    }

    #[test]
    fn copies_anywhere_are_listed_while_they_are_few() {
        let sets = chain(9, ChainShape::Anywhere, 0, 3).holder_sets();
        assert_eq!(sets.len(), 84);
        assert!(sets.values().all(|share| (share - 1.0 / 84.0).abs() < 1e-12));
        assert!(chain(60, ChainShape::Anywhere, 0, 3).holder_sets().len() <= SAMPLE_LARGE as usize);
    }

    #[test]
    fn a_primary_s_copies_lie_in_the_columns_that_the_gears_give_them() {
        let chain = chain(20, ChainShape::Geared { gear_size: 2 }, 4, 3);
        let grid = Grid::new(chain.chain().unwrap(), 2).unwrap();
        for set in chain.holder_sets().keys() {
            let places: Vec<u32> = set.iter().map(|node| node.raw() as u32 - 1).collect();
            let columns: BTreeSet<u32> = places[1..].iter().map(|place| (place - 4) % 2).collect();
            assert_eq!(
                columns.len(),
                2,
                "the second copy lies in the primary's column, the third in the next: {places:?}"
            );
            assert!(columns.contains(&grid.column(places[0])));
        }
    }

    #[test]
    fn each_half_of_the_localized_storage_nodes_has_every_block() {
        for nodes in [2, 4, 5, 8] {
            let chain = chain(nodes, ChainShape::Halves, 0, 2);
            let sets = chain.holder_sets();
            assert!((sets.values().sum::<f64>() - 1.0).abs() < 1e-9);
            for half in Half::ALL {
                let in_half = |node: &NodeId| half.has(node.raw() as usize - 1, nodes as usize);
                assert!(sets.keys().all(|set| set.len() == 2 && set.iter().any(in_half)), "{sets:?}");
            }
            let most = stored(&chain).into_iter().fold(0.0, f64::max);
            assert!(most < 1.25 * 2.0 / nodes as f64, "{:?}", stored(&chain));
        }
    }

    proptest! {
        #[test]
        fn sets_have_all_copies_and_nodes_store_their_targets(nodes in 6_u64..30, primaries in 1_u32..3,
            replicas in 1_u32..4, shape in prop_oneof![Just(ChainShape::Anywhere), Just(ChainShape::Ring),
                Just(ChainShape::Simple), Just(ChainShape::EqualWork), Just(ChainShape::Geared { gear_size: 1 })]) {
            prop_assume!(u64::from(primaries * replicas) <= nodes);
            let chain = chain(nodes, shape, primaries, replicas);
            let sets = chain.holder_sets();
            prop_assert!((sets.values().sum::<f64>() - 1.0).abs() < 1e-9);
            prop_assert!(sets.keys().all(|set| set.len() == replicas as usize), "{sets:?}");
            let target = chain.target(1 << 20).unwrap();
            for (stored, target) in stored(&chain).into_iter().zip(target) {
                let wanted = target as f64 / f64::from(1 << 20);
                prop_assert!((stored - wanted).abs() < 0.03 + 0.1 * wanted, "{stored} of {wanted}");
            }
        }
    }
}
