//! Open files.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use ebb_types::{Error, Result, err};
use rustix::fs::{FallocateFlags, fallocate, fdatasync, fstat, ftruncate};
use rustix::io::{Errno, pwritev};

use super::blocking;
use crate::backend::Work;
use crate::disk::{File, FileBackend};

/// Writes up to this size are made on the calling thread: copying them into the page cache takes 1 to 4 us, handing
/// them to another thread and back 11 to 30 us. At 64 KiB there is no difference any more.
const INLINE_WRITE_MAX: usize = 16 << 10;

/// Buffers for one `pwritev`; the kernel's limit (UIO_MAXIOV) is 1024.
const BUFFERS_MAX: usize = 256;

pub(super) struct RealFile {
    descriptor: Arc<OwnedFd>,
    path: Arc<Path>,
}

impl RealFile {
    pub(super) fn new(descriptor: OwnedFd, path: &Path) -> Self {
        Self { descriptor: Arc::new(descriptor), path: path.into() }
    }

    /// Runs a call that may wait for the disk; `doing` is for the error's sentence.
    async fn call<T: Send + 'static>(
        &self,
        doing: &'static str,
        call: impl FnOnce(BorrowedFd<'_>) -> rustix::io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (descriptor, path) = (self.descriptor.clone(), self.path.clone());
        blocking(move || call(descriptor.as_fd()).map_err(|errno| error(errno, doing, &path))).await
    }
}

impl FileBackend for RealFile {
    fn read_at(&self, offset: u64, len: usize) -> Work<'_, Result<Bytes>> {
        Box::pin(async move {
            let mut data = BytesMut::with_capacity(len);
            if let Progress::Done = read_cached(self.descriptor.as_fd(), &mut data, offset, len) {
                return Ok(data.freeze());
            }
            self.call("read", move |descriptor| {
                read_all(descriptor, &mut data, offset, len)?;
                Ok(data.freeze())
            })
            .await
        })
    }

    fn write_at(&self, offset: u64, data: Vec<Bytes>) -> Work<'_, Result<()>> {
        Box::pin(async move {
            let len: usize = data.iter().map(Bytes::len).sum();
            if len <= INLINE_WRITE_MAX {
                return write_all(self.descriptor.as_fd(), offset, data)
                    .map_err(|errno| error(errno, "write", &self.path));
            }
            self.call("write", move |descriptor| write_all(descriptor, offset, data)).await
        })
    }

    fn sync_data(&self) -> Work<'_, Result<()>> {
        Box::pin(self.call("sync", |descriptor| retry(|| fdatasync(descriptor))))
    }

    fn set_len(&self, len: u64) -> Work<'_, Result<()>> {
        Box::pin(self.call("set the length of", move |descriptor| retry(|| ftruncate(descriptor, len))))
    }

    fn len(&self) -> Work<'_, Result<u64>> {
        Box::pin(async move {
            // The inode of an open file is in memory: no reason to change threads.
            let stat = fstat(&self.descriptor).map_err(|errno| error(errno, "stat", &self.path))?;
            Ok(stat.st_size.unsigned_abs())
        })
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Work<'_, Result<()>> {
        Box::pin(async move {
            if len == 0 {
                return Ok(());
            }
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            self.call("punch a hole in", move |descriptor| retry(|| fallocate(descriptor, mode, offset, len))).await
        })
    }

    fn allocate(&self, offset: u64, len: u64) -> Work<'_, Result<()>> {
        Box::pin(async move {
            if len == 0 {
                return Ok(());
            }
            let mode = FallocateFlags::KEEP_SIZE;
            self.call("reserve space for", move |descriptor| retry(|| fallocate(descriptor, mode, offset, len))).await
        })
    }

    fn allocated_bytes(&self) -> Work<'_, Result<u64>> {
        Box::pin(async move {
            let stat = fstat(&self.descriptor).map_err(|errno| error(errno, "stat", &self.path))?;
            // st_blocks counts 512 bytes, whatever the file system's block (inode(7)).
            Ok(stat.st_blocks.unsigned_abs() * 512)
        })
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.descriptor.as_fd())
    }
}

/// The end of a range, or `Invalid` where it does not fit in what the kernel counts with.
pub(super) fn range_end(file: &File, offset: u64, len: u64) -> Result<u64> {
    offset
        .checked_add(len)
        .filter(|end| *end <= i64::MAX.unsigned_abs())
        .ok_or_else(|| err!(Invalid, "{}: no file has {len} bytes from {offset}", file.path().display()))
}

