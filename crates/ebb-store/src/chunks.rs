//! Sums of a replica's chunks.

use std::ops::Range;

use ebb_types::CHUNK_SIZE;

use crate::crc;

/// How many chunks `length` bytes have.
pub(crate) fn count(length: u64) -> usize {
    usize::try_from(length.div_ceil(CHUNK_SIZE)).expect("a replica's chunks can be counted")
}

/// How many bytes of chunk `index` a replica of `length` bytes has.
pub(crate) fn valid(index: usize, length: u64) -> u64 {
    length.saturating_sub(index as u64 * CHUNK_SIZE).min(CHUNK_SIZE)
}

/// A CRC-32C for each chunk and whether it was ever written; four bytes and a bit a chunk.
///
/// Invariant: the sum of a chunk that is a hole is that of as many zeros as the chunk has valid bytes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct ChunkTable {
    sums: Vec<u32>,
    data: Vec<u64>,
    data_count: usize,
    length: u64,
}

impl ChunkTable {
    /// Takes the table to another length. New chunks are holes. A chunk of data that is cut or extended keeps its old
    /// sum: whoever changes the length says the new one.
    pub(crate) fn resize(&mut self, length: u64) {
        let new_count = count(length);
        for index in new_count..self.sums.len() {
            self.set_hole(index);
        }
        let old_last = self.sums.len().checked_sub(1);
        self.length = length;
        self.sums.resize(new_count, crc::of_zeros(CHUNK_SIZE));
        self.data.resize(new_count.div_ceil(64), 0);
        for index in old_last.into_iter().chain(new_count.checked_sub(1)) {
            if index < new_count && !self.is_data(index) {
                self.set_hole(index);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.sums.len()
    }

    pub(crate) fn set_data(&mut self, index: usize, sum: u32) {
        if !self.is_data(index) {
            self.data_count += 1;
            self.data[index / 64] |= 1 << (index % 64);
        }
        self.sums[index] = sum;
    }

    pub(crate) fn set_hole(&mut self, index: usize) {
        if self.is_data(index) {
            self.data_count -= 1;
            self.data[index / 64] &= !(1 << (index % 64));
        }
        self.sums[index] = crc::of_zeros(valid(index, self.length));
    }

    /// Whether the chunk was written; a hole or beyond the end is not.
    pub(crate) fn is_data(&self, index: usize) -> bool {
        self.data.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    pub(crate) fn sum(&self, index: usize) -> u32 {
        self.sums[index]
    }

    pub(crate) fn sums(&self, range: Range<usize>) -> &[u32] {
        &self.sums[range]
    }

    /// The first chunk from `from` on that is a hole, or data.
    pub(crate) fn find(&self, from: usize, hole: bool) -> Option<usize> {
        (from..self.len()).find(|index| self.is_data(*index) != hole)
    }

    /// Bytes in chunks of data.
    pub(crate) fn data_bytes(&self) -> u64 {
        let whole = self.data_count as u64 * CHUNK_SIZE;
        match self.len().checked_sub(1) {
            Some(last) if self.is_data(last) => whole - (CHUNK_SIZE - valid(last, self.length)),
            _ => whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_sum_to_zeros_at_every_length() {
        let mut table = ChunkTable::default();
        table.resize(100);
        assert_eq!(table.sum(0), crc::of_zeros(100));
        table.resize(CHUNK_SIZE * 2 + 5);
        assert_eq!(table.sums(0..3), [crc::of_zeros(CHUNK_SIZE), crc::of_zeros(CHUNK_SIZE), crc::of_zeros(5)]);
        table.set_data(2, 7);
        assert_eq!((table.data_bytes(), table.find(0, false), table.find(2, true)), (5, Some(2), None));
        table.resize(CHUNK_SIZE + 1);
        assert_eq!((table.data_bytes(), table.sum(1), table.len()), (0, crc::of_zeros(1), 2));
        table.resize(CHUNK_SIZE * 70);
        assert!(!table.is_data(2), "a chunk cut off comes back as a hole");
        table.resize(0);
        assert_eq!(table.len(), 0);
    }
}
