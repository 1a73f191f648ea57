//! Invariants of snapshots, for tests and for `fsck`.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::{DatasetId, InodeId, SnapshotId};

use crate::dataset::Usage;
use crate::inode::Inode;
use crate::machine::Machine;
use crate::ops::grant::check_members;
use crate::replicas::Owner;

impl Machine {
    /// Broken invariants of snapshots, a sentence each.
    pub(crate) fn check_snapshots(&self, broken: &mut Vec<String>) {
        let mut slots = BTreeSet::new();
        for (number, snapshot) in self.snapshots.iter() {
            let mut expect = |holds: bool, rule: &str| {
                if !holds {
                    broken.push(format!("{number}: {rule}"));
                }
            };
            expect(number < self.next.snapshot, "is above the counter of snapshots");
            expect(slots.insert(snapshot.slot) && snapshot.slot > 0, "another one has its place");
            expect(snapshot.next_inode <= self.next.inode, "shows inodes that were never made");
            expect(snapshot.next_metablock <= self.next.metablock, "has metablocks that were never granted");
            expect(self.datasets.get(snapshot.dataset).is_some(), "its dataset is not recorded");
            let listed = self.snapshots.living.contains(&(snapshot.dataset, number));
            expect(listed != snapshot.is_removed, "is readable in one table and not in another");
        }
        for (inode, _) in self.snapshots.all_frozen_for() {
            if !self.may_have_uncommitted(inode) {
                broken.push(format!("{inode} keeps a rule of a lease that is over"));
            }
        }
        if !self.snapshots.past.agree() {
            broken.push("records of the past differ between the indexes".into());
        }
        for (number, id, inode) in self.snapshots.past.inodes() {
            self.check_past_inode(number, id, inode, broken);
        }
        for (number, parent, _, entry) in self.snapshots.past.names() {
            // Directories of a removed one go before their names.
            if self.snapshots.get(number).is_some_and(|snapshot| snapshot.is_removed) {
                continue;
            }
            let next = self.snapshots.get(number).and_then(|_| self.inode_in(number, parent)?.directory());
            if next.is_none_or(|directory| entry.cookie >= directory.next_cookie) {
                broken.push(format!("{number} keeps a name of {parent}, which does not show it"));
            }
        }
        self.check_kept(broken);
    }

    fn check_past_inode(&self, number: SnapshotId, id: InodeId, inode: &Inode, broken: &mut Vec<String>) {
        let fits = self
            .snapshots
            .get(number)
            .is_some_and(|snapshot| inode.dataset == snapshot.dataset && id < snapshot.next_inode);
        if !fits {
            broken.push(format!("{number} keeps {id}, which it never showed"));
        }
        let Some(file) = inode.file() else { return };
        // Who shows this record: the snapshots from the record before it on.
        let mut readers = self.snapshots.older_than(inode.dataset, SnapshotId::new(number.raw().saturating_add(1)));
        let Some((reader, _)) = readers.find(|(reader, snapshot)| {
            let nearest = self.snapshots.past.inode(id, *reader);
            id < snapshot.next_inode && nearest.is_some_and(|(nearest, _)| nearest == number)
        }) else {
            return;
        };
        for block in file.map.iter() {
            // I-75: what a snapshot shows is live or kept, with the bytes of then.
            let is_there = match self.replicas.owner_of(block.id) {
                Some(Owner::File(owner)) => owner == id,
                Some(Owner::Kept(kept)) => kept >= reader,
                Some(Owner::Heir(_) | Owner::RaidSet(_)) | None => false,
            };
            let now = self.metablock(block.id);
            let is_whole = now.is_some_and(|now| now.version == block.version && now.stored_length() >= block.length);
            if !is_there || !is_whole {
                broken.push(format!("{reader}: {} of {id} is lost, or not as it was", block.id));
            }
        }
        if file.holder.is_some() || file.recovering || file.trim.is_some() || !file.heirs.is_empty() {
            broken.push(format!("{number}: {id} was being written"));
        }
    }

    fn check_kept(&self, broken: &mut Vec<String>) {
        for (number, kept) in self.snapshots.kept.iter() {
            let block = &kept.block;
            let mut expect = |holds: bool, rule: &str| {
                if !holds {
                    broken.push(format!("{} of {number}: {rule}", block.id));
                }
            };
            let snapshot = self.snapshots.get(number);
            expect(
                snapshot.is_some_and(|one| one.dataset == kept.dataset && block.id < one.next_metablock),
                "the snapshot never had it",
            );
            expect(self.replicas.owner_of(block.id) == Some(Owner::Kept(number)), "it is not in the index");
            expect(self.replicas.is_indexed(block.id, &block.members), "its members are not in the index");
            expect(check_members(&block.members).is_ok(), "its set is malformed");
            let is_removed = |member: &ebb_wire::pb::Member| self.registry.is_removed(member.node_id());
            expect(!block.members.iter().any(is_removed), "it has a copy on a node that was removed");
            expect(block.frozen.is_some() && block.left_out.is_none(), "it is not frozen as a whole");
            // A removed one loses its records step by step, and an older one may show the file by none of its own.
            let is_living = snapshot.is_some_and(|one| !one.is_removed);
            expect(!is_living || self.is_shown(number, kept.inode, block.id), "its snapshot does not show it");
        }
    }

    /// Adds what the snapshots of each dataset keep.
    pub(crate) fn count_snapshots(&self, counted: &mut BTreeMap<DatasetId, Usage>) {
        for (_, kept) in self.snapshots.kept.iter() {
            let used = counted.entry(kept.dataset).or_default();
            used.kept_bytes = used.kept_bytes.saturating_add(kept.block.length);
        }
        for (dataset, _) in self.past_alone() {
            counted.entry(dataset).or_default().past_inodes += 1;
        }
    }
}
