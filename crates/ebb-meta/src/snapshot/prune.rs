//! What a removed snapshot left: each record goes to an older snapshot that shows it, or is freed.
//!
//! Only older ones are asked. A newer one may have been taken after the file lost the metablock and before this step; it is younger
//! than the id, and never had it.

use std::sync::Arc;

use ebb_types::{DatasetId, InodeId, MetablockId, Result, SnapshotId, bail};
use ebb_wire::pb;

use super::past::PastName;
use crate::inode::Inode;
use crate::machine::{Call, Machine};
use crate::outcome::Reply;
use crate::replicas::Owner;

/// Records that one step looks at, unless it names another number.
const RECORDS: u32 = 1_000;
/// Most records of one step. The state stands still meanwhile.
const RECORDS_MAX: u32 = 100_000;

impl Machine {
    /// Looks at some of the records that a removed snapshot left. With the last one it ends.
    ///
    /// Ordering: metablocks first, then inodes and names. So what is kept is in a map for as long as it is there.
    pub(crate) fn prune_snapshot(&mut self, call: &mut Call<'_>, op: &pb::PruneSnapshot) -> Result<Reply> {
        let number = SnapshotId::new(op.snapshot);
        let Some(snapshot) = self.snapshots.get(number) else { bail!(NotFound, "there is no snapshot {number}") };
        // I-76: what it shows would be gone.
        if !snapshot.is_removed {
            bail!(Busy, "{number} can be read: remove it first");
        }
        let dataset = snapshot.dataset;
        let mut left = if op.max == 0 { RECORDS } else { op.max.min(RECORDS_MAX) } as usize;
        let blocks: Vec<MetablockId> = self.snapshots.kept.of(number).take(left).collect();
        left -= blocks.len();
        for id in blocks {
            self.prune_metablock(call, number, dataset, id);
        }
        let inodes: Vec<InodeId> = self.snapshots.past.inodes_of(number).take(left).collect();
        left -= inodes.len();
        for id in inodes {
            self.prune_inode(number, dataset, id);
        }
        let names: Vec<(InodeId, u64)> = self.snapshots.past.names_of(number).take(left).collect();
        left -= names.len();
        for (parent, cookie) in names {
            self.prune_name(number, dataset, parent, cookie);
        }
        if left > 0 {
            self.snapshots.end(number);
        }
        Ok(Reply::None)
    }

    fn prune_metablock(&mut self, call: &mut Call<'_>, number: SnapshotId, dataset: DatasetId, id: MetablockId) {
        // It was lost after this snapshot, so an older one had it if it was there at all.
        let older = self.snapshots.older_than(dataset, number).next();
        let Some((older, _)) = older.filter(|(_, snapshot)| id < snapshot.next_metablock) else {
            return self.free_kept(call, number, id);
        };
        if let Some(kept) = self.snapshots.kept.remove(number, id) {
            self.snapshots.kept.insert(older, kept);
            self.replicas.give(id, Owner::Kept(older));
        }
    }

    fn prune_inode(&mut self, number: SnapshotId, dataset: DatasetId, id: InodeId) {
        let older = self.snapshots.older_than(dataset, number).next();
        let older = older.filter(|(_, snapshot)| id < snapshot.next_inode).map(|(older, _)| older);
        let Some(inode) = self.snapshots.past.remove_inode(id, number) else { return };
        match older.filter(|older| !self.has_nearer(id, *older, number)) {
            Some(older) => {
                self.snapshots.past.put_inode(id, older, inode);
            }
            None => self.forget_past(id, &inode),
        }
    }

    /// Whether an older record than this one's says what the snapshot shows of an inode.
    fn has_nearer(&self, id: InodeId, older: SnapshotId, number: SnapshotId) -> bool {
        self.snapshots.past.inode(id, older).is_some_and(|(nearer, _)| nearer < number)
    }

    /// A record of an inode is gone. An inode that is nowhere else counts no more.
    fn forget_past(&mut self, id: InodeId, past: &Arc<Inode>) {
        let dataset = past.dataset;
        if !self.lives_in(id, dataset) && !self.snapshots.past.has_of_dataset(id, dataset) {
            self.datasets.count_past(dataset, -1);
        }
    }

    fn prune_name(&mut self, number: SnapshotId, dataset: DatasetId, parent: InodeId, cookie: u64) {
        let older = self.snapshots.older_than(dataset, number).next().map(|(older, _)| older);
        let Some(past) = self.snapshots.past.remove_name(number, parent, cookie) else { return };
        let PastName { name, .. } = &past;
        let shows = |older: &SnapshotId| {
            let directory = self.inode_in(*older, parent).and_then(|directory| directory.directory());
            let nearer = self.snapshots.past.name(parent, name, *older);
            directory.is_some_and(|directory| cookie < directory.next_cookie)
                && nearer.is_none_or(|(nearer, _)| nearer > number)
        };
        if let Some(older) = older.filter(shows) {
            self.snapshots.past.put_name(older, past);
        }
    }
}
