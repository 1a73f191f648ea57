//! This crate's decoder for `ebb-fuzz`: a function of bytes alone, with samples, and the repair of its checksum after a
//! change.

use ebb_types::{CHUNK_SIZE, Epoch, MetablockId, RaidSetId, Version};

use crate::sums::crc32c;
use crate::trailer::{FOOT, Slot, Trailer};
use crate::{Code, trailer};

/// The length of a check metablock (8 bytes), and its trailer.
#[must_use]
pub fn split(bytes: &[u8]) -> Option<(&[u8], u64)> {
    let (length, trailer) = bytes.split_first_chunk()?;
    Some((trailer, u64::from_le_bytes(*length)))
}

/// The end of a check metablock: found, read, and used for the sums of row 0.
#[must_use]
pub fn check(bytes: &[u8]) -> bool {
    let Some((bytes, length)) = split(bytes) else { return false };
    let place = trailer::find_trailer(bytes, length);
    let Ok(trailer) = Trailer::decode(bytes, length) else { return false };
    assert!(place.is_ok_and(|place| place.start == trailer.row_len()), "{trailer:?}");
    for chunk in 0..trailer.row_len() / CHUNK_SIZE + 1 {
        assert!(trailer.sum_of_row_zero(chunk).is_ok(), "{trailer:?}");
    }
    assert_eq!(trailer.encode().as_deref(), Ok(bytes), "one form of one content");
    true
}

/// Trailers with the lengths of their metablocks.
#[must_use]
pub fn trailers() -> Vec<Vec<u8>> {
    let slot = |id: u64, length: u64| {
        let sums = (0..length.div_ceil(CHUNK_SIZE)).map(|chunk| (id * 1000 + chunk) as u32).collect();
        Some(Slot { metablock: MetablockId::new(id), version: Version::new(Epoch::new(3), id), length, sums })
    };
    let sample = |rows: usize, row: usize, slots: Vec<Option<Slot>>| {
        let code = Code::new(slots.len(), rows).expect("a code of samples");
        let trailer = Trailer { raid_set: RaidSetId::new(77), copies: 1, code, row, slots };
        let bytes = trailer.encode().expect("a sample");
        [&trailer.metablock_len().to_le_bytes()[..], &bytes].concat()
    };
    let chunk = CHUNK_SIZE;
    vec![
        sample(2, 1, vec![slot(5, 3 * chunk + 1), None, slot(6, chunk), slot(9, 100)]),
        sample(1, 0, vec![slot(1, 0)]),
        sample(4, 3, (1..=32).map(|id| slot(id, id * 3 * chunk)).collect()),
        // More checksums than fit into one chunk.
        sample(2, 0, (1..=8).map(|id| slot(id, 64 << 20)).collect()),
    ]
}

/// Makes end, length and checksum of a trailer right.
pub fn repair(bytes: &mut Vec<u8>) {
    if bytes.len() < 8 + 4 + FOOT {
        return;
    }
    let length = (bytes.len() - 8).next_multiple_of(CHUNK_SIZE as usize);
    bytes.resize(8 + length, 0);
    let foot = bytes.len() - FOOT;
    bytes[foot..foot + 12].copy_from_slice(b"EBBCHECK\x01\0\0\0");
    bytes[foot + 12..].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    let sum = crc32c(&bytes[12..]);
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
}
