//! CRC-32C arithmetic: sums of zeros and of joined runs, without looking at the bytes again.

use crc_fast::{CrcAlgorithm, checksum_combine};
use ebb_types::CHUNK_SIZE;
pub(crate) use ebb_wire::frame::crc32c;

static ZEROS: [u8; CHUNK_SIZE as usize] = [0; CHUNK_SIZE as usize];

/// Sum of `len` zero bytes, at most a chunk of them.
pub(crate) fn of_zeros(len: u64) -> u32 {
    crc32c(&ZEROS[..usize::try_from(len).expect("at most a chunk")])
}

/// Sum of two runs one after the other, from their sums and the length of the second.
///
/// An append extends a chunk's sum this way: damage to the old bytes stays visible, as they are not summed anew.
pub(crate) fn join(first: u32, second: u32, second_len: u64) -> u32 {
    match second_len {
        0 => first,
        len => {
            let sum = checksum_combine(CrcAlgorithm::Crc32Iscsi, u64::from(first), u64::from(second), len);
            u32::try_from(sum).expect("a 32-bit checksum")
        }
    }
}

/// Sum of a run followed by `zeros` zero bytes.
pub(crate) fn then_zeros(first: u32, zeros: u64) -> u32 {
    join(first, of_zeros(zeros), zeros)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn joined_sums_are_sums_of_the_joined(first in prop::collection::vec(any::<u8>(), 0..300),
                                              second in prop::collection::vec(any::<u8>(), 0..300),
                                              zeros in 0u64..5000) {
            let whole: Vec<u8> = first.iter().chain(&second).copied().collect();
            prop_assert_eq!(join(crc32c(&first), crc32c(&second), second.len() as u64), crc32c(&whole));
            let mut padded = first.clone();
            padded.resize(first.len() + zeros as usize, 0);
            prop_assert_eq!(then_zeros(crc32c(&first), zeros), crc32c(&padded));
        }
    }
}
