//! The parts of a RAID set as sources of one of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use ebb_code::{Part, Present, Slot, Trailer};
use ebb_types::{CHUNK_SIZE, MetablockId, Result, bail, err};
use ebb_wire::pb;
use futures_util::future::join_all;
use parking_lot::Mutex;

use super::ends::{Piece, Source};
use super::{Outline, PIECE_BYTES, row_len, zeroed};
use crate::node::Node;

/// The parts of a RAID set.
pub(super) struct Parts {
    node: Arc<Node>,
    pub(super) outline: Outline,
    slots: Vec<Source>,
    rows: Vec<Source>,
    /// What cannot be had: it has no members, or was tried in vain.
    gone: Mutex<BTreeSet<Part>>,
}

impl Parts {
    pub(super) fn new(node: &Arc<Node>, message: pb::RebuildReplica) -> Result<Self> {
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

    pub(super) fn source(&self, part: Part) -> Option<&Source> {
        match part {
            Part::Slot(slot) => self.slots.get(slot),
            Part::Row(row) => self.rows.get(row),
        }
    }

    pub(super) fn find(&self, metablock: MetablockId) -> Result<Part> {
        let is_it = |part: &Part| self.source(*part).is_some_and(|source| source.metablock() == metablock);
        let found = self.outline.code.parts().find(is_it);
        found.ok_or_else(|| err!(Invalid, "{metablock} is no part of {}", self.outline.raid_set))
    }

    /// The bytes of `wanted` in `start..end`, from the parts that can be had.
    pub(super) async fn decode(&self, wanted: Part, start: u64, end: u64) -> Result<Bytes> {
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
    pub(super) async fn trailer(&self, wanted: Part) -> Result<Trailer> {
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
