//! Check bytes for a file-size distribution, by the grouping of blocks into sets (DiskReduce, Sec. 2).
//!
//! The sets are made by the live system's grouping ([`ebb_layout::raid::grouping`]), of blocks that are all due at once. A
//! check block is as long as the longest member of its set. A block that finds no other one costs `m` times itself here,
//! as in the paper. The live system leaves it in its copies instead, and two more copies cost as much as two check blocks.

use std::fmt;
use std::time::Duration;

use ebb_layout::raid::grouping::{Grouped, Packer, Ready, Step, Within, group};
use ebb_types::InodeId;

use super::sizes::Sizes;

/// Blocks that may share a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Grouping {
    /// Blocks of one file.
    File,
    /// Blocks of the files of one directory, which are often deleted together.
    Directory,
    /// Any blocks.
    Across,
}

impl Grouping {
    /// Every grouping.
    pub const ALL: [Self; 3] = [Self::File, Self::Directory, Self::Across];
}

impl fmt::Display for Grouping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "per file",
            Self::Directory => "per directory",
            Self::Across => "across files",
        })
    }
}

/// The code and its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code {
    /// Data blocks in a full set.
    pub data: u32,
    /// Check blocks in each set.
    pub check: u32,
    /// Longest block.
    pub block_bytes: u64,
}

/// Check bytes as a share of the data.
#[must_use]
pub fn overhead(sizes: &Sizes, code: Code, grouping: Grouping) -> f64 {
    let all = sizes.directories.iter();
    // No set reaches over two directories unless it may reach over all: one at a time needs less memory.
    let check: u128 = match grouping {
        Grouping::File => all.map(|files| check_bytes(files.iter().copied(), code, Within::File)).sum(),
        Grouping::Directory => all.map(|files| check_bytes(files.iter().copied(), code, Within::Directory)).sum(),
        Grouping::Across => check_bytes(all.flatten().copied(), code, Within::Dataset),
    };
    check as f64 / sizes.bytes().max(1) as f64
}

/// Check bytes of files of one directory, or of all.
///
/// Full blocks are the longest, so whole sets of them come first in every group, and are only counted. Grouping sees the
/// rest.
fn check_bytes(files: impl IntoIterator<Item = u64>, code: Code, within: Within) -> u128 {
    let (block, slots) = (code.block_bytes.max(1), u64::from(code.data.max(1)));
    let (mut full, mut sets) = (0, 0);
    let mut rest = Vec::new();
    for (file, size) in (0..).zip(files) {
        full += size / block;
        if within == Within::File {
            sets += full / slots;
            rest.extend((0..full % slots).map(|_| Block { file, bytes: block }));
            full = 0;
        }
        rest.extend(Some(size % block).filter(|bytes| *bytes > 0).map(|bytes| Block { file, bytes }));
    }
    sets += full / slots;
    rest.extend((0..full % slots).map(|_| Block { file: 0, bytes: block }));

    let slots = code.data.max(1) as usize;
    let mut longest = Longest { blocks: &rest, slots, bytes: u128::from(sets) * u128::from(block) };
    let mut left = (0..rest.len()).collect();
    group(&rest, &mut left, &[Step { within, ready: Ready::Always }], slots, &mut longest);
    let alone: u128 = left.into_iter().map(|index| u128::from(rest[index].bytes)).sum();
    (longest.bytes + alone) * u128::from(code.check)
}

/// A block of a file.
struct Block {
    /// Number of the file.
    file: u32,
    bytes: u64,
}

impl Grouped for Block {
    fn file(&self) -> InodeId {
        InodeId::new(self.file.into())
    }

    fn directory(&self) -> InodeId {
        InodeId::default()
    }

    fn len_bytes(&self) -> u64 {
        self.bytes
    }

    fn waited(&self) -> Duration {
        Duration::MAX
    }
}

/// Sets of whatever comes first, on nodes enough. It adds up their longest blocks.
struct Longest<'b> {
    blocks: &'b [Block],
    slots: usize,
    bytes: u128,
}

impl Packer for Longest<'_> {
    /// Bytes of the longest block.
    type Draft = u64;

    fn reach(&self) -> usize {
        self.slots
    }

    fn draft(&mut self, window: &[usize], _: Step) -> Option<(Vec<usize>, u64)> {
        let longest = self.blocks[*window.first()?].bytes;
        Some(((0..window.len()).collect(), longest))
    }

    fn accept(&mut self, longest: u64, _: Step) {
        self.bytes += u128::from(longest);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CODE: Code = Code { data: 8, check: 2, block_bytes: 64_000_000 };

    fn one(directories: Vec<Vec<u64>>) -> Sizes {
        Sizes { name: "t".into(), directories }
    }

    #[test]
    fn one_small_file_costs_twice_itself() {
        assert_eq!(overhead(&one(vec![vec![1_000]]), CODE, Grouping::File), 2.0);
    }

    #[test]
    fn a_file_of_full_sets_costs_a_quarter_however_it_is_grouped() {
        let sizes = one(vec![vec![64_000_000 * 16]]);
        assert!(Grouping::ALL.iter().all(|grouping| overhead(&sizes, CODE, *grouping) == 0.25));
    }

    #[test]
    fn a_partial_set_of_full_blocks_costs_full_check_blocks() {
        // Nine blocks: two sets, 2 + 2 check blocks.
        assert!((overhead(&one(vec![vec![64_000_000 * 9]]), CODE, Grouping::File) - 4.0 / 9.0).abs() < 1e-12);
    }

    /// Every block in a list, set by set: the naive form of the arithmetic.
    fn naive(files: &[u64], code: Code) -> u128 {
        let mut blocks: Vec<u64> = Vec::new();
        for size in files {
            let mut left = *size;
            while left > 0 {
                let part = left.min(code.block_bytes);
                blocks.push(part);
                left -= part;
            }
        }
        blocks.sort_unstable_by(|one, other| other.cmp(one));
        blocks.chunks(code.data as usize).map(|set| u128::from(set[0]) * u128::from(code.check)).sum()
    }

    proptest! {
        #[test]
        fn the_arithmetic_is_the_list(files in proptest::collection::vec(0_u64..3_000, 0..40), data in 1_u32..10, check in 0_u32..4) {
            let code = Code { data, check, block_bytes: 100 };
            prop_assert_eq!(check_bytes(files.iter().copied(), code, Within::Dataset), naive(&files, code));
            let each: u128 = files.iter().map(|size| naive(&[*size], code)).sum();
            prop_assert_eq!(check_bytes(files.iter().copied(), code, Within::File), each);
        }

        #[test]
        fn wider_grouping_never_costs_more(directories in proptest::collection::vec(
            proptest::collection::vec(1_u64..3_000, 1..8), 1..8)) {
            let code = Code { data: 4, check: 2, block_bytes: 100 };
            let sizes = one(directories);
            let costs: Vec<f64> = Grouping::ALL.iter().map(|grouping| overhead(&sizes, code, *grouping)).collect();
            prop_assert!(costs.is_sorted_by(|one, next| one >= next), "{:?}", costs);
            prop_assert!(costs[2] >= 0.5 - 1e-12);
        }
    }
}
