//! The Seal: metablocks become the slots of a RAID set, all or none.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::{DatasetId, InodeId, MetablockId, RaidCode, RaidSetId, Result, Version, bail};
use ebb_wire::convert::version;
use ebb_wire::pb;

use super::{RaidSet, Row, Slot, SlotOwner};
use crate::machine::{Call, Machine, take_id};
use crate::map::{Frozen, Metablock};
use crate::outcome::{Effect, Reply};
use crate::recovery::check_idle;
use crate::replicas::Owner;

/// Most ids that are taken at once.
const IDS_MAX: u32 = 4096;

impl Machine {
    /// Takes ids of the counter of metablocks, for check metablocks and RAID sets of this run of the master.
    pub(crate) fn take_ids(&mut self, count: u32) -> Result<Reply> {
        if count == 0 || count > IDS_MAX {
            bail!(Invalid, "{count} ids at once: between 1 and {IDS_MAX}");
        }
        let first = self.next.metablock;
        for _ in 0..count {
            let id = take_id!(self.next.metablock, MetablockId);
            self.raid.add_taken(id.raw());
        }
        Ok(Reply::Ids { first, count })
    }

    /// Records RAID sets, and ends those that they take the place of.
    pub(crate) fn seal_sets(&mut self, call: &mut Call<'_>, op: &pb::SealSets) -> Result<Reply> {
        let dissolved = self.check_dissolved(op)?;
        let mut named = BTreeSet::new();
        for set in &op.sets {
            self.check_sealed(set, &dissolved, &mut named)?;
        }
        // I-64: what a RAID set that ends stands for is in another one, or has copies.
        for id in dissolved.keys() {
            let old = self.raid.get(*id).into_iter().flat_map(|set| &set.slots);
            if let Some(slot) = old.filter(|slot| !slot.is_dead()).find(|slot| !named.contains(&slot.metablock.raw())) {
                bail!(Invalid, "{id} ends, and its {} is in no other RAID set", slot.metablock);
            }
        }
        // Ordering: what the old ones know of copies that leave goes over to the new ones.
        let leaving: BTreeMap<MetablockId, Vec<pb::Member>> = dissolved
            .keys()
            .filter_map(|id| self.raid.get(*id))
            .flat_map(|set| set.slots.iter().filter(|slot| !slot.is_dead()))
            .map(|slot| (slot.metablock, slot.leaving.clone()))
            .collect();
        for id in dissolved.into_keys() {
            self.end_raid_set(call, id);
        }
        for set in &op.sets {
            self.seal(call, set, &leaving);
        }
        Ok(Reply::None)
    }

    fn check_dissolved(&self, op: &pb::SealSets) -> Result<BTreeMap<RaidSetId, u64>> {
        let mut dissolved = BTreeMap::new();
        for ended in &op.dissolves {
            let id = RaidSetId::new(ended.raid_set);
            self.check_raid_generation(id, ended.generation)?;
            if dissolved.insert(id, ended.generation).is_some() {
                bail!(Invalid, "{id} is to end twice");
            }
        }
        Ok(dissolved)
    }

    /// Refuses what is decided on an older record.
    pub(crate) fn check_raid_generation(&self, id: RaidSetId, generation: u64) -> Result<&RaidSet> {
        let Some(set) = self.raid.get(id) else { bail!(NotFound, "there is no RAID set {id}") };
        if set.generation != generation {
            bail!(SetChanged, "{id} is at generation {}, not {generation}", set.generation);
        }
        Ok(set)
    }

    fn check_sealed(
        &self,
        set: &pb::RaidSet,
        dissolved: &BTreeMap<RaidSetId, u64>,
        named: &mut BTreeSet<u64>,
    ) -> Result<()> {
        let (id, dataset) = (RaidSetId::new(set.id), DatasetId::new(set.dataset));
        let code = code_of(set)?;
        if self.datasets.get(dataset).is_none() {
            bail!(NotFound, "{id}: there is no dataset {dataset}");
        }
        let slots = u32::try_from(set.slots.len()).unwrap_or(u32::MAX);
        if !(2..=code.slots).contains(&slots) || set.rows.len() != code.rows as usize {
            bail!(Invalid, "{id}: {slots} slots and {} rows are no RAID set of {code}", set.rows.len());
        }
        let ids = std::iter::once(set.id).chain(set.rows.iter().map(|row| row.metablock));
        for taken in ids {
            // I-69: a check that another run's master may have found to be a stray is not recorded.
            if !self.raid.taken().contains(&taken) || !named.insert(taken) {
                bail!(Stale, "{id}: m{taken} was not taken in this run, or is used already");
            }
        }
        let longest = set.slots.iter().map(|slot| slot.length).max().unwrap_or_default();
        for row in &set.rows {
            let Some(member) = row.member else { bail!(Invalid, "{id}: a row without a member") };
            self.check_placement(&[member])?;
            if row.length < longest {
                bail!(Invalid, "{id}: a row of {} bytes, and a slot has {longest}", row.length);
            }
        }
        for slot in &set.slots {
            if !named.insert(slot.metablock) {
                bail!(Invalid, "{id}: m{} is in two slots", slot.metablock);
            }
            self.check_slot(id, dataset, slot, dissolved)?;
        }
        self.check_seats(id, code, &self.proposed_seats(set, code))
    }

