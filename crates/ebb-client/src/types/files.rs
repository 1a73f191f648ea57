//! Operations on open files.

use ebb_wire::pb;

use super::Handle;

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

/// How a program is going to read an open file, as posix_fadvise(2) has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Advice {
    /// Its reads show it.
    #[default]
    Normal,
    /// In order: whole blocks are fetched from the first read on, as far ahead as memory allows.
    Sequential,
    /// Here and there: nothing is fetched that was not asked for.
    Random,
}

/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAt {
    /// To this offset, in bytes.
    Offset(u64),
    /// Behind the last byte.
    End,
}

/// What a change of data does to set-user-id and set-group-id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Privileges {
    /// Takes them away if the file was opened without privilege.
    #[default]
    OfOpener,
    /// Takes them away in any case: the caller may not keep them.
    Taken,
}

/// An operation of fallocate(2).
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
    /// The range reads as zero and stays reserved; the size is kept.
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

/// A range to copy between two open files, as copy_file_range(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    /// The file that is read.
    pub source: Handle,
    /// First byte in it.
    pub source_offset: u64,
    /// The file that is written.
    pub target: Handle,
    /// First byte in it.
    pub target_offset: u64,
    /// Bytes.
    pub len: u64,
}

/// What lseek(2) searches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is data.
    Data,
    /// The next byte that is in a hole, or the end of the file.
    Hole,
}
