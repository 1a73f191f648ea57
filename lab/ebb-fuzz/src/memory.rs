//! How much memory a computation takes at most, by a counting global allocator.
//!
//! Counted by thread: what other tests of the same process do does not matter. (Allocators of the crates that count,
//! such as `cap` and `peak_alloc`, count for the whole process.)

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;

/// A watched computation that has more than this at a time is ended with its process, and names its case. A larger
/// request may not be granted at all, and then the case would stay unknown.
const LAST_RESORT: isize = 4 << 30;

thread_local! {
    // Constants without a destructor: nothing is allocated to get at them.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static LIMIT: Cell<isize> = const { Cell::new(isize::MAX) };
    static CASE: Cell<(&'static str, u64, u64)> = const { Cell::new(("", 0, 0)) };
}

/// The system's allocator, counting.
#[derive(Debug)]
pub struct Counting;

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        add(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(place, layout, size) }
    }
}

fn add(bytes: isize) {
    let live = LIVE.get().wrapping_add(bytes);
    LIVE.set(live);
    if live > PEAK.get() {
        PEAK.set(live);
        if live > LIMIT.get() {
            give_up();
        }
    }
}

/// Says which case it was and ends the process, without taking memory.
fn give_up() -> ! {
    LIMIT.set(isize::MAX);
    let (target, seed, case) = CASE.get();
    // Not by a macro: output captured for a test is lost with the process. If it is not printed, nothing changes.
    let _ = writeln!(
        std::io::stderr(),
        "{target} asks for more than {} GiB: cargo run -p ebb-fuzz -- replay {target} {seed} {case}",
        LAST_RESORT >> 30
    );
    std::process::abort()
}

/// Names the case for messages of this thread.
pub(crate) fn note_case(target: &'static str, seed: u64, case: u64) {
    CASE.set((target, seed, case));
}

/// Runs `work`; its result, and how much more memory than before it had at most.
pub fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    LIMIT.set(before.saturating_add(LAST_RESORT));
    let result = work();
    LIMIT.set(isize::MAX);
    (result, PEAK.get().saturating_sub(before).max(0) as usize)
}
