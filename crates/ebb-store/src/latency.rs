//! Durations of small commits: a volume's measure of its own disk's speed.
//!
//! Plain values. The master gets the median over some seconds, and compares it with those of other nodes. Large batches
//! are left out: their duration shows the amount of data, not the speed of the disk.

use std::collections::VecDeque;
use std::time::Duration;

use ebb_runtime::Moment;

/// Age up to which commits count.
const WINDOW: Duration = Duration::from_secs(10);
/// Commits that are remembered.
const KEPT_MAX: usize = 64;
/// Batches of more bytes are not counted.
pub(crate) const SMALL_BYTES: u64 = 256 << 10;

/// Durations of recent small commits.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    took: VecDeque<(Moment, Duration)>,
}

impl Latency {
    /// Adds a finished small commit.
    pub(crate) fn add(&mut self, took: Duration, now: Moment) {
        if self.took.len() == KEPT_MAX {
            self.took.pop_front();
        }
        self.took.push_back((now, took));
    }

    /// The median over the last seconds, and the number of commits in it.
    pub(crate) fn median(&mut self, now: Moment) -> Option<(Duration, u32)> {
        while self.took.front().is_some_and(|(at, _)| now.since(*at) > WINDOW) {
            self.took.pop_front();
        }
        let mut sorted: Vec<Duration> = self.took.iter().map(|(_, took)| *took).collect();
        if sorted.is_empty() {
            return None;
        }
        let place = sorted.len() / 2;
        let (_, median, _) = sorted.select_nth_unstable(place);
        Some((*median, u32::try_from(self.took.len()).unwrap_or(u32::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> Moment {
        Moment::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn one_long_commit_says_little_and_old_ones_nothing() {
        let mut latency = Latency::default();
        assert_eq!(latency.median(at(0)), None);
        for number in 0..9 {
            latency.add(if number == 4 { 900 * MS } else { 2 * MS }, at(number * 100));
        }
        assert_eq!(latency.median(at(1000)), Some((2 * MS, 9)));
        latency.add(300 * MS, at(10_900));
        assert_eq!(latency.median(at(11_000)), Some((300 * MS, 1)));
        assert_eq!(latency.median(at(30_000)), None);
    }
}
