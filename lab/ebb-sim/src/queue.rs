//! A priority queue: a heap ordered by a real number, and then by the entry.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A queue that gives the entry with the lowest number first; of equals, the least.
#[derive(Debug)]
pub(crate) struct Lowest<T: Ord> {
    heap: BinaryHeap<Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    number: f64,
    item: T,
}

// The heap gives the greatest first.
impl<T: Ord> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.number.total_cmp(&self.number).then_with(|| other.item.cmp(&self.item))
    }
}
impl<T: Ord> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T: Ord> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl<T: Ord> Eq for Entry<T> {}

impl<T: Ord> Default for Lowest<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new() }
    }
}

impl<T: Ord> Lowest<T> {
    /// Adds an entry with `number`.
    pub(crate) fn push(&mut self, number: f64, item: T) {
        self.heap.push(Entry { number, item });
    }

    /// Removes the first entry and returns it.
    pub(crate) fn pop(&mut self) -> Option<(f64, T)> {
        self.heap.pop().map(|entry| (entry.number, entry.item))
    }

    /// The number of the first entry.
    pub(crate) fn first(&self) -> Option<f64> {
        self.heap.peek().map(|entry| entry.number)
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Removes the entries for which `keep` is false.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.heap.retain(|entry| keep(&entry.item));
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        self.heap.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_comes_first_and_of_equals_the_least() {
        let mut queue = Lowest::default();
        for (number, item) in [(2.0, 1), (1.0, 9), (1.0, 3), (-0.5, 7)] {
            queue.push(number, item);
        }
        assert_eq!((queue.len(), queue.first()), (4, Some(-0.5)));
        queue.retain(|item| *item != 7);
        assert_eq!(
            [queue.pop(), queue.pop(), queue.pop(), queue.pop()],
            [Some((1.0, 3)), Some((1.0, 9)), Some((2.0, 1)), None]
        );
    }
}
