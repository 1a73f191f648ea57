//! RAID sets in messages and checkpoints.

use ebb_types::{DatasetId, Epoch, InodeId, MetablockId, RaidSetId, Result, Version, bail};
use ebb_wire::convert::version;
use ebb_wire::pb;

use super::seal::code_of;
use super::{RaidSet, Row, Slot, SlotOwner};
use crate::machine::Machine;
use crate::ops::grant::check_members;
use crate::replicas::Owner;

/// Most metablocks of one question.
const ASKED_MAX: usize = 1024;
/// The least version of a row: its encoder writes under epoch 1.
const ROW_VERSION: Version = Version::new(Epoch::new(1), 1);

impl Machine {
    /// The RAID sets of these metablocks, slots or rows, each once and with the members of every slot.
    pub(crate) fn get_raid_sets(&self, metablocks: &[u64]) -> Result<Vec<pb::RaidSet>> {
        if metablocks.len() > ASKED_MAX {
            bail!(Invalid, "{} metablocks in one question are more than {ASKED_MAX}", metablocks.len());
        }
        let mut ids: Vec<RaidSetId> =
            metablocks.iter().filter_map(|id| self.raid_set_of(MetablockId::new(*id))).collect();
        ids.sort_unstable();
        ids.dedup();
        Ok(ids.into_iter().filter_map(|id| self.raid_set(id)).collect())
    }

    /// The RAID set that has a metablock as a slot or row.
    #[must_use]
    pub fn raid_set_of(&self, id: MetablockId) -> Option<RaidSetId> {
        match self.replicas.owner_of(id)? {
            Owner::RaidSet(set) => Some(set),
            Owner::Heir(_) => None,
            Owner::File(_) | Owner::Kept(_) => self.metablock(id)?.frozen?.raid_set,
        }
    }

    /// The members of a metablock, whoever has it, and the version that they must have at least.
    ///
    /// That of a row is its encoder's: no record names it, as a row has one writer and one length.
    #[must_use]
    pub fn placed_metablock(&self, id: MetablockId) -> Option<(Vec<pb::Member>, Version)> {
        if let Some(record) = self.find_record(id) {
            let version = record.min_version();
            return Some((record.members, version));
        }
        let Owner::RaidSet(set) = self.replicas.owner_of(id)? else { return None };
        let set = self.raid.get(set)?;
        if let Some(row) = set.rows.iter().find(|row| row.metablock == id) {
            return Some((vec![row.member], ROW_VERSION));
        }
        let slot = set.slots.iter().find(|slot| slot.metablock == id)?;
        Some((self.slot_members(slot), slot.version))
    }

    /// Number of copies that a metablock of a file is to have: as many as its dataset wants, or as its RAID set keeps.
    #[must_use]
    pub fn copies_of(&self, dataset: &pb::Dataset, record: &pb::Metablock) -> u32 {
        let raid_set = record.frozen.map(|frozen| RaidSetId::new(frozen.raid_set));
        match raid_set.and_then(|id| self.raid.get(id)) {
            Some(set) => set.code.copies,
            None => dataset.replicas.max(1),
        }
    }

    /// A RAID set with the members of every slot.
    #[must_use]
    pub fn raid_set(&self, id: RaidSetId) -> Option<pb::RaidSet> {
        let set = self.raid.get(id)?;
        let mut record = raid_record(id, set);
        for (slot, own) in record.slots.iter_mut().zip(&set.slots) {
            slot.members = self.slot_members(own);
        }
        Some(record)
    }

