//! Open files.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use bytes::{Buf, Bytes, BytesMut};
use ebb_types::{Error, Result, err};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fdatasync, fstat, ftruncate};
use rustix::io::{Errno, pwritev};

use super::pace::Pace;
use super::{blocking, compress};
use crate::backend::Work;
use crate::disk::{ALIGNMENT, Compression, DIRECT_MIN, File, FileBackend};

/// Writes up to this size are made on the calling thread: copying them into the page cache takes 1 to 4 us, handing
/// them to another thread and back 11 to 30 us. At 64 KiB there is no difference any more.
const INLINE_WRITE_MAX: usize = 16 << 10;

/// Buffers for one `pwritev`; the kernel's limit (UIO_MAXIOV) is 1024.
const BUFFERS_MAX: usize = 256;

pub(super) struct RealFile {
    descriptor: Arc<OwnedFd>,
    /// The same file for writes around the page cache, once there is one; none: its file system cannot.
    direct: Arc<OnceLock<Option<OwnedFd>>>,
    syncs: Arc<Pace>,
    path: Arc<Path>,
}

impl RealFile {
    pub(super) fn new(descriptor: OwnedFd, path: &Path) -> Self {
        Self { descriptor: Arc::new(descriptor), direct: Arc::default(), syncs: Arc::default(), path: path.into() }
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

    fn will_read(&self, offset: u64, len: u64) -> Work<'_, ()> {
        Box::pin(async move {
            if edges(offset, len).iter().all(|edge| is_cached(self.descriptor.as_fd(), *edge)) {
                return;
            }
            let told = self.call("advise", move |descriptor| {
                will_need(descriptor, offset, len);
                Ok(())
            });
            let _ = told.await;
        })
    }

    fn write_at(&self, offset: u64, data: Vec<Bytes>) -> Work<'_, Result<()>> {
        Box::pin(async move {
            let len: usize = data.iter().map(Bytes::len).sum();
            if len <= INLINE_WRITE_MAX {
                return write_all(self.descriptor.as_fd(), offset, data)
                    .map_err(|errno| error(errno, "write", &self.path));
            }
            if !is_direct(offset, &data) {
                return self.call("write", move |descriptor| write_all(descriptor, offset, data)).await;
            }
            let direct = self.direct.clone();
            self.call("write", move |descriptor| {
                if let Some(around) = direct.get_or_init(|| reopen_direct(descriptor))
                    && write_all(around.as_fd(), offset, data.clone()).is_ok()
                {
                    return Ok(());
                }
                // The reason for the refusal does not matter: this way reports the error, or succeeds.
                write_all(descriptor, offset, data)
            })
            .await
        })
    }

    fn sync_data(&self) -> Work<'_, Result<()>> {
        Box::pin(async move {
            if self.syncs.is_short() {
                let synced = self.syncs.time(|| retry(|| fdatasync(&self.descriptor)));
                return synced.map_err(|errno| error(errno, "sync", &self.path));
            }
            let syncs = self.syncs.clone();
            self.call("sync", move |descriptor| syncs.time(|| retry(|| fdatasync(descriptor)))).await
        })
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
            // st_blocks counts 512 bytes, independent of the file system's block size (inode(7)).
            Ok(stat.st_blocks.unsigned_abs() * 512)
        })
    }

    fn compress(&self, method: Compression) -> Work<'_, Result<()>> {
        Box::pin(self.call("compress", move |descriptor| compress::compress(descriptor, method)))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.descriptor.as_fd())
    }
}

/// The end of a range, or `Invalid` if the kernel cannot count so far.
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
    let edges = edges(offset, len);
    if edges.iter().all(|edge| is_cached(descriptor, *edge)) {
        return Ok(());
    }
    let file = file.clone();
    blocking(move || {
        if let Some(descriptor) = file.descriptor() {
            will_need(descriptor, offset, len);
            // `sendfile` meets the same error, and reports it.
            for edge in edges {
                let _ = retry(|| rustix::io::pread(descriptor, &mut [0_u8; 1], edge));
            }
        }
        Ok(())
    })
    .await
}

/// First and last byte of a range.
fn edges(offset: u64, len: u64) -> [u64; 2] {
    [offset, offset.saturating_add(len.saturating_sub(1))]
}

/// Has the kernel read a range into the page cache. A hint: a read meets the same error, and reports it.
fn will_need(descriptor: BorrowedFd<'_>, offset: u64, len: u64) {
    let advice = rustix::fs::Advice::WillNeed;
    let _ = rustix::fs::fadvise(descriptor, offset, std::num::NonZeroU64::new(len), advice);
}

