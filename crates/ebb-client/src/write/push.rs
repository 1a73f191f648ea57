//! Push: every member has received everything, in its memory at least. A client that dies then loses nothing.
//!
//! It waits for no disk. What the members have received is lost if their processes end before it is synced.

use std::sync::Arc;

use ebb_runtime::SeededBug;
use ebb_types::{Epoch, Result, err};

use crate::handles::OpenFile;
use crate::inode::{Core, Inode};
use crate::lease::hold::Lease;
use crate::shared::Shared;
use crate::write::drive::drive;
use crate::write::flush::Versions;

impl Shared {
    /// Returns when everything written before the call has been received. A sticky error is returned once.
    pub async fn push(self: &Arc<Self>, file: &OpenFile) -> Result<()> {
        if self.runtime.has_bug(SeededBug::ForgetPush) {
            return file.check_sticky();
        }
        let held = {
            let core = file.inode.core.lock();
            // Writes to a file of several sessions have been received when they return.
            (core.hold.lease() == Lease::Write).then(|| core.hold.epoch())
        };
        let pushed = match file.pinned.or(held) {
            Some(epoch) => {
                let _entry = self.enter_wait("members to receive writes");
                self.pass_on(&file.inode, epoch).await
            }
            None => Ok(()),
        };
        file.check_sticky()?;
        pushed
    }

    /// Returns when every member of every set has received the writes before this. Weaker than a flush: nothing needs
    /// to be on a disk yet. For members that sleep, it is enough that the writes are in as many logs as the dataset
    /// wants.
    pub(crate) async fn pass_on(self: &Arc<Self>, inode: &Arc<Inode>, epoch: Epoch) -> Result<()> {
        let goal = stage_all(inode, epoch)?;
        if goal.channels.is_empty() {
            return Ok(());
        }
        for (index, _, _) in &goal.channels {
            drive(self, inode, *index);
        }
        // Cancel-safety: the log servers drop logged writes later, once they are not needed.
        tokio::select! {
            biased;
            passed = self.passed_on(inode, &goal) => passed,
            () = self.log_until_done(inode, &goal) => Ok(()),
        }
    }

    async fn passed_on(&self, inode: &Inode, goal: &Versions) -> Result<()> {
        loop {
            let progress = inode.progress.notified();
            tokio::pin!(progress);
            progress.as_mut().enable();
            if is_passed_on(inode, goal)? {
                return Ok(());
            }
            progress.await;
        }
    }
}

/// Whether the write lease of this epoch is still held. False: it went back with everything synced. Fails if it was
/// lost. A write passed the gate under it, so a later lease says nothing of that write.
fn is_still_held(inode: &Inode, core: &Core, epoch: Epoch) -> Result<bool> {
    if core.hold.was_given_back(epoch) {
        return Ok(false);
    }
    if !core.hold.is_write_of(epoch) {
        return Err(err!(Io, "{}: the write lease was lost before every member had received a write", inode.id));
    }
    Ok(true)
}

/// Stages everything that was written under the lease. Nothing is left to receive if it went back.
fn stage_all(inode: &Inode, epoch: Epoch) -> Result<Versions> {
    let mut core = inode.core.lock();
    if !is_still_held(inode, &core, epoch)? {
        return Ok(Versions { epoch, channels: Vec::new() });
    }
    core.stage(0, u64::MAX);
    let unreceived = core.channels.iter().filter(|(_, channel)| channel.received() < channel.last);
    let channels = unreceived.map(|(index, channel)| (*index, channel.serial, channel.last)).collect();
    Ok(Versions { epoch, channels })
}

fn is_passed_on(inode: &Inode, goal: &Versions) -> Result<bool> {
    let core = inode.core.lock();
    if !is_still_held(inode, &core, goal.epoch)? {
        return Ok(true);
    }
    for (index, serial, version) in &goal.channels {
        // A channel that is gone was cut off by a truncate.
        let Some(channel) = core.channels.get(index).filter(|channel| channel.serial == *serial) else { continue };
        if channel.received().max(channel.logged) >= *version {
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
    use ebb_types::{ErrorKind, InodeId};

    use super::*;

    /// Goal: a write that passed the gate before its lease went back is answered. One whose lease was lost fails, even
    /// under a later lease. Method: the lease ends in each way between the write and the wait for the members.
    #[test]
    fn a_write_is_judged_by_the_lease_that_it_was_made_under() {
        let inode = Inode::new(InodeId::new(7), 1 << 20);
        let [first, second, third] = [5, 6, 7].map(Epoch::new);
        let hold = |epoch| inode.core.lock().hold.grant(Lease::Write, epoch, 1);
        let is_done = |epoch| is_passed_on(&inode, &stage_all(&inode, epoch)?);
        hold(first);
        assert!(is_still_held(&inode, &inode.core.lock(), first).unwrap());
        inode.core.lock().hold.give_back();
        assert!(is_done(first).unwrap(), "it went back with everything synced");
        hold(second);
        assert!(is_done(first).unwrap(), "the next lease says nothing of it");
        inode.core.lock().hold.lose();
        assert_eq!(is_done(second).unwrap_err().kind(), ErrorKind::Io);
        hold(third);
        assert_eq!(is_done(second).unwrap_err().kind(), ErrorKind::Io, "the next lease does not have the lost write");
    }
}