    /// All RAID sets, in order, with the members of every slot.
    pub fn raid_sets(&self) -> impl Iterator<Item = pb::RaidSet> + '_ {
        self.raid.iter().filter_map(|(id, _)| self.raid_set(id))
    }

    /// The same from this id on.
    pub fn raid_sets_from(&self, first: RaidSetId) -> impl Iterator<Item = pb::RaidSet> + '_ {
        self.raid.iter_from(first).filter_map(|(id, _)| self.raid_set(id))
    }

    /// How many RAID sets there are.
    #[must_use]
    pub fn raid_count(&self) -> usize {
        self.raid.len()
    }

    /// Whether an id was taken in this run of the master, and nothing has it.
    #[must_use]
    pub fn is_taken(&self, id: MetablockId) -> bool {
        self.raid.taken().contains(&id.raw())
    }

    /// Takes a record of a checkpoint in. The inodes are loaded already.
    pub(crate) fn load_raid_set(&mut self, record: &pb::RaidSet) -> Result<()> {
        let id = RaidSetId::new(record.id);
        let set = from_record(record)?;
        if id.raw() == 0 || id.raw() >= self.next.metablock.raw() {
            bail!(Corrupt, "{id} is above the counter of metablocks");
        }
        for row in &set.rows {
            if row.metablock >= self.next.metablock
                || !self.replicas.add(Owner::RaidSet(id), row.metablock, &[row.member])
            {
                bail!(Corrupt, "{id}: the row {} is recorded twice, or above the counter", row.metablock);
            }
        }
        for (place, slot) in (0u32..).zip(&set.slots) {
            match &slot.owner {
                SlotOwner::Ballast(members) => {
                    if slot.metablock >= self.next.metablock
                        || !self.replicas.add(Owner::RaidSet(id), slot.metablock, &both(members, &slot.leaving))
                    {
                        bail!(Corrupt, "{id}: {} is recorded twice, or above the counter", slot.metablock);
                    }
                }
                SlotOwner::File(_) => {
                    let block = self.metablock(slot.metablock);
                    let frozen = block.and_then(|block| block.frozen);
                    if frozen.map(|frozen| (frozen.raid_set, frozen.slot)) != Some((Some(id), place)) {
                        bail!(Corrupt, "{id}: {} does not say that it is in slot {place}", slot.metablock);
                    }
                    let is_apart = |one: &pb::Member| {
                        block.is_some_and(|block| block.members.iter().all(|member| member.volume != one.volume))
                    };
                    if !slot.leaving.iter().all(is_apart) {
                        bail!(Corrupt, "{id}: a member of {} leaves and stays", slot.metablock);
                    }
                    self.replicas.index(slot.metablock, &slot.leaving);
                }
            }
        }
        if !self.raid.insert(id, set) {
            bail!(Corrupt, "{id} is recorded twice");
        }
        Ok(())
    }

    /// Every metablock of a loaded file or snapshot that says it is in a RAID set is in the slot that it says. The other direction is
    /// checked with each RAID set.
    pub(crate) fn check_slots(&self) -> Result<()> {
        let files = self.inodes.iter().filter_map(|(id, inode)| Some((*id, inode.file()?)));
        let live = files.flat_map(|(id, file)| file.map.iter().map(move |block| (id, block)));
        let kept = self.snapshots.kept.iter().map(|(_, kept)| (kept.inode, &kept.block));
        for (inode, block) in live.chain(kept) {
            let Some(frozen) = block.frozen else { continue };
            let Some(id) = frozen.raid_set else { continue };
            let slot = self.raid.get(id).and_then(|set| set.slots.get(frozen.slot as usize));
            let has_it = slot.is_some_and(|slot| {
                (slot.metablock, slot.version, slot.length) == (block.id, block.version, frozen.length)
            });
            if !has_it {
                bail!(Corrupt, "{} of {inode} is not in slot {} of {id}", block.id, frozen.slot);
            }
        }
        Ok(())
    }

    pub(crate) fn load_taken(&mut self, record: &pb::TakenIds) -> Result<()> {
        for id in &record.ids {
            if *id == 0 || *id >= self.next.metablock.raw() {
                bail!(Corrupt, "m{id} was taken, and is above the counter");
            }
            self.raid.add_taken(*id);
        }
        Ok(())
    }
}

fn both(members: &[pb::Member], leaving: &[pb::Member]) -> Vec<pb::Member> {
    members.iter().chain(leaving).copied().collect()
}

/// Without the members of slots that files have: their maps have them.
pub(crate) fn raid_record(id: RaidSetId, set: &RaidSet) -> pb::RaidSet {
    let slot = |slot: &Slot| {
        let (inode, members) = match &slot.owner {
            SlotOwner::File(inode) => (inode.raw(), Vec::new()),
            SlotOwner::Ballast(members) => (0, members.clone()),
        };
        pb::RaidSlot {
            metablock: slot.metablock.raw(),
            inode,
            version: Some(slot.version.into()),
            length: slot.length,
            members,
            leaving: slot.leaving.clone(),
        }
    };
    let row = |row: &Row| pb::RaidRow { metablock: row.metablock.raw(), member: Some(row.member), length: row.length };
    pb::RaidSet {
        id: id.raw(),
        dataset: set.dataset.raw(),
        code: Some(set.code.into()),
        generation: set.generation,
        slots: set.slots.iter().map(slot).collect(),
        rows: set.rows.iter().map(row).collect(),
    }
}

fn from_record(record: &pb::RaidSet) -> Result<RaidSet> {
    let id = RaidSetId::new(record.id);
    let Ok(code) = code_of(record) else { bail!(Corrupt, "{id} has a code that no RAID set has") };
    if record.rows.len() != code.rows as usize || record.slots.len() > code.slots as usize || record.slots.is_empty() {
        bail!(Corrupt, "{id} has {} slots and {} rows, by {code}", record.slots.len(), record.rows.len());
    }
    let mut slots = Vec::with_capacity(record.slots.len());
    for slot in &record.slots {
        let is_ballast = slot.inode == 0;
        let members_fit = if is_ballast { check_members(&slot.members).is_ok() } else { slot.members.is_empty() };
        let all = both(&slot.members, &slot.leaving);
        let leaving_fit =
            slot.leaving.is_empty() || check_members(if is_ballast { &all } else { &slot.leaving }).is_ok();
        if !members_fit || !leaving_fit {
            bail!(Corrupt, "{id}: the members of m{} are malformed", slot.metablock);
        }
        let owner = if is_ballast {
            SlotOwner::Ballast(slot.members.clone())
        } else {
            SlotOwner::File(InodeId::new(slot.inode))
        };
        slots.push(Slot {
            metablock: MetablockId::new(slot.metablock),
            version: version(slot.version),
            length: slot.length,
            owner,
            leaving: slot.leaving.clone(),
        });
    }
    let mut rows = Vec::with_capacity(record.rows.len());
    for row in &record.rows {
        let member = row.member.filter(|member| check_members(std::slice::from_ref(member)).is_ok());
        let Some(member) = member else { bail!(Corrupt, "{id}: the member of m{} is malformed", row.metablock) };
        rows.push(Row { metablock: MetablockId::new(row.metablock), member, length: row.length });
    }
    let (dataset, generation) = (DatasetId::new(record.dataset), record.generation);
    Ok(RaidSet { dataset, code, generation, slots, rows })
}
