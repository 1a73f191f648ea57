//! Invariants of RAID sets, for tests and for `fsck`.

use ebb_types::{RaidSetId, Version};

use super::{RaidSet, SlotOwner};
use crate::machine::Machine;
use crate::replicas::Owner;

impl Machine {
    /// Broken invariants of RAID sets, a sentence each.
    pub(crate) fn check_raid_sets(&self, broken: &mut Vec<String>) {
        for (id, set) in self.raid.iter() {
            self.check_raid_set(id, set, broken);
        }
        for (inode, record) in &self.inodes {
            let Some(file) = record.file() else { continue };
            for block in file.map.iter() {
                let Some(frozen) = block.frozen else { continue };
                if block.length > frozen.length || block.version == Version::ZERO {
                    broken.push(format!("{inode}: {} shows more than it was frozen with", block.id));
                }
                let Some(id) = frozen.raid_set else { continue };
                let slot = self.raid.get(id).and_then(|set| set.slots.get(frozen.slot as usize));
                if slot.map(|slot| slot.metablock) != Some(block.id) {
                    broken.push(format!("{inode}: {} is not in slot {} of {id}", block.id, frozen.slot));
                }
            }
            for heir in &file.heirs {
                let is_frozen = file.map.get(heir.of).is_some_and(|block| self.is_frozen(*inode, record, block));
                let is_known = self.replicas.owner_of(heir.id) == Some(Owner::Heir(*inode));
                if file.holder.is_none() || !is_frozen || !is_known {
                    broken.push(format!("{inode}: {} is an heir of nothing, or of nobody's", heir.id));
                }
            }
        }
        for id in self.raid.taken() {
            if self.replicas.owner_of(ebb_types::MetablockId::new(*id)).is_some() || *id >= self.next.metablock.raw() {
                broken.push(format!("m{id} counts as taken and is in use, or above the counter"));
            }
        }
    }

    fn check_raid_set(&self, id: RaidSetId, set: &RaidSet, broken: &mut Vec<String>) {
        let mut expect = |holds: bool, rule: &str| {
            if !holds {
                broken.push(format!("{id}: {rule}"));
            }
        };
        expect(set.code.check().is_ok(), "its code is out of bounds");
        expect(set.rows.len() == set.code.rows as usize, "it lacks rows, or has too many");
        expect(set.slots.iter().any(|slot| !slot.is_dead()), "no file has any of its slots");
        for row in &set.rows {
            expect(self.replicas.owner_of(row.metablock) == Some(Owner::RaidSet(id)), "a row is not in the index");
            expect(self.replicas.is_indexed(row.metablock, &[row.member]), "a row's member is not in the index");
        }
        for slot in &set.slots {
            let sources = self.slot_sources(slot);
            expect(!sources.is_empty(), "a slot has no members");
            expect(self.replicas.is_indexed(slot.metablock, &sources), "a slot's members are not in the index");
            match &slot.owner {
                SlotOwner::Ballast(_) => {
                    let owner = self.replicas.owner_of(slot.metablock);
                    expect(owner == Some(Owner::RaidSet(id)), "its ballast is not in the index");
                }
                SlotOwner::File(_) => {
                    let block = self.metablock(slot.metablock);
                    // I-63: what is frozen has one version.
                    expect(block.is_some_and(|block| block.version == slot.version), "a slot's version is another");
                    let frozen = block.and_then(|block| block.frozen);
                    expect(frozen.is_some_and(|frozen| frozen.raid_set == Some(id)), "a file does not know its slot");
                }
            }
        }
    }

    /// Members that are in no file's map: rows, ballast, heirs, copies that leave, and what snapshots alone have.
    pub(crate) fn members_beside_maps(&self) -> (usize, usize) {
        let mut counts = (0, 0);
        for (_, set) in self.raid.iter() {
            counts.0 += set.rows.len();
            counts.1 += set.rows.len();
            for slot in &set.slots {
                counts.1 += slot.leaving.len();
                if let SlotOwner::Ballast(members) = &slot.owner {
                    counts.0 += 1;
                    counts.1 += members.len();
                }
            }
        }
        for file in self.inodes.values().filter_map(|inode| inode.file()) {
            counts.0 += file.heirs.len();
            counts.1 += file.heirs.iter().map(|heir| heir.members.len()).sum::<usize>();
        }
        for (_, kept) in self.snapshots.kept.iter() {
            counts.0 += 1;
            counts.1 += kept.block.members.len();
        }
        counts
    }
}
