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
        self.0.fetch_add(cost, Ordering::Relaxed);
        Queued { queue: self.clone(), cost }
    }
}

/// A read that waits or is under way.
#[derive(Debug)]
pub(crate) struct Queued {
    queue: ReadQueue,
    cost: u64,
}

impl Queued {
    /// Bytes of the others.
    pub(crate) fn other_bytes(&self) -> u64 {
        self.queue.bytes().saturating_sub(self.cost)
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
    fn a_read_counts_until_its_end_and_not_for_itself() {
        let queue = ReadQueue::default();
        let small = queue.enter(1);
        assert_eq!(
            (small.other_bytes(), queue.bytes()),
            (0, READ_COST_MIN),
            "a small one costs the disk something, too"
        );
        let large = queue.enter(1 << 20);
        assert_eq!((small.other_bytes(), large.other_bytes()), (1 << 20, READ_COST_MIN));
        let endless = queue.enter(u64::MAX);
        assert_eq!(endless.other_bytes(), READ_COST_MIN + (1 << 20));
        drop((small, endless));
        assert_eq!((large.other_bytes(), queue.bytes()), (0, 1 << 20));
        drop(large);
        assert_eq!(queue.bytes(), 0);
    }
}