/// Whether a byte can be read at once. Also true where waiting would not help: at the end of the file, and for errors.
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

/// Appends the part of `[offset, offset + len)` that is in the page cache, without waiting for the disk (preadv2(2)).
fn read_cached(descriptor: BorrowedFd<'_>, data: &mut BytesMut, offset: u64, len: usize) -> Progress {
    while data.len() < len {
        let Ok(at) = i64::try_from(offset.saturating_add(data.len() as u64)) else { return Progress::Rest };
        let room = len - data.len();
        data.reserve(room);
        let buffer = libc::iovec { iov_base: data.spare_capacity_mut().as_mut_ptr().cast(), iov_len: room };
        // SAFETY: the one buffer is `room` bytes of spare capacity. `data` owns them, no other reference to them
        // exists, and they outlive the call; the descriptor is open for as long as it is borrowed.
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

/// Whether all of a write is large and lies as the disk wants it.
fn is_direct(offset: u64, data: &[Bytes]) -> bool {
    let is_whole = |buffer: &Bytes| {
        buffer.len() >= DIRECT_MIN
            && buffer.len().is_multiple_of(ALIGNMENT)
            && buffer.as_ptr().addr().is_multiple_of(ALIGNMENT)
    };
    offset.is_multiple_of(ALIGNMENT as u64) && data.iter().all(is_whole)
}

/// Another open file description of the same file, by its descriptor: its name may have changed.
fn reopen_direct(descriptor: BorrowedFd<'_>) -> Option<OwnedFd> {
    let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    // A file that was opened for reading alone stays so.
    if !rustix::fs::fcntl_getfl(descriptor).is_ok_and(|flags| flags.contains(OFlags::RDWR)) {
        return None;
    }
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::DIRECT;
    retry(|| rustix::fs::open(path.as_str(), flags, Mode::empty())).ok()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer_buffer;

    fn aligned(len: usize, letter: u8) -> Bytes {
        let mut out = transfer_buffer(len);
        out.resize(len, letter);
        out.freeze()
    }

    #[test]
    fn only_large_pieces_that_lie_right_go_around_the_page_cache() {
        let mib = 1 << 20;
        assert!(is_direct(mib, &[aligned(1 << 20, 1), aligned(DIRECT_MIN, 2)]));
        assert!(!is_direct(mib + 512, &[aligned(1 << 20, 1)]), "its place in the file");
        assert!(!is_direct(mib, &[aligned(DIRECT_MIN / 2, 1)]), "a small one is synced sooner");
        assert!(!is_direct(mib, &[aligned(1 << 20, 1).slice(512..)]), "its place in memory");
        assert!(!is_direct(mib, &[aligned(1 << 20, 1).slice(..(1 << 20) - 512)]), "its end");
    }

    #[test]
    fn bytes_written_around_the_page_cache_are_not_in_it_and_can_be_read() {
        // On the disk that the build is on: temporary files may be in memory.
        let beside = std::env::current_exe().unwrap();
        let dir = tempfile::tempdir_in(beside.parent().unwrap()).unwrap();
        let path = dir.path().join("f");
        let descriptor: OwnedFd =
            std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap().into();
        let file = RealFile::new(descriptor, &path);
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        tokio.block_on(async {
            file.write_at(0, vec![Bytes::from(vec![1; 5000])]).await.unwrap();
            // The descriptor leads to the file, also under another name.
            std::fs::rename(&path, dir.path().join("g")).unwrap();
            file.write_at(4096, vec![aligned(1 << 20, 2)]).await.unwrap();
            assert!(matches!(file.direct.get(), Some(Some(_))));
            // The kernel may have kept pages of the range above: a cached page that is just being written to the disk
            // cannot be thrown out, and then the whole write goes through the cache. No page of this range is cached.
            file.write_at(4 << 20, vec![aligned(1 << 20, 3)]).await.unwrap();
            let mut data = BytesMut::new();
            assert!(matches!(read_cached(file.descriptor.as_fd(), &mut data, 4 << 20, 4096), Progress::Rest));
            assert!(data.is_empty());
            file.write_at(4097, vec![Bytes::from_static(b"small")]).await.unwrap();
            let read = file.read_at(0, 2 << 20).await.unwrap();
            assert_eq!((read.len(), &read[4094..4103]), (2 << 20, &b"\x01\x01\x02small\x02"[..]));
            let read = file.read_at(4 << 20, 2 << 20).await.unwrap();
            assert!(read.len() == 1 << 20 && read.iter().all(|byte| *byte == 3));
        });
    }
}
