//! Memory of this process.

use std::time::Duration;

/// Freed memory that a process keeps, before it gives it back to the kernel.
const KEPT_BYTES: i32 = 64 << 20;

/// Taken from the kernel at once, when there is none left.
const STEP_BYTES: i32 = 8 << 20;

/// Has the allocator keep up to 64 MiB that were freed, for processes through which large pieces pass: each came from the
/// kernel anew, which cleared its pages and met a fault for each of them. Block servers used an eighth less of processor time
/// for a sequential write. (`mallopt(3)`; where the C library is not glibc nothing happens.)
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    for (setting, bytes) in [
        (libc::M_TRIM_THRESHOLD, KEPT_BYTES),
        // No larger than glibc allows (DEFAULT_MMAP_THRESHOLD_MAX): larger pieces have pages of their own.
        (libc::M_MMAP_THRESHOLD, 32 << 20),
        (libc::M_TOP_PAD, STEP_BYTES),
    ] {
        // SAFETY: it sets a number that the allocator looks at under its own lock.
        let taken = unsafe { libc::mallopt(setting, bytes) };
        if taken == 0 {
            tracing::debug!(setting, bytes, "the allocator does not take a setting");
        }
    }
}

/// How often it is looked whether memory can go back.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// Memory that may be resident beyond the part in use.
const SPARE_BYTES: u64 = 16 << 20;
/// A process whose use has changed by more since the last measurement is at work, and may need freed memory at once.
const QUIET_BYTES: u64 = 1 << 20;

/// Gives memory back to the kernel that was freed and is not used again, for as long as the process runs. The allocator
/// gives back only the end of an arena: after 200,000 files were made and removed a master had 2 MB in use and kept 200
/// MB.
///
/// Call it within a tokio runtime. Where the C library is not glibc nothing happens.
pub fn give_back_unused() {
    #[cfg(target_env = "gnu")]
    tokio::spawn(async {
        let mut before = Use::default();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = Use::of_this_process();
            if now.is_worth_a_trim(before) {
                // It walks the free pieces of all arenas.
                let trimmed = tokio::task::spawn_blocking(|| {
                    // SAFETY: it takes the allocator's own locks, and touches only free memory.
                    unsafe { libc::malloc_trim(0) }
                });
                let _ = trimmed.await;
                tracing::debug!(resident = now.resident, in_use = now.in_use, "gave unused memory back");
            }
            before = Use::of_this_process();
        }
    });
}

/// Bytes of a process.
#[derive(Clone, Copy, Default, Debug)]
struct Use {
    /// Resident, files not counted.
    resident: u64,
    /// Memory that the program has from the allocator.
    in_use: u64,
}

impl Use {
    #[cfg(target_env = "gnu")]
    fn of_this_process() -> Self {
        // SAFETY: it reads counters under the allocator's own locks.
        let info = unsafe { libc::mallinfo2() };
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages: Vec<u64> = statm.split(' ').map_while(|number| number.parse().ok()).collect();
        let resident = match pages[..] {
            [_, all, files, ..] => all.saturating_sub(files) * page_bytes(),
            _ => 0,
        };
        Self { resident, in_use: (info.uordblks + info.hblkhd) as u64 }
    }

    /// Whether much is unused, and was for a while: memory that is about to be used again would only come back page by
    /// page.
    fn is_worth_a_trim(self, before: Self) -> bool {
        let spare = |one: Self| one.resident.saturating_sub(one.in_use);
        let allowed = SPARE_BYTES + self.in_use / 8;
        spare(self) > allowed && spare(before) > allowed && self.in_use.abs_diff(before.in_use) < QUIET_BYTES
    }
}

#[cfg(target_env = "gnu")]
fn page_bytes() -> u64 {
    // SAFETY: it reads a number.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn use_of(resident: u64, in_use: u64) -> Use {
        Use { resident: resident * MIB, in_use: in_use * MIB }
    }

    #[test]
    fn memory_unused_twice_goes_back_and_a_little_stays() {
        assert!(use_of(200, 2).is_worth_a_trim(use_of(200, 2)));
        assert!(!use_of(200, 2).is_worth_a_trim(use_of(200, 190)), "it was in use a moment ago");
        assert!(!use_of(200, 2).is_worth_a_trim(use_of(200, 4)), "it is at work");
        assert!(!use_of(18, 2).is_worth_a_trim(use_of(18, 2)));
        assert!(!use_of(240, 200).is_worth_a_trim(use_of(240, 200)), "an eighth more is ordinary");
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn this_process_reports_its_own_use() {
        let before = Use::of_this_process();
        let held = vec![1_u8; 768 << 20];
        let now = Use::of_this_process();
        // Other tests of this process come and go. They use far less than the other half.
        assert!(
            now.in_use >= before.in_use + 384 * MIB && now.resident >= before.resident + 384 * MIB,
            "{before:?} {now:?}"
        );
        drop(held);
    }
}
