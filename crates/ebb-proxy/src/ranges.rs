//! Which operations on a file may run at a time. An operation runs when no earlier one that is still in the queue
//! overlaps it, or both only read.
//!
//! The order is first come, first served. So a stream of readers cannot keep a writer waiting.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// What an operation does to its range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// It reads the range.
    Reads,
    /// It changes the range.
    Changes,
    /// It will change the range later ([`Taken::act`]). It keeps its place before later changes, and excludes no
    /// readers.
    Intends,
}

impl Use {
    fn goes_with(self, other: Self) -> bool {
        matches!((self, other), (Self::Reads, Self::Reads | Self::Intends) | (Self::Intends, Self::Reads))
    }
}

/// The whole file, for operations that depend on its end.
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
    usage: Use,
    /// It is running.
    is_going: bool,
}

impl Entry {
    fn is_in_the_way_of(&self, other: &Self) -> bool {
        let overlap = self.range.start < other.range.end && other.range.start < self.range.end;
        overlap && !self.usage.goes_with(other.usage)
    }
}

impl Queue {
    fn enter(&mut self, range: Range<u64>, usage: Use) -> u64 {
        assert!(range.start <= range.end, "a range that ends before it starts excludes no operation: {range:?}");
        self.next += 1;
        self.entries.push(Entry { number: self.next, range, usage, is_going: false });
        self.next
    }

    fn may_go(&self, number: u64) -> bool {
        let place = self.entries.iter().position(|entry| entry.number == number);
        let place = place.expect("an operation asks for its turn only while it is in the queue");
        // Numbers rise along the queue, so the entries before this one are the earlier ones.
        let (before, own) = (&self.entries[..place], &self.entries[place]);
        // A later reader may have started before this operation turned into a change.
        let behind = self.entries[place + 1..].iter().filter(|entry| entry.is_going);
        before.iter().chain(behind).all(|entry| !entry.is_in_the_way_of(own))
    }

    /// Lets an operation run, if it may.
    fn try_go(&mut self, number: u64) -> bool {
        let may = self.may_go(number);
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.number == number) {
            // An operation that runs keeps its turn: a later intention may have turned into a change in front of it.
            entry.is_going |= may;
        }
        debug_assert!(self.is_exclusive(), "operations that exclude each other run together: {:?}", self.entries);
        may
    }

    /// Whether no two running operations exclude each other (I-41).
    fn is_exclusive(&self) -> bool {
        let running: Vec<&Entry> = self.entries.iter().filter(|entry| entry.is_going).collect();
        let is_alone = |(at, one): (usize, &&Entry)| !running[at + 1..].iter().any(|other| one.is_in_the_way_of(other));
        running.iter().enumerate().all(is_alone)
    }

    /// Turns an intended change into a change, in the place that it has in the queue.
    fn act(&mut self, number: u64) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.number == number) {
            assert!(entry.usage == Use::Intends, "a change that was not intended: {entry:?}");
            // It has to wait again: readers were let in beside the intention.
            (entry.usage, entry.is_going) = (Use::Changes, false);
        }
    }

    fn leave(&mut self, number: u64) {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.number != number);
        assert!(self.entries.len() + 1 == before, "operation {number} leaves the queue and was not in it");
    }
}

/// Ranges of one file in use.
#[derive(Debug, Default)]
pub struct Ranges {
    queue: Mutex<Queue>,
    left: Notify,
}

impl Ranges {
    /// Waits until the range may be used in this way.
    ///
    /// Cancel-safety: dropped while it waits, it leaves the queue.
    pub async fn wait_for_range(self: &Arc<Self>, range: Range<u64>, usage: Use) -> Taken {
        let taken = self.enter(range, usage);
        taken.turn().await;
        taken
    }

    /// A place in the queue for a change that comes later ([`Taken::act`]).
    pub fn intend(self: &Arc<Self>, range: Range<u64>) -> Taken {
        self.enter(range, Use::Intends)
    }

