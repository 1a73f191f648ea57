//! Measured write rate of a node.

use std::collections::VecDeque;
use std::time::Duration;

/// Bytes of one measurement: twice the bytes that a holder sends between two syncs.
const LOOK_BYTES: u64 = 16 << 20;
/// Number of measurements that count.
const LOOKS: usize = 8;

/// Bytes a second that a node takes while it has writes to do. Pure: times are arguments, counted from any moment.
///
/// The fastest of the last measurements counts. A measurement with few bytes at a time, or with slow writers, gives
/// only a lower bound.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pace {
    /// Writes and syncs in progress.
    running: u32,
    since: Duration,
    busy: Duration,
    bytes: u64,
    looks: VecDeque<u64>,
}

impl Pace {
    /// A write or sync begins.
    pub fn begin_write(&mut self, now: Duration) {
        if self.running == 0 {
            self.since = now;
        }
        self.running += 1;
    }

    /// A write or sync ends, after `bytes` bytes.
    pub fn end(&mut self, now: Duration, bytes: u64) {
        self.running = self.running.saturating_sub(1);
        self.busy += now.saturating_sub(self.since);
        self.since = now;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes < LOOK_BYTES || self.busy.is_zero() {
            return;
        }
        let rate = u128::from(self.bytes) * 1_000_000_000 / self.busy.as_nanos();
        if self.looks.len() == LOOKS {
            self.looks.pop_front();
        }
        self.looks.push_back(u64::try_from(rate).unwrap_or(u64::MAX).max(1));
        (self.bytes, self.busy) = (0, Duration::ZERO);
    }

    /// The measured rate; 0 before enough bytes were written.
    #[must_use]
    pub fn bytes_per_sec(&self) -> u64 {
        self.looks.iter().copied().max().unwrap_or(0)
    }
}
