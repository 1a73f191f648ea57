//! The effect of a write on a replica's state: plain values in, a record out. No I/O.
//!
//! Two steps, because sums of chunks that are overwritten in part need their old bytes: [`Change::chunks_needed`] lists
//! the chunks that the shell must read (and verify), [`Change::record`] does the rest.

use std::collections::BTreeMap;

use bytes::Bytes;
use ebb_log::sum_of_parts;
use ebb_types::{CHUNK_SIZE, Epoch, MetablockId, Result, Version, bail, err};

use crate::chunks::valid;
use crate::crc::{self, crc32c};
use crate::record::{Content, Head, REPLICA_LEN_MAX, Record, Run, Runs, chunks_of};
use crate::state::ReplicaState;

/// The change that a write makes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Bytes at an offset, with a CRC-32C for each run of them, cut where chunks are cut.
    Data {
        /// Where they go.
        offset: u64,
        /// They.
        bytes: Bytes,
        /// Their sums, as the writer made them.
        checksums: Vec<u32>,
    },
    /// The replica's length becomes this. New bytes read as zero.
    Truncate {
        /// In bytes.
        length: u64,
    },
    /// The range becomes a hole. The length stays.
    Punch {
        /// Where it starts.
        offset: u64,
        /// How long it is.
        len: u64,
    },
    /// The range reads as zero and its space stays reserved. The length stays.
    Zero {
        /// Where it starts.
        offset: u64,
        /// How long it is.
        len: u64,
    },
    /// Space for the range is reserved. Contents and length stay.
    Allocate {
        /// Where it starts.
        offset: u64,
        /// How long it is.
        len: u64,
    },
}

/// The way of a write's bytes to their place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Through the journal, into the places that chunks have.
    Journal,
    /// Straight to the file, beyond the end or into the free places of whole chunks; the journal gets the sums and says
    /// where they lie.
    NewSpace,
    /// Straight over the old bytes: a seeded bug.
    InPlace,
}

/// The valid old bytes of chunks.
pub(crate) type OldChunks = BTreeMap<usize, Bytes>;

impl Change {
    /// Refuses ranges beyond the longest replica, and bytes that do not match their sums.
    pub(crate) fn check(&self) -> Result<()> {
        let (offset, len) = self.range();
        if offset.checked_add(len).is_none_or(|end| end > REPLICA_LEN_MAX) {
            bail!(Invalid, "a range of {len} bytes at {offset} passes the longest metablock ({REPLICA_LEN_MAX} bytes)");
        }
        let Self::Data { offset, bytes, checksums } = self else { return Ok(()) };
        if bytes.is_empty() {
            bail!(Protocol, "a write without bytes");
        }
        let pieces = pieces(*offset, bytes.len() as u64);
        if pieces.len() != checksums.len() {
            bail!(Protocol, "{} checksums for the {} chunks of a write", checksums.len(), pieces.len());
        }
        for (piece, sum) in pieces.iter().zip(checksums) {
            let at = (piece.start - offset) as usize;
            if crc32c(&bytes[at..at + piece.len as usize]) != *sum {
                bail!(
                    Corrupt,
                    "the bytes received for offset {} do not match the writer's checksum: send again",
                    piece.start
                );
            }
        }
        Ok(())
    }

    /// Offset and length. For a truncation: the new length and 0.
    pub(crate) fn range(&self) -> (u64, u64) {
        match self {
            Self::Data { offset, bytes, .. } => (*offset, bytes.len() as u64),
            Self::Truncate { length } => (*length, 0),
            Self::Punch { offset, len } | Self::Zero { offset, len } | Self::Allocate { offset, len } => {
                (*offset, *len)
            }
        }
    }

    /// The replica's length afterwards.
    pub(crate) fn length_after(&self, length: u64) -> u64 {
        match self {
            Self::Data { offset, bytes, .. } => length.max(offset + bytes.len() as u64),
            Self::Truncate { length } => *length,
            Self::Punch { .. } | Self::Zero { .. } | Self::Allocate { .. } => length,
        }
    }

