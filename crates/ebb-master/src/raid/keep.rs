//! Keeps RAID sets: copies leave when all parts are frozen, and lost members are made again ([`step`](super::step)).

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebb_layout::raid::{Held, RaidRule, Sites};
use ebb_runtime::Moment;
use ebb_types::{DatasetId, Epoch, MetablockId, RaidCode, RaidSetId, Result, Version, VolumeId, bail};
use ebb_wire::{convert, pb};
use futures_util::future::join_all;
use pb::command::Command as Op;

use super::choose::held;
use super::step::{Facts, Mend, Step, choose_step};
use crate::copies::repair::Condition;
use crate::placement::volumes;
use crate::recovery::run::pull_deadline;
use crate::registry::Patience;
use crate::shared::Shared;

/// Time between two rounds.
const ROUND: Duration = Duration::from_secs(1);
/// Most RAID sets that are looked at in one round.
const LOOKS_MAX: usize = 2000;
/// Most steps at a time.
const STEPS_MAX: usize = 8;

/// Rule by dataset and code. A RAID set keeps the code with which it was made, whatever its dataset has by now.
///
/// What the nodes hold is counted over all RAID sets, and only for a step that chooses nodes.
type Rules = BTreeMap<(u64, [u32; 3]), Option<(RaidRule, OnceCell<Held>)>>;

/// Looks at all RAID sets in turn, and starts their steps. Runs until the master stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut from = RaidSetId::default();
    let mut lost_since: BTreeMap<(MetablockId, VolumeId), Moment> = BTreeMap::new();
    while !shared.is_stopped() {
        if shared.is_safe_start() {
            from = look_around(&shared, from, &mut lost_since);
        }
        shared.runtime.sleep(ROUND).await;
    }
}

/// Looks at RAID sets from `from` on. Returns where the next round begins.
fn look_around(
    shared: &Arc<Shared>,
    from: RaidSetId,
    lost_since: &mut BTreeMap<(MetablockId, VolumeId), Moment>,
) -> RaidSetId {
    let machine = shared.group.snapshot();
    if machine.raid_count() == 0 {
        lost_since.clear();
        return RaidSetId::default();
    }
    let sets: Vec<pb::RaidSet> = machine.raid_sets_from(from).take(LOOKS_MAX).collect();
    let (view, exclude) = shared.with_view(|view| (volumes(view, Patience::Prompt), view.busy_nodes(u64::MAX)));
    let sites = Sites::of(&view);
    let mut rules = Rules::new();
    let now = shared.runtime.now();
    for set in &sets {
        let id = RaidSetId::new(set.id);
        {
            let soft = shared.soft();
            if soft.encoding.is_kept(id) || soft.encoding.kept_count() >= STEPS_MAX {
                continue;
            }
        }
        let raw = set.code.unwrap_or_default();
        let code = RaidCode { copies: raw.copies, slots: raw.slots, rows: raw.rows };
        let dataset = DatasetId::new(set.dataset);
        let rule = rules.entry((set.dataset, [raw.copies, raw.slots, raw.rows])).or_insert_with(|| {
            let chain = shared.soft().chains.chain(dataset)?;
            let layout = chain.layout();
            let rule = RaidRule::new(&sites, layout, Some(chain).filter(|_| layout.has_chain()), code).ok()?;
            Some((rule, OnceCell::new()))
        });
        let Some((rule, known)) = rule.as_ref() else { continue };
        let held = || known.get_or_init(|| held(&machine, dataset));
        let conditions = conditions_of(shared, set);
        note_lost(lost_since, &conditions, now);
        let after = shared.options.rebuild_after;
        let is_overdue = |metablock, volume| {
            lost_since.get(&(metablock, volume)).is_some_and(|since: &Moment| now.since(*since) >= after)
        };
        let facts = Facts {
            set,
            code,
            sites: &sites,
            rule,
            held: &held,
            conditions,
            is_overdue: &is_overdue,
            exclude: &exclude,
        };
        match choose_step(&facts) {
            None => {}
            Some(Step::Wait(reason)) => tracing::debug!(raid_set = %id, reason, "a RAID set waits"),
            Some(step) => begin_step(shared, set.clone(), step),
        }
    }
    match sets.last() {
        Some(last) if sets.len() == LOOKS_MAX => RaidSetId::new(last.id + 1),
        _ => RaidSetId::default(),
    }
}

