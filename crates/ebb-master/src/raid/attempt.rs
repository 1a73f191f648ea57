//! One attempt to make a RAID set, up to its Seal.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ebb_layout::Chosen;
use ebb_layout::raid::RaidPlan;
use ebb_meta::{Cold, Reply};
use ebb_types::{Epoch, Error, ErrorKind, InodeId, MetablockId, NodeId, RaidSetId, Result, bail, err};
use ebb_wire::{convert, pb};
use pb::command::Command as Op;

use super::attempts::Attempt;
use super::choose::Batch;
use super::keep::freeze::freeze;
use crate::acquire::Turn;
use crate::copies::route::Route;
use crate::leases::{MASTER, Mode};
use crate::recovery::run::pull_deadline;
use crate::shared::Shared;
use crate::view::SOON_MS;

/// Ids that are taken at once.
const IDS_AT_ONCE: u32 = 256;
/// Time in which all turns of the files are there, or none is waited for any longer. Writers wait meanwhile.
const TURNS_MAX: Duration = Duration::from_secs(2);

/// A RAID set that is being made.
struct Making {
    id: RaidSetId,
    dataset: u64,
    code: pb::RaidCode,
    /// Slot by slot.
    slots: Vec<Cold>,
    /// Members that stay, slot by slot.
    stay: Vec<Vec<pb::Member>>,
    /// Row by row.
    rows: Vec<(MetablockId, pb::Member)>,
    /// RAID sets that end with the Seal: what lives of them is in this one.
    dissolves: Vec<pb::DissolveSet>,
}

/// Starts an attempt as a task of its own.
///
/// Errors: `Busy` or `Unavailable` if it has to wait for its nodes.
pub(crate) async fn begin_attempt(shared: &Arc<Shared>, batch: &Arc<Batch>, plan: RaidPlan) -> Result<()> {
    check_nodes(shared, batch, &plan)?;
    let ids = take_ids(shared, 1 + plan.rows.len()).await?;
    let making = Making::new(batch, &plan, &ids)?;
    let (id, encoder) = (making.id, making.rows[0].1.node_id());
    {
        let mut soft = shared.soft();
        // Another attempt may have begun there while the ids were taken.
        if soft.encoding.is_encoding(encoder) {
            soft.encoding.add_ids(ids.into_iter());
            bail!(Busy, "{encoder} makes another RAID set");
        }
        let rows = making.rows.iter().map(|(metablock, _)| *metablock).collect();
        let slots = making.slots.iter().map(|cold| cold.metablock).collect();
        soft.encoding.add_attempt(id, Attempt { node: encoder, rows, slots });
        // A step would change the record that the Seal compares.
        making.ended().for_each(|old| soft.encoding.keep(old, None));
    }
    tracing::debug!(raid_set = %id, plan = %plan, "an attempt begins");
    let (shared, batch) = (Arc::clone(shared), Arc::clone(batch));
    shared.clone().runtime.spawn("make a RAID set", async move {
        let done = make(&shared, &making).await;
        let mut soft = shared.soft();
        soft.encoding.remove_attempt(id);
        making.ended().for_each(|old| soft.encoding.end_keeping(old));
        match done {
            Ok(()) => {
                let (slots, ended) = (making.slots.len(), making.dissolves.len());
                tracing::info!(raid_set = %id, slots, ended, "a RAID set is sealed");
                shared.state.wake.deletes.notify_one();
            }
            Err(error) => {
                tracing::info!(raid_set = %id, %error, "an attempt at a RAID set failed; its metablocks stay in copies");
                let inodes: BTreeSet<InodeId> = making.held().map(|cold| cold.inode).collect();
                soft.encoding.leave_alone(inodes.into_iter(), shared.runtime.now(), batch.delay);
                // What there is of its rows belongs to nobody. A record that was applied in spite of the error removes it
                // from this list again.
                let rows = making.rows.iter().map(|(metablock, member)| (member.volume_id(), *metablock));
                soft.work.excess.extend(rows);
                shared.state.wake.deletes.notify_one();
            }
        }
    });
    Ok(())
}

