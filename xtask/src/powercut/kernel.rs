//! A system call that std lacks.

use std::ffi::{c_int, c_ulong};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use super::Result;

/// `_IOR('X', 125, __u32)`: XFS_IOC_GOINGDOWN of xfs_fs.h, and EXT4_IOC_SHUTDOWN of ext4.h, which is the same number.
const GOING_DOWN: c_ulong = (2 << 30) | (4 << 16) | ((b'X' as c_ulong) << 8) | 125;
/// XFS_FSOP_GOING_FLAGS_NOLOGFLUSH: not even the journal's buffers are written out.
const NO_LOG_FLUSH: u32 = 2;

unsafe extern "C" {
    fn ioctl(descriptor: c_int, request: c_ulong, ...) -> c_int;
}

/// Shuts the file system mounted here down: it loses unsynced data, and does nothing more.
pub fn shut_down(mountpoint: &Path) -> Result<()> {
    let context = |error: std::io::Error| format!("shutting down {}: {error}", mountpoint.display());
    let directory = File::open(mountpoint).map_err(context)?;
    let flags = NO_LOG_FLUSH;
    // SAFETY: the request takes a pointer to a u32, which outlives the call.
    let done = unsafe { ioctl(directory.as_raw_fd(), GOING_DOWN, &raw const flags) };
    if done == 0 { Ok(()) } else { Err(context(std::io::Error::last_os_error())) }
}
