//! Degraded reads: bytes of a metablock that no member gives now, decoded from the other slots and rows of its RAID set.
//!
//! Nothing that is decoded is given out unless it matches the checksums that its writer made. A row's trailer has them. If it
//! does not match, the part that lies is sought ([`decoding`]), and reported.

mod decoding;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ebb_code::{Code, Part, Trailer};
use ebb_types::{CHUNK_SIZE, Error, ErrorKind, MetablockId, Result, Version, bail, err};
use ebb_wire::{convert, pb};

use self::decoding::{Decoding, Parts};
use crate::power::deliver::verify;
use crate::read::fetch::Wanted;
use crate::read::raid_sets;
use crate::shared::Shared;
use crate::write::members;

/// Deadline of the read of one source.
const DEADLINE: Duration = Duration::from_secs(2);
/// Bytes of a trailer that are read at once.
const PIECE_BYTES: u64 = 1 << 20;
/// The version that every row has at least. Its writer is the encoder, and writes under epoch 1.
const ROW_VERSION: Version = Version::new(ebb_types::Epoch::new(1), 1);

/// Whether a metablock has a RAID set.
pub(crate) fn is_possible(wanted: &Wanted) -> bool {
    wanted.record.is_in_raid_set()
}

/// Whether decoding need not wait for a member: each of them is asleep, dead or silent.
pub(crate) fn is_due(shared: &Shared, wanted: &Wanted) -> bool {
    is_possible(wanted) && !wanted.record.members.iter().any(|member| can_be_asked(shared, member))
}

fn can_be_asked(shared: &Shared, member: &pb::Member) -> bool {
    !shared.awake_for(member.node_id()).is_asleep() && !shared.nodes.is_lost(member.node)
}

/// A RAID set, and the slot of it that is wanted.
struct Sources {
    shared: Arc<Shared>,
    set: Arc<pb::RaidSet>,
    code: Code,
    slot: usize,
}

/// One part as it is read: metablock, version, length and members.
struct Place {
    metablock: u64,
    min_version: Version,
    length: u64,
    members: Vec<pb::Member>,
}

impl Sources {
    async fn of(shared: &Arc<Shared>, record: &pb::Metablock) -> Result<Self> {
        let id = record.id;
        let set = raid_sets::of_metablock(shared, id).await?;
        let raw = set.code.unwrap_or_default();
        let code = Code::new(raw.slots as usize, raw.rows as usize)?;
        let slot = set.slots.iter().position(|slot| slot.metablock == id);
        let slot = slot.ok_or_else(|| err!(Protocol, "rs{} has no slot for m{id}", set.id))?;
        let found = &set.slots[slot];
        // S-14a: a file that has lost the metablock, or written to it, has another record by now.
        if found.inode == 0 || convert::version(found.version) != record.min_version() {
            shared.raid_sets.forget(id);
            bail!(StaleVersion, "m{id} is not what it was: its slot of rs{} is of another time", set.id);
        }
        Ok(Self { shared: Arc::clone(shared), set, code, slot })
    }

    fn place(&self, part: Part) -> Place {
        match part {
            Part::Slot(slot) => {
                let slot = &self.set.slots[slot];
                let members = slot.members.iter().chain(&slot.leaving).copied().collect();
                let min_version = convert::version(slot.version);
                Place { metablock: slot.metablock, min_version, length: slot.length, members }
            }
            Part::Row(row) => {
                let row = &self.set.rows[row];
                let members = row.member.into_iter().collect();
                Place { metablock: row.metablock, min_version: ROW_VERSION, length: row.length, members }
            }
        }
    }
}

impl Parts for Sources {
    fn may_have(&self, part: Part) -> bool {
        self.place(part).members.iter().any(|member| can_be_asked(&self.shared, member))
    }

    async fn read(&self, part: Part, start: u64, end: u64) -> Result<Bytes> {
        read_place(&self.shared, self.set.id, &self.place(part), start, end).await
    }
}

