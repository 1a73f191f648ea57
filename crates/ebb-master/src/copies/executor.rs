//! The executor of steps: it chooses the nodes, has the copy made while writers pause, and records the result.
//!
//! Every step comes through [`begin_step`], whatever its reason. A copy counts against the limits of its two nodes from
//! its start to its end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ebb_meta::Machine;
use ebb_runtime::SeededBug;
use ebb_types::{ErrorKind, InodeId, MetablockId, NodeId, Result, Version, bail};
use ebb_wire::pb;
use pb::command::Command as Op;

use super::route::Route;
use super::transfer::{Pull, interval, pull_exactly, wait_max};
use super::{Kind, Obstacle, Outcome, Priority, Step, Task, place, rejoin};
use crate::acquire::Turn;
use crate::leases::{Decision, MASTER, Mode};
use crate::shared::Shared;
use crate::view::SOON_MS;
use crate::work::{CopyInProgress, Origin};

/// Longest pause of a file's writers for a copy. After it the copy continues, and the compare-and-swap at its end
/// decides.
const TURN_MAX: Duration = Duration::from_secs(10);
/// Writers wait for a node that wakes within this time.
const SOON: Duration = Duration::from_millis(SOON_MS);
/// One interval of a power plan in so many has recalls of leases whose holders may have to wait for sleeping members.
const RECALL_PERIOD: u64 = 8;
/// Time for which a failed copy still counts as in progress. Without it, the end of any other copy would start it again
/// at once.
const FAILED_PAUSE: Duration = Duration::from_secs(1);

/// A copy from one volume to another.
struct Copy {
    /// The member that is read.
    source: pb::Member,
    /// The member that gets the copy.
    target: pb::Member,
    /// The record after the copy.
    record: Record,
}

enum Record {
    /// The set becomes this one.
    Set(Vec<pb::Member>),
    /// The set becomes this one. A recovery left the target out, and it may have everything: then it is stamped, and
    /// nothing is copied.
    Rejoined(Vec<pb::Member>, pb::LeftOut),
    /// The set stays as it is.
    Nothing,
    /// The extra copies change like this, unless they have changed otherwise.
    Extras(pb::ChangeExtras),
}

/// Starts a step. A step that cannot start leaves its obstacle for operators.
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
            // A granted metablock without writes has no bytes to copy.
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

/// Changes a set without a copy, unless its file has a writer.
async fn record(shared: &Arc<Shared>, step: &Step, members: Vec<pb::Member>) -> std::result::Result<Outcome, Obstacle> {
    if !step.task.is_kept && !is_free(shared, step.task.inode) {
        return Err(Obstacle::Held);
    }
    let (metablock, reason) = (step.task.metablock, step.reason);
    change_set(shared, &step.task, members).await.map_err(|error| {
        tracing::debug!(%metablock, %error, "a set could not be changed");
        Obstacle::Refused(error.to_string())
    })?;
    tracing::info!(%metablock, %reason, "a set was changed without a copy");
    Ok(Outcome::Recorded)
}

/// Removes an extra copy from the record.
async fn take_back(shared: &Shared, step: &Step, extra: &pb::Member) -> std::result::Result<Outcome, Obstacle> {
    let (metablock, reason) = (step.task.metablock, step.reason);
    let change = change_extras(&shared.group.machine(), metablock, |extras| extras.retain(|one| one != extra));
    let Some(change) = change else { return Ok(Outcome::Recorded) };
    shared.group.propose(Op::ChangeExtras(change)).await.map_err(|error| {
        tracing::debug!(%metablock, %error, "an extra copy could not be removed from the record");
        Obstacle::Refused(error.to_string())
    })?;
    tracing::info!(%metablock, node = extra.node, %reason, "an extra copy was removed from the record");
    Ok(Outcome::Recorded)
}

