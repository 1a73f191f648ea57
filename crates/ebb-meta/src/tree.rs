//! Inodes and names, one level below the operations: finding, making, linking and dropping them.

use std::sync::Arc;

use ebb_types::{Credentials, InodeId, Result, bail};
use ebb_wire::pb;

use crate::dir::{self, Entry};
use crate::inode::{Body, Inode, MODE_MASK, S_ISGID, S_ISVTX, S_IXGRP};
use crate::machine::{Call, Machine, take_id};
use crate::outcome::Effect;
use crate::permission::{self, EXECUTE, WRITE};
use crate::xattr::Xattrs;

/// Properties of an inode that is to be made.
pub(crate) struct NewInode {
    pub(crate) body: Body,
    pub(crate) mode: u32,
    /// It applies unless the directory has a default ACL.
    pub(crate) umask: u32,
    pub(crate) rdev: u32,
    pub(crate) size: u64,
}

impl Machine {
    /// The inode. Fails with kind `Stale` if it is gone, so that a kernel looks the path up again, and with kind `ReadOnly` if it is
    /// a snapshot's.
    pub(crate) fn inode(&self, id: InodeId) -> Result<&Inode> {
        match self.inodes.get(&id) {
            Some(inode) => Ok(inode),
            None => {
                self.check_is_live(id)?;
                bail!(Stale, "{id} is gone")
            }
        }
    }

    /// An inode for a change. The operation has found it before. Snapshots go on showing it as it is now.
    pub(crate) fn edit(&mut self, id: InodeId) -> &mut Inode {
        self.preserve(id);
        self.edit_unshown(id)
    }

    /// An inode for a change that no snapshot shows: where its metablocks lie.
    pub(crate) fn edit_unshown(&mut self, id: InodeId) -> &mut Inode {
        self.inodes.get_mut(&id).map(Arc::make_mut).expect("the operation has found this inode before it changes it")
    }

    /// Whether it is there, and a directory.
    pub(crate) fn is_directory(&self, id: InodeId) -> bool {
        self.inodes.get(&id).is_some_and(|inode| inode.is_directory())
    }

    /// The inode. Fails with kind `NotDirectory` if it is not a directory.
    pub(crate) fn directory(&self, id: InodeId) -> Result<&Inode> {
        let inode = self.inode(id)?;
        if !inode.is_directory() {
            bail!(NotDirectory, "{id} is not a directory");
        }
        Ok(inode)
    }

    /// Attributes of the inode for a reply.
    pub(crate) fn attr_of(&self, id: InodeId, inode: &Inode) -> pb::Attr {
        inode.attr(id, self.datasets.settings(inode.dataset))
    }

    /// A reply with the attributes of one inode.
    pub(crate) fn attr_reply(&self, id: InodeId) -> Result<pb::MetaReply> {
        Ok(pb::MetaReply { attr: Some(self.attr_of(id, &*self.inode_at(id)?)), ..Default::default() })
    }

    /// The entry of this name. Fails if the caller may not search the directory. `.` and `..` are not entries.
    pub(crate) fn find(&self, parent: InodeId, name: &[u8], credentials: &Credentials) -> Result<Option<Entry>> {
        dir::check_name(name)?;
        permission::check(parent, self.directory(parent)?, credentials, EXECUTE)?;
        Ok(self.entries.get(parent, name))
    }

    /// The inode that a name leads to, for an operation that needs it. Fails with kind `NotFound` without such a name.
    pub(crate) fn find_entry(
        &self,
        parent: InodeId,
        name: &[u8],
        credentials: &Credentials,
    ) -> Result<(InodeId, &Inode)> {
        match self.find(parent, name, credentials)? {
            Some(entry) => Ok((entry.inode, self.inode(entry.inode)?)),
            None => bail!(NotFound, "there is no {} in the directory {parent}", dir::show(name)),
        }
    }

    /// Refuses a new name, with errors in the order of Linux `filename_create`. An existing name comes first, then a
    /// removed directory, then permission.
    pub(crate) fn check_new_name(&self, call: &Call<'_>, parent: InodeId, name: &[u8]) -> Result<()> {
        let found = self.find(parent, name, &call.credentials)?.is_some();
        if found || dir::is_dots(name) {
            bail!(Exists, "{parent} has an entry {}", dir::show(name));
        }
        self.check_not_of_snapshots(parent, name)?;
        self.check_may_add(call, parent)
    }

    /// Refuses if the caller may not add entries to the directory.
    pub(crate) fn check_may_add(&self, call: &Call<'_>, parent: InodeId) -> Result<()> {
        let directory = self.directory(parent)?;
        if directory.nlink == 0 {
            bail!(NotFound, "{parent} has been removed");
        }
        permission::check(parent, directory, &call.credentials, WRITE | EXECUTE)
    }

