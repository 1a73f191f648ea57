//! The log for `ebb-fuzz`: its decoders as functions of bytes alone, samples, and repairs of changed samples.

use std::path::Path;

use ebb_meta::{Machine, Names, Remainder};
use ebb_types::ClusterId;
use ebb_wire::frame::crc32c;
use ebb_wire::{Message, decode_length_delimiter, encode_length_delimiter, pb};
use raft::eraftpb::{ConfState, Entry, HardState};

use super::checkpoint::{self, Stream};
use super::record::{HEADER_LEN, Record, padded};
use super::segment::{Position, SEGMENT_HEADER_LEN, SegmentHeader, scan};
use super::wal::{Recovered, replay};
use super::{data_dir, hint};

const CLUSTER: ClusterId = ClusterId::new(7);
const SEQUENCE: u64 = 3;
const FIRST_BATCH: u64 = 12;
/// Index of the checkpoint that the segment goes on from.
const AFTER: u64 = 40;

/// `log-N.segment`, and the commands in it.
#[must_use]
pub fn segment(bytes: &[u8]) -> bool {
    let path = Path::new("segment");
    let Ok(header) = SegmentHeader::decode(bytes, path) else { return false };
    let _ = scan(bytes, &header, Position::Inner, path, AFTER);
    let Ok(scanned) = scan(bytes, &header, Position::Last, path, AFTER) else { return false };
    assert!(scanned.end <= bytes.len());
    let mut found = Recovered::default();
    if replay(scanned.records, AFTER, &mut found, path).is_err() {
        return false;
    }
    let mut machine = Machine::new();
    for entry in found.entries.iter().filter(|entry| !entry.data.is_empty()) {
        if let Ok(command) = pb::Command::decode(entry.data.as_slice()) {
            machine.apply(&command);
        }
    }
    true
}

/// Segments.
#[must_use]
pub fn segments() -> Vec<Vec<u8>> {
    let open = pb::command::Command::OpenSession(pb::OpenSessionCommand {
        host: "h1".into(),
        role: "mount".into(),
        ..Default::default()
    });
    let command = pb::Command { now_ns: 5, command: Some(open), ..Default::default() }.encode_to_vec();
    let entry = |index: u64, data: &[u8]| {
        Record::Entry(Entry { index, term: 3, data: data.to_vec(), context: vec![9; 3], ..Entry::default() })
    };
    let voters = Record::ConfState(ConfState { voters: vec![1, 2, 3], learners: vec![4], ..ConfState::default() });
    let state = |commit| Record::HardState(HardState { term: 3, vote: 1, commit });
    let segment = |batches: &[Vec<Record>], zeros: usize| {
        let header = SegmentHeader { cluster: CLUSTER, sequence: SEQUENCE, first_batch: FIRST_BATCH };
        let mut out = header.encode().to_vec();
        for (batch, records) in (FIRST_BATCH..).zip(batches) {
            for (place, record) in records.iter().enumerate() {
                record.encode(batch, place + 1 == records.len(), &mut out);
            }
        }
        out.extend(std::iter::repeat_n(0, zeros));
        out
    };
    let head = vec![state(40), voters];
    vec![
        segment(std::slice::from_ref(&head), 256),
        segment(&[head.clone(), vec![entry(41, &[]), entry(42, &command)], vec![state(42), entry(43, &command)]], 64),
        segment(&[head, vec![entry(39, b""), entry(40, b"x"), entry(41, &[7; 100])], vec![entry(41, &command)]], 0),
    ]
}

/// Makes the sums of header and records right, and their batches follow each other.
pub fn repair_segment(bytes: &mut [u8]) {
    if bytes.len() < SEGMENT_HEADER_LEN {
        return;
    }
    bytes[0..8].copy_from_slice(b"EBBMLOG1");
    let sum = crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
    let mut batch = u64::from_le_bytes(bytes[32..40].try_into().expect("eight bytes"));
    let mut at = SEGMENT_HEADER_LEN;
    while let Some(rest) = bytes.get_mut(at..).filter(|rest| rest.len() >= HEADER_LEN) {
        if rest[..HEADER_LEN].iter().all(|byte| *byte == 0) {
            return;
        }
        let stated = u32::from_le_bytes(rest[0..4].try_into().expect("four bytes")) as usize;
        let len = stated.min(rest.len() - HEADER_LEN);
        rest[0..4].copy_from_slice(&(len as u32).to_le_bytes());
        rest[8..16].copy_from_slice(&batch.to_le_bytes());
        let sum = crc32c(&rest[8..HEADER_LEN + len]);
        rest[4..8].copy_from_slice(&sum.to_le_bytes());
        batch = batch.wrapping_add(u64::from(rest[17] & 1));
        at += padded(len);
    }
}

