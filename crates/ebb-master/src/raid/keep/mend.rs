//! Members that are made again, by a copy or by decoding, and copies for a dataset that wants no RAID sets any more.

use std::sync::Arc;

use ebb_types::{DatasetId, Epoch, HostName, InodeId, MetablockId, Result, Version, bail};
use ebb_wire::{convert, pb};
use pb::command::Command as Op;

use super::ROW_EPOCH;
use super::freeze::promise_of;
use crate::copies::transfer::{Pull, pull};
use crate::placement::{Need, place_roomy};
use crate::raid::step::Mend;
use crate::recovery::run::pull_deadline;
use crate::shared::Shared;

/// Makes a member again, by a copy or by decoding, and records it.
pub(super) async fn make_again(shared: &Arc<Shared>, set: &pb::RaidSet, mend: &Mend) -> Result<()> {
    let target = mend.target.unwrap_or(mend.replaced);
    let (version, length, members) = recorded(set, mend)?;
    tracing::info!(
        raid_set = set.id, metablock = %mend.metablock, part = ?mend.part, on = %target.node_id(),
        decoded = mend.source.is_none(), "a member of a RAID set is made again"
    );
    let reached = match mend.source {
        Some(source) => {
            let promise = promise_of(mend.is_ballast);
            copy(shared, set, (mend.metablock, promise), &source, &target, (version, length)).await?
        }
        None => rebuild(shared, set, mend, &target, length).await?,
    };
    let is_right = version.map_or(reached.0.epoch == ROW_EPOCH, |version| reached.0 == version);
    if !is_right || reached.1 != length {
        bail!(StaleVersion, "{} was made at {} with {} bytes", mend.metablock, reached.0, reached.1);
    }
    shared.soft().work.on_renewed(mend.metablock, target.volume_id());
    if mend.target.is_none() {
        return Ok(());
    }
    let members = members.iter().map(|member| if member.is_at(&mend.replaced) { target } else { *member }).collect();
    let moved =
        pb::MoveFrozen { raid_set: set.id, generation: set.generation, metablock: mend.metablock.raw(), members };
    let recorded = shared.group.propose(Op::MoveFrozen(moved)).await.map(drop);
    // Recorded or not, one of the two is in no record. What is recorded is left alone.
    let mut soft = shared.soft();
    for member in [&target, &mend.replaced] {
        soft.work.excess.insert((member.volume_id(), mend.metablock));
    }
    recorded
}

/// Version, length and members of a part. Of a row no version is recorded.
fn recorded(set: &pb::RaidSet, mend: &Mend) -> Result<(Option<Version>, u64, Vec<pb::Member>)> {
    let raw = mend.metablock.raw();
    if let Some(slot) = set.slots.iter().find(|slot| slot.metablock == raw) {
        return Ok((Some(convert::version(slot.version)), slot.length, slot.members.clone()));
    }
    match set.rows.iter().find(|row| row.metablock == raw) {
        Some(row) => Ok((None, row.length, row.member.into_iter().collect())),
        None => bail!(Internal, "{} is no part of rs{}", mend.metablock, set.id),
    }
}

/// Has `target` copy a part of a RAID set.
async fn copy(
    shared: &Arc<Shared>,
    set: &pb::RaidSet,
    part: (MetablockId, Epoch),
    source: &pb::Member,
    target: &pb::Member,
    (version, length): (Option<Version>, u64),
) -> Result<(Version, u64)> {
    let (metablock, promise) = part;
    let wanted = Pull {
        metablock,
        source: *source,
        target: *target,
        epoch: promise.raw(),
        at: version.unwrap_or(Version::new(ROW_EPOCH, 1)),
        length,
        rate: shared.options.copy_rate_bytes_per_sec,
        raid_set: set.id,
    };
    pull(shared, &wanted).await
}