    /// Refuses if the caller may not remove this inode's name from the directory (Linux `may_delete`).
    pub(crate) fn check_may_remove(&self, call: &Call<'_>, parent: InodeId, victim: &Inode) -> Result<()> {
        let directory = self.directory(parent)?;
        permission::check(parent, directory, &call.credentials, WRITE | EXECUTE)?;
        permission::check_sticky(parent, directory, victim, &call.credentials)
    }

    /// Makes an inode and its name in a directory that has passed [`Self::check_new_name`].
    pub(crate) fn make(&mut self, call: &mut Call<'_>, parent: InodeId, name: &[u8], new: NewInode) -> Result<InodeId> {
        let is_directory = matches!(new.body, Body::Directory(_));
        let id = self.make_inode(call, parent, new, if is_directory { 2 } else { 1 })?;
        self.add_entry(call, parent, name, id);
        if is_directory {
            self.edit(parent).nlink += 1;
        }
        Ok(id)
    }

    /// Makes an inode without a name. It inherits from a directory that has passed [`Self::check_may_add`].
    pub(crate) fn make_orphan(&mut self, call: &mut Call<'_>, parent: InodeId, new: NewInode) -> Result<InodeId> {
        let id = self.make_inode(call, parent, new, 0)?;
        self.orphans.insert(id);
        call.effects.push(Effect::Orphaned(id));
        Ok(id)
    }

    /// Makes an inode. Owner, group, mode and ACLs follow from the caller and the directory (Linux `inode_init_owner`,
    /// `mode_strip_sgid`, `posix_acl_create`).
    pub(crate) fn make_inode(
        &mut self,
        call: &Call<'_>,
        parent: InodeId,
        new: NewInode,
        nlink: u32,
    ) -> Result<InodeId> {
        let directory = self.directory(parent)?;
        self.datasets.check_inode_quota(directory.dataset)?;
        let is_directory = matches!(new.body, Body::Directory(_));
        let is_symlink = matches!(new.body, Body::Symlink(_));
        let inherits_group = directory.mode & S_ISGID != 0;
        let mut mode = new.mode & if is_directory { 0o777 | S_ISVTX } else { MODE_MASK };
        if inherits_group && is_directory {
            mode |= S_ISGID;
        } else if inherits_group
            && mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP
            && !call.credentials.is_root()
            && !call.credentials.in_group(directory.gid)
        {
            mode &= !S_ISGID;
        }
        let mut xattrs = Xattrs::default();
        match directory.xattrs.as_ref().and_then(|xattrs| xattrs.default.as_ref()) {
            // The mode of a symbolic link means nothing, and it has no ACL.
            _ if is_symlink => {}
            None => mode &= !new.umask,
            Some(default) => {
                let (access, bits) = default.inherit(mode);
                mode = mode & !0o777 | bits;
                xattrs.access = access;
                xattrs.default = is_directory.then(|| default.clone());
            }
        }
        let inode = Inode {
            mode,
            nlink,
            uid: call.credentials.uid,
            gid: if inherits_group { directory.gid } else { call.credentials.gid },
            rdev: new.rdev,
            size: new.size,
            atime: call.now,
            mtime: call.now,
            ctime: call.now,
            btime: call.now,
            epoch: ebb_types::Epoch::new(0),
            size_generation: 0,
            takeovers: 0,
            dataset: directory.dataset,
            xattrs: (!xattrs.is_empty()).then(|| Arc::new(xattrs)),
            body: new.body,
        };
        let id = take_id!(self.next.inode, InodeId);
        self.datasets.count_inode(inode.dataset);
        let before = self.inodes.insert(id, Arc::new(inode));
        assert!(before.is_none(), "{id} is assigned twice: the older inode would be lost");
        Ok(id)
    }

    /// Adds a name to a directory. The caller changes the link counts.
    pub(crate) fn add_entry(&mut self, call: &mut Call<'_>, parent: InodeId, name: &[u8], inode: InodeId) {
        let now = call.now;
        let directory = self.edit(parent);
        directory.modified(now);
        let body = directory.directory_mut().expect("checked to be a directory before an entry is added");
        let cookie = body.next_cookie;
        body.next_cookie = cookie.saturating_add(1);
        body.count += 1;
        let is_new = self.entries.insert(parent, name, inode, cookie);
        assert!(is_new, "{parent} had an entry {}: its inode would lose a name", dir::show(name));
        call.changed(parent);
    }