/// Decodes a range; fewer bytes than wanted if the metablock ends before.
///
/// Errors: `Unavailable` if too few parts can be had now; `StaleVersion` if the record is out of date; `Corrupt` if nothing
/// that can be decoded is what was written.
pub(crate) async fn read(shared: &Arc<Shared>, wanted: &Wanted) -> Result<Bytes> {
    let sources = Sources::of(shared, &wanted.record).await?;
    let length = sources.place(Part::Slot(sources.slot)).length;
    // Whole chunks: a file that was cut shows less than its metablock has.
    let (start, end) = (wanted.offset, (wanted.offset + wanted.len).next_multiple_of(CHUNK_SIZE).min(length));
    if start >= end {
        return Ok(Bytes::new());
    }
    let trailer = trailer_of(shared, wanted, &sources).await?;
    let sums = sums_of(&trailer, &sources, wanted, start..end)?;
    let mut decoding = Decoding {
        parts: &sources,
        code: sources.code,
        slot: sources.slot,
        lengths: sources.set.slots.iter().map(|slot| slot.length).collect(),
        gone: BTreeSet::new(),
    };
    let decoded = decoding.run(start, end, |bytes| verify(bytes, sums, wanted.record.id, start, end - start)).await;
    let decoded = decoded.inspect_err(|error| {
        shared.metrics.corrupt_reads.add(u64::from(error.kind() == ErrorKind::Corrupt));
    })?;
    shared.metrics.degraded_reads.add(1);
    shared.metrics.degraded_source_bytes.add(decoded.source_bytes);
    if let Some((part, wrong)) = &decoded.liar {
        shared.metrics.corrupt_reads.add(1);
        report(shared, &sources.place(*part), wrong);
    }
    let shown = decoded.bytes.len().min(usize::try_from(wanted.len).unwrap_or(usize::MAX));
    Ok(decoded.bytes.slice(..shown))
}

/// A request to make a slot again, of the parts that can be asked now. The caller says where.
///
/// Errors: `NotFound` if the metablock is in no RAID set; `StaleVersion` if the record is out of date.
pub(crate) async fn rebuild_message(shared: &Arc<Shared>, record: &pb::Metablock) -> Result<pb::RebuildReplica> {
    let sources = Sources::of(shared, record).await?;
    let hops = |place: Place| {
        let there = place.members.iter().filter(|member| can_be_asked(shared, member));
        there.filter_map(|member| Some(shared.nodes.hop(member).ok()?.to_message())).collect()
    };
    let slots = sources.set.slots.iter().enumerate().map(|(number, slot)| {
        // What is asked for cannot be had, or it would be copied.
        let sources = if number == sources.slot { Vec::new() } else { hops(sources.place(Part::Slot(number))) };
        pb::EncodeSlot { metablock: slot.metablock, version: slot.version, length: slot.length, sources }
    });
    let rows = sources.set.rows.iter().enumerate().map(|(number, row)| pb::RebuildRow {
        metablock: row.metablock,
        length: row.length,
        sources: hops(sources.place(Part::Row(number))),
    });
    let (slots, rows) = (slots.collect(), rows.collect());
    Ok(pb::RebuildReplica { raid_set: sources.set.id, code: sources.set.code, slots, rows, ..Default::default() })
}

/// Reads one part from one of its members: the whole range, fewer bytes if the part ends before.
async fn read_place(shared: &Arc<Shared>, raid_set: u64, place: &Place, start: u64, end: u64) -> Result<Bytes> {
    let end = end.min(place.length);
    if start >= end {
        return Ok(Bytes::new());
    }
    let mut last = err!(Unavailable, "no member of m{} can be asked now", place.metablock);
    for member in place.members.iter().filter(|member| can_be_asked(shared, member)) {
        match read_from(shared, raid_set, place, member, start, end).await {
            Ok(bytes) => return Ok(bytes),
            Err(error) => {
                members::report(shared, MetablockId::new(place.metablock), *member, &error);
                if error.kind() == ErrorKind::NoReplica {
                    shared.raid_sets.forget(place.metablock);
                }
                last = error;
            }
        }
    }
    Err(last)
}

