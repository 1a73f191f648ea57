//! The read path: what is in memory, and fetches for the rest.

pub(crate) mod cache;
pub(crate) mod dataset_reads;
pub(crate) mod degraded;
pub(crate) mod extras;
pub(crate) mod fetch;
pub(crate) mod gather;
pub(crate) mod hedge;
pub(crate) mod hopeless;
pub(crate) mod line;
pub(crate) mod prefetch;
pub(crate) mod raid_sets;
pub(crate) mod short_circuit;
pub(crate) mod spare;
pub(crate) mod sums;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use ebb_types::{Prefetch, Result, err};

use crate::Unit;
use crate::handles::OpenFile;
use crate::inode::{Core, Fetch, Inode};
use crate::lease::Entry;
use crate::lease::hold::Lease;
use crate::plan::fetch_ranges;
use crate::read::cache::{Asker, Cause};
use crate::read::fetch::Wanted;
use crate::read::gather::{Found, Gather};
use crate::read::prefetch::Reach;
use crate::shared::Shared;
use crate::types::Advice;

/// Most that one read may ask for; longer ones are cut into several.
pub(crate) const READ_MAX: u64 = 16 << 20;

/// What a look into memory said.
enum Look {
    Done(Gather),
    /// Wait for these and look again.
    Wait(Vec<Arc<Fetch>>),
    /// The lease is gone. The file's state here proves nothing any more, not even that a part was never written.
    Lost,
}

impl Shared {
    /// Bytes of an open file from `offset`, fewer only at its end. At most [`READ_MAX`].
    pub async fn read(self: &Arc<Self>, file: &OpenFile, offset: u64, len: u64) -> Result<Found> {
        if !file.access.reads() {
            return Err(err!(Invalid, "{} is not open for reading", file.inode.id));
        }
        let inode = &file.inode;
        if file.pinned.is_none()
            && let Some(gather) = self.read_memory(inode, offset, len)
        {
            self.touch(inode);
            // The rhythm of reads is noted all the same, and fetches go on ahead.
            self.read_ahead(file, offset, gather.len() as u64);
            return Ok(Found::Layers(gather));
        }
        let started = self.runtime.now();
        loop {
            let _gate = match self.enter(inode, Lease::Read, file.pinned).await? {
                Entry::Lease(gate) => gate,
                Entry::Proxy(sharing) => {
                    if let Some(data) = self.read_shared(inode, &sharing, offset, len).await? {
                        return Ok(Found::Whole(data));
                    }
                    self.check_moves(inode, started)?;
                    continue;
                }
            };
            let reach = self.reach(file, offset, len);
            self.start_ahead(inode, offset.saturating_add(len), reach);
            if let Some(gather) = self.read_under_lease(inode, offset, len, reach).await? {
                return Ok(Found::Layers(gather));
            }
            if self.runtime.now().since(started) > self.session.deadline() {
                return Err(err!(Timeout, "reading {}: its lease was lost as often as it was taken", inode.id));
            }
        }
    }

    /// The same under a lease that the caller has entered; nothing if it is lost, however the gate is kept: a session
    /// that has expired takes its leases along.
    async fn read_under_lease(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        offset: u64,
        len: u64,
        reach: Reach,
    ) -> Result<Option<Gather>> {
        let mut local: Vec<Arc<Fetch>> = Vec::new();
        let started = self.runtime.now();
        loop {
            let (look, begun) = self.assemble(inode, offset, len, reach, &local);
            for fetch in begun {
                self.spawn_fetch(inode, fetch);
            }
            let waits = match look {
                Look::Done(gather) => return Ok(Some(gather)),
                Look::Lost => return Ok(None),
                Look::Wait(waits) => waits,
            };
            let _waiting = Waiting::new(self);
            for fetch in &waits {
                fetch.wait().await;
                if let Some(Err(error)) = fetch.result()
                    && !fetch.is_stale()
                {
                    return Err(fetch::of_file(inode.id)(error));
                }
            }
            if self.runtime.now().since(started) > self.session.deadline() {
                return Err(err!(Timeout, "reading {}: writes kept overtaking the read", inode.id));
            }
            local.retain(|fetch| !fetch.is_stale());
            local.extend(waits);
        }
    }