    /// Removes a name from a directory. The caller changes the link counts.
    pub(crate) fn remove_entry(&mut self, call: &mut Call<'_>, parent: InodeId, name: &[u8]) {
        self.preserve_name(parent, name);
        let removed = self.entries.remove(parent, name);
        assert!(removed.is_some(), "{parent} has no entry {}: its count would be wrong", dir::show(name));
        let now = call.now;
        let directory = self.edit(parent);
        directory.modified(now);
        let body = directory.directory_mut().expect("checked to be a directory before an entry is removed");
        assert!(body.count > 0, "{parent} counts no entries and had one");
        body.count -= 1;
        if body.count == 0 && self.felled.remove(&parent).is_some() {
            // I-60: a session may have it open, so only `Reap` frees it.
            self.orphans.insert(parent);
            call.effects.push(Effect::Orphaned(parent));
        }
        call.changed(parent);
    }

    /// A directory has one subdirectory less: the `..` of that one counted as a link. A removed directory has no links.
    pub(crate) fn lose_subdirectory(&mut self, id: InodeId) {
        if self.inodes.get(&id).is_some_and(|directory| directory.nlink == 0) {
            return;
        }
        let directory = self.edit(id);
        assert!(directory.nlink > 2, "{id} counts no subdirectories and had one");
        directory.nlink -= 1;
    }

    /// The inode has one name less. A directory has only one name, a file may have several. True if it has none left.
    pub(crate) fn lose_name(&mut self, call: &mut Call<'_>, id: InodeId) -> bool {
        let now = call.now;
        let inode = self.edit(id);
        inode.changed(now);
        // A damaged checkpoint may name an inode without links. Counting below zero would make it immortal.
        inode.nlink = if inode.is_directory() { 0 } else { inode.nlink.saturating_sub(1) };
        let gone = inode.nlink == 0;
        let has_entries = inode.directory().is_some_and(|body| body.count > 0);
        call.changed(id);
        if gone && has_entries {
            self.felled.insert(id);
            self.datasets.root_removed(id);
        } else if gone {
            // I-60: a session may have it open, so only `Reap` frees it.
            self.orphans.insert(id);
            self.datasets.root_removed(id);
            call.effects.push(Effect::Orphaned(id));
        }
        gone
    }

    /// Whether `ancestor` is `id` or a directory above it.
    pub(crate) fn is_within(&self, id: InodeId, ancestor: InodeId) -> bool {
        let mut at = id;
        // Invariant: parents lead to the root without a circle; the bound is for a state that is broken anyway.
        for _ in 0..=self.inodes.len() {
            if at == ancestor {
                return true;
            }
            match self.inodes.get(&at).and_then(|inode| inode.directory()) {
                Some(body) if at != InodeId::ROOT => at = body.parent,
                _ => return false,
            }
        }
        false
    }

    /// Frees those of the named inodes that are orphans. The leader names inodes that no session has open.
    pub(crate) fn reap(&mut self, call: &mut Call<'_>, reap: &pb::Reap) {
        for id in &reap.inodes {
            let id = InodeId::new(*id);
            if self.orphans.remove(&id).is_some() {
                self.free_inode(call, id);
            }
        }
    }

    /// Runs a change of a file's map, and keeps its dataset's count of bytes correct.
    pub(crate) fn counted(&mut self, id: InodeId, change: impl FnOnce(&mut Self)) {
        let bytes = |machine: &Self| {
            let inode = machine.inodes.get(&id)?;
            Some((inode.dataset, inode.file()?.map.allocated_bytes()))
        };
        let before = bytes(self);
        change(self);
        if let (Some((dataset, from)), Some((_, to))) = (before, bytes(self)) {
            self.datasets.count_bytes(dataset, from, to);
        }
    }

    fn free_inode(&mut self, call: &mut Call<'_>, id: InodeId) {
        // Ordering: extra copies are found by the file's record, which goes next.
        let extras = self.take_extras(call, id);
        self.preserve(id);
        let Some(inode) = self.inodes.remove(&id) else { return };
        let is_empty = inode.directory().is_none_or(|body| body.count == 0);
        assert!(is_empty, "{id} is freed with entries: they would lead from a directory that is gone");
        self.locks.drop_file(id);
        self.recovering.remove(&id);
        self.snapshots.thaw_for(id);
        if let Some(file) = inode.file() {
            self.datasets.count_bytes(inode.dataset, file.map.allocated_bytes(), 0);
        }
        self.count_as_past(id, inode.dataset);
        self.datasets.forget_inode(inode.dataset);
        if let Some(file) = inode.file() {
            if let Some(session) = file.holder {
                assert!(self.held.remove(&(session, id)).is_some(), "the lease of {id} is not in the index");
                call.effects.push(Effect::LeaseEnded { inode: id, session });
            }
            for heir in &file.heirs {
                self.free_beside(call, heir.id, &heir.members);
            }
            for block in file.map.iter() {
                self.lose_metablock(call, id, inode.dataset, block);
            }
        }
        self.free_extras(extras);
        call.effects.push(Effect::Freed(id));
    }
}
