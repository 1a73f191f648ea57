//! Holdings: the number of metablocks on each set of nodes. A power manager needs them to know whether a plan would put
//! the last copy of some data to sleep. Pure.
//!
//! The counts are not logged. They are taken from the map when a master starts, and follow every change of a set.

pub(crate) mod examples;

use std::collections::{BTreeMap, BTreeSet};

use ebb_meta::Machine;
use ebb_power::reach::Holding;
use ebb_types::{DatasetId, NodeId, RaidSetId};
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
    /// RAID sets that keep one copy of each slot. Their slots are counted in `sets`, too.
    raid: OrdMap<RaidSetId, RaidHolding>,
}

/// A RAID set, each part on one node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RaidHolding {
    /// Nodes of all parts, in order.
    pub nodes: Vec<u64>,
    /// Parts that may be missing.
    pub rows: usize,
    /// Nodes of the slots that files have, in order.
    pub slots: Vec<u64>,
}

impl RaidHolding {
    /// None for one with two copies, and while copies are still to go: then each slot is counted like a metablock in copies.
    pub(crate) fn of(set: &pb::RaidSet) -> Option<Self> {
        if set.slots.iter().any(|slot| slot.members.len() != 1) {
            return None;
        }
        let parts = set.slots.iter().flat_map(|slot| &slot.members).chain(set.rows.iter().flat_map(|row| &row.member));
        let mut all: Vec<u64> = parts.map(|member| member.node).collect();
        all.sort_unstable();
        let living = set.slots.iter().filter(|slot| slot.inode != 0);
        let mut slots: Vec<u64> = living.flat_map(|slot| &slot.members).map(|member| member.node).collect();
        slots.sort_unstable();
        Some(Self { nodes: all, rows: set.rows.len(), slots })
    }

    /// In the power core's terms, as one holding.
    pub(crate) fn to_core(&self) -> Holding {
        let ids = |nodes: &[u64]| nodes.iter().copied().map(NodeId::new).collect();
        Holding {
            nodes: ids(&self.nodes),
            copies: self.rows + 1,
            metablocks: self.slots.len() as u64,
            example: String::new(),
            slots: ids(&self.slots),
        }
    }
}

impl Holdings {
    /// Counts over the whole map. Visits every metablock once.
    pub fn of(machine: &Machine) -> Self {
        let mut all = Self::default();
        for (dataset, _, members) in machine.placed() {
            all.add(dataset, members);
        }
        // Snapshots are to be in reach, too.
        for (dataset, members) in machine.kept_placed() {
            all.add(dataset, members);
        }
        for set in machine.raid_sets() {
            all.on_raid_set(RaidSetId::new(set.id), Some(&set));
        }
        all
    }

    /// Follows a change of a RAID set. `None`: it has ended.
    pub fn on_raid_set(&mut self, id: RaidSetId, set: Option<&pb::RaidSet>) {
        match set.and_then(RaidHolding::of) {
            Some(holding) => self.raid.insert(id, holding),
            None => self.raid.remove(&id),
        };
    }

    /// RAID sets that keep one copy of each slot.
    pub fn raid_sets(&self) -> impl Iterator<Item = &RaidHolding> {
        self.raid.values()
    }

    /// All sets of nodes with their numbers of metablocks, without the slots of those RAID sets.
    pub fn apart(&self) -> OrdMap<Vec<u64>, u64> {
        let mut apart = self.sets.clone();
        for node in self.raid.values().flat_map(|holding| &holding.slots) {
            lower(&mut apart, &vec![*node]);
        }
        apart
    }

    /// Follows a change of a metablock's set. A new metablock has no old members, and a freed one has no new members.
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
        let sets = self.apart();
        let apart = sets.iter().take(most).map(|(nodes, count)| message(nodes.clone(), nodes.len(), *count));
        let mut merged: BTreeMap<usize, (BTreeSet<u64>, u64)> = BTreeMap::new();
        for (nodes, count) in sets.iter().skip(most) {
            let (all, sum) = merged.entry(nodes.len()).or_default();
            all.extend(nodes);
            *sum += count;
        }
        let merged = merged.into_iter().map(|(copies, (nodes, sum))| message(nodes.into_iter().collect(), copies, sum));
        apart.chain(merged).chain(self.list_raid(most)).collect()
    }

    /// RAID sets on the same nodes count as one holding. Beyond `most`, those that bear as many losses do, on all their nodes.
    fn list_raid(&self, most: usize) -> Vec<pb::PowerHolding> {
        let mut apart: BTreeMap<(&[u64], &[u64], usize), u64> = BTreeMap::new();
        for holding in self.raid.values().filter(|holding| !holding.slots.is_empty()) {
            *apart.entry((&holding.nodes, &holding.slots, holding.rows)).or_default() += holding.slots.len() as u64;
        }
        let mut merged: BTreeMap<usize, (BTreeSet<u64>, BTreeSet<u64>, u64)> = BTreeMap::new();
        for ((nodes, slots, rows), count) in apart.iter().skip(most) {
            let (all, of_slots, sum) = merged.entry(*rows).or_default();
            all.extend(*nodes);
            of_slots.extend(*slots);
            *sum += count;
        }
        let message = |nodes: Vec<u64>, slots: Vec<u64>, rows: usize, metablocks: u64| pb::PowerHolding {
            nodes,
            slots,
            copies: rows as u64 + 1,
            metablocks,
            decoded: true,
            ..Default::default()
        };
        let listed = apart.into_iter().take(most);
        let listed = listed.map(|((nodes, slots, rows), count)| message(nodes.to_vec(), slots.to_vec(), rows, count));
        let all = |nodes: BTreeSet<u64>| nodes.into_iter().collect::<Vec<_>>();
        let merged = merged.into_iter().map(|(rows, (nodes, slots, sum))| message(all(nodes), all(slots), rows, sum));
        listed.chain(merged).collect()
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
    fn slots_of_a_raid_set_are_counted_with_it() {
        let mut all = Holdings::default();
        for nodes in [&[1][..], &[2], &[2], &[1, 2, 3]] {
            put(&mut all, &[], nodes);
        }
        let member = |node| pb::Member { node, ..Default::default() };
        let slot = |inode, node| pb::RaidSlot { inode, members: vec![member(node)], ..Default::default() };
        let row = pb::RaidRow { member: Some(member(4)), ..Default::default() };
        let mut set =
            pb::RaidSet { slots: vec![slot(7, 1), slot(8, 2), slot(0, 3)], rows: vec![row], ..Default::default() };
        all.on_raid_set(RaidSetId::new(5), Some(&set));
        let decoded = |all: &Holdings| all.list().into_iter().filter(|held| held.decoded).collect::<Vec<_>>();
        assert_eq!(list(&all, 9), [(vec![1, 2, 3], 3, 1), (vec![2], 1, 1), (vec![1, 2, 3, 4], 2, 2)]);
        assert_eq!(
            decoded(&all).iter().map(|held| &held.slots[..]).collect::<Vec<_>>(),
            [[1, 2]],
            "a dead slot needs no node"
        );
        // Copies are still to go: each slot counts by its members.
        set.slots[0].members.push(member(9));
        all.on_raid_set(RaidSetId::new(5), Some(&set));
        assert_eq!(decoded(&all), []);
        all.on_raid_set(RaidSetId::new(5), None);
        assert_eq!(list(&all, 9), [(vec![1], 1, 1), (vec![1, 2, 3], 3, 1), (vec![2], 1, 2)]);
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
