//! The data that the workload writes: cells that name the write that they belong to.
//!
//! ```text
//!   cell, 1024 bytes: 64 words of 16 bytes
//!   word: write id u64 LE | index of the cell in its write u32 LE | index of the word in its cell u32 LE
//! ```
//!
//! A reader needs no second source to classify a cell: it is of one write, empty, or a mixture that no reader may ever
//! meet.

use std::fmt;

/// Bytes of a cell.
pub const CELL: u64 = 1024;

const WORD: usize = 16;

/// Number of a write or truncation in a run; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

impl fmt::Debug for WriteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "w{}", self.0)
    }
}

/// The content of a cell as a reader met it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// Zeroes, or nothing: beyond the end, a hole, or truncated.
    Empty,
    /// All of it is this cell of this write, counted from the write's first.
    Of(WriteId, u64),
    /// Anything else, in words.
    Torn(String),
}

/// The bytes of a cell of a write.
#[must_use]
pub fn fill(write: WriteId, cell: u64) -> [u8; CELL as usize] {
    let mut data = [0; CELL as usize];
    for (index, word) in data.chunks_exact_mut(WORD).enumerate() {
        word.copy_from_slice(&word_of(write.0, cell, index));
    }
    data
}

fn word_of(write: u64, cell: u64, index: usize) -> [u8; WORD] {
    let word = u128::from(write) | u128::from(cell as u32) << 64 | (index as u128) << 96;
    word.to_le_bytes()
}

/// Decodes the bytes of a cell; fewer than a cell's are followed by zeroes.
#[must_use]
pub fn inspect(data: &[u8]) -> Value {
    if data.iter().all(|byte| *byte == 0) {
        return Value::Empty;
    }
    if data.len() < CELL as usize {
        return Value::Torn(format!("it ends after {} of {CELL} bytes", data.len()));
    }
    let number = |word: &[u8]| u64::from_le_bytes(word[..8].try_into().expect("eight of sixteen bytes"));
    let index = u32::from_le_bytes(data[8..12].try_into().expect("four of many bytes"));
    let (write, index) = (WriteId(number(data)), u64::from(index));
    if data.chunks_exact(WORD).enumerate().all(|(at, word)| *word == word_of(write.0, index, at)) {
        return Value::Of(write, index);
    }
    let mut owners: Vec<u64> = data.chunks(WORD).map(number).collect();
    owners.dedup();
    Value::Torn(format!("it is a mixture of writes {owners:?}, or of other places"))
}

/// The values of `count` cells from `first` on, by cell. `data` has their bytes, fewer than all at the end of a file.
#[must_use]
pub fn inspect_run(first: u64, count: u64, data: &[u8]) -> Vec<(u64, Value)> {
    let at = |index: u64| (index * CELL).min(data.len() as u64) as usize;
    (0..count).map(|index| (first + index, inspect(&data[at(index)..at(index + 1)]))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_tell_their_write() {
        assert_eq!(inspect(&fill(WriteId(7), 3)), Value::Of(WriteId(7), 3));
        assert_eq!(inspect(&[0; CELL as usize]), Value::Empty);
        assert_eq!(inspect(&[]), Value::Empty);
    }

    #[test]
    fn mixtures_and_strays_are_torn() {
        let mut mixed = fill(WriteId(7), 3);
        mixed[512..].copy_from_slice(&fill(WriteId(8), 3)[512..]);
        assert!(matches!(inspect(&mixed), Value::Torn(_)));
        let mut shifted = fill(WriteId(7), 3);
        shifted.rotate_left(WORD);
        assert!(matches!(inspect(&shifted), Value::Torn(_)), "of another place");
        assert!(matches!(inspect(&fill(WriteId(7), 3)[..600]), Value::Torn(_)), "cut");
        let mut flipped = fill(WriteId(7), 3);
        flipped[100] ^= 1;
        assert!(matches!(inspect(&flipped), Value::Torn(_)));
    }
}
