//! One inode in memory.

use std::sync::Arc;

use ebb_types::{DatasetId, Epoch, FileKind, InodeId, SessionId};
use ebb_wire::pb;

use crate::map::Map;
use crate::xattr::Xattrs;

/// Set user id on execution.
pub(crate) const S_ISUID: u32 = 0o4000;
/// Set group id on execution; on a directory, entries take its group.
pub(crate) const S_ISGID: u32 = 0o2000;
/// On a directory: only owners remove entries.
pub(crate) const S_ISVTX: u32 = 0o1000;
/// Executable by the group.
pub(crate) const S_IXGRP: u32 = 0o010;
/// All bits that `chmod` knows.
pub(crate) const MODE_MASK: u32 = 0o7777;
/// Hard links of one inode (ext4's limit).
pub(crate) const LINK_MAX: u32 = 65_000;
/// Largest size of a file in bytes: what `off_t` can say.
pub(crate) const FILE_SIZE_MAX: u64 = i64::MAX as u64;
/// What `stat` says of a directory's size, as on ext4 with few entries.
const DIRECTORY_SIZE: u64 = 4096;
/// First cookie of a directory: 1 and 2 are left to `.` and `..`.
pub(crate) const COOKIE_FIRST: u64 = 3;

/// An inode. Times are nanoseconds since 1970 UTC.
#[derive(Clone, Debug)]
pub(crate) struct Inode {
    /// Permission bits with suid, sgid and sticky.
    pub(crate) mode: u32,
    /// Names, and for a directory `.` and the `..` of its subdirectories; 0: unlinked.
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Of a device.
    pub(crate) rdev: u32,
    /// Bytes of a file, or of a symbolic link's target.
    pub(crate) size: u64,
    pub(crate) atime: i64,
    pub(crate) mtime: i64,
    pub(crate) ctime: i64,
    pub(crate) btime: i64,
    /// Fencing epoch.
    pub(crate) epoch: Epoch,
    /// Raised whenever the size is set without data.
    pub(crate) size_generation: u64,
    /// Given at creation for good (a dataset's root: when the dataset is made there).
    pub(crate) dataset: DatasetId,
    /// Extended attributes and ACLs; most inodes have none.
    pub(crate) xattrs: Option<Arc<Xattrs>>,
    pub(crate) body: Body,
}

/// What only one kind of inode has.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    File(FileBody),
    Directory(DirectoryBody),
    Symlink(Arc<[u8]>),
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

/// Of a regular file.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileBody {
    /// Its metablocks.
    pub(crate) map: Map,
    /// Session with the write lease.
    pub(crate) holder: Option<SessionId>,
    /// The holder is gone and its writes have not been found yet: the size is unknown.
    ///
    /// Invariant: never together with a holder.
    pub(crate) recovering: bool,
    /// Versioned write that cuts the last metablock and is not yet known to be on all members.
    pub(crate) trim: Option<Arc<pb::meta_op::Trim>>,
    /// It never had a name, and may get one (Linux' `I_LINKABLE`).
    ///
    /// Invariant: only of an orphan.
    pub(crate) linkable: bool,
    /// Its holder has thrown away what it had not committed: nobody may open it any more, whatever is recorded of it.
    ///
    /// Invariant: only of an orphan, and not together with `linkable`.
    pub(crate) emptied: bool,
}

/// Of a directory; its entries are in [`crate::dir::Entries`].
#[derive(Clone, Debug)]
pub(crate) struct DirectoryBody {
    /// The directory that has its name. Of the root: itself.
    pub(crate) parent: InodeId,
    /// Cookie of the next entry.
    pub(crate) next_cookie: u64,
    /// How many entries it has.
    pub(crate) count: u64,
}

impl Inode {
    pub(crate) fn kind(&self) -> FileKind {
        match self.body {
            Body::File(_) => FileKind::File,
            Body::Directory(_) => FileKind::Directory,
            Body::Symlink(_) => FileKind::Symlink,
            Body::Fifo => FileKind::Fifo,
            Body::Socket => FileKind::Socket,
            Body::CharDevice => FileKind::CharDevice,
            Body::BlockDevice => FileKind::BlockDevice,
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }

    pub(crate) fn file(&self) -> Option<&FileBody> {
        match &self.body {
            Body::File(file) => Some(file),
            _ => None,
        }
    }

    pub(crate) fn file_mut(&mut self) -> Option<&mut FileBody> {
        match &mut self.body {
            Body::File(file) => Some(file),
            _ => None,
        }
    }

    pub(crate) fn directory(&self) -> Option<&DirectoryBody> {
        match &self.body {
            Body::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    pub(crate) fn directory_mut(&mut self) -> Option<&mut DirectoryBody> {
        match &mut self.body {
            Body::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    pub(crate) fn holder(&self) -> Option<SessionId> {
        self.file().and_then(|file| file.holder)
    }

    pub(crate) fn recovering(&self) -> bool {
        self.file().is_some_and(|file| file.recovering)
    }

    /// Contents or entries changed.
    pub(crate) fn modified(&mut self, now: i64) {
        self.mtime = now;
        self.changed(now);
    }

    /// Something about the inode changed. The change time never goes back, and every change under a clock that was set
    /// back raises it: who remembers it (backups, NFS, caches) sees that there was one.
    pub(crate) fn changed(&mut self, now: i64) {
        self.ctime = if now >= self.ctime { now } else { self.ctime.saturating_add(1) };
    }

    /// Clears suid, and sgid where it means execution, as a write by a non-owner or a chown does (Linux
    /// `setattr_should_drop_suidgid`). File capabilities go with them.
    pub(crate) fn kill_privileges(&mut self) {
        self.mode &= !S_ISUID;
        if self.mode & S_IXGRP != 0 {
            self.mode &= !S_ISGID;
        }
        if let Some(xattrs) = &mut self.xattrs
            && xattrs.get(b"security.capability").is_some()
        {
            Arc::make_mut(xattrs).remove(b"security.capability");
        }
    }

    /// The inode as messages tell it.
    pub(crate) fn attr(&self, id: InodeId, dataset: &pb::Dataset) -> pb::Attr {
        pb::Attr {
            inode: id.raw(),
            kind: self.kind().raw(),
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size: if self.is_directory() { DIRECTORY_SIZE } else { self.size },
            atime_ns: self.atime,
            mtime_ns: self.mtime,
            ctime_ns: self.ctime,
            btime_ns: self.btime,
            epoch: self.epoch.raw(),
            size_generation: self.size_generation,
            dataset: self.dataset.raw(),
            block_size: dataset.block_size,
            metablock_size: dataset.metablock_size,
            allocated_bytes: self.file().map_or(0, |file| file.map.allocated_bytes()),
            size_unknown: self.recovering(),
            replicas: dataset.replicas,
            has_xattrs: self.xattrs.is_some(),
            single_source: dataset.replication == crate::dataset::SINGLE_SOURCE,
            prefetch: dataset.prefetch,
            read_rule: dataset.read_rule,
            min_copies: dataset.min_copies,
        }
    }
}
