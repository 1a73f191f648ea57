//! Hit ratios for a reader without knowledge of chain and targets. It learns them from its own reads.
//!
//! Of `B` reads so far a node with `b_i / B` of the data could have served about `b_i`. So the reader's own counts give
//! `(B / n) / b_i`, the share that the node should have served. `n` is the number of nodes that could have served any.
//! The rule needs no messages. It holds for every layout (if all nodes hold the same amount, it spreads reads evenly),
//! for several datasets together, and for copies away from home. Each reader keeps its own reads even. Several readers
//! are even together, because ties are broken at random.

use std::collections::BTreeMap;

use super::desired_hit_ratio;

/// One reader's counts.
#[derive(Clone, PartialEq, Debug)]
pub struct LearnedBalance<K> {
    nodes: BTreeMap<K, Hits>,
    reads: u64,
    serving: (u64, u64),
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Hits {
    served: u64,
    could: u64,
}

/// Reads after which all counts are halved, so that a reader of other data soon has new ratios.
const MEMORY: u64 = 1 << 12;

impl<K> Default for LearnedBalance<K> {
    fn default() -> Self {
        Self { nodes: BTreeMap::new(), reads: 0, serving: (0, 0) }
    }
}

impl<K: Ord + Copy> LearnedBalance<K> {
    /// Sets the versions of the power plan in force and of the allotment ([`crate::allot`]). Another version resets the
    /// counts, because other nodes served before.
    pub fn on_serving(&mut self, plan: u64, allotment: u64) {
        if self.serving != (plan, allotment) {
            *self = Self { serving: (plan, allotment), ..Self::default() };
        }
    }

    /// Deficit of a node against the share of reads that it should have served. This read counts as one that it could
    /// serve.
    #[must_use]
    pub fn below(&self, node: K) -> f64 {
        let hits = self.nodes.get(&node).copied().unwrap_or_default();
        let could = (hits.could + 1) as f64;
        desired_hit_ratio((self.reads + 1) as f64, self.nodes.len() as f64, could) - hits.served as f64 / could
    }

    /// Takes a read back that was counted and not served: its node refused it.
    pub fn take_back(&mut self, could: impl IntoIterator<Item = K>, asked: K) {
        for node in could {
            if let Some(hits) = self.nodes.get_mut(&node) {
                hits.could = hits.could.saturating_sub(1);
            }
        }
        if let Some(hits) = self.nodes.get_mut(&asked) {
            hits.served = hits.served.saturating_sub(1);
        }
        self.reads = self.reads.saturating_sub(1);
    }

    /// Counts a read that any of `could` might have served, and that is sent to `asked`.
    pub fn count(&mut self, could: impl IntoIterator<Item = K>, asked: K) {
        for node in could {
            self.nodes.entry(node).or_default().could += 1;
        }
        self.nodes.entry(asked).or_default().served += 1;
        self.reads += 1;
        if self.reads >= MEMORY {
            self.reads /= 2;
            self.nodes.values_mut().for_each(|hits| (hits.served, hits.could) = (hits.served / 2, hits.could / 2));
            self.nodes.retain(|_, hits| hits.could > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use ebb_layout::targets::{Chain, equal_work};

    use super::*;
    use crate::read::tests::{self, mix};

    /// Blocks with the nodes that hold them, of an equal-work chain, as far as they are among the first `active`.
    fn holders(nodes: u32, active: usize, blocks: u64, seed: u64) -> Vec<Vec<usize>> {
        let stored = equal_work::targets(Chain::new(nodes, 3, 3).unwrap(), blocks).unwrap();
        let mut holders = tests::holders(&stored, blocks, seed);
        holders.iter_mut().for_each(|of| of.retain(|node| *node < active));
        holders
    }

    fn choose(balance: &LearnedBalance<usize>, holders: &[usize], draw: u64) -> usize {
        let key = |node: &usize| (balance.below(*node), mix(*node as u64 ^ draw));
        let most = |one: &&usize, other: &&usize| {
            let (one, other) = (key(one), key(other));
            one.0.total_cmp(&other.0).then(one.1.cmp(&other.1))
        };
        *holders.iter().max_by(most).unwrap()
    }

    /// Reads of the node with most, over the mean, when as many readers as nodes read a part each, one after the other.
    fn crowding(active: usize, seed: u64, is_balanced: bool) -> f64 {
        let holders = holders(25, active, 800, seed);
        let mut served = vec![0_u64; active];
        for (reader, own) in holders.chunks(800 / active).enumerate() {
            let mut balance = LearnedBalance::default();
            for (number, holders) in own.iter().enumerate() {
                let draw = mix(seed << 32 | (reader as u64) << 16 | number as u64);
                let node = choose(&balance, holders, draw);
                served[node] += 1;
                if is_balanced {
                    balance.count(holders.iter().copied(), node);
                }
            }
        }
        *served.iter().max().unwrap() as f64 * active as f64 / served.iter().sum::<u64>() as f64
    }

    #[test]
    fn readers_without_knowledge_share_primaries_and_others_evenly() {
        for (active, most) in [(5, 1.25), (15, 1.5), (25, 1.65)] {
            for seed in 0..8 {
                let (by_lot, balanced) = (crowding(active, seed, false), crowding(active, seed, true));
                assert!(balanced < most, "{balanced} with {active} active, seed {seed}");
                assert!(active < 15 || by_lot > 1.9, "{by_lot} with {active} active, seed {seed}");
            }
        }
    }

    #[test]
    fn one_reader_comes_to_an_even_share_and_another_plan_begins_anew() {
        let mut balance = LearnedBalance::default();
        let mut served = vec![0_u64; 20];
        for (number, holders) in holders(25, 20, 3_000, 5).iter().enumerate() {
            let node = choose(&balance, holders, mix(number as u64));
            served[node] += 1;
            balance.count(holders.iter().copied(), node);
        }
        assert!(served.iter().all(|reads| reads.abs_diff(150) <= 9), "{served:?}");
        let before = balance.clone();
        balance.on_serving(0, 0);
        assert_eq!(balance, before);
        balance.on_serving(2, 0);
        assert_eq!(balance, LearnedBalance { serving: (2, 0), ..LearnedBalance::default() });
        balance.count([1, 2], 1);
        balance.on_serving(2, 1);
        assert_eq!(balance.reads, 0, "another allotment");
    }

    #[test]
    fn a_refused_read_leaves_the_counts_as_they_were() {
        let mut balance = LearnedBalance::default();
        (0..5).for_each(|_| balance.count([1, 2], 1));
        let before = balance.clone();
        balance.count([1, 2], 2);
        balance.take_back([1, 2], 2);
        assert_eq!(balance, before);
    }

    #[test]
    fn old_reads_are_forgotten() {
        let mut balance = LearnedBalance::default();
        (0..3).for_each(|_| balance.count([1, 2], 1));
        (0..4 * MEMORY).for_each(|_| balance.count([2, 3], 3));
        assert!(!balance.nodes.contains_key(&1) && balance.reads < MEMORY);
        assert!(balance.below(2) > balance.below(3));
    }
}
