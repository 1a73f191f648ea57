//! Counts of reads in bounded memory: the blocks read most are always kept.
//!
//! A read counts as its part of the block, in [`PARTS`]: whoever reads a block once, in however many pieces, has read it once.
//!
//! Misra and Gries, "Finding repeated elements" (Science of Computer Programming 2, 1982): with room for `k` blocks, a
//! block's count is below its reads by no more than one in `k + 1` of all reads. So every block that is read more often
//! than that has a count.

use std::collections::BTreeMap;

use ebb_types::MetablockId;

/// Parts of a whole read. A smaller read counts as one: it costs a disk a seek.
pub const PARTS: u32 = 64;

/// What a read of `len` bytes of a block of `block_bytes` counts as, in [`PARTS`].
#[must_use]
pub fn parts(len: u64, block_bytes: u64) -> u32 {
    let parts = u128::from(len) * u128::from(PARTS);
    let parts = parts.div_ceil(u128::from(block_bytes.max(1)));
    u32::try_from(parts).unwrap_or(PARTS).clamp(1, PARTS)
}

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

    /// Counts a read of so many [`PARTS`] of a block.
    pub fn count(&mut self, block: MetablockId, parts: u32) {
        if let Some(count) = self.counts.get_mut(&block) {
            *count = count.saturating_add(parts);
            return;
        }
        let mut left = parts;
        // Each pass removes as many parts as there are blocks, so each part pays for one step of this loop.
        while left > 0 {
            if self.counts.len() < self.most {
                self.counts.insert(block, left);
                return;
            }
            let paid = self.counts.values().copied().min().unwrap_or(left).min(left);
            self.counts.retain(|_, count| {
                *count -= paid;
                *count > 0
            });
            left -= paid;
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
        (0..5).for_each(|_| tally.count(block, 3));
        assert_eq!(tally.take_counts(), BTreeMap::from([(block, 15)]));
        assert_eq!(tally.take_counts(), BTreeMap::new());
    }

    #[test]
    fn a_block_that_is_read_in_pieces_is_read_once() {
        let (mib, metablock) = (1 << 20, 64 << 20);
        assert_eq!((0..64).map(|_| parts(mib, metablock)).sum::<u32>(), PARTS);
        assert_eq!((0..4).map(|_| parts(mib, 4 * mib)).sum::<u32>(), PARTS);
        assert_eq!(
            [parts(4096, metablock), parts(mib, 4096), parts(5, 0), parts(u64::MAX, 1)],
            [1, PARTS, PARTS, PARTS]
        );
    }

    proptest! {
        #[test]
        fn blocks_read_often_are_there_and_no_count_is_too_high(reads in proptest::collection::vec((0_u64..12, 1..=PARTS), 0..300), most in 1_usize..8) {
            let mut tally = Tally::new(most);
            let mut exact: BTreeMap<MetablockId, u32> = BTreeMap::new();
            for (block, parts) in &reads {
                tally.count(MetablockId::new(*block), *parts);
                *exact.entry(MetablockId::new(*block)).or_default() += parts;
                prop_assert!(tally.counts.len() <= most);
            }
            let counted = tally.take_counts();
            let all: u32 = reads.iter().map(|(_, parts)| parts).sum();
            let short_max = all as usize / (most + 1);
            for (block, reads) in exact {
                let count = counted.get(&block).copied().unwrap_or_default();
                prop_assert!(count <= reads && (reads - count) as usize <= short_max, "{count} of {reads} reads of {block}");
            }
        }
    }
}