/// Checks that an extra copy may start now. Programs must never wait for one.
fn check_extra(shared: &Arc<Shared>, step: &Step) -> std::result::Result<(), Obstacle> {
    let running = shared.soft().work.extra_copies.len();
    if step.priority.running_max().is_some_and(|most| running >= most) {
        return Err(Obstacle::TooMany);
    }
    let is_held = shared.group.machine().holder(step.task.inode).is_some();
    if is_held {
        // A holder keeps its lease long after its last write. `is_free` recalls it, and a session that does not write
        // continues to read without it.
        is_free(shared, step.task.inode);
        return Err(Obstacle::Held);
    }
    Ok(())
}

/// Starts a copy as a task of its own.
fn start(shared: &Arc<Shared>, step: Step, copy: Copy) {
    let Step { task, priority, reason, .. } = step;
    let (source, target) = (copy.source.node_id(), copy.target.node_id());
    let in_progress = CopyInProgress::new(source, target, task.record.length, reason);
    tracing::info!(metablock = %task.metablock, from = %source, to = %target, %reason, "a copy starts");
    let own = Arc::clone(shared);
    if matches!(copy.record, Record::Extras(_)) {
        shared.soft().work.extra_copies.insert(task.metablock, in_progress);
        shared.runtime.spawn("extra copy", async move { make_extra(&own, &task, copy, in_progress, priority).await });
        return;
    }
    shared.soft().work.copies.insert(task.metablock, in_progress);
    shared.runtime.spawn("copy", async move {
        if let Err(error) = make(&own, &task, &copy, in_progress, priority).await {
            tracing::info!(metablock = %task.metablock, %error, "a copy failed; its set is tried again");
            own.runtime.sleep(FAILED_PAUSE).await;
        }
        own.soft().work.copies.remove(&task.metablock);
        own.state.wake.repair.notify_one();
    });
}

/// Makes a copy for a set: the two nodes meet, the writers pause, the target pulls, the set changes.
async fn make(
    shared: &Arc<Shared>,
    task: &Task,
    copy: &Copy,
    in_progress: CopyInProgress,
    priority: Priority,
) -> Result<()> {
    let Some(task) = &meet(shared, task, copy).await? else { return Ok(()) };
    // What snapshots alone have, nobody writes.
    let turn = (!task.is_kept).then(|| Turn::queue(shared, MASTER, task.inode, Mode::Read));
    let Some(at) = wait_for_writers(shared, task, turn.as_ref()).await? else { return Ok(()) };
    if wait_of(shared, task, copy) > SOON {
        bail!(Unavailable, "a node fell asleep while the writers gave their lease back, and they wait for none");
    }
    if let Record::Rejoined(_, left_out) = &copy.record {
        // A failed stamp is the member's own fault and must not be blamed on the copy's source.
        rejoin::restamp(shared, task, left_out, at).await?;
    }
    let pull = Pull { rate: rate(shared, in_progress, priority), ..Pull::of(task, copy.source, copy.target, at) };
    let done = carry_out(shared, task, copy, &pull, turn.as_ref()).await;
    note_end(shared, task, copy, &done);
    done
}

/// Waits until the two nodes serve together, and the members of a file that is held, while its writers go on. Returns the
/// task with the epoch of then: writers may have taken the lease meanwhile. `None` means that the metablock is gone.
///
/// A holder gives its lease back when all members have what it wrote. With one of them asleep its writers would wait for
/// that node. Where the members are never awake together, the copy does not wait for them for ever.
async fn meet(shared: &Arc<Shared>, task: &Task, copy: &Copy) -> Result<Option<Task>> {
    let (until, pair_max) = (shared.runtime.now().after(interval(shared) * 2), wait_max(shared));
    loop {
        let pair = wait_of(shared, task, copy);
        if pair > pair_max {
            bail!(
                Unavailable,
                "{} and {} serve together in {pair:?} only",
                copy.source.node_id(),
                copy.target.node_id()
            );
        }
        let members = if task.is_kept { Duration::ZERO } else { wait_of_members(shared, task.inode) };
        let members = members.min(until.since(shared.runtime.now()));
        if pair.is_zero() && members.is_zero() {
            break;
        }
        shared.runtime.sleep(pair.max(members)).await;
    }
    let now = Task::of(&shared.group.machine(), task.metablock);
    // Its file may have lost it meanwhile, or a snapshot may have ended.
    Ok(now.map(|now| Task { epoch: now.epoch, is_kept: now.is_kept, ..task.clone() }))
}