    /// Compare-and-swap: the metablock is the file's at that version and length, and no holder can be writing it.
    fn check_slot(
        &self,
        id: RaidSetId,
        dataset: DatasetId,
        slot: &pb::RaidSlot,
        dissolved: &BTreeMap<RaidSetId, u64>,
    ) -> Result<()> {
        let (inode_id, metablock) = (InodeId::new(slot.inode), MetablockId::new(slot.metablock));
        if self.is_kept(metablock) {
            return self.check_kept_slot(id, dataset, slot, dissolved);
        }
        let inode = self.inode(inode_id)?;
        let Some((file, block)) = inode.file().and_then(|file| Some((file, file.map.get(metablock)?))) else {
            bail!(NotFound, "{id}: {metablock} is not a metablock of {inode_id}");
        };
        if inode.dataset != dataset {
            bail!(Invalid, "{id}: {inode_id} is in {}, not {dataset}", inode.dataset);
        }
        check_content(id, block, slot, dissolved)?;
        if block.frozen.is_none() {
            // The file's epoch may have moved on: a version names one content.
            check_idle(inode_id, inode, inode.epoch)?;
            if file.trim.as_ref().is_some_and(|trim| trim.metablock == metablock.raw()) {
                bail!(Busy, "{id}: {metablock} has a trim that is not on all members");
            }
        }
        check_copies(id, block, self.wanted_copies(inode_id))
    }

    /// The same of a metablock that snapshots alone have: nobody writes it.
    fn check_kept_slot(
        &self,
        id: RaidSetId,
        dataset: DatasetId,
        slot: &pb::RaidSlot,
        dissolved: &BTreeMap<RaidSetId, u64>,
    ) -> Result<()> {
        let metablock = MetablockId::new(slot.metablock);
        let Some(kept) = self.kept(metablock) else { bail!(NotFound, "{id}: nobody has {metablock}") };
        if kept.dataset != dataset || kept.inode.raw() != slot.inode {
            bail!(Invalid, "{id}: {metablock} was {}'s in {}", kept.inode, kept.dataset);
        }
        check_content(id, &kept.block, slot, dissolved)?;
        check_copies(id, &kept.block, self.wanted_in(dataset))
    }

    fn seal(&mut self, call: &mut Call<'_>, set: &pb::RaidSet, leaving: &BTreeMap<MetablockId, Vec<pb::Member>>) {
        let (id, dataset) = (RaidSetId::new(set.id), DatasetId::new(set.dataset));
        let code = code_of(set).expect("it was checked");
        self.raid.use_taken(set.id);
        let mut slots = Vec::with_capacity(set.slots.len());
        for (place, slot) in set.slots.iter().enumerate() {
            let (inode, metablock) = (InodeId::new(slot.inode), MetablockId::new(slot.metablock));
            let place = u32::try_from(place).expect("few slots");
            self.end_extras_of(call, inode, metablock);
            self.edit_metablock(metablock, |block| {
                block.frozen = Some(Frozen { raid_set: Some(id), slot: place, length: slot.length });
                // I-13: a change of the set that was decided before is refused from here on.
                block.generation += 1;
            });
            slots.push(Slot {
                metablock,
                version: version(slot.version),
                length: slot.length,
                owner: SlotOwner::File(inode),
                leaving: leaving.get(&metablock).cloned().unwrap_or_default(),
            });
            if self.replicas.owner(metablock) == Some(inode) {
                call.changed(inode);
            }
        }
        let mut rows = Vec::with_capacity(set.rows.len());
        for row in &set.rows {
            let Some(member) = row.member else { continue };
            let row = Row { metablock: MetablockId::new(row.metablock), member, length: row.length };
            self.raid.use_taken(row.metablock.raw());
            assert!(
                self.replicas.add(Owner::RaidSet(id), row.metablock, &[member]),
                "{} is a row of two RAID sets",
                row.metablock
            );
            call.effects.push(Effect::BesideChanged { metablock: row.metablock, old: Vec::new(), new: vec![member] });
            rows.push(row);
        }
        assert!(self.raid.insert(id, RaidSet { dataset, code, generation: 1, slots, rows }), "{id} is sealed twice");
        call.effects.push(Effect::RaidSetChanged(id));
    }
}

/// The metablock is what the rows were made of, and in no RAID set that goes on.
fn check_content(
    id: RaidSetId,
    block: &Metablock,
    slot: &pb::RaidSlot,
    dissolved: &BTreeMap<RaidSetId, u64>,
) -> Result<()> {
    let length = block.stored_length();
    // I-62: rows of another version, or of another length, are the code of something else.
    if (block.version, length) != (version(slot.version), slot.length) || block.version == Version::ZERO {
        bail!(
            SetChanged,
            "{id}: {} is at {} with {length} bytes, not {} with {}",
            block.id,
            block.version,
            version(slot.version),
            slot.length
        );
    }
    match block.frozen.and_then(|frozen| frozen.raid_set) {
        Some(old) if !dissolved.contains_key(&old) => bail!(Busy, "{id}: {} is in {old}", block.id),
        _ => Ok(()),
    }
}

/// What no RAID set has is to have all its copies, at home.
fn check_copies(id: RaidSetId, block: &Metablock, wanted: usize) -> Result<()> {
    if block.frozen.is_some_and(|frozen| frozen.raid_set.is_some()) {
        return Ok(());
    }
    // I-66: one copy of a metablock that lacks others may lie beside a row, and a single loss takes both.
    if block.members.len() < wanted || !block.left_out().is_empty() {
        bail!(Busy, "{id}: {} has {} of {wanted} copies", block.id, block.members.len());
    }
    if block.members.iter().any(pb::Member::is_guest) {
        bail!(Busy, "{id}: a copy of {} is away from home", block.id);
    }
    Ok(())
}

/// The code of a record, within its bounds.
pub(crate) fn code_of(set: &pb::RaidSet) -> Result<RaidCode> {
    let code = set.raid_code();
    if let Err(sentence) = code.check() {
        bail!(Invalid, "rs{}: {sentence}", set.id);
    }
    Ok(code)
}
