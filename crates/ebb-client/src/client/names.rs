//! Names, attributes and extended attributes.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use ebb_types::{Attr, Credentials, FileKind, InodeId, Result, bail, err};
use ebb_wire::pb::meta_op::{self, Op};

use super::Client;
use crate::names::LOCATIONS_XATTR;
use crate::names::known::Name;
use crate::power::inspect::POWER_XATTR;
use crate::types::{DirPage, EntryDetail, NewName, Rename, RenameMode, SetAttr, StatFs, Summary, XattrMode};

impl Client {
    /// Attributes of a name.
    pub async fn lookup(&self, credentials: &Credentials, parent: InodeId, name: &[u8]) -> Result<Attr> {
        self.shared.lookup(credentials, parent, name).await
    }

    /// Attributes of the file that a path leads to, as stat(2): symbolic links are followed.
    pub async fn resolve(&self, credentials: &Credentials, path: &[u8]) -> Result<Attr> {
        self.resolve_for(credentials, path, 0).await
    }

    /// The same, if the user is permitted to do this with the inode there: a sum of 4 (read), 2 (write) and 1 (execute, search).
    ///
    /// # Errors
    /// `AccessDenied` if not.
    pub async fn resolve_for(&self, credentials: &Credentials, path: &[u8], access: u32) -> Result<Attr> {
        let op = meta_op::Resolve { path: path.to_vec(), follow_last: true, access };
        self.shared.ask_attr(credentials, Op::Resolve(op)).await
    }

    /// Attributes of the last name of a path, as lstat(2): a symbolic link there is not followed.
    pub async fn resolve_link(&self, credentials: &Credentials, path: &[u8]) -> Result<Attr> {
        let op = meta_op::Resolve { path: path.to_vec(), follow_last: false, access: 0 };
        self.shared.ask_attr(credentials, Op::Resolve(op)).await
    }

    /// Attributes, with this client's unsynced size and times.
    pub async fn get_attr(&self, credentials: &Credentials, inode: InodeId) -> Result<Attr> {
        self.shared.get_attr(credentials, inode).await
    }

    /// Attributes that need not be asked for, and for how long at most: until a [`CacheListener`](crate::CacheListener)
    /// hears otherwise, or this time is over.
    #[must_use]
    pub fn kept_attr(&self, inode: InodeId) -> Option<(Attr, Duration)> {
        let left = self.shared.session.kernel_trust();
        self.shared.kept_attr(inode).filter(|_| !left.is_zero()).map(|attr| (attr, left))
    }

    /// The same for a name: where it leads, or that it is not there.
    #[must_use]
    pub fn kept_name(&self, parent: InodeId, name: &[u8]) -> Option<(Option<InodeId>, Duration)> {
        let left = self.shared.session.kernel_trust();
        match self.shared.kept_name(parent, name) {
            _ if left.is_zero() => None,
            Name::Unknown => None,
            Name::Missing => Some((None, left)),
            Name::Leads(inode) => Some((Some(inode), left)),
        }
    }

    /// Where an inode is, for people, as far as names are kept. Looks at everything that is kept.
    #[must_use]
    pub fn kept_path(&self, inode: InodeId) -> Option<String> {
        if inode == InodeId::ROOT {
            return Some("/".into());
        }
        self.shared.known.paths(&BTreeSet::from([inode])).remove(&inode)
    }

    /// Sets attributes; a new size takes the write lease.
    pub async fn set_attr(&self, credentials: &Credentials, inode: InodeId, set: SetAttr) -> Result<Attr> {
        self.shared.set_attr(credentials, inode, &set).await
    }

    /// At most `limit` entries after the cookie `after`, from the start without one.
    pub async fn read_dir(
        &self,
        credentials: &Credentials,
        inode: InodeId,
        after: Option<u64>,
        limit: u32,
        detail: EntryDetail,
    ) -> Result<DirPage> {
        self.shared.read_dir(credentials, listing(inode, after, limit, detail)).await
    }