/// How long it takes until every member of a file that is held has been awake. Nothing, for a file without a holder.
fn wait_of_members(shared: &Shared, inode: InodeId) -> Duration {
    let nodes: BTreeSet<NodeId> = {
        let machine = shared.group.machine();
        if machine.holder(inode).is_none() {
            return Duration::ZERO;
        }
        let records = machine.metablocks(inode).unwrap_or_default();
        records.iter().flat_map(|record| &record.members).map(pb::Member::node_id).collect()
    };
    let now_ms = shared.wall_ms();
    let soft = shared.soft();
    let waits = nodes.iter().filter_map(|node| soft.plans.next_wake_ms(*node, now_ms));
    Duration::from_millis(waits.max().map_or(0, |wake_ms| wake_ms.saturating_sub(now_ms)))
}

/// How long it takes until the two nodes serve together. Nothing, if a proxy stands between them.
fn wait_of(shared: &Shared, task: &Task, copy: &Copy) -> Duration {
    let (source, target, bytes) = (copy.source.node_id(), copy.target.node_id(), task.record.length);
    match shared.with_view(|view| view.route(source, target, bytes)) {
        Some(Route::Direct { wait_ms }) => Duration::from_millis(wait_ms),
        Some(Route::ByProxy) | None => Duration::ZERO,
    }
}

/// Waits until the file has no writer, and returns the committed version. `None` means that the metablock is gone.
///
/// Errors: `LeaseHeld` if the holder keeps the lease, `SetChanged` if the set or epoch is no longer the task's.
async fn wait_for_writers(shared: &Arc<Shared>, task: &Task, turn: Option<&Turn>) -> Result<Option<Version>> {
    if let Some(turn) = turn
        && turn.wait(TURN_MAX).await.is_err()
    {
        bail!(LeaseHeld, "the holder of {} has not given the write lease back yet", task.inode);
    }
    // The recalled holder may have committed just now, so the record is read again.
    let Some(now) = Task::of(&shared.group.machine(), task.metablock) else { return Ok(None) };
    if (now.record.generation, now.epoch, now.is_kept) != (task.record.generation, task.epoch, task.is_kept) {
        bail!(SetChanged, "the set changed while its file was recalled");
    }
    Ok(Some(now.record.min_version()))
}

/// Pulls the copy, and changes the set.
async fn carry_out(shared: &Arc<Shared>, task: &Task, copy: &Copy, pulled: &Pull, turn: Option<&Turn>) -> Result<()> {
    let pulling = pull_exactly(shared, pulled);
    tokio::pin!(pulling);
    tokio::select! {
        biased;
        done = &mut pulling => done?,
        () = shared.runtime.sleep(TURN_MAX) => {
            // The writers have waited long enough.
            turn.inspect(|turn| turn.give_up());
            pulling.await?;
        }
    }
    let (Record::Set(set) | Record::Rejoined(set, _)) = &copy.record else { return Ok(()) };
    if shared.runtime.has_bug(SeededBug::EarlyDelete) {
        delete_source(shared, task, copy.source).await;
    }
    // A set must not name a node that was switched off during the copy, because writers count on members that are on.
    let target = copy.target.node_id();
    if shared.with_view(|view| view.is_off(target)) {
        bail!(Unavailable, "{target} is switched off by now");
    }
    change_set(shared, task, set.clone()).await
}

