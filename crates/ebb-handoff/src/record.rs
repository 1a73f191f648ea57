//! Byte form of a log's records. See `docs/formats/handoff-log.md`.

use bytes::{BufMut, Bytes, BytesMut};
use ebb_types::{Result, err};
use ebb_wire::frame::crc32c;
use ebb_wire::{Message, PartSums, pb};
use pb::handoff_record::Record;

use crate::book::Logged;
use crate::found::Doubt;

/// Begins a segment.
const SEGMENT_MAGIC: [u8; 4] = *b"EBOF";
/// Byte form of segments and records.
const FORMAT: u8 = 2;
/// Bytes of a segment's head.
pub(crate) const HEAD_BYTES: usize = 20;
/// Begins a record.
const RECORD_MAGIC: [u8; 4] = *b"EBOR";
/// Magic, length of the message, length of the payload, CRC-32C.
pub(crate) const FRAME_BYTES: usize = 16;

/// What was missing from segments before this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Past {
    /// Nothing.
    Whole,
    /// Something.
    Damaged,
    /// Their last record, or nothing: one ended within a record.
    PerhapsDamaged,
}

impl Past {
    const ALL: [Self; 3] = [Self::Whole, Self::Damaged, Self::PerhapsDamaged];

    /// Of a log with this doubt.
    pub fn of(doubt: Option<&Doubt>) -> Self {
        match doubt {
            None => Self::Whole,
            Some(doubt) if doubt.is_certain => Self::Damaged,
            Some(_) => Self::PerhapsDamaged,
        }
    }
}

/// Head of a segment.
pub(crate) fn head(segment: u64, past: Past) -> Bytes {
    let mut bytes = BytesMut::with_capacity(HEAD_BYTES);
    bytes.put_slice(&SEGMENT_MAGIC);
    bytes.put_u8(FORMAT);
    bytes.put_u8(past as u8);
    bytes.put_slice(&[0; 2]);
    bytes.put_u64_le(segment);
    let sum = crc32c(&bytes);
    bytes.put_u32_le(sum);
    bytes.freeze()
}

/// What a segment's head says. None: this is no head of segment `segment`. An error: it is, of another format.
pub(crate) fn read_head(bytes: &[u8], segment: u64) -> Result<Option<Past>> {
    let Some(found) = bytes.get(..HEAD_BYTES) else { return Ok(None) };
    let sum = u32::from_le_bytes([found[16], found[17], found[18], found[19]]);
    // A damaged byte is no other format: the sum is looked at first.
    if found[..4] == SEGMENT_MAGIC && found[4] != FORMAT && crc32c(&found[..16]) == sum {
        return Err(err!(
            Unsupported,
            "a handoff log of format {}, this release knows {FORMAT}: use the release that wrote it, with all nodes awake, \
             until nothing is left in it",
            found[4]
        ));
    }
    Ok(Past::ALL.into_iter().find(|past| found == &head(segment, *past)[..]))
}

/// A record with its payload.
pub(crate) fn encode(record: Record, payload: &Bytes) -> Bytes {
    let message = pb::HandoffRecord { record: Some(record) }.encode_to_vec();
    let mut frame = BytesMut::with_capacity(FRAME_BYTES + message.len() + payload.len());
    frame.put_slice(&RECORD_MAGIC);
    frame.put_u32_le(u32::try_from(message.len()).expect("a message within a frame"));
    frame.put_u32_le(u32::try_from(payload.len()).expect("a payload within a frame"));
    frame.put_u32_le(0);
    frame.put_slice(&message);
    frame.put_slice(payload);
    let sum = crc32c(&frame[FRAME_BYTES..]);
    frame[12..FRAME_BYTES].copy_from_slice(&sum.to_le_bytes());
    frame.freeze()
}

/// What a record's first bytes say of it, if it does not end behind `bytes`.
struct Frame {
    message_len: usize,
    /// Where it ends.
    end: usize,
    sum: u32,
}

fn frame(bytes: &[u8]) -> Option<Frame> {
    let frame = bytes.first_chunk::<FRAME_BYTES>().filter(|frame| frame[..4] == RECORD_MAGIC)?;
    let word = |at: usize| u32::from_le_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
    let (message_len, payload_len) = (word(4) as usize, word(8) as usize);
    let end = FRAME_BYTES.checked_add(message_len)?.checked_add(payload_len)?;
    (end <= bytes.len()).then_some(Frame { message_len, end, sum: word(12) })
}

/// The record at the beginning of `bytes`, its payload, and how many bytes it takes. None: there is no whole one.
pub(crate) fn decode(bytes: &Bytes) -> Option<(Record, Bytes, usize)> {
    let Frame { message_len, end, sum } = frame(bytes)?;
    let body = &bytes[FRAME_BYTES..end];
    if sum != crc32c(body) {
        return None;
    }
    let record = pb::HandoffRecord::decode(&body[..message_len]).ok()?.record?;
    Some((record, bytes.slice(FRAME_BYTES + message_len..end), end))
}

/// Looks for records behind damage. What users wrote lies in the log, and may look like records at every place.
pub(crate) struct Search<'a> {
    bytes: &'a Bytes,
    sums: PartSums<'a>,
    /// How many with a good checksum may still turn out to be none: each is looked at as a whole.
    patience: u32,
}

impl<'a> Search<'a> {
    /// In all bytes of a segment.
    pub fn new(bytes: &'a Bytes) -> Self {
        Self { bytes, sums: PartSums::new(bytes), patience: 1000 }
    }

