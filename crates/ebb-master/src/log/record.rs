//! One record of the log.
//!
//! ```text
//!  0     4      8       16     17      18       24
//!  | len | crc  | batch | kind | flags | zero   | payload (len bytes) | zeros up to a multiple of 8 |
//!  | u32 | u32  | u64   | u8   | u8    | 6 bytes|
//! ```
//! All numbers little-endian. The CRC-32C covers bytes 8.. up to the end of the payload. `batch` grows by one with
//! each synced write; flag bit 0 marks the last record of its batch. A header of zeros is free space.

use ebb_log::{Frame, Framing, whole_frame};
use ebb_types::{Result, err};
use ebb_wire::frame::crc32c;
use raft::eraftpb::{ConfState, Entry, HardState};

/// Bytes before the payload.
pub const HEADER_LEN: usize = 24;
/// Largest payload: a message of the protocol (4 MiB) with room for its wrapping.
pub const PAYLOAD_LEN_MAX: usize = 8 << 20;

/// Terms, indexes, batches and segments have no higher number: what counts on from one that was read does not overflow.
pub(super) const NUMBER_MAX: u64 = 1 << 62;

const FLAG_LAST: u8 = 1;
const KIND_ENTRY: u8 = 1;

/// What a record holds.
#[derive(Clone, PartialEq, Debug)]
pub enum Record {
    /// A raft entry. One with an index that is already in the log replaces it and all behind it.
    Entry(Entry),
    /// Term, vote and commit.
    HardState(HardState),
    /// The voters.
    ConfState(ConfState),
}

/// A record with its place in the order of writes.
#[derive(Clone, PartialEq, Debug)]
pub struct Placed {
    /// Number of the synced write that brought it.
    pub batch: u64,
    /// Whether it ends that write.
    pub last: bool,
    /// The record.
    pub record: Record,
}

impl Record {
    fn kind(&self) -> u8 {
        match self {
            Self::Entry(_) => KIND_ENTRY,
            Self::HardState(_) => 2,
            Self::ConfState(_) => 3,
        }
    }

    /// Appends the record as it lies on disk.
    pub fn encode(&self, batch: u64, last: bool, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_LEN]);
        match self {
            Self::Entry(entry) => encode_entry(entry, out),
            Self::HardState(state) => put_all(out, &[state.term, state.vote, state.commit]),
            Self::ConfState(state) => encode_conf_state(state, out),
        }
        let len = out.len() - start - HEADER_LEN;
        let header = &mut out[start..start + HEADER_LEN];
        header[0..4].copy_from_slice(&u32::try_from(len).expect("a payload below its cap").to_le_bytes());
        header[8..16].copy_from_slice(&batch.to_le_bytes());
        header[16] = self.kind();
        header[17] = if last { FLAG_LAST } else { 0 };
        let crc = crc32c(&out[start + 8..]);
        out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
        out.resize(start + padded(len), 0);
    }

    fn decode(kind: u8, payload: &[u8]) -> Result<Self> {
        let mut reader = Reader(payload);
        let record = match kind {
            KIND_ENTRY => Self::Entry(decode_entry(&mut reader)?),
            2 => {
                let state = HardState { term: reader.u64()?, vote: reader.u64()?, commit: reader.u64()? };
                check_numbers(&[state.term, state.commit])?;
                Self::HardState(state)
            }
            3 => Self::ConfState(decode_conf_state(&mut reader)?),
            other => return Err(err!(Corrupt, "record of unknown kind {other}: written by another release")),
        };
        if !reader.0.is_empty() {
            return Err(err!(Corrupt, "record of kind {kind} has {} bytes too many", reader.0.len()));
        }
        Ok(record)
    }
}

/// Bytes that a record with a payload of `len` takes.
#[must_use]
pub const fn padded(len: usize) -> usize {
    (HEADER_LEN + len).next_multiple_of(8)
}

/// What lies at a place of a segment.
#[derive(Debug)]
pub enum Found {
    /// Zeros where a header would be, or no room for one.
    Free,
    /// Something that is no record.
    Bad,
    /// A record, and the bytes that it takes.
    Record(Placed, usize),
    /// An entry up to `after`, which is not needed any more: its batch, whether it ends that, its index, its bytes.
    Passed(u64, bool, u64, usize),
}