fn conditions_of(shared: &Shared, set: &pb::RaidSet) -> BTreeMap<(MetablockId, VolumeId), Condition> {
    let slots =
        set.slots.iter().flat_map(|slot| [(slot.metablock, &slot.members[..]), (slot.metablock, &slot.leaving[..])]);
    let rows = set.rows.iter().map(|row| (row.metablock, row.member.as_slice()));
    shared.with_view(|view| {
        let condition = |(metablock, member): (u64, &pb::Member)| {
            let metablock = MetablockId::new(metablock);
            ((metablock, member.volume_id()), view.condition(metablock, member))
        };
        let members =
            slots.chain(rows).flat_map(|(metablock, members)| members.iter().map(move |one| (metablock, one)));
        members.map(condition).collect()
    })
}

fn note_lost(
    lost_since: &mut BTreeMap<(MetablockId, VolumeId), Moment>,
    conditions: &BTreeMap<(MetablockId, VolumeId), Condition>,
    now: Moment,
) {
    for (place, condition) in conditions {
        if matches!(condition, Condition::NodeLost | Condition::VolumeLost) {
            lost_since.entry(*place).or_insert(now);
        } else {
            lost_since.remove(place);
        }
    }
}

/// Starts a step as a task of its own.
fn begin_step(shared: &Arc<Shared>, set: pb::RaidSet, step: Step) {
    let id = RaidSetId::new(set.id);
    shared.soft().encoding.keep(id);
    let own = Arc::clone(shared);
    shared.runtime.spawn("keep a RAID set", async move {
        let done = match &step {
            Step::Thin(stay) => thin(&own, &set, stay).await,
            Step::Drop => drop_copies(&own, &set).await,
            Step::Mend(mend) => make_again(&own, &set, mend).await,
            Step::Wait(_) => Ok(()),
        };
        match done {
            Ok(()) => tracing::debug!(raid_set = %id, ?step, "a step of a RAID set"),
            Err(error) => {
                tracing::info!(raid_set = %id, %error, "a step of a RAID set failed; it is chosen anew");
                own.runtime.sleep(ROUND).await;
            }
        }
        own.soft().encoding.end_keeping(id);
        own.state.wake.deletes.notify_one();
    });
}

/// S-7: every member that stays has promised, and told exactly what is recorded.
async fn thin(shared: &Arc<Shared>, set: &pb::RaidSet, stay: &[Vec<pb::Member>]) -> Result<()> {
    let stays = set.slots.iter().zip(stay).map(|(slot, members)| (slot, &members[..]));
    freeze_parts(shared, set, stays).await?;
    let stay = stay.iter().map(|members| pb::Placement { members: members.clone() }).collect();
    let thin = pb::ThinSet { raid_set: set.id, generation: set.generation, stay };
    shared.group.propose(Op::ThinSet(thin)).await.map(drop)
}

/// S-8a: a fresh look at every part, and what leaves is needed no more.
async fn drop_copies(shared: &Arc<Shared>, set: &pb::RaidSet) -> Result<()> {
    freeze_parts(shared, set, set.slots.iter().map(|slot| (slot, &slot.members[..]))).await?;
    let gone = pb::DropCopies { raid_set: set.id, generation: set.generation };
    shared.group.propose(Op::DropCopies(gone)).await.map(drop)
}

