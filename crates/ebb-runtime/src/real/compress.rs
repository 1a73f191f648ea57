//! Files that the file system keeps in compressed form. Of Linux's usual ones btrfs does it for a single file.

use std::os::fd::BorrowedFd;

use rustix::fs::{XattrFlags, fdatasync, fgetxattr, fsetxattr};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

use super::file::retry;
use crate::Compression;

/// btrfs's property of a file or directory: the method for what is written to it (btrfs-property(8)). Files inherit it.
const WANTED: &str = "btrfs.compression";

/// Our mark of a file that was compressed as a whole: its method.
const DONE: &str = "user.ebb.compressed";

/// `struct btrfs_ioctl_defrag_range_args` of linux/btrfs.h.
#[repr(C)]
struct DefragRange {
    start: u64,
    len: u64,
    flags: u64,
    extent_threshold: u32,
    compress_type: u32,
    unused: [u32; 4],
}

/// `BTRFS_DEFRAG_RANGE_COMPRESS` and `BTRFS_DEFRAG_RANGE_START_IO`.
const COMPRESS_NOW: u64 = 1 | 2;

/// `BTRFS_IOC_DEFRAG_RANGE`: number 16 of btrfs's group.
const DEFRAG_RANGE: Opcode = opcode::write::<DefragRange>(0x94, 16);

/// The method set for new files of this directory.
pub(super) fn wanted(directory: BorrowedFd<'_>) -> rustix::io::Result<Option<Compression>> {
    attribute(directory, WANTED)
}

/// See [`crate::File::compress`].
///
/// A mere rewrite would not do: btrfs never compresses what is written to a file for which space was once reserved.
/// Its defragmentation does. It writes to free space, and changes the file's map when that is stored.
pub(super) fn compress(file: BorrowedFd<'_>, method: Compression) -> rustix::io::Result<()> {
    if attribute(file, DONE)? == Some(method) {
        return Ok(());
    }
    let range = DefragRange {
        start: 0,
        len: u64::MAX,
        flags: COMPRESS_NOW,
        extent_threshold: u32::MAX,
        compress_type: number(method),
        unused: [0; 4],
    };
    // SAFETY: the request reads a structure of this shape, which outlives the call.
    unsafe { ioctl(file, Setter::<DEFRAG_RANGE, DefragRange>::new(range))? };
    // Ordering: the mark is never stored before the bytes.
    retry(|| fdatasync(file))?;
    fsetxattr(file, DONE, method.name().as_bytes(), XattrFlags::empty())
}

/// `BTRFS_COMPRESS_ZLIB` and so on, of btrfs's `compression.h`.
const fn number(method: Compression) -> u32 {
    match method {
        Compression::Zlib => 1,
        Compression::Lzo => 2,
        Compression::Zstd => 3,
    }
}

/// The method that an attribute names. None if it is not there, names none of ours ("no"), or the file system has no such.
fn attribute(file: BorrowedFd<'_>, name: &str) -> rustix::io::Result<Option<Compression>> {
    let mut value = [0; 16];
    match fgetxattr(file, name, &mut value[..]) {
        Ok(length) => Ok(std::str::from_utf8(&value[..length]).ok().and_then(Compression::from_name)),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(None),
        Err(error) => Err(error),
    }
}
