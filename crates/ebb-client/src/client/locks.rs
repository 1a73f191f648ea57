//! File locks.

use ebb_types::{InodeId, Result};
use ebb_wire::pb::meta_op::{self, Op};

use super::Client;
use crate::types::{IfLocked, Lock};

impl Client {
    /// Takes or releases a lock. Dropping the future gives a wait up.
    pub async fn set_lock(&self, inode: InodeId, lock: Lock, if_locked: IfLocked) -> Result<()> {
        self.shared.set_lock(inode, lock, if_locked).await
    }

    /// The lock in the way, if any.
    pub async fn test_lock(&self, inode: InodeId, lock: Lock) -> Result<Option<Lock>> {
        let op = meta_op::TestLock { inode: inode.raw(), lock: Some(lock.into()) };
        let found = self.shared.own_meta(Op::TestLock(op)).await?.lock;
        Ok(found.map(|found| Lock::of_message(&found, self.session().raw())))
    }
}
