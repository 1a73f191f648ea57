//! What lies where, by sets of nodes: a power manager must know whether a plan puts the last copy of something to sleep. Pure.
//!
//! It is counted, not logged: from the map when a master begins, then from every change of a set.

pub(crate) mod examples;

use std::collections::{BTreeMap, BTreeSet};

use ebb_meta::Machine;
use ebb_types::DatasetId;
use ebb_wire::pb;
use imbl::OrdMap;

/// Sets of nodes that are told apart. Three copies at random lie on more than that from 31 nodes on.
const SETS_MAX: usize = 4096;

/// Metablocks by the nodes that they lie on, and by their datasets. A clone is cheap: it is looked at without a lock.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Holdings {
    sets: OrdMap<Vec<u64>, u64>,
    filled: OrdMap<DatasetId, u64>,
}

impl Holdings {
    /// As the map has it. Looks at every metablock once.
    pub fn of(machine: &Machine) -> Self {
        let mut all = Self::default();
        for (dataset, _, members) in machine.placed() {
            all.add(dataset, members);
        }
        all
    }

    /// The set of a metablock changed. A new one has no members before, one that is freed has none now.
    pub fn on_set_changed(&mut self, dataset: DatasetId, old: &[pb::Member], new: &[pb::Member]) {
        self.remove(dataset, old);
        self.add(dataset, new);
    }

    /// Whether the dataset has a metablock.
    pub fn is_filled(&self, dataset: DatasetId) -> bool {
        self.filled.contains_key(&dataset)
    }

    fn add(&mut self, dataset: DatasetId, members: &[pb::Member]) {
        if !members.is_empty() {
            *self.filled.entry(dataset).or_default() += 1;
            *self.sets.entry(nodes(members)).or_default() += 1;
        }
    }

    fn remove(&mut self, dataset: DatasetId, members: &[pb::Member]) {
        if !members.is_empty() {
            lower(&mut self.filled, &dataset);
            lower(&mut self.sets, &nodes(members));
        }
    }

    /// All of them.
    ///
    /// Beyond [`SETS_MAX`] sets, those with as many copies are told as one that lies somewhere on the nodes of all of them: a
    /// plan that could put one of them out of reach is taken to.
    pub fn told(&self) -> Vec<pb::PowerHolding> {
        self.told_apart(SETS_MAX)
    }

    fn told_apart(&self, most: usize) -> Vec<pb::PowerHolding> {
        let told = |nodes: Vec<u64>, copies: usize, metablocks: u64| pb::PowerHolding {
            nodes,
            copies: copies as u64,
            metablocks,
            ..Default::default()
        };
        let apart = self.sets.iter().take(most).map(|(nodes, count)| told(nodes.clone(), nodes.len(), *count));
        let mut merged: BTreeMap<usize, (BTreeSet<u64>, u64)> = BTreeMap::new();
        for (nodes, count) in self.sets.iter().skip(most) {
            let (all, sum) = merged.entry(nodes.len()).or_default();
            all.extend(nodes);
            *sum += count;
        }
        let merged = merged.into_iter().map(|(copies, (nodes, sum))| told(nodes.into_iter().collect(), copies, sum));
        apart.chain(merged).collect()
    }
}

/// The nodes of a set, in order.
fn nodes(members: &[pb::Member]) -> Vec<u64> {
    let mut nodes: Vec<u64> = members.iter().map(|member| member.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// One less; what comes to none is forgotten.
fn lower<K: Ord + Clone>(counts: &mut OrdMap<K, u64>, key: &K) {
    let count = counts.get(key).copied().unwrap_or_default();
    debug_assert!(count > 0, "a metablock is counted where it lies");
    if count > 1 {
        counts.insert(key.clone(), count - 1);
    } else {
        counts.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: DatasetId = DatasetId::new(1);

    fn on(nodes: &[u64]) -> Vec<pb::Member> {
        nodes.iter().map(|node| pb::Member { node: *node, ..Default::default() }).collect()
    }

    fn put(all: &mut Holdings, old: &[u64], new: &[u64]) {
        all.on_set_changed(ONE, &on(old), &on(new));
    }

    fn told(all: &Holdings, most: usize) -> Vec<(Vec<u64>, u64, u64)> {
        all.told_apart(most).into_iter().map(|held| (held.nodes, held.copies, held.metablocks)).collect()
    }

    #[test]
    fn what_lies_where_is_counted_as_it_changes() {
        let mut all = Holdings::default();
        for nodes in [&[3, 1][..], &[1, 2], &[1, 3]] {
            put(&mut all, &[], nodes);
        }
        assert_eq!(told(&all, 9), [(vec![1, 2], 2, 1), (vec![1, 3], 2, 2)]);
        put(&mut all, &[2, 1], &[2]);
        assert_eq!(told(&all, 9), [(vec![1, 3], 2, 2), (vec![2], 1, 1)]);
        assert!(all.is_filled(ONE) && !all.is_filled(DatasetId::new(2)));
        for nodes in [&[1, 3][..], &[2], &[3, 1]] {
            put(&mut all, nodes, &[]);
        }
        assert_eq!(all, Holdings::default());
    }

    #[test]
    #[should_panic(expected = "counted where it lies")]
    fn what_was_never_counted_cannot_go() {
        put(&mut Holdings::default(), &[1], &[]);
    }

    #[test]
    fn no_metablock_is_left_out_however_many_sets_there_are() {
        let mut all = Holdings::default();
        for nodes in [&[3, 1][..], &[1, 2], &[1, 3], &[4, 5], &[6, 5], &[7]] {
            put(&mut all, &[], nodes);
        }
        assert_eq!(told(&all, 2), [(vec![1, 2], 2, 1), (vec![1, 3], 2, 2), (vec![7], 1, 1), (vec![4, 5, 6], 2, 2)]);
    }
}
