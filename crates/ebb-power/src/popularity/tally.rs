//! Counts of reads in bounded memory: the blocks read most are always kept.
//!
//! Misra and Gries, "Finding repeated elements" (Science of Computer Programming 2, 1982): with room for `k` blocks, a
//! block's count is below its reads by no more than one in `k + 1` of all reads. So every block that is read more often
//! than that has a count.

use std::collections::BTreeMap;

use ebb_types::MetablockId;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tally {
    counts: BTreeMap<MetablockId, u32>,
    most: usize,
}

impl Tally {
    /// An empty tally with room for `most` blocks, at least one.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { counts: BTreeMap::new(), most: most.max(1) }
    }

    /// Counts one read of a block.
    pub fn count(&mut self, block: MetablockId) {
        if let Some(count) = self.counts.get_mut(&block) {
            *count = count.saturating_add(1);
        } else if self.counts.len() < self.most {
            self.counts.insert(block, 1);
        } else {
            // Each pass removes as many reads as there are blocks, so each read pays for one step of this loop.
            self.counts.retain(|_, count| {
                *count -= 1;
                *count > 0
            });
        }
    }

    /// Takes all counts. The tally begins anew.
    pub fn take_counts(&mut self) -> BTreeMap<MetablockId, u32> {
        std::mem::take(&mut self.counts)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_tally_is_taken_once() {
        let mut tally = Tally::new(4);
        let block = MetablockId::new(3);
        (0..5).for_each(|_| tally.count(block));
        assert_eq!(tally.take_counts(), BTreeMap::from([(block, 5)]));
        assert_eq!(tally.take_counts(), BTreeMap::new());
    }

    proptest! {
        #[test]
        fn blocks_read_often_are_there_and_no_count_is_too_high(reads in proptest::collection::vec(0_u64..12, 0..300), most in 1_usize..8) {
            let mut tally = Tally::new(most);
            let mut exact: BTreeMap<MetablockId, u32> = BTreeMap::new();
            for block in &reads {
                tally.count(MetablockId::new(*block));
                *exact.entry(MetablockId::new(*block)).or_default() += 1;
                prop_assert!(tally.counts.len() <= most);
            }
            let counted = tally.take_counts();
            let short_max = reads.len() / (most + 1);
            for (block, reads) in exact {
                let count = counted.get(&block).copied().unwrap_or_default();
                prop_assert!(count <= reads && (reads - count) as usize <= short_max, "{count} of {reads} reads of {block}");
            }
        }
    }
}
