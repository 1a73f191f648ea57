//! Inodes, names, open files and locks of a file system in memory.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::{Credentials, FileKind, InodeId, Result, WallTime, bail, err};

use super::memory_data::Data;
use crate::vfs::{Attr, Handle, Lock, LockKind, NewName, Privileges};

pub struct State {
    pub nodes: BTreeMap<u64, Node>,
    pub files: BTreeMap<u64, u64>,
    pub locks: Vec<(InodeId, Lock)>,
    /// Directories whose names the kernel may cache.
    pub kept: BTreeSet<u64>,
    pub next: u64,
    pub clock: i64,
    /// Waits for locks that are under way.
    pub waiting: usize,
    /// Every answer is an error, as from a client that has lost its cluster.
    pub lost: bool,
}

pub struct Node {
    pub attr: Attr,
    pub data: Data,
    pub target: Vec<u8>,
    pub names: BTreeMap<Vec<u8>, (u64, u64)>,
    pub order: BTreeMap<u64, Vec<u8>>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub opens: u32,
    /// Made without a name, and may get one.
    pub linkable: bool,
}

impl State {
    pub fn now(&mut self) -> WallTime {
        self.clock += 1000;
        WallTime(self.clock)
    }

    pub fn make(&mut self, caller: &Credentials, kind: FileKind, mode: u32, rdev: u32) -> u64 {
        let (number, now) = (self.next, self.now());
        self.next += 1;
        let attr = Attr {
            mode,
            links: if kind == FileKind::Directory { 2 } else { 1 },
            uid: caller.uid,
            gid: caller.gid,
            rdev,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            ..Attr::empty(InodeId::new(number), kind)
        };
        let node = Node {
            attr,
            data: Data::default(),
            target: Vec::new(),
            names: BTreeMap::new(),
            order: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            opens: 0,
            linkable: false,
        };
        self.nodes.insert(number, node);
        number
    }

    pub fn node(&mut self, number: u64) -> &mut Node {
        self.nodes.get_mut(&number).unwrap_or_else(|| panic!("inode {number} is gone"))
    }

    pub fn get(&mut self, inode: InodeId) -> Result<&mut Node> {
        self.nodes.get_mut(&inode.raw()).ok_or_else(|| err!(Stale, "{inode} is gone"))
    }

    pub fn attr(&mut self, number: u64) -> Attr {
        let node = self.node(number);
        if node.attr.kind == FileKind::File {
            node.attr.size = node.data.len();
            node.attr.allocated_bytes = node.data.allocated();
        }
        node.attr
    }

    pub fn child(&mut self, parent: InodeId, name: &[u8]) -> Option<u64> {
        self.node(parent.raw()).names.get(name).map(|(number, _)| *number)
    }

    pub fn find(&mut self, parent: InodeId, name: &[u8]) -> Result<u64> {
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

    /// Removes one link. With the last link the inode goes too, unless it is open.
    pub fn drop_link(&mut self, number: u64) {
        let now = self.now();
        let node = self.node(number);
        node.attr.ctime = now;
        node.attr.links = if node.attr.kind == FileKind::Directory { 0 } else { node.attr.links - 1 };
        self.reap(number);
    }

    pub fn reap(&mut self, number: u64) {
        if self.nodes.get(&number).is_some_and(|node| node.attr.links == 0 && node.opens == 0) {
            self.nodes.remove(&number);
        }
    }

    pub fn make_named(&mut self, caller: &Credentials, new: NewName<'_>, kind: FileKind, rdev: u32) -> Result<Attr> {
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

    pub fn remove_directory(&mut self, parent: InodeId, name: &[u8]) -> Result<()> {
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

    pub fn write(&mut self, number: u64, offset: u64, bytes: &[u8]) {
        let now = self.now();
        let node = self.node(number);
        node.data.write(offset, bytes);
        (node.attr.mtime, node.attr.ctime) = (now, now);
    }

    pub fn open(&mut self, number: u64, cut: Option<Privileges>) -> Handle {
        let file = self.next;
        self.next += 1;
        self.files.insert(file, number);
        let now = self.now();
        let node = self.node(number);
        node.opens += 1;
        if cut.is_some() {
            node.data.truncate(0);
            (node.attr.mtime, node.attr.ctime) = (now, now);
        }
        Handle(file)
    }

    pub fn file(&mut self, file: Handle) -> Result<u64> {
        self.files.get(&file.0).copied().ok_or_else(|| err!(Stale, "file {} is closed", file.0))
    }

    pub fn blocker(&self, inode: InodeId, lock: &Lock) -> Option<Lock> {
        let conflicts = |other: &Lock| {
            other.sort == lock.sort
                && other.owner != lock.owner
                && other.start <= lock.last_byte()
                && lock.start <= other.last_byte()
                && (other.kind == LockKind::Exclusive || lock.kind == LockKind::Exclusive)
        };
        self.locks.iter().find(|(at, other)| *at == inode && conflicts(other)).map(|(_, other)| *other)
    }

    /// Replaces the owner's locks in the range.
    pub fn lock(&mut self, inode: InodeId, lock: Lock) {
        let mut kept = Vec::new();
        for (at, other) in std::mem::take(&mut self.locks) {
            let overlaps = at == inode
                && other.sort == lock.sort
                && other.owner == lock.owner
                && other.start <= lock.last_byte()
                && lock.start <= other.last_byte();
            if !overlaps {
                kept.push((at, other));
                continue;
            }
            if other.start < lock.start {
                kept.push((at, Lock { end: Some(lock.start - 1), ..other }));
            }
            if other.last_byte() > lock.last_byte() {
                kept.push((at, Lock { start: lock.last_byte() + 1, ..other }));
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
pub fn acl_mode(acl: &[u8]) -> u32 {
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
