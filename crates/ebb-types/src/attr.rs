//! POSIX attributes of a file, as plain values.

use crate::{DatasetId, Epoch, Geometry, InodeId, LOG_COPIES_MIN, Prefetch, ReadRule, Result, bail};

/// Longest name of a file in its directory, in bytes: NAME_MAX of limits.h on Linux.
pub const NAME_LEN_MAX: usize = 255;

/// Checks that a name is not too long; the error says so.
pub fn check_name_len(name: &[u8]) -> Result<()> {
    if name.len() > NAME_LEN_MAX {
        bail!(NameTooLong, "a name of {} bytes is longer than {NAME_LEN_MAX}", name.len());
    }
    Ok(())
}

/// Wall-clock time in nanoseconds since 1970-01-01 UTC. For timestamps that people see, never for leases.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct WallTime(pub i64);

/// Type of an inode, with the numbers that the wire and the disk use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// Regular file.
    File = 1,
    /// Directory.
    Directory = 2,
    /// Symbolic link.
    Symlink = 3,
    /// FIFO.
    Fifo = 4,
    /// Socket.
    Socket = 5,
    /// Character device.
    CharDevice = 6,
    /// Block device.
    BlockDevice = 7,
}

impl FileKind {
    /// The kind with this number, if there is one.
    #[must_use]
    pub fn from_raw(raw: u32) -> Option<Self> {
        Some(match raw {
            1 => Self::File,
            2 => Self::Directory,
            3 => Self::Symlink,
            4 => Self::Fifo,
            5 => Self::Socket,
            6 => Self::CharDevice,
            7 => Self::BlockDevice,
            _ => return None,
        })
    }

    /// The number for the wire and the disk.
    #[must_use]
    pub const fn raw(self) -> u32 {
        self as u32
    }
}

/// Attributes of an inode, as the master records them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    /// Number, unique within the file system and never reused.
    pub inode: InodeId,
    /// Type.
    pub kind: FileKind,
    /// Permission bits with suid, sgid and sticky.
    pub mode: u32,
    /// Number of names (hard links); of a directory, one for each directory in it and two more.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device, in the kernel's 32-bit form.
    pub rdev: u32,
    /// Length in bytes.
    pub size: u64,
    /// A recovery is under way: the size, and reads beyond the known end, wait for it.
    pub size_unknown: bool,
    /// Generation of the size. It is raised whenever the size is set without data.
    pub size_generation: u64,
    /// How often a client took the file over. A handle that was opened before that may not write.
    pub takeovers: u64,
    /// Space in metablocks, in bytes of one copy.
    pub allocated_bytes: u64,
    /// Time of the last read.
    pub atime: WallTime,
    /// Time of the last change of the data.
    pub mtime: WallTime,
    /// Time of the last change of data or attributes.
    pub ctime: WallTime,
    /// Time of creation.
    pub btime: WallTime,
    /// Fencing epoch.
    pub epoch: Epoch,
    /// The inode has extended attributes or ACLs.
    pub has_xattrs: bool,
    /// Rules of the dataset for the file's data.
    pub storage: Storage,
}

impl Attr {
    /// Attributes of an empty inode of root's, without permissions: a start for tests and for listings made by hand.
    #[must_use]
    pub fn empty(inode: InodeId, kind: FileKind) -> Self {
        Self {
            inode,
            kind,
            mode: 0,
            links: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            size_unknown: false,
            size_generation: 0,
            takeovers: 0,
            allocated_bytes: 0,
            atime: WallTime(0),
            mtime: WallTime(0),
            ctime: WallTime(0),
            btime: WallTime(0),
            epoch: Epoch::default(),
            has_xattrs: false,
            storage: Storage::default(),
        }
    }
}

/// How a dataset stores the data of its files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Storage {
    /// The dataset.
    pub dataset: DatasetId,
    /// Block and metablock size.
    pub geometry: Geometry,
    /// Number of copies.
    pub replicas: u32,
    /// Least number of copies with which a write is acknowledged; 1 to `replicas`.
    pub min_copies: u32,
    /// Number of logs that must have a synced write in place of members that sleep.
    pub log_copies: u32,
    /// The writer sends to every member itself. Otherwise large writes go from member to member.
    pub single_source: bool,
    /// Read-ahead. A client's own setting goes first.
    pub prefetch: Prefetch,
    /// Choice of the member that serves a read. A client's own setting goes first.
    pub read_rule: ReadRule,
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            dataset: DatasetId::default(),
            geometry: Geometry::default(),
            replicas: 1,
            min_copies: 1,
            log_copies: LOG_COPIES_MIN,
            single_source: false,
            prefetch: Prefetch::default(),
            read_rule: ReadRule::default(),
        }
    }
}

/// The user on whose behalf a request is made. Believed from peers that hold the cluster secret, as with NFS `sys`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Credentials {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl Credentials {
    /// The superuser.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// Whether these credentials pass every permission check.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether the caller is in `gid`, by its own group or a supplementary one.
    #[must_use]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}
