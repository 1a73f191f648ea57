//! Hard links.

use ebb_types::{InodeId, Result, bail};
use ebb_wire::pb;
use ebb_wire::pb::meta_op;

use crate::inode::LINK_MAX;
use crate::machine::{Call, Machine};

impl Machine {
    /// `link(2)`, with errors in the order of Linux `do_linkat` and `vfs_link`.
    pub(crate) fn link(&mut self, call: &mut Call<'_>, op: &meta_op::Link) -> Result<pb::MetaReply> {
        let (id, parent) = (InodeId::new(op.inode), InodeId::new(op.parent));
        let inode = self.inode(id)?;
        self.check_new_name(call, parent, &op.name)?;
        if inode.dataset != self.directory(parent)?.dataset && !inode.is_directory() {
            let dataset = &self.datasets.settings(inode.dataset).path;
            bail!(CrossDevice, "{id} is in dataset {dataset}, and its new name would be in another one: copy it");
        }
        if inode.is_directory() {
            bail!(NotPermitted, "{id} is a directory: it can have one name only");
        }
        let is_linkable = inode.file().is_some_and(|file| file.linkable);
        if inode.nlink == 0 && !is_linkable {
            bail!(NotFound, "{id} has been removed, or was made never to have a name");
        }
        if inode.nlink >= LINK_MAX {
            bail!(LinkLimit, "{id} has {LINK_MAX} names already");
        }
        self.add_entry(call, parent, &op.name, id);
        let now = call.now;
        let inode = self.edit(id);
        inode.nlink += 1;
        inode.changed(now);
        if is_linkable {
            // From now on it is like any other: once its last name is gone, it gets none again.
            inode.file_mut().expect("only files are linkable").linkable = false;
            self.orphans.remove(&id);
        }
        call.changed(id);
        self.attr_reply(id)
    }
}
