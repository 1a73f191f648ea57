//! A file system in memory: complete enough that whatever fails on its mount is the mount's fault.

use std::collections::BTreeMap;

use bytes::Bytes;
use ebb_types::{Credentials, FileKind, InodeId, Result, WallTime, bail, err};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::vfs::{
    Allocate, Attr, DirEntry, DirPage, FileId, Lock, LockKind, NewName, OpenMode, Rename, RenameMode, Seek, SetAttr,
    SetTime, StatFs, Vfs, XattrMode,
};

use super::memory_data::Data;

pub struct MemoryVfs {
    state: Mutex<State>,
    unlocked: Notify,
    /// How often the caller of `shut_down` came.
    pub shut_downs: Mutex<u32>,
}

pub struct State {
    pub nodes: BTreeMap<u64, Node>,
    files: BTreeMap<u64, u64>,
    locks: Vec<(InodeId, Lock)>,
    next: u64,
    clock: i64,
    /// Waits for locks that are under way.
    pub waiting: usize,
    /// Nothing is answered but with errors, as by a client that has lost its cluster.
    pub lost: bool,
}

pub struct Node {
    pub attr: Attr,
    pub data: Data,
    target: Vec<u8>,
    names: BTreeMap<Vec<u8>, (u64, u64)>,
    order: BTreeMap<u64, Vec<u8>>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    opens: u32,
}

impl MemoryVfs {
    pub fn new() -> Self {
        let (nodes, files) = (BTreeMap::new(), BTreeMap::new());
        let mut state = State { nodes, files, locks: Vec::new(), next: 1, clock: 1 << 60, waiting: 0, lost: false };
        let root = state.make(&Credentials::root(), FileKind::Directory, 0o755, 0);
        state.node(root).attr.links = 2;
        Self { state: Mutex::new(state), unlocked: Notify::new(), shut_downs: Mutex::new(0) }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Changes a file as another client would: behind the mount's back.
    pub fn write_elsewhere(&self, inode: u64, offset: u64, bytes: &[u8]) {
        self.state.lock().write(inode, offset, bytes);
    }
}

impl State {
    fn now(&mut self) -> WallTime {
        self.clock += 1000;
        WallTime(self.clock)
    }

    fn make(&mut self, caller: &Credentials, kind: FileKind, mode: u32, rdev: u32) -> u64 {
        let (number, now) = (self.next, self.now());
        self.next += 1;
        let attr = Attr {
            inode: InodeId::new(number),
            kind,
            mode,
            links: if kind == FileKind::Directory { 2 } else { 1 },
            uid: caller.uid,
            gid: caller.gid,
            rdev,
            size: 0,
            allocated_bytes: 0,
            block_size: 4096,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        };
        let node = Node {
            attr,
            data: Data::default(),
            target: Vec::new(),
            names: BTreeMap::new(),
            order: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            opens: 0,
        };
        self.nodes.insert(number, node);
        number
    }

    pub fn node(&mut self, number: u64) -> &mut Node {
        self.nodes.get_mut(&number).unwrap_or_else(|| panic!("inode {number} is gone"))
    }

    fn get(&mut self, inode: InodeId) -> Result<&mut Node> {
        self.nodes.get_mut(&inode.raw()).ok_or_else(|| err!(Stale, "{inode} is gone"))
    }

    fn attr(&mut self, number: u64) -> Attr {
        let node = self.node(number);
        if node.attr.kind == FileKind::File {
            node.attr.size = node.data.len();
            node.attr.allocated_bytes = node.data.allocated();
        }
        node.attr.clone()
    }

    pub fn child(&mut self, parent: InodeId, name: &[u8]) -> Option<u64> {
        self.node(parent.raw()).names.get(name).map(|(number, _)| *number)
    }

    fn find(&mut self, parent: InodeId, name: &[u8]) -> Result<u64> {
        if name.len() > 255 {
            bail!(NameTooLong, "{} bytes", name.len());
        }
        self.get(parent)?;
        self.child(parent, name).ok_or_else(|| err!(NotFound, "no such name"))
    }

