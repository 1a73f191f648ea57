//! The write path: into memory, whole blocks out at once.

pub(crate) mod allocate;
pub(crate) mod budget;
pub(crate) mod channel;
pub(crate) mod committer;
pub(crate) mod debt;
pub(crate) mod drive;
pub(crate) mod extents;
pub(crate) mod feed;
pub(crate) mod flush;
pub(crate) mod handoff;
pub(crate) mod members;
pub(crate) mod outgoing;
pub(crate) mod own_link;
pub(crate) mod push;
pub(crate) mod repair;
pub(crate) mod resize;
pub(crate) mod sticky;
pub(crate) mod thaw;

use std::sync::Arc;

use bytes::Bytes;
use ebb_runtime::{Moment, SeededBug};
use ebb_types::{Epoch, ErrorKind, Result, err};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{Grant, Op, SetAttr};

use crate::handles::OpenFile;
use crate::inode::{Core, Inode};
use crate::lease::Entry;
use crate::lease::hold::Lease;
use crate::plan::{GRANTS_PER_CALL, grants_ahead, grants_needed, reach_of};
use crate::shared::Shared;
use crate::types::{Privileges, WriteAt};

/// Largest offset of a byte, as Linux has it.
pub(crate) const FILE_SIZE_MAX: u64 = i64::MAX as u64;

