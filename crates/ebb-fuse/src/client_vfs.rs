//! Ebb's client as a [`Vfs`].

use std::time::Duration;

use bytes::Bytes;
use ebb_client::Client;
use ebb_types::{Credentials, FileKind, InodeId, Result, WallTime, err};
use ebb_wire::pb;

use crate::vfs::{
    Access, Allocate, Attr, CopyRange, DirEntry, DirPage, EntryDetail, Handle, IfLocked, Lock, NewFile, NewName,
    OpenMode, Privileges, Rename, Seek, SetAttr, StatFs, UnnamedFile, Vfs, WriteAt, XattrMode,
};

/// Largest transfer size that programs are told: they allocate buffers of it.
const TRANSFER_MAX: u64 = 1 << 20;

/// What a mount of a cluster shows.
///
/// Permissions of questions were checked by the kernel, from the same attributes, before it asked, and with groups
/// that a question does not carry: they go to the master as root's. Changes go as the caller's.
#[derive(Clone)]
pub struct ClientVfs {
    client: Client,
}

impl ClientVfs {
    /// What `client` sees.
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

fn attr(from: pb::Attr) -> Result<Attr> {
    let kind = FileKind::from_raw(from.kind)
        .ok_or_else(|| err!(Protocol, "inode i{} is of kind {}, which is unknown here", from.inode, from.kind))?;
    Ok(Attr {
        inode: InodeId::new(from.inode),
        kind,
        mode: from.mode & 0o7777,
        links: from.nlink,
        uid: from.uid,
        gid: from.gid,
        rdev: from.rdev,
        size: from.size,
        allocated_bytes: from.allocated_bytes,
        block_size: if kind == FileKind::File { from.block_size.clamp(4096, TRANSFER_MAX) as u32 } else { 4096 },
        atime: WallTime(from.atime_ns),
        mtime: WallTime(from.mtime_ns),
        ctime: WallTime(from.ctime_ns),
        btime: WallTime(from.btime_ns),
    })
}

/// What a file must be opened for: cutting it is writing.
fn needed_access(asked: Access, cut: Option<Privileges>) -> Access {
    match (asked, cut) {
        (Access::Read, Some(_)) => Access::ReadWrite,
        _ => asked,
    }
}

impl ClientVfs {
    /// Cuts a file that was just opened to nothing. The handle is closed if that fails.
    async fn cut(&self, caller: &Credentials, opened: Handle, inode: InodeId, privileges: Privileges) -> Result<Attr> {
        let cut = SetAttr { size: Some(0), by_handle: true, privileges, ..SetAttr::default() };
        let done = self.set_attr(caller, inode, cut).await;
        if done.is_err() {
            self.client.close(opened).await;
        }
        done
    }
}

impl Vfs for ClientVfs {
    fn attr_validity(&self, told: &Attr) -> Duration {
        // What is kept now may be younger than what was told.
        match self.client.kept_attr(told.inode) {
            Some((kept, left)) if attr(kept).as_ref() == Ok(told) => left,
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
        attr(self.client.lookup(&Credentials::root(), parent, name).await?)
    }

    async fn get_attr(&self, inode: InodeId) -> Result<Attr> {
        attr(self.client.get_attr(&Credentials::root(), inode).await?)
    }

    async fn set_attr(&self, caller: &Credentials, inode: InodeId, set: SetAttr) -> Result<Attr> {
        attr(self.client.set_attr(caller, inode, set).await?)
    }

    async fn read_link(&self, inode: InodeId) -> Result<Vec<u8>> {
        self.client.read_link(&Credentials::root(), inode).await
    }

    async fn make_node(&self, caller: &Credentials, new: NewName<'_>, kind: FileKind, rdev: u32) -> Result<Attr> {
        attr(self.client.make_node(caller, new, kind, rdev).await?)
    }

    async fn make_dir(&self, caller: &Credentials, new: NewName<'_>) -> Result<Attr> {
        attr(self.client.make_dir(caller, new).await?)
    }

    async fn symlink(&self, caller: &Credentials, parent: InodeId, name: &[u8], target: &[u8]) -> Result<Attr> {
        attr(self.client.symlink(caller, parent, name, target).await?)
    }

    async fn link(&self, caller: &Credentials, inode: InodeId, parent: InodeId, name: &[u8]) -> Result<Attr> {
        attr(self.client.link(caller, inode, parent, name).await?)
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
        let (entries, end) = self.client.read_dir(&Credentials::root(), inode, after, limit, detail).await?;
        let entries = entries.into_iter().map(|entry| {
            let kind = FileKind::from_raw(entry.kind)
                .ok_or_else(|| err!(Protocol, "inode i{} is of kind {}", entry.inode, entry.kind))?;
            Ok(DirEntry {
                name: entry.name,
                inode: InodeId::new(entry.inode),
                kind,
                cookie: entry.cookie,
                attr: entry.attr.map(attr).transpose()?,
            })
        });
        Ok(DirPage { entries: entries.collect::<Result<_>>()?, end })
    }

    async fn sync_dir(&self, _inode: InodeId) -> Result<()> {
        // A change of names is answered when it is in the master's log.
        Ok(())
    }

    async fn stat_fs(&self, inode: InodeId) -> Result<StatFs> {
        let stat = self.client.stat_fs(inode).await?;
        let copies = u64::from(stat.replicas.max(1));
        Ok(StatFs {
            capacity_bytes: stat.capacity_bytes / copies,
            free_bytes: stat.free_bytes / copies,
            available_bytes: stat.available_bytes,
            inodes: stat.inodes,
        })
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
            self.cut(caller, handle, inode, privileges).await?;
        }
        Ok(handle)
    }

    async fn create(&self, caller: &Credentials, new: NewFile<'_>, cut: Option<Privileges>) -> Result<(Handle, Attr)> {
        let new = NewFile { access: needed_access(new.access, cut), ..new };
        let (handle, found, made) = self.client.create(caller, new).await?;
        let found = attr(found)?;
        // Another mount may have made the file since the kernel looked.
        match cut.filter(|_| !made && found.size > 0) {
            Some(privileges) => Ok((handle, self.cut(caller, handle, found.inode, privileges).await?)),
            None => Ok((handle, found)),
        }
    }

    async fn create_unnamed(&self, caller: &Credentials, new: UnnamedFile) -> Result<(Handle, Attr)> {
        let (handle, made) = self.client.create_unnamed(caller, new).await?;
        Ok((handle, attr(made)?))
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

    async fn allocate(&self, file: Handle, what: Allocate, offset: u64, len: u64) -> Result<()> {
        self.client.allocate(file, what, offset, len).await
    }

    async fn seek(&self, file: Handle, offset: u64, what: Seek) -> Result<u64> {
        self.client.seek(file, offset, what).await
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
