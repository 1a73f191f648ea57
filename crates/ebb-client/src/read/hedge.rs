//! When to ask a second member although the first may still answer ("The Tail at Scale", Dean and Barroso, 2013).
//!
//! Plain values: latencies go in, a time to wait comes out. A second request is worth while when the first takes longer
//! than nearly all did lately, and only a few in a hundred are sent: a cluster that is slow all over is not made slower.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

/// Latencies remembered.
const WINDOW: usize = 128;
/// With fewer nothing is known yet.
const KNOWN_MIN: usize = 32;
/// Of a hundred, so many came sooner than the time to wait.
const PERCENTILE: usize = 95;
/// Waiting less gains nothing.
const WAIT_MIN: Duration = Duration::from_millis(2);
/// Requests for each second one, in the long run.
const PRICE: u32 = 20;
/// Second requests that may come together.
const SAVED_MAX: u32 = 10;
/// Reads up to this are timed apart from larger ones.
const SMALL: u64 = 128 << 10;

/// Latencies of small and of large reads, and what may be spent.
#[derive(Debug, Default)]
pub(crate) struct Hedge(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    small: VecDeque<Duration>,
    large: VecDeque<Duration>,
    saved: u32,
}

impl State {
    fn window(&mut self, bytes: u64) -> &mut VecDeque<Duration> {
        if bytes <= SMALL { &mut self.small } else { &mut self.large }
    }
}

impl Hedge {
    /// A member answered a read of so many bytes in this time.
    pub fn on_answer(&self, bytes: u64, took: Duration) {
        let mut state = self.0.lock();
        state.saved = (state.saved + 1).min(PRICE * SAVED_MAX);
        let window = state.window(bytes);
        if window.len() == WINDOW {
            window.pop_front();
        }
        window.push_back(took);
    }

    /// How long to wait for the first member; `None`: for as long as it takes.
    pub fn wait(&self, bytes: u64) -> Option<Duration> {
        let mut state = self.0.lock();
        let mut sorted: Vec<Duration> = state.window(bytes).iter().copied().collect();
        if sorted.len() < KNOWN_MIN {
            return None;
        }
        let place = sorted.len() * PERCENTILE / 100;
        let (_, late, _) = sorted.select_nth_unstable(place);
        Some((*late).max(WAIT_MIN))
    }

    /// Whether a second request may be sent; it is paid for.
    pub fn spend(&self) -> bool {
        let mut state = self.0.lock();
        let enough = state.saved >= PRICE;
        if enough {
            state.saved -= PRICE;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn it_waits_longer_than_nearly_all_took() {
        let hedge = Hedge::default();
        assert_eq!(hedge.wait(4096), None);
        for turn in 0..100 {
            hedge.on_answer(4096, if turn % 50 == 0 { 900 * MS } else { 5 * MS });
        }
        assert_eq!(hedge.wait(4096), Some(5 * MS));
        assert_eq!(hedge.wait(1 << 20), None, "large reads have times of their own");
    }

    #[test]
    fn few_in_a_hundred_are_asked_twice() {
        let hedge = Hedge::default();
        let mut second = 0;
        for _ in 0..10_000 {
            hedge.on_answer(4096, MS);
            second += u32::from(hedge.spend());
        }
        assert_eq!(second, 10_000 / PRICE);
        let saved = (0..1000).filter(|_| hedge.spend()).count();
        assert!(saved <= SAVED_MAX as usize);
    }
}