    pub fn enter(&mut self, parent: InodeId, name: &[u8], number: u64) {
        let cookie = self.next;
        self.next += 1;
        let now = self.now();
        let directory = self.node(parent.raw());
        directory.names.insert(name.to_vec(), (number, cookie));
        directory.order.insert(cookie, name.to_vec());
        (directory.attr.mtime, directory.attr.ctime) = (now, now);
    }

    pub fn leave(&mut self, parent: InodeId, name: &[u8]) {
        let now = self.now();
        let directory = self.node(parent.raw());
        let (_, cookie) = directory.names.remove(name).expect("a name that was found");
        directory.order.remove(&cookie);
        (directory.attr.mtime, directory.attr.ctime) = (now, now);
    }

    /// One link less; the last one takes the inode with it unless it is open.
    fn drop_link(&mut self, number: u64) {
        let now = self.now();
        let node = self.node(number);
        node.attr.ctime = now;
        node.attr.links = if node.attr.kind == FileKind::Directory { 0 } else { node.attr.links - 1 };
        self.reap(number);
    }

    fn reap(&mut self, number: u64) {
        if self.nodes.get(&number).is_some_and(|node| node.attr.links == 0 && node.opens == 0) {
            self.nodes.remove(&number);
        }
    }

    fn make_named(&mut self, caller: &Credentials, new: NewName<'_>, kind: FileKind, rdev: u32) -> Result<Attr> {
        match self.find(new.parent, new.name) {
            Ok(_) => bail!(Exists, "the name is there"),
            Err(error) if error.kind() != ebb_types::ErrorKind::NotFound => return Err(error),
            Err(_) => {}
        }
        let parent = self.node(new.parent.raw());
        let (sgid, parent_gid) = (parent.attr.mode & libc::S_ISGID != 0, parent.attr.gid);
        let default = parent.xattrs.get(&b"system.posix_acl_default"[..]).cloned();
        let mode = if default.is_some() { new.mode } else { new.mode & !new.umask };
        let number = self.make(caller, kind, mode, rdev);
        let node = self.node(number);
        if sgid {
            node.attr.gid = parent_gid;
            if kind == FileKind::Directory {
                node.attr.mode |= libc::S_ISGID;
            }
        }
        if let Some(default) = default {
            if kind == FileKind::Directory {
                node.xattrs.insert(b"system.posix_acl_default".to_vec(), default.clone());
            }
            node.attr.mode &= !0o777 | acl_mode(&default) & new.mode;
            node.xattrs.insert(b"system.posix_acl_access".to_vec(), default);
        }
        self.enter(new.parent, new.name, number);
        if kind == FileKind::Directory {
            self.node(new.parent.raw()).attr.links += 1;
        }
        Ok(self.attr(number))
    }

    fn remove_directory(&mut self, parent: InodeId, name: &[u8]) -> Result<()> {
        let number = self.find(parent, name)?;
        let node = self.node(number);
        if node.attr.kind != FileKind::Directory {
            bail!(NotDirectory, "not a directory");
        }
        if !node.names.is_empty() {
            bail!(NotEmpty, "entries left");
        }
        self.leave(parent, name);
        self.node(parent.raw()).attr.links -= 1;
        self.drop_link(number);
        Ok(())
    }

    fn write(&mut self, number: u64, offset: u64, bytes: &[u8]) {
        let now = self.now();
        let node = self.node(number);
        node.data.write(offset, bytes);
        (node.attr.mtime, node.attr.ctime) = (now, now);
    }

    fn open(&mut self, number: u64, mode: OpenMode) -> FileId {
        let file = self.next;
        self.next += 1;
        self.files.insert(file, number);
        let now = self.now();
        let node = self.node(number);
        node.opens += 1;
        if mode.truncate {
            node.data.truncate(0);
            (node.attr.mtime, node.attr.ctime) = (now, now);
        }
        FileId(file)
    }

