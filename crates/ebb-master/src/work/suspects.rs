//! Suspects: sets that may need repair, those with the fewest copies first.
//!
//! A set with one copy left is lost with the next node; a set with two can wait for it. So the sets of a dead node are
//! not repaired in the order of their ids.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::MetablockId;

/// Place in the order at which a round stopped and the next one continues.
pub type Mark = (u8, MetablockId);

/// Whether a try to repair a set could do something for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outlook {
    /// A step started, or may start soon.
    Promising,
    /// Nothing can be done at present.
    Stalled,
}

/// Sets that are not, or may not be, as wanted.
#[derive(Clone, Debug, Default)]
pub struct Suspects {
    /// Number of readable copies; 0 means none, or not known yet. Both come first.
    copies: BTreeMap<MetablockId, u8>,
    order: BTreeSet<Mark>,
    /// Sets for which the last try could do nothing.
    stalled: BTreeSet<MetablockId>,
}

impl Suspects {
    /// Queues a set, or records that its situation has changed. The known number of copies stays.
    pub fn insert(&mut self, metablock: MetablockId) {
        self.stalled.remove(&metablock);
        if let std::collections::btree_map::Entry::Vacant(entry) = self.copies.entry(metablock) {
            entry.insert(0);
            self.order.insert((0, metablock));
        }
    }

    /// Records the number of readable copies of a queued set.
    pub fn rank(&mut self, metablock: MetablockId, copies: usize) {
        let copies = u8::try_from(copies).unwrap_or(u8::MAX);
        if let Some(known) = self.copies.get_mut(&metablock)
            && *known != copies
        {
            self.order.remove(&(*known, metablock));
            *known = copies;
            self.order.insert((copies, metablock));
        }
    }

    /// Drops a set that is as wanted, or gone.
    pub fn remove(&mut self, metablock: &MetablockId) {
        self.stalled.remove(metablock);
        if let Some(copies) = self.copies.remove(metablock) {
            self.order.remove(&(copies, *metablock));
        }
    }

    /// Records the result of a try to repair a queued set.
    pub fn on_tried(&mut self, metablock: MetablockId, outlook: Outlook) {
        if outlook == Outlook::Promising {
            self.stalled.remove(&metablock);
        } else if self.contains(&metablock) {
            self.stalled.insert(metablock);
        }
    }

    /// Whether there are sets that a step may help.
    #[must_use]
    pub fn are_promising(&self) -> bool {
        self.copies.len() > self.stalled.len()
    }

    /// Whether a set is queued.
    #[must_use]
    pub fn contains(&self, metablock: &MetablockId) -> bool {
        self.copies.contains_key(metablock)
    }

    /// Queued sets, by id.
    pub fn iter(&self) -> impl Iterator<Item = &MetablockId> {
        self.copies.keys()
    }

    /// Queued sets in the order of repair, from a mark on and around.
    pub fn from(&self, mark: Mark) -> impl Iterator<Item = &Mark> {
        self.order.range(mark..).chain(self.order.range(..mark))
    }
}

impl Extend<MetablockId> for Suspects {
    fn extend<T: IntoIterator<Item = MetablockId>>(&mut self, metablocks: T) {
        metablocks.into_iter().for_each(|metablock| self.insert(metablock));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(suspects: &Suspects, mark: Mark) -> Vec<u64> {
        suspects.from(mark).map(|(_, metablock)| metablock.raw()).collect()
    }

    #[test]
    fn blocks_with_the_fewest_copies_left_go_first() {
        let mut suspects = Suspects::default();
        suspects.extend((1..=4).map(MetablockId::new));
        for (metablock, copies) in [(1, 2), (2, 1), (3, 2)] {
            suspects.rank(MetablockId::new(metablock), copies);
        }
        assert_eq!(order(&suspects, Mark::default()), [4, 2, 1, 3], "who was not looked at may be the worst");
        suspects.rank(MetablockId::new(3), 1);
        suspects.insert(MetablockId::new(3));
        assert_eq!(order(&suspects, (1, MetablockId::new(3))), [3, 1, 4, 2], "around, and known is known");
        suspects.remove(&MetablockId::new(2));
        suspects.rank(MetablockId::new(2), 1);
        assert_eq!(order(&suspects, Mark::default()), [4, 3, 1]);
        assert!(!suspects.contains(&MetablockId::new(2)) && suspects.iter().count() == 3);
    }

    #[test]
    fn a_block_beyond_help_gets_no_estimate_until_there_is_news() {
        let mut suspects = Suspects::default();
        assert!(!suspects.are_promising());
        let (one, other) = (MetablockId::new(1), MetablockId::new(2));
        suspects.extend([one, other]);
        suspects.on_tried(one, Outlook::Stalled);
        assert!(suspects.are_promising());
        suspects.on_tried(other, Outlook::Stalled);
        assert!(!suspects.are_promising());
        suspects.insert(one);
        assert!(suspects.are_promising(), "there is news");
        suspects.remove(&one);
        suspects.on_tried(one, Outlook::Stalled);
        assert!(!suspects.are_promising(), "it is not queued");
        suspects.on_tried(other, Outlook::Promising);
        assert!(suspects.are_promising());
    }
}