    /// Chunks of data that need their old bytes for their new sums; at most two.
    pub(crate) fn chunks_needed(&self, state: &ReplicaState) -> Vec<usize> {
        let length = state.head.length;
        let partial = |offset: u64, len: u64, keeps_front_only: bool| {
            let needed = move |piece: &Piece| {
                let old = valid(piece.chunk, length);
                // Bytes of the old chunk that stay: before the piece, and after it.
                let front = piece.at > 0 && piece.at < old;
                let back = !keeps_front_only && piece.at < old && piece.at + piece.len < old;
                state.chunks.is_data(piece.chunk) && (front || back)
            };
            let chunks: Vec<usize> = pieces(offset, len).into_iter().filter(needed).map(|piece| piece.chunk).collect();
            assert!(chunks.len() <= 2, "only the first and the last chunk of a range can keep old bytes");
            chunks
        };
        match self {
            Self::Data { offset, bytes, .. } => partial(*offset, bytes.len() as u64, false),
            Self::Truncate { length: cut } if *cut < length => {
                // Everything from the cut to the chunk's end goes.
                partial(*cut, (length - cut).min(CHUNK_SIZE - cut % CHUNK_SIZE), true)
            }
            Self::Punch { offset, len } | Self::Zero { offset, len } => {
                let stop = length.min(offset + len);
                partial(*offset, stop.saturating_sub(*offset), false)
            }
            Self::Truncate { .. } | Self::Allocate { .. } => Vec::new(),
        }
    }

    /// The record of this change. `old` holds the verified bytes of [`Change::chunks_needed`].
    pub(crate) fn record(
        &self,
        metablock: MetablockId,
        version: Version,
        state: &ReplicaState,
        old: &OldChunks,
        way: Way,
    ) -> Result<Record> {
        let before = state.head;
        let length = self.length_after(before.length);
        let mut runs = Runs::default();
        let (content, reserved) = match self {
            Self::Data { offset, bytes, checksums } => {
                let len = bytes.len() as u64;
                extend(state, *offset, &mut runs);
                for (piece, sum) in pieces(*offset, len).iter().zip(checksums) {
                    let at = (piece.start - offset) as usize;
                    let new = &bytes[at..at + piece.len as usize];
                    let was_second = state.chunks.is_second(piece.chunk);
                    let moves = way == Way::NewSpace && state.chunks.is_data(piece.chunk);
                    runs.data(piece.chunk, overwritten(state, piece, *sum, new, old)?, was_second != moves);
                }
                let content = match way {
                    Way::NewSpace | Way::InPlace => Content::Direct { offset: *offset, len },
                    Way::Journal => Content::Data { offset: *offset, bytes: bytes.clone() },
                };
                (content, before.reserved)
            }
            Self::Truncate { length: cut } if *cut < before.length => {
                let chunk = (cut / CHUNK_SIZE) as usize;
                if cut % CHUNK_SIZE != 0 && state.chunks.is_data(chunk) {
                    let bytes = old_bytes(old, chunk, valid(chunk, before.length))?;
                    let sum = crc32c(&bytes[..(cut % CHUNK_SIZE) as usize]);
                    runs.data(chunk, sum, state.chunks.is_second(chunk));
                }
                (Content::Length, 0)
            }
            Self::Truncate { length: grown } => {
                extend(state, *grown, &mut runs);
                (Content::Length, before.reserved)
            }
            Self::Punch { offset, len } => {
                blank(state, *offset, *len, old, &mut runs)?;
                let reserved = match before.reserved <= offset + len {
                    true => before.reserved.min(*offset),
                    false => before.reserved,
                };
                (Content::Punch { offset: *offset, len: *len }, reserved)
            }
            Self::Zero { offset, len } => {
                blank(state, *offset, *len, old, &mut runs)?;
                (Content::Zero { offset: *offset, len: *len }, before.reserved.max(offset + len))
            }
            Self::Allocate { offset, len } => {
                (Content::Allocate { offset: *offset, len: *len }, before.reserved.max(offset + len))
            }
        };
        let promised: Epoch = before.promised.max(version.epoch);
        let reserved = if reserved > length { reserved } else { 0 };
        let runs: Vec<Run> = runs.finish();
        let length_before = before.length;
        Ok(Record {
            metablock,
            length_before,
            after: Head { version, promised, length, reserved, ..before },
            runs,
            content,
        })
    }
}

