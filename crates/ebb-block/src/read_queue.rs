//! How much waits to be read here: told to clients, which choose among copies by it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ebb_types::READ_COST_MIN;

/// The largest read that is counted in full. A longer one is refused by the store.
const READ_COST_MAX: u64 = 64 << 20;

/// Bytes of the reads that wait or are under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadQueue(Arc<AtomicU64>);

impl ReadQueue {
    /// Of all reads.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts a read for as long as the answer is held.
    pub(crate) fn enter(&self, len: u64) -> Queued {
        let cost = len.clamp(READ_COST_MIN, READ_COST_MAX);
        let ahead = self.0.fetch_add(cost, Ordering::Relaxed);
        Queued { queue: self.clone(), cost, ahead }
    }
}

/// A read that waits or is under way.
#[derive(Debug)]
pub(crate) struct Queued {
    queue: ReadQueue,
    cost: u64,
    ahead: u64,
}

impl Queued {
    /// Bytes of the reads that were there when this one came. Later ones do not count: the reader knows which of its own it
    /// sent before this one, and could not tell its later ones from those of others.
    pub(crate) fn ahead_bytes(&self) -> u64 {
        self.ahead
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let before = self.queue.0.fetch_sub(self.cost, Ordering::Relaxed);
        assert!(before >= self.cost, "a read ends that was not counted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_counts_until_its_end_and_not_for_those_before_it() {
        let queue = ReadQueue::default();
        let small = queue.enter(1);
        assert_eq!(queue.bytes(), READ_COST_MIN, "a small one costs the disk something, too");
        let large = queue.enter(1 << 20);
        let endless = queue.enter(u64::MAX);
        let ahead = [&small, &large, &endless].map(Queued::ahead_bytes);
        assert_eq!(ahead, [0, READ_COST_MIN, READ_COST_MIN + (1 << 20)]);
        drop((small, endless));
        assert_eq!((large.ahead_bytes(), queue.bytes()), (READ_COST_MIN, 1 << 20), "as it was when the read came");
        drop(large);
        assert_eq!(queue.bytes(), 0);
    }
}
