//! Files that a client takes over from others: handles that are older than that may not write.
//!
//! ```text
//!  taker ── Acquire ──► master ── recall ──► writer     everything that it wrote comes back with its lease
//!        ── TakeOver ──► master                         logged: the file's count of takeovers is raised
//!  writer ── Acquire ──► master                         its next write needs the lease, which brings the count: it refuses
//! ```
//! The count is raised under the write lease alone. So a lease that brings an older count ends before a takeover can begin, and
//! nobody has to be told. Where a proxy holds the lease, it counts, and gives the lease back before it answers. Each session
//! then joins anew, and learns the count with that.

use std::sync::Arc;

use ebb_runtime::SeededBug;
use ebb_types::{Error, InodeId, Result, err};
use ebb_wire::attributes::required_attr;
use ebb_wire::pb::meta_op::{Op, TakeOver};
use ebb_wire::pb::shared_op;

use crate::handles::OpenFile;
use crate::inode::Core;
use crate::lease::hold::Lease;
use crate::lease::{Entry, Taken};
use crate::shared::Shared;
use crate::shared_file::proxied::Outcome;

impl Core {
    /// How often the file was taken over, as the lease that is held says.
    pub fn takeovers(&self) -> u64 {
        self.attr.map_or(0, |attr| attr.takeovers)
    }
}

impl OpenFile {
    /// I-123: refuses an operation that changes data, if the file was taken over after this handle was opened.
    pub fn check_may_change(&self, entry: &Entry<'_>) -> Result<()> {
        let now = match entry {
            Entry::Lease(_) => self.inode.core.lock().takeovers(),
            Entry::Proxy(sharing) => sharing.takeovers,
        };
        check_count(self.inode.id, self.takeovers(), now)
    }
}

/// Refuses a handle from when the file had been taken over `seen` times, if it was taken over `now` times.
pub(crate) fn check_count(id: InodeId, seen: u64, now: u64) -> Result<()> {
    if seen < now { Err(taken_over(id)) } else { Ok(()) }
}

fn taken_over(id: InodeId) -> Error {
    err!(
        TakenOver,
        "{id} was taken over by another client after it was opened here: this handle may not write to it any more"
    )
}

impl Shared {
    /// Takes a file over, and returns when no older handle can change it any more.
    ///
    /// It runs in a task of its own. If it were dropped half-way, this client would not know the count that the master has.
    pub async fn take_over(self: &Arc<Self>, file: &Arc<OpenFile>) -> Result<()> {
        if !file.access.writes() {
            return Err(err!(Invalid, "{} is not open for writing", file.inode.id));
        }
        let (shared, file) = (self.clone(), file.clone());
        let task = async move { shared.take_over_whole(&file).await };
        self.runtime.spawn("take a file over", task).join().await?
    }

    async fn take_over_whole(self: &Arc<Self>, file: &OpenFile) -> Result<()> {
        let inode = &file.inode;
        let started = self.runtime.now();
        loop {
            self.session.ensure_trusted().await?;
            // Ordering: the gate is this task's alone. Operations that have passed it end before the count is raised.
            let gate = inode.gate.write().await;
            let sharing = inode.core.lock().hold.sharing().cloned().filter(|_| file.pinned.is_none());
            if let Some(sharing) = sharing {
                drop(gate);
                check_count(inode.id, file.takeovers(), sharing.takeovers)?;
                let ask = shared_op::Op::TakeOver(shared_op::TakeOver {});
                if let Outcome::Done(answer) = self.change_shared(inode, &sharing, ask, Vec::new()).await? {
                    file.on_taken_over(answer.reply.takeovers);
                    return Ok(());
                }
            } else if let Some(epoch) = file.pinned {
                if !self.is_pinned(&inode.core.lock(), epoch) {
                    return Err(err!(Moved, "{} is not held under epoch {epoch}", inode.id));
                }
                return self.count_takeover(file).await;
            } else {
                match self.take_lease(inode, Lease::Write, None).await? {
                    Taken::Lease => return self.count_takeover(file).await,
                    Taken::Proxy(proxy) => {
                        drop(gate);
                        self.join(inode, &proxy).await;
                    }
                }
            }
            self.check_moves(inode, started)?;
        }
    }

    /// Has the master count a takeover, under the write lease. The caller has the gate to itself.
    async fn count_takeover(self: &Arc<Self>, file: &OpenFile) -> Result<()> {
        let inode = &file.inode;
        let epoch = {
            let core = inode.core.lock();
            check_count(inode.id, file.takeovers(), core.takeovers())?;
            core.hold.epoch()
        };
        if self.runtime.has_bug(SeededBug::TakeoverUncounted) {
            return Ok(());
        }
        // What older handles wrote is received, so that it does not go with this client.
        self.pass_on(inode, epoch).await?;
        let op = TakeOver { inode: inode.id.raw(), epoch: epoch.raw() };
        let answer = self.own_meta(Op::TakeOver(op)).await;
        let reply = answer.inspect_err(|error| self.lose_if_unsure(inode, error))?;
        let attr = required_attr(reply.attr, "a takeover")?;
        let mut core = inode.core.lock();
        if core.hold.is_write_of(epoch)
            && let Some(known) = &mut core.attr
        {
            known.takeovers = attr.takeovers;
        }
        file.on_taken_over(attr.takeovers);
        Ok(())
    }
}
