//! Push: every member has received everything, in its memory at least. A client that dies then loses nothing.
//!
//! It waits for no disk. What the members have received is lost if their processes end before it is synced.

use std::sync::Arc;

use ebb_runtime::SeededBug;
use ebb_types::{Result, err};

use crate::handles::OpenFile;
use crate::inode::Inode;
use crate::lease::hold::Lease;
use crate::shared::Shared;
use crate::write::drive::drive;
use crate::write::flush::Versions;

impl Shared {
    /// Returns when everything written before the call has been received by every member of every set, or is in as many logs as
    /// the dataset wants for members that sleep. A sticky error is returned once.
    pub async fn push(self: &Arc<Self>, file: &OpenFile) -> Result<()> {
        if self.runtime.has_bug(SeededBug::ForgetPush) {
            return file.check_sticky();
        }
        let inode = &file.inode;
        if let Some(epoch) = file.pinned {
            drop(self.enter(inode, Lease::Write, Some(epoch)).await?);
        }
        let pushed = self.push_all(inode).await;
        // Writes to a file of several sessions have been received when they return.
        file.check_sticky()?;
        pushed
    }

    async fn push_all(self: &Arc<Self>, inode: &Arc<Inode>) -> Result<()> {
        let Some(versions) = stage(inode) else { return Ok(()) };
        tokio::select! {
            biased;
            received = self.received(inode, &versions) => received,
            () = self.log_until_done(inode, &versions) => Ok(()),
        }
    }

    async fn received(self: &Arc<Self>, inode: &Arc<Inode>, versions: &Versions) -> Result<()> {
        for (index, _, _) in &versions.channels {
            drive(self, inode, *index);
        }
        let _entry = self.enter_wait("members to receive writes");
        loop {
            let progress = inode.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            if check(inode, versions)? {
                return Ok(());
            }
            progress.await;
        }
    }
}

/// Stages the dirty bytes. `None`: there is no write lease.
fn stage(inode: &Inode) -> Option<Versions> {
    let mut core = inode.core.lock();
    if core.hold.lease() != Lease::Write {
        return None;
    }
    core.stage(0, u64::MAX);
    let lacking = core.channels.iter().filter(|(_, channel)| channel.received() < channel.last);
    let channels = lacking.map(|(index, channel)| (*index, channel.serial, channel.last)).collect();
    Some(Versions { epoch: core.hold.epoch(), channels })
}

/// Whether every member has these versions.
fn check(inode: &Inode, versions: &Versions) -> Result<bool> {
    let core = inode.core.lock();
    let Versions { epoch, channels } = versions;
    if !core.hold.is_write_of(*epoch) {
        // Everything is synced before a lease goes back.
        if core.hold.was_given_back(*epoch) {
            return Ok(true);
        }
        return Err(err!(Io, "{}: the write lease was lost before everything was received", inode.id));
    }
    for (index, serial, version) in channels {
        // A channel that is gone was cut off by a truncate.
        let Some(channel) = core.channels.get(index).filter(|channel| channel.serial == *serial) else { continue };
        if channel.settled.max(channel.received()) >= *version {
            continue;
        }
        return match &channel.gave_up {
            Some(error) => Err(error.clone()),
            None => Ok(false),
        };
    }
    Ok(true)
}
