//! Golden bytes, what is refused, and any bytes.

use ebb_types::ErrorKind;
use proptest::prelude::*;

use super::*;
use crate::fuzz;

/// Slot 0 has a chunk and 100 bytes, slot 1 is empty, slot 2 has 5 bytes.
fn small() -> Trailer {
    let slot = |metablock, epoch, seq, length, sums: &[u32]| {
        Some(Slot {
            metablock: MetablockId::new(metablock),
            version: Version::new(Epoch::new(epoch), seq),
            length,
            sums: sums.to_vec(),
        })
    };
    let slots = vec![
        slot(0x0102_0304, 7, 3, CHUNK_SIZE + 100, &[0xA1A2_A3A4, 0xB1B2_B3B4]),
        None,
        slot(9, 1, 0, 5, &[0xC1C2_C3C4]),
    ];
    Trailer { raid_set: RaidSetId::new(0x0A0B), copies: 1, code: Code::new(3, 2).unwrap(), row: 1, slots }
}

#[test]
fn the_bytes_are_those_of_the_page() {
    let bytes = small().encode().unwrap();
    let mut golden = Vec::new();
    golden.extend(0x7F40_D2BA_u32.to_le_bytes());
    golden.extend([1, 0, 0, 0]);
    golden.extend([0x0B, 0x0A, 0, 0, 0, 0, 0, 0]);
    golden.extend([1, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0]);
    golden.extend([4, 3, 2, 1, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    golden.extend([0x64, 0x40, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
    golden.extend([0; 40]);
    golden.extend([9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    golden.extend([5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    golden.extend([0xA4, 0xA3, 0xA2, 0xA1, 0xB4, 0xB3, 0xB2, 0xB1, 0xC4, 0xC3, 0xC2, 0xC1]);
    golden.resize(0x4000 - 16, 0);
    golden.extend(b"EBBCHECK");
    golden.extend([1, 0, 0, 0, 0, 0x40, 0, 0]);
    assert_eq!(bytes[4..], golden[4..]);
    assert_eq!(bytes[..4], golden[..4], "the checksum is {:02x?}", &bytes[..4]);
    assert_eq!(small().metablock_len(), 3 * CHUNK_SIZE, "a row of two chunks");
}

#[test]
fn a_trailer_is_found_from_the_end_and_read_back() {
    for sample in fuzz::trailers() {
        let (bytes, length) = fuzz::split(&sample).unwrap();
        let place = find_trailer(&bytes[bytes.len() - FOOT..], length).unwrap();
        assert_eq!((place.end, place.end - place.start), (length, bytes.len() as u64));
        let trailer = Trailer::decode(bytes, length).unwrap();
        assert_eq!(place.start, trailer.row_len());
        assert_eq!(trailer.encode().unwrap(), bytes);
    }
}

#[test]
fn the_largest_one_fits_and_the_next_larger_metablock_is_refused() {
    let sums = usize::try_from(METABLOCK_MAX / CHUNK_SIZE).unwrap();
    let slot = |index: usize| Slot {
        metablock: MetablockId::new(index as u64 + 1),
        version: Version::new(Epoch::new(1), 1),
        length: METABLOCK_MAX,
        sums: vec![5; sums],
    };
    let slots: Vec<Option<Slot>> = (0..SLOTS_MAX).map(|index| Some(slot(index))).collect();
    let code = Code::new(SLOTS_MAX, ROWS_MAX).unwrap();
    let mut largest = Trailer { raid_set: RaidSetId::new(1), copies: 1, code, row: 3, slots };
    let bytes = largest.encode().unwrap();
    assert_eq!(bytes.len() as u64, LENGTH_MAX);
    assert!(Trailer::decode(&bytes, largest.metablock_len()).unwrap() == largest);
    let longer = largest.slots[4].as_mut().unwrap();
    longer.length += 1;
    longer.sums.push(0);
    let error = largest.encode().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let due = "a check metablock of rs1 would say that slot 4 has 536870913 bytes; at most 536870912 can be encoded";
    assert_eq!(error.to_string(), due);
}

/// Sets the number at `at`, makes the checksum right, and says how the bytes are refused.
fn refusal(at: usize, number: u32) -> (ErrorKind, String) {
    let mut bytes = small().encode().unwrap();
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
    let sum = crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    let error = Trailer::decode(&bytes, small().metablock_len()).unwrap_err();
    (error.kind(), error.to_string())
}

#[test]
fn what_a_newer_release_writes_is_refused_by_its_number() {
    let end = small().encode().unwrap().len();
    let (kind, text) = refusal(end - 8, 2);
    assert_eq!(kind, ErrorKind::Unsupported);
    assert_eq!(
        text,
        "the check metablock has a trailer of format 2, this program knows 1: use the release that wrote it"
    );
    let (kind, text) = refusal(4, 7);
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(text.starts_with("the check metablock is of code 7, this program knows 1"), "{text}");
}

#[test]
fn contradictions_are_refused_by_name_though_the_checksum_is_right() {
    let end = small().encode().unwrap().len();
    let cases: &[(usize, u32, &str)] = &[
        (end - 16, 0, "does not end with EBBCHECK"),
        (end - 4, 0x4001, "has no trailer of 16385"),
        (end - 4, 0, "has no trailer of 0"),
        (end - 4, 0x8000, "of 16384 bytes says that it has 32768"),
        (end - 4, 0x4000_0000, "has no trailer of 1073741824"),
        (16, 0, "keeps no copy"),
        (20, 33, "no code 33+2"),
        (20, 0, "no code 0+2"),
        (24, 5, "no code 3+5"),
        (28, 2, "row 2 of 3+2"),
        (32, 9, "m9 is in two slots"),
        (32, 0, "slot 0 is of no metablock"),
        (32 + 24, 5, "slot 0 has 2 checksums for 5 bytes"),
        (32 + 28, 1, "at most 536870912 can be encoded"),
        (32 + 32, 3000, "slot 0 has 3000 checksums for 16484 bytes"),
        (32 + 32, 5000, "other checksums than fit"),
        (32 + 36, u32::MAX, "other checksums than fit"),
        (80, 1, "slot 1 is of no metablock"),
        (32 + 120 + 12, 1, "something behind its checksums"),
    ];
    for (at, number, due) in cases {
        let (kind, text) = refusal(*at, *number);
        assert!(text.contains(due) && kind == ErrorKind::Corrupt, "{number} at {at}: {text}");
    }
    let bytes = small().encode().unwrap();
    let error = Trailer::decode(&bytes, small().metablock_len() + CHUNK_SIZE).unwrap_err();
    assert!(error.to_string().contains("it has 49152 bytes, and it has 65536"), "{error}");
    assert!(find_trailer(&bytes[..7], CHUNK_SIZE).unwrap_err().to_string().contains("too few"));
}

#[test]
fn a_trailer_that_could_not_be_read_back_is_not_written() {
    let refused = |change: fn(&mut Trailer)| {
        let mut trailer = small();
        change(&mut trailer);
        let error = trailer.encode().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.to_string()
    };
    assert!(refused(|trailer| trailer.slots.truncate(2)).contains("3+2 has 2 slots"));
    assert!(refused(|trailer| trailer.slots.fill(None)).contains("all slots are empty"));
    assert!(refused(|trailer| trailer.row = 2).contains("row 2 of 3+2"));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let bytes = small().encode().unwrap();
    let interesting = (0..200).chain(bytes.len() - 200..bytes.len());
    for bit in interesting.flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut changed = bytes.clone();
        changed[bit.0] ^= 1 << bit.1;
        assert!(Trailer::decode(&changed, small().metablock_len()).is_err(), "bit {bit:?}");
    }
}

#[test]
fn sums_of_row_zero_are_those_of_its_bytes() {
    let slots = [CHUNK_SIZE as usize * 2 + 7, CHUNK_SIZE as usize, 30].map(|length| crate::tests::bytes(3, length));
    let mut trailer = small();
    trailer.slots = slots
        .iter()
        .zip(1..)
        .map(|(bytes, id)| {
            let sums = bytes.chunks(CHUNK_SIZE as usize).map(crc32c).collect();
            let (metablock, length) = (MetablockId::new(id), bytes.len() as u64);
            Some(Slot { metablock, version: Version::ZERO, length, sums })
        })
        .collect();
    let mut rows = vec![vec![0; trailer.row_len() as usize]; 2];
    let (first, second) = rows.split_at_mut(1);
    let slots: Vec<&[u8]> = slots.iter().map(Vec::as_slice).collect();
    trailer.code.encode(&slots, &mut [&mut first[0], &mut second[0]]).unwrap();
    for (chunk, bytes) in (0..).zip(rows[0].chunks(CHUNK_SIZE as usize)) {
        assert_eq!(trailer.sum_of_row_zero(chunk).unwrap(), crc32c(bytes), "chunk {chunk}");
    }
}

#[test]
fn samples_are_decoded_and_their_repair_changes_nothing() {
    for sample in fuzz::trailers() {
        assert!(fuzz::check(&sample));
        let mut repaired = sample.clone();
        fuzz::repair(&mut repaired);
        assert!(repaired == sample);
    }
}

proptest! {
    /// As the engine of `ebb-fuzz` does it: numbers of a sample are changed, and its checksum is made right.
    #[test]
    fn changed_trailers_decode_or_are_refused(
        changes in prop::collection::vec((0_usize..240, prop_oneof![0_u32..40, any::<u32>()]), 1..4),
        cut in prop_oneof![3 => Just(0_usize), 1 => 0_usize..20_000],
    ) {
        let mut bytes = fuzz::trailers().swap_remove(0);
        for (at, number) in changes {
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        fuzz::repair(&mut bytes);
        let _ = fuzz::check(&bytes);
    }

    #[test]
    fn any_bytes_decode_or_are_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..200), length in 0_u64..1 << 31, pad: bool) {
        if pad {
            bytes.resize(CHUNK_SIZE as usize - FOOT, 0);
            bytes.extend(b"EBBCHECK\x01\0\0\0\0\x40\0\0");
            let sum = crc32c(&bytes[4..]);
            bytes[..4].copy_from_slice(&sum.to_le_bytes());
            bytes[4..8].copy_from_slice(&[1, 0, 0, 0]);
        }
        let _ = find_trailer(&bytes, length);
        let _ = Trailer::decode(&bytes, length.next_multiple_of(CHUNK_SIZE));
    }
}