    fn file(&mut self, file: FileId) -> Result<u64> {
        self.files.get(&file.0).copied().ok_or_else(|| err!(Stale, "file {} is closed", file.0))
    }

    fn blocker(&self, inode: InodeId, lock: &Lock) -> Option<Lock> {
        let conflicts = |other: &Lock| {
            other.flock == lock.flock
                && other.owner != lock.owner
                && other.start <= lock.end
                && lock.start <= other.end
                && (other.kind == LockKind::Exclusive || lock.kind == LockKind::Exclusive)
        };
        self.locks.iter().find(|(at, other)| *at == inode && conflicts(other)).map(|(_, other)| *other)
    }

    /// Replaces what the owner has in the range.
    fn lock(&mut self, inode: InodeId, lock: Lock) {
        let mut kept = Vec::new();
        for (at, other) in std::mem::take(&mut self.locks) {
            let overlaps = at == inode
                && other.flock == lock.flock
                && other.owner == lock.owner
                && other.start <= lock.end
                && lock.start <= other.end;
            if !overlaps {
                kept.push((at, other));
                continue;
            }
            if other.start < lock.start {
                kept.push((at, Lock { end: lock.start - 1, ..other }));
            }
            if other.end > lock.end {
                kept.push((at, Lock { start: lock.end + 1, ..other }));
            }
        }
        if lock.kind != LockKind::Unlock {
            kept.push((inode, lock));
        }
        self.locks = kept;
    }

    pub fn lock_count(&self) -> usize {
        self.locks.len()
    }

