//! A client takes a file over from all that have it open.

use ebb_types::{Epoch, InodeId, Result, bail};
use ebb_wire::pb;
use ebb_wire::pb::meta_op;

use crate::machine::{Call, Machine, NUMBER_MAX};

impl Machine {
    /// Counts a takeover. Only the holder of the write lease may: a client with an older handle gets that lease later, and
    /// learns the count with it.
    pub(crate) fn take_over(&mut self, call: &mut Call<'_>, op: &meta_op::TakeOver) -> Result<pb::MetaReply> {
        let id = InodeId::new(op.inode);
        // I-3: no other session writes under this epoch, or under an older one.
        let inode = self.check_holder(call, id, Epoch::new(op.epoch))?;
        if inode.takeovers >= NUMBER_MAX {
            bail!(Invalid, "{id} was taken over {} times, and cannot be again", inode.takeovers);
        }
        self.edit(id).takeovers += 1;
        call.changed(id);
        self.attr_reply(id)
    }
}
