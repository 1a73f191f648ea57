//! Snapshots: datasets as of one entry of the log (docs/snapshots.md).
//!
//! Taking one records three numbers and no more. From then on each inode and each name is kept at its first change ([`past`]), and
//! a metablock when its file loses it ([`kept`]). Ids rise and none is given twice, so a snapshot has what is older than itself and
//! was lost after it: nothing is counted, and nothing is copied.
//!
//! What a snapshot has never changes. Its metablocks are **frozen** by a rule, not by a mark: those with an id below that of the newest
//! snapshot of their dataset. For a file that is held or recovered, the rule is as it was when its lease was given.
//!
//! The order of these entries, and what goes wrong without it, is the model `lab/ebb-model/src/snapshots`.

pub(crate) mod check;
pub(crate) mod kept;
pub(crate) mod load;
pub(crate) mod past;
pub(crate) mod prune;
pub(crate) mod view;

use std::collections::BTreeSet;
use std::sync::Arc;

use ebb_types::snapshot::{DIRECTORY, INODES_END};
use ebb_types::{Credentials, DatasetId, InodeId, MetablockId, Result, SnapshotId, bail};
use ebb_wire::pb;
use ebb_wire::pb::meta_op;
use imbl::{OrdMap, OrdSet};

use crate::dir::{self, Name};
use crate::inode::Inode;
use crate::machine::{Call, Machine, NUMBER_MAX, take_id};
use crate::map::Metablock;
use crate::permission;

/// Most snapshots of a dataset, those that are being pruned among them.
pub const SNAPSHOTS_PER_DATASET_MAX: usize = 1024;
/// Most snapshots of a cluster: each has a number of 16 bits among them, and 0 is none.
pub const SNAPSHOTS_MAX: usize = 65_535;
/// Files that a refusal names.
const NAMED_MAX: usize = 5;

/// A dataset as of one entry of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Snapshot {
    pub(crate) dataset: DatasetId,
    pub(crate) name: Name,
    /// Nanoseconds since 1970 UTC.
    pub(crate) taken_ns: i64,
    /// What was there then has lower ids.
    pub(crate) next_inode: InodeId,
    pub(crate) next_metablock: MetablockId,
    /// Its place among those that are recorded, from 1 on. Another one gets it after its end, and as late as can be.
    pub(crate) slot: u16,
    /// Nobody reads it, and what it alone had is being freed.
    pub(crate) is_removed: bool,
}

/// All snapshots, and what they keep.
#[derive(Clone, Default)]
pub(crate) struct Snapshots {
    all: OrdMap<SnapshotId, Arc<Snapshot>>,
    /// Those that can be read.
    living: OrdSet<(DatasetId, SnapshotId)>,
    places: OrdMap<u16, SnapshotId>,
    pub(crate) past: past::Past,
    pub(crate) kept: kept::KeptMetablocks,
    /// Files that are held or recovered: metablocks with lower ids are frozen as long as this lease or recovery lasts. No entry
    /// is 0.
    frozen_below: OrdMap<InodeId, MetablockId>,
}

impl Snapshots {
    pub(crate) fn get(&self, number: SnapshotId) -> Option<&Snapshot> {
        self.all.get(&number).map(|snapshot| &**snapshot)
    }

    /// One that can be read.
    pub(crate) fn living(&self, number: SnapshotId) -> Option<&Snapshot> {
        self.get(number).filter(|snapshot| !snapshot.is_removed)
    }

    /// The one at this place.
    pub(crate) fn at_place(&self, place: u16) -> Option<(SnapshotId, &Snapshot)> {
        let number = *self.places.get(&place)?;
        Some((number, self.get(number)?))
    }

    /// A place for a new one of this number.
    ///
    /// The search begins behind the last one given. So a place comes back after all others, and a client that has slept meanwhile
    /// does not take the new snapshot for the old one.
    fn free_place(&self, number: SnapshotId) -> u16 {
        let first = number.raw() % u64::from(u16::MAX);
        let places = (0..u64::from(u16::MAX)).map(|step| (first + step) % u64::from(u16::MAX) + 1);
        let mut places = places.filter_map(|place| u16::try_from(place).ok());
        places.find(|place| !self.places.contains_key(place)).expect("there are fewer snapshots than places")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SnapshotId, &Snapshot)> {
        self.all.iter().map(|(number, snapshot)| (*number, &**snapshot))
    }

