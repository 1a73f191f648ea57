use std::collections::BTreeMap;

use ebb_types::{ErrorKind, bail};

use super::*;

const LEN: u64 = 100;

/// The parts of a 4+2, some gone, some lying.
struct Memory {
    parts: BTreeMap<Part, Vec<u8>>,
    asleep: BTreeSet<Part>,
    dead: BTreeSet<Part>,
}

impl Memory {
    /// Slots of 100, 100, 40 and 100 bytes.
    fn new() -> (Self, Vec<Vec<u8>>) {
        let code = code();
        let slots: Vec<Vec<u8>> = [100, 100, 40, 100]
            .iter()
            .zip(1_u8..)
            .map(|(len, salt)| (0..*len).map(|at: u8| at.wrapping_mul(7) ^ salt).collect())
            .collect();
        let mut rows = vec![vec![0; 100]; 2];
        let sources: Vec<&[u8]> = slots.iter().map(Vec::as_slice).collect();
        code.encode(&sources, &mut rows.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).unwrap();
        let named = slots.iter().cloned().enumerate().map(|(slot, bytes)| (Part::Slot(slot), bytes));
        let rows = rows.into_iter().enumerate().map(|(row, bytes)| (Part::Row(row), bytes));
        (Self { parts: named.chain(rows).collect(), asleep: BTreeSet::new(), dead: BTreeSet::new() }, slots)
    }
}

impl Parts for Memory {
    fn may_have(&self, part: Part) -> bool {
        !self.asleep.contains(&part)
    }

    async fn read(&self, part: Part, start: u64, end: u64) -> Result<Bytes> {
        if self.dead.contains(&part) {
            bail!(Unreachable, "{part} is dead");
        }
        let bytes = &self.parts[&part];
        let (start, end) = (start as usize, (end as usize).min(bytes.len()));
        Ok(Bytes::copy_from_slice(&bytes[start.min(end)..end]))
    }
}

fn code() -> Code {
    Code::new(4, 2).unwrap()
}

/// Decodes slot 0 of these parts.
fn decode_first(parts: &Memory, expected: &[u8], (start, end): (u64, u64)) -> Result<Decoded> {
    let (lengths, gone) = (vec![100, 100, 40, 100], BTreeSet::from([Part::Slot(0)]));
    let mut decoding = Decoding { parts, code: code(), slot: 0, lengths, gone };
    let check = |bytes: &Bytes| {
        if bytes[..] != expected[start as usize..end as usize] {
            bail!(Corrupt, "other bytes than were written");
        }
        Ok(())
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(decoding.run(start, end, check))
}

#[test]
fn two_parts_more_may_be_asleep_or_die_while_they_are_read() {
    let (mut parts, slots) = Memory::new();
    let decoded = decode_first(&parts, &slots[0], (0, LEN)).unwrap();
    assert_eq!(decoded.source_bytes, 100 + 40 + 100 + 100, "three slots and one row");
    parts.dead.insert(Part::Row(0));
    decode_first(&parts, &slots[0], (0, LEN)).unwrap();
    parts.dead.clear();
    parts.asleep.insert(Part::Slot(3));
    assert!(decode_first(&parts, &slots[0], (0, LEN)).unwrap().liar.is_none());
    parts.dead.insert(Part::Slot(1));
    assert_eq!(decode_first(&parts, &slots[0], (0, LEN)).unwrap_err().kind(), ErrorKind::Unavailable);
}

#[test]
fn a_slot_that_ends_before_the_range_is_not_read() {
    let (mut parts, slots) = Memory::new();
    parts.dead.insert(Part::Slot(2));
    parts.asleep.insert(Part::Row(1));
    let decoded = decode_first(&parts, &slots[0], (40, LEN)).unwrap();
    assert_eq!((&decoded.bytes[..], decoded.source_bytes), (&slots[0][40..], 180));
    assert!(decode_first(&parts, &slots[0], (32, LEN)).is_err(), "it reaches into this one");
}

#[test]
fn the_part_that_lies_is_found_and_nothing_wrong_is_given_out() {
    for liar in [Part::Slot(1), Part::Slot(2), Part::Slot(3), Part::Row(0)] {
        let (mut parts, slots) = Memory::new();
        parts.parts.get_mut(&liar).unwrap()[33] ^= 8;
        let decoded = decode_first(&parts, &slots[0], (0, LEN)).unwrap();
        assert_eq!((&decoded.bytes[..], decoded.liar.map(|liar| liar.0)), (&slots[0][..], Some(liar)));
    }
    let (mut parts, slots) = Memory::new();
    // With the same lie in both, row 0 would give what was written: it is their sum.
    for (liar, lie) in [(Part::Slot(1), 8), (Part::Slot(3), 4)] {
        parts.parts.get_mut(&liar).unwrap()[33] ^= lie;
    }
    let error = decode_first(&parts, &slots[0], (0, LEN)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "two liars are one too many");
}