/// Brings a range into the page cache if it does not look to be there, off the calling thread.
///
/// It looks at the first and the last byte only: a range is nearly always read ahead, or thrown out, as a whole, and
/// a wrong guess costs time, not correctness.
pub(super) async fn warm(file: &File, offset: u64, len: u64) -> Result<()> {
    let Some(descriptor) = file.descriptor() else { return Ok(()) };
    let edges = [offset, offset + len.saturating_sub(1)];
    if edges.iter().all(|edge| is_cached(descriptor, *edge)) {
        return Ok(());
    }
    let file = file.clone();
    blocking(move || {
        if let Some(descriptor) = file.descriptor() {
            // Both are hints for speed: if they fail, `sendfile` meets the same error and reports it.
            let advice = rustix::fs::Advice::WillNeed;
            let _ = rustix::fs::fadvise(descriptor, offset, std::num::NonZeroU64::new(len), advice);
            for edge in edges {
                let _ = retry(|| rustix::io::pread(descriptor, &mut [0_u8; 1], edge));
            }
        }
        Ok(())
    })
    .await
}

/// Whether a byte can be read at once. True for what no waiting would improve: the end of the file, and errors.
fn is_cached(descriptor: BorrowedFd<'_>, at: u64) -> bool {
    let mut data = BytesMut::with_capacity(1);
    matches!(read_cached(descriptor, &mut data, at, 1), Progress::Done)
}

/// How far a read without waiting came.
enum Progress {
    /// All bytes that were asked for, or the end of the file.
    Done,
    /// The rest may have to wait, or the kernel or file system does not know `RWF_NOWAIT`, or it failed.
    Rest,
}

/// Appends what the page cache has of `[offset, offset + len)`, without waiting for the disk (preadv2(2)).
fn read_cached(descriptor: BorrowedFd<'_>, data: &mut BytesMut, offset: u64, len: usize) -> Progress {
    while data.len() < len {
        let Ok(at) = i64::try_from(offset.saturating_add(data.len() as u64)) else { return Progress::Rest };
        let room = len - data.len();
        data.reserve(room);
        let buffer = libc::iovec { iov_base: data.spare_capacity_mut().as_mut_ptr().cast(), iov_len: room };
        // SAFETY: the one buffer is `room` bytes of spare capacity that `data` owns and nobody else refers to, and it
        // outlives the call; the descriptor is open for as long as it is borrowed.
        let count = unsafe { libc::preadv2(descriptor.as_raw_fd(), &raw const buffer, 1, at, libc::RWF_NOWAIT) };
        match usize::try_from(count) {
            Ok(0) => return Progress::Done,
            // SAFETY: the kernel has filled the first `count` bytes of the spare capacity, and `count <= room`.
            Ok(count) => unsafe { data.set_len(data.len() + count) },
            // The call that may wait meets the same error, if it is one, and reports it.
            Err(_) => return Progress::Rest,
        }
    }
    Progress::Done
}

/// Appends the rest of `[offset, offset + len)` to `data`, to the end of the file at most.
fn read_all(descriptor: BorrowedFd<'_>, data: &mut BytesMut, offset: u64, len: usize) -> rustix::io::Result<()> {
    while data.len() < len {
        let at = offset.checked_add(data.len() as u64).ok_or(Errno::OVERFLOW)?;
        let room = len - data.len();
        data.reserve(room);
        let count = retry(|| Ok(rustix::io::pread(descriptor, &mut data.spare_capacity_mut()[..room], at)?.0.len()))?;
        // SAFETY: `pread` has filled the first `count` bytes of the spare capacity.
        unsafe { data.set_len(data.len() + count) };
        if count == 0 {
            break;
        }
    }
    Ok(())
}

/// Writes all buffers one after the other from `offset`.
fn write_all(descriptor: BorrowedFd<'_>, mut offset: u64, data: Vec<Bytes>) -> rustix::io::Result<()> {
    let mut rest: std::collections::VecDeque<Bytes> = data.into_iter().filter(|buffer| !buffer.is_empty()).collect();
    while !rest.is_empty() {
        let buffers: Vec<IoSlice<'_>> = rest.iter().take(BUFFERS_MAX).map(|buffer| IoSlice::new(buffer)).collect();
        let mut count = retry(|| pwritev(descriptor, &buffers, offset))?;
        if count == 0 {
            // POSIX allows it for no regular file; going round again would be for ever.
            return Err(Errno::IO);
        }
        offset += count as u64;
        while let Some(front) = rest.front_mut() {
            if front.len() > count {
                front.advance(count);
                break;
            }
            count -= front.len();
            rest.pop_front();
        }
    }
    Ok(())
}

/// Repeats a call that a signal interrupted.
pub(super) fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

pub(super) fn error(errno: Errno, doing: &str, path: &Path) -> Error {
    Error::from_io(&std::io::Error::from(errno), format_args!("cannot {doing} {}", path.display()))
}
