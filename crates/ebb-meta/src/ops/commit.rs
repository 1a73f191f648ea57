//! What holders have synced on whole sets, made visible.

use ebb_types::{ErrorKind, InodeId, Result, Version, bail};
use ebb_wire::pb;
use ebb_wire::pb::meta_op;

use super::truncate::{check_committed, merge};
use crate::inode::FILE_SIZE_MAX;
use crate::machine::{Call, Machine};
use crate::outcome::Effect;
use crate::tree::freed;

impl Machine {
    /// Records each file that may be recorded, and tells which were refused. Of one file alone, the reply brings the
    /// attributes.
    pub(crate) fn commit(&mut self, call: &mut Call<'_>, op: &meta_op::Commit) -> Result<pb::MetaReply> {
        let mut reply = pb::MetaReply::default();
        for file in &op.files {
            let checked = self.check_commit(call, file);
            if file.gone && !is_not_held(&checked) {
                self.note_emptied(InodeId::new(file.inode));
            }
            match checked {
                Ok(()) => self.counted(InodeId::new(file.inode), |machine| machine.record(call, file)),
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
        let inode = self.inode(id)?;
        let Some(file) = inode.file() else { bail!(Invalid, "{id} is not a regular file") };
        if file.holder != Some(call.session) || inode.epoch.raw() != commit.epoch {
            bail!(StaleEpoch, "{} does not hold {id} under e{} ({})", call.session, commit.epoch, inode.epoch);
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
        check_committed(&commit.metablocks, id, inode, file, metablock_size)
    }

    /// What was written to a file without a name and not committed is thrown away, also if the commit that says so is refused. It
    /// is not found out again: a later process of the master may hear of an open that waits since before.
    fn note_emptied(&mut self, id: InodeId) {
        if self.orphans.contains(&id)
            && let Some(file) = self.edit(id).file_mut()
        {
            file.emptied = true;
            file.linkable = false;
        }
    }

    /// A commit never makes a file smaller: commits may overtake each other, and sizes are cut by `SetAttr` alone.
    fn record(&mut self, call: &mut Call<'_>, commit: &pb::CommitFile) {
        let id = InodeId::new(commit.inode);
        let inode = self.edit(id);
        let before = (inode.size, inode.mtime, inode.mode);
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
            merge(file, &commit.metablocks);
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

    /// The holder gives the lease back; what it was granted and did not write is freed.
    fn release(&mut self, call: &mut Call<'_>, id: InodeId) {
        let inode = self.edit(id);
        let dataset = inode.dataset;
        let Some(file) = inode.file_mut() else { return };
        file.holder = None;
        for block in file.map.remove_where(|block| block.version == Version::ZERO) {
            self.replicas.free(&block);
            call.effects.push(freed(id, dataset, &block));
        }
        self.held.remove(&(call.session, id));
        call.effects.push(Effect::LeaseEnded { inode: id, session: call.session });
    }
}

/// Whether a commit was refused because its sender holds the file no more: it had given it back whole when it threw away what
/// it remembered.
fn is_not_held(checked: &Result<()>) -> bool {
    checked.as_ref().is_err_and(|error| error.kind() == ErrorKind::StaleEpoch)
}
