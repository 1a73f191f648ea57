//! Ebb's client as a [`Vfs`].

use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Client, Created};
use ebb_types::{Credentials, FileKind, InodeId, Result};

use crate::vfs::{
    Access, Allocate, Attr, CopyRange, DirPage, EntryDetail, Handle, IfLocked, Lock, NewFile, NewName, OpenMode,
    Privileges, Rename, Seek, SetAttr, StatFs, UnnamedFile, Vfs, WriteAt, XattrMode,
};

/// The file system of a cluster, for a mount.
///
/// Requests that change nothing go to the master as root's. The kernel has already checked their
/// permissions from the same attributes, with groups that the request does not carry. Changes go
/// with the caller's credentials.
#[derive(Clone)]
pub struct ClientVfs {
    client: Client,
}

impl ClientVfs {
    /// The file system as `client` sees it.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

impl std::fmt::Debug for ClientVfs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClientVfs({})", self.client.session())
    }
}

/// The access that an open needs. A truncation needs write access.
fn needed_access(asked: Access, cut: Option<Privileges>) -> Access {
    match (asked, cut) {
        (Access::Read, Some(_)) => Access::ReadWrite,
        _ => asked,
    }
}

impl ClientVfs {
    /// Truncates a file that was just opened to size 0. If that fails, the handle is closed.
    async fn cut(&self, caller: &Credentials, opened: Handle, privileges: Privileges) -> Result<Attr> {
        let cut = SetAttr { size: Some(0), by_handle: true, privileges, ..SetAttr::default() };
        let done = self.client.set_attr_through(opened, caller, cut).await;
        if done.is_err() {
            self.client.close(opened).await;
        }
        done
    }
}

impl Vfs for ClientVfs {
    fn attr_validity(&self, answered: &Attr) -> Duration {
        // The attributes in the cache may be newer than those in the answer.
        match self.client.kept_attr(answered.inode) {
            Some((kept, left)) if kept == *answered => left,
            _ => Duration::ZERO,
        }
    }

    fn name_validity(&self, parent: InodeId, name: &[u8], leads: Option<InodeId>) -> Duration {
        match self.client.kept_name(parent, name) {
            Some((kept, left)) if kept == leads => left,
            _ => Duration::ZERO,
        }
    }

    fn keeps_name(&self, parent: InodeId, name: &[u8]) -> bool {
        self.client.kept_name(parent, name).is_some()
    }

    fn path_of(&self, inode: InodeId) -> Option<String> {
        self.client.kept_path(inode)
    }

    async fn lookup(&self, _caller: &Credentials, parent: InodeId, name: &[u8]) -> Result<Attr> {
        self.client.lookup(&Credentials::root(), parent, name).await
    }

    async fn get_attr(&self, inode: InodeId) -> Result<Attr> {
        self.client.get_attr(&Credentials::root(), inode).await
    }

    async fn set_attr(&self, caller: &Credentials, inode: InodeId, file: Option<Handle>, set: SetAttr) -> Result<Attr> {
        match file {
            Some(file) => self.client.set_attr_through(file, caller, set).await,
            None => self.client.set_attr(caller, inode, set).await,
        }
    }

    async fn read_link(&self, inode: InodeId) -> Result<Vec<u8>> {
        self.client.read_link(&Credentials::root(), inode).await
    }

    async fn make_node(&self, caller: &Credentials, new: NewName<'_>, kind: FileKind, rdev: u32) -> Result<Attr> {
        self.client.make_node(caller, new, kind, rdev).await
    }

    async fn make_dir(&self, caller: &Credentials, new: NewName<'_>) -> Result<Attr> {
        self.client.make_dir(caller, new).await
    }

    async fn symlink(&self, caller: &Credentials, parent: InodeId, name: &[u8], target: &[u8]) -> Result<Attr> {
        self.client.symlink(caller, parent, name, target).await
    }

    async fn link(&self, caller: &Credentials, inode: InodeId, parent: InodeId, name: &[u8]) -> Result<Attr> {
        self.client.link(caller, inode, parent, name).await
    }

    async fn unlink(&self, caller: &Credentials, parent: InodeId, name: &[u8]) -> Result<()> {
        self.client.unlink(caller, parent, name).await
    }

    async fn remove_dir(&self, caller: &Credentials, parent: InodeId, name: &[u8]) -> Result<()> {
        self.client.remove_dir(caller, parent, name).await
    }

