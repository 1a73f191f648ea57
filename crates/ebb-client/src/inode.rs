//! State of one file in a client: lease, attributes, map, channels, dirty bytes, sticky error.
//!
//! A file has two locks. `gate` orders operations against changes of the lease. Reads and writes pass it together. A
//! task that takes or gives back a lease, or sets the size, passes it alone. `core` protects the plain state and is
//! never held across an await. Bytes that are in memory are read under `core` alone, so they wait for no flush.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use ebb_types::{Attr, Geometry, InodeId, Result, Version, WallTime};
use ebb_wire::pb;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::lease::hold::Hold;
use crate::read::cache::{Asker, BlockCache, Cause};
use crate::read::gather::Gather;
use crate::write::channel::{Channel, Copies};
use crate::write::extents::Extents;
use crate::write::outgoing::{Content, Outgoing};
use crate::write::sticky::Sticky;

/// One file.
#[derive(Debug)]
pub(crate) struct Inode {
    /// Its id.
    pub id: InodeId,
    /// Operations pass together, changes of lease and size alone.
    pub gate: Arc<tokio::sync::RwLock<()>>,
    /// Writes of this client to this file, one after the other: appends find the end, overlaps have an order.
    pub order: tokio::sync::Mutex<()>,
    /// Commits and truncates of this file, one after the other.
    pub committing: Arc<tokio::sync::Mutex<()>>,
    /// Grants of this file, one after the other.
    pub granting: tokio::sync::Mutex<()>,
    /// Plain state.
    pub core: Mutex<Core>,
    /// Notified when a write was settled or failed, or when the lease was lost.
    pub progress: Notify,
    /// Time of the last use, on a counter.
    pub used: AtomicU64,
}

impl Inode {
    /// A file of which nothing is known. `write_max`: bytes of a write to a block, as [`crate::options::Sizes`] has it.
    pub fn new(id: InodeId, write_max: u64) -> Self {
        assert!(write_max > 0, "a write has bytes");
        Self {
            id,
            gate: Arc::default(),
            order: tokio::sync::Mutex::default(),
            committing: Arc::default(),
            granting: tokio::sync::Mutex::default(),
            core: Mutex::new(Core { write_max, ..Core::default() }),
            progress: Notify::new(),
            used: AtomicU64::new(0),
        }
    }
}

/// Bytes on their way from a member.
#[derive(Debug)]
pub(crate) struct Fetch {
    /// First byte, in the file.
    pub start: u64,
    /// End of the range, in the file. Bytes that the member did not have are zero.
    pub end: u64,
    /// Whether a program asked for it.
    pub cause: Cause,
    result: Mutex<Option<Result<Bytes>>>,
    /// A write to this range was settled since the fetch began, so the fetch may have read the earlier bytes.
    stale: AtomicBool,
    done: Notify,
}

impl Fetch {
    /// A fetch that was just begun.
    pub fn new(start: u64, end: u64, cause: Cause) -> Self {
        Self { start, end, cause, result: Mutex::new(None), stale: AtomicBool::new(false), done: Notify::new() }
    }

    /// Ends it.
    pub fn finish(&self, result: Result<Bytes>) {
        *self.result.lock() = Some(result);
        self.done.notify_waiters();
    }

    /// How it ended.
    pub fn result(&self) -> Option<Result<Bytes>> {
        self.result.lock().clone()
    }

    /// Waits for the end.
    pub async fn wait(&self) {
        loop {
            let done = self.done.notified();
            tokio::pin!(done);
            done.as_mut().enable();
            if self.result.lock().is_some() {
                return;
            }
            done.await;
        }
    }

    /// Whether its bytes may be shown.
    pub fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Relaxed)
    }

    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.start < end && start < self.end
    }
}

/// Size and time that a flush has made durable, so that a commit may report them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Durable {
    /// All bytes below are synced.
    pub size: u64,
    /// Of the last write below it. `None`: unchanged.
    pub mtime: Option<WallTime>,
}

/// Changes under a write lease that the master has not recorded, besides the versions of metablocks. They end with the
/// lease, whether it goes back or is lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unrecorded {
    /// There is something to commit.
    pub any: bool,
    /// The modification time: data was written since the last commit of a time, or since the time was set by hand.
    pub mtime: bool,
    /// Size and time that a commit may report.
    pub durable: Option<Durable>,
    /// A trim that is on all members.
    pub trim: bool,
    /// The loss of set-user-id and set-group-id: a writer without the privilege to keep them wrote data.
    pub privileges: bool,
}