async fn read_from(
    shared: &Arc<Shared>,
    raid_set: u64,
    place: &Place,
    member: &pb::Member,
    start: u64,
    end: u64,
) -> Result<Bytes> {
    let hop = shared.nodes.hop(member)?;
    let length = (end - start).next_multiple_of(CHUNK_SIZE);
    let message = pb::ReadReplica {
        metablock: place.metablock,
        volume: member.volume,
        min_version: Some(place.min_version.into()),
        offset: start,
        length,
        queue_max: None,
        raid_set,
        sums_only: false,
    };
    let reply = members::read(shared, &hop, &message, DEADLINE).await?;
    let (version, found) = (convert::version(reply.message.version), reply.message.length);
    // S-14: of a slot exactly what was encoded. A row has one writer, and one length.
    let is_right = if place.min_version == ROW_VERSION {
        version.epoch == ROW_VERSION.epoch
    } else {
        version == place.min_version
    };
    if !is_right || found != place.length {
        bail!(StaleVersion, "n{} has m{} at {version} with {found} bytes", member.node, place.metablock);
    }
    verify(&reply.payload, &reply.message.checksums, place.metablock, start, length)?;
    if (reply.payload.len() as u64) < end - start {
        bail!(Protocol, "n{} gave {} bytes of m{}", member.node, reply.payload.len(), place.metablock);
    }
    // What follows the range in the last chunk is no part of it.
    Ok(reply.payload.slice(..usize::try_from(end - start).expect("a range fits into memory")))
}

/// The trailer of any row that can be had.
async fn trailer_of(shared: &Arc<Shared>, wanted: &Wanted, sources: &Sources) -> Result<Arc<Trailer>> {
    let id = sources.set.id;
    if let Some(known) = shared.raid_sets.trailer(id) {
        return Ok(known);
    }
    let row_len = sources.set.slots.iter().map(|slot| slot.length).max().unwrap_or(0).next_multiple_of(CHUNK_SIZE);
    let mut last = err!(Unavailable, "no row of rs{id} can be had");
    for row in 0..sources.code.rows() {
        let place = sources.place(Part::Row(row));
        match read_trailer(shared, id, &place, row_len).await {
            Ok(trailer) => return Ok(shared.raid_sets.keep_trailer(trailer)),
            Err(error) => {
                tracing::debug!(metablock = wanted.record.id, raid_set = id, row, %error, "a trailer");
                last = error;
            }
        }
    }
    Err(last)
}

async fn read_trailer(shared: &Arc<Shared>, id: u64, place: &Place, row_len: u64) -> Result<Trailer> {
    let mut found = BytesMut::new();
    let mut at = row_len;
    while at < place.length {
        let piece = read_place(shared, id, place, at, place.length.min(at + PIECE_BYTES)).await?;
        at += piece.len() as u64;
        found.extend_from_slice(&piece);
    }
    let trailer = Trailer::decode(&found, place.length)?;
    if trailer.raid_set.raw() != id {
        bail!(Corrupt, "m{} says that it is a row of {}, not of rs{id}", place.metablock, trailer.raid_set);
    }
    Ok(trailer)
}

/// The writer's checksums of the range, if the trailer is about what is wanted.
fn sums_of<'a>(trailer: &'a Trailer, sources: &Sources, wanted: &Wanted, range: Range<u64>) -> Result<&'a [u32]> {
    let place = sources.place(Part::Slot(sources.slot));
    let slot = trailer.slots.get(sources.slot).and_then(Option::as_ref);
    let is_it = |slot: &&ebb_code::Slot| {
        (slot.metablock.raw(), slot.version, slot.length) == (place.metablock, place.min_version, place.length)
    };
    let Some(slot) = slot.filter(is_it) else {
        bail!(Corrupt, "the rows of rs{} are of something else than m{}", sources.set.id, wanted.record.id);
    };
    let (first, last) = ((range.start / CHUNK_SIZE) as usize, range.end.div_ceil(CHUNK_SIZE) as usize);
    Ok(&slot.sums[first..last])
}

fn report(shared: &Arc<Shared>, place: &Place, why: &Error) {
    if let Some(member) = place.members.first() {
        let error = Error::new(ErrorKind::Corrupt, format!("what it gives does not go with its RAID set: {why}"));
        members::report(shared, MetablockId::new(place.metablock), *member, &error);
    }
}
