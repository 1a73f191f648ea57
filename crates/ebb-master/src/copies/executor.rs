//! A copy under way: the file's writers stop, the target pulls, the set changes.

use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::Plant;
use ebb_types::{ErrorKind, Result, Version, bail};
use ebb_wire::{convert, pb};

use super::rejoin;
use super::repair::Reason;
use super::repair::look::{PAUSE, Task, change_set};
use crate::acquire::Turn;
use crate::copies::transfer::transfer;
use crate::leases::{MASTER, Mode};
use crate::shared::Shared;
use crate::work::CopyInProgress;

/// How long writers are kept waiting while a file of theirs is copied. After that the copy goes on and the
/// compare-and-swap at its end decides.
const TURN_MAX: Duration = Duration::from_secs(10);

/// A copy from one volume to another.
pub(crate) struct Copy {
    /// Who is read.
    pub source: pb::Member,
    /// Where it is written.
    pub target: pb::Member,
    /// The set when it is made; none if it stays as it is.
    pub set: Option<Vec<pb::Member>>,
    /// The target was left out of the set and may have everything: it is stamped, and the copy finds nothing to do.
    pub rejoins: Option<pb::LeftOut>,
}

/// Begins a copy, which ends by itself.
pub(crate) fn begin(shared: &Arc<Shared>, task: Task, copy: Copy, reason: Reason) {
    let turn = Turn::take(shared, MASTER, task.inode, Mode::Read);
    let in_progress = CopyInProgress::new(copy.source.node_id(), copy.target.node_id(), task.record.length);
    shared.soft().work.copies.insert(task.metablock, in_progress);
    tracing::info!(metablock = %task.metablock, from = copy.source.node, to = copy.target.node, %reason, "copying");
    let shared = Arc::clone(shared);
    shared.clone().runtime.spawn("copy", async move {
        let done = match settle(&shared, &task, &turn).await {
            // A member that cannot be stamped says nothing of the one that it would be copied from.
            Ok(Some(at)) => match restamp(&shared, &task, &copy, at).await {
                Ok(()) => {
                    let done = carry_out(&shared, &task, &copy, at, &turn).await;
                    note_end(&shared, &task, &copy, &done);
                    done
                }
                refused => refused,
            },
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        drop(turn);
        if let Err(error) = done {
            tracing::info!(metablock = %task.metablock, %error, "copy failed; the set is looked at again");
            // Until then it counts as in progress: any other copy's end would begin it again at once.
            shared.runtime.sleep(PAUSE).await;
        }
        shared.soft().work.copies.remove(&task.metablock);
        shared.state.wake.repair.notify_one();
    });
}

/// What the end of a copy means for what is left to do.
fn note_end(shared: &Shared, task: &Task, copy: &Copy, done: &Result<()>) {
    let mut soft = shared.soft();
    let work = &mut soft.work;
    let (metablock, at_target) = (task.metablock, (task.metablock, copy.target.volume_id()));
    let Err(error) = done else {
        if copy.rejoins.is_some() {
            work.copied.rejoined += 1;
        } else {
            work.copied.count += 1;
            work.copied.bytes += task.record.length;
        }
        if copy.set.is_none() {
            work.on_renewed(metablock, copy.target.volume_id());
        }
        return;
    };
    match copy.set {
        // It is left out as before.
        Some(_) if copy.rejoins.is_some() => {}
        // Whole or in part, it is in no set.
        Some(_) => {
            work.excess.insert((copy.target.volume_id(), metablock));
        }
        None if error.kind() == ErrorKind::NoSpace && work.damaged.contains(&at_target) => {
            work.cramped.insert(at_target);
        }
        None => {}
    }
    if error.kind() == ErrorKind::Corrupt {
        work.on_damage(metablock, copy.source.volume_id());
    }
}

/// Waits until nobody writes to the file; the version that is committed then. `None`: it is gone.
async fn settle(shared: &Arc<Shared>, task: &Task, turn: &Turn) -> Result<Option<Version>> {
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

async fn restamp(shared: &Arc<Shared>, task: &Task, copy: &Copy, at: Version) -> Result<()> {
    match &copy.rejoins {
        Some(left_out) => rejoin::restamp(shared, task, left_out, at).await,
        None => Ok(()),
    }
}

async fn carry_out(shared: &Arc<Shared>, task: &Task, copy: &Copy, at: Version, turn: &Turn) -> Result<()> {
    let pulling = pull(shared, task, copy.source, copy.target, at);
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
    let Some(set) = &copy.set else { return Ok(()) };
    if shared.runtime.has_plant(Plant::EarlyDelete) {
        delete_source(shared, task, copy.source).await;
    }
    // A set never comes to name a node that was switched off since it has the copy: others count on who is on.
    let target = copy.target.node_id();
    if shared.look(|view| view.is_off(target)) {
        bail!(Unavailable, "{target} is switched off by now");
    }
    change_set(shared, task, set.clone()).await
}

/// The planted mistake: the copy is taken for a move, and its source goes while the record still names it.
async fn delete_source(shared: &Shared, task: &Task, source: pb::Member) {
    let replica = pb::DeletedReplica { metablock: task.metablock.raw(), epoch: task.epoch, life: 0 };
    let call = pb::DeleteReplicas { volume: source.volume, replicas: vec![replica] };
    if let Ok(channel) = shared.channel(source.node_id()) {
        let _ = channel.call(&call, shared.options.call_timeout).await;
    }
}

async fn pull(shared: &Shared, task: &Task, source: pb::Member, target: pb::Member, at: Version) -> Result<()> {
    let options = &shared.options;
    let rate = CopyInProgress::new(source.node_id(), target.node_id(), task.record.length)
        .rate(options.copy_rate_bytes_per_sec, options.copies_per_node_max);
    let call = pb::PullReplica {
        metablock: task.metablock.raw(),
        volume: target.volume,
        incarnation: target.incarnation,
        epoch: task.epoch,
        source: None,
        at: Some(at.into()),
        rate_bytes_per_sec: rate,
    };
    let reply = transfer(shared, source, target.node_id(), call, task.record.length).await?;
    let version = convert::version(reply.version);
    if version != at {
        bail!(StaleVersion, "the copy is at {version}, committed is {at}");
    }
    Ok(())
}