/// `synced`.
#[must_use]
pub fn hint(bytes: &[u8]) -> bool {
    hint::decode(bytes, CLUSTER).is_some()
}

/// Hints.
#[must_use]
pub fn hints() -> Vec<Vec<u8>> {
    vec![hint::encode(CLUSTER, hint::Synced { batch: 5, sequence: 2, offset: 300 }).to_vec()]
}

/// Makes a hint's sum right.
pub fn repair_hint(bytes: &mut [u8]) {
    if bytes.len() >= hint::LEN {
        let sum = hint::checksum(&bytes[..hint::LEN]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    }
}

/// `master`.
#[must_use]
pub fn identity(bytes: &[u8]) -> bool {
    data_dir::check(bytes, Path::new("master"), CLUSTER).is_ok()
}

/// Identity files: the own one and another cluster's.
#[must_use]
pub fn identities() -> Vec<Vec<u8>> {
    [CLUSTER, ClusterId::new(u64::MAX)].map(|cluster| data_dir::text(cluster).into_bytes()).to_vec()
}

/// Makes an identity file's sum right.
pub fn repair_identity(bytes: &mut Vec<u8>) {
    if let Some(at) = bytes.windows(9).rposition(|window| window == b"checksum ") {
        bytes.truncate(at);
        let sum = crc32c(bytes);
        bytes.extend(format!("checksum {sum:08x}\n").bytes());
    }
}

/// `checkpoint-N`, its blocks and the records in them.
#[must_use]
pub fn checkpoint(bytes: &[u8]) -> bool {
    if checkpoint::check_head(bytes).is_ok()
        && let Ok(names) = Names::load(Stream::new(bytes))
        && let Ok(rest) = Remainder::load(Stream::new(bytes))
    {
        return names.join(rest).is_ok();
    }
    false
}

/// A checkpoint of these records, which come one after the other, each after its length.
#[must_use]
pub fn checkpoint_of(mut records: &[u8]) -> Vec<u8> {
    let mut blocks = Vec::new();
    let mut block = Vec::new();
    while let Some(len) = decode_length_delimiter(&mut records).ok().filter(|len| *len <= records.len()) {
        encode_length_delimiter(len, &mut block).expect("a growing buffer has room");
        block.extend_from_slice(&records[..len]);
        records = &records[len..];
        if block.len() > 200 {
            blocks.push(std::mem::take(&mut block));
        }
    }
    blocks.push(block);
    let mut out = checkpoint::head().to_vec();
    for block in blocks.iter().filter(|block| !block.is_empty()) {
        let sum = checkpoint::block_sum(out.len() as u64, block);
        out.extend((block.len() as u32).to_le_bytes());
        out.extend(sum.to_le_bytes());
        out.extend_from_slice(block);
    }
    out
}

/// Makes the sums of head and blocks right.
pub fn repair_checkpoint(bytes: &mut [u8]) {
    if bytes.len() < checkpoint::HEAD_LEN {
        return;
    }
    bytes[..8].copy_from_slice(b"EBBMCKPT");
    let sum = crc32c(&bytes[..12]);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    let mut at = checkpoint::HEAD_LEN;
    while let Some(room) = bytes.len().checked_sub(at + checkpoint::BLOCK_HEADER_LEN).filter(|room| *room > 0) {
        let from = at + checkpoint::BLOCK_HEADER_LEN;
        let stated = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize;
        let len = stated.clamp(1, room);
        let sum = checkpoint::block_sum(at as u64, &bytes[from..from + len]);
        bytes[at..at + 4].copy_from_slice(&(len as u32).to_le_bytes());
        bytes[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
        at = from + len;
    }
}
