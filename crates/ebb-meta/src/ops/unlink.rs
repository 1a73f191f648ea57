//! Removal of names.

use ebb_types::{InodeId, Result, bail};
use ebb_wire::pb;
use ebb_wire::pb::meta_op;

use crate::dir;
use crate::machine::{Call, Machine};

impl Machine {
    /// `unlink(2)`. Without its last name the inode stays until `Reap`.
    pub(crate) fn unlink(&mut self, call: &mut Call<'_>, op: &meta_op::Unlink) -> Result<pb::MetaReply> {
        let parent = InodeId::new(op.parent);
        if dir::is_dots(&op.name) {
            bail!(IsDirectory, "{} is a directory", dir::show(&op.name));
        }
        let (id, inode) = self.find_entry(parent, &op.name, &call.credentials)?;
        self.check_may_remove(call, parent, inode)?;
        if inode.is_directory() {
            bail!(IsDirectory, "{} is a directory: use rmdir", dir::show(&op.name));
        }
        self.remove_entry(call, parent, &op.name);
        self.displaced_reply(call, id)
    }

    /// `rmdir(2)`, or the removal of a directory with everything below it. The root of a dataset can be removed like any
    /// directory. The dataset ends with its last inode.
    pub(crate) fn remove_dir(&mut self, call: &mut Call<'_>, op: &meta_op::RemoveDir) -> Result<pb::MetaReply> {
        let parent = InodeId::new(op.parent);
        match op.name.as_slice() {
            b"." => bail!(Invalid, "\".\" cannot be removed"),
            b".." => bail!(NotEmpty, "\"..\" is not empty"),
            _ => {}
        }
        let (id, inode) = self.find_entry(parent, &op.name, &call.credentials)?;
        self.check_may_remove(call, parent, inode)?;
        let Some(body) = inode.directory() else {
            bail!(NotDirectory, "{} is not a directory", dir::show(&op.name));
        };
        self.check_has_no_snapshots(id)?;
        if body.count != 0 {
            if !op.whole {
                bail!(NotEmpty, "{} has {} entries", dir::show(&op.name), body.count);
            }
            self.check_may_fell(call, id)?;
        }
        self.remove_entry(call, parent, &op.name);
        self.lose_subdirectory(parent);
        self.displaced_reply(call, id)
    }

    fn displaced_reply(&mut self, call: &mut Call<'_>, id: InodeId) -> Result<pb::MetaReply> {
        let gone = self.lose_name(call, id);
        Ok(pb::MetaReply { displaced_inode: id.raw(), displaced_gone: gone, ..self.attr_reply(id)? })
    }
}