/// S-15, S-17a: the nodes serve together, encode nothing else, and keep what is frozen.
fn check_nodes(shared: &Shared, batch: &Batch, plan: &RaidPlan) -> Result<()> {
    let encoder = plan.rows[0].node;
    let copies = plan.slots.iter().filter_map(|slot| batch.cold.get(&slot.metablock)).flat_map(|cold| &cold.members);
    let nodes: BTreeSet<NodeId> = copies.map(pb::Member::node_id).chain(plan.rows.iter().map(|row| row.node)).collect();
    shared.with_view(|view| {
        if view.soft.encoding.is_encoding(encoder) {
            bail!(Busy, "{encoder} makes another RAID set");
        }
        if let Some(old) = nodes.iter().find(|node| !view.soft.encoding.knows_frozen(**node)) {
            bail!(Unavailable, "{old} has not said that it keeps frozen replicas");
        }
        let others = plan.slots.iter().flat_map(|slot| &slot.members).chain(&plan.rows);
        let bytes = plan.longest_bytes();
        for node in others.map(|chosen| chosen.node).filter(|node| *node != encoder) {
            match view.route(node, encoder, bytes) {
                Some(Route::Direct { wait_ms: 0..=SOON_MS }) => {}
                _ => bail!(
                    Unavailable,
                    "its nodes have to serve together, and {node} and {encoder} do not for long enough now"
                ),
            }
        }
        Ok(())
    })
}

async fn take_ids(shared: &Shared, count: usize) -> Result<Vec<u64>> {
    if let Some(ids) = shared.soft().encoding.take_ids(count) {
        return Ok(ids);
    }
    match shared.group.propose(Op::TakeIds(IDS_AT_ONCE)).await? {
        Reply::Ids { first, count: taken } => {
            let mut soft = shared.soft();
            soft.encoding.add_ids(first.raw()..first.raw() + u64::from(taken));
            soft.encoding.take_ids(count).ok_or_else(|| err!(Internal, "{taken} ids are too few for {count}"))
        }
        other => bail!(Internal, "TakeIds was answered with {other:?}"),
    }
}

impl Making {
    fn new(batch: &Batch, plan: &RaidPlan, ids: &[u64]) -> Result<Self> {
        let cold = |metablock: MetablockId| batch.cold.get(&metablock).cloned();
        let slots: Option<Vec<Cold>> = plan.slots.iter().map(|slot| cold(slot.metablock)).collect();
        let Some(slots) = slots else { bail!(Internal, "a plan names a metablock that was no candidate") };
        let code = batch.code;
        let dissolve = |id: &RaidSetId| {
            let generation = *batch.generations.get(id)?;
            Some(pb::DissolveSet { raid_set: id.raw(), generation })
        };
        let dissolves: Option<Vec<_>> = plan.dissolves.iter().map(dissolve).collect();
        let Some(dissolves) = dissolves else { bail!(Internal, "a plan ends a RAID set that was not asked for") };
        let rows = ids[1..].iter().map(|id| MetablockId::new(*id)).zip(plan.rows.iter().map(to_member)).collect();
        Ok(Self {
            id: RaidSetId::new(ids[0]),
            dataset: batch.dataset.raw(),
            code: code.into(),
            stay: plan.slots.iter().map(|slot| slot.members.iter().map(to_member).collect()).collect(),
            slots,
            rows,
            dissolves,
        })
    }

    /// RAID sets that end.
    fn ended(&self) -> impl Iterator<Item = RaidSetId> + '_ {
        self.dissolves.iter().map(|old| RaidSetId::new(old.raid_set))
    }

    /// Slots that a writer may have.
    fn held(&self) -> impl Iterator<Item = &Cold> {
        self.slots.iter().filter(|cold| !cold.is_frozen)
    }
}

fn to_member(chosen: &Chosen) -> pb::Member {
    let home = if chosen.home == chosen.node { 0 } else { chosen.home.raw() };
    let (node, volume, incarnation) = (chosen.node.raw(), chosen.volume.raw(), chosen.incarnation.raw());
    pb::Member { node, volume, incarnation, home }
}

async fn make(shared: &Arc<Shared>, making: &Making) -> Result<()> {
    let rows = encode(shared, making).await?;
    freeze_rows(shared, making, &rows).await?;
    check_frozen(shared, making).await?;
    seal(shared, making, &rows).await
}

