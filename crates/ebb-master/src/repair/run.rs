//! Carrying repairs out: one small step at a time, throttled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ebb_meta::Machine;
use ebb_runtime::Plant;
use ebb_types::{ErrorKind, HostName, InodeId, MetablockId, NodeId, Result, Version, VolumeId, bail};
use ebb_wire::{convert, pb};
use pb::command::Command as Op;

use super::{Condition, Repair, SetView, choose_repair};
use crate::acquire::Turn;
use crate::leases::{Decision, MASTER, Mode};
use crate::placement::{Need, place};
use crate::recovery::run::pull_deadline;
use crate::registry::Registry;
use crate::repair::queue::{CopyInProgress, Work};
use crate::shared::Shared;

/// How often sets that wait (for a lease, for room, for a node) are looked at again.
const PAUSE: Duration = Duration::from_secs(1);
/// Sets looked at in one go.
const LOOKS_MAX: usize = 2000;
/// Sets that may find all nodes busy before a look around ends: more would only be found waiting too.
const CROWDED_MAX: usize = 16;
/// How long writers are kept waiting while a file of theirs is copied. After that the copy goes on and the
/// compare-and-swap at its end decides.
const TURN_MAX: Duration = Duration::from_secs(10);

/// What the next step for a set needs.
struct Task {
    metablock: MetablockId,
    inode: InodeId,
    epoch: u64,
    record: pb::Metablock,
    dataset: pb::Dataset,
    repair: Repair,
}

enum Look {
    /// As it should be, or gone.
    Settled,
    /// Something is wrong, and nothing can be done now.
    Later,
    /// To do.
    Step(Box<Task>),
}

/// Looks at suspected sets and repairs them. Runs as long as the master.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut from = MetablockId::default();
    let mut scanned = false;
    while !shared.is_stopped() {
        if !scanned && shared.is_safe_start() {
            suspect_all(&shared);
            scanned = true;
        }
        from = look_around(&shared, from).await;
        tokio::select! {
            biased;
            () = shared.state.wake.repair.notified() => shared.runtime.sleep(Duration::from_millis(20)).await,
            () = shared.runtime.sleep(PAUSE) => {}
        }
    }
}

/// After a start every set is looked at once: what was queued before is forgotten.
fn suspect_all(shared: &Shared) {
    let machine = shared.group.snapshot();
    let volumes: Vec<_> = volumes(&machine).collect();
    suspect_volumes(shared, &machine, &volumes);
}

fn volumes(machine: &Machine) -> impl Iterator<Item = VolumeId> + '_ {
    machine
        .nodes()
        .filter_map(|record| record.node.as_ref())
        .flat_map(|node| &node.volumes)
        .map(|volume| VolumeId::new(volume.id))
}

/// Queues every set with a member on one of these volumes.
pub(crate) fn suspect_volumes(shared: &Shared, machine: &Machine, volumes: &[VolumeId]) {
    let mut work = shared.state.work.lock();
    for volume in volumes {
        work.suspects.extend(machine.on_volume(*volume));
    }
    drop(work);
    shared.state.wake.repair.notify_one();
}

/// Looks at the next suspects and starts what can be started. Returns where to go on.
async fn look_around(shared: &Arc<Shared>, from: MetablockId) -> MetablockId {
    let next: Vec<_> = {
        let work = shared.state.work.lock();
        let (behind, before) = (work.suspects.range(from..), work.suspects.range(..from));
        behind.chain(before).filter(|metablock| !work.copies.contains_key(metablock)).take(LOOKS_MAX).copied().collect()
    };
    let all_seen = next.len() < LOOKS_MAX;
    let mut crowded = 0;
    for metablock in &next {
        match look(shared, *metablock) {
            Look::Settled => {
                shared.state.work.lock().suspects.remove(metablock);
            }
            Look::Later => {}
            Look::Step(task) => crowded += usize::from(start(shared, *task).await == Started::NoPair),
        }
        if crowded >= CROWDED_MAX {
            return *metablock;
        }
    }
    if all_seen {
        MetablockId::default()
    } else {
        next.last().map_or_else(MetablockId::default, |last| MetablockId::new(last.raw() + 1))
    }
}

