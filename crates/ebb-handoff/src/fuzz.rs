//! This crate's decoders for `ebb-fuzz`: as functions of bytes alone, with samples, and repairs of checksums after a
//! change.

use std::path::Path;

use bytes::Bytes;
use ebb_wire::frame::crc32c;
use ebb_wire::{Message, pb};
use pb::handoff_record::Record;

use crate::found::{Found, take_segment};
use crate::record::{self, FRAME_BYTES, HEAD_BYTES, Past};

const SEGMENT: u64 = 3;

/// `offload-N`.
#[must_use]
pub fn segment(bytes: &[u8]) -> bool {
    let mut found = Found::default();
    let taken = take_segment(&mut found, Path::new("offload"), SEGMENT, Bytes::copy_from_slice(bytes));
    let is_good = taken.is_ok_and(|taken| taken);
    if is_good {
        // When all members have everything, the log must be empty.
        let marks: Vec<pb::LoggedFile> = found.book.marks().collect();
        for mark in &marks {
            crate::found::apply_cuts(&mut found.book, ebb_types::InodeId::new(mark.inode), &mark.last);
        }
        assert!(found.book.is_empty() && found.book.bytes() == 0, "{} bytes of nothing", found.book.bytes());
    }
    is_good
}

/// `LogWrites` with its payload: two bytes say how many of the rest are the message.
#[must_use]
pub fn call(bytes: &[u8]) -> bool {
    let Some((head, rest)) = bytes.split_first_chunk() else { return false };
    let (message, payload) = rest.split_at(rest.len().min(u16::from_le_bytes(*head).into()));
    let Ok(call) = pb::LogWrites::decode(message) else { return false };
    let payload = Bytes::copy_from_slice(payload);
    let Ok(writes) = record::split(call.writes, &payload) else { return false };
    assert_eq!(writes.iter().map(|write| write.data.len()).sum::<usize>(), payload.len());
    true
}

fn writes() -> pb::LogWrites {
    let version = |seq| Some(pb::Version { epoch: 9, seq });
    let write = |seq, length, kind: pb::WriteKind| pb::WriteReplica {
        metablock: 5,
        version: version(seq),
        predecessor: version(seq - 1),
        kind: kind as i32,
        length,
        checksums: vec![1, 2],
        ..Default::default()
    };
    let all = [(1, 4, pb::WriteKind::WriteData), (2, 900, pb::WriteKind::WritePunch), (3, 6, pb::WriteKind::WriteData)];
    let cuts = vec![pb::LogCut { metablock: 5, version: version(0) }];
    let writes = all.map(|(seq, length, kind)| write(seq, length, kind)).to_vec();
    pb::LogWrites { inode: 3, epoch: 9, writes, cuts, ..Default::default() }
}

/// Calls.
#[must_use]
pub fn calls() -> Vec<Vec<u8>> {
    let message = writes().encode_to_vec();
    vec![[&(message.len() as u16).to_le_bytes()[..], &message, b"0123456789"].concat()]
}

/// Segments.
#[must_use]
pub fn segments() -> Vec<Vec<u8>> {
    let promise = pb::LoggedFile { inode: 3, epoch: 9, last: Vec::new() };
    let cut = pb::LoggedFile { last: vec![pb::LogCut { metablock: 5, version: None }], ..promise.clone() };
    let promise = record::encode(Record::Promise(promise), &Bytes::new());
    let append = record::encode(Record::Append(writes()), &Bytes::from_static(b"0123456789"));
    let both =
        vec![(Record::Append(writes()), Bytes::from_static(b"0123456789")), (Record::Cut(cut.clone()), Bytes::new())];
    let batch = Bytes::from(record::encode_batch(both).0.concat());
    let cut = record::encode(Record::Cut(cut), &Bytes::new());
    let segment = |past, records: &[&Bytes]| {
        let records = records.iter().flat_map(|record| record.iter().copied());
        record::head(SEGMENT, past).iter().copied().chain(records).collect::<Vec<u8>>()
    };
    let torn = append.slice(..append.len() - 3);
    vec![
        segment(Past::Whole, &[]),
        segment(Past::Damaged, &[&promise, &append, &cut]),
        segment(Past::PerhapsDamaged, &[&append, &torn]),
        segment(Past::Whole, &[&batch, &promise, &batch]),
        segment(Past::Whole, &[&append, &torn, &promise, &append]),
    ]
}

/// Makes the sums of head and records right.
pub fn repair_segment(bytes: &mut [u8]) {
    if bytes.len() < HEAD_BYTES {
        return;
    }
    let sum = crc32c(&bytes[..16]);
    bytes[16..20].copy_from_slice(&sum.to_le_bytes());
    let mut at = HEAD_BYTES;
    while let Some(room) = bytes.len().checked_sub(at + FRAME_BYTES) {
        let word = |place: usize| {
            let place = at + place;
            u32::from_le_bytes(bytes[place..place + 4].try_into().expect("four bytes")) as usize
        };
        let message = word(4).min(room);
        let payload = word(8).min(room - message);
        let from = at + FRAME_BYTES;
        let sum = crc32c(&bytes[from..from + message + payload]);
        bytes[at..at + 4].copy_from_slice(b"EBOR");
        for (place, number) in [(4, message as u32), (8, payload as u32), (12, sum)] {
            bytes[at + place..at + place + 4].copy_from_slice(&number.to_le_bytes());
        }
        at = from + message + payload;
    }
}
