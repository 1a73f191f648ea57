//! fallocate(2), and seek for data and holes.

use std::sync::Arc;
use std::time::Duration;

use ebb_types::{Result, Version, err};
use ebb_wire::pb;

use crate::handles::OpenFile;
use crate::inode::Inode;
use crate::lease::Entry;
use crate::lease::hold::Lease;
use crate::read::fetch;
use crate::shared::Shared;
use crate::types::{Allocate, Seek, SetAttr};
use crate::write::FILE_SIZE_MAX;
use crate::write::drive::drive;
use crate::write::members;

/// Deadline of one question to a member for data or a hole.
const SEEK_DEADLINE: Duration = Duration::from_secs(4);

impl Shared {
    /// fallocate(2). Returns when every member has done it.
    pub async fn allocate(self: &Arc<Self>, file: &OpenFile, mode: Allocate, offset: u64, len: u64) -> Result<()> {
        if !file.access.writes() {
            return Err(err!(Invalid, "{} is not open for writing", file.inode.id));
        }
        let end = offset.checked_add(len).filter(|end| *end <= FILE_SIZE_MAX);
        let Some(end) = end.filter(|_| len > 0) else {
            return Err(err!(Invalid, "no range of {len} bytes at {offset} can be allocated"));
        };
        let inode = &file.inode;
        let started = self.runtime.now();
        let gate = loop {
            let entry = self.enter(inode, Lease::Write, file.pinned).await?;
            file.check_sticky()?;
            file.check_may_change(&entry)?;
            match entry {
                Entry::Lease(gate) => break gate,
                Entry::Proxy(sharing) => {
                    if self.allocate_shared(inode, &sharing, mode, offset, len).await? {
                        return Ok(());
                    }
                }
            }
            self.check_moves(inode, started)?;
        };
        let size = {
            let _gate = gate;
            let _order = inode.order.lock().await;
            self.allocate_entered(inode, mode, offset, end).await?;
            // If the lease was lost just before the flush began, the flush found nothing to do.
            file.check_sticky()?;
            inode.core.lock().size
        };
        if mode.grows() && end > size {
            // The gate is open again. Another call may have grown the file further, and the file must not shrink.
            self.grow(file, end).await?;
        }
        Ok(())
    }

    async fn allocate_entered(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        mode: Allocate,
        offset: u64,
        end: u64,
    ) -> Result<()> {
        let kind = match mode {
            Allocate::Reserve | Allocate::ReserveKeepSize => pb::WriteKind::WriteAllocate,
            Allocate::PunchHole => pb::WriteKind::WritePunch,
            Allocate::Zero | Allocate::ZeroKeepSize => pb::WriteKind::WriteZero,
        };
        if kind == pb::WriteKind::WritePunch {
            self.ensure_thawed(inode, offset, end).await?;
        } else {
            self.ensure_granted(inode, offset, end).await?;
        }
        let (gone, before) = {
            let mut core = inode.core.lock();
            if core.hold.lease() != Lease::Write {
                return Err(err!(Io, "{}: the write lease was lost", inode.id));
            }
            // Earlier writes are sent first: the ranges that stay, in their order.
            let gone = if kind == pb::WriteKind::WriteAllocate { 0 } else { core.dirty.remove(offset, end) };
            core.touch(self.runtime.wall());
            (gone, core.stage(0, u64::MAX))
        };
        self.budget.give(gone as usize);
        let mut touched = before;
        // Zeros of a file that keeps its size must not make a member's replica reach beyond it.
        let size = inode.core.lock().size;
        let stop = if mode == Allocate::ZeroKeepSize { end.min(size.max(offset)) } else { end };
        touched.extend(self.push_ranges(inode, kind, offset, stop));
        self.queue.mark(inode.id, self.runtime.now());
        for index in touched {
            drive(self, inode, index);
        }
        self.flush(inode).await
    }

    async fn grow(self: &Arc<Self>, file: &OpenFile, end: u64) -> Result<()> {
        let now = file.inode.core.lock().size;
        if now >= end {
            return Ok(());
        }
        let set = SetAttr { size: Some(end), by_handle: true, ..SetAttr::default() };
        self.set_attr_of(&self.own, file.inode.id, &set, Some(file)).await.map(drop)
    }