/// The part of a range that lies in one chunk.
#[derive(Clone, Copy, Debug)]
struct Piece {
    chunk: usize,
    /// From the replica's start.
    start: u64,
    /// From the chunk's start.
    at: u64,
    len: u64,
}

fn pieces(offset: u64, len: u64) -> Vec<Piece> {
    if len == 0 {
        return Vec::new();
    }
    chunks_of(offset, len)
        .map(|chunk| {
            let chunk_start = chunk as u64 * CHUNK_SIZE;
            let start = offset.max(chunk_start);
            let stop = (offset + len).min(chunk_start + CHUNK_SIZE);
            Piece { chunk, start, at: start - chunk_start, len: stop - start }
        })
        .collect()
}

/// The chunk at the old end, if it is data and zeros are put behind it because the replica grows to `offset` or
/// more, gets the sum of its longer self.
fn extend(state: &ReplicaState, offset: u64, runs: &mut Runs) {
    let length = state.head.length;
    let Some(last) = state.chunks.len().checked_sub(1) else { return };
    // A write into the same chunk includes the gap in its own sum.
    let in_chunk = offset / CHUNK_SIZE == last as u64 && !offset.is_multiple_of(CHUNK_SIZE);
    let grows = offset > length && state.chunks.is_data(last);
    if grows {
        let end = if in_chunk { offset } else { (last as u64 + 1) * CHUNK_SIZE };
        if end > length {
            let sum = crc::then_zeros(state.chunks.sum(last), end - length);
            runs.data(last, sum, state.chunks.is_second(last));
        }
    }
}

/// Sum of a chunk after `new`, with sum `sum`, was written to `piece` of it.
fn overwritten(state: &ReplicaState, piece: &Piece, sum: u32, new: &[u8], old: &OldChunks) -> Result<u32> {
    let old_len = valid(piece.chunk, state.head.length);
    let end = piece.at + piece.len;
    let rest = old_len.saturating_sub(end);
    if piece.at == 0 && rest == 0 {
        return Ok(sum);
    }
    if !state.chunks.is_data(piece.chunk) {
        let front = crc::join(crc::of_zeros(piece.at), sum, piece.len);
        return Ok(crc::then_zeros(front, rest));
    }
    if piece.at >= old_len {
        let front = crc::then_zeros(state.chunks.sum(piece.chunk), piece.at - old_len);
        return Ok(crc::join(front, sum, piece.len));
    }
    let bytes = old_bytes(old, piece.chunk, old_len)?;
    let tail = bytes.get(end as usize..).unwrap_or_default();
    Ok(sum_of_parts([&bytes[..piece.at as usize], new, tail]))
}

/// Sums of the chunks in a range that becomes zeros.
fn blank(state: &ReplicaState, offset: u64, len: u64, old: &OldChunks, runs: &mut Runs) -> Result<()> {
    let stop = state.head.length.min(offset + len);
    for piece in pieces(offset, stop.saturating_sub(offset)) {
        if !state.chunks.is_data(piece.chunk) {
            continue;
        }
        let old_len = valid(piece.chunk, state.head.length);
        if piece.at == 0 && piece.len >= old_len {
            runs.hole(piece.chunk);
            continue;
        }
        let bytes = old_bytes(old, piece.chunk, old_len)?;
        let front = crc::then_zeros(crc32c(&bytes[..piece.at as usize]), piece.len);
        let tail = &bytes[(piece.at + piece.len) as usize..];
        let sum = crc::join(front, crc32c(tail), tail.len() as u64);
        runs.data(piece.chunk, sum, state.chunks.is_second(piece.chunk));
    }
    Ok(())
}

fn old_bytes(old: &OldChunks, chunk: usize, len: u64) -> Result<&Bytes> {
    old.get(&chunk)
        .filter(|bytes| bytes.len() as u64 == len)
        .ok_or_else(|| err!(Internal, "the old bytes of chunk {chunk} were not read"))
}
