//! A file system in memory. It is complete enough that any failure on its mount is the mount's.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use ebb_types::{Credentials, FileKind, InodeId, Result, bail, err};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::vfs::{
    Allocate, Attr, CopyRange, DirEntry, DirPage, EntryDetail, Handle, IfExists, IfLocked, Lock, LockKind, NewFile,
    NewName, OpenMode, Privileges, Rename, RenameMode, Seek, SetAttr, SetTime, StatFs, UnnamedFile, Vfs, WriteAt,
    XattrMode,
};

use super::memory_state::{State, acl_mode};

pub struct MemoryVfs {
    state: Mutex<State>,
    unlocked: Notify,
    /// Held by a test: requests for attributes of files wait. Those of directories go on, because
    /// the kernel checks them on its way to a name.
    pub stall: tokio::sync::RwLock<()>,
    /// Held by a test: the answers of reads wait, and the kernel has their pages locked.
    pub slow_reads: tokio::sync::RwLock<()>,
    /// Number of calls of `shut_down`.
    pub shut_downs: Mutex<u32>,
}

impl MemoryVfs {
    pub fn new() -> Self {
        let (nodes, files) = (BTreeMap::new(), BTreeMap::new());
        let mut state = State {
            nodes,
            files,
            locks: Vec::new(),
            kept: BTreeSet::new(),
            next: 1,
            clock: 1 << 60,
            waiting: 0,
            lost: false,
        };
        let root = state.make(&Credentials::root(), FileKind::Directory, 0o755, 0);
        state.node(root).attr.links = 2;
        Self {
            state: Mutex::new(state),
            unlocked: Notify::new(),
            stall: tokio::sync::RwLock::default(),
            slow_reads: tokio::sync::RwLock::default(),
            shut_downs: Mutex::new(0),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Changes a file as another client would, without a report to the mount.
    pub fn write_elsewhere(&self, inode: u64, offset: u64, bytes: &[u8]) {
        self.state.lock().write(inode, offset, bytes);
    }

    fn read_now(&self, file: Handle, offset: u64, len: u64) -> Result<Bytes> {
        let mut state = self.state.lock();
        let number = state.file(file)?;
        Ok(state.node(number).data.read(offset, len).into())
    }

    /// The same for a truncation.
    pub fn cut_elsewhere(&self, inode: u64, size: u64) {
        let mut state = self.state.lock();
        let now = state.now();
        let node = state.node(inode);
        node.data.truncate(size);
        (node.attr.mtime, node.attr.ctime) = (now, now);
    }
}

/// Counts a wait for as long as it lasts.
struct Waiting<'a>(&'a MemoryVfs);

impl<'a> Waiting<'a> {
    fn new(vfs: &'a MemoryVfs) -> Self {
        vfs.state.lock().waiting += 1;
        Self(vfs)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}

impl Vfs for MemoryVfs {
    fn name_validity(&self, parent: InodeId, name: &[u8], _leads: Option<InodeId>) -> Duration {
        if self.keeps_name(parent, name) { Duration::from_secs(600) } else { Duration::ZERO }
    }

    fn keeps_name(&self, parent: InodeId, _name: &[u8]) -> bool {
        self.state.lock().kept.contains(&parent.raw())
    }

    async fn lookup(&self, _caller: &Credentials, parent: InodeId, name: &[u8]) -> Result<Attr> {
        let mut state = self.state.lock();
        let number = state.find(parent, name)?;
        Ok(state.attr(number))
    }

    async fn get_attr(&self, inode: InodeId) -> Result<Attr> {
        // A pause, so that requests also end as tasks.
        tokio::task::yield_now().await;
        let is_file = self.state.lock().get(inode)?.attr.kind == FileKind::File;
        if is_file && self.stall.try_read().is_err() {
            let _waiting = Waiting::new(self);
            drop(self.stall.read().await);
        }
        let mut state = self.state.lock();
        if state.lost {
            bail!(Disconnected, "no master can be reached");
        }
        state.get(inode)?;
        Ok(state.attr(inode.raw()))
    }