    /// Next data, or next hole, at or after `offset`. The end of the file is a hole.
    pub async fn seek(self: &Arc<Self>, file: &OpenFile, offset: u64, whence: Seek) -> Result<u64> {
        let inode = &file.inode;
        let started = self.runtime.now();
        let _gate = loop {
            match self.enter(inode, Lease::Read, file.pinned).await? {
                Entry::Lease(gate) => break gate,
                Entry::Proxy(sharing) => {
                    if let Some(found) = self.seek_shared(inode, &sharing, offset, whence).await? {
                        return Ok(found);
                    }
                }
            }
            self.check_moves(inode, started)?;
        };
        // The members answer, so the dirty bytes go to them first.
        self.flush(inode).await?;
        let (size, span) = {
            let core = inode.core.lock();
            (core.size, core.geometry().metablock_size)
        };
        let beyond = || err!(NoSuchOffset, "{offset} is at or behind the end of {} ({size} bytes)", inode.id);
        if offset >= size {
            return Err(beyond());
        }
        let mut at = offset;
        while at < size {
            let edge = ((at / span + 1) * span).min(size);
            if let Some(found) = self.seek_in(inode, at, edge, whence).await? {
                return Ok(found);
            }
            at = edge;
        }
        match whence {
            Seek::Hole => Ok(size),
            Seek::Data => Err(beyond()),
        }
    }

    /// Next data, or next hole, within one metablock, up to `edge`.
    async fn seek_in(self: &Arc<Self>, inode: &Arc<Inode>, at: u64, edge: u64, whence: Seek) -> Result<Option<u64>> {
        let (source, span) = {
            let core = inode.core.lock();
            if core.hold.lease() == Lease::None {
                // Without a lease nothing is known, not even that there is a hole.
                return Err(err!(Io, "{}: the lease was lost while data was looked for", inode.id));
            }
            let span = core.geometry().metablock_size;
            (core.source(at / span), span)
        };
        let Some((record, min_version)) = source else { return Ok((whence == Seek::Hole).then_some(at)) };
        let base = at - at % span;
        let shown = record.frozen.map_or(u64::MAX, |_| record.length);
        let reply = show(self.ask_where(inode, record, min_version, at - base, whence).await?, shown);
        // Beyond a replica's end nothing was written, so a hole lies there.
        let found = match (reply.found, whence) {
            (true, _) => base + reply.offset,
            (false, Seek::Hole) => (base + reply.length).max(at),
            (false, Seek::Data) => return Ok(None),
        };
        Ok((found < edge).then_some(found.max(at)))
    }

    async fn ask_where(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        mut record: pb::Metablock,
        mut min_version: Version,
        offset: u64,
        mode: Seek,
    ) -> Result<pb::SeekReplicaReply> {
        let started = self.runtime.now();
        let hole = mode == Seek::Hole;
        loop {
            // Where the bytes of a lost member can be decoded, nobody knows its holes before that: all is data.
            let is_decoded = record.is_in_raid_set();
            let is_there = |member: &pb::Member| {
                self.wakes_in(member.node) == Some(Duration::ZERO) && !self.nodes.is_lost(member.node)
            };
            if is_decoded && !record.members.iter().any(is_there) {
                return Ok(all_data(&record, offset, hole));
            }
            let mut last = err!(NoReplica, "m{} has no copies in the map", record.id);
            for member in &record.members {
                let message = pb::SeekReplica {
                    metablock: record.id,
                    volume: member.volume,
                    min_version: Some(min_version.into()),
                    offset,
                    hole,
                };
                let answer = match self.nodes.hop(member) {
                    Ok(hop) => members::call(self, &hop, &message, Vec::new(), SEEK_DEADLINE).await,
                    Err(error) => Err(error),
                };
                match answer {
                    Ok(reply) => return Ok(reply.message),
                    Err(error) => last = error,
                }
            }
            if is_decoded {
                return Ok(all_data(&record, offset, hole));
            }
            if self.runtime.now().since(started) > self.session.deadline() {
                return Err(fetch::of_file(inode.id)(last));
            }
            self.runtime.sleep(Duration::from_millis(200)).await;
            match fetch::refresh(self, inode, record.index, None).await? {
                Some(newer) => (record, min_version) = newer,
                None => return Ok(pb::SeekReplicaReply { offset, found: hole, length: 0 }),
            }
        }
    }
}

/// The answer of a member that has data everywhere.
fn all_data(record: &pb::Metablock, offset: u64, hole: bool) -> pb::SeekReplicaReply {
    let at = if hole { offset.max(record.length) } else { offset };
    pb::SeekReplicaReply { found: hole || offset < record.length, offset: at, length: record.length }
}

/// What a member says of a metablock that shows only so many bytes.
fn show(reply: pb::SeekReplicaReply, shown: u64) -> pb::SeekReplicaReply {
    let found = reply.found && reply.offset < shown;
    pb::SeekReplicaReply { found, length: reply.length.min(shown), ..reply }
}
