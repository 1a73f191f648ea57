//! Byte form of a log's records. See `docs/formats/handoff-log.md`.

use bytes::{BufMut, Bytes, BytesMut};
use ebb_log::{Frame, Framing, Search, sum_of_parts, whole_frame};
use ebb_types::{Result, err};
use ebb_wire::frame::crc32c;
use ebb_wire::{Message, pb};
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

/// The losses of earlier segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Past {
    /// No record is missing.
    Whole,
    /// Records are missing.
    Damaged,
    /// A segment ended within a record, so its last record may be missing.
    PerhapsDamaged,
}

impl Past {
    const ALL: [Self; 3] = [Self::Whole, Self::Damaged, Self::PerhapsDamaged];

    /// The value for a log with this doubt.
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

/// The past in a segment's head. `None`: this is no head of segment `segment`. Error: the head is of another format.
pub(crate) fn read_head(bytes: &[u8], segment: u64) -> Result<Option<Past>> {
    let Some(found) = bytes.get(..HEAD_BYTES) else { return Ok(None) };
    let sum = u32::from_le_bytes([found[16], found[17], found[18], found[19]]);
    // A damaged byte must not pass for another format, so the checksum is compared, too.
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

/// A record and its payload: the bytes of an append's data writes.
pub(crate) type Entry = (Record, Bytes);

/// The frame of one record.
pub(crate) fn encode(record: Record, payload: &Bytes) -> Bytes {
    let parts = frame_of(record, std::slice::from_ref(payload));
    parts.concat().into()
}

/// The frame of records that are synced together: parts to write one after the other, and their length. Payloads are
/// not copied.
///
/// It is one frame with one checksum. Otherwise a crash could leave the last of several records whole behind a torn
/// one, which would look like damage.
pub(crate) fn encode_batch(entries: Vec<Entry>) -> (Vec<Bytes>, u64) {
    assert!(!entries.is_empty(), "a batch without records");
    let (mut records, payloads): (Vec<Record>, Vec<Bytes>) = entries.into_iter().unzip();
    let record = match records.len() {
        1 => records.remove(0),
        _ => Record::Batch(pb::HandoffBatch {
            records: records.into_iter().map(|record| pb::HandoffRecord { record: Some(record) }).collect(),
            payload_bytes: payloads.iter().map(|payload| length(payload.len())).collect(),
        }),
    };
    let parts = frame_of(record, &payloads);
    let len = parts.iter().map(|part| part.len() as u64).sum();
    (parts, len)
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a batch is bounded")
}

fn frame_of(record: Record, payloads: &[Bytes]) -> Vec<Bytes> {
    let message = pb::HandoffRecord { record: Some(record) }.encode_to_vec();
    let payload_len: usize = payloads.iter().map(Bytes::len).sum();
    let mut front = BytesMut::with_capacity(FRAME_BYTES + message.len());
    front.put_slice(&RECORD_MAGIC);
    front.put_u32_le(length(message.len()));
    front.put_u32_le(length(payload_len));
    front.put_u32_le(sum_of_parts(std::iter::once(&message[..]).chain(payloads.iter().map(|payload| &payload[..]))));
    front.put_slice(&message);
    let payloads = payloads.iter().filter(|payload| !payload.is_empty()).cloned();
    std::iter::once(front.freeze()).chain(payloads).collect()
}

/// How the log frames its records: see `docs/formats/handoff-log.md`. Batches have no numbers: a record is a batch.
#[derive(Clone, Copy, Debug)]
struct RecordFraming;

impl Framing for RecordFraming {
    const STEP: usize = 1;

    fn read_frame(&self, bytes: &[u8]) -> Option<Frame> {
        let front = bytes.first_chunk::<FRAME_BYTES>().filter(|front| front[..4] == RECORD_MAGIC)?;
        let len = FRAME_BYTES.checked_add(word(front, 4))?.checked_add(word(front, 8))?;
        let sum = u32::from_le_bytes([front[12], front[13], front[14], front[15]]);
        (len <= bytes.len()).then_some(Frame { summed: FRAME_BYTES..len, sum, len, batch: 0, ends_batch: true })
    }
}

fn word(front: &[u8; FRAME_BYTES], at: usize) -> usize {
    u32::from_le_bytes([front[at], front[at + 1], front[at + 2], front[at + 3]]) as usize
}

/// The records of the frame at the start of `bytes`, and the frame's length. `None`: no whole frame begins here.
pub(crate) fn decode(bytes: &Bytes) -> Option<(Vec<Entry>, usize)> {
    let frame = whole_frame(&RecordFraming, bytes)?;
    let message_len = word(bytes.first_chunk()?, 4);
    let message = &bytes[FRAME_BYTES..FRAME_BYTES + message_len];
    let payload = bytes.slice(FRAME_BYTES + message_len..frame.len);
    let entries = match pb::HandoffRecord::decode(message).ok()?.record? {
        Record::Batch(batch) => split_batch(batch, payload)?,
        record => vec![(record, payload)],
    };
    Some((entries, frame.len))
}

fn split_batch(batch: pb::HandoffBatch, mut payload: Bytes) -> Option<Vec<Entry>> {
    let lengths_fit = batch.records.len() == batch.payload_bytes.len()
        && batch.payload_bytes.iter().map(|len| u64::from(*len)).sum::<u64>() == payload.len() as u64;
    if !lengths_fit {
        return None;
    }
    let mut entry = |record: pb::HandoffRecord, len: u32| match record.record? {
        Record::Batch(_) => None,
        record => Some((record, payload.split_to(len as usize))),
    };
    batch.records.into_iter().zip(batch.payload_bytes).map(|(record, len)| entry(record, len)).collect()
}

/// Looks for records behind damage.
#[derive(Debug)]
pub(crate) struct Behind<'a> {
    bytes: &'a Bytes,
    search: Search<'a, RecordFraming>,
    /// Limit of frames with a good checksum that are no records, because each of them is decoded as a whole.
    patience: u32,
}

impl<'a> Behind<'a> {
    /// In all bytes of a segment.
    pub fn new(bytes: &'a Bytes) -> Self {
        Self { bytes, search: Search::new(RecordFraming, bytes), patience: 1000 }
    }

