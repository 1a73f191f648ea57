//! Check bytes for a file-size distribution, by the grouping of blocks into sets (DiskReduce, Sec. 2).
//!
//! A check block is as long as the longest member of its set, so a set of one small block costs `m` times that block.

use std::fmt;

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
    let check: u128 = match grouping {
        Grouping::File => sizes.directories.iter().flatten().map(|size| check_bytes([*size], code)).sum(),
        Grouping::Directory => sizes.directories.iter().map(|files| check_bytes(files.iter().copied(), code)).sum(),
        Grouping::Across => check_bytes(sizes.directories.iter().flatten().copied(), code),
    };
    check as f64 / sizes.bytes().max(1) as f64
}

/// Blocks of similar length share sets: longest first, every `k`-th begins a set and is its longest.
fn check_bytes(files: impl IntoIterator<Item = u64>, code: Code) -> u128 {
    let block = code.block_bytes.max(1);
    let (mut full, mut tails) = (0_u64, Vec::new());
    for size in files {
        full += size / block;
        if !size.is_multiple_of(block) {
            tails.push(size % block);
        }
    }
    tails.sort_unstable_by(|one, other| other.cmp(one));
    let data = u64::from(code.data);
    let sets_begun_by_full = full.div_ceil(data);
    let taken = sets_begun_by_full * data - full;
    let rest = tails.iter().skip(usize::try_from(taken).expect("less than a set")).step_by(code.data as usize);
    let longest = u128::from(sets_begun_by_full) * u128::from(block) + rest.map(|tail| u128::from(*tail)).sum::<u128>();
    longest * u128::from(code.check)
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
            prop_assert_eq!(check_bytes(files.iter().copied(), code), naive(&files, code));
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
