//! What a mount needs of a file system, in plain values: the seam between the kernel's shapes and Ebb's client.
//!
//! Everything above this trait knows FUSE and nothing of clusters; everything below knows clusters and nothing of FUSE.
//! Operations are the client's own types, so that a request is spelled in one way only. Another way to talk to the
//! kernel (requests over io_uring instead of reads of `/dev/fuse`) changes only what is above.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use ebb_types::{Credentials, FileKind, InodeId, Result, WallTime};

pub use ebb_client::{
    Access, Allocate, CopyRange, EntryDetail, Handle, IfExists, IfLocked, Lock, LockKind, LockSort, NewFile, NewName,
    Privileges, Rename, RenameMode, Seek, SetAttr, SetTime, UnnamedFile, WriteAt, XattrMode,
};

/// Attributes of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Number, unique within the file system and never reused; 1 is the root.
    pub inode: InodeId,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits with suid, sgid and sticky.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device, in the kernel's 32-bit form.
    pub rdev: u32,
    /// Length in bytes.
    pub size: u64,
    /// Space that it takes, in bytes, of one copy.
    pub allocated_bytes: u64,
    /// Size of a transfer that suits it, in bytes.
    pub block_size: u32,
    /// Last read.
    pub atime: WallTime,
    /// Last change of the data.
    pub mtime: WallTime,
    /// Last change of data or attributes.
    pub ctime: WallTime,
    /// Made at.
    pub btime: WallTime,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenMode {
    /// For what.
    pub access: Access,
    /// Cut to nothing at once (`O_TRUNC`), with this effect on set-user-id and set-group-id.
    pub cut: Option<Privileges>,
    /// Opened by `execve`: the kernel has checked the permission to execute, which does not imply that to read.
    pub execute: bool,
}

/// A name in a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    /// The name.
    pub name: Vec<u8>,
    /// What it names.
    pub inode: InodeId,
    /// Its kind.
    pub kind: FileKind,
    /// Where a listing goes on after this entry; never 0 and below 2^63 - 2.
    pub cookie: u64,
    /// Attributes, if they were asked for.
    pub attr: Option<Attr>,
}

/// A part of a directory's listing.
#[derive(Clone, Debug, Default)]
pub struct DirPage {
    /// Entries in the order of the listing.
    pub entries: Vec<DirEntry>,
    /// Nothing comes after them.
    pub end: bool,
}

/// Space of the file system, in bytes of user data (copies already divided out).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// All of it.
    pub capacity_bytes: u64,
    /// Not used.
    pub free_bytes: u64,
    /// That new data can use: each of its copies needs room on another node.
    pub available_bytes: u64,
    /// Inodes in use.
    pub inodes: u64,
}

