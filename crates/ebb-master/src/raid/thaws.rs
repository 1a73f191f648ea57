//! How much of each dataset's encoded data was overwritten lately. Pure.
//!
//! Each first write to a frozen metablock copies it. Where that happens all day, copies would be better. Status and a
//! warning say so from these counts. They are not logged: a new master begins at zero.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::DatasetId;

/// How long a thaw counts.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// What is thawed within so long is one count.
const STEP: Duration = Duration::from_secs(3600);

/// Bytes that were thawed within a day, by dataset.
#[derive(Debug, Default)]
pub(crate) struct Thaws {
    /// The beginning of each step with its bytes, oldest first.
    steps: BTreeMap<DatasetId, VecDeque<(Moment, u64)>>,
}

impl Thaws {
    /// Counts a thaw.
    pub(crate) fn add(&mut self, dataset: DatasetId, bytes: u64, now: Moment) {
        let steps = self.steps.entry(dataset).or_default();
        match steps.back_mut() {
            Some((begin, sum)) if now.since(*begin) < STEP => *sum += bytes,
            _ => steps.push_back((now, bytes)),
        }
        while steps.front().is_some_and(|(begin, _)| now.since(*begin) >= DAY) {
            steps.pop_front();
        }
    }

    /// Bytes of a dataset that were thawed within a day.
    pub(crate) fn within_a_day(&self, dataset: DatasetId, now: Moment) -> u64 {
        let steps = self.steps.get(&dataset).into_iter().flatten();
        steps.filter(|(begin, _)| now.since(*begin) < DAY).map(|(_, bytes)| bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thaw_counts_for_a_day() {
        let (mut thaws, one, other) = (Thaws::default(), DatasetId::new(1), DatasetId::new(2));
        let at = |hours: u64| Moment::default().after(Duration::from_secs(3600 * hours));
        for hour in [0, 0, 1, 20] {
            thaws.add(one, 5, at(hour));
        }
        let seen = |hours: u64| thaws.within_a_day(one, at(hours));
        assert_eq!([20, 23, 24, 25, 43, 44].map(seen), [20, 20, 10, 5, 5, 0]);
        assert_eq!(thaws.within_a_day(other, at(20)), 0);
        thaws.add(one, 1, at(100));
        assert_eq!(thaws.steps[&one].len(), 1, "what is old is forgotten");
    }
}