    /// Where the next whole record from `from` on begins: behind a damaged one that tells a torn end from damage.
    pub fn next(&mut self, from: usize) -> Option<usize> {
        let windows = self.bytes[from..].windows(4).enumerate();
        for at in windows.filter(|(_, window)| *window == RECORD_MAGIC).map(|(at, _)| from + at) {
            let Some(frame) = frame(&self.bytes[at..]) else { continue };
            if self.sums.of(at + FRAME_BYTES..at + frame.end) != frame.sum {
                continue;
            }
            if decode(&self.bytes.slice(at..)).is_some() {
                return Some(at);
            }
            self.patience = self.patience.checked_sub(1)?;
        }
        None
    }
}

/// Takes a payload apart by the writes that it belongs to. `Protocol` if it does not fit them.
pub fn split(writes: Vec<pb::WriteReplica>, payload: &Bytes) -> Result<Vec<Logged>> {
    let mut at = 0;
    let mut logged = Vec::with_capacity(writes.len());
    for write in writes {
        let length = match write.kind() {
            pb::WriteKind::WriteData => usize::try_from(write.length).unwrap_or(usize::MAX),
            _ => 0,
        };
        let end = usize::checked_add(at, length).filter(|end| *end <= payload.len());
        let Some(end) = end else {
            return Err(err!(
                Protocol,
                "{} bytes of payload end within a write of m{}",
                payload.len(),
                write.metablock
            ));
        };
        logged.push(Logged { write, data: payload.slice(at..end) });
        at = end;
    }
    if at != payload.len() {
        return Err(err!(Protocol, "{} bytes of payload, {at} belong to writes", payload.len()));
    }
    Ok(logged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_and_a_torn_one_is_none() {
        let record = Record::Promise(pb::LoggedFile { inode: 3, epoch: 9, last: Vec::new() });
        let payload = Bytes::from_static(b"some bytes");
        let bytes = encode(record.clone(), &payload);
        assert_eq!(decode(&bytes), Some((record, payload, bytes.len())));
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes.slice(..cut)), None);
        }
        let mut flipped = bytes.to_vec();
        *flipped.last_mut().unwrap() ^= 1;
        let flipped = Bytes::from(flipped);
        assert_eq!(Search::new(&flipped).next(0), None);
        let behind = Bytes::from([&flipped[..], &bytes[..]].concat());
        assert_eq!(Search::new(&behind).next(0), Some(flipped.len()));
        assert_eq!(Search::new(&behind).next(flipped.len() + 1), None);
    }

    /// What a user wrote looks like the beginning of a long record at every place, with a checksum that does not fit.
    #[test]
    fn records_are_found_behind_what_only_looks_like_them() {
        let record = encode(Record::Promise(pb::LoggedFile { inode: 3, epoch: 9, last: Vec::new() }), &Bytes::new());
        let mut bytes = Vec::new();
        for at in 0..20_000_u32 {
            bytes.extend(RECORD_MAGIC);
            [at % 7, 200_000, at].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        }
        let place = bytes.len();
        bytes.extend_from_slice(&record);
        bytes.extend_from_slice(&[0; 300_000]);
        let bytes = Bytes::from(bytes);
        let mut search = Search::new(&bytes);
        assert_eq!((search.next(0), search.next(place), search.next(place + 1)), (Some(place), Some(place), None));
    }

    /// Sums that fit what is no message, again and again: each is looked at as a whole, so there is an end to it.
    #[test]
    fn the_search_has_an_end() {
        let mut junk = encode(Record::Promise(pb::LoggedFile::default()), &Bytes::new()).to_vec();
        junk.truncate(FRAME_BYTES);
        junk.extend([0xff; 12]);
        junk[4..8].copy_from_slice(&12_u32.to_le_bytes());
        let sum = crc32c(&junk[FRAME_BYTES..]);
        junk[12..16].copy_from_slice(&sum.to_le_bytes());
        let record = encode(Record::Promise(pb::LoggedFile { inode: 3, ..Default::default() }), &Bytes::new());
        let behind = |times: usize| Bytes::from([&junk.repeat(times)[..], &record[..]].concat());
        assert_eq!(Search::new(&behind(900)).next(0), Some(900 * junk.len()));
        assert_eq!(Search::new(&behind(1100)).next(0), None);
    }

    #[test]
    fn heads_are_of_one_segment_and_one_format() {
        for past in Past::ALL {
            assert_eq!(read_head(&head(3, past), 3).unwrap(), Some(past));
        }
        assert_eq!(read_head(&head(3, Past::Whole), 4).unwrap(), None);
        assert_eq!(read_head(b"", 4).unwrap(), None);
        let mut other = head(3, Past::Whole).to_vec();
        other[4] = 1;
        assert_eq!(read_head(&other, 3).unwrap(), None, "a damaged byte is no other format");
        let sum = crc32c(&other[..16]);
        other[16..].copy_from_slice(&sum.to_le_bytes());
        let refused = read_head(&other, 3).unwrap_err();
        assert_eq!(refused.kind(), ebb_types::ErrorKind::Unsupported);
        assert!(refused.to_string().contains("format 1, this release knows 2"), "{refused}");
    }

    #[test]
    fn a_payload_that_does_not_fit_its_writes_is_refused() {
        let write = |length| pb::WriteReplica { length, ..Default::default() };
        let payload = Bytes::from_static(b"abcdef");
        let parts = split(vec![write(2), write(4)], &payload).unwrap();
        assert_eq!((&parts[0].data[..], &parts[1].data[..]), (&b"ab"[..], &b"cdef"[..]));
        assert!(split(vec![write(2)], &payload).is_err());
        assert!(split(vec![write(2), write(5)], &payload).is_err());
        assert!(split(vec![write(u64::MAX)], &payload).is_err());
        let punch = pb::WriteReplica { kind: pb::WriteKind::WritePunch as i32, length: 900, ..Default::default() };
        assert_eq!(split(vec![punch, write(6)], &payload).unwrap()[1].data.len(), 6);
    }
}