/// S-3: when this returns, the rows are synced and proved. Returns version and length of each.
async fn encode(shared: &Shared, making: &Making) -> Result<Vec<pb::EncodedRow>> {
    let hops = |members: &[pb::Member]| members.iter().map(|member| shared.hop(*member)).collect::<Result<Vec<_>>>();
    let mut slots = Vec::with_capacity(making.slots.len());
    for (cold, stay) in making.slots.iter().zip(&making.stay) {
        // What stays is read first: it is what the rows are to go with.
        let others = cold.members.iter().filter(|member| !stay.contains(member)).copied();
        let members: Vec<pb::Member> = stay.iter().copied().chain(others).collect();
        slots.push(pb::EncodeSlot {
            metablock: cold.metablock.raw(),
            version: Some(cold.version.into()),
            length: cold.length,
            sources: hops(&members)?,
        });
    }
    let mut rows = Vec::with_capacity(making.rows.len());
    for (metablock, member) in &making.rows {
        rows.push(pb::EncodeRow { metablock: metablock.raw(), target: Some(shared.hop(*member)?) });
    }
    let (raid_set, code) = (making.id.raw(), Some(making.code));
    let bytes: u64 = slots.iter().map(|slot| slot.length).sum();
    let rate_bytes_per_sec = shared.options.encode_rate_bytes_per_sec;
    let call = pb::EncodeSet { raid_set, code, slots, rows, rate_bytes_per_sec };
    // Written, read back for the proof, and as slow as a copy.
    let deadline = pull_deadline(shared, 2 * bytes);
    let encoder = making.rows[0].1.node_id();
    let reply = shared.channel(encoder)?.call(&call, deadline).await?;
    if reply.rows.len() != making.rows.len() {
        bail!(Protocol, "{encoder} answers {} rows of {}", reply.rows.len(), making.rows.len());
    }
    Ok(reply.rows)
}

/// S-3a: rows promise, and tell version and length, before anything counts on them.
async fn freeze_rows(shared: &Shared, making: &Making, rows: &[pb::EncodedRow]) -> Result<()> {
    for ((metablock, member), row) in making.rows.iter().zip(rows) {
        let found = freeze(shared, *metablock, member, Epoch::FROZEN).await?;
        if found != (convert::version(row.version), row.length) {
            bail!(StaleVersion, "{metablock} on {} is at {} with {} bytes", member.node_id(), found.0, found.1);
        }
    }
    Ok(())
}

/// S-3a: the old rows go with the Seal, so each living slot of theirs is asked once more.
async fn check_frozen(shared: &Shared, making: &Making) -> Result<()> {
    for (cold, stay) in making.slots.iter().zip(&making.stay).filter(|(cold, _)| cold.is_frozen) {
        for member in stay {
            let found = freeze(shared, cold.metablock, member, Epoch::FROZEN).await?;
            if found != (cold.version, cold.length) {
                bail!(
                    StaleVersion,
                    "{} on {} is at {} with {} bytes",
                    cold.metablock,
                    member.node_id(),
                    found.0,
                    found.1
                );
            }
        }
    }
    Ok(())
}

/// S-5: turns are taken for the Seal alone, in one order, all within a short time or not at all.
async fn seal(shared: &Arc<Shared>, making: &Making, rows: &[pb::EncodedRow]) -> Result<()> {
    let inodes: BTreeSet<InodeId> = making.held().map(|cold| cold.inode).collect();
    let until = shared.runtime.now().after(TURNS_MAX);
    let mut turns = Vec::with_capacity(inodes.len());
    for inode in inodes {
        let turn = Turn::queue(shared, MASTER, inode, Mode::Read);
        turn.wait(until.since(shared.runtime.now())).await?;
        turns.push(turn);
    }
    let slot = |cold: &Cold| pb::RaidSlot {
        metablock: cold.metablock.raw(),
        inode: cold.inode.raw(),
        version: Some(cold.version.into()),
        length: cold.length,
        ..Default::default()
    };
    let row = |((metablock, member), row): (&(MetablockId, pb::Member), &pb::EncodedRow)| pb::RaidRow {
        metablock: metablock.raw(),
        member: Some(*member),
        length: row.length,
    };
    let set = pb::RaidSet {
        id: making.id.raw(),
        dataset: making.dataset,
        code: Some(making.code),
        generation: 0,
        slots: making.slots.iter().map(slot).collect(),
        rows: making.rows.iter().zip(rows).map(row).collect(),
    };
    let sealed =
        shared.group.propose(Op::SealSets(pb::SealSets { sets: vec![set], dissolves: making.dissolves.clone() })).await;
    if sealed.as_ref().is_err_and(|error| !is_refusal(error)) {
        // S-2a: nobody judges the rows before it is known what became of the entry. One behind it tells.
        while !shared.is_stopped() && shared.group.propose(Op::TakeIds(1)).await.is_err() {
            shared.runtime.sleep(TURNS_MAX).await;
        }
    }
    sealed.map(drop)
}

/// Whether the state machine refused the entry. Any other error leaves open whether it is applied.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::SetChanged | ErrorKind::Busy | ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Stale
    )
}
