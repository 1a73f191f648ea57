//! The kernel's side of FUSE: numbers, requests and replies as bytes (`include/uapi/linux/fuse.h`, protocol 7.45).
//!
//! All messages are in host byte order and 8-byte aligned. [`request`] parses a message into plain
//! values, [`reply`] encodes answers, and [`init`] does the handshake.

pub mod init;
pub mod reply;
pub mod request;

use crate::vfs::Privileges;

/// Protocol version, major.
pub const MAJOR: u32 = 7;
/// Protocol version, minor, of these modules. The kernel falls back to an older one by itself.
pub const MINOR: u32 = 45;
/// Oldest minor version that is served: that of Linux 5.10, the oldest kernel still maintained.
pub const MINOR_MIN: u32 = 32;
/// Inode number of the root in every FUSE file system.
pub const ROOT: u64 = 1;
/// Bytes of a request's header.
pub const IN_HEADER: usize = 40;
/// Bytes of a reply's header.
pub const OUT_HEADER: usize = 16;

/// Request numbers (`enum fuse_opcode`).
pub mod opcode {
    #![allow(missing_docs)]
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const SETLKW: u32 = 33;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

/// Valid fields of a SETATTR (`FATTR_*`).
pub mod fattr {
    #![allow(missing_docs)]
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const FH: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// Flags of answers to OPEN and CREATE (`FOPEN_*`).
pub mod fopen {
    #![allow(missing_docs)]
    pub const DIRECT_IO: u32 = 1 << 0;
    pub const KEEP_CACHE: u32 = 1 << 1;
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// `FUSE_OPEN_KILL_SUIDGID`: truncation on open removes set-user-id and set-group-id.
pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// `FUSE_WRITE_CACHE`: the page cache writes back. Offset and handle are used unchanged.
pub const WRITE_CACHE: u32 = 1 << 0;
/// `FUSE_WRITE_KILL_SUIDGID`: the write removes set-user-id and set-group-id.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `FUSE_RELEASE_FLOCK_UNLOCK`: the file held a flock.
pub const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
/// `FUSE_LK_FLOCK`: the lock is one of flock(2).
pub const LK_FLOCK: u32 = 1 << 0;
/// `FUSE_NOTIFY_INVAL_INODE`: drop data or attributes of an inode.
pub const NOTIFY_INVAL_INODE: i32 = 2;
/// `FUSE_NOTIFY_STORE`: data of an inode for the page cache.
pub const NOTIFY_STORE: i32 = 4;
/// `FUSE_NOTIFY_INC_EPOCH`, from protocol 7.44 on: look up each name again before its next use.
pub const NOTIFY_INC_EPOCH: i32 = 8;
/// First minor version with [`NOTIFY_INC_EPOCH`]: Linux 6.16.
pub const MINOR_EPOCHS: u32 = 44;
/// `FMODE_EXEC` as it appears in open flags.
pub const OPEN_EXEC: u32 = 0x20;

/// Effect on set-user-id and set-group-id. The kernel sets `bit` if they must be removed.
#[must_use]
pub const fn privileges(flags: u32, bit: u32) -> Privileges {
    if flags & bit != 0 { Privileges::Taken } else { Privileges::OfOpener }
}
