//! What a proxy needs beyond what programs do: to know under which epoch it holds a file, to do nothing under another
//! one, and to pass on what it was given before it answers.
//!
//! A *pinned* handle works only while its file's write lease is held under one epoch. It never takes a lease: when that
//! one is gone, operations fail with `Moved`, and nothing of them was done.

use std::sync::Arc;

use ebb_types::{Credentials, Epoch, InodeId, Result, Version, err};
use ebb_wire::pb;

use crate::client::Client;
use crate::handles::OpenFile;
use crate::inode::{Core, Inode};
use crate::lease::Entry;
use crate::lease::hold::Lease;
use crate::shared::Shared;
use crate::types::{Handle, SetAttr};
use crate::write::drive::drive;

impl Client {
    /// Takes the write lease of an open file, if it is not held, and tells its epoch. The master sends this session to
    /// no other: it is the proxy's.
    pub async fn hold(&self, handle: Handle) -> Result<Epoch> {
        let file = self.shared().handles.get(handle)?;
        match self.shared().enter(&file.inode, Lease::Write, None).await? {
            Entry::Lease(_gate) => Ok(file.inode.core.lock().hold.epoch()),
            Entry::Proxy(_) => Err(err!(Internal, "the proxy's own session was sent to a proxy")),
        }
    }

    /// Another handle of an open file, pinned to an epoch. Errors of background work are told to it once, as to others.
    pub fn pin(&self, handle: Handle, epoch: Epoch) -> Result<Handle> {
        let file = self.shared().handles.get(handle)?;
        Ok(self.shared().pin(&file, epoch))
    }

    /// Whether the write lease is held under this epoch. It may not be believed for the moment: operations wait for
    /// that, and it is not lost before the master says so.
    #[must_use]
    pub fn is_held(&self, inode: InodeId, epoch: Epoch) -> bool {
        self.shared().find(inode).is_some_and(|inode| inode.core.lock().hold.is_write_of(epoch))
    }

    /// Whether the lease of this epoch was the last one, and went back with everything synced and committed.
    #[must_use]
    pub fn was_given_back(&self, inode: InodeId, epoch: Epoch) -> bool {
        self.shared().find(inode).is_some_and(|inode| inode.core.lock().hold.was_given_back(epoch))
    }

    /// The length of an open file as its lease holder knows it; what it says without a lease is of no use.
    pub fn size_now(&self, handle: Handle) -> Result<u64> {
        Ok(self.shared().handles.get(handle)?.inode.core.lock().size)
    }

    /// Tells the master what is synced of an open file.
    pub async fn commit(&self, handle: Handle) -> Result<()> {
        let file = self.shared().handles.get(handle)?;
        self.shared().commit_one(&file.inode, false).await
    }

    /// Gives the lease of a file back, with everything synced and committed. Operations under way are ended first.
    pub async fn give_back(&self, inode: InodeId) -> Result<()> {
        let Some(inode) = self.shared().find(inode) else { return Ok(()) };
        let _gate = inode.gate.write().await;
        self.shared().finish(&inode).await
    }

    /// Returns when every member has received everything that was written to the file before.
    pub async fn pass_on(&self, handle: Handle) -> Result<()> {
        let file = self.shared().handles.get(handle)?;
        self.shared().pass_on(&file.inode, file.pinned).await
    }

    /// Sets attributes through a pinned handle.
    pub async fn set_attr_pinned(&self, handle: Handle, credentials: &Credentials, set: SetAttr) -> Result<pb::Attr> {
        let file = self.shared().handles.get(handle)?;
        self.shared().set_attr_of(credentials, file.inode.id, &set, file.pinned).await
    }
}

impl Shared {
    /// Whether a handle that is pinned to `epoch` may be used.
    pub fn is_pinned(&self, core: &Core, epoch: Epoch) -> bool {
        self.is_believed(core, Lease::Write) && core.hold.is_write_of(epoch)
    }

    fn pin(&self, file: &OpenFile, epoch: Epoch) -> Handle {
        let told = {
            let mut core = file.inode.core.lock();
            core.open_count += 1;
            // What went wrong under an earlier lease was told by other ways.
            core.sticky.latest()
        };
        self.handles.insert(OpenFile::new(file.inode.clone(), file.access, file.privileged, told, Some(epoch)))
    }

    /// Returns when every member of every set has received what was written before. Weaker than a flush: nothing needs to
    /// be on a disk yet.
    async fn pass_on(self: &Arc<Self>, inode: &Arc<Inode>, pinned: Option<Epoch>) -> Result<()> {
        let Some((epoch, goal)) = stage_all(inode, pinned)? else { return Ok(()) };
        for (index, _, _) in &goal {
            drive(self, inode, *index);
        }
        loop {
            let progress = inode.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            if is_passed_on(inode, epoch, &goal)? {
                return Ok(());
            }
            progress.await;
        }
    }
}

/// What is to be received: (index, serial of its channel, version), and the epoch that it is of.
type Goal = Vec<(u64, u64, Version)>;

/// Stages everything that was written. `None`: the lease that the handle is pinned to has gone back meanwhile, with
/// everything synced. The write that is waited for passed the gate before that.
fn stage_all(inode: &Inode, pinned: Option<Epoch>) -> Result<Option<(Epoch, Goal)>> {
    let mut core = inode.core.lock();
    if pinned.is_some_and(|epoch| core.hold.was_given_back(epoch)) {
        return Ok(None);
    }
    if core.hold.lease() != Lease::Write {
        return Err(err!(Io, "{}: the write lease was lost", inode.id));
    }
    core.stage(0, u64::MAX);
    let unreceived = core.channels.iter().filter(|(_, channel)| channel.received() < channel.last);
    let goal = unreceived.map(|(index, channel)| (*index, channel.serial, channel.last)).collect();
    Ok(Some((core.hold.epoch(), goal)))
}

fn is_passed_on(inode: &Inode, epoch: Epoch, goal: &Goal) -> Result<bool> {
    let core = inode.core.lock();
    if core.hold.was_given_back(epoch) {
        return Ok(true);
    }
    if !core.hold.is_write_of(epoch) {
        return Err(err!(Io, "{}: the write lease was lost before every member had received a write", inode.id));
    }
    for (index, serial, version) in goal {
        // A channel that is gone was cut off by a truncate.
        let Some(channel) = core.channels.get(index).filter(|channel| channel.serial == *serial) else { continue };
        if channel.received() >= *version {
            continue;
        }
        return match &channel.gave_up {
            Some(error) => Err(error.clone()),
            None => Ok(false),
        };
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a write that passed the gate before its lease went back is answered, and not failed. Method: the lease goes
    /// back between the write and the wait for the members; afterwards, one that is lost.
    #[test]
    fn a_write_before_a_give_back_is_passed_on_with_it() {
        let inode = Inode::new(InodeId::new(7));
        let [first, second] = [5, 6].map(Epoch::new);
        inode.core.lock().hold.grant(Lease::Write, first, 1);
        assert!(stage_all(&inode, Some(first)).unwrap().is_some());
        inode.core.lock().hold.give_back();
        assert!(stage_all(&inode, Some(first)).unwrap().is_none(), "it went back with everything synced");
        inode.core.lock().hold.grant(Lease::Write, second, 1);
        assert!(stage_all(&inode, Some(first)).unwrap().is_none(), "the next lease says nothing of it");
        inode.core.lock().hold.lose();
        assert_eq!(stage_all(&inode, Some(second)).unwrap_err().kind(), ebb_types::ErrorKind::Io);
    }
}
