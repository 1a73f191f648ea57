//! What a mount needs of a file system, in plain values: the seam between the kernel's shapes and Ebb's client.
//!
//! Everything above this trait knows FUSE and nothing of clusters; everything below knows clusters and nothing of
//! FUSE. Another way to talk to the kernel (requests over io_uring instead of reads of `/dev/fuse`) changes only what
//! is above.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use ebb_types::{Credentials, FileKind, InodeId, Result, WallTime};

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

/// Attributes to set; `None` leaves a field alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits with suid, sgid and sticky.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<SetTime>,
    /// Last change of the data.
    pub mtime: Option<SetTime>,
    /// The call came with a descriptor that is open for writing: the mode is not checked again.
    pub by_handle: bool,
    /// The caller may not keep set-user-id and set-group-id bits alive by this change of size.
    pub kill_privileges: bool,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The file system's now.
    Now,
    /// This.
    At(WallTime),
}

/// An open file, as the file system numbers it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct FileId(pub u64);

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenMode {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Cut to nothing at once (`O_TRUNC`).
    pub truncate: bool,
    /// Opened by `execve`: the kernel has checked the permission to execute, which does not imply that to read.
    pub execute: bool,
    /// Cutting it takes set-user-id and set-group-id away.
    pub kill_privileges: bool,
}

/// A name to be made, with what the new inode starts from.
#[derive(Clone, Copy, Debug)]
pub struct NewName<'a> {
    /// The directory.
    pub parent: InodeId,
    /// The name in it.
    pub name: &'a [u8],
    /// Permission bits as the program asked for them.
    pub mode: u32,
    /// The program's mask; a default ACL of the directory replaces it.
    pub umask: u32,
}

/// renameat2.
#[derive(Clone, Copy, Debug)]
pub struct Rename<'a> {
    /// Directory of the old name.
    pub source_parent: InodeId,
    /// Old name.
    pub source_name: &'a [u8],
    /// Directory of the new name.
    pub target_parent: InodeId,
    /// New name.
    pub target_name: &'a [u8],
    /// What happens to an existing target.
    pub mode: RenameMode,
}

/// What rename does with an existing target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replace it.
    Replace,
    /// Fail with `Exists`.
    NoReplace,
    /// Swap the two names; both must exist.
    Exchange,
}

/// What fallocate is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Reserve space; grow the file if the range passes its end.
    Reserve,
    /// Reserve space, keep the size.
    ReserveKeepSize,
    /// Free the range; it reads as zero.
    PunchHole,
    /// The range reads as zero; grow the file if it passes its end.
    Zero,
    /// The range reads as zero, keep the size.
    ZeroKeepSize,
}

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// To this offset.
    At(u64),
    /// Behind the last byte.
    End,
}

/// Whether a writer may keep set-user-id and set-group-id of the file alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privileges {
    /// They stay.
    Kept,
    /// They go.
    Taken,
}

/// What lseek looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is data.
    Data,
    /// The next byte that is in a hole, or the end of the file.
    Hole,
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

/// What a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// None: gives the range up.
    Unlock,
    /// Shared.
    Shared,
    /// Exclusive.
    Exclusive,
}

/// A byte-range lock of fcntl or a whole-file lock of flock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// What it is.
    pub kind: LockKind,
    /// flock's; the two sorts do not see each other.
    pub flock: bool,
    /// Whose, unique within the mount: a table of descriptors (fcntl) or an open file (flock).
    pub owner: u64,
    /// First byte.
    pub start: u64,
    /// Last byte; `u64::MAX` is to the end of the file.
    pub end: u64,
    /// Process that asks, for people; 0 if it is on another host.
    pub pid: u32,
}

impl Lock {
    /// What gives up everything that `owner` has.
    #[must_use]
    pub fn release_all(owner: u64, flock: bool) -> Self {
        Self { kind: LockKind::Unlock, flock, owner, start: 0, end: u64::MAX, pid: 0 }
    }
}

/// How setxattr treats an existing value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Set it, whether it is there or not.
    Any,
    /// Fail with `Exists` if it is there.
    Create,
    /// Fail with `NoAttribute` if it is not there.
    Replace,
}

/// A file system that can be mounted.
///
/// The kernel has checked permissions (the mount says `default_permissions`); an implementation checks again what
/// changes names or attributes. Futures are dropped before they end only for [`Vfs::set_lock`] with `wait`.
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
    /// At most `limit` entries after `cookie` (0: from the start), without "." and "..".
    fn read_dir(
        &self,
        inode: InodeId,
        cookie: u64,
        limit: u32,
        with_attributes: bool,
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
    -> impl Future<Output = Result<FileId>> + Send;
    /// Makes and opens a file; opens the one that is there unless `exclusive`.
    fn create(
        &self,
        caller: &Credentials,
        new: NewName<'_>,
        exclusive: bool,
        mode: OpenMode,
    ) -> impl Future<Output = Result<(FileId, Attr)>> + Send;
    /// Makes and opens a file without a name in a directory's place (`new.name` is empty). It is gone once it is closed,
    /// unless [`Vfs::link`] gives it a name before, which it may only if `linkable`.
    fn create_unnamed(
        &self,
        caller: &Credentials,
        new: NewName<'_>,
        linkable: bool,
        mode: OpenMode,
    ) -> impl Future<Output = Result<(FileId, Attr)>> + Send;
    /// A descriptor was closed: tells errors of earlier work in the background. The file stays open.
    fn flush(&self, file: FileId) -> impl Future<Output = Result<()>> + Send;
    /// The last descriptor is gone.
    fn close(&self, file: FileId) -> impl Future<Output = ()> + Send;
    /// Bytes from `offset`, fewer only at the end of the file.
    fn read(&self, file: FileId, offset: u64, len: u32) -> impl Future<Output = Result<Bytes>> + Send;
    /// Writes all of `data`, at its place or at the end of the file, wherever other mounts have moved it; tells where.
    /// `privileges`: what becomes of set-user-id and set-group-id, in one step with the bytes.
    fn write(
        &self,
        file: FileId,
        place: Place,
        data: Bytes,
        privileges: Privileges,
    ) -> impl Future<Output = Result<u64>> + Send;
    /// Returns when everything written is on stable storage.
    fn fsync(&self, file: FileId) -> impl Future<Output = Result<()>> + Send;
    /// fallocate.
    fn allocate(&self, file: FileId, what: Allocate, offset: u64, len: u64) -> impl Future<Output = Result<()>> + Send;
    /// Next data or hole at or after `offset`; kind `NoSuchOffset` beyond the end.
    fn seek(&self, file: FileId, offset: u64, what: Seek) -> impl Future<Output = Result<u64>> + Send;
    /// Copies a range between open files; tells how many bytes, which may be fewer than `len`.
    fn copy_range(
        &self,
        source: FileId,
        source_offset: u64,
        target: FileId,
        target_offset: u64,
        len: u64,
    ) -> impl Future<Output = Result<u64>> + Send;

    /// Takes or gives up a lock; waits for it if `wait`, until the future is dropped.
    fn set_lock(&self, inode: InodeId, lock: Lock, wait: bool) -> impl Future<Output = Result<()>> + Send;
    /// The lock in the way of `lock`, if there is one.
    fn test_lock(&self, inode: InodeId, lock: Lock) -> impl Future<Output = Result<Option<Lock>>> + Send;

    /// The mount is gone: flush, commit, give everything back.
    fn shut_down(&self) -> impl Future<Output = Result<()>> + Send;
}
