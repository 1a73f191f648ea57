//! One inode in memory.

use std::sync::Arc;

use ebb_types::{DatasetId, Epoch, FileKind, InodeId, SessionId};
use ebb_wire::pb;

use crate::map::Map;
use crate::raid::thaw::Heir;
use crate::xattr::Xattrs;

/// Set user id on execution.
pub(crate) const S_ISUID: u32 = 0o4000;
/// Set group id on execution. On a directory, new entries take its group.
pub(crate) const S_ISGID: u32 = 0o2000;
/// On a directory, only owners remove entries.
pub(crate) const S_ISVTX: u32 = 0o1000;
/// Executable by the group.
pub(crate) const S_IXGRP: u32 = 0o010;
/// All bits that `chmod` knows.
pub(crate) const MODE_MASK: u32 = 0o7777;
/// Hard links of one inode (ext4's limit).
pub(crate) const LINK_MAX: u32 = 65_000;
/// Largest size of a file in bytes: the largest `off_t`.
pub(crate) const FILE_SIZE_MAX: u64 = i64::MAX as u64;
/// Size of a directory in `stat`, as on ext4 with few entries.
const DIRECTORY_SIZE: u64 = 4096;
/// First cookie of a directory. `.` and `..` have 1 and 2.
pub(crate) const COOKIE_FIRST: u64 = 3;

/// An inode. Times are nanoseconds since 1970 UTC.
#[derive(Clone, Debug)]
pub(crate) struct Inode {
    /// Permission bits with suid, sgid and sticky.
    pub(crate) mode: u32,
    /// Number of names. A directory also counts its `.`, and the `..` of each subdirectory. 0 means unlinked.
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Number of a device.
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
    /// How often a client took the file over. A handle that was opened before that may not write.
    pub(crate) takeovers: u64,
    /// Set at creation, and never changed. The root of a dataset gets it when the dataset is made.
    pub(crate) dataset: DatasetId,
    /// Extended attributes and ACLs; most inodes have none.
    pub(crate) xattrs: Option<Arc<Xattrs>>,
    pub(crate) body: Body,
}

/// The part that depends on the kind of an inode.
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

/// Body of a regular file.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileBody {
    /// Its metablocks.
    pub(crate) map: Map,
    /// Session with the write lease.
    pub(crate) holder: Option<SessionId>,
    /// The holder is gone, and its writes have not been found yet. The size is unknown.
    ///
    /// Invariant: such a file has no holder.
    pub(crate) recovering: bool,
    /// Versioned write that cuts the last metablock, until every member is known to have it.
    pub(crate) trim: Option<Arc<pb::meta_op::Trim>>,
    /// It never had a name, and may get one (Linux' `I_LINKABLE`).
    ///
    /// Invariant: such a file is an orphan.
    pub(crate) linkable: bool,
    /// Its holder has discarded writes that it had not committed. No session may open it any more, whatever the record
    /// says.
    ///
    /// Invariant: such a file is an orphan, and not `linkable`.
    pub(crate) emptied: bool,
    /// Metablocks that are to take the place of frozen ones.
    ///
    /// Invariant: a file without a holder has none.
    pub(crate) heirs: Vec<Heir>,
}

/// Body of a directory. Its entries are in [`crate::dir::Entries`].
#[derive(Clone, Debug)]
pub(crate) struct DirectoryBody {
    /// The directory with its name. The root is its own parent.
    pub(crate) parent: InodeId,
    /// Cookie of the next entry.
    pub(crate) next_cookie: u64,
    /// Number of entries.
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

    /// Records a change of contents or entries.
    pub(crate) fn modified(&mut self, now: i64) {
        self.mtime = now;
        self.changed(now);
    }

    /// Records a change of the inode. The change time never goes back. Under a clock that was set back, each change
    /// still raises it. So backups, NFS and caches, which remember it, notice every change.
    pub(crate) fn changed(&mut self, now: i64) {
        let before = self.ctime;
        self.ctime = if now >= self.ctime { now } else { self.ctime.saturating_add(1) };
        assert!(self.ctime >= before, "the change time goes back from {before} to {}", self.ctime);
    }

    /// Clears suid, and sgid where it means execution. A write by another user than the owner does this, and so does a
    /// chown (Linux `setattr_should_drop_suidgid`). File capabilities are removed with them.
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

    /// The inode for a message.
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
            takeovers: self.takeovers,
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
            log_copies: dataset.log_copies,
        }
    }
}
