//! POSIX attributes of a file, as plain values.

use crate::{Result, bail};

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
