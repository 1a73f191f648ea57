//! How fast a node writes, as it is seen to.

use std::collections::VecDeque;
use std::time::Duration;

/// Bytes of one look: enough for what a holder sends between two syncs, twice.
const LOOK_BYTES: u64 = 16 << 20;
/// Looks that count.
const LOOKS: usize = 8;

/// Bytes a second that a node takes while it has something to take. Pure: the time is told, since any moment.
///
/// The fastest of the last looks counts. One that had little to write at a time, or was kept waiting by its writers, says
/// only that the node is no slower.
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

    /// It ends, and so many bytes were written.
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

    /// What it has come to; 0 before it has written enough to tell.
    #[must_use]
    pub fn bytes_per_sec(&self) -> u64 {
        self.looks.iter().copied().max().unwrap_or(0)
    }
}
