//! Sets to look at: those with the fewest copies left go first.
//!
//! What has one copy left is lost with the next node; what has two can wait for it. So a node's death is not worked off in the
//! order of ids.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::MetablockId;

/// Where in the order a look ends, and the next one goes on.
pub type Mark = (u8, MetablockId);

/// Sets that are not, or may not be, as they should be.
#[derive(Clone, Debug, Default)]
pub struct Suspects {
    /// Copies that can be read; 0: none, or nobody has looked yet, which is found out first.
    copies: BTreeMap<MetablockId, u8>,
    order: BTreeSet<Mark>,
    /// Those for which nothing could be done when they were looked at last.
    stalled: BTreeSet<MetablockId>,
}

impl Suspects {
    /// Queues a set, or tells that there is news of it. What is known of its copies stays known.
    pub fn insert(&mut self, metablock: MetablockId) {
        self.stalled.remove(&metablock);
        if let std::collections::btree_map::Entry::Vacant(entry) = self.copies.entry(metablock) {
            entry.insert(0);
            self.order.insert((0, metablock));
        }
    }

    /// A queued set has so many copies that can be read.
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

    /// It is as it should be, or gone.
    pub fn remove(&mut self, metablock: &MetablockId) {
        self.stalled.remove(metablock);
        if let Some(copies) = self.copies.remove(metablock) {
            self.order.remove(&(copies, *metablock));
        }
    }

    /// A queued set was looked at: whether something could be done for it.
    pub fn on_looked(&mut self, metablock: MetablockId, could: bool) {
        if could {
            self.stalled.remove(&metablock);
        } else if self.contains(&metablock) {
            self.stalled.insert(metablock);
        }
    }

    /// Whether there are some for which something may be done.
    #[must_use]
    pub fn are_promising(&self) -> bool {
        self.copies.len() > self.stalled.len()
    }

    /// Whether a set is queued.
    #[must_use]
    pub fn contains(&self, metablock: &MetablockId) -> bool {
        self.copies.contains_key(metablock)
    }

    /// By id.
    pub fn iter(&self) -> impl Iterator<Item = &MetablockId> {
        self.copies.keys()
    }

    /// In the order in which they are to be looked at, from a mark on and around.
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
    fn what_has_the_fewest_copies_left_goes_first() {
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
    fn what_nothing_can_be_done_for_promises_nothing_until_there_is_news() {
        let mut suspects = Suspects::default();
        assert!(!suspects.are_promising());
        let (one, other) = (MetablockId::new(1), MetablockId::new(2));
        suspects.extend([one, other]);
        suspects.on_looked(one, false);
        assert!(suspects.are_promising());
        suspects.on_looked(other, false);
        assert!(!suspects.are_promising());
        suspects.insert(one);
        assert!(suspects.are_promising(), "there is news");
        suspects.remove(&one);
        suspects.on_looked(one, false);
        assert!(!suspects.are_promising(), "it is not queued");
        suspects.on_looked(other, true);
        assert!(suspects.are_promising());
    }
}