/// Freezes these members of slots, and all rows. Each answer says that the replica is sound.
async fn freeze_parts<'a>(
    shared: &Arc<Shared>,
    set: &'a pb::RaidSet,
    slots: impl Iterator<Item = (&'a pb::RaidSlot, &'a [pb::Member])>,
) -> Result<()> {
    let mut parts = Vec::new();
    for (slot, members) in slots {
        let promise = promise_of(slot.inode == 0);
        parts.extend(members.iter().map(|member| (slot.metablock, *member, promise, Some(slot.version), slot.length)));
    }
    for row in &set.rows {
        parts.extend(row.member.map(|member| (row.metablock, member, Epoch::FROZEN, None, row.length)));
    }
    let frozen = parts.into_iter().map(|(metablock, member, promise, version, length)| async move {
        let found = freeze(shared, MetablockId::new(metablock), &member, promise).await?;
        let is_right = match version {
            Some(version) => found == (convert::version(version), length),
            None => found.0.epoch == ROW_EPOCH && found.1 == length,
        };
        if !is_right {
            // Another version than what was encoded: this copy is not what the others stand for.
            shared.soft().work.on_damage(MetablockId::new(metablock), member.volume_id());
            bail!(Corrupt, "m{metablock} on n{} is at {} with {} bytes", member.node, found.0, found.1);
        }
        Ok(())
    });
    join_all(frozen).await.into_iter().collect()
}

/// Epoch of the encoder's writes.
const ROW_EPOCH: Epoch = Epoch::new(1);

/// What a part promises.
const fn promise_of(is_ballast: bool) -> Epoch {
    if is_ballast { Epoch::RETIRED } else { Epoch::FROZEN }
}

/// Has one replica promise, and returns its version and length.
pub(super) async fn freeze(
    shared: &Shared,
    metablock: MetablockId,
    member: &pb::Member,
    promise: Epoch,
) -> Result<(Version, u64)> {
    let name = pb::ReplicaName { metablock: metablock.raw(), volume: member.volume, incarnation: member.incarnation };
    let call = pb::PromiseEpoch { epoch: promise.raw(), replicas: vec![name] };
    let reply = shared.ask(member.node_id(), &call, shared.options.call_timeout).await?;
    let Some(promised) = reply.replicas.into_iter().next() else {
        bail!(Protocol, "{} does not say whether it froze {metablock}", member.node_id());
    };
    convert::failure(promised.failure)?;
    Ok((convert::version(promised.version), promised.length))
}

/// Makes a member again, by a copy or by decoding, and records it.
async fn make_again(shared: &Arc<Shared>, set: &pb::RaidSet, mend: &Mend) -> Result<()> {
    let target = mend.target.unwrap_or(mend.replaced);
    let (version, length, members) = recorded(set, mend)?;
    tracing::info!(
        raid_set = set.id, metablock = %mend.metablock, part = ?mend.part, on = %target.node_id(),
        decoded = mend.source.is_none(), "a member of a RAID set is made again"
    );
    let reached = match mend.source {
        Some(source) => copy(shared, set, mend, &source, &target, (version, length)).await?,
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

async fn copy(
    shared: &Arc<Shared>,
    set: &pb::RaidSet,
    mend: &Mend,
    source: &pb::Member,
    target: &pb::Member,
    (version, length): (Option<Version>, u64),
) -> Result<(Version, u64)> {
    let call = pb::PullReplica {
        metablock: mend.metablock.raw(),
        volume: target.volume,
        incarnation: target.incarnation,
        epoch: promise_of(mend.is_ballast).raw(),
        source: Some(shared.hop(*source)?),
        at: Some(version.unwrap_or(Version::new(ROW_EPOCH, 1)).into()),
        rate_bytes_per_sec: shared.options.copy_rate_bytes_per_sec,
        source_metablock: 0,
        raid_set: set.id,
        front_bytes: 0,
    };
    let reply = shared.channel(target.node_id())?.call(&call, pull_deadline(shared, length)).await?;
    Ok((convert::version(reply.version), reply.length))
}

async fn rebuild(
    shared: &Arc<Shared>,
    set: &pb::RaidSet,
    mend: &Mend,
    target: &pb::Member,
    length: u64,
) -> Result<(Version, u64)> {
    let is_good = |metablock: MetablockId, member: &pb::Member| {
        shared.with_view(|view| matches!(view.condition(metablock, member), Condition::Good | Condition::Draining))
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
    };
    let deadline = pull_deadline(shared, length * u64::from(set.code.unwrap_or_default().slots));
    let reply = shared.channel(target.node_id())?.call(&call, deadline).await?;
    Ok((convert::version(reply.version), reply.length))
}
