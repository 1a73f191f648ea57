//! Carries steps out: finds the nodes, has the copy made while writers stop, and records what is there.
//!
//! Every step comes by [`begin_step`], whatever it is for. A copy is counted against its two nodes from here until its end.

use std::sync::Arc;
use std::time::Duration;

use ebb_meta::Machine;
use ebb_runtime::Plant;
use ebb_types::{ErrorKind, InodeId, MetablockId, Result, Version, bail};
use ebb_wire::pb;
use pb::command::Command as Op;

use super::transfer::{Pull, pull};
use super::{Kind, Obstacle, Outcome, Priority, Step, Task, place, rejoin};
use crate::acquire::Turn;
use crate::leases::{Decision, MASTER, Mode};
use crate::shared::Shared;
use crate::work::CopyInProgress;

/// How long writers are kept waiting while a file of theirs is copied. After that the copy goes on and the
/// compare-and-swap at its end decides.
const TURN_MAX: Duration = Duration::from_secs(10);
/// A copy that failed counts as under way for so long: any other copy's end would begin it again at once.
const FAILED_PAUSE: Duration = Duration::from_secs(1);

/// A copy from one volume to another.
struct Copy {
    /// The member that is read.
    source: pb::Member,
    /// Where it is written.
    target: pb::Member,
    /// What is recorded when it is made.
    record: Record,
}

enum Record {
    /// The set becomes this one.
    Set(Vec<pb::Member>),
    /// The same; the target was left out of the set and may have everything: it is stamped, and the copy finds nothing to do.
    Rejoined(Vec<pb::Member>, pb::LeftOut),
    /// Nothing: the set stays as it is.
    Nothing,
    /// The extra copies become these, if nothing has changed by then.
    Extras(pb::ChangeExtras),
}

/// Begins a step. What does not begin now leaves its obstacle to be asked for.
pub(crate) async fn begin_step(shared: &Arc<Shared>, step: Step) -> Outcome {
    let (metablock, reason) = (step.task.metablock, step.reason);
    let outcome = try_step(shared, step).await.unwrap_or_else(Outcome::Not);
    let mut soft = shared.soft();
    match &outcome {
        Outcome::Not(obstacle) => soft.work.on_obstacle(metablock, reason, obstacle.clone(), shared.runtime.now()),
        Outcome::Copying | Outcome::Recorded => soft.work.on_begun(metablock),
    }
    drop(soft);
    outcome
}

async fn try_step(shared: &Arc<Shared>, step: Step) -> std::result::Result<Outcome, Obstacle> {
    let copy = match &step.kind {
        Kind::Change { members } => return record(shared, &step, members.clone()).await,
        Kind::TakeBack { extra } => return take_back(shared, &step, extra).await,
        Kind::Renew { member } => {
            let source = shared.with_view(|view| place::source_for(view, &step, member))?;
            Copy { source, target: *member, record: Record::Nothing }
        }
        Kind::Rejoin { left_out, staying } => {
            let target = left_out.member.ok_or_else(|| Obstacle::Refused("a record without a member".to_owned()))?;
            let source = shared.with_view(|view| place::source_for(view, &step, &target))?;
            let set = staying.iter().copied().chain([target]).collect();
            Copy { source, target, record: Record::Rejoined(set, *left_out) }
        }
        Kind::Join { target, seats } => {
            let present = seats.iter().flatten().copied().collect();
            let joins = place::target(shared, &step, *target, present)?;
            let set: Vec<pb::Member> = seats.iter().map(|seat| seat.unwrap_or(joins)).collect();
            // Nobody has anything of what was granted and never written, so there is nothing to copy.
            if !step.task.record.is_written() {
                return record(shared, &step, set).await;
            }
            let source = shared.with_view(|view| place::source(view, &step, joins.node_id()))?;
            Copy { source, target: joins, record: Record::Set(set) }
        }
        Kind::Extra => {
            check_extra(shared, &step)?;
            let (source, target) = place::extra_pair(shared, &step)?;
            let change = change_extras(&shared.group.machine(), step.task.metablock, |extras| extras.push(target));
            let change = change.ok_or_else(|| Obstacle::Refused("it is gone".to_owned()))?;
            Copy { source, target, record: Record::Extras(change) }
        }
    };
    start(shared, step, copy);
    Ok(Outcome::Copying)
}

/// Changes a set without a copy, if nobody writes to its file.
async fn record(shared: &Arc<Shared>, step: &Step, members: Vec<pb::Member>) -> std::result::Result<Outcome, Obstacle> {
    if !is_free(shared, step.task.inode) {
        return Err(Obstacle::Held);
    }
    let (metablock, reason) = (step.task.metablock, step.reason);
    change_set(shared, &step.task, members).await.map_err(|error| {
        tracing::debug!(%metablock, %error, "set not changed");
        Obstacle::Refused(error.to_string())
    })?;
    tracing::info!(%metablock, %reason, "set changed without a copy");
    Ok(Outcome::Recorded)
}

