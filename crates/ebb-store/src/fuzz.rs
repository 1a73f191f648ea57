//! This crate's decoders for `ebb-fuzz`: as functions of bytes alone, with samples, and repairs of checksums after a
//! change.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use ebb_types::{CHUNK_SIZE, ClusterId, Epoch, Incarnation, MetablockId, NodeId, Version, VolumeId};

use crate::batch::{BATCH_ALIGN, BatchBody, BatchPlace};
use crate::chunks::places;
use crate::codec::{u32_at, u64_at};
use crate::crc::crc32c;
use crate::index::{self, Index, IndexHead};
use crate::label::Label;
use crate::record::{Content, Head, Record, Run};
use crate::recover::Rebuilt;
use crate::replay::Replay;
use crate::state::ReplicaState;

const INCARNATION: Incarnation = Incarnation::new(5);
const SEGMENT: u64 = 3;
const LSN: u64 = 17;

fn head(length: u64) -> Head {
    Head { version: Version::new(Epoch::new(3), 9), promised: Epoch::new(4), length, life: 7, ..Head::default() }
}

fn state(length: u64) -> ReplicaState {
    let mut state = ReplicaState { head: head(length), ..ReplicaState::default() };
    state.chunks.resize(length);
    for index in (0..state.chunks.len()).step_by(3) {
        state.chunks.set_data(index, 1000 + index as u32, index % 2 == 0);
    }
    state
}

/// `index-N`.
#[must_use]
pub fn index(bytes: &[u8]) -> bool {
    let Ok(index) = index::decode_index(bytes) else { return false };
    look_at(&Replay::new(Path::new("volume"), index));
    true
}

/// Indexes.
#[must_use]
pub fn indexes() -> Vec<Vec<u8>> {
    let head = IndexHead { segment: SEGMENT, lsn: LSN, incarnation: INCARNATION };
    let id = MetablockId::new;
    let replicas = [(id(4), state(CHUNK_SIZE * 20 + 1)), (id(9), state(0)), (id(11), state(1 << 26))];
    let tombstones = [(id(5), Epoch::new(u64::MAX)), (id(6), Epoch::new(3))];
    vec![
        index::encode(head, &[], &[]),
        index::encode(head, &replicas[..2], &tombstones),
        index::encode(head, &replicas, &tombstones[..1]),
    ]
}

/// Makes sums, counts and the end of an index right.
pub fn repair_index(bytes: &mut Vec<u8>) {
    index::repair(bytes);
}

/// `journal-N`, behind an index without replicas.
#[must_use]
pub fn journal(bytes: &[u8]) -> bool {
    let head = IndexHead { segment: SEGMENT, lsn: LSN, incarnation: INCARNATION };
    let mut replay =
        Replay::new(Path::new("volume"), Index { head, replicas: BTreeMap::new(), tombstones: BTreeMap::new() });
    let is_good = replay.take_segment(SEGMENT, &Bytes::copy_from_slice(bytes)).is_ok();
    if is_good {
        look_at(&replay);
    }
    // An empty journal is good, but it does not count as decoded.
    is_good && !replay.rebuilt.is_empty()
}

/// The calls that a start makes for each replica before it touches a file.
fn look_at(replay: &Replay) {
    for Rebuilt { state, extents, gone } in replay.rebuilt.values() {
        let length = state.head.length;
        let needed = extents.file_needed(length, 0);
        let below = extents.below(length).map(|(start, end, _)| end - start).sum::<u64>();
        assert!(*gone || (needed <= length && below <= length && state.chunks.data_bytes() <= length));
        assert!(places(0, length, |chunk| state.chunks.is_second(chunk)).iter().all(|place| place.len > 0));
        assert_eq!(state.chunks.has_second(), (0..state.chunks.len()).any(|chunk| state.chunks.is_second(chunk)));
    }
}

