//! Byte form of a log's records. See `docs/formats/offload.md`.

use bytes::{BufMut, Bytes, BytesMut};
use ebb_types::{Result, err};
use ebb_wire::frame::crc32c;
use ebb_wire::{Message, pb};
use pb::offload_record::Record;

use crate::book::Logged;

/// Begins a segment.
const SEGMENT_MAGIC: [u8; 4] = *b"EBOF";
/// Byte form of segments and records.
const FORMAT: u8 = 1;
/// Bytes of a segment's head.
pub(crate) const HEAD_BYTES: usize = 20;
/// Begins a record.
const RECORD_MAGIC: [u8; 4] = *b"EBOR";
/// Magic, length of the message, length of the payload, CRC-32C.
const FRAME_BYTES: usize = 16;

/// Head of a segment; `whole`: nothing before it was ever lost.
pub(crate) fn head(segment: u64, whole: bool) -> Bytes {
    let mut bytes = BytesMut::with_capacity(HEAD_BYTES);
    bytes.put_slice(&SEGMENT_MAGIC);
    bytes.put_u8(FORMAT);
    bytes.put_u8(u8::from(!whole));
    bytes.put_slice(&[0; 2]);
    bytes.put_u64_le(segment);
    let sum = crc32c(&bytes);
    bytes.put_u32_le(sum);
    bytes.freeze()
}

/// Whether nothing was lost before this segment. None: this is no head of segment `segment`. An error: it is, of another
/// format.
pub(crate) fn read_head(bytes: &[u8], segment: u64) -> Result<Option<bool>> {
    let Some(found) = bytes.get(..HEAD_BYTES) else { return Ok(None) };
    if found[..4] == SEGMENT_MAGIC && found[4] != FORMAT {
        return Err(err!(Unsupported, "offload log of format {}, this release knows {FORMAT}", found[4]));
    }
    Ok([true, false].into_iter().find(|whole| found == &head(segment, *whole)[..]))
}

/// A record with its payload.
pub(crate) fn encode(record: Record, payload: &Bytes) -> Bytes {
    let message = pb::OffloadRecord { record: Some(record) }.encode_to_vec();
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

/// The record at the beginning of `bytes`, its payload, and how many bytes it takes. None: there is no whole one.
pub(crate) fn decode(bytes: &Bytes) -> Option<(Record, Bytes, usize)> {
    let frame = bytes.get(..FRAME_BYTES)?;
    let word = |at: usize| Some(u32::from_le_bytes(frame.get(at..at + 4)?.try_into().ok()?));
    let (message_len, payload_len) = (word(4)? as usize, word(8)? as usize);
    let end = FRAME_BYTES.checked_add(message_len)?.checked_add(payload_len)?;
    let body = bytes.get(FRAME_BYTES..end)?;
    if frame[..4] != RECORD_MAGIC || word(12)? != crc32c(body) {
        return None;
    }
    let record = pb::OffloadRecord::decode(&body[..message_len]).ok()?.record?;
    Some((record, bytes.slice(FRAME_BYTES + message_len..end), end))
}

/// Whether there is a whole record anywhere: behind a damaged one that tells a torn end from damage.
pub(crate) fn has_record(bytes: &Bytes) -> bool {
    let starts = bytes.windows(4).enumerate().filter(|(_, window)| *window == RECORD_MAGIC);
    starts.map(|(at, _)| at).any(|at| decode(&bytes.slice(at..)).is_some())
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
        assert!(!has_record(&flipped));
        let behind = Bytes::from([&flipped[..], &bytes[..]].concat());
        assert!(has_record(&behind));
    }

    #[test]
    fn heads_are_of_one_segment_and_one_format() {
        assert_eq!(read_head(&head(3, true), 3).unwrap(), Some(true));
        assert_eq!(read_head(&head(3, false), 3).unwrap(), Some(false));
        assert_eq!(read_head(&head(3, true), 4).unwrap(), None);
        assert_eq!(read_head(b"", 4).unwrap(), None);
        let mut other = head(3, true).to_vec();
        other[4] = 2;
        assert_eq!(read_head(&other, 3).unwrap_err().kind(), ebb_types::ErrorKind::Unsupported);
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