    /// Start of the next whole record from `from` on.
    pub fn find(&mut self, mut from: usize) -> Option<usize> {
        loop {
            let (at, _) = self.search.find(from, |_, _| true)?;
            if decode(&self.bytes.slice(at..)).is_some() {
                return Some(at);
            }
            self.patience = self.patience.checked_sub(1)?;
            from = at + 1;
        }
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
        assert_eq!(decode(&bytes), Some((vec![(record, payload)], bytes.len())));
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes.slice(..cut)), None);
        }
        let mut flipped = bytes.to_vec();
        *flipped.last_mut().unwrap() ^= 1;
        let flipped = Bytes::from(flipped);
        assert_eq!(Behind::new(&flipped).find(0), None);
        let behind = Bytes::from([&flipped[..], &bytes[..]].concat());
        assert_eq!(Behind::new(&behind).find(0), Some(flipped.len()));
        assert_eq!(Behind::new(&behind).find(flipped.len() + 1), None);
    }

    #[test]
    fn records_of_a_batch_come_back_each_with_its_payload_or_none_does() {
        let promise = |epoch| Record::Promise(pb::LoggedFile { inode: 3, epoch, last: Vec::new() });
        let append = Record::Append(pb::LogWrites { inode: 4, epoch: 2, ..Default::default() });
        let entries = vec![
            (promise(9), Bytes::new()),
            (append.clone(), Bytes::from_static(b"one")),
            (append, Bytes::from_static(b"three")),
            (promise(10), Bytes::new()),
        ];
        let (parts, len) = encode_batch(entries.clone());
        assert_eq!(parts.len(), 3, "payloads are written from where they lie");
        let bytes = Bytes::from(parts.concat());
        assert_eq!(len, bytes.len() as u64);
        assert_eq!(decode(&bytes), Some((entries.clone(), bytes.len())));
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes.slice(..cut)), None);
        }
        let alone = encode_batch(entries[..1].to_vec()).0.concat();
        assert_eq!(alone, encode(promise(9), &Bytes::new()), "one record is written without a batch around it");
    }

    #[test]
    fn a_batch_in_a_batch_and_lengths_that_do_not_fit_are_no_record() {
        let framed = |records: Vec<Record>, payload_bytes: Vec<u32>| {
            let records = records.into_iter().map(|record| pb::HandoffRecord { record: Some(record) }).collect();
            encode(Record::Batch(pb::HandoffBatch { records, payload_bytes }), &Bytes::from_static(b"bytes"))
        };
        let promise = || Record::Promise(pb::LoggedFile::default());
        assert!(decode(&framed(vec![promise(), promise()], vec![5, 0])).is_some());
        for lengths in [vec![5], vec![5, 0, 0], vec![4, 0], vec![5, 1], vec![u32::MAX, u32::MAX]] {
            assert_eq!(decode(&framed(vec![promise(), promise()], lengths)), None);
        }
        let nested = Record::Batch(pb::HandoffBatch::default());
        assert_eq!(decode(&framed(vec![nested], vec![5])), None);
    }

    /// User data that looks like the beginning of a long record at every place, with a checksum that does not fit.
    #[test]
    fn records_are_found_behind_bytes_that_look_like_them() {
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
        let mut behind = Behind::new(&bytes);
        assert_eq!((behind.find(0), behind.find(place), behind.find(place + 1)), (Some(place), Some(place), None));
    }

    /// Many frames with good checksums and without a message. Each is decoded as a whole, so the search has a limit.
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
        assert_eq!(Behind::new(&behind(900)).find(0), Some(900 * junk.len()));
        assert_eq!(Behind::new(&behind(1100)).find(0), None);
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
