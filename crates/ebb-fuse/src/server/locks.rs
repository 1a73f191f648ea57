//! Locks of fcntl and flock.

use std::collections::BTreeSet;

use bytes::Bytes;
use ebb_types::{InodeId, Result, err};
use parking_lot::Mutex;

use super::{Server, empty};
use crate::abi::reply;
use crate::abi::request::Header;
use crate::vfs::{IfLocked, Lock, LockKind, LockSort, Vfs};

/// Most waits for locks at a time: they are not counted among the other requests, which could not go on otherwise.
const WAITS_MAX: usize = 4096;

/// Who has, or may have, a lock: closing a file gives locks up, and most files never have one.
#[derive(Debug, Default)]
pub struct LockOwners {
    owners: Mutex<BTreeSet<(InodeId, LockSort, u64)>>,
}

impl<V: Vfs> Server<V> {
    pub(super) async fn test_lock(&self, header: &Header, lock: Lock) -> Result<Bytes> {
        Ok(reply::lock(self.vfs.test_lock(header.inode, lock).await?.as_ref()))
    }

    pub(super) async fn set_lock(&self, header: &Header, lock: Lock, if_locked: IfLocked) -> Result<Bytes> {
        if lock.kind != LockKind::Unlock {
            // Noted before it is granted: a close that comes at the same time must not miss it.
            self.lock_owners.owners.lock().insert((header.inode, lock.sort, lock.owner));
        }
        if if_locked == IfLocked::Fail || lock.kind == LockKind::Unlock {
            return self.vfs.set_lock(header.inode, lock, IfLocked::Fail).await.map(empty);
        }
        if self.interrupts.waiting() >= WAITS_MAX {
            return Err(err!(NoLocks, "{WAITS_MAX} waits for locks are under way on this mount"));
        }
        let interrupted = self.interrupts.enter(header.unique);
        // Cancel-safety: dropping `set_lock` gives the wait up, and what was granted meanwhile back.
        let outcome = tokio::select! {
            biased;
            outcome = self.vfs.set_lock(header.inode, lock, IfLocked::Wait) => outcome,
            _ = interrupted => Err(err!(Interrupted, "the wait for a lock on {} was given up", header.inode)),
        };
        self.interrupts.leave(header.unique);
        outcome.map(empty)
    }

    /// Gives up all locks of `owner` on `inode`, if it ever took one.
    pub(super) async fn release_locks(&self, inode: InodeId, owner: u64, sort: LockSort) -> Result<()> {
        if !self.lock_owners.owners.lock().remove(&(inode, sort, owner)) {
            return Ok(());
        }
        self.vfs.set_lock(inode, Lock::release_all(owner, sort), IfLocked::Fail).await
    }
}
