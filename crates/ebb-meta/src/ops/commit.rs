//! Commits: they make visible what holders have synced on whole sets.

use ebb_types::{InodeId, Result, Version, bail};
use ebb_wire::pb;
use ebb_wire::pb::meta_op;

use super::truncate::{Place, check_committed, merge};
use crate::inode::FILE_SIZE_MAX;
use crate::machine::{Call, Machine};
use crate::outcome::Effect;

impl Machine {
    /// Records each file that passes the checks, and lists the refused ones. If the request names one file, the reply
    /// has its attributes.
    pub(crate) fn commit(&mut self, call: &mut Call<'_>, op: &meta_op::Commit) -> Result<pb::MetaReply> {
        let mut reply = pb::MetaReply::default();
        for file in &op.files {
            let id = InodeId::new(file.inode);
            match self.check_commit(call, file) {
                Ok(()) if file.gone => self.counted(id, |machine| machine.on_gone(call, id)),
                Ok(()) => self.counted(id, |machine| machine.record(call, file)),
                Err(error) => {
                    reply.refusals.push(pb::CommitRefusal { inode: file.inode, failure: Some((&error).into()) });
                }
            }
        }
        if let [file] = op.files.as_slice()
            && let Some(inode) = self.inodes.get(&InodeId::new(file.inode))
        {
            reply.attr = Some(self.attr_of(InodeId::new(file.inode), inode));
        }
        Ok(reply)
    }

    fn check_commit(&self, call: &Call<'_>, commit: &pb::CommitFile) -> Result<()> {
        let id = InodeId::new(commit.inode);
        let Some(inode) = self.inodes.get(&id) else { bail!(NotFound, "{id} is gone, and what is committed with it") };
        let Some(file) = inode.file() else { bail!(Invalid, "{id} is not a regular file") };
        if file.holder != Some(call.session) || inode.epoch.raw() != commit.epoch {
            bail!(StaleEpoch, "{} does not hold {id} under e{} ({})", call.session, commit.epoch, inode.epoch);
        }
        if commit.gone {
            return Ok(()); // Nothing is recorded of it, so nothing keeps its holder from telling.
        }
        if commit.size_generation.is_some_and(|generation| generation != inode.size_generation) {
            bail!(Stale, "the size of {id} has been set since: commit again");
        }
        if commit.size > FILE_SIZE_MAX {
            bail!(FileTooLarge, "a size of {} bytes is above {FILE_SIZE_MAX}", commit.size);
        }
        if file.trim.is_some() && !commit.trimmed && (commit.size > inode.size || commit.release) {
            bail!(Busy, "{id} may neither grow nor be given back before its trim is on all members");
        }
        let metablock_size = self.datasets.settings(inode.dataset).metablock_size;
        let place = Place { id, inode, metablock_size, frozen_below: self.frozen_below(id, inode) };
        check_committed(&commit.metablocks, place, file)
    }

    /// The holder of a removed file has discarded writes that it had not committed, and gives the lease back. The
    /// record keeps this, as no process could find it out again: a later master may receive an open that has waited
    /// since before. If the file has got a name meanwhile, its writes are recovered as if the holder had died.
    fn on_gone(&mut self, call: &mut Call<'_>, id: InodeId) {
        if !self.orphans.contains(&id) {
            return self.lose_lease(call, id);
        }
        if let Some(file) = self.edit(id).file_mut() {
            // I-81: the record may have less than was written, so the file is never opened again.
            file.emptied = true;
            file.linkable = false;
            file.trim = None;
        }
        self.release(call, id);
    }

    /// Records a commit. It never makes a file smaller: commits may overtake each other, and only `SetAttr` cuts a
    /// size.
    fn record(&mut self, call: &mut Call<'_>, commit: &pb::CommitFile) {
        let id = InodeId::new(commit.inode);
        let inode = self.edit(id);
        let before = (inode.size, inode.mtime, inode.mode);
        // I-2: a late commit may name an older and smaller size, and readers have seen the larger one.
        inode.size = inode.size.max(commit.size);
        if commit.mtime_ns != 0 {
            inode.mtime = commit.mtime_ns;
            // The holder's clock may be ahead, and its times may be ones that were set.
            inode.ctime = inode.ctime.max(commit.mtime_ns.min(call.now));
        }
        if commit.kill_privileges {
            inode.kill_privileges();
        }
        if let Some(file) = inode.file_mut() {
            merge(file, &commit.metablocks, call.now_s());
            if commit.trimmed {
                file.trim = None;
            }
        }
        let wrote = !commit.metablocks.is_empty();
        if wrote || before != (inode.size, inode.mtime, inode.mode) {
            call.changed(id);
        }
        if commit.release {
            self.release(call, id);
        }
    }

    /// The holder gives the lease back. Metablocks that it was granted and did not write are freed.
    fn release(&mut self, call: &mut Call<'_>, id: InodeId) {
        let inode = self.edit(id);
        let dataset = inode.dataset;
        let Some(file) = inode.file_mut() else { return };
        assert!(file.holder == Some(call.session), "{} gives back a lease of {id} that it does not hold", call.session);
        file.holder = None;
        for block in file.map.remove_where(|block| block.version == Version::ZERO) {
            self.lose_metablock(call, id, dataset, &block);
        }
        self.end_heirs(call, id, |_| true);
        self.snapshots.thaw_for(id);
        assert!(self.held.remove(&(call.session, id)).is_some(), "the lease of {id} is not in the index");
        call.effects.push(Effect::LeaseEnded { inode: id, session: call.session });
    }
}
