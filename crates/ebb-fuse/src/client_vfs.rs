//! Ebb's client as a [`Vfs`].

use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, Handle};
use ebb_types::{Credentials, FileKind, InodeId, Result, WallTime, err};
use ebb_wire::pb;

use crate::vfs::{
    Allocate, Attr, DirEntry, DirPage, FileId, Lock, LockKind, NewName, OpenMode, Place, Privileges, Rename,
    RenameMode, Seek, SetAttr, SetTime, StatFs, Vfs, XattrMode,
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

fn time(set: SetTime) -> ebb_client::SetTime {
    match set {
        SetTime::Now => ebb_client::SetTime::Now,
        SetTime::At(time) => ebb_client::SetTime::At(time),
    }
}

fn to_wire(lock: Lock) -> pb::FileLock {
    let kind = match lock.kind {
        LockKind::Unlock => 0,
        LockKind::Shared => 1,
        LockKind::Exclusive => 2,
    };
    let Lock { flock, owner, start, end, pid, .. } = lock;
    pb::FileLock { kind, flock, owner, start, end, pid, session: 0 }
}

fn access(mode: OpenMode) -> Access {
    match (mode.read, mode.write || mode.truncate) {
        (_, false) => Access::Read,
        (false, true) => Access::Write,
        (true, true) => Access::ReadWrite,
    }
}

/// The mode without what a write by somebody else takes away: set-user-id, and set-group-id where the group may
/// execute (without it the bit once stood for mandatory locks; Linux' `setattr_should_drop_suidgid`).
fn without_privileges(mode: u32) -> u32 {
    let mode = mode & !libc::S_ISUID;
    if mode & libc::S_IXGRP == 0 { mode } else { mode & !libc::S_ISGID }
}

impl ClientVfs {
    /// Takes set-user-id and set-group-id away, if they are set, before a change of size by somebody who may not keep
    /// them.
    async fn kill_privileges(&self, inode: InodeId) -> Result<()> {
        let mode = self.get_attr(inode).await?.mode;
        let left = without_privileges(mode);
        if left != mode {
            // Not the caller's wish but the system's: the caller may well not own the file.
            let set = ebb_client::SetAttr { mode: Some(left), ..ebb_client::SetAttr::default() };
            self.client.set_attr(&Credentials::root(), inode, set).await?;
        }
        Ok(())
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
        if set.kill_privileges && set.size.is_some() {
            self.kill_privileges(inode).await?;
        }
        let change = ebb_client::SetAttr {
            mode: set.mode,
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            atime: set.atime.map(time),
            mtime: set.mtime.map(time),
            by_handle: set.by_handle,
        };
        attr(self.client.set_attr(caller, inode, change).await?)
    }

    async fn read_link(&self, inode: InodeId) -> Result<Vec<u8>> {
        self.client.read_link(&Credentials::root(), inode).await
    }

    async fn make_node(&self, caller: &Credentials, new: NewName<'_>, kind: FileKind, rdev: u32) -> Result<Attr> {
        let mode = crate::abi::reply::kind_bits(kind) | new.mode;
        attr(self.client.make_node(caller, new.parent, new.name, mode, new.umask, rdev).await?)
    }

    async fn make_dir(&self, caller: &Credentials, new: NewName<'_>) -> Result<Attr> {
        attr(self.client.make_dir(caller, new.parent, new.name, new.mode, new.umask).await?)
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
        let request = pb::meta_op::Rename {
            source_parent: rename.source_parent.raw(),
            source_name: rename.source_name.to_vec(),
            target_parent: rename.target_parent.raw(),
            target_name: rename.target_name.to_vec(),
            no_replace: rename.mode == RenameMode::NoReplace,
            exchange: rename.mode == RenameMode::Exchange,
        };
        self.client.rename(caller, request).await
    }

    async fn read_dir(&self, inode: InodeId, cookie: u64, limit: u32, with_attributes: bool) -> Result<DirPage> {
        let (entries, end) = self.client.read_dir(&Credentials::root(), inode, cookie, limit, with_attributes).await?;
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
        let (create, replace) = (mode == XattrMode::Create, mode == XattrMode::Replace);
        self.client.set_xattr(caller, inode, name, value, create, replace).await
    }

    async fn remove_xattr(&self, caller: &Credentials, inode: InodeId, name: &[u8]) -> Result<()> {
        self.client.remove_xattr(caller, inode, name).await
    }

    async fn open(&self, caller: &Credentials, inode: InodeId, mode: OpenMode) -> Result<FileId> {
        let root = Credentials::root();
        let caller = if mode.execute { &root } else { caller };
        let (handle, attr) = self.client.open(caller, inode, access(mode)).await?;
        if mode.truncate && attr.size > 0 {
            let cut =
                SetAttr { size: Some(0), by_handle: true, kill_privileges: mode.kill_privileges, ..SetAttr::default() };
            if let Err(error) = self.set_attr(caller, inode, cut).await {
                self.client.close(handle).await;
                return Err(error);
            }
        }
        Ok(FileId(handle.0))
    }

    async fn create(
        &self,
        caller: &Credentials,
        new: NewName<'_>,
        exclusive: bool,
        mode: OpenMode,
    ) -> Result<(FileId, Attr)> {
        let NewName { parent, name, mode: bits, umask } = new;
        let (handle, found, made) =
            self.client.create(caller, parent, name, bits, umask, exclusive, access(mode), Vec::new()).await?;
        let found = attr(found)?;
        // Another mount may have made the file since the kernel looked.
        if !made && mode.truncate && found.size > 0 {
            let cut =
                SetAttr { size: Some(0), by_handle: true, kill_privileges: mode.kill_privileges, ..SetAttr::default() };
            return match self.set_attr(caller, found.inode, cut).await {
                Ok(attr) => Ok((FileId(handle.0), attr)),
                Err(error) => {
                    self.client.close(handle).await;
                    Err(error)
                }
            };
        }
        Ok((FileId(handle.0), found))
    }

    async fn create_unnamed(
        &self,
        caller: &Credentials,
        new: NewName<'_>,
        linkable: bool,
        mode: OpenMode,
    ) -> Result<(FileId, Attr)> {
        let NewName { parent, mode: bits, umask, .. } = new;
        let (handle, made) = self.client.create_unnamed(caller, parent, bits, umask, linkable, access(mode)).await?;
        Ok((FileId(handle.0), attr(made)?))
    }

    async fn flush(&self, file: FileId) -> Result<()> {
        self.client.flush(Handle(file.0)).await
    }

    async fn close(&self, file: FileId) {
        self.client.close(Handle(file.0)).await;
    }

    async fn read(&self, file: FileId, offset: u64, len: u32) -> Result<Bytes> {
        self.client.read(Handle(file.0), offset, len).await
    }

    async fn write(&self, file: FileId, place: Place, data: Bytes, privileges: Privileges) -> Result<u64> {
        let handle = Handle(file.0);
        match (place, privileges) {
            (Place::At(offset), Privileges::Kept) => self.client.write(handle, offset, data).await.map(|()| offset),
            (Place::End, Privileges::Kept) => self.client.append(handle, data).await,
            (Place::At(offset), Privileges::Taken) => self.client.write_unprivileged(handle, Some(offset), data).await,
            (Place::End, Privileges::Taken) => self.client.write_unprivileged(handle, None, data).await,
        }
    }

    async fn fsync(&self, file: FileId) -> Result<()> {
        self.client.fsync(Handle(file.0)).await
    }

    async fn allocate(&self, file: FileId, what: Allocate, offset: u64, len: u64) -> Result<()> {
        let what = match what {
            Allocate::Reserve => ebb_client::Allocate::Reserve,
            Allocate::ReserveKeepSize => ebb_client::Allocate::ReserveKeepSize,
            Allocate::PunchHole => ebb_client::Allocate::PunchHole,
            Allocate::Zero => ebb_client::Allocate::Zero,
            Allocate::ZeroKeepSize => ebb_client::Allocate::ZeroKeepSize,
        };
        self.client.allocate(Handle(file.0), what, offset, len).await
    }

    async fn seek(&self, file: FileId, offset: u64, what: Seek) -> Result<u64> {
        self.client.seek(Handle(file.0), offset, what == Seek::Hole).await
    }

    async fn copy_range(
        &self,
        source: FileId,
        source_offset: u64,
        target: FileId,
        target_offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.client.copy_range(Handle(source.0), source_offset, Handle(target.0), target_offset, len).await
    }

    async fn set_lock(&self, inode: InodeId, lock: Lock, wait: bool) -> Result<()> {
        self.client.set_lock(inode, to_wire(lock), wait).await
    }

    async fn test_lock(&self, inode: InodeId, lock: Lock) -> Result<Option<Lock>> {
        let found = self.client.test_lock(inode, to_wire(lock)).await?;
        let ours = self.client.session().raw();
        Ok(found.map(|found| Lock {
            kind: if found.kind == 2 { LockKind::Exclusive } else { LockKind::Shared },
            flock: found.flock,
            owner: found.owner,
            start: found.start,
            end: found.end,
            // A process number means something on its own host only.
            pid: if found.session == ours { found.pid } else { 0 },
        }))
    }

    async fn shut_down(&self) -> Result<()> {
        self.client.disconnect().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_takes_privileges_but_not_the_old_sign_of_mandatory_locks() {
        assert_eq!(without_privileges(0o6755), 0o755);
        assert_eq!(without_privileges(0o6745), 0o2745);
        assert_eq!(without_privileges(0o1644), 0o1644);
    }

    #[test]
    fn cutting_on_open_needs_write_access() {
        let mode = OpenMode { read: true, write: false, truncate: true, execute: false, kill_privileges: false };
        assert_eq!(access(mode), Access::ReadWrite);
        assert_eq!(access(OpenMode { truncate: false, ..mode }), Access::Read);
        assert_eq!(access(OpenMode { read: false, write: true, ..mode }), Access::Write);
    }
}
