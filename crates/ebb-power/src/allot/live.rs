//! Which datasets are live: read for a while, and lately.
//!
//! Clients report with each poll what they read of each dataset. A dataset is live once reports of it lie
//! `Liveness::join` apart, so that a file that is shown once moves no node. It stays live until no report has come for
//! `Liveness::leave`, so that a job that computes between its reads keeps its nodes. A client that dies reports
//! nothing, and so does one that is cut off.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_types::DatasetId;

/// See the module. Times are spans since any moment that stays the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Liveness {
    join: Duration,
    leave: Duration,
    read: BTreeMap<DatasetId, Read>,
}

/// Reads of one dataset without a pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Read {
    first: Duration,
    last: Duration,
}

impl Liveness {
    /// Nothing is read. A dataset is live after reads for `join`, until it is not read for `leave`.
    #[must_use]
    pub fn new(join: Duration, leave: Duration) -> Self {
        Self { join, leave, read: BTreeMap::new() }
    }

    /// Reads of a dataset were reported.
    pub fn on_read(&mut self, dataset: DatasetId, now: Duration) {
        let read = self.read.entry(dataset).or_insert(Read { first: now, last: now });
        if now.saturating_sub(read.last) >= self.leave {
            read.first = now;
        }
        read.last = now;
    }

    /// Datasets that are live, in their order. Forgets those that are not read any more.
    pub fn find_live(&mut self, now: Duration) -> Vec<DatasetId> {
        self.read.retain(|_, read| now.saturating_sub(read.last) < self.leave);
        let lasts = |read: &Read| read.last.saturating_sub(read.first) >= self.join;
        self.read.iter().filter(|(_, read)| lasts(read)).map(|(dataset, _)| *dataset).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: DatasetId = DatasetId::new(1);
    const B: DatasetId = DatasetId::new(2);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn one_look_at_a_file_is_no_reading_and_a_pause_is_no_end() {
        let mut live = Liveness::new(at(1_000), at(10_000));
        live.on_read(A, at(0));
        live.on_read(B, at(500));
        assert_eq!(live.find_live(at(900)), []);
        live.on_read(A, at(1_000));
        assert_eq!(live.find_live(at(1_000)), [A]);
        assert_eq!(live.find_live(at(10_999)), [A], "it may compute");
        assert_eq!(live.find_live(at(11_000)), []);
        live.on_read(A, at(11_500));
        assert_eq!(live.find_live(at(11_500)), [], "it begins anew");
        assert_eq!(live.read.len(), 1, "what is over is forgotten");
    }
}
