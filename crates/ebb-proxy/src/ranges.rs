//! Which operations on a file may go on at a time: those before them in the queue do not overlap, or both only read.
//!
//! First come, first served, so that a stream of readers cannot keep a writer waiting.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// What an operation does to its range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Looks at it.
    Reads,
    /// Changes it.
    Changes,
}

/// A whole file: for what depends on its end.
pub const WHOLE: Range<u64> = 0..u64::MAX;

/// The queue, as a plain value.
#[derive(Debug, Default)]
struct Queue {
    next: u64,
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    range: Range<u64>,
    what: Use,
}

impl Entry {
    fn is_in_the_way_of(&self, other: &Self) -> bool {
        let overlap = self.range.start < other.range.end && other.range.start < self.range.end;
        overlap && (self.what == Use::Changes || other.what == Use::Changes)
    }
}

impl Queue {
    fn enter(&mut self, range: Range<u64>, what: Use) -> u64 {
        self.next += 1;
        self.entries.push(Entry { number: self.next, range, what });
        self.next
    }

    fn may_go(&self, number: u64) -> bool {
        let Some(place) = self.entries.iter().position(|entry| entry.number == number) else { return true };
        let (before, own) = (&self.entries[..place], &self.entries[place]);
        before.iter().all(|entry| !entry.is_in_the_way_of(own))
    }

    fn leave(&mut self, number: u64) {
        self.entries.retain(|entry| entry.number != number);
    }
}

/// Ranges of one file in use.
#[derive(Debug, Default)]
pub struct Ranges {
    queue: Mutex<Queue>,
    left: Notify,
}

impl Ranges {
    /// Waits until a range may be used so.
    ///
    /// Cancel-safety: dropped while it waits, it leaves the queue.
    pub async fn take(self: &Arc<Self>, range: Range<u64>, what: Use) -> Taken {
        let number = self.queue.lock().enter(range, what);
        let taken = Taken { ranges: Arc::clone(self), number };
        loop {
            let left = self.left.notified();
            tokio::pin!(left);
            left.as_mut().enable();
            if self.queue.lock().may_go(number) {
                return taken;
            }
            left.await;
        }
    }
}

/// A range in use, until it is dropped.
#[derive(Debug)]
pub struct Taken {
    ranges: Arc<Ranges>,
    number: u64,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.ranges.queue.lock().leave(self.number);
        self.ranges.left.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn readers_go_together_and_nobody_overtakes_who_is_in_the_way() {
        let mut queue = Queue::default();
        let first = queue.enter(0..10, Use::Reads);
        let second = queue.enter(5..15, Use::Reads);
        let writer = queue.enter(8..9, Use::Changes);
        let third = queue.enter(0..10, Use::Reads);
        let elsewhere = queue.enter(20..30, Use::Changes);
        let allowed = |queue: &Queue| [first, second, writer, third, elsewhere].map(|number| queue.may_go(number));
        assert_eq!(allowed(&queue), [true, true, false, false, true]);
        queue.leave(first);
        queue.leave(second);
        assert!(queue.may_go(writer) && !queue.may_go(third));
        queue.leave(writer);
        assert!(queue.may_go(third));
    }

    proptest! {
        /// Whatever comes and goes: no two that conflict are ever allowed together, and somebody always is.
        #[test]
        fn conflicting_operations_never_go_together(
            steps in proptest::collection::vec((0u64..40, 1u64..20, any::<bool>(), any::<prop::sample::Index>()), 1..60),
        ) {
            let mut queue = Queue::default();
            for (start, len, reads, leaver) in steps {
                queue.enter(start..start + len, if reads { Use::Reads } else { Use::Changes });
                let going: Vec<&Entry> = queue.entries.iter().filter(|entry| queue.may_go(entry.number)).collect();
                prop_assert!(!going.is_empty());
                for (at, one) in going.iter().enumerate() {
                    prop_assert!(going[at + 1..].iter().all(|other| !one.is_in_the_way_of(other)));
                }
                if reads {
                    let number = going[leaver.index(going.len())].number;
                    queue.leave(number);
                }
            }
        }
    }
}
