//! The flush: it turns dirty bytes into bytes that every member has synced.

use std::sync::Arc;

use ebb_types::{Epoch, Result, Version, WallTime, err};

use crate::inode::{Durable, Inode};
use crate::lease::hold::Lease;
use crate::shared::Shared;
use crate::write::drive::drive;

/// Versions that metablocks of a file have to reach.
pub(crate) struct Versions {
    /// Epoch of the write lease.
    pub epoch: Epoch,
    /// (index, serial of its channel, version).
    pub channels: Vec<(u64, u64, Version)>,
}

/// The goal of a flush.
pub(crate) struct Goal {
    /// The versions that have to be synced.
    pub versions: Versions,
    size_generation: u64,
    size: u64,
    mtime: WallTime,
}

impl Shared {
    /// Returns when everything written before the call is synced by every member of every set. It makes no call to the
    /// master.
    pub async fn flush(self: &Arc<Self>, inode: &Arc<Inode>) -> Result<()> {
        match stage_and_ask(inode) {
            Some(goal) => self.flushed(inode, &goal).await,
            None => Ok(()),
        }
    }

    /// Returns when the goal of a flush is reached.
    pub async fn flushed(self: &Arc<Self>, inode: &Arc<Inode>, goal: &Goal) -> Result<()> {
        for (index, _, _) in &goal.versions.channels {
            drive(self, inode, *index);
        }
        let _entry = self.enter_wait("members to sync writes");
        loop {
            let progress = inode.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            if check(inode, goal)? {
                return Ok(());
            }
            progress.await;
        }
    }

    /// Starts to send the full blocks in `start..end`, and does not wait for them.
    pub fn send_full_blocks(self: &Arc<Self>, inode: &Arc<Inode>, start: u64, end: u64) {
        let touched = {
            let mut core = inode.core.lock();
            let geometry = core.geometry();
            let mut touched = Vec::new();
            let mut at = start - start % geometry.block_size;
            while at < end {
                let block_end = at + geometry.block_size;
                if core.dirty.covers(at, block_end) {
                    touched.extend(core.stage(at, block_end));
                }
                at = block_end;
            }
            touched.dedup();
            touched
        };
        for index in touched {
            drive(self, inode, index);
        }
    }
}

/// Stages the dirty bytes and asks for syncs. `None`: there is no write lease.
pub(crate) fn stage_and_ask(inode: &Inode) -> Option<Goal> {
    let mut core = inode.core.lock();
    if core.hold.lease() != Lease::Write {
        return None;
    }
    core.stage(0, u64::MAX);
    let mut channels = Vec::new();
    for (index, channel) in &mut core.channels {
        if channel.is_unsettled() {
            channel.want_sync();
            channels.push((*index, channel.serial, channel.last));
        }
    }
    Some(Goal {
        versions: Versions { epoch: core.hold.epoch(), channels },
        size_generation: core.attr.as_ref().map_or(0, |attr| attr.size_generation),
        size: core.size,
        mtime: core.mtime,
    })
}

/// Whether the goal is reached. If so, records the size and time that a commit may report.
fn check(inode: &Inode, goal: &Goal) -> Result<bool> {
    let mut core = inode.core.lock();
    let Versions { epoch, channels } = &goal.versions;
    if !core.hold.is_write_of(*epoch) {
        // Everything is synced before a lease goes back. A waiting flush may wake only after that.
        if core.hold.was_given_back(*epoch) {
            return Ok(true);
        }
        return Err(err!(Io, "{}: the write lease was lost before everything was synced", inode.id));
    }
    for (index, serial, version) in channels {
        // A channel that is gone was cut off by a truncate.
        let Some(channel) = core.channels.get(index).filter(|channel| channel.serial == *serial) else { continue };
        if channel.settled >= *version {
            continue;
        }
        return match &channel.gave_up {
            Some(error) => Err(error.clone()),
            None => Ok(false),
        };
    }
    if core.attr.as_ref().map_or(0, |attr| attr.size_generation) == goal.size_generation {
        let mtime = core.unrecorded.mtime.then_some(goal.mtime);
        let size = core.unrecorded.durable.map_or(goal.size, |durable| durable.size.max(goal.size));
        core.unrecorded.durable = Some(Durable { size, mtime });
    }
    Ok(true)
}