/// Whether the master counts this session among those that have a file open, as far as the session can know.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum Registered {
    /// It does not.
    #[default]
    No,
    /// It may, because an open was requested. The master hears when the last handle is closed.
    Maybe,
    /// It does.
    Yes,
}

impl Registered {
    /// Whether the master may have a registration to remove.
    pub fn may_be(self) -> bool {
        self != Self::No
    }

    /// Raises the state to at least `to`.
    pub fn raise(&mut self, to: Self) {
        *self = to.max(*self);
    }
}

/// The plain state of a file.
#[derive(Debug, Default)]
pub(crate) struct Core {
    /// Attributes, as the master sent them last.
    pub attr: Option<Attr>,
    /// Names or attributes were changed elsewhere since.
    pub attr_stale: bool,
    /// A lease, a part in a shared file, or nothing.
    pub hold: Hold,
    /// Length, including writes that are not committed.
    pub size: u64,
    /// Modification time, including writes that are not committed.
    pub mtime: WallTime,
    /// Records by index: all that the master has.
    pub map: BTreeMap<u64, pb::Metablock>,
    /// Metablocks written under this lease, by index.
    pub channels: BTreeMap<u64, Channel>,
    /// Written and not yet handed to a channel.
    pub dirty: Extents,
    /// Bytes on their way.
    pub fetches: Vec<Arc<Fetch>>,
    /// Error that each handle reports once.
    pub sticky: Sticky,
    /// Handles.
    pub open_count: u32,
    /// Whether the master counts this session among those that have it open. It is independent of `open_count`: the
    /// master hears of the last handle's end later, or not at all.
    pub registered: Registered,
    /// Changes that the master has not recorded, besides the versions of metablocks.
    pub unrecorded: Unrecorded,
    /// Hosts for its metablocks (G7); empty: the default.
    pub affinity: Vec<String>,
    next_serial: u64,
    /// Bytes of a write to a block.
    write_max: u64,
}

impl Core {
    /// Block and metablock size.
    pub fn geometry(&self) -> Geometry {
        match &self.attr {
            Some(attr) if attr.storage.geometry.check().is_ok() => attr.storage.geometry,
            _ => Geometry::default(),
        }
    }

    /// Marks all fetches as stale. They were requested under an earlier lease, so their bytes may not be kept.
    pub fn spoil_fetches(&self) {
        for fetch in &self.fetches {
            fetch.stale.store(true, Ordering::Relaxed);
        }
    }

    /// The channel of a metablock; its record must be there.
    pub fn channel(&mut self, index: u64) -> Option<&mut Channel> {
        if !self.channels.contains_key(&index) {
            let record = self.map.get(&index)?;
            self.next_serial += 1;
            let copies = Copies::of(self.attr.as_ref());
            let channel = Channel::new(record, record.min_version(), self.hold.epoch(), self.next_serial, copies);
            self.channels.insert(index, channel);
        }
        self.channels.get_mut(&index)
    }

    /// Hands the dirty bytes of `start..end` to their channels; returns the metablocks that have something to send.
    pub fn stage(&mut self, start: u64, end: u64) -> Vec<u64> {
        let geometry = self.geometry();
        let mut touched = Vec::new();
        let mut run: Vec<Bytes> = Vec::new();
        let (mut run_start, mut run_end) = (0, 0);
        let mut runs = Vec::new();
        for (offset, mut data) in self.dirty.take_range(start, end) {
            let mut from = offset;
            while !data.is_empty() {
                let unit = geometry.part_of_block(from, self.write_max);
                let part = data.split_to(data.len().min((unit.end - from) as usize));
                if !run.is_empty() && (from != run_end || from == unit.start) {
                    runs.push((run_start, std::mem::take(&mut run)));
                }
                if run.is_empty() {
                    run_start = from;
                }
                from += part.len() as u64;
                run_end = from;
                run.push(part);
            }
        }
        if !run.is_empty() {
            runs.push((run_start, run));
        }
        for (offset, data) in runs {
            let index = offset / geometry.metablock_size;
            let channel = self.channel(index).expect("bytes become dirty only where a grant is recorded");
            channel.push(Content::data(offset % geometry.metablock_size, data));
            if touched.last() != Some(&index) {
                touched.push(index);
            }
        }
        touched
    }

