//! Observations: how long requests took.

use std::time::Duration;

/// Latencies of requests that were answered, and how many were not.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Latencies {
    /// In seconds, in the order in which they were answered.
    pub seconds: Vec<f64>,
    /// Requests that failed.
    pub failed: u64,
}

impl Latencies {
    /// One more that was answered.
    pub fn add(&mut self, took: Duration) {
        self.seconds.push(took.as_secs_f64());
    }

    /// Those of another together with these.
    pub fn merge(&mut self, other: Self) {
        self.seconds.extend(other.seconds);
        self.failed += other.failed;
    }

    /// Mean, in seconds; none if nothing was answered.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let count = self.seconds.len();
        (count > 0).then(|| self.seconds.iter().sum::<f64>() / count as f64)
    }

    /// Standard deviation, in seconds.
    #[must_use]
    pub fn deviation(&self) -> Option<f64> {
        let mean = self.mean()?;
        let squares: f64 = self.seconds.iter().map(|one| (one - mean).powi(2)).sum();
        Some((squares / self.seconds.len() as f64).sqrt())
    }

    /// The longest, in seconds; none if nothing was answered.
    #[must_use]
    pub fn slowest(&self) -> Option<f64> {
        self.seconds.iter().copied().max_by(f64::total_cmp)
    }

    /// The time that nine of ten did not exceed, in seconds.
    #[must_use]
    pub fn p90(&self) -> Option<f64> {
        self.percentile(90)
    }

    /// The time that so many of a hundred did not exceed, in seconds.
    #[must_use]
    pub fn percentile(&self, percent: usize) -> Option<f64> {
        let mut sorted = self.seconds.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len() * percent / 100).copied()
    }

    /// Share of all requests that were answered within so many seconds.
    #[must_use]
    pub fn share_within(&self, seconds: f64) -> f64 {
        let all = self.seconds.len() as f64 + self.failed as f64;
        self.seconds.iter().filter(|one| **one <= seconds).count() as f64 / all.max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_latency_that_was_seen() {
        let mut seen = Latencies::default();
        assert_eq!((seen.mean(), seen.p90()), (None, None));
        (1..=10).for_each(|second| seen.add(Duration::from_secs(second)));
        assert_eq!((seen.mean(), seen.p90()), (Some(5.5), Some(10.0)));
        assert_eq!((seen.slowest(), Latencies::default().slowest()), (Some(10.0), None));
        assert!((seen.deviation().unwrap() - 8.25_f64.sqrt()).abs() < 1e-12);
    }
}
