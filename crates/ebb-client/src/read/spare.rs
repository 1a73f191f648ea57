//! Decides how much may be fetched ahead with bandwidth that no other traffic needs.
//!
//! It answers the first open question of the metablocks paper (Sec. 5). A pure core: times of
//! fetches go in, a number of bytes comes out. It is counted in units of 1 MiB.
//!
//! Congestion shows as delay long before it shows as loss, wherever the queue is: at the server's
//! disk, on the link, or in this process. Background transports use this (LEDBAT, RFC 6817; TCP
//! Nice, Venkataramani et al., OSDI 2002), and so does this module:
//!
//! - A fetch that takes about as long as the quickest recent one of its size adds a part of a unit
//!   to the window.
//! - A fetch that takes much longer halves the window, at most once in as many fetches as the
//!   window has units. Those fetches were sent before the last halving had an effect.
//! - With a window below one unit nothing is fetched ahead. The reads that programs wait for are
//!   still timed, and let the window grow again.
//!
//! Besides, each read of this client that waits for a member takes a unit from the window. The
//! client knows its own urgent traffic without a measurement.

use std::time::Duration;

use parking_lot::Mutex;

use crate::read::prefetch::WINDOW_MAX;

/// Smaller fetches are not timed: they show little of the bandwidth.
const BYTES_MIN: u64 = 64 << 10;
/// Number of size classes: below 128 KiB, below 256 KiB, ..., and all larger sizes.
const SIZES: usize = 9;
/// Fetches of a size class in one period. Older periods than the previous one are forgotten,
/// because paths change.
const MEMORY: u32 = 256;
/// Bytes of a unit.
const UNIT: u64 = 1 << 20;
/// Units of the full window.
const UNITS_MAX: u64 = WINDOW_MAX / UNIT;
/// Growth of the window for each fetch without delay, in units.
const GROWTH: f64 = 0.25;
/// A fetch is late if it exceeds the quickest one's time by more than half of that time, and by
/// more than this. Clocks and threads have jitter.
const JITTER: Duration = Duration::from_millis(1);

/// The window, and the measurements that set it.
#[derive(Debug)]
pub(crate) struct Spare(Mutex<State>);

#[derive(Debug)]
struct State {
    units: f64,
    quickest: [Quickest; SIZES],
    /// Fetches since the window was last halved.
    since_halved: u32,
}

/// The quickest of the last fetches of a size class: of [`MEMORY`] to twice as many.
#[derive(Clone, Copy, Default, Debug)]
struct Quickest {
    before: Option<Duration>,
    now: Option<Duration>,
    count: u32,
}

impl Default for Spare {
    fn default() -> Self {
        // One unit: the first stream measures the available bandwidth with it.
        Self(Mutex::new(State { units: 1.0, quickest: [Quickest::default(); SIZES], since_halved: 0 }))
    }
}

impl Spare {
    /// Records that `bytes` bytes came from a member over the network within `took`.
    pub fn on_answer(&self, bytes: u64, took: Duration) {
        if bytes < BYTES_MIN {
            return;
        }
        let mut state = self.0.lock();
        let quickest = state.quickest[size(bytes)].add(took);
        state.since_halved = state.since_halved.saturating_add(1);
        if took <= quickest + (quickest / 2).max(JITTER) {
            state.units = (state.units + GROWTH).min(UNITS_MAX as f64);
        } else if f64::from(state.since_halved) >= state.units {
            state.units /= 2.0;
            state.since_halved = 0;
        }
    }

    /// Number of bytes that may be fetched ahead now. `waiting` counts the reads of this client
    /// that wait for members.
    pub fn bytes(&self, waiting: usize) -> u64 {
        (self.0.lock().units as u64).saturating_sub(waiting as u64) * UNIT
    }
}

impl Quickest {
    /// Records a fetch. Returns the time of the quickest one, this one included.
    fn add(&mut self, took: Duration) -> Duration {
        if self.count == MEMORY {
            *self = Self { before: self.now, now: None, count: 0 };
        }
        self.count += 1;
        let now = self.now.map_or(took, |now| now.min(took));
        self.now = Some(now);
        self.before.map_or(now, |before| before.min(now))
    }
}

/// Index of the size class for `bytes`, which is at least [`BYTES_MIN`].
fn size(bytes: u64) -> usize {
    ((bytes / BYTES_MIN).ilog2() as usize).min(SIZES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 1 << 20;
    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn an_idle_path_gives_the_full_window() {
        let spare = Spare::default();
        assert_eq!(spare.bytes(0), UNIT);
        (0..28).for_each(|_| spare.on_answer(BLOCK, 10 * MS));
        assert_eq!(spare.bytes(0), WINDOW_MAX);
        assert_eq!(spare.bytes(3), WINDOW_MAX - 3 * UNIT, "what waits goes before what may come in handy");
        assert_eq!(spare.bytes(100), 0);
    }

    #[test]
    fn delay_takes_the_window_away_and_its_end_gives_it_back() {
        let spare = Spare::default();
        (0..40).for_each(|_| spare.on_answer(BLOCK, 10 * MS));
        // Other traffic has begun: everything takes three times as long.
        spare.on_answer(BLOCK, 30 * MS);
        assert_eq!(spare.bytes(0), 4 * UNIT);
        (0..3).for_each(|_| spare.on_answer(BLOCK, 30 * MS));
        assert_eq!(spare.bytes(0), 4 * UNIT, "these were under way before the halving could be felt");
        (0..20).for_each(|_| spare.on_answer(BLOCK, 30 * MS));
        assert_eq!(spare.bytes(0), 0);
        (0..40).for_each(|_| spare.on_answer(BLOCK, 11 * MS));
        assert_eq!(spare.bytes(0), WINDOW_MAX);
    }

    #[test]
    fn a_path_that_is_slower_for_good_becomes_the_measure() {
        let spare = Spare::default();
        (0..10).for_each(|_| spare.on_answer(BLOCK, 10 * MS));
        (0..2 * MEMORY).for_each(|_| spare.on_answer(BLOCK, 30 * MS));
        (0..40).for_each(|_| spare.on_answer(BLOCK, 30 * MS));
        assert_eq!(spare.bytes(0), WINDOW_MAX);
    }

    #[test]
    fn sizes_have_times_of_their_own_and_chunks_say_nothing() {
        let spare = Spare::default();
        for _ in 0..20 {
            spare.on_answer(BLOCK / 8, MS);
            spare.on_answer(16 * BLOCK, 80 * MS);
            spare.on_answer(16 << 10, 500 * MS);
        }
        assert_eq!(spare.bytes(0), WINDOW_MAX);
        // Jitter is not delay.
        (0..20).for_each(|_| spare.on_answer(BLOCK / 8, 2 * MS));
        assert_eq!(spare.bytes(0), WINDOW_MAX);
        assert_eq!((size(BYTES_MIN), size(2 * BYTES_MIN - 1), size(16 << 20), size(u64::MAX)), (0, 0, 8, 8));
    }
}
