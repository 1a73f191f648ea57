//! Many seeds, a few at a time.
//!
//! A run needs one thread and shares nothing with others, so the order in which they end has no say in any result.

use std::num::NonZeroUsize;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use crate::invariants::Violation;
use crate::{Report, VirtualOptions, run};

/// Runs every seed of a range, `jobs` at a time, and hands each report over as it is ready; ends early when `each` says
/// so. Runs under way then are finished and dropped.
pub fn run_all(
    seeds: Range<u64>,
    jobs: NonZeroUsize,
    options: impl Fn(u64) -> VirtualOptions + Sync,
    each: impl FnMut(Report) -> Next,
) {
    run_each(seeds, jobs, |seed| run(seed, options(seed)), each);
}

/// As `run_all`, for runs of any kind.
#[expect(clippy::disallowed_methods, reason = "a world is a thread of its own, outside of any runtime")]
pub fn run_each(
    seeds: Range<u64>,
    jobs: NonZeroUsize,
    run: impl Fn(u64) -> Report + Sync,
    mut each: impl FnMut(Report) -> Next,
) {
    let next = AtomicU64::new(seeds.start);
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (send, reports) = mpsc::channel();
        for _ in 0..jobs.get() {
            let (send, next, stopped, run, end) = (send.clone(), &next, &stopped, &run, seeds.end);
            scope.spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    // The receiver is gone: the end has come early.
                    if seed >= end || send.send(run_caught(seed, run)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        for report in reports {
            if each(report) == Next::Stop {
                stopped.store(true, Ordering::Relaxed);
                return;
            }
        }
    });
}

/// Whether a swarm goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// With the next seed.
    GoOn,
    /// No more seeds.
    Stop,
}

/// Runs a seed; a world that ends in a panic is a broken promise too.
#[must_use]
pub fn run_caught(seed: u64, run: impl Fn(u64) -> Report) -> Report {
    let done = catch_unwind(AssertUnwindSafe(|| run(seed)));
    done.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let detail = format!("the world ended in a panic: {}", text.unwrap_or_default());
        Report { seed, violations: vec![Violation::new("healthy", detail)], ..Report::default() }
    })
}