    async fn set_attr(
        &self,
        caller: &Credentials,
        inode: InodeId,
        _file: Option<Handle>,
        set: SetAttr,
    ) -> Result<Attr> {
        let mut state = self.state.lock();
        let now = state.now();
        let node = state.get(inode)?;
        let owner = caller.is_root() || caller.uid == node.attr.uid;
        if (set.mode.is_some() || set.uid.is_some()) && !owner {
            bail!(NotPermitted, "not the owner");
        }
        if set.gid.is_some_and(|gid| !(caller.is_root() || owner && caller.in_group(gid))) {
            bail!(NotPermitted, "not in the group");
        }
        let resolve = |time: SetTime| match time {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        let attr = &mut node.attr;
        attr.mode = set.mode.unwrap_or(attr.mode);
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        attr.atime = set.atime.map_or(attr.atime, resolve);
        attr.ctime = now;
        if let Some(size) = set.size {
            node.data.truncate(size);
            attr.mtime = now;
            if set.privileges == Privileges::Taken {
                attr.mode &= 0o1777;
            }
        }
        attr.mtime = set.mtime.map_or(attr.mtime, resolve);
        Ok(state.attr(inode.raw()))
    }

    async fn read_link(&self, inode: InodeId) -> Result<Vec<u8>> {
        Ok(self.state.lock().get(inode)?.target.clone())
    }

    async fn make_node(&self, caller: &Credentials, new: NewName<'_>, kind: FileKind, rdev: u32) -> Result<Attr> {
        self.state.lock().make_named(caller, new, kind, rdev)
    }

    async fn make_dir(&self, caller: &Credentials, new: NewName<'_>) -> Result<Attr> {
        self.state.lock().make_named(caller, new, FileKind::Directory, 0)
    }

    async fn symlink(&self, caller: &Credentials, parent: InodeId, name: &[u8], target: &[u8]) -> Result<Attr> {
        let mut state = self.state.lock();
        let new = NewName { parent, name, mode: 0o777, umask: 0 };
        let attr = state.make_named(caller, new, FileKind::Symlink, 0)?;
        let node = state.node(attr.inode.raw());
        node.target = target.to_vec();
        node.attr.size = target.len() as u64;
        Ok(state.attr(attr.inode.raw()))
    }

    async fn link(&self, _caller: &Credentials, inode: InodeId, parent: InodeId, name: &[u8]) -> Result<Attr> {
        let mut state = self.state.lock();
        if state.find(parent, name).is_ok() {
            bail!(Exists, "the name is there");
        }
        let now = state.now();
        let node = state.get(inode)?;
        if node.attr.links == 0 && !std::mem::take(&mut node.linkable) {
            bail!(NotFound, "the inode has no name and gets none");
        }
        node.attr.links += 1;
        node.attr.ctime = now;
        state.enter(parent, name, inode.raw());
        Ok(state.attr(inode.raw()))
    }

    async fn unlink(&self, _caller: &Credentials, parent: InodeId, name: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        let number = state.find(parent, name)?;
        if state.node(number).attr.kind == FileKind::Directory {
            bail!(IsDirectory, "a directory");
        }
        state.leave(parent, name);
        state.drop_link(number);
        Ok(())
    }

    async fn remove_dir(&self, _caller: &Credentials, parent: InodeId, name: &[u8]) -> Result<()> {
        self.state.lock().remove_directory(parent, name)
    }

    async fn rename(&self, _caller: &Credentials, rename: Rename<'_>) -> Result<()> {
        let mut state = self.state.lock();
        let source = state.find(rename.source_parent, rename.source_name)?;
        let target = state.child(rename.target_parent, rename.target_name);
        match (rename.mode, target) {
            (RenameMode::NoReplace, Some(_)) => bail!(Exists, "the target is there"),
            (RenameMode::Exchange, None) => bail!(NotFound, "nothing to swap with"),
            (RenameMode::Exchange, Some(target)) => {
                state.leave(rename.source_parent, rename.source_name);
                state.leave(rename.target_parent, rename.target_name);
                state.enter(rename.source_parent, rename.source_name, target);
                state.enter(rename.target_parent, rename.target_name, source);
                return Ok(());
            }
            (RenameMode::Replace, Some(target)) if target == source => return Ok(()),
            (RenameMode::Replace, Some(target)) if state.node(target).attr.kind == FileKind::Directory => {
                state.remove_directory(rename.target_parent, rename.target_name)?;
            }
            (RenameMode::Replace, Some(target)) => {
                state.leave(rename.target_parent, rename.target_name);
                state.drop_link(target);
            }
            (_, None) => {}
        }
        if state.node(source).attr.kind == FileKind::Directory {
            state.node(rename.source_parent.raw()).attr.links -= 1;
            state.node(rename.target_parent.raw()).attr.links += 1;
        }
        state.leave(rename.source_parent, rename.source_name);
        state.enter(rename.target_parent, rename.target_name, source);
        Ok(())
    }

    async fn read_dir(&self, inode: InodeId, after: Option<u64>, limit: u32, detail: EntryDetail) -> Result<DirPage> {
        let with_attributes = detail == EntryDetail::Attributes;
        let mut state = self.state.lock();
        let directory = state.get(inode)?;
        let mut listed: Vec<_> = directory
            .order
            .range(after.map_or(0, |cookie| cookie + 1)..)
            .take(limit as usize + 1)
            .map(|(cookie, name)| (*cookie, name.clone(), directory.names[name].0))
            .collect();
        let end = listed.len() <= limit as usize;
        listed.truncate(limit as usize);
        let entries = listed.into_iter().map(|(cookie, name, number)| {
            let attr = state.attr(number);
            DirEntry {
                name,
                inode: attr.inode,
                kind: attr.kind,
                cookie,
                attr: with_attributes.then_some(attr),
                map: None,
            }
        });
        Ok(DirPage { entries: entries.collect(), is_last: end })
    }

    async fn sync_dir(&self, inode: InodeId) -> Result<()> {
        self.state.lock().get(inode).map(drop)
    }

    async fn stat_fs(&self, _inode: InodeId) -> Result<StatFs> {
        let inodes = self.state.lock().nodes.len() as u64;
        Ok(StatFs {
            capacity_bytes: 1 << 40,
            free_bytes: 1 << 39,
            available_bytes: 1 << 38,
            inodes,
            ..StatFs::default()
        })
    }

    async fn get_xattr(&self, inode: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        let mut state = self.state.lock();
        state.get(inode)?.xattrs.get(name).cloned().ok_or_else(|| err!(NoAttribute, "not set"))
    }

    async fn list_xattr(&self, inode: InodeId) -> Result<Vec<Vec<u8>>> {
        Ok(self.state.lock().get(inode)?.xattrs.keys().cloned().collect())
    }

    async fn set_xattr(
        &self,
        _caller: &Credentials,
        inode: InodeId,
        name: &[u8],
        value: Bytes,
        mode: XattrMode,
    ) -> Result<()> {
        let mut state = self.state.lock();
        let node = state.get(inode)?;
        match (mode, node.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => bail!(Exists, "set already"),
            (XattrMode::Replace, false) => bail!(NoAttribute, "not set"),
            _ => {}
        }
        if name == b"system.posix_acl_access" {
            node.attr.mode = node.attr.mode & !0o777 | acl_mode(&value);
        }
        node.xattrs.insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    async fn remove_xattr(&self, _caller: &Credentials, inode: InodeId, name: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        state.get(inode)?.xattrs.remove(name).map(drop).ok_or_else(|| err!(NoAttribute, "not set"))
    }

    async fn open(&self, _caller: &Credentials, inode: InodeId, mode: OpenMode) -> Result<Handle> {
        let mut state = self.state.lock();
        state.get(inode)?;
        Ok(state.open(inode.raw(), mode.cut))
    }

    async fn create(&self, caller: &Credentials, new: NewFile<'_>, cut: Option<Privileges>) -> Result<(Handle, Attr)> {
        let mut state = self.state.lock();
        let number = match state.find(new.name.parent, new.name.name) {
            Ok(_) if new.if_exists == IfExists::Fail => bail!(Exists, "the name is there"),
            Ok(number) => number,
            Err(_) => state.make_named(caller, new.name, FileKind::File, 0)?.inode.raw(),
        };
        let file = state.open(number, cut);
        Ok((file, state.attr(number)))
    }

    async fn create_unnamed(&self, caller: &Credentials, new: UnnamedFile<'_>) -> Result<(Handle, Attr)> {
        let mut state = self.state.lock();
        state.get(new.directory)?;
        let number = state.make(caller, FileKind::File, new.mode & !new.umask, 0);
        let node = state.node(number);
        (node.attr.links, node.linkable) = (0, new.linkable);
        Ok((state.open(number, None), state.attr(number)))
    }

    async fn flush(&self, file: Handle) -> Result<()> {
        self.state.lock().file(file).map(drop)
    }

    async fn close(&self, file: Handle) {
        let mut state = self.state.lock();
        if let Some(number) = state.files.remove(&file.0) {
            state.node(number).opens -= 1;
            state.reap(number);
        }
    }

    async fn read(&self, file: Handle, offset: u64, len: u32) -> Result<Bytes> {
        tokio::task::yield_now().await;
        let bytes = self.read_now(file, offset, u64::from(len))?;
        if self.slow_reads.try_read().is_err() {
            let _waiting = Waiting::new(self);
            drop(self.slow_reads.read().await);
        }
        Ok(bytes)
    }

    async fn write(&self, file: Handle, place: WriteAt, data: Bytes, privileges: Privileges) -> Result<u64> {
        tokio::task::yield_now().await;
        let mut state = self.state.lock();
        let number = state.file(file)?;
        let offset = if let WriteAt::Offset(offset) = place { offset } else { state.node(number).data.len() };
        state.write(number, offset, &data);
        if privileges == Privileges::Taken {
            state.node(number).attr.mode &= 0o1777;
        }
        Ok(offset)
    }

    async fn fsync(&self, file: Handle) -> Result<()> {
        self.state.lock().file(file).map(drop)
    }

    async fn allocate(&self, file: Handle, mode: Allocate, offset: u64, len: u64) -> Result<()> {
        let mut state = self.state.lock();
        let number = state.file(file)?;
        let data = &mut state.node(number).data;
        let size = data.len();
        match mode {
            Allocate::Reserve | Allocate::ReserveKeepSize => {}
            Allocate::PunchHole | Allocate::Zero | Allocate::ZeroKeepSize => data.punch(offset, len),
        }
        if matches!(mode, Allocate::Reserve | Allocate::Zero) {
            data.truncate(size.max(offset + len));
        }
        Ok(())
    }

    async fn seek(&self, file: Handle, offset: u64, whence: Seek) -> Result<u64> {
        let mut state = self.state.lock();
        let number = state.file(file)?;
        state.node(number).data.seek(offset, whence).ok_or_else(|| err!(NoSuchOffset, "beyond the end"))
    }

    async fn copy_range(&self, copy: CopyRange) -> Result<u64> {
        let mut state = self.state.lock();
        let (source, target) = (state.file(copy.source)?, state.file(copy.target)?);
        let bytes = state.node(source).data.read(copy.source_offset, copy.len);
        state.write(target, copy.target_offset, &bytes);
        Ok(bytes.len() as u64)
    }

    async fn set_lock(&self, inode: InodeId, lock: Lock, if_locked: IfLocked) -> Result<()> {
        loop {
            let unlocked = self.unlocked.notified();
            tokio::pin!(unlocked);
            unlocked.as_mut().enable();
            {
                let mut state = self.state.lock();
                if lock.kind == LockKind::Unlock || state.blocker(inode, &lock).is_none() {
                    state.lock(inode, lock);
                    self.unlocked.notify_waiters();
                    return Ok(());
                }
            }
            if if_locked == IfLocked::Fail {
                bail!(WouldBlock, "held by somebody else");
            }
            let _waiting = Waiting::new(self);
            unlocked.await;
        }
    }

    async fn test_lock(&self, inode: InodeId, lock: Lock) -> Result<Option<Lock>> {
        Ok(self.state.lock().blocker(inode, &lock))
    }

    async fn shut_down(&self) -> Result<()> {
        *self.shut_downs.lock() += 1;
        Ok(())
    }
}
