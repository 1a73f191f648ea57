//! Decides when to ask a second member although the first may still answer.
//!
//! The method is from "The Tail at Scale" (Dean and Barroso, 2013).
//!
//! A pure core: latencies go in, a time to wait comes out. A second request is worth while if the
//! first takes longer than nearly all recent ones. Only a few in a hundred requests are repeated,
//! so that second requests do not slow down a cluster that is slow everywhere.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

/// Number of latencies kept for each size class.
const WINDOW: usize = 128;
/// Fewer latencies give no estimate.
const KNOWN_MIN: usize = 32;
/// Percentile of the latencies that is the time to wait.
const PERCENTILE: usize = 95;
/// Shortest time to wait: a shorter one gains nothing.
const WAIT_MIN: Duration = Duration::from_millis(2);
/// Number of answers that pay for one second request.
const PRICE: u32 = 20;
/// Longest burst of second requests.
const SAVED_MAX: u32 = 10;
/// Largest small read, in bytes. Small and large reads are timed separately.
const SMALL: u64 = 128 << 10;

/// Latencies of small and of large reads, and the budget for second requests.
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
    /// Records that a member answered a read of `bytes` bytes after `took`.
    pub fn on_answer(&self, bytes: u64, took: Duration) {
        let mut state = self.0.lock();
        state.saved = (state.saved + 1).min(PRICE * SAVED_MAX);
        let window = state.window(bytes);
        if window.len() == WINDOW {
            window.pop_front();
        }
        window.push_back(took);
    }

    /// Time to wait for the first member before a second is asked. `None` means without limit.
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

    /// Takes the price of a second request from the budget. Returns whether the budget sufficed.
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
