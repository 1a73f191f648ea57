//! Plain values of the interface.

use std::pin::Pin;

use ebb_types::{HostName, InodeId, WallTime};
use ebb_wire::pb;

/// Told when another client's doing makes kernel caches stale. Called from tasks that hold no lock of the client.
pub trait CacheListener: Send + Sync + 'static {
    /// What was served of this file is going to change. While the guard lives, programs that begin to read the file
    /// through the kernel's caches wait; those that have begun are answered.
    fn guard(&self, inode: InodeId) -> Box<dyn CacheGuard>;

    /// Attributes of these inodes, and what is kept of the names in them, are not to be believed any more. Takes no
    /// lock that a request may hold while it waits for this client, so it ends soon whatever else goes on.
    fn forget(&self, inodes: &[InodeId]);
}

/// Keeps kernel caches of one file from being used.
pub trait CacheGuard: Send {
    /// The kernel drops data and attributes that were served until now. Returns when it has, or when it takes too
    /// long: it waits for pages that requests have locked, and such a request may wait for this client.
    fn drop_pages<'a>(&'a mut self) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
}

/// Attributes to set; `None` leaves a field alone.
#[derive(Clone, Debug, Default)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// The caller has the file open for writing (ftruncate): its mode is not checked again.
    pub by_handle: bool,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The master's now.
    Now,
    /// This.
    At(WallTime),
}

/// What an open file may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read.
    Read,
    /// Write (and read-modify-write by the cache).
    Write,
    /// Both.
    ReadWrite,
}

impl Access {
    /// Whether bytes may be written.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::ReadWrite)
    }

    /// Whether bytes may be read.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadWrite)
    }

    /// The permission bits that the opener needs: 4 read, 2 write, as in access(2).
    #[must_use]
    pub const fn mask(self) -> u32 {
        match self {
            Self::Read => 4,
            Self::Write => 2,
            Self::ReadWrite => 6,
        }
    }
}

/// What a write does to set-user-id and set-group-id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Privileges {
    /// Takes them away if the file was opened by somebody without privilege.
    OfOpener,
    /// Takes them away: the writer may not keep them.
    Taken,
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
    /// The range reads as zero and stays reserved; grow the file if it passes its end.
    Zero,
    /// The same, keep the size.
    ZeroKeepSize,
}

impl Allocate {
    /// As messages say it.
    pub(crate) const fn kind(self) -> pb::AllocateKind {
        match self {
            Self::Reserve => pb::AllocateKind::AllocateReserve,
            Self::ReserveKeepSize => pb::AllocateKind::AllocateReserveKeepSize,
            Self::PunchHole => pb::AllocateKind::AllocatePunchHole,
            Self::Zero => pb::AllocateKind::AllocateZero,
            Self::ZeroKeepSize => pb::AllocateKind::AllocateZeroKeepSize,
        }
    }

    /// From a message.
    #[must_use]
    pub const fn of_kind(kind: pb::AllocateKind) -> Self {
        match kind {
            pb::AllocateKind::AllocateReserve => Self::Reserve,
            pb::AllocateKind::AllocateReserveKeepSize => Self::ReserveKeepSize,
            pb::AllocateKind::AllocatePunchHole => Self::PunchHole,
            pb::AllocateKind::AllocateZero => Self::Zero,
            pb::AllocateKind::AllocateZeroKeepSize => Self::ZeroKeepSize,
        }
    }

    /// Whether the file grows to hold the range.
    #[must_use]
    pub const fn grows(self) -> bool {
        matches!(self, Self::Reserve | Self::Zero)
    }
}

/// An open file. Closing is explicit ([`crate::Client::close`]); all work on it goes through the client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Handle(pub u64);

/// Where one metablock of a file lies.
#[derive(Clone, Debug)]
pub struct Location {
    /// The master's record.
    pub metablock: pb::Metablock,
    /// Hosts of its members, in order.
    pub hosts: Vec<HostName>,
}
