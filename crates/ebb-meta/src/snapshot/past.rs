//! Inodes and names as snapshots show them: kept at their first change, and read beside what lives.
//!
//! ```text
//!  entries of the log   ----1---------2------------------>
//!  snapshots                | snap1   | snap2
//!  changes of an inode          ^a        ^b    ^c
//!                               |         |     +- nothing: snap2 has its record
//!                               |         +- (inode, snap2): as it was before b
//!                               +- (inode, snap1): as it was before a
//! ```
//! A snapshot shows the record with the least number that is not below its own, or else what lives. Nothing is recorded of what was
//! made after the newest snapshot.

use std::collections::BTreeSet;
use std::iter::Peekable;
use std::sync::Arc;

use ebb_types::{DatasetId, InodeId, MetablockId, SnapshotId};
use ebb_wire::pb;
use imbl::{OrdMap, OrdSet};

use crate::dir::{Entry, Name};
use crate::inode::Inode;
use crate::machine::Machine;

const LAST: SnapshotId = SnapshotId::new(u64::MAX);

/// A name in a past directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PastName {
    pub(crate) parent: InodeId,
    pub(crate) name: Name,
    pub(crate) entry: Entry,
}

/// Records of the past, each under the newest snapshot that shows it.
#[derive(Clone, Default)]
pub(crate) struct Past {
    inodes: OrdMap<(InodeId, SnapshotId), Arc<Inode>>,
    inodes_of: OrdSet<(SnapshotId, InodeId)>,
    by_name: OrdMap<(InodeId, Name, SnapshotId), Entry>,
    by_cookie: OrdMap<(InodeId, u64, SnapshotId), (Name, InodeId)>,
    cookies_of: OrdSet<(SnapshotId, InodeId, u64)>,
}

impl Past {
    /// The record of an inode that this snapshot shows, if it changed since.
    pub(crate) fn inode(&self, id: InodeId, number: SnapshotId) -> Option<(SnapshotId, &Arc<Inode>)> {
        let range = (id, number)..=(id, LAST);
        let found = self.inodes.range::<_, (InodeId, SnapshotId)>(range).next();
        found.map(|((_, number), inode)| (*number, inode))
    }

    /// Adds one. False if there is one of this inode under this number.
    pub(crate) fn put_inode(&mut self, id: InodeId, number: SnapshotId, inode: Arc<Inode>) -> bool {
        self.inodes_of.insert((number, id));
        self.inodes.insert((id, number), inode).is_none()
    }

    pub(crate) fn remove_inode(&mut self, id: InodeId, number: SnapshotId) -> Option<Arc<Inode>> {
        self.inodes_of.remove(&(number, id));
        self.inodes.remove(&(id, number))
    }

    /// Inodes with a record under this number, in order.
    pub(crate) fn inodes_of(&self, number: SnapshotId) -> impl Iterator<Item = InodeId> {
        let range = (number, InodeId::new(0))..=(number, InodeId::new(u64::MAX));
        self.inodes_of.range::<_, (SnapshotId, InodeId)>(range).map(|(_, id)| *id)
    }

    /// Whether a dataset has a record of this inode, which may have belonged to another one first.
    pub(crate) fn has_of_dataset(&self, id: InodeId, dataset: DatasetId) -> bool {
        let range = (id, SnapshotId::new(0))..=(id, LAST);
        self.inodes.range::<_, (InodeId, SnapshotId)>(range).any(|(_, inode)| inode.dataset == dataset)
    }

    pub(crate) fn inodes(&self) -> impl Iterator<Item = (SnapshotId, InodeId, &Inode)> {
        self.inodes.iter().map(|((id, number), inode)| (*number, *id, &**inode))
    }

    /// The record of a name that this snapshot may show, if it was removed or replaced since.
    pub(crate) fn name(&self, parent: InodeId, name: &Name, number: SnapshotId) -> Option<(SnapshotId, Entry)> {
        let range = (parent, Arc::clone(name), number)..=(parent, Arc::clone(name), LAST);
        let found = self.by_name.range::<_, (InodeId, Name, SnapshotId)>(range).next();
        found.map(|((.., number), entry)| (*number, *entry))
    }

    /// The same by the place in listings.
    fn place(&self, parent: InodeId, cookie: u64, number: SnapshotId) -> Option<&(Name, InodeId)> {
        let range = (parent, cookie, number)..=(parent, cookie, LAST);
        self.by_cookie.range::<_, (InodeId, u64, SnapshotId)>(range).next().map(|(_, found)| found)
    }

