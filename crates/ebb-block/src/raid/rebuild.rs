//! Makes a slot or row of a RAID set again, of the other parts. It is a copy whose source is decoded.
//!
//! The checksums of a slot are those of its writer, from a trailer: the store compares what is decoded with them. Those of a
//! row are made here, of bytes that matched theirs.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use ebb_code::{Part, Present, Slot, Trailer};
use ebb_store::{Found, Pull, PullFuture, PullSource, SourceChunks};
use ebb_types::{CHUNK_SIZE, Epoch, Incarnation, MetablockId, Result, Version, bail, err};
use ebb_wire::frame::crc32c;
use ebb_wire::pb;
use futures_util::future::join_all;
use parking_lot::Mutex;

use super::ends::{Piece, Source};
use super::{Outline, PIECE_BYTES, row_len, zeroed};
use crate::node::Node;
use crate::source::Front;

/// Answers `RebuildReplica`. When it returns, the replica is synced.
///
/// Errors: `Unavailable` if too few other parts can be had; `Corrupt` if what is decoded does not match its checksums; those of
/// [`ebb_store::Volume::pull`].
pub(crate) async fn rebuild(node: &Arc<Node>, message: pb::RebuildReplica) -> Result<pb::RebuildReplicaReply> {
    let volume = node.volume(message.volume)?;
    let pull = Pull {
        metablock: MetablockId::new(if message.heir == 0 { message.metablock } else { message.heir }),
        incarnation: Incarnation::new(message.incarnation),
        epoch: Epoch::new(message.epoch),
        at: Version::ZERO,
        rate_bytes_per_sec: message.rate_bytes_per_sec,
    };
    let front_bytes = message.front_bytes;
    let _place = node.pulls.acquire().await.expect("never closed");
    let decoded = Decoded::new(node, message).await?;
    let done = volume.pull(Pull { at: decoded.version, ..pull }, &Front::of(&decoded, front_bytes)).await;
    tracing::trace!(metablock = %pull.metablock, raid_set = %decoded.parts.outline.raid_set, ?done, "rebuild");
    let done = done?;
    Ok(pb::RebuildReplicaReply { version: Some(done.version.into()), length: done.length })
}

/// The parts of a RAID set.
struct Parts {
    node: Arc<Node>,
    outline: Outline,
    slots: Vec<Source>,
    rows: Vec<Source>,
    /// What cannot be had: it has no members, or was tried in vain.
    gone: Mutex<BTreeSet<Part>>,
}

impl Parts {
    fn new(node: &Arc<Node>, message: pb::RebuildReplica) -> Result<Self> {
        let outline = Outline::new(message.raid_set, message.code, message.slots.len(), message.rows.len())?;
        let raid_set = outline.raid_set;
        let slots: Vec<Source> =
            message.slots.into_iter().map(|slot| Source::slot(raid_set, slot)).collect::<Result<_>>()?;
        let rows: Vec<Source> =
            message.rows.into_iter().map(|row| Source::row(raid_set, row)).collect::<Result<_>>()?;
        let parts = Self { node: Arc::clone(node), outline, slots, rows, gone: Mutex::default() };
        let lost =
            parts.outline.code.parts().filter(|part| !parts.source(*part).is_some_and(Source::has_members)).collect();
        *parts.gone.lock() = lost;
        Ok(parts)
    }

    fn source(&self, part: Part) -> Option<&Source> {
        match part {
            Part::Slot(slot) => self.slots.get(slot),
            Part::Row(row) => self.rows.get(row),
        }
    }

    fn find(&self, metablock: MetablockId) -> Result<Part> {
        let is_it = |part: &Part| self.source(*part).is_some_and(|source| source.metablock() == metablock);
        let found = self.outline.code.parts().find(is_it);
        found.ok_or_else(|| err!(Invalid, "{metablock} is no part of {}", self.outline.raid_set))
    }

    /// The bytes of `wanted` in `start..end`, from the parts that can be had.
    async fn decode(&self, wanted: Part, start: u64, end: u64) -> Result<Bytes> {
        loop {
            let length = |slot: usize| self.slots.get(slot).map_or(0, Source::length);
            let zeros = (0..self.outline.code.slots()).filter(|slot| length(*slot) <= start).collect();
            let gone = self.gone.lock().clone();
            let parts = self.outline.code.parts().filter(|part| *part != wanted && !gone.contains(part)).collect();
            let plan = self.outline.code.plan_decode(&Present { parts, zeros }, &[wanted])?;
            let sources = plan.sources().iter().filter_map(|source| self.source(source.part));
            let length = (end - start).next_multiple_of(CHUNK_SIZE);
            let pieces = join_all(sources.map(|source| source.read(&self.node, start, length))).await;
            let failed: Vec<Part> = plan
                .sources()
                .iter()
                .zip(&pieces)
                .filter(|(_, piece)| piece.is_err())
                .map(|(source, _)| source.part)
                .collect();
            if !failed.is_empty() {
                // Another plan does without them.
                tracing::debug!(raid_set = %self.outline.raid_set, ?failed, "sources of a rebuild");
                self.gone.lock().extend(failed);
                continue;
            }
            let pieces: Vec<Piece> = pieces.into_iter().flatten().collect();
            let mut out = zeroed(end - start);
            // What others have behind the end of the wanted part is none of it.
            let sources: Vec<&[u8]> =
                pieces.iter().map(|piece| &piece.data[..piece.data.len().min(out.len())]).collect();
            plan.decode(&sources, &mut [&mut out[..]])?;
            return Ok(out.freeze());
        }
    }

