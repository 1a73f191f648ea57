//! Write leases: given, and lost.

use ebb_types::{InodeId, Result, SessionId, bail};
use ebb_wire::pb;

use crate::machine::{Call, Machine};
use crate::outcome::{Effect, Reply};
use crate::query::METABLOCKS_PER_REPLY;

impl Machine {
    /// Grants the write lease under a new epoch, if no session has it. The holder may ask again: the epoch stays, so
    /// its writes in flight stay valid.
    pub(crate) fn acquire_write(&mut self, call: &mut Call<'_>, op: &pb::AcquireWrite) -> Result<Reply> {
        let (session, id) = (SessionId::new(op.session), InodeId::new(op.inode));
        self.sessions.get(session)?;
        let inode = self.inode(id)?;
        let Some(file) = inode.file() else { bail!(Invalid, "{id} is not a regular file: it has no write lease") };
        match file.holder {
            _ if file.recovering => bail!(Busy, "{id} is being recovered"),
            Some(holder) if holder != session => bail!(LeaseHeld, "{id} is being written by {holder}"),
            Some(_) => {}
            None => self.give_lease(call, id, session),
        }
        Ok(Reply::Lease { attr: self.attr(id)?, metablocks: self.metablocks_at(id, 0, METABLOCKS_PER_REPLY)? })
    }

    /// Grants the write lease of a file without a holder, under a new epoch. Its extra copies end before anything is
    /// written.
    pub(crate) fn give_lease(&mut self, call: &mut Call<'_>, id: InodeId, session: SessionId) {
        // I-56, ordering: an extra copy takes no writes, so it ends before there is a writer.
        self.drop_extras(call, id);
        // I-3: each lease has an epoch of its own, above all earlier ones of the file.
        let epoch = self.lineage.raised(self.inode_epoch(id), call.step);
        let inode = self.edit(id);
        inode.epoch = epoch;
        let dataset = inode.dataset;
        if let Some(file) = inode.file_mut() {
            assert!(file.holder.is_none(), "{id} has a holder: two sessions would write under its name");
            assert!(!file.recovering, "{id} is being recovered: its size is not known");
            file.holder = Some(session);
        }
        self.snapshots.freeze_for(id, self.newly_frozen_below(dataset));
        assert!(self.held.insert((session, id)).is_none(), "{id} is free and in the index of leases");
    }

    /// The holder is gone. Its writes have to be found before another session may write.
    pub(crate) fn lose_lease(&mut self, call: &mut Call<'_>, id: InodeId) {
        let Some(file) = self.edit(id).file_mut() else { return };
        let Some(session) = file.holder.take() else { return };
        file.recovering = true;
        assert!(self.held.remove(&(session, id)).is_some(), "the lease of {id} is not in the index");
        self.recovering.insert(id);
        self.end_heirs(call, id, |_| true);
        call.effects.push(Effect::LeaseEnded { inode: id, session });
        call.effects.push(Effect::NeedsRecovery(id));
        call.changed(id);
    }
}