/// Looks for a record at the start of `bytes`. A valid checksum over contents that do not decode is an error: such a
/// record was written so, by another release.
pub fn parse_record(bytes: &[u8]) -> Result<Found> {
    parse_record_behind(bytes, 0)
}

/// [`parse_record`] that checks entries up to `after`, and does not decode them.
pub fn parse_record_behind(bytes: &[u8], after: u64) -> Result<Found> {
    let Some(header) = bytes.first_chunk::<HEADER_LEN>() else { return Ok(Found::Free) };
    if header.iter().all(|byte| *byte == 0) {
        return Ok(Found::Free);
    }
    let Some(frame) = whole_frame(&RecordFraming, bytes) else { return Ok(Found::Bad) };
    let (batch, last, kind, payload) =
        (frame.batch, frame.ends_batch, header[16], &bytes[HEADER_LEN..frame.summed.end]);
    if let Some(index) = entry_index(kind, payload).filter(|index| *index <= after) {
        return Ok(Found::Passed(batch, last, index, frame.len));
    }
    let record = Record::decode(kind, payload)?;
    Ok(Found::Record(Placed { batch, last, record }, frame.len))
}

fn entry_index(kind: u8, payload: &[u8]) -> Option<u64> {
    let index = payload.first_chunk().filter(|_| kind == KIND_ENTRY)?;
    Some(u64::from_le_bytes(*index))
}

/// How the log frames its records.
#[derive(Clone, Copy, Debug)]
pub struct RecordFraming;

impl Framing for RecordFraming {
    const STEP: usize = 8;

    fn read_frame(&self, bytes: &[u8]) -> Option<Frame> {
        let header = bytes.first_chunk::<HEADER_LEN>()?;
        let len = u32::from_le_bytes(header[0..4].try_into().expect("four bytes")) as usize;
        if len > PAYLOAD_LEN_MAX || header[16] == 0 || bytes.len() < padded(len) {
            return None;
        }
        Some(Frame {
            summed: 8..HEADER_LEN + len,
            sum: u32::from_le_bytes(header[4..8].try_into().expect("four bytes")),
            len: padded(len),
            batch: u64::from_le_bytes(header[8..16].try_into().expect("eight bytes")),
            ends_batch: header[17] & FLAG_LAST != 0,
        })
    }
}

fn put_all(out: &mut Vec<u8>, numbers: &[u64]) {
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

// Entry: index u64, term u64, type u64, length of context u64, context, data.
fn encode_entry(entry: &Entry, out: &mut Vec<u8>) {
    let kind = u64::try_from(entry.entry_type).expect("entry types are not negative");
    put_all(out, &[entry.index, entry.term, kind, entry.context.len() as u64]);
    out.extend_from_slice(&entry.context);
    out.extend_from_slice(&entry.data);
}

fn decode_entry(reader: &mut Reader<'_>) -> Result<Entry> {
    let (index, term, kind, context_len) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
    let context = reader.take_bytes(usize::try_from(context_len).unwrap_or(usize::MAX))?.to_vec();
    let data = std::mem::take(&mut reader.0).to_vec();
    let entry_type = i32::try_from(kind).map_err(|_| err!(Corrupt, "entry {index} has the unknown type {kind}"))?;
    check_numbers(&[index, term])?;
    Ok(Entry { entry_type, term, index, data, context, sync_log: false })
}

/// Refuses a term or an index that no log gets to.
fn check_numbers(numbers: &[u64]) -> Result<()> {
    match numbers.iter().find(|number| **number > NUMBER_MAX) {
        Some(number) => Err(err!(Corrupt, "record with term or index {number}: no log gets there")),
        None => Ok(()),
    }
}

// ConfState: auto_leave u64, then four lists of ids, each after its length.
fn encode_conf_state(state: &ConfState, out: &mut Vec<u8>) {
    put_all(out, &[u64::from(state.auto_leave)]);
    for list in [&state.voters, &state.learners, &state.voters_outgoing, &state.learners_next] {
        put_all(out, &[list.len() as u64]);
        put_all(out, list);
    }
}

fn decode_conf_state(reader: &mut Reader<'_>) -> Result<ConfState> {
    let auto_leave = reader.u64()? != 0;
    let mut lists: [Vec<u64>; 4] = Default::default();
    for list in &mut lists {
        for _ in 0..reader.u64()? {
            list.push(reader.u64()?);
        }
    }
    let [voters, learners, voters_outgoing, learners_next] = lists;
    Ok(ConfState { voters, learners, voters_outgoing, learners_next, auto_leave })
}

/// Takes fields off the front of a payload.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take_bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let (front, rest) =
            self.0.split_at_checked(len).ok_or_else(|| err!(Corrupt, "record ends within a field of {len} bytes"))?;
        self.0 = rest;
        Ok(front)
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take_bytes(8)?.try_into().expect("eight bytes")))
    }
}

