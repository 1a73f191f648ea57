//! Checksums of row 0 from the checksums of the slots.
//!
//! A CRC is an affine function of bytes: of strings of one length, the sum of an XOR is the XOR of the sums, but for a
//! constant. That constant is the sum of zeros, and it cancels out between two sums. Row 0 is the XOR of the slots. So what
//! it must be can be told from sums that the members of the slots have, and no byte is read. For the other rows this does
//! not work: multiplication in GF(2^8) does not commute with a CRC.

use std::sync::LazyLock;

use crc_fast::{CrcAlgorithm, checksum, checksum_combine};
use ebb_types::{CHUNK_SIZE, Result, bail};

static ZEROS: [u8; CHUNK_SIZE as usize] = [0; CHUNK_SIZE as usize];
static SUM_OF_ZEROS: LazyLock<u32> = LazyLock::new(|| crc32c(&ZEROS));

/// The checksum of a slot's chunk, as its replica has it.
///
/// The sum of a last chunk that is short covers its own bytes alone, as `ebb-store` keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkSum {
    /// CRC-32C of the bytes.
    pub sum: u32,
    /// Number of bytes, at most a chunk.
    pub length: u64,
}

/// The checksum that a chunk of row 0 must have, from the sums of the slots' chunks at the same place.
///
/// A chunk of a row is always whole. Slots that are empty or end before it may be left out, or given with length 0 and sum
/// 0. Kind `Invalid` if a length is more than a chunk.
pub fn sum_of_row_zero(chunks: &[ChunkSum]) -> Result<u32> {
    // Each chunk adds the constant once, and the row's own sum has it once: it is left over when their number is even.
    let mut row = if chunks.len().is_multiple_of(2) { *SUM_OF_ZEROS } else { 0 };
    for chunk in chunks {
        row ^= chunk.lengthened()?;
    }
    Ok(row)
}

impl ChunkSum {
    /// The sum of the bytes, followed by zeros up to a whole chunk.
    fn lengthened(self) -> Result<u32> {
        let Some(zeros) = CHUNK_SIZE.checked_sub(self.length) else {
            bail!(Invalid, "the checksum of a chunk covers {CHUNK_SIZE} bytes at most, and not {}", self.length);
        };
        if zeros == 0 {
            return Ok(self.sum);
        }
        let of_zeros = crc32c(&ZEROS[..usize::try_from(zeros).expect("less than a chunk")]);
        Ok(crc(checksum_combine(CrcAlgorithm::Crc32Iscsi, u64::from(self.sum), u64::from(of_zeros), zeros)))
    }
}

/// CRC-32C, the checksum of every chunk and format.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc(checksum(CrcAlgorithm::Crc32Iscsi, bytes))
}

fn crc(sum: u64) -> u32 {
    u32::try_from(sum).expect("a 32-bit checksum")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Code;

    fn sum_of(bytes: &[u8]) -> ChunkSum {
        ChunkSum { sum: crc32c(bytes), length: bytes.len() as u64 }
    }

    fn row_of(chunks: &[Vec<u8>]) -> Vec<u8> {
        let mut row = vec![0; CHUNK_SIZE as usize];
        let slots: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        Code::new(slots.len(), 1).unwrap().encode(&slots, &mut [&mut row]).unwrap();
        row
    }

    fn chunk() -> impl Strategy<Value = Vec<u8>> {
        let length = prop_oneof![Just(CHUNK_SIZE), 0..=CHUNK_SIZE, 0..100_u64];
        (any::<u64>(), length).prop_map(|(seed, length)| crate::tests::bytes(seed, length as usize))
    }

    proptest! {
        #[test]
        fn the_sum_of_row_zero_is_that_of_its_bytes(chunks in prop::collection::vec(chunk(), 1..12)) {
            let sums: Vec<ChunkSum> = chunks.iter().map(|chunk| sum_of(chunk)).collect();
            let row = crc32c(&row_of(&chunks));
            prop_assert_eq!(sum_of_row_zero(&sums).unwrap(), row);
            let reaching: Vec<ChunkSum> = sums.into_iter().filter(|chunk| chunk.length > 0).collect();
            prop_assert_eq!(sum_of_row_zero(&reaching).unwrap(), row, "what is empty may be left out");
        }
    }

    #[test]
    fn a_wrong_sum_is_seen_and_a_wrong_length_too() {
        let chunks: Vec<Vec<u8>> = (1..=3).map(|seed| crate::tests::bytes(seed, 1000)).collect();
        let mut sums: Vec<ChunkSum> = chunks.iter().map(|chunk| sum_of(chunk)).collect();
        let row = sum_of_row_zero(&sums).unwrap();
        sums[1].length += 1;
        assert_ne!(sum_of_row_zero(&sums).unwrap(), row);
        sums[1] = ChunkSum { sum: sums[1].sum ^ 1, length: 1000 };
        assert_ne!(sum_of_row_zero(&sums).unwrap(), row);
        sums[1].length = CHUNK_SIZE + 1;
        assert!(sum_of_row_zero(&sums).unwrap_err().to_string().contains("and not 16385"));
        assert_eq!(sum_of_row_zero(&[]).unwrap(), crc32c(&ZEROS));
    }
}