async fn take_back(shared: &Shared, step: &Step, extra: &pb::Member) -> std::result::Result<Outcome, Obstacle> {
    let (metablock, reason) = (step.task.metablock, step.reason);
    let change = change_extras(&shared.group.machine(), metablock, |extras| extras.retain(|one| one != extra));
    let Some(change) = change else { return Ok(Outcome::Recorded) };
    shared.group.propose(Op::ChangeExtras(change)).await.map_err(|error| {
        tracing::debug!(%metablock, %error, "extra copy not taken back yet");
        Obstacle::Refused(error.to_string())
    })?;
    tracing::info!(%metablock, node = extra.node, %reason, "extra copy taken back");
    Ok(Outcome::Recorded)
}

/// Whether an extra copy may begin: users do not wait for one.
fn check_extra(shared: &Arc<Shared>, step: &Step) -> std::result::Result<(), Obstacle> {
    let running = shared.soft().work.extra_copies.len();
    if step.priority.running_max().is_some_and(|most| running >= most) {
        return Err(Obstacle::TooMany);
    }
    let is_held = shared.group.machine().holder(step.task.inode).is_some();
    if is_held {
        // A lease is kept long after its last write: a session that does not write goes on reading without it.
        is_free(shared, step.task.inode);
        return Err(Obstacle::Held);
    }
    Ok(())
}

/// Starts a copy, which ends by itself.
fn start(shared: &Arc<Shared>, step: Step, copy: Copy) {
    let Step { task, priority, reason, .. } = step;
    let (source, target) = (copy.source.node_id(), copy.target.node_id());
    let in_progress = CopyInProgress::new(source, target, task.record.length, reason);
    tracing::info!(metablock = %task.metablock, from = %source, to = %target, %reason, "copying");
    let own = Arc::clone(shared);
    if matches!(copy.record, Record::Extras(_)) {
        shared.soft().work.extra_copies.insert(task.metablock, in_progress);
        shared.runtime.spawn("extra copy", async move { make_extra(&own, &task, copy, in_progress, priority).await });
        return;
    }
    let turn = Turn::queue(shared, MASTER, task.inode, Mode::Read);
    shared.soft().work.copies.insert(task.metablock, in_progress);
    shared.runtime.spawn("copy", async move {
        if let Err(error) = make(&own, &task, &copy, in_progress, priority, turn).await {
            tracing::info!(metablock = %task.metablock, %error, "copy failed; the set is looked at again");
            own.runtime.sleep(FAILED_PAUSE).await;
        }
        own.soft().work.copies.remove(&task.metablock);
        own.state.wake.repair.notify_one();
    });
}

/// Makes a copy for a set: writers stop, the target pulls, the set changes.
async fn make(
    shared: &Arc<Shared>,
    task: &Task,
    copy: &Copy,
    in_progress: CopyInProgress,
    priority: Priority,
    turn: Turn,
) -> Result<()> {
    let Some(at) = wait_for_writers(shared, task, &turn).await? else { return Ok(()) };
    if let Record::Rejoined(_, left_out) = &copy.record {
        // A member that cannot be stamped says nothing of the one that it would be copied from.
        rejoin::restamp(shared, task, left_out, at).await?;
    }
    let pull = Pull { rate: rate(shared, in_progress, priority), ..Pull::of(task, copy.source, copy.target, at) };
    let done = carry_out(shared, task, copy, &pull, &turn).await;
    note_end(shared, task, copy, &done);
    done
}

/// Waits until nobody writes to the file; the version that is committed then. `None`: it is gone.
async fn wait_for_writers(shared: &Arc<Shared>, task: &Task, turn: &Turn) -> Result<Option<Version>> {
    if turn.wait(TURN_MAX).await.is_err() {
        bail!(LeaseHeld, "the holder of {} has not given the write lease back yet", task.inode);
    }
    // What was recalled may have been committed just now.
    let machine = shared.group.machine();
    let Some((_, record)) = machine.find_metablock(task.metablock) else { return Ok(None) };
    if (record.generation, machine.attr(task.inode)?.epoch) != (task.record.generation, task.epoch) {
        bail!(SetChanged, "the set changed while its file was recalled");
    }
    Ok(Some(record.min_version()))
}

async fn carry_out(shared: &Arc<Shared>, task: &Task, copy: &Copy, pulled: &Pull, turn: &Turn) -> Result<()> {
    let pulling = pull(shared, pulled);
    tokio::pin!(pulling);
    tokio::select! {
        biased;
        done = &mut pulling => done?,
        () = shared.runtime.sleep(TURN_MAX) => {
            // Writers have waited long enough.
            turn.give_up();
            pulling.await?;
        }
    }
    let (Record::Set(set) | Record::Rejoined(set, _)) = &copy.record else { return Ok(()) };
    if shared.runtime.has_plant(Plant::EarlyDelete) {
        delete_source(shared, task, copy.source).await;
    }
    // A set never comes to name a node that was switched off since it has the copy: others count on nodes that are on.
    let target = copy.target.node_id();
    if shared.with_view(|view| view.is_off(target)) {
        bail!(Unavailable, "{target} is switched off by now");
    }
    change_set(shared, task, set.clone()).await
}

