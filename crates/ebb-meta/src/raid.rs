//! RAID sets: metablocks whose copies other metablocks stand for.
//!
//! A **RAID set** has slots, each for a metablock of a file, and rows, each for a check metablock that it owns. Its
//! record is made by one entry ([`seal`]). From then on the metablocks of its slots are **frozen**: they never change
//! again. [`thin`] records which copies stay. The others **leave**: they may still be read, and are deleted when every
//! slot and row was found sound.
//!
//! A slot **dies** when its file loses the metablock, or writes to it ([`death`], [`thaw`]), and no snapshot has it. Its bytes stay as
//! **ballast**, as the other slots cannot be decoded without them. With its last slot, or by an entry that puts its
//! living slots elsewhere, a RAID set ends: rows and ballast are freed.
//!
//! The order of these entries, and what goes wrong without it, is the model `lab/ebb-model/src/raid`.

pub(crate) mod check;
pub mod cold;
pub(crate) mod death;
pub(crate) mod record;
pub(crate) mod seal;
pub(crate) mod seats;
pub mod tally;
pub(crate) mod thaw;
pub(crate) mod thin;

use std::sync::Arc;

use ebb_types::{DatasetId, InodeId, MetablockId, RaidCode, RaidSetId, Version};
use ebb_wire::pb;
use imbl::{OrdMap, OrdSet};

/// Who has a slot's metablock.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum SlotOwner {
    /// A file, whose map has the members. Or it had it, and snapshots have it still: the record is theirs then.
    File(InodeId),
    /// The RAID set alone: the slot is dead, and this is ballast.
    Ballast(Vec<pb::Member>),
}

/// A place of a data metablock.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Slot {
    pub(crate) metablock: MetablockId,
    /// The version that the rows were made of. All members have it, for good.
    pub(crate) version: Version,
    /// The length of the members. The file may show less.
    pub(crate) length: u64,
    pub(crate) owner: SlotOwner,
    /// Copies that are no longer needed. They are sources still, and deleted when the RAID set was found sound.
    pub(crate) leaving: Vec<pb::Member>,
}

impl Slot {
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.owner, SlotOwner::Ballast(_))
    }
}

/// A place of a check metablock.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Row {
    pub(crate) metablock: MetablockId,
    pub(crate) member: pb::Member,
    pub(crate) length: u64,
}

/// A RAID set as it is recorded.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct RaidSet {
    pub(crate) dataset: DatasetId,
    pub(crate) code: RaidCode,
    /// Number of the record. Each change raises it.
    pub(crate) generation: u64,
    /// Those that are not empty, in order. Their number never changes.
    pub(crate) slots: Vec<Slot>,
    pub(crate) rows: Vec<Row>,
}

/// All RAID sets.
#[derive(Clone, Default)]
pub(crate) struct RaidSets {
    sets: OrdMap<RaidSetId, Arc<RaidSet>>,
    /// Ids that the leader took in this run of the master and that nothing has.
    ///
    /// Invariant: the next run begins with none, so that a Seal never names a check metablock that an earlier leader's
    /// successor has found to be a stray.
    taken: OrdSet<u64>,
}

impl RaidSets {
    pub(crate) fn get(&self, id: RaidSetId) -> Option<&RaidSet> {
        self.sets.get(&id).map(|set| &**set)
    }

    pub(crate) fn get_mut(&mut self, id: RaidSetId) -> Option<&mut RaidSet> {
        self.sets.get_mut(&id).map(Arc::make_mut)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (RaidSetId, &RaidSet)> {
        self.sets.iter().map(|(id, set)| (*id, &**set))
    }

    pub(crate) fn iter_from(&self, first: RaidSetId) -> impl Iterator<Item = (RaidSetId, &RaidSet)> {
        self.sets.range(first..).map(|(id, set)| (*id, &**set))
    }

    pub(crate) fn len(&self) -> usize {
        self.sets.len()
    }

    /// Adds a RAID set. False if there is one of this id.
    pub(crate) fn insert(&mut self, id: RaidSetId, set: RaidSet) -> bool {
        self.sets.insert(id, Arc::new(set)).is_none()
    }

    pub(crate) fn remove(&mut self, id: RaidSetId) -> Option<Arc<RaidSet>> {
        self.sets.remove(&id)
    }

    pub(crate) fn taken(&self) -> &OrdSet<u64> {
        &self.taken
    }

    pub(crate) fn add_taken(&mut self, id: u64) {
        self.taken.insert(id);
    }

    pub(crate) fn use_taken(&mut self, id: u64) {
        assert!(self.taken.remove(&id).is_some(), "m{id} was not taken, or is used already");
    }

    /// A new run of the master has begun.
    pub(crate) fn forget_taken(&mut self) {
        self.taken = OrdSet::new();
    }
}