/// A file system that can be mounted.
///
/// The kernel has checked permissions (the mount says `default_permissions`); an implementation checks again what
/// changes names or attributes. Futures are dropped before they end only for [`Vfs::set_lock`] that waits.
pub trait Vfs: Send + Sync + 'static {
    /// How long these attributes, just told, may be believed without asking; until the listener of the mount hears
    /// otherwise.
    fn attr_validity(&self, _attr: &Attr) -> Duration {
        Duration::ZERO
    }
    /// The same for a name and where it leads (`None`: it is not there).
    fn name_validity(&self, _parent: InodeId, _name: &[u8], _leads: Option<InodeId>) -> Duration {
        Duration::ZERO
    }

    /// Whether a name may be believed, wherever it leads.
    fn keeps_name(&self, _parent: InodeId, _name: &[u8]) -> bool {
        false
    }

    /// Where an inode is, for people, as far as that is known without asking anybody.
    fn path_of(&self, _inode: InodeId) -> Option<String> {
        None
    }

    /// Attributes of a name.
    fn lookup(&self, caller: &Credentials, parent: InodeId, name: &[u8]) -> impl Future<Output = Result<Attr>> + Send;
    /// Attributes of an inode.
    fn get_attr(&self, inode: InodeId) -> impl Future<Output = Result<Attr>> + Send;
    /// Sets attributes and tells the new ones.
    fn set_attr(&self, caller: &Credentials, inode: InodeId, set: SetAttr)
    -> impl Future<Output = Result<Attr>> + Send;
    /// Target of a symbolic link.
    fn read_link(&self, inode: InodeId) -> impl Future<Output = Result<Vec<u8>>> + Send;
    /// Makes a file, FIFO, socket or device.
    fn make_node(
        &self,
        caller: &Credentials,
        new: NewName<'_>,
        kind: FileKind,
        rdev: u32,
    ) -> impl Future<Output = Result<Attr>> + Send;
    /// Makes a directory.
    fn make_dir(&self, caller: &Credentials, new: NewName<'_>) -> impl Future<Output = Result<Attr>> + Send;
    /// Makes a symbolic link.
    fn symlink(
        &self,
        caller: &Credentials,
        parent: InodeId,
        name: &[u8],
        target: &[u8],
    ) -> impl Future<Output = Result<Attr>> + Send;
    /// Makes a hard link.
    fn link(
        &self,
        caller: &Credentials,
        inode: InodeId,
        parent: InodeId,
        name: &[u8],
    ) -> impl Future<Output = Result<Attr>> + Send;
    /// Removes a name that is not a directory's.
    fn unlink(&self, caller: &Credentials, parent: InodeId, name: &[u8]) -> impl Future<Output = Result<()>> + Send;
    /// Removes an empty directory.
    fn remove_dir(&self, caller: &Credentials, parent: InodeId, name: &[u8])
    -> impl Future<Output = Result<()>> + Send;
    /// renameat2.
    fn rename(&self, caller: &Credentials, rename: Rename<'_>) -> impl Future<Output = Result<()>> + Send;
    /// At most `limit` entries after the cookie `after`, from the start without one, and without "." and "..".
    fn read_dir(
        &self,
        inode: InodeId,
        after: Option<u64>,
        limit: u32,
        detail: EntryDetail,
    ) -> impl Future<Output = Result<DirPage>> + Send;
    /// Returns when the names of a directory are on stable storage.
    fn sync_dir(&self, inode: InodeId) -> impl Future<Output = Result<()>> + Send;
    /// Space and counts.
    fn stat_fs(&self, inode: InodeId) -> impl Future<Output = Result<StatFs>> + Send;

    /// Value of an extended attribute.
    fn get_xattr(&self, inode: InodeId, name: &[u8]) -> impl Future<Output = Result<Vec<u8>>> + Send;
    /// Names of the extended attributes.
    fn list_xattr(&self, inode: InodeId) -> impl Future<Output = Result<Vec<Vec<u8>>>> + Send;
    /// Sets an extended attribute.
    fn set_xattr(
        &self,
        caller: &Credentials,
        inode: InodeId,
        name: &[u8],
        value: Bytes,
        mode: XattrMode,
    ) -> impl Future<Output = Result<()>> + Send;
    /// Removes an extended attribute.
    fn remove_xattr(
        &self,
        caller: &Credentials,
        inode: InodeId,
        name: &[u8],
    ) -> impl Future<Output = Result<()>> + Send;

    /// Opens a file.
    fn open(&self, caller: &Credentials, inode: InodeId, mode: OpenMode)
    -> impl Future<Output = Result<Handle>> + Send;
    /// Makes and opens a file, or opens the one that is there, as `new` says. `cut`: one that is there is cut to
    /// nothing, with this effect on set-user-id and set-group-id.
    fn create(
        &self,
        caller: &Credentials,
        new: NewFile<'_>,
        cut: Option<Privileges>,
    ) -> impl Future<Output = Result<(Handle, Attr)>> + Send;
    /// Makes and opens a file without a name. It is gone once it is closed, unless [`Vfs::link`] gives it a name
    /// before.
    fn create_unnamed(
        &self,
        caller: &Credentials,
        new: UnnamedFile,
    ) -> impl Future<Output = Result<(Handle, Attr)>> + Send;
    /// A descriptor was closed: tells errors of earlier work in the background. The file stays open.
    fn flush(&self, file: Handle) -> impl Future<Output = Result<()>> + Send;
    /// The last descriptor is gone.
    fn close(&self, file: Handle) -> impl Future<Output = ()> + Send;
    /// Bytes from `offset`, fewer only at the end of the file.
    fn read(&self, file: Handle, offset: u64, len: u32) -> impl Future<Output = Result<Bytes>> + Send;
    /// Writes all of `data`, at its place or at the end of the file, wherever other mounts have moved it; tells where.
    /// Privileges that go, go in one step with the bytes.
    fn write(
        &self,
        file: Handle,
        place: WriteAt,
        data: Bytes,
        privileges: Privileges,
    ) -> impl Future<Output = Result<u64>> + Send;
    /// Returns when everything written is on stable storage.
    fn fsync(&self, file: Handle) -> impl Future<Output = Result<()>> + Send;
    /// fallocate.
    fn allocate(&self, file: Handle, what: Allocate, offset: u64, len: u64) -> impl Future<Output = Result<()>> + Send;
    /// Next data or hole at or after `offset`; kind `NoSuchOffset` beyond the end.
    fn seek(&self, file: Handle, offset: u64, what: Seek) -> impl Future<Output = Result<u64>> + Send;
    /// Copies a range between open files; tells how many bytes, which may be fewer than `len`.
    fn copy_range(&self, copy: CopyRange) -> impl Future<Output = Result<u64>> + Send;

    /// Takes or gives up a lock. A wait ends when the future is dropped.
    fn set_lock(&self, inode: InodeId, lock: Lock, if_locked: IfLocked) -> impl Future<Output = Result<()>> + Send;
    /// The lock in the way of `lock`, if there is one.
    fn test_lock(&self, inode: InodeId, lock: Lock) -> impl Future<Output = Result<Option<Lock>>> + Send;

    /// The mount is gone: flush, commit, give everything back.
    fn shut_down(&self) -> impl Future<Output = Result<()>> + Send;
}