    /// How many there are, those that are being pruned among them.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// Those of a dataset that can be read, the newest first.
    pub(crate) fn living_of(&self, dataset: DatasetId) -> impl Iterator<Item = (SnapshotId, &Snapshot)> {
        self.older_than(dataset, SnapshotId::new(u64::MAX))
    }

    /// Those of a dataset that can be read and are older than this one, the newest first.
    pub(crate) fn older_than(
        &self,
        dataset: DatasetId,
        number: SnapshotId,
    ) -> impl Iterator<Item = (SnapshotId, &Snapshot)> {
        let range = (dataset, SnapshotId::new(0))..(dataset, number);
        let numbers = self.living.range::<_, (DatasetId, SnapshotId)>(range).rev();
        numbers.filter_map(|(_, number)| Some((*number, self.get(*number)?)))
    }

    /// The newest of a dataset that can be read.
    pub(crate) fn newest(&self, dataset: DatasetId) -> Option<(SnapshotId, &Snapshot)> {
        // Most clusters have none, and each change of an inode asks.
        if self.living.is_empty() { None } else { self.living_of(dataset).next() }
    }

    /// The newest of a dataset that has a metablock which its file loses now: it is older than that snapshot.
    pub(crate) fn newest_with(&self, dataset: DatasetId, id: MetablockId) -> Option<SnapshotId> {
        // The newest one has the highest bound.
        self.newest(dataset).filter(|(_, snapshot)| id < snapshot.next_metablock).map(|(number, _)| number)
    }

    /// Whether a dataset has one, or one that is being pruned.
    fn has_any(&self, dataset: DatasetId) -> bool {
        self.iter().any(|(_, snapshot)| snapshot.dataset == dataset)
    }

    /// Adds one. False if there is one of this number.
    pub(crate) fn insert(&mut self, number: SnapshotId, snapshot: Snapshot) -> bool {
        if snapshot.is_removed {
            self.living.remove(&(snapshot.dataset, number));
        } else {
            self.living.insert((snapshot.dataset, number));
        }
        self.places.insert(snapshot.slot, number);
        self.all.insert(number, Arc::new(snapshot)).is_none()
    }

    /// Its last record is gone.
    fn end(&mut self, number: SnapshotId) {
        if let Some(snapshot) = self.all.remove(&number) {
            self.places.remove(&snapshot.slot);
        }
    }

    /// What is frozen for a file as long as its lease or recovery lasts: metablocks below this id.
    pub(crate) fn frozen_for(&self, inode: InodeId) -> MetablockId {
        self.frozen_below.get(&inode).copied().unwrap_or_default()
    }

    pub(crate) fn freeze_for(&mut self, inode: InodeId, below: MetablockId) {
        if below > MetablockId::default() {
            self.frozen_below.insert(inode, below);
        }
    }

    /// The lease or recovery is over.
    pub(crate) fn thaw_for(&mut self, inode: InodeId) {
        self.frozen_below.remove(&inode);
    }

    pub(crate) fn all_frozen_for(&self) -> impl Iterator<Item = (InodeId, MetablockId)> {
        self.frozen_below.iter().map(|(inode, below)| (*inode, *below))
    }
}

impl Machine {
    /// Metablocks of this file with lower ids are frozen by snapshots.
    ///
    /// Of a file that is held or recovered, those that were frozen when that began. A holder with an heir on its way would have to
    /// learn that it is needed no more, and write in place what a late swap takes away.
    pub(crate) fn frozen_below(&self, id: InodeId, inode: &Inode) -> MetablockId {
        if inode.holder().is_some() || inode.recovering() {
            return self.snapshots.frozen_for(id);
        }
        self.newly_frozen_below(inode.dataset)
    }

    /// The same by its number; nothing is frozen of one that is gone.
    pub(crate) fn frozen_below_of(&self, id: InodeId) -> MetablockId {
        self.inodes.get(&id).map_or(MetablockId::default(), |inode| self.frozen_below(id, inode))
    }

    /// The same for a lease or a recovery that begins now.
    pub(crate) fn newly_frozen_below(&self, dataset: DatasetId) -> MetablockId {
        self.snapshots.newest(dataset).map_or(MetablockId::default(), |(_, snapshot)| snapshot.next_metablock)
    }