    pub fn open_count(&self) -> usize {
        self.files.len()
    }
}

/// Permission bits that an ACL in the kernel's form stands for (acl(5)): version, then tag, bits and id of each entry.
fn acl_mode(acl: &[u8]) -> u32 {
    let mut bits = [0_u32; 3];
    for entry in acl[4..].chunks_exact(8) {
        let (tag, perm) = (u16::from_le_bytes([entry[0], entry[1]]), u32::from(entry[2]));
        match tag {
            0x01 => bits[0] = perm,
            0x04 if bits[1] == 0 => bits[1] = perm,
            0x10 => bits[1] = perm,
            0x20 => bits[2] = perm,
            _ => {}
        }
    }
    bits[0] << 6 | bits[1] << 3 | bits[2]
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
    async fn lookup(&self, _caller: &Credentials, parent: InodeId, name: &[u8]) -> Result<Attr> {
        let mut state = self.state.lock();
        let number = state.find(parent, name)?;
        Ok(state.attr(number))
    }

    async fn get_attr(&self, inode: InodeId) -> Result<Attr> {
        // A pause, so that requests also end as tasks.
        tokio::task::yield_now().await;
        let mut state = self.state.lock();
        if state.lost {
            bail!(Disconnected, "no master can be reached");
        }
        state.get(inode)?;
        Ok(state.attr(inode.raw()))
    }

    async fn set_attr(&self, caller: &Credentials, inode: InodeId, set: SetAttr) -> Result<Attr> {
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
            if set.kill_privileges {
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

    async fn read_dir(&self, inode: InodeId, cookie: u64, limit: u32, with_attributes: bool) -> Result<DirPage> {
        let mut state = self.state.lock();
        let directory = state.get(inode)?;
        let mut listed: Vec<_> = directory
            .order
            .range(cookie + 1..)
            .take(limit as usize + 1)
            .map(|(cookie, name)| (*cookie, name.clone(), directory.names[name].0))
            .collect();
        let end = listed.len() <= limit as usize;
        listed.truncate(limit as usize);
        let entries = listed.into_iter().map(|(cookie, name, number)| {
            let attr = state.attr(number);
            DirEntry { name, inode: attr.inode, kind: attr.kind, cookie, attr: with_attributes.then_some(attr) }
        });
        Ok(DirPage { entries: entries.collect(), end })
    }

    async fn sync_dir(&self, inode: InodeId) -> Result<()> {
        self.state.lock().get(inode).map(drop)
    }

    async fn stat_fs(&self, _inode: InodeId) -> Result<StatFs> {
        let inodes = self.state.lock().nodes.len() as u64;
        Ok(StatFs { capacity_bytes: 1 << 40, free_bytes: 1 << 39, inodes })
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

    async fn open(&self, _caller: &Credentials, inode: InodeId, mode: OpenMode) -> Result<FileId> {
        let mut state = self.state.lock();
        state.get(inode)?;
        Ok(state.open(inode.raw(), mode))
    }

    async fn create(
        &self,
        caller: &Credentials,
        new: NewName<'_>,
        exclusive: bool,
        mode: OpenMode,
    ) -> Result<(FileId, Attr)> {
        let mut state = self.state.lock();
        let number = match state.find(new.parent, new.name) {
            Ok(_) if exclusive => bail!(Exists, "the name is there"),
            Ok(number) => number,
            Err(_) => state.make_named(caller, new, FileKind::File, 0)?.inode.raw(),
        };
        let file = state.open(number, mode);
        Ok((file, state.attr(number)))
    }

    async fn flush(&self, file: FileId) -> Result<()> {
        self.state.lock().file(file).map(drop)
    }

    async fn close(&self, file: FileId) {
        let mut state = self.state.lock();
        if let Some(number) = state.files.remove(&file.0) {
            state.node(number).opens -= 1;
            state.reap(number);
        }
    }

    async fn read(&self, file: FileId, offset: u64, len: u32) -> Result<Bytes> {
        tokio::task::yield_now().await;
        let mut state = self.state.lock();
        let number = state.file(file)?;
        Ok(state.node(number).data.read(offset, u64::from(len)).into())
    }

    async fn write(&self, file: FileId, offset: u64, data: Bytes) -> Result<()> {
        tokio::task::yield_now().await;
        let mut state = self.state.lock();
        let number = state.file(file)?;
        state.write(number, offset, &data);
        Ok(())
    }

    async fn append(&self, file: FileId, data: Bytes) -> Result<u64> {
        let mut state = self.state.lock();
        let number = state.file(file)?;
        let end = state.node(number).data.len();
        state.write(number, end, &data);
        Ok(end)
    }

    async fn kill_privileges(&self, inode: InodeId) -> Result<()> {
        self.state.lock().get(inode)?.attr.mode &= 0o1777;
        Ok(())
    }

    async fn fsync(&self, file: FileId) -> Result<()> {
        self.state.lock().file(file).map(drop)
    }

    async fn allocate(&self, file: FileId, what: Allocate, offset: u64, len: u64) -> Result<()> {
        let mut state = self.state.lock();
        let number = state.file(file)?;
        let data = &mut state.node(number).data;
        let size = data.len();
        match what {
            Allocate::Reserve | Allocate::ReserveKeepSize => {}
            Allocate::PunchHole | Allocate::Zero | Allocate::ZeroKeepSize => data.punch(offset, len),
        }
        if matches!(what, Allocate::Reserve | Allocate::Zero) {
            data.truncate(size.max(offset + len));
        }
        Ok(())
    }

    async fn seek(&self, file: FileId, offset: u64, what: Seek) -> Result<u64> {
        let mut state = self.state.lock();
        let number = state.file(file)?;
        state.node(number).data.seek(offset, what).ok_or_else(|| err!(NoSuchOffset, "beyond the end"))
    }

    async fn copy_range(
        &self,
        source: FileId,
        source_offset: u64,
        target: FileId,
        target_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let mut state = self.state.lock();
        let (source, target) = (state.file(source)?, state.file(target)?);
        let bytes = state.node(source).data.read(source_offset, len);
        state.write(target, target_offset, &bytes);
        Ok(bytes.len() as u64)
    }

    async fn set_lock(&self, inode: InodeId, lock: Lock, wait: bool) -> Result<()> {
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
            if !wait {
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
