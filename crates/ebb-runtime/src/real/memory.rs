//! Memory of this process.

/// What a process keeps of memory that it has freed, before it gives it back to the kernel.
const KEPT_BYTES: i32 = 64 << 20;

/// Taken from the kernel at once, when there is none left.
const STEP_BYTES: i32 = 8 << 20;

/// Has the allocator keep up to 64 MiB that were freed, for processes through which large pieces pass: each came from the
/// kernel anew, which cleared its pages and met a fault for each of them. Block servers used an eighth less of processor time
/// for a sequential write. (`mallopt(3)`; where the C library is not glibc nothing happens.)
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    for (what, bytes) in [
        (libc::M_TRIM_THRESHOLD, KEPT_BYTES),
        // No larger than glibc allows (DEFAULT_MMAP_THRESHOLD_MAX): larger pieces have pages of their own.
        (libc::M_MMAP_THRESHOLD, 32 << 20),
        (libc::M_TOP_PAD, STEP_BYTES),
    ] {
        // SAFETY: it sets a number that the allocator looks at under its own lock.
        let taken = unsafe { libc::mallopt(what, bytes) };
        if taken == 0 {
            tracing::debug!(what, bytes, "the allocator does not take a setting");
        }
    }
}