    fn enter(self: &Arc<Self>, range: Range<u64>, usage: Use) -> Taken {
        let number = self.queue.lock().enter(range, usage);
        Taken { ranges: Arc::clone(self), number }
    }
}

/// A range in use, until it is dropped.
#[derive(Debug)]
pub struct Taken {
    ranges: Arc<Ranges>,
    number: u64,
}

impl Taken {
    /// Waits until the intended change may be made: every earlier operation that overlaps it is over, and no reader is
    /// there.
    pub async fn act(&self) {
        self.ranges.queue.lock().act(self.number);
        self.turn().await;
    }

    async fn turn(&self) {
        loop {
            let left = self.ranges.left.notified();
            tokio::pin!(left);
            // Ordering: enabled before the queue is asked. An operation that leaves in between then wakes this one.
            left.as_mut().enable();
            if self.ranges.queue.lock().try_go(self.number) {
                return;
            }
            left.await;
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // Ordering: out of the queue first, as a woken operation looks at once.
        self.ranges.queue.lock().leave(self.number);
        self.ranges.left.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Queue {
        fn act_if_intended(&mut self, index: usize) {
            let Entry { number, usage, .. } = self.entries[index];
            if usage == Use::Intends {
                self.act(number);
            }
        }
    }

    #[test]
    fn readers_go_together_and_none_overtakes_a_range_in_its_way() {
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

    #[test]
    fn an_intent_keeps_its_place_and_stops_no_reader() {
        let mut queue = Queue::default();
        let first = queue.enter(0..10, Use::Intends);
        let second = queue.enter(5..15, Use::Intends);
        let writer = queue.enter(8..9, Use::Changes);
        let reader = queue.enter(0..3, Use::Reads);
        assert!(queue.try_go(reader) && !queue.try_go(writer));
        // The second is woken first, and waits for the first.
        queue.act(second);
        assert!(!queue.try_go(second));
        let late = queue.enter(12..13, Use::Reads);
        assert!(!queue.try_go(late), "who is about to change something is not overtaken by readers without end");
        queue.act(first);
        assert!(!queue.try_go(first), "somebody reads there");
        queue.leave(reader);
        assert!(queue.try_go(first) && !queue.try_go(second) && !queue.try_go(writer));
        queue.leave(first);
        assert!(queue.try_go(second) && !queue.try_go(writer));
        queue.leave(second);
        assert!(queue.try_go(writer) && queue.try_go(late));
    }

    proptest! {
        /// Whatever comes and goes: no two that conflict are ever allowed together, and one always is.
        #[test]
        fn conflicting_operations_never_go_together(
            steps in proptest::collection::vec((0u64..40, 1u64..20, 0u8..4, any::<prop::sample::Index>()), 1..60),
        ) {
            let mut queue = Queue::default();
            for (start, len, usage, index) in steps {
                match usage {
                    0 => drop(queue.enter(start..start + len, Use::Reads)),
                    1 => drop(queue.enter(start..start + len, Use::Changes)),
                    2 => drop(queue.enter(start..start + len, Use::Intends)),
                    _ if queue.entries.is_empty() => {}
                    _ => queue.act_if_intended(index.index(queue.entries.len())),
                }
                let numbers: Vec<u64> = queue.entries.iter().map(|entry| entry.number).collect();
                for number in numbers {
                    queue.try_go(number);
                }
                let going: Vec<&Entry> = queue.entries.iter().filter(|entry| entry.is_going).collect();
                for (at, one) in going.iter().enumerate() {
                    prop_assert!(going[at + 1..].iter().all(|other| !one.is_in_the_way_of(other)));
                }
                prop_assert!(!going.is_empty() || queue.entries.is_empty());
                if usage != 3 && !going.is_empty() && index.index(2) == 0 {
                    let number = going[index.index(going.len())].number;
                    queue.leave(number);
                }
            }
        }
    }
}