    /// Whether a metablock of a file never changes again: a RAID set has it, or a snapshot.
    pub(crate) fn is_frozen(&self, id: InodeId, inode: &Inode, block: &Metablock) -> bool {
        block.is_frozen(self.frozen_below(id, inode))
    }

    /// Records a snapshot. What its files are is known: none is held, and none is recovered.
    pub(crate) fn take_snapshot(&mut self, call: &mut Call<'_>, op: &meta_op::TakeSnapshot) -> Result<pb::MetaReply> {
        let dataset = DatasetId::new(op.dataset);
        let root = self.check_may_snapshot(dataset, &call.credentials)?;
        self.check_snapshot_name(dataset, &op.name)?;
        if self.entries.get(root, DIRECTORY).is_some() {
            bail!(Exists, "the dataset has an entry .snapshot: snapshots need that name, so rename it first");
        }
        self.check_room_for_snapshot(dataset)?;
        self.check_is_still(dataset)?;
        let number = take_id!(self.next.snapshot, SnapshotId);
        let slot = self.snapshots.free_place(number);
        let snapshot = Snapshot {
            dataset,
            name: op.name.as_slice().into(),
            taken_ns: call.now,
            next_inode: self.next.inode,
            next_metablock: self.next.metablock,
            slot,
            is_removed: false,
        };
        self.snapshots.insert(number, snapshot);
        Ok(self.snapshot_reply(number))
    }

    /// Ends a snapshot for its readers. What it alone has goes step by step ([`prune`]).
    pub(crate) fn remove_snapshot(
        &mut self,
        call: &mut Call<'_>,
        op: &meta_op::RemoveSnapshot,
    ) -> Result<pb::MetaReply> {
        let (dataset, number) = (DatasetId::new(op.dataset), SnapshotId::new(op.snapshot));
        self.check_may_snapshot(dataset, &call.credentials)?;
        let removed = Snapshot { is_removed: true, ..self.find_snapshot(dataset, number)?.clone() };
        self.snapshots.insert(number, removed);
        Ok(pb::MetaReply::default())
    }

    /// Gives a snapshot another name.
    pub(crate) fn rename_snapshot(
        &mut self,
        call: &mut Call<'_>,
        op: &meta_op::RenameSnapshot,
    ) -> Result<pb::MetaReply> {
        let (dataset, number) = (DatasetId::new(op.dataset), SnapshotId::new(op.snapshot));
        self.check_may_snapshot(dataset, &call.credentials)?;
        let old = self.find_snapshot(dataset, number)?.clone();
        if *old.name != op.name[..] {
            self.check_snapshot_name(dataset, &op.name)?;
            self.snapshots.insert(number, Snapshot { name: op.name.as_slice().into(), ..old });
        }
        Ok(self.snapshot_reply(number))
    }

    /// Refuses a caller who does not own the dataset, and takes and removes no snapshots of it. Returns its root directory.
    ///
    /// Errors: `NotFound` for an unknown dataset or one whose directory is gone, `NotPermitted`.
    pub fn check_may_snapshot(&self, dataset: DatasetId, credentials: &Credentials) -> Result<InodeId> {
        let Some(settings) = self.datasets.get(dataset) else { bail!(NotFound, "there is no dataset {dataset}") };
        let root = InodeId::new(settings.root_inode);
        let Some(inode) = self.inodes.get(&root).filter(|inode| inode.nlink > 0) else {
            bail!(NotFound, "the directory of {dataset} has been removed");
        };
        permission::check_owner(root, inode, credentials)?;
        Ok(root)
    }

    fn find_snapshot(&self, dataset: DatasetId, number: SnapshotId) -> Result<&Snapshot> {
        match self.snapshots.living(number).filter(|snapshot| snapshot.dataset == dataset) {
            Some(snapshot) => Ok(snapshot),
            None => bail!(NotFound, "{dataset} has no snapshot {number}"),
        }
    }

    fn check_snapshot_name(&self, dataset: DatasetId, name: &[u8]) -> Result<()> {
        if name.is_empty() || dir::is_dots(name) {
            bail!(Invalid, "{} is no name of a snapshot", dir::show(name));
        }
        dir::check_name(name)?;
        if self.snapshots.living_of(dataset).any(|(_, snapshot)| *snapshot.name == *name) {
            bail!(Exists, "{dataset} has a snapshot {}", dir::show(name));
        }
        Ok(())
    }