#[cfg(test)]
mod tests {
    use ebb_log::{End, find_end};
    use proptest::prelude::*;

    use super::*;

    fn entry(index: u64, data: Vec<u8>) -> Record {
        Record::Entry(Entry { index, term: 3, data, context: vec![9; 3], ..Default::default() })
    }

    #[test]
    fn golden_bytes() {
        let mut out = Vec::new();
        Record::HardState(HardState { term: 1, vote: 2, commit: 3 }).encode(7, true, &mut out);
        let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(&hex[..8], "18000000", "length of the payload");
        assert_eq!(&hex[16..48], "07000000000000000201000000000000", "batch, kind, flags, zeros");
        assert_eq!(&hex[48..], "010000000000000002000000000000000300000000000000");
    }

    /// A record whose padding is not there, at the end of a file that was cut, is none: nothing is read behind the end.
    #[test]
    fn a_record_is_whole_with_its_padding() {
        let mut out = Vec::new();
        entry(5, vec![1]).encode(7, true, &mut out);
        assert!(matches!(parse_record(&out), Ok(Found::Record(_, len)) if len == out.len()));
        assert!(matches!(parse_record(&out[..out.len() - 1]), Ok(Found::Bad)));
    }

    #[test]
    fn terms_and_indexes_that_no_log_gets_to_are_refused() {
        let state = |term, commit| Record::HardState(HardState { term, vote: 1, commit });
        for record in [entry(u64::MAX, Vec::new()), state(u64::MAX, 1), state(1, NUMBER_MAX + 1)] {
            let mut out = Vec::new();
            record.encode(7, true, &mut out);
            assert_eq!(parse_record(&out).unwrap_err().kind(), ebb_types::ErrorKind::Corrupt, "{record:?}");
        }
    }

    /// What a client wrote looks like the beginning of a long record at every place.
    #[test]
    fn batches_are_found_behind_what_only_looks_like_them() {
        let mut bytes = vec![0; 8];
        for at in 0..40_000_u64 {
            bytes.extend([900_000_u32.to_le_bytes(), (at as u32).to_le_bytes()].concat());
            bytes.extend([100_u64.to_le_bytes(), [1; 8]].concat());
        }
        let due = bytes.len();
        entry(5, vec![1; 30]).encode(100, true, &mut bytes);
        bytes.extend([0; 1_000_000]);
        let find =
            |range: std::ops::Range<u64>| find_end(RecordFraming, &bytes, 8, |frame| range.contains(&frame.batch));
        assert_eq!(find(90..200), End::Damaged { later_at: due, batch: 100 });
        assert_eq!(find(101..200), End::Torn);
    }

    proptest! {
        #[test]
        fn records_survive(index in 0..=NUMBER_MAX, data: Vec<u8>, batch: u64, last: bool, voters: Vec<u64>) {
            let state = ConfState { voters, auto_leave: last, ..Default::default() };
            for record in [entry(index, data), Record::ConfState(state)] {
                let mut out = Vec::new();
                record.encode(batch, last, &mut out);
                prop_assert_eq!(out.len() % 8, 0);
                match parse_record(&out).unwrap() {
                    Found::Record(placed, len) => {
                        prop_assert_eq!(placed, Placed { batch, last, record });
                        prop_assert_eq!(len, out.len());
                    }
                    other => prop_assert!(false, "{other:?}"),
                }
            }
        }

        #[test]
        fn any_bytes_are_judged(bytes: Vec<u8>) {
            let _ = parse_record(&bytes);
        }

        #[test]
        fn a_flipped_bit_is_noticed(data in proptest::collection::vec(any::<u8>(), 0..64), at: prop::sample::Index) {
            let mut out = Vec::new();
            entry(5, data.clone()).encode(1, true, &mut out);
            let len = HEADER_LEN + 32 + 3 + data.len();
            let bit = at.index(len * 8);
            out[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!matches!(parse_record(&out), Ok(Found::Record(..))), "bit {bit}");
        }
    }
}