fn look(shared: &Shared, metablock: MetablockId) -> Look {
    let machine = shared.group.machine();
    let Some((inode, record)) = machine.find_metablock(metablock) else { return Look::Settled };
    let (Ok(attr), Ok(dataset)) = (machine.attr(inode), machine.dataset_of(inode)) else { return Look::Settled };
    let registry = shared.state.registry.lock();
    let work = shared.state.work.lock();
    let wanted = attr.replicas.max(1) as usize;
    let members =
        record.members.iter().map(|member| (*member, condition(&machine, &registry, &work, metablock, member)));
    let view = SetView { wanted, members: members.collect() };
    let Some(repair) = choose_repair(&view) else { return Look::Settled };
    // A recovery settles the set first; what was never written has nothing to copy, its holder deals with it.
    if attr.size_unknown || record.min_version() == Version::ZERO || repair == Repair::Impossible {
        return Look::Later;
    }
    Look::Step(Box::new(Task { metablock, inode, epoch: attr.epoch, record, dataset, repair }))
}

/// How a member is, from all that is known.
pub(crate) fn condition(
    machine: &Machine,
    registry: &Registry,
    work: &Work,
    metablock: MetablockId,
    member: &pb::Member,
) -> Condition {
    let (node, volume) = (member.node_id(), member.volume_id());
    if work.damaged.contains(&(metablock, volume)) {
        return Condition::Damaged;
    }
    let record = machine.nodes().find(|record| record.node.as_ref().is_some_and(|known| known.id == member.node));
    let Some(record) = record else { return Condition::Lost };
    let known = record.node.iter().flat_map(|node| &node.volumes).find(|known| known.id == member.volume);
    // Another life of the volume does not have this replica.
    if known.is_none_or(|known| known.incarnation != member.incarnation) || registry.is_lost(node, volume) {
        return Condition::Lost;
    }
    match (registry.is_sound(node, volume), record.draining) {
        (true, false) => Condition::Good,
        (true, true) => Condition::Draining,
        (false, _) => Condition::Unknown,
    }
}

/// Whether a copy found its two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Started {
    Yes,
    /// All nodes that could serve are busy or full.
    NoPair,
}

async fn start(shared: &Arc<Shared>, task: Task) -> Started {
    match task.repair.clone() {
        Repair::Impossible => {}
        Repair::Drop { dropped, staying, reason } => {
            if !is_free(shared, task.inode) {
                return Started::Yes;
            }
            match change_set(shared, &task, staying).await {
                Ok(()) => tracing::info!(metablock = %task.metablock, node = dropped.node, %reason, "member dropped"),
                Err(error) => tracing::debug!(metablock = %task.metablock, %error, "member not dropped"),
            }
        }
        Repair::Copy { sources, staying, reason, .. } => {
            let Some((source, target)) = choose_pair(shared, &task, &sources, &staying) else { return Started::NoPair };
            let turn = Turn::take(shared, MASTER, task.inode, Mode::Read);
            let in_progress = CopyInProgress::new(source.node_id(), target.node_id(), task.record.length);
            shared.state.work.lock().copies.insert(task.metablock, in_progress);
            tracing::info!(metablock = %task.metablock, from = source.node, to = target.node, %reason, "copying");
            let shared = Arc::clone(shared);
            shared.clone().runtime.spawn("copy", async move {
                let (metablock, bytes) = (task.metablock, task.record.length);
                let done = copy(&shared, task, source, target, staying, turn).await;
                {
                    let mut work = shared.state.work.lock();
                    work.copies.remove(&metablock);
                    if done.is_ok() {
                        work.copied.count += 1;
                        work.copied.bytes += bytes;
                    }
                }
                if let Err(error) = done {
                    tracing::info!(%metablock, %error, "copy failed; the set is looked at again");
                    shared.runtime.sleep(PAUSE).await;
                }
                shared.state.wake.repair.notify_one();
            });
        }
    }
    Started::Yes
}

/// Whether nobody holds the file; asks the holder, if there is one, to give the write lease back.
pub(crate) fn is_free(shared: &Arc<Shared>, inode: InodeId) -> bool {
    Turn::take(shared, MASTER, inode, Mode::Read).decide() == Ok(Decision::Granted)
}