    /// Adds one. False if there is one of this name, or at this place, under this number.
    pub(crate) fn put_name(&mut self, number: SnapshotId, past: PastName) -> bool {
        let PastName { parent, name, entry: Entry { inode, cookie } } = past;
        self.cookies_of.insert((number, parent, cookie));
        let is_new = self.by_cookie.insert((parent, cookie, number), (Arc::clone(&name), inode)).is_none();
        self.by_name.insert((parent, name, number), Entry { inode, cookie }).is_none() && is_new
    }

    pub(crate) fn remove_name(&mut self, number: SnapshotId, parent: InodeId, cookie: u64) -> Option<PastName> {
        self.cookies_of.remove(&(number, parent, cookie));
        let (name, inode) = self.by_cookie.remove(&(parent, cookie, number))?;
        self.by_name.remove(&(parent, Arc::clone(&name), number));
        Some(PastName { parent, name, entry: Entry { inode, cookie } })
    }

    /// Directories and places of names with a record under this number, in order.
    pub(crate) fn names_of(&self, number: SnapshotId) -> impl Iterator<Item = (InodeId, u64)> {
        let range = (number, InodeId::new(0), 0)..=(number, InodeId::new(u64::MAX), u64::MAX);
        self.cookies_of.range::<_, (SnapshotId, InodeId, u64)>(range).map(|(_, parent, cookie)| (*parent, *cookie))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = (SnapshotId, InodeId, &Name, Entry)> {
        self.by_name.iter().map(|((parent, name, number), entry)| (*number, *parent, name, *entry))
    }

    /// Whether the indexes have the same records.
    pub(crate) fn agree(&self) -> bool {
        let is_known = |((parent, name, number), entry): (&(InodeId, Name, SnapshotId), &Entry)| {
            self.by_cookie.get(&(*parent, entry.cookie, *number)) == Some(&(Arc::clone(name), entry.inode))
                && self.cookies_of.contains(&(*number, *parent, entry.cookie))
        };
        self.by_name.len() == self.by_cookie.len()
            && self.by_name.len() == self.cookies_of.len()
            && self.by_name.iter().all(is_known)
            && self.inodes.len() == self.inodes_of.len()
            && self.inodes.keys().all(|(id, number)| self.inodes_of.contains(&(*number, *id)))
    }

    /// Places of a directory behind this one that the snapshot may show, each once and in order.
    fn places(&self, parent: InodeId, after: u64, number: SnapshotId) -> impl Iterator<Item = (u64, &Name, InodeId)> {
        let range = (parent, after.saturating_add(1), SnapshotId::new(0))..=(parent, u64::MAX, LAST);
        let mut last = after;
        let records = self.by_cookie.range::<_, (InodeId, u64, SnapshotId)>(range);
        records.filter_map(move |((_, cookie, of), (name, inode))| {
            let is_shown = *of >= number && *cookie > last;
            last = if is_shown { *cookie } else { last };
            is_shown.then_some((*cookie, name, *inode))
        })
    }
}

impl Machine {
    /// The door of all changes of an inode: the newest snapshot that shows it keeps it as it is, once.
    pub(crate) fn preserve(&mut self, id: InodeId) {
        let Some(inode) = self.inodes.get(&id) else { return };
        let Some((number, snapshot)) = self.snapshots.newest(inode.dataset) else { return };
        if id >= snapshot.next_inode || self.snapshots.past.inode(id, number).is_some() {
            return;
        }
        let inode = Arc::clone(inode);
        let is_new = self.snapshots.past.put_inode(id, number, inode);
        assert!(is_new, "{number} keeps {id} twice: it would show a later change");
    }

    /// The door of all names that are removed or replaced, before that is done. A name that leads elsewhere keeps its place, so one
    /// that has a record already is not what the snapshot shows.
    pub(crate) fn preserve_name(&mut self, parent: InodeId, name: &[u8]) {
        let Some(directory) = self.inodes.get(&parent) else { return };
        let Some((number, _)) = self.snapshots.newest(directory.dataset) else { return };
        let Some(entry) = self.entries.get(parent, name) else { return };
        let name: Name = name.into();
        let shown = self.inode_in(number, parent).and_then(|directory| directory.directory());
        if shown.is_none_or(|shown| entry.cookie >= shown.next_cookie)
            || self.snapshots.past.name(parent, &name, number).is_some()
        {
            return;
        }
        let is_new = self.snapshots.past.put_name(number, PastName { parent, name, entry });
        assert!(is_new, "{number} keeps a name of {parent} twice");
    }

    /// Inodes that snapshots alone show, by dataset. An inode that went from one dataset to another counts in the first.
    pub(crate) fn past_alone(&self) -> BTreeSet<(DatasetId, InodeId)> {
        let gone = self.snapshots.past.inodes().filter(|(_, id, past)| !self.lives_in(*id, past.dataset));
        gone.map(|(_, id, past)| (past.dataset, id)).collect()
    }