    /// A read that memory alone answers, without passing the gate.
    fn read_memory(&self, inode: &Inode, offset: u64, len: u64) -> Option<Gather> {
        let core = inode.core.lock();
        if !self.is_believed(&core, Lease::Read) {
            return None;
        }
        let mut gather = window(&core, offset, len);
        core.offer(&self.cache, inode.id, &mut gather, &[], Asker::Program);
        offer_holes(&core, &mut gather);
        gather.is_complete().then_some(gather)
    }

    fn assemble(
        &self,
        inode: &Inode,
        offset: u64,
        len: u64,
        reach: Reach,
        local: &[Arc<Fetch>],
    ) -> (Look, Vec<Arc<Fetch>>) {
        let mut core = inode.core.lock();
        if core.hold.lease() == Lease::None {
            return (Look::Lost, Vec::new());
        }
        let mut gather = window(&core, offset, len);
        core.offer(&self.cache, inode.id, &mut gather, local, Asker::Program);
        offer_holes(&core, &mut gather);
        if gather.is_complete() {
            return (Look::Done(gather), Vec::new());
        }
        let missing = gather.missing().to_vec();
        let begun = begin_fetches(&mut core, &missing, reach, Cause::Demand);
        let waits = core
            .fetches
            .iter()
            .filter(|fetch| !fetch.is_stale())
            .filter(|fetch| missing.iter().any(|&(from, to)| fetch.start < to && from < fetch.end))
            .cloned()
            .collect();
        (Look::Wait(waits), begun)
    }

    fn reach(&self, file: &OpenFile, offset: u64, len: u64) -> Reach {
        let (geometry, size, of_dataset) = {
            let core = file.inode.core.lock();
            (core.geometry(), core.size, core.attr.map(|attr| attr.storage.prefetch))
        };
        let advice = file.advice();
        let setting = match advice {
            Advice::Normal => self.options.prefetch.or(of_dataset).unwrap_or_default(),
            Advice::Sequential => Prefetch::Percent(100),
            Advice::Random => Prefetch::Percent(0),
        };
        let limit = prefetch::limit(setting, || self.spare.bytes(self.waiting_reads.load(Ordering::Relaxed)));
        // A longer window would displace its own bytes from the cache.
        let limit = limit.min(self.cache.max() as u64 / 4);
        let end = offset.saturating_add(len).min(size.max(offset));
        let mut ahead = file.ahead.lock();
        let reach = match advice {
            Advice::Normal => ahead.on_read(geometry, offset, end, limit),
            Advice::Sequential => ahead.on_read_in_order(geometry, offset, end, limit),
            Advice::Random => Reach { whole_blocks: false, ahead_to: end },
        };
        let reads_end = file.reads_end();
        Reach {
            whole_blocks: (reach.whole_blocks && end <= reads_end) || self.options.unit == Unit::Blocks,
            ahead_to: reach.ahead_to.min(reads_end.max(end)),
        }
    }

    fn read_ahead(self: &Arc<Self>, file: &OpenFile, offset: u64, len: u64) {
        let reach = self.reach(file, offset, len);
        self.start_ahead(&file.inode, offset + len, reach);
    }

    /// Starts to fetch ahead of the reader.
    fn start_ahead(self: &Arc<Self>, inode: &Arc<Inode>, from: u64, reach: Reach) {
        if reach.ahead_to <= from {
            return;
        }
        let begun = {
            let mut core = inode.core.lock();
            // Read-ahead that would displace its own bytes from the cache is of no use.
            if !self.is_believed(&core, Lease::Read) || (self.cache.max() as u64) < 4 * (reach.ahead_to - from) {
                return;
            }
            let start = from.next_multiple_of(core.geometry().block_size);
            let end = reach.ahead_to.min(core.size);
            if start >= end {
                return;
            }
            let mut gather = Gather::new(start, end);
            core.offer(&self.cache, inode.id, &mut gather, &[], Asker::Look);
            offer_holes(&core, &mut gather);
            let missing = gather.missing().to_vec();
            begin_fetches(&mut core, &missing, reach, Cause::Ahead)
        };
        if begun.is_empty() {
            return;
        }
        let (shared, inode) = (self.clone(), inode.clone());
        // A task of its own, for it must not delay what a program waits for. One for all: asked in their order, a disk goes
        // on from one to the next.
        self.runtime.spawn("fetch ahead", async move {
            for fetch in begun {
                shared.spawn_fetch(&inode, fetch);
            }
        });
    }