/// From which member to which volume. `None`: no room, or all that could serve are busy; later.
fn choose_pair(
    shared: &Shared,
    task: &Task,
    sources: &[pb::Member],
    staying: &[pb::Member],
) -> Option<(pb::Member, pb::Member)> {
    let (busy, strays) = {
        let work = shared.state.work.lock();
        let busy = |node: NodeId| !work.takes(node, task.record.length, shared.options.copies_per_node_max);
        let nodes: BTreeSet<NodeId> = work.copies.values().flat_map(|copy| [copy.source, copy.target]).collect();
        (nodes.into_iter().filter(|node| busy(*node)).collect::<Vec<_>>(), work.strays(task.metablock))
    };
    let source = sources.iter().filter(|source| !busy.contains(&source.node_id()));
    let source = *source.min_by_key(|source| shared.state.work.lock().copy_load(source.node_id()))?;
    let mut exclude = busy;
    exclude.extend(task.record.members.iter().map(pb::Member::node_id));
    exclude.extend(nodes_of(shared, &strays));
    let need = Need {
        inode: task.inode,
        dataset: task.dataset.clone(),
        index: task.record.index,
        writer: HostName::default(),
        preferred: Vec::new(),
        present: staying.iter().map(|member| (member.node_id(), member.volume_id())).collect(),
        replicas: staying.len() + 1,
        exclude,
        bytes: task.record.length,
    };
    match place(shared, &need) {
        Ok(members) => members.first().map(|target| (source, *target)),
        Err(error) => {
            tracing::debug!(metablock = %task.metablock, %error, "no place for a copy now");
            None
        }
    }
}

fn nodes_of(shared: &Shared, volumes: &BTreeSet<VolumeId>) -> Vec<NodeId> {
    let machine = shared.group.machine();
    let nodes = machine.nodes().filter_map(|record| record.node.as_ref());
    let has = |node: &&pb::Node| node.volumes.iter().any(|volume| volumes.contains(&VolumeId::new(volume.id)));
    nodes.filter(has).map(|node| NodeId::new(node.id)).collect()
}

async fn copy(
    shared: &Arc<Shared>,
    task: Task,
    source: pb::Member,
    target: pb::Member,
    mut set: Vec<pb::Member>,
    turn: Turn,
) -> Result<()> {
    if turn.wait(TURN_MAX).await.is_err() {
        bail!(LeaseHeld, "the holder of {} has not given the write lease back yet", task.inode);
    }
    // What was recalled may have been committed just now.
    let at = {
        let machine = shared.group.machine();
        let Some((_, record)) = machine.find_metablock(task.metablock) else { return Ok(()) };
        if (record.generation, machine.attr(task.inode)?.epoch) != (task.record.generation, task.epoch) {
            bail!(SetChanged, "the set changed while its file was recalled");
        }
        record.min_version()
    };
    let pulling = pull(shared, &task, source, target, at);
    tokio::pin!(pulling);
    let pulled = tokio::select! {
        biased;
        done = &mut pulling => done,
        () = shared.runtime.sleep(TURN_MAX) => {
            // Writers have waited long enough.
            turn.give_up();
            pulling.await
        }
    };
    let done = match pulled {
        Ok(()) => {
            set.push(target);
            if shared.runtime.has_plant(Plant::EarlyDelete) {
                delete_source(shared, &task, source).await;
            }
            change_set(shared, &task, set).await
        }
        Err(error) => Err(error),
    };
    if let Err(error) = &done {
        let mut work = shared.state.work.lock();
        // Whole or in part, it is in no set.
        work.excess.insert((target.volume_id(), task.metablock));
        if error.kind() == ErrorKind::Corrupt {
            work.on_damage(task.metablock, source.volume_id());
        }
    }
    done
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
        source: Some(shared.hop(source)?),
        at: Some(at.into()),
        rate_bytes_per_sec: rate,
    };
    // Both must serve for the copy: who wakes later decides.
    shared.awake(source.node_id()).await?;
    shared.awake(target.node_id()).await?;
    let reply = shared.channel(target.node_id())?.call(&call, pull_deadline(shared, task.record.length)).await?;
    let version = convert::version(reply.version);
    if version != at {
        bail!(StaleVersion, "the copy is at {version}, committed is {at}");
    }
    Ok(())
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
    shared.group.propose(Op::ChangeSet(change)).await.map(|_| ())
}