    /// Whether a dataset has this inode now.
    pub(crate) fn lives_in(&self, id: InodeId, dataset: DatasetId) -> bool {
        self.inodes.get(&id).is_some_and(|inode| inode.dataset == dataset)
    }

    /// A dataset has lost an inode, to nobody or to another dataset: it counts as long as snapshots show it.
    pub(crate) fn count_as_past(&mut self, id: InodeId, dataset: DatasetId) {
        if self.snapshots.past.has_of_dataset(id, dataset) {
            self.datasets.count_past(dataset, 1);
        }
    }

    /// An inode as a snapshot shows it; none of what was made later, or of another dataset. A snapshot that is pruned shows what is
    /// left of it.
    pub(crate) fn inode_in(&self, number: SnapshotId, id: InodeId) -> Option<&Inode> {
        let snapshot = self.snapshots.get(number)?;
        if id >= snapshot.next_inode {
            return None;
        }
        let inode = match self.snapshots.past.inode(id, number) {
            Some((_, inode)) => inode,
            None => self.inodes.get(&id)?,
        };
        (inode.dataset == snapshot.dataset).then_some(&**inode)
    }

    /// A name in a directory as a snapshot shows it. It may lead to the root of another dataset, which the snapshot shows empty.
    pub(crate) fn entry_in(&self, number: SnapshotId, parent: InodeId, name: &[u8]) -> Option<Entry> {
        let next = self.inode_in(number, parent)?.directory()?.next_cookie;
        let entry = match self.snapshots.past.name(parent, &name.into(), number) {
            Some((_, entry)) => entry,
            None => self.entries.get(parent, name)?,
        };
        (entry.cookie < next).then_some(entry)
    }

    /// Entries of a directory behind a cookie as a snapshot shows them, in order of cookie.
    pub(crate) fn entries_in(
        &self,
        number: SnapshotId,
        parent: InodeId,
        after: u64,
    ) -> impl Iterator<Item = (u64, &Name, InodeId)> {
        let directory = self.inode_in(number, parent).and_then(|inode| inode.directory());
        let next = directory.map_or(0, |body| body.next_cookie);
        let past = &self.snapshots.past;
        let left = self.entries.after(parent, after);
        let left = left.filter(move |(cookie, ..)| past.place(parent, *cookie, number).is_none());
        let gone = past.places(parent, after, number);
        Merged { left: left.peekable(), gone: gone.peekable() }.take_while(move |(cookie, ..)| *cookie < next)
    }

    /// The metablocks of a file from this index on as a snapshot shows them: places and versions of then, members of now.
    pub(crate) fn metablocks_in(
        &self,
        number: SnapshotId,
        id: InodeId,
        first: u64,
    ) -> impl Iterator<Item = pb::Metablock> + '_ {
        let file = self.inode_in(number, id).and_then(|inode| inode.file());
        let shown = move |then: &crate::map::Metablock| {
            let now = self.metablock(then.id)?;
            let length = now.stored_length();
            let raid_set = now.frozen.and_then(|frozen| Some((frozen.raid_set?, frozen.slot)));
            let (raid_set, slot) = raid_set.map_or((0, 0), |(id, slot)| (id.raw(), slot));
            Some(pb::Metablock {
                length: then.length,
                version: Some(then.version.into()),
                committed_s: then.committed_s,
                frozen: Some(pb::Frozen { raid_set, slot, length }),
                ..now.to_pb()
            })
        };
        file.into_iter().flat_map(move |file| file.map.starting_at(first)).filter_map(shown)
    }

    /// Whether a snapshot's map of a file has this metablock.
    pub(crate) fn is_shown(&self, number: SnapshotId, inode: InodeId, id: MetablockId) -> bool {
        self.inode_in(number, inode).and_then(|inode| inode.file()?.map.get(id)).is_some()
    }
}

/// Two listings of different places, as one.
struct Merged<A: Iterator, B: Iterator> {
    left: Peekable<A>,
    gone: Peekable<B>,
}

impl<'a, A, B> Iterator for Merged<A, B>
where
    A: Iterator<Item = (u64, &'a Name, InodeId)>,
    B: Iterator<Item = (u64, &'a Name, InodeId)>,
{
    type Item = (u64, &'a Name, InodeId);

    fn next(&mut self) -> Option<Self::Item> {
        match (self.left.peek(), self.gone.peek()) {
            (Some((left, ..)), Some((gone, ..))) if left > gone => self.gone.next(),
            (Some(_), _) => self.left.next(),
            (None, _) => self.gone.next(),
        }
    }
}
