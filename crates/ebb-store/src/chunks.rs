//! Sums of a replica's chunks, and the place in the file of each chunk. A chunk has two possible places.
//!
//! ```text
//!  file:  | first places, where the replica's bytes have their offset |  ...  | second places, SECOND further |
//! ```
//! A chunk lies in its first place until it is overwritten as a whole. Then the new bytes go to the place that is free.
//! The old bytes stay until the journal records the chunk's new place. Most replicas have no second place in use.

use std::ops::Range;

use ebb_types::CHUNK_SIZE;

use crate::crc;
use crate::record::{REPLICA_LEN_MAX, chunks_of};

/// Offset in the file of the second places: beyond the longest replica.
pub(crate) const SECOND: u64 = REPLICA_LEN_MAX;

/// Length of a file with second places: no read of a place meets its end.
pub(crate) const LONG: u64 = SECOND + REPLICA_LEN_MAX;

/// Number of chunks in `length` bytes.
pub(crate) fn count(length: u64) -> usize {
    usize::try_from(length.div_ceil(CHUNK_SIZE)).expect("a replica's chunks can be counted")
}

/// Number of bytes of chunk `index` in a replica of `length` bytes.
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
    /// A bit for each chunk of data in its second place.
    second: Vec<u64>,
    data_count: usize,
    second_count: usize,
    length: u64,
}

impl ChunkTable {
    /// Changes the length. New chunks are holes. A chunk of data that is cut or extended keeps its old sum: the caller
    /// has to set the new one.
    pub(crate) fn resize(&mut self, length: u64) {
        let new_count = count(length);
        // Made holes first, so that the counts of data and second places go down.
        for index in new_count..self.sums.len() {
            self.set_hole(index);
        }
        let old_last = self.sums.len().checked_sub(1);
        self.length = length;
        self.sums.resize(new_count, crc::of_zeros(CHUNK_SIZE));
        self.data.resize(new_count.div_ceil(64), 0);
        self.second.resize(new_count.div_ceil(64), 0);
        for index in old_last.into_iter().chain(new_count.checked_sub(1)) {
            if index < new_count && !self.is_data(index) {
                self.set_hole(index);
            }
        }
        assert!(self.data_count <= new_count, "{} chunks of data among {new_count}", self.data_count);
        assert!(self.second_count <= self.data_count, "a hole has no second place");
    }

    pub(crate) fn len(&self) -> usize {
        self.sums.len()
    }

    pub(crate) fn set_data(&mut self, index: usize, sum: u32, second: bool) {
        assert!(index < self.sums.len(), "chunk {index} of {}", self.sums.len());
        if !self.is_data(index) {
            self.data_count += 1;
            self.data[index / 64] |= 1 << (index % 64);
        }
        self.set_second(index, second);
        self.sums[index] = sum;
    }

    fn set_second(&mut self, index: usize, second: bool) {
        match (self.is_second(index), second) {
            (false, true) => self.second_count += 1,
            (true, false) => self.second_count -= 1,
            _ => return,
        }
        self.second[index / 64] ^= 1 << (index % 64);
    }

    pub(crate) fn set_hole(&mut self, index: usize) {
        if self.is_data(index) {
            self.data_count -= 1;
            self.data[index / 64] &= !(1 << (index % 64));
            self.set_second(index, false);
        }
        // Invariant: the sum of a hole is that of zeros, so that an append to it needs no read of the file.
        self.sums[index] = crc::of_zeros(valid(index, self.length));
    }

    /// Whether the chunk was written. False for a hole, and beyond the end.
    pub(crate) fn is_data(&self, index: usize) -> bool {
        self.data.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Whether the chunk lies in its second place.
    pub(crate) fn is_second(&self, index: usize) -> bool {
        self.second.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Whether any chunk lies in its second place.
    pub(crate) fn has_second(&self) -> bool {
        self.second_count > 0
    }

    /// The places of a range's bytes in the file.
    pub(crate) fn places(&self, offset: u64, len: u64) -> Vec<Extent> {
        places(offset, len, |index| self.is_second(index))
    }

    pub(crate) fn sum(&self, index: usize) -> u32 {
        self.sums[index]
    }

    pub(crate) fn sums(&self, range: Range<usize>) -> &[u32] {
        &self.sums[range]
    }

    /// The first chunk from `from` on that is a hole (`hole`), or data (`!hole`).
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

/// A run of bytes that lie together in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    /// In the replica.
    pub(crate) offset: u64,
    /// In the file.
    pub(crate) at: u64,
    pub(crate) len: u64,
}

/// The places of a range's bytes in the file. `is_second` is true for a chunk in its second place.
pub(crate) fn places(offset: u64, len: u64, is_second: impl Fn(usize) -> bool) -> Vec<Extent> {
    assert!(offset + len <= SECOND, "bytes up to {} would lie among the second places", offset + len);
    let mut places: Vec<Extent> = Vec::new();
    for chunk in if len == 0 { 0..0 } else { chunks_of(offset, len) } {
        let start = offset.max(chunk as u64 * CHUNK_SIZE);
        let stop = (offset + len).min((chunk as u64 + 1) * CHUNK_SIZE);
        let at = if is_second(chunk) { start + SECOND } else { start };
        match places.last_mut() {
            Some(last) if last.at + last.len == at => last.len += stop - start,
            _ => places.push(Extent { offset: start, at, len: stop - start }),
        }
    }
    debug_assert_eq!(places.iter().map(|place| place.len).sum::<u64>(), len, "every byte has one place");
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_has_one_of_two_places() {
        let mut table = ChunkTable::default();
        table.resize(CHUNK_SIZE * 4 + 5);
        for index in 0..5 {
            table.set_data(index, 1, index == 1 || index == 2);
        }
        let place = |offset, at, len| Extent { offset, at, len };
        assert_eq!(
            table.places(100, CHUNK_SIZE * 4 - 95),
            [
                place(100, 100, CHUNK_SIZE - 100),
                place(CHUNK_SIZE, CHUNK_SIZE + SECOND, CHUNK_SIZE * 2),
                place(CHUNK_SIZE * 3, CHUNK_SIZE * 3, CHUNK_SIZE + 5)
            ]
        );
        assert_eq!(table.places(7, 0), []);
        table.set_hole(1);
        table.set_data(1, 9, false);
        assert!(table.has_second() && !table.is_second(1) && table.is_second(2));
        table.resize(CHUNK_SIZE);
        assert!(!table.has_second());
        table.resize(CHUNK_SIZE * 3);
        assert!(!table.is_second(2), "a chunk that was cut off comes back in its first place");
    }

    #[test]
    fn holes_sum_to_zeros_at_every_length() {
        let mut table = ChunkTable::default();
        table.resize(100);
        assert_eq!(table.sum(0), crc::of_zeros(100));
        table.resize(CHUNK_SIZE * 2 + 5);
        assert_eq!(table.sums(0..3), [crc::of_zeros(CHUNK_SIZE), crc::of_zeros(CHUNK_SIZE), crc::of_zeros(5)]);
        table.set_data(2, 7, false);
        assert_eq!((table.data_bytes(), table.find(0, false), table.find(2, true)), (5, Some(2), None));
        table.resize(CHUNK_SIZE + 1);
        assert_eq!((table.data_bytes(), table.sum(1), table.len()), (0, crc::of_zeros(1), 2));
        table.resize(CHUNK_SIZE * 70);
        assert!(!table.is_data(2), "a chunk cut off comes back as a hole");
        table.resize(0);
        assert_eq!(table.len(), 0);
    }
}