    fn check_room_for_snapshot(&self, dataset: DatasetId) -> Result<()> {
        let own = self.snapshots.iter().filter(|(_, snapshot)| snapshot.dataset == dataset).count();
        let all = self.snapshots.count();
        if own >= SNAPSHOTS_PER_DATASET_MAX || all >= SNAPSHOTS_MAX {
            bail!(QuotaExceeded, "{own} snapshots of {dataset} and {all} in all are enough: remove some");
        }
        if self.next.inode.raw() >= INODES_END || self.next.snapshot.raw() >= NUMBER_MAX {
            bail!(Unsupported, "the cluster has inodes up to {}: no room is left for a snapshot's", self.next.inode);
        }
        Ok(())
    }

    /// Refuses while a file of the dataset may have bytes that no record names. They would come into the snapshot afterwards, or be
    /// missing in it though they were acknowledged.
    fn check_is_still(&self, dataset: DatasetId) -> Result<()> {
        let in_the_way = self.uncommitted_files_of(dataset).take(NAMED_MAX + 1);
        let mut named: Vec<String> = in_the_way.map(|id| id.to_string()).collect();
        if named.is_empty() {
            return Ok(());
        }
        if named.len() > NAMED_MAX {
            named[NAMED_MAX] = "others".into();
        }
        bail!(Busy, "{dataset} has files that are written or recovered: {}", named.join(", "))
    }

    /// Refuses the end of a directory that is the root of a dataset with snapshots: the dataset would end with it.
    pub(crate) fn check_has_no_snapshots(&self, root: InodeId) -> Result<()> {
        if self.has_snapshots(root) {
            bail!(Busy, "{root} is the directory of a dataset with snapshots: remove them first");
        }
        Ok(())
    }

    /// Whether a directory is the root of a dataset with snapshots, or with some that are being pruned.
    pub(crate) fn has_snapshots(&self, root: InodeId) -> bool {
        !self.snapshots.all.is_empty()
            && self.datasets.rooted_at(root).is_some_and(|dataset| self.snapshots.has_any(DatasetId::new(dataset.id)))
    }

    /// The same of a directory below this one. Such a directory may lie in the trash, and stays there.
    pub(crate) fn has_snapshots_below(&self, top: InodeId) -> bool {
        let datasets: BTreeSet<DatasetId> = self.snapshots.iter().map(|(_, snapshot)| snapshot.dataset).collect();
        let mut roots = datasets.into_iter().filter_map(|id| self.datasets.get(id)).map(|dataset| dataset.root_inode);
        roots.any(|root| self.is_within(InodeId::new(root), top))
    }

    /// Refuses a new name that leads to the snapshots of the dataset with this root directory.
    pub(crate) fn check_not_of_snapshots(&self, parent: InodeId, name: &[u8]) -> Result<()> {
        if name == DIRECTORY && self.has_snapshots(parent) {
            bail!(Exists, "{} leads to the snapshots of the dataset", dir::show(name));
        }
        Ok(())
    }

    fn snapshot_reply(&self, number: SnapshotId) -> pb::MetaReply {
        let snapshots = self.snapshots.get(number).map(|snapshot| snapshot.to_pb(number));
        pb::MetaReply { snapshots: snapshots.into_iter().collect(), ..Default::default() }
    }

    /// All snapshots, in order of number, those that were removed and are not pruned among them.
    pub fn snapshots(&self) -> impl Iterator<Item = pb::Snapshot> + '_ {
        self.snapshots.iter().map(|(number, snapshot)| snapshot.to_pb(number))
    }
}

impl Snapshot {
    pub(crate) fn to_pb(&self, number: SnapshotId) -> pb::Snapshot {
        pb::Snapshot {
            number: number.raw(),
            dataset: self.dataset.raw(),
            name: self.name.to_vec(),
            taken_ns: self.taken_ns,
            slot: self.slot.into(),
            next_inode: self.next_inode.raw(),
            next_metablock: self.next_metablock.raw(),
            removed: self.is_removed,
        }
    }
}
