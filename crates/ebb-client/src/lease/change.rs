//! Effects of a change of the [hold](crate::lease::hold) on the other state of a file.

use std::collections::BTreeMap;

use ebb_types::{Attr, Error, ErrorKind, Geometry, InodeId, Version};
use ebb_wire::pb;

use crate::inode::{Core, Unrecorded};
use crate::lease::hold::Lease;
use crate::read::cache::BlockCache;
use crate::shared_file::sharing::{End, Stay};
use crate::write::channel::Channel;
use crate::write::extents::Extents;

/// The parts of an answer that come with a lease.
#[derive(Clone, Debug)]
pub(crate) struct Granted {
    /// Attributes.
    pub attr: Attr,
    /// All records.
    pub metablocks: Vec<pb::Metablock>,
    /// The attributes may be believed as long as the lease.
    pub kept: bool,
}

impl Core {
    /// Takes the lease and the attributes of an answer to `Acquire` or `Create`.
    pub fn install(&mut self, cache: &BlockCache, lease: Lease, generation: u64, grant: Granted) {
        let Granted { attr, metablocks, kept } = grant;
        let map: BTreeMap<u64, pb::Metablock> = metablocks.into_iter().map(|block| (block.index, block)).collect();
        self.drop_outdated(cache, attr.inode, &map, attr.storage.geometry);
        self.spoil_fetches();
        // The master gave the lease to this client, and its proxy has not said how it lost it.
        self.end_sharing(End::Lost, attr.inode);
        self.hold.grant(lease, attr.epoch, generation);
        self.size = attr.size;
        self.mtime = attr.mtime;
        self.map = map;
        self.drop_uncommitted();
        self.attr = Some(attr);
        self.attr_stale = !kept;
    }

    /// Bytes cached under an earlier lease are good where the metablock is still at the version that it had then.
    fn drop_outdated(
        &mut self,
        cache: &BlockCache,
        inode: InodeId,
        map: &BTreeMap<u64, pb::Metablock>,
        geometry: Geometry,
    ) {
        let Geometry { block_size, metablock_size: span } = geometry;
        for (index, before) in &self.map {
            // A cut inside what is frozen leaves it at its version, and shows less.
            let shows_as_much = |now: &pb::Metablock| now.frozen.is_none() || now.length >= before.length;
            let is_same = |now: &pb::Metablock| {
                now.id == before.id && now.min_version() == before.min_version() && shows_as_much(now)
            };
            if !map.get(index).is_some_and(is_same) {
                cache.remove(inode, block_size, index * span, (index + 1) * span);
            }
        }
        for index in map.keys().filter(|index| !self.map.contains_key(*index)) {
            cache.remove(inode, block_size, index * span, (index + 1) * span);
        }
    }

    /// The lease is over and everything under it was committed.
    pub fn close_lease(&mut self) {
        self.record_channels();
        self.record_size();
        self.unrecorded = Unrecorded::default();
        self.hold.give_back();
        self.attr_stale = true;
        self.spoil_fetches();
    }

    /// The write lease, with everything committed, becomes a read lease. `attr`: the master's attributes, if they may
    /// be kept.
    pub fn lower_lease(&mut self, attr: Option<Attr>) {
        self.record_channels(); // What was granted and not written is freed.
        self.map.retain(|_, record| record.min_version() != Version::ZERO);
        self.hold.lower();
        self.unrecorded = Unrecorded::default();
        self.attr_stale = attr.is_none();
        match attr {
            Some(attr) => {
                self.size = attr.size;
                self.mtime = attr.mtime;
                self.attr = Some(attr);
            }
            None => self.record_size(),
        }
    }

    /// The master now knows this holder's size and times.
    fn record_size(&mut self) {
        if let Some(attr) = &mut self.attr {
            attr.size = self.size;
            attr.mtime = self.mtime;
            attr.ctime = attr.ctime.max(self.mtime);
        }
    }

    /// Records are as this holder left them.
    fn record_channels(&mut self) {
        assert!(self.dirty.is_empty(), "a lease goes back only when nothing is dirty");
        for (index, channel) in std::mem::take(&mut self.channels) {
            assert!(!channel.is_unsettled(), "a lease goes back only when everything is synced");
            let mut record = channel.record(index);
            record.version = Some(channel.committed.into());
            self.map.insert(index, record);
        }
    }

    /// The proxy no longer has the file, or no longer for this session. True: a write to it may be lost, and the
    /// handles report the loss.
    pub fn end_sharing(&mut self, end: End, inode: InodeId) -> bool {
        let Some(sharing) = self.hold.end_stay(end) else { return false };
        let lost = end == End::Lost && sharing.is_unsynced();
        if lost {
            self.doubt(inode);
        }
        lost
    }

    /// A proxy answered a change that was sent during this stay. True: the stay was lost before the answer came. The
    /// change may be lost with it, and the handles report the loss.
    pub fn on_changed(&mut self, stay: &Stay, inode: InodeId) -> bool {
        if let Some(now) = self.hold.during(stay) {
            now.written += 1;
            return false;
        }
        let lost = !self.hold.was_kept(stay);
        if lost {
            self.doubt(inode);
        }
        lost
    }

    fn doubt(&mut self, inode: InodeId) {
        let detail =
            format!("{inode}: unsynced writes to this shared file may be lost with its proxy, or with the session");
        self.sticky.set(Error::new(ErrorKind::Io, detail));
    }

    /// Everything that was dirty is gone with the lease. Returns the bytes of memory that are free, and whether any
    /// write was lost.
    pub fn lose(&mut self, cache: &BlockCache, inode: InodeId) -> (usize, bool) {
        let staged: usize = self.channels.values().map(Channel::weight).sum();
        let lost = !self.dirty.is_empty()
            || self.unrecorded.mtime && self.unrecorded.any
            || self.channels.values().any(Channel::is_unsettled);
        let weight = staged + self.dirty.bytes() as usize;
        self.hold.lose();
        self.dirty = Extents::default();
        self.drop_uncommitted();
        self.map.clear();
        self.attr_stale = true;
        self.spoil_fetches();
        cache.remove_inode(inode);
        (weight, lost)
    }

    /// There is nothing more to commit of an earlier lease.
    fn drop_uncommitted(&mut self) {
        self.channels.clear();
        self.unrecorded = Unrecorded::default();
    }
}