    async fn rename(&self, caller: &Credentials, rename: Rename<'_>) -> Result<()> {
        self.client.rename(caller, rename).await
    }

    async fn read_dir(&self, inode: InodeId, after: Option<u64>, limit: u32, detail: EntryDetail) -> Result<DirPage> {
        self.client.read_dir(&Credentials::root(), inode, after, limit, detail).await
    }

    async fn sync_dir(&self, _inode: InodeId) -> Result<()> {
        // The master answers a change of names only when the change is in its log.
        Ok(())
    }

    async fn stat_fs(&self, inode: InodeId) -> Result<StatFs> {
        self.client.stat_fs(inode).await
    }

    async fn get_xattr(&self, inode: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        self.client.get_xattr(&Credentials::root(), inode, name).await
    }

    async fn list_xattr(&self, inode: InodeId) -> Result<Vec<Vec<u8>>> {
        self.client.list_xattr(&Credentials::root(), inode).await
    }

    async fn set_xattr(
        &self,
        caller: &Credentials,
        inode: InodeId,
        name: &[u8],
        value: Bytes,
        mode: XattrMode,
    ) -> Result<()> {
        self.client.set_xattr(caller, inode, name, value, mode).await
    }

    async fn remove_xattr(&self, caller: &Credentials, inode: InodeId, name: &[u8]) -> Result<()> {
        self.client.remove_xattr(caller, inode, name).await
    }

    async fn open(&self, caller: &Credentials, inode: InodeId, mode: OpenMode) -> Result<Handle> {
        let root = Credentials::root();
        let caller = if mode.execute { &root } else { caller };
        let (handle, attr) = self.client.open(caller, inode, needed_access(mode.access, mode.cut)).await?;
        if let Some(privileges) = mode.cut.filter(|_| attr.size > 0) {
            self.cut(caller, handle, privileges).await?;
        }
        Ok(handle)
    }

    async fn create(&self, caller: &Credentials, new: NewFile<'_>, cut: Option<Privileges>) -> Result<(Handle, Attr)> {
        let new = NewFile { access: needed_access(new.access, cut), ..new };
        let Created { handle, attr: found, existed } = self.client.create(caller, new).await?;
        // Another mount may have made the file since the kernel's lookup.
        match cut.filter(|_| existed && found.size > 0) {
            Some(privileges) => Ok((handle, self.cut(caller, handle, privileges).await?)),
            None => Ok((handle, found)),
        }
    }

    async fn create_unnamed(&self, caller: &Credentials, new: UnnamedFile<'_>) -> Result<(Handle, Attr)> {
        self.client.create_unnamed(caller, new).await
    }

    async fn flush(&self, file: Handle) -> Result<()> {
        self.client.flush(file).await
    }

    async fn close(&self, file: Handle) {
        self.client.close(file).await;
    }

    async fn read(&self, file: Handle, offset: u64, len: u32) -> Result<Bytes> {
        self.client.read(file, offset, len).await
    }

    async fn write(&self, file: Handle, place: WriteAt, data: Bytes, privileges: Privileges) -> Result<u64> {
        self.client.write_to(file, place, data, privileges).await
    }

    async fn fsync(&self, file: Handle) -> Result<()> {
        self.client.fsync(file).await
    }

    async fn allocate(&self, file: Handle, mode: Allocate, offset: u64, len: u64) -> Result<()> {
        self.client.allocate(file, mode, offset, len).await
    }

    async fn seek(&self, file: Handle, offset: u64, whence: Seek) -> Result<u64> {
        self.client.seek(file, offset, whence).await
    }

    async fn copy_range(&self, copy: CopyRange) -> Result<u64> {
        self.client.copy_range(copy).await
    }

    async fn set_lock(&self, inode: InodeId, lock: Lock, if_locked: IfLocked) -> Result<()> {
        self.client.set_lock(inode, lock, if_locked).await
    }

    async fn test_lock(&self, inode: InodeId, lock: Lock) -> Result<Option<Lock>> {
        self.client.test_lock(inode, lock).await
    }

    async fn shut_down(&self) -> Result<()> {
        self.client.disconnect().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_on_open_needs_write_access() {
        let cut = Some(Privileges::OfOpener);
        assert_eq!(needed_access(Access::Read, cut), Access::ReadWrite);
        assert_eq!(needed_access(Access::Read, None), Access::Read);
        assert_eq!(needed_access(Access::Write, cut), Access::Write);
    }
}