    /// Asks for a range here and now. The rest is a task.
    fn spawn_fetch(self: &Arc<Self>, inode: &Arc<Inode>, fetch: Arc<Fetch>) {
        let (shared, inode) = (self.clone(), inode.clone());
        let work = async move {
            let result = shared.fetch_range(&inode, &fetch).await;
            {
                // Ordering: into the cache under the file's lock, where a settled write would mark the fetch stale.
                let core = inode.core.lock();
                match &result {
                    Ok(data) if !fetch.is_stale() => {
                        let padded = pad(data, fetch.end.min(core.size) - fetch.start.min(core.size));
                        shared.cache.put(inode.id, core.geometry().block_size, fetch.start, &padded, fetch.cause);
                    }
                    Ok(data) if fetch.cause == Cause::Ahead => shared.cache.spoiled(data.len() as u64),
                    _ => {}
                }
            }
            fetch.finish(result);
        };
        self.runtime.run_or_spawn("fetch from a member", work);
    }

    async fn fetch_range(self: &Arc<Self>, inode: &Arc<Inode>, range: &Fetch) -> Result<Bytes> {
        let (source, span, storage) = {
            let core = inode.core.lock();
            let span = core.geometry().metablock_size;
            (core.source(range.start / span), span, core.attr.map(|attr| attr.storage))
        };
        let (rule, dataset) = (storage.unwrap_or_default().read_rule, storage.map(|storage| storage.dataset));
        let Some((record, min_version)) = source else { return Ok(Bytes::new()) };
        let (offset, len) = (range.start % span, range.end - range.start);
        let wanted = Wanted { record, min_version, offset, len, lease: Some(inode.clone()), rule, dataset };
        fetch::fetch(self, wanted, |index| fetch::refresh(self, inode, index, Some(range))).await
    }
}

/// A read that waits for members, as long as it lives.
struct Waiting<'a>(&'a Shared);

impl<'a> Waiting<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.waiting_reads.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting_reads.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The part of a read that lies before the end of the file.
fn window(core: &Core, offset: u64, len: u64) -> Gather {
    Gather::new(offset.min(core.size), offset.saturating_add(len.min(READ_MAX)).min(core.size))
}

/// Metablocks in which nothing was ever written are zero.
fn offer_holes(core: &Core, gather: &mut Gather) {
    if gather.is_complete() {
        return;
    }
    let span = core.geometry().metablock_size;
    for index in gather.start() / span..=(gather.end() - 1) / span {
        if core.source(index).is_none() {
            gather.offer_zero(index * span, (index + 1) * span);
        }
    }
}

/// Begins the fetches that are missing and not on their way yet.
fn begin_fetches(core: &mut Core, missing: &[(u64, u64)], reach: Reach, cause: Cause) -> Vec<Arc<Fetch>> {
    core.fetches.retain(|fetch| Arc::strong_count(fetch) > 1);
    let mut begun = Vec::new();
    for range in missing {
        for (start, end) in fetch_ranges(core.geometry(), *range, reach, core.size) {
            let wanted = start.max(range.0)..end.min(range.1);
            let covered = core
                .fetches
                .iter()
                .any(|fetch| !fetch.is_stale() && fetch.start <= wanted.start && wanted.end <= fetch.end);
            if covered || core.source(start / core.geometry().metablock_size).is_none() {
                continue;
            }
            let fetch = Arc::new(Fetch::new(start, end, cause));
            core.fetches.push(fetch.clone());
            begun.push(fetch);
        }
    }
    begun
}

/// What a member did not have is zero, as far as the file goes.
fn pad(data: &Bytes, len: u64) -> Bytes {
    let len = len as usize;
    if data.len() >= len {
        return data.slice(..len);
    }
    let mut out = bytes::BytesMut::with_capacity(len);
    out.extend_from_slice(data);
    out.resize(len, 0);
    out.freeze()
}