async fn rebuild(
    shared: &Arc<Shared>,
    set: &pb::RaidSet,
    mend: &Mend,
    target: &pb::Member,
    length: u64,
) -> Result<(Version, u64)> {
    let is_good = |metablock: MetablockId, member: &pb::Member| {
        shared.with_view(|view| view.condition(metablock, member).is_source())
    };
    let hops = |metablock: u64, members: &[&pb::Member]| -> Result<Vec<pb::Hop>> {
        let metablock = MetablockId::new(metablock);
        let is_other = metablock != mend.metablock;
        let good = members.iter().filter(|member| is_other && is_good(metablock, member));
        good.map(|member| shared.hop(**member)).collect()
    };
    let mut slots = Vec::with_capacity(set.slots.len());
    for slot in &set.slots {
        // What leaves is a source until it has gone.
        let members: Vec<&pb::Member> = slot.members.iter().chain(&slot.leaving).collect();
        let sources = hops(slot.metablock, &members)?;
        slots.push(pb::EncodeSlot { metablock: slot.metablock, version: slot.version, length: slot.length, sources });
    }
    let mut rows = Vec::with_capacity(set.rows.len());
    for row in &set.rows {
        let members: Vec<&pb::Member> = row.member.iter().collect();
        rows.push(pb::RebuildRow {
            metablock: row.metablock,
            length: row.length,
            sources: hops(row.metablock, &members)?,
        });
    }
    let call = pb::RebuildReplica {
        raid_set: set.id,
        code: set.code,
        slots,
        rows,
        metablock: mend.metablock.raw(),
        volume: target.volume,
        incarnation: target.incarnation,
        epoch: promise_of(mend.is_ballast).raw(),
        rate_bytes_per_sec: shared.options.copy_rate_bytes_per_sec,
        heir: 0,
        front_bytes: 0,
        // Its checksums may be right, and its bytes no part of the RAID set.
        anew: mend.target.is_none(),
    };
    let deadline = pull_deadline(shared, length * u64::from(set.code.unwrap_or_default().slots));
    let reply = shared.channel(target.node_id())?.call(&call, deadline).await?;
    Ok((convert::version(reply.version), reply.length))
}

/// Gives a slot one copy more: one that was leaving comes back, or another node copies it.
pub(super) async fn return_copy(shared: &Arc<Shared>, set: &pb::RaidSet, metablock: MetablockId) -> Result<()> {
    let Some(slot) = set.slots.iter().find(|slot| slot.metablock == metablock.raw()) else {
        bail!(Internal, "{metablock} is no slot of rs{}", set.id);
    };
    let is_good = |member: &&pb::Member| shared.with_view(|view| view.condition(metablock, member).is_source());
    let target = match slot.leaving.iter().find(is_good) {
        Some(back) => *back,
        None => {
            let Some(source) = slot.members.iter().find(is_good) else {
                bail!(Unavailable, "no copy of {metablock} can be read now");
            };
            // Not by the file: it may be gone, and snapshots have the metablock.
            let dataset = shared.group.machine().dataset(DatasetId::new(set.dataset)).cloned();
            let Some(dataset) = dataset else { bail!(NotFound, "rs{} is in no dataset any more", set.id) };
            let fresh = Need::fresh(InodeId::new(slot.inode), dataset, 0, HostName::default(), slot.length);
            let need = Need { present: slot.members.clone(), replicas: slot.members.len() + 1, ..fresh };
            let version = convert::version(slot.version);
            let Some(target) = place_roomy(shared, &need)?.into_iter().next() else {
                bail!(NoSpace, "no node for a copy of {metablock}");
            };
            copy(shared, set, (metablock, Epoch::FROZEN), source, &target, (Some(version), slot.length)).await?;
            target
        }
    };
    let members = slot.members.iter().copied().chain([target]).collect();
    let moved = pb::MoveFrozen { raid_set: set.id, generation: set.generation, metablock: metablock.raw(), members };
    let recorded = shared.group.propose(Op::MoveFrozen(moved)).await.map(drop);
    // Recorded or not: what is in no record is a stray, and what is recorded is left alone.
    shared.soft().work.excess.insert((target.volume_id(), metablock));
    recorded
}

/// The way back to copies is over.
pub(super) async fn dissolve(shared: &Arc<Shared>, set: &pb::RaidSet) -> Result<()> {
    let gone = pb::DissolveSet { raid_set: set.id, generation: set.generation };
    shared.group.propose(Op::DissolveSet(gone)).await.map(drop)
}
