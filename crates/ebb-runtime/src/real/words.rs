//! Shared memory: memfd_create(2), mapped.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use ebb_types::{Error, Result, bail};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::local::WordsBackend;

/// Bytes of a number.
const WORD: usize = size_of::<u64>();

/// A mapping of whole words.
pub(super) struct RealWords {
    start: *mut AtomicU64,
    count: usize,
    writable: bool,
    descriptor: OwnedFd,
}

// SAFETY: the mapping is memory that lives as long as this value, and is touched only as atomic numbers.
unsafe impl Send for RealWords {}
// SAFETY: as above.
unsafe impl Sync for RealWords {}

impl RealWords {
    /// New ones, all zero. A receiver of the descriptor can neither change them nor take them away.
    pub(super) fn make(count: usize) -> Result<Self> {
        let make = || {
            let descriptor = memfd_create(c"ebb-words", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            ftruncate(&descriptor, (count * WORD) as u64)?;
            let words = Self::map(descriptor, count, true)?;
            // Ordering: after mapping; existing mappings go on writing (memfd_create(2), F_SEAL_FUTURE_WRITE).
            let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
            fcntl_add_seals(&words.descriptor, seals)?;
            Ok(words)
        };
        make().map_err(|errno: rustix::io::Errno| Error::from_io(&errno.into(), "cannot make shared memory"))
    }

    /// Those that another process made.
    ///
    /// Errors: `Protocol` for a descriptor that is something else, or could be cut under our eyes.
    pub(super) fn receive(descriptor: OwnedFd) -> Result<Self> {
        let sealed = fcntl_get_seals(&descriptor).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        let len = fstat(&descriptor).map_or(0, |stat| usize::try_from(stat.st_size).unwrap_or(0));
        if !sealed || len == 0 || !len.is_multiple_of(WORD) {
            bail!(Protocol, "a descriptor of {len} bytes came that is no shared memory");
        }
        Self::map(descriptor, len / WORD, false)
            .map_err(|errno| Error::from_io(&errno.into(), "cannot map shared memory"))
    }

    fn map(descriptor: OwnedFd, count: usize, writable: bool) -> rustix::io::Result<Self> {
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let start =
            unsafe { mmap(std::ptr::null_mut(), count * WORD, protection, MapFlags::SHARED, descriptor.as_fd(), 0)? };
        Ok(Self { start: start.cast(), count, writable, descriptor })
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.count, "word {index} of {}", self.count);
        // SAFETY: within the mapping, which is aligned to a page and, being sealed against it, never becomes shorter.
        unsafe { &*self.start.add(index) }
    }
}

impl WordsBackend for RealWords {
    fn len(&self) -> usize {
        self.count
    }

    fn load(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::SeqCst)
    }

    fn store(&self, index: usize, value: u64) {
        assert!(self.writable, "these words belong to another process");
        self.word(index).store(value, Ordering::SeqCst);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.descriptor.as_fd())
    }
}

impl Drop for RealWords {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that `map` made, and no reference to it is left. It cannot fail.
        let _ = unsafe { munmap(self.start.cast(), self.count * WORD) };
    }
}
