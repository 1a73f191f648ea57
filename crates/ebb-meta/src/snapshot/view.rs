//! One tree for queries: the live one, with the snapshots of each dataset below `.snapshot` of its root directory.
//!
//! Numbers of inodes tell both apart ([`ebb_types::snapshot`]). Queries read by the functions of this file alone. Changes read the
//! live tree, and refuse an inode of a snapshot there.

use std::borrow::Cow;
use std::sync::Arc;

use ebb_types::snapshot::{DIRECTORY, Shown};
use ebb_types::{DatasetId, Epoch, InodeId, Result, SnapshotId, bail};
use ebb_wire::pb;

use super::Snapshot;
use crate::dir::{self, Name};
use crate::inode::{Body, COOKIE_FIRST, DirectoryBody, Inode};
use crate::machine::Machine;

/// A directory that no record has: everybody may list it, nobody change it.
const MODE: u32 = 0o555;

/// An entry in a listing: its place, its name, and where it leads.
pub(crate) type Listed = (u64, Name, InodeId);

impl Machine {
    /// An inode of the live tree or of a snapshot. Fails with kind `Stale` if it is gone, or the snapshot is.
    pub(crate) fn inode_at(&self, id: InodeId) -> Result<Cow<'_, Inode>> {
        let Some(Shown { place, inode }) = id.shown() else { return self.inode(id).map(Cow::Borrowed) };
        if place == 0 {
            let dataset = self.dataset_rooted_at(inode)?;
            let newest = self.snapshots.newest(dataset).map_or(0, |(_, snapshot)| snapshot.taken_ns);
            return Ok(Cow::Owned(bare_directory(dataset, inode, newest)));
        }
        let (number, snapshot) = self.snapshot_at(place, id)?;
        Ok(match self.inode_in(number, inode) {
            Some(found) => Cow::Borrowed(found),
            // The root of another dataset, which is no part of the snapshot.
            None if inode < snapshot.next_inode => {
                Cow::Owned(bare_directory(snapshot.dataset, inode, snapshot.taken_ns))
            }
            None => bail!(Stale, "{number} has no {inode}"),
        })
    }

    /// The same of a directory. Fails with kind `NotDirectory` if it is none.
    pub(crate) fn directory_at(&self, id: InodeId) -> Result<Cow<'_, Inode>> {
        let inode = self.inode_at(id)?;
        if !inode.is_directory() {
            bail!(NotDirectory, "{id} is not a directory");
        }
        Ok(inode)
    }

    /// The directory above a directory.
    pub(crate) fn parent_at(&self, id: InodeId) -> Result<InodeId> {
        let directory = self.directory_at(id)?;
        let above = directory.directory().map_or(InodeId::ROOT, |body| body.parent);
        let Some(Shown { place, inode }) = id.shown() else { return Ok(above) };
        if place == 0 {
            return Ok(inode);
        }
        let (_, snapshot) = self.snapshot_at(place, id)?;
        let root = self.datasets.settings(snapshot.dataset).root_inode;
        Ok(if inode.raw() == root { Shown { place: 0, inode }.id() } else { Shown { place, inode: above }.id() })
    }

    /// Where a name of a directory leads, `.` and `..` excepted. The directory was found before.
    pub(crate) fn entry_at(&self, parent: InodeId, name: &[u8]) -> Option<InodeId> {
        let Some(Shown { place, inode }) = parent.shown() else {
            if name == DIRECTORY && self.shows_snapshots(parent) {
                return Some(Shown { place: 0, inode: parent }.id());
            }
            return self.entries.get(parent, name).map(|entry| entry.inode);
        };
        if place == 0 {
            let dataset = self.dataset_rooted_at(inode).ok()?;
            let (_, found) = self.snapshots.living_of(dataset).find(|(_, snapshot)| *snapshot.name == *name)?;
            return Some(Shown { place: found.slot, inode }.id());
        }
        let (number, _) = self.snapshot_at(place, parent).ok()?;
        self.entry_in(number, inode, name).map(|entry| Shown { place, inode: entry.inode }.id())
    }

    /// Entries of a directory behind a place in its listing, in order.
    pub(crate) fn entries_at(&self, parent: InodeId, after: u64) -> Box<dyn Iterator<Item = Listed> + '_> {
        let Some(Shown { place, inode }) = parent.shown() else {
            return Box::new(
                self.entries.after(parent, after).map(|(cookie, name, inode)| (cookie, name.clone(), inode)),
            );
        };
        if place == 0 {
            return Box::new(self.list_snapshots(inode, after));
        }
        let number = self.snapshot_at(place, parent).map_or(SnapshotId::default(), |(number, _)| number);
        let found = self.entries_in(number, inode, after);
        Box::new(found.map(move |(cookie, name, inode)| (cookie, Arc::clone(name), Shown { place, inode }.id())))
    }

    /// The metablocks of a file from this index on, in order and so many at most, as messages to clients have them.
    pub(crate) fn metablocks_at(&self, id: InodeId, first: u64, most: usize) -> Result<Vec<pb::Metablock>> {
        match id.shown() {
            Some(Shown { place, inode }) => {
                let (number, _) = self.snapshot_at(place, id)?;
                Ok(self.metablocks_in(number, inode, first).take(most).collect())
            }
            None => {
                let inode = self.inode(id)?;
                let below = self.frozen_below(id, inode);
                let blocks = inode.file().into_iter().flat_map(|file| file.map.starting_at(first));
                Ok(blocks.take(most).map(|block| self.shown(id, below, block)).collect())
            }
        }
    }

    /// The snapshots of a dataset that can be read, for a message.
    pub(crate) fn snapshots_of(&self, dataset: DatasetId) -> Vec<pb::Snapshot> {
        let mut found: Vec<pb::Snapshot> =
            self.snapshots.living_of(dataset).map(|(number, snapshot)| snapshot.to_pb(number)).collect();
        found.reverse();
        found
    }

    fn list_snapshots(&self, root: InodeId, after: u64) -> impl Iterator<Item = Listed> + '_ {
        let dataset = self.dataset_rooted_at(root);
        let mut found: Vec<Listed> = Vec::new();
        for (number, snapshot) in dataset.into_iter().flat_map(|dataset| self.snapshots.living_of(dataset)) {
            let cookie = number.raw() + COOKIE_FIRST;
            if cookie <= after {
                break;
            }
            found.push((cookie, Arc::clone(&snapshot.name), Shown { place: snapshot.slot, inode: root }.id()));
        }
        // The newest come first there, and the listing goes by number.
        found.into_iter().rev()
    }

    /// Whether a directory of the live tree has `.snapshot`.
    fn shows_snapshots(&self, root: InodeId) -> bool {
        let dataset = self.datasets.rooted_at(root).map(|dataset| DatasetId::new(dataset.id));
        dataset.is_some_and(|dataset| self.snapshots.newest(dataset).is_some())
    }

    fn dataset_rooted_at(&self, root: InodeId) -> Result<DatasetId> {
        match self.datasets.rooted_at(root) {
            Some(dataset) => Ok(DatasetId::new(dataset.id)),
            None => bail!(Stale, "{root} is no root directory of a dataset any more"),
        }
    }

    fn snapshot_at(&self, place: u16, id: InodeId) -> Result<(SnapshotId, &Snapshot)> {
        match self.snapshots.at_place(place) {
            Some((number, snapshot)) if !snapshot.is_removed => Ok((number, snapshot)),
            _ => bail!(Stale, "the snapshot of {id} was removed"),
        }
    }

    /// Refuses an inode of a snapshot, for a change.
    pub(crate) fn check_is_live(&self, id: InodeId) -> Result<()> {
        match id.shown() {
            Some(_) => bail!(ReadOnly, "{id} is in {}, where nothing changes", dir::show(DIRECTORY)),
            None => Ok(()),
        }
    }
}

fn bare_directory(dataset: DatasetId, parent: InodeId, at_ns: i64) -> Inode {
    Inode {
        mode: MODE,
        nlink: 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        atime: at_ns,
        mtime: at_ns,
        ctime: at_ns,
        btime: at_ns,
        epoch: Epoch::default(),
        size_generation: 0,
        takeovers: 0,
        dataset,
        xattrs: None,
        body: Body::Directory(DirectoryBody { parent, next_cookie: COOKIE_FIRST, count: 0 }),
    }
}