/// Updates the queues of work at the end of a copy.
fn note_end(shared: &Shared, task: &Task, copy: &Copy, done: &Result<()>) {
    let mut soft = shared.soft();
    let work = &mut soft.work;
    let (metablock, volume) = (task.metablock, copy.target.volume_id());
    let Err(error) = done else {
        let origin = if matches!(copy.record, Record::Rejoined(..)) { Origin::OwnReplica } else { Origin::Copied };
        work.copied.on_made(origin, task.record.length);
        if matches!(copy.record, Record::Nothing) {
            work.on_renewed(metablock, volume);
        }
        return;
    };
    match copy.record {
        // The member stays left out.
        Record::Rejoined(..) => {}
        // The target's replica, complete or not, is in no set, so it is deleted.
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

/// Makes an extra copy without a pause of writers. A session that takes the write lease meanwhile raises the file's
/// epoch. Then the record is refused, and the copy becomes a stray.
async fn make_extra(shared: &Shared, task: &Task, copy: Copy, in_progress: CopyInProgress, priority: Priority) {
    let Record::Extras(change) = copy.record else { return };
    let at = task.record.min_version();
    let pulled = Pull { rate: rate(shared, in_progress, priority), ..Pull::of(task, copy.source, copy.target, at) };
    let done = match pull_exactly(shared, &pulled).await {
        Ok(()) => shared.group.propose(Op::ChangeExtras(change)).await.map(drop),
        Err(error) => Err(error),
    };
    // Invariant: a record that is applied in spite of the error removes the replica from `excess` again.
    let machine = shared.group.machine();
    let mut soft = shared.soft();
    soft.work.extra_copies.remove(&task.metablock);
    if let Err(error) = done {
        tracing::info!(metablock = %task.metablock, %error, "an extra copy failed");
        let volume = copy.target.volume_id();
        if !machine.is_placed_on(task.metablock, volume) {
            soft.work.excess.insert((volume, task.metablock));
        }
    }
}

/// Rate of one copy, in bytes per second; 0 means no limit.
fn rate(shared: &Shared, in_progress: CopyInProgress, priority: Priority) -> u64 {
    let of_node = priority.rate(shared.options.copy_rate_bytes_per_sec);
    in_progress.rate(of_node, shared.options.copies_per_node_max)
}

/// The seeded bug: it treats the copy as a move, and deletes the source while the record still names it.
async fn delete_source(shared: &Shared, task: &Task, source: pb::Member) {
    let replica = pb::DeletedReplica { metablock: task.metablock.raw(), epoch: Some(task.promise()), life: 0 };
    let call = pb::DeleteReplicas { volume: source.volume, replicas: vec![replica] };
    if let Ok(channel) = shared.channel(source.node_id()) {
        let _ = channel.call(&call, shared.options.call_timeout).await;
    }
}

/// Whether the file has no holder. Recalls the write lease if there is one, for work that can wait.
///
/// No lease is recalled while a member sleeps, since the holder's writes would wait until that node wakes. Where members are
/// never awake together, one interval in [`RECALL_PERIOD`] has recalls all the same.
pub(crate) fn is_free(shared: &Arc<Shared>, inode: InodeId) -> bool {
    let interval_ms = interval(shared).as_millis() as u64;
    let is_due = shared.wall_ms().checked_div(interval_ms).is_none_or(|number| number.is_multiple_of(RECALL_PERIOD));
    if !is_due && !wait_of_members(shared, inode).is_zero() {
        return false;
    }
    Turn::queue(shared, MASTER, inode, Mode::Read).decide() == Ok(Decision::Granted)
}

/// Changes a set by compare-and-swap on the file's epoch and the set's generation.
// I-13: a lease or a recovery in between makes the change fail.
async fn change_set(shared: &Shared, task: &Task, members: Vec<pb::Member>) -> Result<()> {
    if task.is_kept {
        let change = pb::ChangeKept {
            metablock: task.metablock.raw(),
            generation: task.record.generation,
            version: task.record.version,
            members,
        };
        return shared.group.propose(Op::ChangeKept(change)).await.map(drop);
    }
    let change = pb::MasterChangeSet {
        inode: task.inode.raw(),
        epoch: task.epoch,
        metablock: task.metablock.raw(),
        generation: task.record.generation,
        members,
    };
    shared.group.propose(Op::ChangeSet(change)).await.map(drop)
}

/// The command that changes a metablock's extra copies from their present state. `None` if the metablock is gone.
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