fn records() -> Vec<Record> {
    let bytes = |len: usize| Bytes::from((0..len).map(|at| at as u8).collect::<Vec<_>>());
    let data = |first, count: u32, second| Run::Data { first, sums: (0..count).collect(), second };
    let record = |id, length_before, length, runs, content| Record {
        metablock: MetablockId::new(id),
        length_before,
        after: head(length),
        runs,
        content,
    };
    let chunk = CHUNK_SIZE;
    vec![
        record(1, 0, 100, vec![data(0, 1, false)], Content::Data { offset: 0, bytes: bytes(100) }),
        record(1, 100, 3 * chunk, vec![data(0, 3, true)], Content::Direct { offset: 0, len: 3 * chunk }),
        record(1, 3 * chunk, 5000, vec![data(0, 1, false)], Content::Length),
        record(2, 0, 40 * chunk, Vec::new(), Content::Length),
        record(
            2,
            40 * chunk,
            40 * chunk,
            vec![data(7, 2, false)],
            Content::Direct { offset: 7 * chunk, len: 2 * chunk },
        ),
        record(
            2,
            40 * chunk,
            40 * chunk,
            vec![Run::Holes { first: 7, count: 1 }],
            Content::Punch { offset: 7 * chunk, len: chunk },
        ),
        record(2, 40 * chunk, 40 * chunk, Vec::new(), Content::Zero { offset: 0, len: chunk }),
        record(2, 40 * chunk, 40 * chunk, Vec::new(), Content::Allocate { offset: 40 * chunk, len: 1 << 20 }),
        record(3, 0, 10, vec![data(0, 1, false)], Content::Replace { token: 77 }),
        record(3, 10, 10, Vec::new(), Content::None),
        record(1, 5000, 0, Vec::new(), Content::Delete),
    ]
}

/// Segments of a journal.
#[must_use]
pub fn journals() -> Vec<Vec<u8>> {
    let batch = |lsn: u64, records: &[Record]| {
        let mut body = BatchBody::default();
        records.iter().for_each(|record| body.push(record));
        body.encode(BatchPlace { lsn, segment: SEGMENT, incarnation: INCARNATION }).concat()
    };
    let all = records();
    let each: Vec<Vec<u8>> = (LSN..).zip(&all).map(|(lsn, record)| batch(lsn, std::slice::from_ref(record))).collect();
    let sealed = [batch(LSN, &all), batch(LSN + 1, &[]), vec![0; 2 * BATCH_ALIGN as usize]];
    // Replicas of the greatest length without data.
    let long = |id| Record { metablock: MetablockId::new(id), after: head(1 << 30), ..records()[3].clone() };
    let long: Vec<Record> = (10..40).map(long).collect();
    vec![batch(LSN, &all), batch(LSN, &long), each.concat(), sealed.concat(), vec![0; BATCH_ALIGN as usize]]
}

/// Makes places, lengths and sums of batches right, one behind the other.
pub fn repair_journal(bytes: &mut [u8]) {
    let (mut at, mut lsn) = (0, LSN);
    while let Some(rest) = bytes.get_mut(at..).filter(|rest| rest.len() >= 48) {
        // The end of the batches.
        if rest[..48].iter().all(|byte| *byte == 0) {
            return;
        }
        rest[..4].copy_from_slice(b"EBBJ");
        let len = (u32_at(rest, 8) as usize).clamp(48, rest.len());
        rest[8..12].copy_from_slice(&(len as u32).to_le_bytes());
        for (place, number) in [(16, lsn), (24, SEGMENT), (32, INCARNATION.raw())] {
            rest[place..place + 8].copy_from_slice(&u64::to_le_bytes(number));
        }
        let sum = crc32c(&rest[8..len]);
        rest[4..8].copy_from_slice(&sum.to_le_bytes());
        debug_assert_eq!(u64_at(rest, 16), lsn);
        at += len.next_multiple_of(BATCH_ALIGN as usize);
        lsn += 1;
    }
}

/// `volume`.
#[must_use]
pub fn label(bytes: &[u8]) -> bool {
    let label = Label::decode(bytes, Path::new("volume"));
    label.is_ok_and(|label| label.check_owner(ClusterId::new(5), Some(NodeId::new(4)), Path::new("volume")).is_ok())
}

/// A label.
#[must_use]
pub fn labels() -> Vec<Vec<u8>> {
    let (cluster, node, volume) = (ClusterId::new(5), Some(NodeId::new(4)), VolumeId::new(7));
    vec![Label { cluster, node, volume, incarnation: INCARNATION, starts: 3 }.encode().to_vec()]
}

/// Makes a label's sum right.
pub fn repair_label(bytes: &mut Vec<u8>) {
    if let Some(at) = bytes.windows(4).rposition(|window| window == b"crc ") {
        bytes.truncate(at);
        let sum = crc32c(bytes);
        bytes.extend(format!("crc {sum:08x}\n").bytes());
    }
}
