//! `fcntl(2)` and `flock(2)` locks.

use ebb_types::{InodeId, Result, bail};
use ebb_wire::pb;
use ebb_wire::pb::meta_op;

use crate::locks::Wish;
use crate::machine::{Call, Machine};
use crate::waits::{Conflict, LockOutcome};

impl Machine {
    /// Takes a lock, releases it or queues for it. It also withdraws a queued request.
    pub(crate) fn set_lock(&mut self, call: &mut Call<'_>, op: &meta_op::SetLock) -> Result<pb::MetaReply> {
        let id = InodeId::new(op.inode);
        let Some(lock) = &op.lock else { bail!(Invalid, "a lock request for {id} without a lock") };
        let wish = Wish::parse(call.session, lock)?;
        // Nobody changes a file of a snapshot, so shared locks are in nobody's way and are not recorded.
        if id.shown().is_some() && !matches!(wish, Wish::Lock(lock) if lock.exclusive) {
            self.inode_at(id)?;
            return Ok(pb::MetaReply::default());
        }
        self.inode(id)?;
        let queued = match wish {
            Wish::Lock(lock) if op.cancel => self.locks.cancel(id, lock.owner, lock.span()),
            Wish::Unlock { owner, span } if op.cancel => self.locks.cancel(id, owner, span),
            Wish::Unlock { owner, span } => {
                self.locks.unlock(id, owner, span, &mut call.effects);
                false
            }
            Wish::Lock(lock) => {
                let conflict = if op.wait { Conflict::Waits } else { Conflict::Fails };
                self.locks.lock(id, lock, conflict, &mut call.effects)? == LockOutcome::Queued
            }
        };
        Ok(pb::MetaReply { queued, ..Default::default() })
    }
}
