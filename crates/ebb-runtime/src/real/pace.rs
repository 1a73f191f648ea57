//! Whether a call that waits for a disk is worth another thread.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Calls that take less than this are made where they are asked for: another thread and back costs 30 to 60 us, more where
/// cores are few, and the thread that waits here has little to miss.
const HERE_MAX_US: u32 = 300;
/// A call counts for one part in so many of the mean.
const WEIGHT: u32 = 8;
/// Nothing is known yet.
const UNKNOWN: u32 = u32::MAX;

/// How long one kind of call on one file takes of late: a moving average in microseconds.
pub(super) struct Pace(AtomicU32);

impl Default for Pace {
    fn default() -> Self {
        Self(AtomicU32::new(UNKNOWN))
    }
}

impl Pace {
    /// Whether the next call is likely to be a short one. A file's first call goes elsewhere.
    pub(super) fn is_short(&self) -> bool {
        self.0.load(Ordering::Relaxed) < HERE_MAX_US
    }

    /// Makes a call and counts it.
    pub(super) fn time<T>(&self, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = call();
        self.count(begun.elapsed());
        done
    }

    fn count(&self, took: Duration) {
        let took = u32::try_from(took.as_micros()).unwrap_or(UNKNOWN - 1).min(UNKNOWN - 1);
        let mean = match self.0.load(Ordering::Relaxed) {
            UNKNOWN => took,
            mean => mean - mean / WEIGHT + took / WEIGHT,
        };
        // Two that count at once may lose one of the two: it is a guess in any case.
        self.0.store(mean, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(calls: &[u64]) -> Pace {
        let pace = Pace::default();
        calls.iter().for_each(|us| pace.count(Duration::from_micros(*us)));
        pace
    }

    #[test]
    fn a_disk_that_answers_quickly_is_waited_for_until_it_is_slow() {
        assert!(!after(&[]).is_short(), "not known");
        assert!(after(&[80]).is_short());
        assert!(after(&[80, 900]).is_short(), "once is not often");
        assert!(!after(&[80, 20_000]).is_short());
        assert!(!after(&[80, 900, 900, 900, 900]).is_short());
        assert!(!after(&[8_000, 80, 80]).is_short());
        assert!(after(&[[8_000].as_slice(), &[80; 40]].concat()).is_short());
        assert!(!after(&[u64::MAX]).is_short());
    }
}
