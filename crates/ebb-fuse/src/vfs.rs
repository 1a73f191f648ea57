//! The interface between a mount and its file system, in plain values.
//!
//! Code above this trait depends on FUSE, but not on clusters. Code below depends on clusters, but
//! not on FUSE. Operations use the client's own types, so that a request has only one form.
//! Another transport (io_uring instead of reads of `/dev/fuse`) changes only the code above.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use ebb_types::{Credentials, FileKind, InodeId, Result};

pub use ebb_client::{
    Access, Allocate, CopyRange, DirEntry, DirPage, EntryDetail, Handle, IfExists, IfLocked, Lock, LockKind, LockSort,
    NewFile, NewName, Privileges, Rename, RenameMode, Seek, SetAttr, SetTime, StatFs, UnnamedFile, WriteAt, XattrMode,
};
pub use ebb_types::Attr;

/// Mode in which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenMode {
    /// Permitted operations: read, write or both.
    pub access: Access,
    /// Truncate the file to size 0 (`O_TRUNC`), with this effect on set-user-id and set-group-id.
    pub cut: Option<Privileges>,
    /// Opened by `execve`. The kernel has checked the permission to execute, which does not imply
    /// the permission to read.
    pub execute: bool,
}

/// A file system that can be mounted.
///
/// The kernel has checked permissions, because the mount has the option `default_permissions`. An
/// implementation checks changes of names and attributes again.
///
/// Only a future of [`Vfs::set_lock`] that waits may be dropped before its end.
pub trait Vfs: Send + Sync + 'static {
    /// How long the kernel may use these attributes, which were just returned, without a request.
    /// The time ends early when the mount's listener gets a change.
    fn attr_validity(&self, _attr: &Attr) -> Duration {
        Duration::ZERO
    }
    /// The same for a name and the inode that it leads to (`None`: the name does not exist).
    fn name_validity(&self, _parent: InodeId, _name: &[u8], _leads: Option<InodeId>) -> Duration {
        Duration::ZERO
    }

    /// Whether the kernel may cache a name, for any inode.
    fn keeps_name(&self, _parent: InodeId, _name: &[u8]) -> bool {
        false
    }

    /// Path of an inode for messages, if it is known without a request.
    fn path_of(&self, _inode: InodeId) -> Option<String> {
        None
    }

    /// Attributes of a name.
    fn lookup(&self, caller: &Credentials, parent: InodeId, name: &[u8]) -> impl Future<Output = Result<Attr>> + Send;
    /// Attributes of an inode.
    fn get_attr(&self, inode: InodeId) -> impl Future<Output = Result<Attr>> + Send;
    /// Sets attributes, through an open file if the program has it so, and returns the new ones.
    fn set_attr(
        &self,
        caller: &Credentials,
        inode: InodeId,
        file: Option<Handle>,
        set: SetAttr,
    ) -> impl Future<Output = Result<Attr>> + Send;
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
    /// Removes a name of anything but a directory.
    fn unlink(&self, caller: &Credentials, parent: InodeId, name: &[u8]) -> impl Future<Output = Result<()>> + Send;
    /// Removes an empty directory.
    fn remove_dir(&self, caller: &Credentials, parent: InodeId, name: &[u8])
    -> impl Future<Output = Result<()>> + Send;
    /// Renames as renameat2(2) does.
    fn rename(&self, caller: &Credentials, rename: Rename<'_>) -> impl Future<Output = Result<()>> + Send;
    /// Returns at most `limit` entries after the cookie `after`, or from the start without one.
    /// The entries "." and ".." are left out.
    fn read_dir(
        &self,
        inode: InodeId,
        after: Option<u64>,
        limit: u32,
        detail: EntryDetail,
    ) -> impl Future<Output = Result<DirPage>> + Send;
    /// Returns when the names of a directory are on stable storage.
    fn sync_dir(&self, inode: InodeId) -> impl Future<Output = Result<()>> + Send;
    /// Space and number of inodes.
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
    /// Makes and opens a file, or opens an existing one if `new` allows it. With `cut`, an existing
    /// file is truncated to size 0, with this effect on set-user-id and set-group-id.
    fn create(
        &self,
        caller: &Credentials,
        new: NewFile<'_>,
        cut: Option<Privileges>,
    ) -> impl Future<Output = Result<(Handle, Attr)>> + Send;
    /// Makes and opens a file without a name. It is deleted when it is closed, unless [`Vfs::link`]
    /// has given it a name.
    fn create_unnamed(
        &self,
        caller: &Credentials,
        new: UnnamedFile<'_>,
    ) -> impl Future<Output = Result<(Handle, Attr)>> + Send;
    /// Reports errors of earlier background work when a descriptor is closed. The file stays open.
    fn flush(&self, file: Handle) -> impl Future<Output = Result<()>> + Send;
    /// Closes a file after its last descriptor is closed.
    fn close(&self, file: Handle) -> impl Future<Output = ()> + Send;
    /// Reads `len` bytes from `offset`, or fewer at the end of the file.
    fn read(&self, file: Handle, offset: u64, len: u32) -> impl Future<Output = Result<Bytes>> + Send;
    /// Writes all of `data` at its place, or at the current end of the file. Returns the offset.
    /// Other mounts may have moved the end. Privileges are removed in one step with the write.
    fn write(
        &self,
        file: Handle,
        place: WriteAt,
        data: Bytes,
        privileges: Privileges,
    ) -> impl Future<Output = Result<u64>> + Send;
    /// Returns when all written bytes are on stable storage.
    fn fsync(&self, file: Handle) -> impl Future<Output = Result<()>> + Send;
    /// Allocates or frees space as fallocate(2) does.
    fn allocate(&self, file: Handle, mode: Allocate, offset: u64, len: u64) -> impl Future<Output = Result<()>> + Send;
    /// Finds the next data or hole at or after `offset`. Beyond the end: error `NoSuchOffset`.
    fn seek(&self, file: Handle, offset: u64, whence: Seek) -> impl Future<Output = Result<u64>> + Send;
    /// Copies a range between open files. Returns the number of copied bytes, which may be less
    /// than `len`.
    fn copy_range(&self, copy: CopyRange) -> impl Future<Output = Result<u64>> + Send;

    /// Takes or releases a lock. A drop of the future ends the wait.
    fn set_lock(&self, inode: InodeId, lock: Lock, if_locked: IfLocked) -> impl Future<Output = Result<()>> + Send;
    /// Returns a lock that conflicts with `lock`, if there is one.
    fn test_lock(&self, inode: InodeId, lock: Lock) -> impl Future<Output = Result<Option<Lock>>> + Send;

    /// Flushes, commits and gives everything back, at the end of the mount.
    fn shut_down(&self) -> impl Future<Output = Result<()>> + Send;
}
