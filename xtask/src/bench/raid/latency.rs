//! How long single operations take.

use std::io::Result;
use std::time::{Duration, Instant};

use crate::interrupt;

/// Times of an operation that is repeated for so many seconds, in microseconds. It says `false` when there is no more to do.
pub fn repeat(seconds: f64, mut operation: impl FnMut() -> Result<bool>) -> Result<Vec<f64>> {
    let (begun, span) = (Instant::now(), Duration::from_secs_f64(seconds));
    let mut times = Vec::new();
    while begun.elapsed() < span {
        interrupt::check()?;
        let since = Instant::now();
        if !operation()? {
            break;
        }
        times.push(since.elapsed().as_secs_f64() * 1e6);
    }
    Ok(times)
}

/// Seconds that an operation takes.
pub fn seconds(operation: impl FnOnce() -> Result<()>) -> Result<f64> {
    let begun = Instant::now();
    operation()?;
    Ok(begun.elapsed().as_secs_f64())
}

/// The value below which this share of the values is: 0.5 is the median. Of no values it is 0.
pub fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(
            (percentile(&values, 0.5), percentile(&values, 0.99), percentile(&values, 1.0)),
            (50.0, 99.0, 100.0)
        );
        assert_eq!((percentile(&[7.0], 0.0), percentile(&[], 0.5)), (7.0, 0.0));
    }
}