impl Shared {
    /// Writes all of `data`, and returns the offset at which it lies.
    ///
    /// Cancel-safety: dropped half-way, a part at the front of `data` may have been written, as with a short write.
    pub async fn write(
        self: &Arc<Self>,
        file: &OpenFile,
        place: WriteAt,
        data: Bytes,
        privileges: Privileges,
    ) -> Result<u64> {
        if !file.access.writes() {
            return Err(err!(Invalid, "{} is not open for writing", file.inode.id));
        }
        let started = self.runtime.now();
        let inode = &file.inode;
        let _gate = loop {
            let entry = self.enter(inode, Lease::Write, file.pinned).await?;
            file.check_sticky()?;
            file.check_may_change(&entry)?;
            match entry {
                Entry::Lease(gate) => break gate,
                Entry::Proxy(sharing) => {
                    if let Some(at) = self.write_shared(file, &sharing, place, &data, privileges).await? {
                        return Ok(at);
                    }
                }
            }
            self.check_moves(inode, started)?;
        };
        let _order = inode.order.lock().await;
        let (geometry, offset) = {
            let core = inode.core.lock();
            if let Some(error) = core.channels.values().find_map(|channel| channel.gave_up.clone()) {
                return Err(error);
            }
            (core.geometry(), if let WriteAt::Offset(offset) = place { offset } else { core.size })
        };
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_SIZE_MAX);
        if end.is_none() {
            return Err(err!(FileTooLarge, "a write of {} bytes at {offset} ends beyond the largest file", data.len()));
        }
        let mut at = 0;
        for piece in geometry.block_pieces(offset, data.len() as u64) {
            let len = piece.len as usize;
            self.write_piece(file, piece.file_offset, data.slice(at..at + len), privileges).await?;
            at += len;
        }
        self.take_privileges(inode).await;
        Ok(offset)
    }

    /// Fails with `Timeout` if an operation's file still moves after the operation's deadline.
    pub fn check_moves(&self, inode: &Inode, started: Moment) -> Result<()> {
        if self.runtime.now().since(started) > self.session.deadline() {
            return Err(err!(Timeout, "{} moved to the proxy or back as often as it was found", inode.id));
        }
        Ok(())
    }

    /// Writes a part that lies within one block.
    async fn write_piece(
        self: &Arc<Self>,
        file: &OpenFile,
        offset: u64,
        data: Bytes,
        privileges: Privileges,
    ) -> Result<()> {
        let inode = &file.inode;
        let end = offset + data.len() as u64;
        self.ensure_granted(inode, offset, end).await?;
        self.take_budget(data.len()).await?;
        let _admitted = match self.admit(inode, offset, data.len()).await {
            Ok(admitted) => admitted,
            Err(error) => {
                self.budget.give(data.len());
                return Err(error);
            }
        };
        let replaced = {
            let mut core = inode.core.lock();
            // Only `lose_lease` changes it while the gate is passed.
            if core.hold.lease() != Lease::Write || !grants_needed(&core.map, core.geometry(), offset, end).is_empty() {
                drop(core);
                self.budget.give(data.len());
                file.check_sticky()?;
                return Err(err!(Io, "{}: the write lease was lost during a write", inode.id));
            }
            let replaced = core.dirty.insert(offset, data);
            core.size = core.size.max(end);
            core.touch(self.runtime.wall());
            let takes = privileges == Privileges::Taken || !file.privileged;
            // While the mode is not known for sure, the file may have the bits.
            let may_have = core.attr_stale || core.attr.as_ref().is_some_and(|attr| loses_privileges(attr.mode));
            core.unrecorded.privileges |= takes && may_have;
            replaced
        };
        self.budget.give(replaced as usize);
        self.queue.mark(inode.id, self.runtime.now());
        self.send_full_blocks(inode, offset, end);
        self.grant_ahead(inode, end);
        if self.budget.is_tight() {
            self.queue.hurry();
        }
        Ok(())
    }

    /// Clears set-user-id and set-group-id after a write. The caller has passed the gate, so no other client sees the
    /// bytes before this is done. A client that sets the bits again does so before or after both.
    pub(crate) async fn take_privileges(&self, inode: &Inode) {
        if !inode.core.lock().unrecorded.privileges {
            return;
        }
        let take = SetAttr { inode: inode.id.raw(), kill_privileges: true, ..Default::default() };
        match self.change(&self.own, Op::SetAttr(take)).await {
            Ok(_) => inode.core.lock().unrecorded.privileges = false,
            // The bits are hidden here already, and the next commit clears them.
            Err(error) => tracing::debug!(inode = %inode.id, %error, "taking set-user-id and set-group-id away"),
        }
    }

    async fn take_budget(&self, bytes: usize) -> Result<()> {
        if self.budget.try_take(bytes) {
            return Ok(());
        }
        self.queue.hurry();
        let taking = async {
            self.budget.reserve(bytes).await;
            Ok(())
        };
        let purpose = "waiting for room among unsynced bytes: members do not take writes";
        let _entry = self.enter_wait("room among unsynced bytes: members do not take writes");
        self.runtime.timeout(self.session.deadline(), purpose, taking).await
    }

    /// Makes sure that space is reserved. Nothing is written to a metablock without a recorded grant.
    pub async fn ensure_granted(self: &Arc<Self>, inode: &Arc<Inode>, start: u64, end: u64) -> Result<()> {
        loop {
            let needed = {
                let core = inode.core.lock();
                let mut needed = grants_needed(&core.map, core.geometry(), start, end);
                needed.truncate(GRANTS_PER_CALL);
                needed
            };
            if needed.is_empty() {
                return Ok(());
            }
            let reach = |core: &Core| core.map.get(&needed[0]).map_or(0, reach_of);
            let before = reach(&inode.core.lock());
            self.grant(inode, |core| {
                let mut needed = grants_needed(&core.map, core.geometry(), start, end);
                needed.truncate(GRANTS_PER_CALL);
                needed
            })
            .await?;
            let core = inode.core.lock();
            if reach(&core) <= before && grants_needed(&core.map, core.geometry(), start, end).contains(&needed[0]) {
                return Err(err!(NoSpace, "{}: no more room for metablock {} was granted", inode.id, needed[0]));
            }
        }
    }

    /// Asks in the background for the grants that the writer will need next, unless another request for grants is under
    /// way.
    pub(crate) fn grant_ahead(self: &Arc<Self>, inode: &Arc<Inode>, end: u64) {
        let wanted = {
            let core = inode.core.lock();
            grants_ahead(&core.map, core.geometry(), end, core.size)
        };
        if wanted.is_empty() || inode.granting.try_lock().is_err() {
            return;
        }
        let (shared, inode) = (self.clone(), inode.clone());
        self.runtime.spawn("grants ahead", async move {
            let missing = |core: &Core| wanted.iter().filter(|index| !core.map.contains_key(index)).copied().collect();
            if let Err(error) = shared.grant(&inode, missing).await {
                tracing::debug!(inode = %inode.id, %error, "grants ahead");
            }
        });
    }

    /// Asks for the metablocks that `wanted` names, once it is this caller's turn.
    async fn grant(self: &Arc<Self>, inode: &Inode, wanted: impl Fn(&Core) -> Vec<u64>) -> Result<()> {
        let _granting = inode.granting.lock().await;
        let (epoch, size_generation, grant) = {
            let core = inode.core.lock();
            let indexes = wanted(&core);
            if indexes.is_empty() {
                return Ok(());
            }
            if core.hold.lease() != Lease::Write {
                return Err(err!(Io, "{}: the write lease was lost", inode.id));
            }
            let epoch = core.hold.epoch();
            let hosts = core.affinity.clone();
            let op = Grant { inode: inode.id.raw(), epoch: epoch.raw(), indexes, hosts, ..Default::default() };
            (epoch, core.attr.as_ref().map(|attr| attr.size_generation), op)
        };
        let wanted = grant.indexes.clone();
        let mut answer = self.own_meta(Op::Grant(grant.clone())).await;
        if answer.as_ref().is_err_and(|error| matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::QuotaExceeded)) {
            // The missing space may only be reserved, and reserved for this client.
            self.return_room().await;
            answer = self.own_meta(Op::Grant(grant)).await;
        }
        let reply = match answer {
            Ok(reply) => reply,
            Err(error) => {
                self.note_lease_error(inode, &error);
                return Err(error);
            }
        };
        let (heirs, granted): (Vec<_>, Vec<_>) = reply.metablocks.into_iter().partition(|record| record.heir_of != 0);
        {
            let mut core = inode.core.lock();
            let same_size = core.attr.as_ref().map(|attr| attr.size_generation) == size_generation;
            if !core.hold.is_write_of(epoch) || !same_size {
                return Err(err!(Io, "{}: the write lease was lost", inode.id));
            }
            for record in granted {
                let reserved = record.reserved;
                let known = core.map.entry(record.index).or_insert_with(|| record.clone());
                if known.id != record.id {
                    // An heir took the place of the frozen one, and the answer got lost.
                    *known = record;
                }
                known.reserved = known.reserved.max(reserved);
            }
        }
        self.thaw(inode, epoch, heirs).await?;
        let core = inode.core.lock();
        if let Some(missing) = wanted.iter().find(|index| !core.map.contains_key(index)) {
            return Err(err!(Protocol, "a grant for metablock {missing} of {} brought no record", inode.id));
        }
        Ok(())
    }

    /// Returns when everything written is synced by every member of every set, or logged for the members that sleep. A
    /// sticky error is returned once.
    pub async fn fsync(self: &Arc<Self>, file: &OpenFile) -> Result<()> {
        if self.runtime.has_bug(SeededBug::ForgetFsync) {
            return file.check_sticky();
        }
        if let Some(epoch) = file.pinned {
            return self.fsync_pinned(file, epoch).await;
        }
        let flushed = self.make_safe(&file.inode).await;
        let synced = self.sync_shared(&file.inode).await;
        file.check_sticky()?;
        flushed.and(synced)
    }

    async fn fsync_pinned(self: &Arc<Self>, file: &OpenFile, epoch: Epoch) -> Result<()> {
        drop(self.enter(&file.inode, Lease::Write, Some(epoch)).await?);
        let flushed = self.make_safe(&file.inode).await;
        if file.inode.core.lock().hold.was_given_back(epoch) {
            return Ok(());
        }
        file.check_sticky()?;
        flushed
    }

    /// Queues versioned writes without bytes for the metablocks of `start..end`. Metablocks without a record are left
    /// out. The caller holds the file's order.
    pub fn push_ranges(self: &Arc<Self>, inode: &Arc<Inode>, kind: pb::WriteKind, start: u64, end: u64) -> Vec<u64> {
        let mut core = inode.core.lock();
        let mut touched = Vec::new();
        for piece in core.geometry().pieces(start, end.saturating_sub(start)).collect::<Vec<_>>() {
            if let Some(channel) = core.channel(piece.metablock_index) {
                channel.push(crate::write::outgoing::Content::range(kind, piece.offset, piece.len));
                touched.push(piece.metablock_index);
            }
        }
        touched
    }
}

pub(crate) fn loses_privileges(mode: u32) -> bool {
    crate::plan::without_privileges(mode) != mode
}