    /// The same for a user whose rights no kernel has checked.
    ///
    /// # Errors
    /// `AccessDenied` if the user may not list the directory.
    pub async fn list_dir(
        &self,
        credentials: &Credentials,
        inode: InodeId,
        after: Option<u64>,
        limit: u32,
        detail: EntryDetail,
    ) -> Result<DirPage> {
        let read = meta_op::ReadDir { check: true, ..listing(inode, after, limit, detail) };
        self.shared.read_dir(credentials, read).await
    }

    /// Sums over an inode and everything below it, with the sizes that writers hold now. The user must be permitted to list
    /// each directory.
    pub async fn summarize(&self, credentials: &Credentials, inode: InodeId) -> Result<Summary> {
        self.shared.summarize(credentials, inode).await
    }

    async fn make(&self, credentials: &Credentials, op: Op) -> Result<Attr> {
        self.shared.change_attr(credentials, op).await
    }

    /// Target of a symbolic link.
    pub async fn read_link(&self, credentials: &Credentials, inode: InodeId) -> Result<Vec<u8>> {
        Ok(self.meta(credentials, Op::ReadLink(meta_op::ReadLink { inode: inode.raw() })).await?.value)
    }

    /// Makes a directory.
    pub async fn make_dir(&self, credentials: &Credentials, new: NewName<'_>) -> Result<Attr> {
        let NewName { parent, name, mode, umask } = new;
        let op = meta_op::MakeDir { parent: parent.raw(), name: name.to_vec(), mode, umask };
        self.make(credentials, Op::MakeDir(op)).await
    }

    /// Makes a file, FIFO, socket or device, as mknod(2). `rdev`: the number of a device, in the kernel's 32-bit form.
    pub async fn make_node(
        &self,
        credentials: &Credentials,
        new: NewName<'_>,
        kind: FileKind,
        rdev: u32,
    ) -> Result<Attr> {
        if matches!(kind, FileKind::Directory | FileKind::Symlink) {
            bail!(Invalid, "no node of kind {kind:?} can be made");
        }
        let NewName { parent, name, mode, umask } = new;
        let (parent, name, kind) = (parent.raw(), name.to_vec(), kind.raw());
        let op = meta_op::MakeNode { parent, name, kind, mode, umask, rdev };
        self.make(credentials, Op::MakeNode(op)).await
    }

