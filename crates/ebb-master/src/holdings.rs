//! Holdings: the number of metablocks on each set of nodes. A power manager needs them to know whether a plan would put
//! the last copy of some data to sleep. Pure.
//!
//! The counts are not logged. They are taken from the map when a master starts, and follow every change of a set.

pub(crate) mod examples;

use std::collections::{BTreeMap, BTreeSet};

use ebb_meta::Machine;
use ebb_types::DatasetId;
use ebb_wire::pb;
use imbl::OrdMap;

/// Maximum number of node sets that are listed one by one. From 31 nodes on, three random copies have more
/// combinations.
const SETS_MAX: usize = 4096;

/// Counts of metablocks by the nodes of their copies, and by dataset. A clone is cheap, so that it can be read without
/// a lock.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Holdings {
    sets: OrdMap<Vec<u64>, u64>,
    filled: OrdMap<DatasetId, u64>,
}

impl Holdings {
    /// Counts over the whole map. Visits every metablock once.
    pub fn of(machine: &Machine) -> Self {
        let mut all = Self::default();
        for (dataset, _, members) in machine.placed() {
            all.add(dataset, members);
        }
        all
    }

    /// Follows a change of a metablock's set. A new metablock has no old members, and a freed one has no new members.
    pub fn on_set_changed(&mut self, dataset: DatasetId, old: &[pb::Member], new: &[pb::Member]) {
        self.remove(dataset, old);
        self.add(dataset, new);
    }

    /// All sets of nodes, with their numbers of metablocks.
    pub fn sets(&self) -> impl Iterator<Item = (&[u64], u64)> {
        self.sets.iter().map(|(nodes, count)| (&nodes[..], *count))
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

    /// All holdings as messages.
    ///
    /// Beyond [`SETS_MAX`] sets, those with the same number of copies are merged into one holding that lies somewhere
    /// on all their nodes. This errs on the safe side: a plan that could put one of them out of reach is taken for one
    /// that does.
    pub fn list(&self) -> Vec<pb::PowerHolding> {
        self.list_up_to(SETS_MAX)
    }

    fn list_up_to(&self, most: usize) -> Vec<pb::PowerHolding> {
        let message = |nodes: Vec<u64>, copies: usize, metablocks: u64| pb::PowerHolding {
            nodes,
            copies: copies as u64,
            metablocks,
            ..Default::default()
        };
        let apart = self.sets.iter().take(most).map(|(nodes, count)| message(nodes.clone(), nodes.len(), *count));
        let mut merged: BTreeMap<usize, (BTreeSet<u64>, u64)> = BTreeMap::new();
        for (nodes, count) in self.sets.iter().skip(most) {
            let (all, sum) = merged.entry(nodes.len()).or_default();
            all.extend(nodes);
            *sum += count;
        }
        let merged = merged.into_iter().map(|(copies, (nodes, sum))| message(nodes.into_iter().collect(), copies, sum));
        apart.chain(merged).collect()
    }
}

/// Sorted nodes of a set.
fn nodes(members: &[pb::Member]) -> Vec<u64> {
    let mut nodes: Vec<u64> = members.iter().map(|member| member.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// Lowers a count by one, and removes it at zero.
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

    fn list(all: &Holdings, most: usize) -> Vec<(Vec<u64>, u64, u64)> {
        all.list_up_to(most).into_iter().map(|held| (held.nodes, held.copies, held.metablocks)).collect()
    }

    #[test]
    fn bytes_on_each_volume_are_counted_as_they_change() {
        let mut all = Holdings::default();
        for nodes in [&[3, 1][..], &[1, 2], &[1, 3]] {
            put(&mut all, &[], nodes);
        }
        assert_eq!(list(&all, 9), [(vec![1, 2], 2, 1), (vec![1, 3], 2, 2)]);
        put(&mut all, &[2, 1], &[2]);
        assert_eq!(list(&all, 9), [(vec![1, 3], 2, 2), (vec![2], 1, 1)]);
        assert!(all.is_filled(ONE) && !all.is_filled(DatasetId::new(2)));
        for nodes in [&[1, 3][..], &[2], &[3, 1]] {
            put(&mut all, nodes, &[]);
        }
        assert_eq!(all, Holdings::default());
    }

    #[test]
    #[should_panic(expected = "counted where it lies")]
    fn uncounted_bytes_cannot_be_taken_off() {
        put(&mut Holdings::default(), &[1], &[]);
    }

    #[test]
    fn no_metablock_is_left_out_however_many_sets_there_are() {
        let mut all = Holdings::default();
        for nodes in [&[3, 1][..], &[1, 2], &[1, 3], &[4, 5], &[6, 5], &[7]] {
            put(&mut all, &[], nodes);
        }
        assert_eq!(list(&all, 2), [(vec![1, 2], 2, 1), (vec![1, 3], 2, 2), (vec![7], 1, 1), (vec![4, 5, 6], 2, 2)]);
    }
}
