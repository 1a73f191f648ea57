//! Checksums of any parts of a run of bytes, each in a few steps.
//!
//! A search for frames behind damage makes a checksum wherever a frame might begin. User data can look like the
//! beginning of a long frame at every place. A separate sum for each would take quadratic time.

use std::ops::Range;

use crc_fast::{CrcAlgorithm, Digest, checksum_combine};

use ebb_wire::frame::crc32c;

/// CRC-32C of several buffers one after the other.
pub fn sum_of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    u32::try_from(digest.finalize()).expect("a 32-bit checksum")
}

/// Bytes between two sums that are kept.
const STEP: usize = 256;

/// Sums of some bytes, from which the sum of any part follows.
///
/// The CRC-32C of `A B` is that of `A`, moved on by the length of `B`, xor that of `B`; moving on by so many zeros is a
/// linear map of 32 bits. So the sum of a part follows from those of two beginnings.
#[derive(Debug)]
pub struct PartSums<'a> {
    bytes: &'a [u8],
    /// Sums of the first 0, `STEP`, 2 `STEP` ... bytes.
    marks: Vec<u32>,
    /// The maps that move on by 1, 2, 4 ... bytes: the image of each bit.
    moves: Vec<[u32; 32]>,
}

impl<'a> PartSums<'a> {
    /// Looks at all bytes once.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        let by_one = |bit: usize| {
            let moved = checksum_combine(CrcAlgorithm::Crc32Iscsi, 1 << bit, 0, 1);
            u32::try_from(moved).expect("a 32-bit checksum")
        };
        let mut moves = vec![std::array::from_fn(by_one)];
        while bytes.len() >> moves.len() > 0 {
            let last = moves[moves.len() - 1];
            moves.push(last.map(|column| times(&last, column)));
        }
        let mut sums = Self { bytes, marks: vec![0], moves };
        for (at, part) in bytes.chunks_exact(STEP).enumerate() {
            let mark = sums.moved(sums.marks[at], part.len()) ^ crc32c(part);
            sums.marks.push(mark);
        }
        sums
    }

    /// CRC-32C of a part, which must lie within the bytes.
    #[must_use]
    pub fn of(&self, part: Range<usize>) -> u32 {
        self.moved(self.up_to(part.start), part.len()) ^ self.up_to(part.end)
    }

    fn up_to(&self, end: usize) -> u32 {
        let mark = end / STEP;
        let rest = &self.bytes[mark * STEP..end];
        self.moved(self.marks[mark], rest.len()) ^ crc32c(rest)
    }

    /// Moves a sum on by so many zeros.
    fn moved(&self, sum: u32, len: usize) -> u32 {
        let powers = self.moves.iter().enumerate().filter(|(power, _)| len >> power & 1 == 1);
        powers.fold(sum, |sum, (_, by)| times(by, sum))
    }
}

fn times(map: &[u32; 32], sum: u32) -> u32 {
    map.iter().enumerate().filter(|(bit, _)| sum >> bit & 1 == 1).fold(0, |out, (_, column)| out ^ column)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sums_of_parts_are_checksums(bytes in proptest::collection::vec(any::<u8>(), 0..3000), ends: [prop::sample::Index; 2]) {
            let mut ends = ends.map(|end| end.index(bytes.len() + 1));
            ends.sort_unstable();
            let sums = PartSums::new(&bytes);
            prop_assert_eq!(sums.of(ends[0]..ends[1]), crc32c(&bytes[ends[0]..ends[1]]));
            prop_assert_eq!(sums.of(0..bytes.len()), crc32c(&bytes));
            prop_assert_eq!(sum_of_parts([&bytes[..ends[0]], &bytes[ends[0]..]]), crc32c(&bytes));
        }
    }
}
