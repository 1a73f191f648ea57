//! Locks of fcntl and flock.

use std::collections::BTreeSet;

use bytes::Bytes;
use ebb_types::{InodeId, Result, err};
use parking_lot::Mutex;

use super::{Server, empty};
use crate::abi::reply;
use crate::abi::request::Header;
use crate::vfs::{IfLocked, Lock, LockKind, LockSort, Vfs};

/// Maximum number of concurrent waits for locks. These waits have their own limit, so that they do
/// not block other requests.
const WAITS_MAX: usize = 4096;

/// Owners that have, or may have, a lock. A close releases locks, but most files never have one.
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
            // Recorded before the lock is granted, so that a concurrent close does not miss it.
            self.lock_owners.owners.lock().insert((header.inode, lock.sort, lock.owner));
        }
        if if_locked == IfLocked::Fail || lock.kind == LockKind::Unlock {
            return self.vfs.set_lock(header.inode, lock, IfLocked::Fail).await.map(empty);
        }
        if self.interrupts.waiting() >= WAITS_MAX {
            return Err(err!(NoLocks, "{WAITS_MAX} waits for locks are under way on this mount"));
        }
        let interrupted = self.interrupts.enter(header.unique);
        // Cancel-safety: a drop of `set_lock` ends the wait, and releases a lock granted meanwhile.
        let outcome = tokio::select! {
            biased;
            outcome = self.vfs.set_lock(header.inode, lock, IfLocked::Wait) => outcome,
            _ = interrupted => Err(err!(Interrupted, "the wait for a lock on {} was given up", header.inode)),
        };
        self.interrupts.leave(header.unique);
        outcome.map(empty)
    }

    /// Releases all locks of `owner` on `inode`, if it ever took one.
    pub(super) async fn release_locks(&self, inode: InodeId, owner: u64, sort: LockSort) -> Result<()> {
        if !self.lock_owners.owners.lock().remove(&(inode, sort, owner)) {
            return Ok(());
        }
        self.vfs.set_lock(inode, Lock::release_all(owner, sort), IfLocked::Fail).await
    }
}