    /// What the rows say of the slots: from a row, or from the slots if all of them can be had.
    async fn trailer(&self, wanted: Part) -> Result<Trailer> {
        let row_len = row_len(&self.slots);
        for row in (0..self.outline.code.rows()).filter(|row| Part::Row(*row) != wanted) {
            let source = &self.rows[row];
            if self.gone.lock().contains(&Part::Row(row)) || source.length() <= row_len {
                continue;
            }
            match self.read_trailer(source, row_len).await {
                Ok(trailer) => return Ok(trailer),
                Err(error) => {
                    tracing::info!(raid_set = %self.outline.raid_set, row, %error, "a row whose trailer cannot be used");
                    self.gone.lock().insert(Part::Row(row));
                }
            }
        }
        if matches!(wanted, Part::Slot(_)) {
            bail!(Unavailable, "no row of {} can be had", self.outline.raid_set);
        }
        let mut sums = Vec::with_capacity(self.slots.len());
        for source in &self.slots {
            let (mut known, mut at) = (Vec::new(), 0);
            while at < source.length() {
                known.extend(source.read(&self.node, at, PIECE_BYTES).await?.sums);
                at += PIECE_BYTES;
            }
            sums.push(known);
        }
        Ok(self.outline.trailer(&self.slots, sums))
    }

    async fn read_trailer(&self, source: &Source, row_len: u64) -> Result<Trailer> {
        let found = source.read_range(&self.node, row_len, source.length()).await?;
        let trailer = Trailer::decode(&found, source.length())?;
        let is_ours = |(slot, said): (&Source, &Option<Slot>)| {
            said.as_ref().is_some_and(|said| {
                (said.metablock, said.version, said.length) == (slot.metablock(), slot.version(), slot.length())
            })
        };
        if trailer.raid_set != self.outline.raid_set || !self.slots.iter().zip(&trailer.slots).all(is_ours) {
            bail!(Corrupt, "{} is a row of something else than {}", source.metablock(), self.outline.raid_set);
        }
        Ok(trailer)
    }
}

/// A part that is decoded while it is read.
struct Decoded {
    parts: Parts,
    wanted: Part,
    version: Version,
    length: u64,
    trailer: Trailer,
    /// The end of a row.
    encoded: Bytes,
}

impl Decoded {
    async fn new(node: &Arc<Node>, message: pb::RebuildReplica) -> Result<Self> {
        let metablock = MetablockId::new(message.metablock);
        let parts = Parts::new(node, message)?;
        let wanted = parts.find(metablock)?;
        let trailer = parts.trailer(wanted).await?;
        let source = parts.source(wanted).ok_or_else(|| err!(Internal, "{wanted} was found"))?;
        let (version, length) = (source.version(), source.length());
        let encoded = match wanted {
            Part::Slot(_) => Bytes::new(),
            Part::Row(row) if length != trailer.metablock_len() => {
                bail!(
                    Corrupt,
                    "row {row} of {} has {length} bytes, not {}",
                    parts.outline.raid_set,
                    trailer.metablock_len()
                )
            }
            Part::Row(row) => Trailer { row, ..trailer.clone() }.encode()?.into(),
        };
        Ok(Self { parts, wanted, version, length, trailer, encoded })
    }

    async fn read_chunks(&self, offset: u64, len: u64) -> Result<SourceChunks> {
        let end = (offset + len).min(self.length);
        let (data, checksums) = match self.wanted {
            _ if offset >= end => (Bytes::new(), Vec::new()),
            Part::Slot(slot) => {
                let data = self.parts.decode(self.wanted, offset, end).await?;
                let sums = self.trailer.slots[slot].as_ref().map_or(&[][..], |slot| &slot.sums);
                let chunks = (offset / CHUNK_SIZE) as usize..end.div_ceil(CHUNK_SIZE) as usize;
                (data, sums[chunks].to_vec())
            }
            Part::Row(row) => {
                let row_len = self.trailer.row_len();
                let mut data = Bytes::new();
                if offset < row_len {
                    data = self.parts.decode(self.wanted, offset, end.min(row_len)).await?;
                }
                if end > row_len {
                    let from = offset.max(row_len) - row_len;
                    let rest = &self.encoded[from as usize..(end - row_len) as usize];
                    data = [&data[..], rest].concat().into();
                }
                let sums: Vec<u32> = data.chunks(CHUNK_SIZE as usize).map(crc32c).collect();
                for (chunk, sum) in (offset / CHUNK_SIZE..row_len / CHUNK_SIZE).zip(&sums).filter(|_| row == 0) {
                    if *sum != self.trailer.sum_of_row_zero(chunk)? {
                        bail!(
                            Corrupt,
                            "{}: chunk {chunk} of row 0 is not the sum of its slots",
                            self.parts.outline.raid_set
                        );
                    }
                }
                (data, sums)
            }
        };
        Ok(SourceChunks { version: self.version, length: self.length, checksums, data })
    }
}

impl PullSource for Decoded {
    fn read(&self, _min_version: Version, offset: u64, len: u64) -> PullFuture<'_, SourceChunks> {
        Box::pin(self.read_chunks(offset, len))
    }

    /// Nothing tells holes from zeros, which the copy finds out by itself.
    fn seek(&self, _min_version: Version, offset: u64, hole: bool) -> PullFuture<'_, Found> {
        let found = Some(offset).filter(|offset| !hole && *offset < self.length);
        Box::pin(async move { Ok(Found { offset: found, length: self.length }) })
    }
}
