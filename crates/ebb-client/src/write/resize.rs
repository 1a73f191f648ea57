//! Sets attributes. A new size is a master command: durable first, then the cut on the members.

use std::sync::Arc;

use ebb_types::{Attr, Credentials, Epoch, InodeId, Result, err};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{self, Op, Trim};

use crate::handles::OpenFile;
use crate::inode::Inode;
use crate::lease::Taken;
use crate::lease::hold::Lease;
use crate::names::kept::Changed;
use crate::shared::Shared;
use crate::takeover::check_count;
use crate::types::{Privileges, SetAttr, SetTime};
use crate::write::FILE_SIZE_MAX;
use crate::write::drive::drive;
use crate::write::outgoing::Content;

/// A size, and what the handle that sets it is bound to.
#[derive(Clone, Copy)]
struct Wanted {
    size: u64,
    /// The only epoch under which it may be set.
    pinned: Option<Epoch>,
    /// How often the file may have been taken over.
    takeovers: u64,
}

impl Shared {
    /// Sets attributes; a new size takes the write lease.
    pub async fn set_attr(self: &Arc<Self>, credentials: &Credentials, id: InodeId, set: &SetAttr) -> Result<Attr> {
        self.set_attr_of(credentials, id, set, None).await
    }

    /// Sets attributes, by path or through an open file.
    pub async fn set_attr_of(
        self: &Arc<Self>,
        credentials: &Credentials,
        id: InodeId,
        set: &SetAttr,
        through: Option<&OpenFile>,
    ) -> Result<Attr> {
        let op = request(id, set, credentials);
        match set.size {
            Some(size) => {
                let pinned = through.and_then(|file| file.pinned);
                let takeovers = through.map_or(u64::MAX, OpenFile::takeovers);
                self.set_size(credentials, id, op, Wanted { size, pinned, takeovers }).await
            }
            None => {
                let sharing = self
                    .find(id)
                    .and_then(|inode| inode.core.lock().hold.sharing().cloned().map(|at| (inode.clone(), at)));
                if let Some((inode, sharing)) = sharing.filter(|_| sets_mtime(&op))
                    && let Some(attr) = self.set_shared(&inode, &sharing, credentials, op.clone()).await?
                {
                    return Ok(attr);
                }
                self.set_others(credentials, id, op).await
            }
        }
    }

    async fn set_others(
        self: &Arc<Self>,
        credentials: &Credentials,
        id: InodeId,
        op: meta_op::SetAttr,
    ) -> Result<Attr> {
        let Some(inode) = self.find(id).filter(|_| sets_mtime(&op)) else {
            return self.change_attr(credentials, Op::SetAttr(op)).await;
        };
        // A commit under way would restore the time of the last write.
        let committing = inode.committing.lock().await;
        let Changed { answer, seen, .. } = self.change_with(credentials, Op::SetAttr(op), |_, _| ()).await?;
        let answered = answer.attr()?;
        let seen = {
            let mut core = inode.core.lock();
            // The master's time counts here. This client's own is the time of its last write.
            core.mtime = answered.mtime;
            core.unrecorded.mtime = false;
            if let Some(durable) = &mut core.unrecorded.durable {
                durable.mtime = None;
            }
            seen.map(|seen| core.overlay(Attr { mtime: answered.mtime, ..seen }))
        };
        // Ordering: a task that gives the lease back has shut the gate, and waits for this lock.
        drop(committing);
        Ok(self.settle_change(credentials, answered, seen).await)
    }

    /// Runs in a task of its own. If it were dropped half-way, this client would not know the size that the master has.
    async fn set_size(
        self: &Arc<Self>,
        credentials: &Credentials,
        id: InodeId,
        op: meta_op::SetAttr,
        wanted: Wanted,
    ) -> Result<Attr> {
        let (shared, credentials) = (self.clone(), credentials.clone());
        let task = async move { shared.set_size_whole(&credentials, id, op, wanted).await };
        self.runtime.spawn("set a size", task).join().await?
    }

    async fn set_size_whole(
        self: &Arc<Self>,
        credentials: &Credentials,
        id: InodeId,
        op: meta_op::SetAttr,
        wanted: Wanted,
    ) -> Result<Attr> {
        let size = wanted.size;
        if size > FILE_SIZE_MAX {
            return Err(err!(FileTooLarge, "a size of {size} bytes is beyond the largest file"));
        }
        let inode = self.inode(id);
        let started = self.runtime.now();
        loop {
            self.session.ensure_trusted().await?;
            let gate = inode.gate.write().await;
            let sharing = inode.core.lock().hold.sharing().cloned().filter(|_| wanted.pinned.is_none());
            if let Some(sharing) = sharing {
                drop(gate);
                check_count(id, wanted.takeovers, sharing.takeovers)?;
                if let Some(attr) = self.set_shared(&inode, &sharing, credentials, op.clone()).await? {
                    return Ok(attr);
                }
            } else if let Some(epoch) = wanted.pinned {
                if !self.is_pinned(&inode.core.lock(), epoch) {
                    return Err(err!(Moved, "{id} is not held under epoch {epoch}"));
                }
                return self.set_size_entered(credentials, &inode, op, size).await;
            } else {
                match self.take_lease(&inode, Lease::Write, None).await? {
                    Taken::Lease => {
                        check_count(id, wanted.takeovers, inode.core.lock().takeovers())?;
                        return self.set_size_entered(credentials, &inode, op, size).await;
                    }
                    Taken::Proxy(proxy) => {
                        drop(gate);
                        self.join(&inode, &proxy).await;
                    }
                }
            }
            self.check_moves(&inode, started)?;
        }
    }

