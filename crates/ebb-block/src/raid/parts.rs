//! The parts of a RAID set as sources of one of them.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use ebb_code::{DecodePlan, Part, Present, Slot, Trailer};
use ebb_types::{CHUNK_SIZE, MetablockId, Result, bail, err};
use ebb_wire::frame::crc32c;
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

/// A range of a part, decoded.
struct Decoded {
    bytes: Bytes,
    plan: DecodePlan,
    /// A slot that was made on the way and is not what its writer wrote.
    wrong: Option<Part>,
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

    /// The bytes of `wanted` in `range`, from the parts that can be had, all of which are as they were encoded.
    ///
    /// Every slot that is read or decoded on the way is compared with the trailer. A row of slots that are right is right.
    ///
    /// Errors: `Unavailable` if too few parts can be had; `Corrupt` if nothing that can be decoded matches the trailer.
    pub(super) async fn decode(&self, wanted: Part, range: Range<u64>, trailer: &Trailer) -> Result<Bytes> {
        let first = self.decode_without(None, wanted, &range, trailer).await?;
        let Some(wrong) = first.wrong else { return Ok(first.bytes) };
        // Slots and row 0 were compared before. Of the other rows, nothing but what they decode shows that one lies.
        for suspect in first.plan.sources().iter().map(|source| source.part).filter(|part| !is_checkable(*part)) {
            let without = self.decode_without(Some(suspect), wanted, &range, trailer).await;
            if let Ok(Decoded { bytes, wrong: None, .. }) = without {
                self.condemn(suspect, "it decodes to what was not written");
                return Ok(bytes);
            }
        }
        bail!(Corrupt, "{}: {wrong} is not what was encoded, from whichever parts it is decoded", self.outline.raid_set)
    }

    /// The same with a part left out. What is decoded may be wrong.
    async fn decode_without(
        &self,
        left_out: Option<Part>,
        wanted: Part,
        range: &Range<u64>,
        trailer: &Trailer,
    ) -> Result<Decoded> {
        let slots = 0..self.outline.code.slots();
        let is_zeros = |slot: &usize| self.slots.get(*slot).is_none_or(|slot| slot.length() <= range.start);
        let zeros: BTreeSet<usize> = slots.clone().filter(is_zeros).collect();
        loop {
            let gone = self.gone.lock().clone();
            let can_be_had = |part: &Part| *part != wanted && !gone.contains(part) && Some(*part) != left_out;
            let parts: BTreeSet<Part> = self.outline.code.parts().filter(can_be_had).collect();
            let lacking = slots.clone().filter(|slot| !zeros.contains(slot)).map(Part::Slot);
            // Slots that are made on the way show whether the rows are right.
            let lacking = lacking.filter(|slot| *slot != wanted && !parts.contains(slot));
            let made: Vec<Part> = [wanted].into_iter().chain(lacking).collect();
            let plan = self.outline.code.plan_decode(&Present { parts, zeros: zeros.clone() }, &made)?;
            let Some(pieces) = self.read_sources(&plan, range, trailer).await? else { continue };
            // Whole chunks, as those of slots on the way are compared with their checksums.
            let whole = range.start..range.end.next_multiple_of(CHUNK_SIZE);
            let mut out: Vec<BytesMut> = made.iter().map(|_| zeroed(whole.end - whole.start)).collect();
            let length = out[0].len();
            let sources: Vec<&[u8]> = pieces.iter().map(|piece| &piece.data[..piece.data.len().min(length)]).collect();
            plan.decode(&sources, &mut out.iter_mut().map(|out| &mut out[..]).collect::<Vec<_>>())?;
            let mut wrong = None;
            for (part, bytes) in made.iter().zip(&out) {
                if !self.is_written(*part, &whole, bytes, trailer)? {
                    wrong = Some(*part);
                }
            }
            let mut bytes = out.swap_remove(0);
            // What others have behind the end of the wanted part is none of it.
            bytes.truncate((range.end - range.start) as usize);
            return Ok(Decoded { bytes: bytes.freeze(), plan, wrong });
        }
    }

    /// Whether what was decoded of a slot has its writer's checksums.
    fn is_written(&self, part: Part, range: &Range<u64>, bytes: &[u8], trailer: &Trailer) -> Result<bool> {
        let Part::Slot(slot) = part else { return Ok(true) };
        let shown = (self.slots[slot].length().min(range.end) - range.start) as usize;
        let sums: Vec<u32> = bytes[..shown].chunks(CHUNK_SIZE as usize).map(crc32c).collect();
        is_encoded(part, range.start, &sums, trailer)
    }

    /// Reads what a plan needs. `None` if a source failed or was not what was encoded: another plan does without it.
    async fn read_sources(
        &self,
        plan: &DecodePlan,
        range: &Range<u64>,
        trailer: &Trailer,
    ) -> Result<Option<Vec<Piece>>> {
        let length = (range.end - range.start).next_multiple_of(CHUNK_SIZE);
        let parts = || plan.sources().iter().map(|source| source.part);
        let reads =
            parts().filter_map(|part| self.source(part)).map(|source| source.read(&self.node, range.start, length));
        let mut pieces = Vec::with_capacity(plan.sources().len());
        for (part, piece) in parts().zip(join_all(reads).await) {
            match piece {
                Ok(piece) if is_encoded(part, range.start, &piece.sums, trailer)? => pieces.push(piece),
                Ok(_) => self.condemn(part, "it is not what was encoded"),
                Err(error) => {
                    tracing::debug!(raid_set = %self.outline.raid_set, %part, %error, "a source of a rebuild");
                    self.gone.lock().insert(part);
                }
            }
        }
        Ok((pieces.len() == plan.sources().len()).then_some(pieces))
    }

    /// Does without a part whose checksums are right, and whose bytes are not.
    fn condemn(&self, part: Part, why: &str) {
        if let Some(source) = self.source(part) {
            source.condemn(&self.node, why);
        }
        self.gone.lock().insert(part);
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
        let trailer = source.read_trailer(&self.node, row_len).await?;
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

/// Whether the trailer says what the bytes of a part are: of a slot each checksum, of row 0 the sum of the slots'.
fn is_checkable(part: Part) -> bool {
    matches!(part, Part::Slot(_) | Part::Row(0))
}

/// Whether chunks of these checksums, from `start` on, are those of the part that was encoded. Of rows behind row 0 it cannot be
/// told, and is taken to be so.
fn is_encoded(part: Part, start: u64, sums: &[u32], trailer: &Trailer) -> Result<bool> {
    let first = start / CHUNK_SIZE;
    match part {
        Part::Slot(slot) => {
            let known = trailer.slots.get(slot).and_then(Option::as_ref).map_or(&[][..], |slot| &slot.sums);
            Ok(known.iter().skip(first as usize).take(sums.len()).eq(sums))
        }
        Part::Row(0) => {
            for (chunk, sum) in (first..trailer.row_len() / CHUNK_SIZE).zip(sums) {
                if *sum != trailer.sum_of_row_zero(chunk)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Part::Row(_) => Ok(true),
    }
}