/// What the end of a copy means for what is left to do.
fn note_end(shared: &Shared, task: &Task, copy: &Copy, done: &Result<()>) {
    let mut soft = shared.soft();
    let work = &mut soft.work;
    let (metablock, volume) = (task.metablock, copy.target.volume_id());
    let Err(error) = done else {
        work.copied.on_made(matches!(copy.record, Record::Rejoined(..)), task.record.length);
        if matches!(copy.record, Record::Nothing) {
            work.on_renewed(metablock, volume);
        }
        return;
    };
    match copy.record {
        // It is left out as before.
        Record::Rejoined(..) => {}
        // Whole or in part, it is in no set.
        Record::Set(_) | Record::Extras(_) => drop(work.excess.insert((volume, metablock))),
        Record::Nothing if error.kind() == ErrorKind::NoSpace && work.damaged.contains(&(metablock, volume)) => {
            work.cramped.insert((metablock, volume));
        }
        Record::Nothing => {}
    }
    if error.kind() == ErrorKind::Corrupt {
        work.on_damage(metablock, copy.source.volume_id());
    }
}

/// Makes an extra copy. Nobody is kept waiting: a session that takes the write lease meanwhile raises the file's epoch, the record
/// at the end is refused, and what was copied is a stray.
async fn make_extra(shared: &Shared, task: &Task, copy: Copy, in_progress: CopyInProgress, priority: Priority) {
    let Record::Extras(change) = copy.record else { return };
    let at = task.record.min_version();
    let pulled = Pull { rate: rate(shared, in_progress, priority), ..Pull::of(task, copy.source, copy.target, at) };
    let done = match pull(shared, &pulled).await {
        Ok(()) => shared.group.propose(Op::ChangeExtras(change)).await.map(drop),
        Err(error) => Err(error),
    };
    // Invariant: as it is applied, a record that came after all takes it out of what is excess again.
    let machine = shared.group.machine();
    let mut soft = shared.soft();
    soft.work.extra_copies.remove(&task.metablock);
    if let Err(error) = done {
        tracing::info!(metablock = %task.metablock, %error, "no extra copy");
        let volume = copy.target.volume_id();
        if !machine.is_placed_on(task.metablock, volume) {
            soft.work.excess.insert((volume, task.metablock));
        }
    }
}

/// Bytes a second for one copy; 0: no limit.
fn rate(shared: &Shared, in_progress: CopyInProgress, priority: Priority) -> u64 {
    let of_node = priority.rate(shared.options.copy_rate_bytes_per_sec);
    in_progress.rate(of_node, shared.options.copies_per_node_max)
}

/// The planted mistake: the copy is taken for a move, and its source goes while the record still names it.
async fn delete_source(shared: &Shared, task: &Task, source: pb::Member) {
    let replica = pb::DeletedReplica { metablock: task.metablock.raw(), epoch: Some(task.epoch), life: 0 };
    let call = pb::DeleteReplicas { volume: source.volume, replicas: vec![replica] };
    if let Ok(channel) = shared.channel(source.node_id()) {
        let _ = channel.call(&call, shared.options.call_timeout).await;
    }
}

/// Whether nobody holds the file; asks the holder, if there is one, to give the write lease back.
pub(crate) fn is_free(shared: &Arc<Shared>, inode: InodeId) -> bool {
    Turn::queue(shared, MASTER, inode, Mode::Read).decide() == Ok(Decision::Granted)
}

/// Compare-and-swap on the file's epoch and the set's generation: a lease or a recovery in between makes it fail.
async fn change_set(shared: &Shared, task: &Task, members: Vec<pb::Member>) -> Result<()> {
    let change = pb::MasterChangeSet {
        inode: task.inode.raw(),
        epoch: task.epoch,
        metablock: task.metablock.raw(),
        generation: task.record.generation,
        members,
    };
    shared.group.propose(Op::ChangeSet(change)).await.map(drop)
}

/// The command that changes the extra copies of a metablock from what they are now; none if it is gone.
fn change_extras(
    machine: &Machine,
    metablock: MetablockId,
    change: impl FnOnce(&mut Vec<pb::Member>),
) -> Option<pb::ChangeExtras> {
    let (inode, record) = machine.find_metablock(metablock)?;
    let mut members = record.extra.clone();
    change(&mut members);
    Some(pb::ChangeExtras {
        inode: inode.raw(),
        epoch: machine.attr(inode).ok()?.epoch,
        metablock: metablock.raw(),
        generation: record.generation,
        before: record.extra,
        members,
    })
}