    /// Turns writes that `take_synced` of a channel took out into clean bytes. Returns the number of bytes of memory
    /// that are freed.
    pub fn retire(&mut self, cache: &BlockCache, inode: InodeId, index: u64, writes: &[Arc<Outgoing>]) -> usize {
        let geometry = self.geometry();
        let base = index * geometry.metablock_size;
        let mut weight = 0;
        for write in writes {
            weight += write.weight();
            let mut at = base + write.offset;
            let end = match write.kind {
                pb::WriteKind::WriteTruncate => base + geometry.metablock_size,
                _ => at + write.length,
            };
            for fetch in self.fetches.iter().filter(|fetch| fetch.overlaps(at, end)) {
                fetch.stale.store(true, Ordering::Relaxed);
            }
            match write.kind {
                pb::WriteKind::WriteData if write.staged.is_some() => {
                    cache.remove(inode, geometry.block_size, at, end);
                }
                pb::WriteKind::WriteData => {
                    for data in &write.data {
                        cache.put(inode, geometry.block_size, at, data, Cause::Demand);
                        at += data.len() as u64;
                    }
                }
                pb::WriteKind::WriteAllocate => {}
                _ => cache.remove(inode, geometry.block_size, at, end),
            }
        }
        self.fetches.retain(|fetch| Arc::strong_count(fetch) > 1);
        weight
    }

    /// The versions that all members have synced and the master has not recorded.
    pub fn uncommitted_metablocks(&self) -> Vec<pb::CommitMetablock> {
        let uncommitted = self.channels.values().filter(|channel| channel.settled > channel.committed);
        let describe = |channel: &Channel| pb::CommitMetablock {
            id: channel.id.raw(),
            version: Some(channel.settled.into()),
            length: channel.settled_length,
        };
        uncommitted.map(describe).collect()
    }

    /// Applies a truncate's cut: drops everything beyond `size`. Returns the number of bytes of memory that are freed.
    pub fn cut(&mut self, cache: &BlockCache, inode: InodeId, size: u64) -> usize {
        let geometry = self.geometry();
        let mut weight = self.dirty.remove(size, u64::MAX) as usize;
        let first_gone = geometry.metablock_count(size);
        for (_, channel) in self.channels.split_off(&first_gone) {
            weight += channel.weight();
        }
        drop(self.map.split_off(&first_gone));
        cache.remove(inode, geometry.block_size, size, u64::MAX);
        for fetch in self.fetches.iter().filter(|fetch| fetch.overlaps(size, u64::MAX)) {
            fetch.stale.store(true, Ordering::Relaxed);
        }
        weight
    }

    /// The record of a metablock, and the lowest version that a reader of this client accepts. `None`: nothing was
    /// written there, and it reads as zero.
    pub fn source(&self, index: u64) -> Option<(pb::Metablock, Version)> {
        let (record, version) = match self.channels.get(&index) {
            Some(channel) => (channel.record(index), channel.settled),
            None => {
                let record = self.map.get(&index)?;
                (record.clone(), record.min_version())
            }
        };
        (version != Version::ZERO).then_some((record, version))
    }

    /// Gives `gather` the bytes that are in memory: dirty over pending over clean.
    pub fn offer(&self, cache: &BlockCache, inode: InodeId, gather: &mut Gather, local: &[Arc<Fetch>], asker: Asker) {
        let geometry = self.geometry();
        self.offer_unsettled(geometry, gather);
        cache.offer(inode, geometry.block_size, gather, asker);
        for fetch in local.iter().filter(|fetch| !fetch.is_stale()) {
            if let Some(Ok(data)) = fetch.result() {
                gather.offer(fetch.start, &data);
                gather.offer_zero(fetch.start + data.len() as u64, fetch.end);
            }
        }
    }

    fn offer_unsettled(&self, geometry: Geometry, gather: &mut Gather) {
        self.dirty.offer(gather);
        if self.channels.is_empty() || gather.is_complete() {
            return;
        }
        let span = geometry.metablock_size;
        for index in gather.start() / span..=(gather.end() - 1) / span {
            if let Some(channel) = self.channels.get(&index) {
                channel.offer(index * span, span, gather);
            }
        }
    }

    /// Sets the modification time for a write. It always differs from the time before.
    pub fn touch(&mut self, wall: WallTime) {
        let next = WallTime(self.mtime.0 + 1);
        let mut now = wall;
        if self.unrecorded.mtime {
            now = now.max(next);
        }
        if now == self.mtime {
            now = next;
        }
        self.mtime = now;
        (self.unrecorded.mtime, self.unrecorded.any) = (true, true);
    }
}