    /// Makes a symbolic link.
    pub async fn symlink(
        &self,
        credentials: &Credentials,
        parent: InodeId,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attr> {
        let op = meta_op::Symlink { parent: parent.raw(), name: name.to_vec(), target: target.to_vec() };
        self.make(credentials, Op::Symlink(op)).await
    }

    /// Makes a hard link. The attributes have this client's unsynced size and times: kernels take the size from here
    /// without a question, and drop mapped pages beyond it.
    pub async fn link(&self, credentials: &Credentials, inode: InodeId, parent: InodeId, name: &[u8]) -> Result<Attr> {
        let op = meta_op::Link { inode: inode.raw(), parent: parent.raw(), name: name.to_vec() };
        self.make(credentials, Op::Link(op)).await
    }

    /// Removes a name that is not a directory's.
    pub async fn unlink(&self, credentials: &Credentials, parent: InodeId, name: &[u8]) -> Result<()> {
        let op = meta_op::Unlink { parent: parent.raw(), name: name.to_vec() };
        self.shared.displacing(credentials, Op::Unlink(op)).await
    }

    /// Removes a directory with everything below it. The name goes in one step, what is below it in the background.
    ///
    /// # Errors
    /// `Unsupported` if a dataset has its root below it, `TooBig` if there is too much to check the user's rights in one step: both
    /// can be removed name by name.
    pub async fn remove_tree(&self, credentials: &Credentials, parent: InodeId, name: &[u8]) -> Result<()> {
        let op = meta_op::RemoveDir { parent: parent.raw(), name: name.to_vec(), whole: true };
        self.shared.displacing(credentials, Op::RemoveDir(op)).await
    }

    /// Removes an empty directory.
    pub async fn remove_dir(&self, credentials: &Credentials, parent: InodeId, name: &[u8]) -> Result<()> {
        let op = meta_op::RemoveDir { parent: parent.raw(), name: name.to_vec(), whole: false };
        self.shared.displacing(credentials, Op::RemoveDir(op)).await
    }

    /// renameat2(2).
    pub async fn rename(&self, credentials: &Credentials, rename: Rename<'_>) -> Result<()> {
        let op = meta_op::Rename {
            source_parent: rename.source_parent.raw(),
            source_name: rename.source_name.to_vec(),
            target_parent: rename.target_parent.raw(),
            target_name: rename.target_name.to_vec(),
            no_replace: rename.mode == RenameMode::NoReplace,
            exchange: rename.mode == RenameMode::Exchange,
        };
        self.shared.displacing(credentials, Op::Rename(op)).await
    }

    /// Value of an extended attribute. Computed are `user.ebb.locations`, the replicas' hosts, and `user.ebb.power`,
    /// which of them serve.
    pub async fn get_xattr(&self, credentials: &Credentials, inode: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        if name == LOCATIONS_XATTR {
            return self.shared.locations_text(inode).await;
        }
        if name == POWER_XATTR {
            return self.shared.power_text(inode).await;
        }
        let known_spaces = [&b"user."[..], b"trusted.", b"security."];
        if known_spaces.iter().any(|space| name.len() > space.len() && name.starts_with(space))
            && self.shared.has_no_xattrs(inode)
        {
            bail!(NoAttribute, "{inode} has no attribute {}", String::from_utf8_lossy(name));
        }
        let op = meta_op::GetXattr { inode: inode.raw(), name: name.to_vec() };
        Ok(self.meta(credentials, Op::GetXattr(op)).await?.value)
    }

    /// Names of extended attributes. The computed ones are not listed, so that copies of a file do not carry
    /// them.
    pub async fn list_xattr(&self, credentials: &Credentials, inode: InodeId) -> Result<Vec<Vec<u8>>> {
        if self.shared.has_no_xattrs(inode) {
            return Ok(Vec::new());
        }
        Ok(self.meta(credentials, Op::ListXattr(meta_op::ListXattr { inode: inode.raw() })).await?.names)
    }

    /// Sets an extended attribute.
    pub async fn set_xattr(
        &self,
        credentials: &Credentials,
        inode: InodeId,
        name: &[u8],
        value: Bytes,
        mode: XattrMode,
    ) -> Result<()> {
        if [LOCATIONS_XATTR, POWER_XATTR].contains(&name) {
            bail!(NotPermitted, "{} is computed: it cannot be set", String::from_utf8_lossy(name));
        }
        let (create, replace) = (mode == XattrMode::Create, mode == XattrMode::Replace);
        let op = meta_op::SetXattr { inode: inode.raw(), name: name.to_vec(), value, create, replace };
        self.meta(credentials, Op::SetXattr(op)).await.map(drop)
    }

    /// Removes an extended attribute.
    pub async fn remove_xattr(&self, credentials: &Credentials, inode: InodeId, name: &[u8]) -> Result<()> {
        let op = meta_op::RemoveXattr { inode: inode.raw(), name: name.to_vec() };
        self.meta(credentials, Op::RemoveXattr(op)).await.map(drop)
    }

    /// Space and inodes, as the dataset of this inode divides them.
    pub async fn stat_fs(&self, inode: InodeId) -> Result<StatFs> {
        let reply = self.shared.own_meta(Op::StatFs(meta_op::StatFs { inode: inode.raw() })).await?;
        reply.stat_fs.map(StatFs::from).ok_or_else(|| err!(Protocol, "StatFs was answered without numbers"))
    }
}

fn listing(inode: InodeId, after: Option<u64>, limit: u32, detail: EntryDetail) -> meta_op::ReadDir {
    let (plus, map) = (detail != EntryDetail::Names, detail == EntryDetail::Maps);
    meta_op::ReadDir { inode: inode.raw(), cookie: after.unwrap_or(0), limit, plus, map, ..Default::default() }
}
