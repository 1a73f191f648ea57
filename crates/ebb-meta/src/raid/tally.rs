//! What a dataset has in RAID sets, what could be, and what lies on disks for it.

use ebb_types::{DatasetId, InodeId};

use super::cold::{Due, is_settled};
use crate::Machine;
use crate::map::Metablock;

/// Bytes of a dataset, by recorded lengths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RaidTally {
    /// In RAID sets, with as few copies as their code asks for.
    pub encoded: u64,
    /// In RAID sets, and copies are still to go.
    pub sealed: u64,
    /// In copies, and old enough.
    pub due: u64,
    /// In copies, and not old enough.
    pub young: u64,
    /// In metablocks that are too short to become slots.
    pub short: u64,
    /// In metablocks whose copies are missing, away from home or being changed.
    pub unready: u64,
    /// On disks, for files and snapshots.
    pub stored: u64,
    /// On disks, for rows.
    pub rows: u64,
    /// On disks, for what no file has any more.
    pub dead: u64,
}

impl Machine {
    /// Counts a dataset. It walks all its files, and what snapshots alone have. `in_scope`: which files.
    pub fn raid_tally(&self, dataset: DatasetId, due: Due, in_scope: impl Fn(InodeId) -> bool) -> RaidTally {
        let full = self.datasets.settings(dataset).metablock_size;
        let mut tally = RaidTally::default();
        let mut add = |block: &Metablock, wanted: usize, trimmed: Option<u64>| {
            let bytes = block.stored_length();
            tally.stored += bytes * block.members.len() as u64;
            let set = block.frozen.and_then(|frozen| frozen.raid_set).and_then(|id| self.raid.get(id));
            let part = match set {
                Some(set) if block.members.len() > set.code.copies as usize => &mut tally.sealed,
                Some(_) => &mut tally.encoded,
                None if bytes < due.min_len => &mut tally.short,
                None if !due.is_old(block, full) => &mut tally.young,
                None if !is_settled(block, wanted, trimmed) => &mut tally.unready,
                None => &mut tally.due,
            };
            *part += block.length;
        };
        for (id, inode) in self.inodes.iter().filter(|(id, inode)| inode.dataset == dataset && in_scope(**id)) {
            let Some(file) = inode.file() else { continue };
            let (wanted, trimmed) = (self.wanted_copies(*id), file.trim.as_ref().map(|trim| trim.metablock));
            let blocks = file.map.iter().filter(|block| block.version != ebb_types::Version::ZERO);
            blocks.for_each(|block| add(block, wanted, trimmed));
        }
        let kept = self.snapshots.kept.iter().map(|(_, kept)| kept);
        let kept = kept.filter(|kept| kept.dataset == dataset && in_scope(kept.inode));
        kept.for_each(|kept| add(&kept.block, self.wanted_in(dataset), None));
        for (_, set) in self.raid.iter().filter(|(_, set)| set.dataset == dataset) {
            tally.rows += set.rows.iter().map(|row| row.length).sum::<u64>();
            for slot in &set.slots {
                let leaving = slot.length * slot.leaving.len() as u64;
                if slot.is_dead() {
                    tally.dead += slot.length * self.slot_members(slot).len() as u64 + leaving;
                } else {
                    tally.stored += leaving;
                }
            }
        }
        tally.stored += tally.rows + tally.dead;
        tally
    }
}
