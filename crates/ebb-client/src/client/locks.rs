//! File locks.

use ebb_types::{InodeId, Result};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{self, Op};

use super::Client;

impl Client {
    /// Takes or releases a lock; waits if `wait`. Dropping the future gives the wait up.
    pub async fn set_lock(&self, inode: InodeId, lock: pb::FileLock, wait: bool) -> Result<()> {
        self.shared.set_lock(inode, lock, wait).await
    }

    /// The lock in the way, if any.
    pub async fn test_lock(&self, inode: InodeId, lock: pb::FileLock) -> Result<Option<pb::FileLock>> {
        let op = meta_op::TestLock { inode: inode.raw(), lock: Some(lock) };
        Ok(self.shared.own_meta(Op::TestLock(op)).await?.lock)
    }
}
