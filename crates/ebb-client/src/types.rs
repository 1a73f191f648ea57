//! Plain values of the interface. The mount uses the same ones: a kernel request is turned into them once.

mod attributes;
mod files;
mod locks;
mod names;

use std::pin::Pin;

use ebb_types::{DatasetId, HostName, InodeId};
use ebb_wire::pb;

pub use attributes::{SetAttr, SetTime};
pub use files::{Access, Advice, Allocate, CopyRange, Privileges, Seek, WriteAt};
pub use locks::{IfLocked, Lock, LockKind, LockSort};
pub use names::{
    Created, DirEntry, DirPage, EntryDetail, IfExists, NewFile, NewName, Rename, RenameMode, StatFs, Summary,
    UnnamedFile, XattrMode,
};

/// Hears when another client's changes make kernel caches stale. Called from tasks that hold no lock of the client.
pub trait CacheListener: Send + Sync + 'static {
    /// Bytes that were served of this file are going to change. While the guard lives, new reads through the kernel's
    /// caches wait; reads that have begun are answered.
    fn guard(&self, inode: InodeId) -> Box<dyn CacheGuard>;

    /// Attributes of these inodes, and kept names in them, are not valid any more. Takes no
    /// lock that a request may hold while it waits for this client, so it ends soon whatever else goes on.
    fn forget(&self, inodes: &[InodeId]);
}

/// Keeps kernel caches of one file from being used.
pub trait CacheGuard: Send {
    /// The kernel drops data and attributes that were served until now. Returns when it has, or when it takes too
    /// long: it waits for pages that requests have locked, and such a request may wait for this client.
    fn drop_pages<'a>(&'a mut self) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
}

/// An open file. Closing is explicit ([`crate::Client::close`]); all work on it goes through the client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Handle(pub u64);

/// The map of a file that its reader brings along.
#[derive(Clone, Copy, Debug)]
pub struct KnownMap<'a> {
    /// Records of its metablocks; one without a record is a hole.
    pub metablocks: &'a [pb::Metablock],
    /// Unit of placement, in bytes.
    pub metablock_size: u64,
    /// Length of the file, in bytes.
    pub file_size: u64,
    /// Its dataset, if the reader knows it: members whose nodes serve it are asked before others.
    pub dataset: Option<DatasetId>,
}

/// Where one metablock of a file lies.
#[derive(Clone, Debug)]
pub struct Location {
    /// The master's record.
    pub metablock: pb::Metablock,
    /// Hosts of its members, in order.
    pub hosts: Vec<HostName>,
}