    /// Sets the size under the write lease. The caller has the gate to itself.
    async fn set_size_entered(
        self: &Arc<Self>,
        credentials: &Credentials,
        inode: &Arc<Inode>,
        mut op: meta_op::SetAttr,
        size: u64,
    ) -> Result<Attr> {
        // Only synced writes are committed, and the new size commits everything before it.
        self.flush(inode).await?;
        if inode.core.lock().unrecorded.trim {
            // The file may not grow before the master knows that its last cut is done.
            self.commit_one(inode, false).await?;
        }
        let _granting = inode.granting.lock().await;
        let _committing = inode.committing.lock().await;
        describe_cut(inode, &mut op, size);
        let trim = op.trim;
        let attr = match self.change(credentials, Op::SetAttr(op)).await {
            Ok(answer) => answer.attr()?,
            Err(error) => {
                // The master would refuse every later commit, because each names the size that it was made for.
                self.lose_if_unsure(inode, &error);
                return Err(error);
            }
        };
        let attr = self.cut(inode, attr, size, trim);
        if trim.is_some() {
            self.flush(inode).await?;
            let mut core = inode.core.lock();
            // If the lease was lost meanwhile, nothing is left to commit.
            if core.hold.lease() == Lease::Write {
                (core.unrecorded.trim, core.unrecorded.any) = (true, true);
                drop(core);
                self.queue.mark(inode.id, self.runtime.now());
            }
        }
        Ok(attr)
    }

    fn cut(self: &Arc<Self>, inode: &Arc<Inode>, attr: Attr, size: u64, trim: Option<Trim>) -> Attr {
        let (weight, attr, index) = {
            let mut core = inode.core.lock();
            let weight = core.cut(&self.cache, inode.id, size);
            let index = size / core.geometry().metablock_size;
            for channel in core.channels.values_mut() {
                channel.committed = channel.committed.max(channel.settled);
            }
            // A cut inside what is frozen is recorded, and changes no member.
            let edge = size % core.geometry().metablock_size;
            if let Some(record) = core.map.get_mut(&index).filter(|record| record.frozen.is_some()) {
                record.length = record.length.min(edge);
            }
            if let Some(trim) = trim
                && let Some(channel) = core.channel(index)
            {
                let version = channel.push(Content::range(pb::WriteKind::WriteTruncate, trim.length, 0));
                assert_eq!(Some(version.into()), trim.version, "the trim has the version that the master knows");
            }
            core.size = size;
            core.mtime = attr.mtime;
            (core.unrecorded.mtime, core.unrecorded.durable, core.unrecorded.any) = (false, None, false);
            core.attr = Some(attr);
            (weight, core.overlay(attr), index)
        };
        self.budget.give(weight);
        drive(self, inode, index);
        inode.progress.notify_waiters();
        attr
    }
}

/// Adds the synced versions to the request, and the versioned write that will cut the members.
fn describe_cut(inode: &Inode, op: &mut meta_op::SetAttr, size: u64) {
    let mut core = inode.core.lock();
    op.epoch = core.hold.epoch().raw();
    let span = core.geometry().metablock_size;
    let (index, edge) = (size / span, size % span);
    op.committed = core.uncommitted_metablocks();
    if edge != 0
        && core.map.get(&index).is_some_and(|record| record.frozen.is_none())
        && let Some(channel) = core.channel(index)
        && channel.length > edge
    {
        let version = channel.next_version();
        op.trim = Some(Trim { metablock: channel.id.raw(), version: Some(version.into()), length: edge });
    }
}

fn request(id: InodeId, set: &SetAttr, credentials: &Credentials) -> meta_op::SetAttr {
    let at = |time: Option<SetTime>| match time {
        Some(SetTime::At(at)) => Some(at.0),
        _ => None,
    };
    meta_op::SetAttr {
        inode: id.raw(),
        mode: set.mode,
        uid: set.uid,
        gid: set.gid,
        atime_ns: at(set.atime),
        mtime_ns: at(set.mtime),
        atime_now: set.atime == Some(SetTime::Now),
        mtime_now: set.mtime == Some(SetTime::Now),
        size: set.size,
        by_handle: set.by_handle,
        kill_privileges: set.size.is_some() && (set.privileges == Privileges::Taken || !credentials.is_root()),
        ..Default::default()
    }
}

fn sets_mtime(op: &meta_op::SetAttr) -> bool {
    op.mtime_ns.is_some() || op.mtime_now
}
