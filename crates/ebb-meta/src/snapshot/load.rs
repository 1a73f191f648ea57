//! Snapshots in checkpoints.

use std::sync::Arc;

use ebb_types::{DatasetId, InodeId, MetablockId, Result, SnapshotId, bail};
use ebb_wire::pb;
use ebb_wire::pb::checkpoint_record::Record;

use super::past::PastName;
use super::{SNAPSHOTS_MAX, Snapshot, kept::Kept};
use crate::dir::{Entry, check_name};
use crate::inode::{FILE_SIZE_MAX, Inode};
use crate::machine::Machine;
use crate::map::Metablock;
use crate::replicas::Owner;

impl Machine {
    /// Records of all snapshots: themselves first, then what they keep.
    pub(crate) fn snapshot_records(&self) -> impl Iterator<Item = Record> + '_ {
        let snapshots = self.snapshots().map(Record::Snapshot);
        let kept = self.snapshots.kept.iter().map(|(number, kept)| Record::Kept(kept.to_pb(number)));
        let inodes = self.snapshots.past.inodes().map(|(number, id, inode)| {
            let inode = Some(self.past_record(id, inode));
            Record::PastInode(pb::PastInode { snapshot: number.raw(), inode })
        });
        let names = self.snapshots.past.names().map(|(number, parent, name, entry)| {
            Record::PastEntry(pb::PastEntry {
                snapshot: number.raw(),
                parent: parent.raw(),
                name: name.to_vec(),
                inode: entry.inode.raw(),
                cookie: entry.cookie,
            })
        });
        snapshots.chain(kept).chain(inodes).chain(names)
    }

    /// A past inode. Where its metablocks lie is in their own records.
    fn past_record(&self, id: InodeId, inode: &Inode) -> pb::InodeRecord {
        let mut record = self.bare_record(id, inode);
        record.metablocks = inode.file().into_iter().flat_map(|file| file.map.iter()).map(past_block).collect();
        record
    }

    pub(crate) fn load_snapshot(&mut self, record: &pb::Snapshot) -> Result<()> {
        let number = SnapshotId::new(record.number);
        let slot = u16::try_from(record.slot).unwrap_or_default();
        let snapshot = Snapshot {
            dataset: DatasetId::new(record.dataset),
            name: record.name.as_slice().into(),
            taken_ns: record.taken_ns,
            next_inode: InodeId::new(record.next_inode),
            next_metablock: MetablockId::new(record.next_metablock),
            slot,
            is_removed: record.removed,
        };
        let fits = number.raw() > 0
            && number < self.next.snapshot
            && snapshot.next_inode <= self.next.inode
            && snapshot.next_metablock <= self.next.metablock;
        if !fits || check_name(&snapshot.name).is_err() {
            bail!(Corrupt, "{number} names what is above a counter, or has no name");
        }
        if slot == 0 || self.snapshots.at_place(slot).is_some() || self.snapshots.count() >= SNAPSHOTS_MAX {
            bail!(Corrupt, "{number} has the place {slot}, which is another's or nobody's");
        }
        if !self.snapshots.insert(number, snapshot) {
            bail!(Corrupt, "{number} is recorded twice");
        }
        Ok(())
    }

    pub(crate) fn load_kept(&mut self, record: &pb::KeptMetablock) -> Result<()> {
        let number = SnapshotId::new(record.snapshot);
        let kept = Kept::from_pb(record)?;
        crate::checkpoint::inode::check_block(&kept.block, self.next.metablock)?;
        let (id, members) = (kept.block.id, Arc::clone(&kept.block.members));
        let snapshot = self.snapshots.get(number);
        if snapshot.is_none_or(|one| one.dataset != kept.dataset || id >= one.next_metablock) {
            bail!(Corrupt, "{id} is kept for {number}, which never had it");
        }
        self.datasets.count_kept(kept.dataset, 0, kept.block.length);
        if !self.replicas.add(Owner::Kept(number), id, &members) || !self.snapshots.kept.insert(number, kept) {
            bail!(Corrupt, "{id} is kept for {number}, and recorded elsewhere");
        }
        Ok(())
    }

    /// Takes an inode in that was decoded already.
    pub(crate) fn load_past_inode(&mut self, number: SnapshotId, id: InodeId, inode: Inode) -> Result<()> {
        let snapshot = self.snapshots.get(number);
        if snapshot.is_none_or(|one| one.dataset != inode.dataset || id >= one.next_inode) {
            bail!(Corrupt, "{id} is kept for {number}, which never showed it");
        }
        if let Some(file) = inode.file() {
            let is_idle = file.holder.is_none() && !file.recovering && file.trim.is_none() && file.heirs.is_empty();
            let fits = |block: &Metablock| {
                block.id < self.next.metablock && block.length <= FILE_SIZE_MAX && block.frozen.is_none()
            };
            if !is_idle || !file.map.iter().all(fits) {
                bail!(Corrupt, "{number} keeps {id} as it was written, or with what nobody granted");
            }
        }
        if !self.snapshots.past.put_inode(id, number, Arc::new(inode)) {
            bail!(Corrupt, "{number} keeps {id} twice");
        }
        Ok(())
    }

    pub(crate) fn load_past_name(&mut self, record: &pb::PastEntry) -> Result<()> {
        let (number, parent) = (SnapshotId::new(record.snapshot), InodeId::new(record.parent));
        let snapshot = self.snapshots.get(number);
        let inode = InodeId::new(record.inode);
        let is_older = snapshot.is_some_and(|one| parent < one.next_inode && inode < one.next_inode);
        if !is_older || check_name(&record.name).is_err() {
            bail!(Corrupt, "{number} keeps a name of {parent} that it never showed");
        }
        let entry = Entry { inode, cookie: record.cookie };
        let name = PastName { parent, name: record.name.as_slice().into(), entry };
        if !self.snapshots.past.put_name(number, name) {
            bail!(Corrupt, "{number} keeps a name of {parent} twice");
        }
        Ok(())
    }

    /// Checks and counts that need all records: snapshots come before some of them.
    pub(crate) fn finish_snapshots(&mut self) -> Result<()> {
        for (dataset, _) in self.past_alone() {
            self.datasets.count_past(dataset, 1);
        }
        for (number, snapshot) in self.snapshots.iter() {
            if self.datasets.get(snapshot.dataset).is_none() {
                bail!(Corrupt, "{number} is of {}, which is not recorded", snapshot.dataset);
            }
        }
        for (inode, below) in self.snapshots.all_frozen_for() {
            if !self.may_have_uncommitted(inode) || below > self.next.metablock {
                bail!(Corrupt, "{inode} has frozen metablocks up to {below}, and nobody writes it");
            }
        }
        // A writer of these would meet the assertions of the state machine. Files without one have no heirs.
        for id in self.uncommitted_files() {
            let Some(file) = self.inodes.get(&id).and_then(|inode| inode.file()) else { continue };
            let below = self.frozen_below_of(id);
            let is_frozen = |of| file.map.get(of).is_some_and(|block| block.is_frozen(below));
            if let Some(heir) = file.heirs.iter().find(|heir| !is_frozen(heir.of)) {
                bail!(Corrupt, "{} is an heir of {} in {id}, which is not frozen", heir.id, heir.of);
            }
        }
        Ok(())
    }
}

/// What snapshots show of a metablock of a file.
fn past_block(block: &Metablock) -> pb::Metablock {
    pb::Metablock {
        id: block.id.raw(),
        index: block.index,
        version: Some(block.version.into()),
        length: block.length,
        committed_s: block.committed_s,
        ..Default::default()
    }
}
