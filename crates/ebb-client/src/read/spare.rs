//! How much may be fetched ahead with bandwidth that nobody else wants: an answer to the metablocks paper's first open
//! question (Sec. 5). Plain values: how long fetches took goes in, a number of blocks comes out.
//!
//! Traffic in the way of others is seen as delay long before it is seen as loss, wherever the queue is: at the server's
//! disk, on the link, in our own process. Background transports go by that (LEDBAT, RFC 6817; TCP Nice, Venkataramani et
//! al., OSDI 2002), and so does this: while fetches take about as long as the quickest of the same size lately, the window
//! grows by a part of a block with each; when one took much longer it is halved, at most once for as many fetches as it
//! has blocks, for these were sent before the last halving was felt. At less than a block nothing is fetched ahead; what
//! programs wait for goes on to tell how long it takes, and lets the window grow again.
//!
//! Besides, each read of this client that waits for a member now takes a block from the window: own traffic that matters
//! is known without being measured.

use std::time::Duration;

use parking_lot::Mutex;

use crate::read::prefetch::WINDOW_MAX;

/// Fetches shorter than this say little of bandwidth.
const BYTES_MIN: u64 = 64 << 10;
/// Sizes that are told apart: below 128 KiB, 256 KiB, ... and all larger.
const SIZES: usize = 9;
/// Fetches of a size until the quickest of those before the last so many is forgotten: paths change.
const MEMORY: u32 = 256;
/// Of a block, for each fetch without delay.
const GROWTH: f64 = 0.25;
/// A fetch is late when it took longer than the quickest by half of that, and by this: clocks and threads have jitter.
const JITTER: Duration = Duration::from_millis(1);

/// The window, and what it goes by.
#[derive(Debug)]
pub(crate) struct Spare(Mutex<State>);

#[derive(Debug)]
struct State {
    blocks: f64,
    quickest: [Quickest; SIZES],
    /// Fetches since it was last halved.
    since_halved: u32,
}

/// The quickest fetch of a size, of the last [`MEMORY`] to twice as many.
#[derive(Clone, Copy, Default, Debug)]
struct Quickest {
    before: Option<Duration>,
    now: Option<Duration>,
    count: u32,
}

impl Default for Spare {
    fn default() -> Self {
        // One block: the first stream learns by it what there is.
        Self(Mutex::new(State { blocks: 1.0, quickest: [Quickest::default(); SIZES], since_halved: 0 }))
    }
}

impl Spare {
    /// So many bytes came from a member over the network in this time.
    pub fn on_answer(&self, bytes: u64, took: Duration) {
        if bytes < BYTES_MIN {
            return;
        }
        let mut state = self.0.lock();
        let quickest = state.quickest[size(bytes)].add(took);
        state.since_halved = state.since_halved.saturating_add(1);
        if took <= quickest + (quickest / 2).max(JITTER) {
            state.blocks = (state.blocks + GROWTH).min(WINDOW_MAX as f64);
        } else if f64::from(state.since_halved) >= state.blocks {
            state.blocks /= 2.0;
            state.since_halved = 0;
        }
    }

    /// Blocks that may be fetched ahead now, while `waiting` reads of this client wait for members.
    pub fn blocks(&self, waiting: usize) -> u64 {
        (self.0.lock().blocks as u64).saturating_sub(waiting as u64)
    }
}

impl Quickest {
    /// Notes one, and tells the quickest with it.
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

/// Which of the sizes.
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
        assert_eq!(spare.blocks(0), 1);
        (0..28).for_each(|_| spare.on_answer(BLOCK, 10 * MS));
        assert_eq!(spare.blocks(0), WINDOW_MAX);
        assert_eq!(spare.blocks(3), WINDOW_MAX - 3, "what waits goes before what may come in handy");
        assert_eq!(spare.blocks(100), 0);
    }

    #[test]
    fn delay_takes_the_window_away_and_its_end_gives_it_back() {
        let spare = Spare::default();
        (0..40).for_each(|_| spare.on_answer(BLOCK, 10 * MS));
        // Others have come: everything takes three times as long.
        spare.on_answer(BLOCK, 30 * MS);
        assert_eq!(spare.blocks(0), 4);
        (0..3).for_each(|_| spare.on_answer(BLOCK, 30 * MS));
        assert_eq!(spare.blocks(0), 4, "these were under way before the halving could be felt");
        (0..20).for_each(|_| spare.on_answer(BLOCK, 30 * MS));
        assert_eq!(spare.blocks(0), 0);
        (0..40).for_each(|_| spare.on_answer(BLOCK, 11 * MS));
        assert_eq!(spare.blocks(0), WINDOW_MAX);
    }

    #[test]
    fn a_path_that_is_slower_for_good_becomes_the_measure() {
        let spare = Spare::default();
        (0..10).for_each(|_| spare.on_answer(BLOCK, 10 * MS));
        (0..2 * MEMORY).for_each(|_| spare.on_answer(BLOCK, 30 * MS));
        (0..40).for_each(|_| spare.on_answer(BLOCK, 30 * MS));
        assert_eq!(spare.blocks(0), WINDOW_MAX);
    }

    #[test]
    fn sizes_have_times_of_their_own_and_chunks_say_nothing() {
        let spare = Spare::default();
        for _ in 0..20 {
            spare.on_answer(BLOCK / 8, MS);
            spare.on_answer(16 * BLOCK, 80 * MS);
            spare.on_answer(16 << 10, 500 * MS);
        }
        assert_eq!(spare.blocks(0), WINDOW_MAX);
        // Jitter is not delay.
        (0..20).for_each(|_| spare.on_answer(BLOCK / 8, 2 * MS));
        assert_eq!(spare.blocks(0), WINDOW_MAX);
        assert_eq!((size(BYTES_MIN), size(2 * BYTES_MIN - 1), size(16 << 20), size(u64::MAX)), (0, 0, 8, 8));
    }
}
