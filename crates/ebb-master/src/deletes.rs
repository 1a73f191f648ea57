//! Deletion of replicas on their volumes: replicas of deleted metablocks, and strays, which the map does not name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ebb_power::NodeState;
use ebb_runtime::SeededBug;
use ebb_types::{Epoch, InodeId, MetablockId, NodeId, Result, VolumeId};
use ebb_wire::{convert, pb};
use pb::command::Command as Op;

use crate::copies::executor::is_free;
use crate::copies::repair::Condition;
use crate::describe::describe;
use crate::shared::Shared;
use crate::view::{ClusterView, nodes};
use crate::work::ReplicaKey;

const PAUSE: Duration = Duration::from_secs(1);
/// Time for which deletions are gathered, so that they go out together.
const GATHER: Duration = Duration::from_millis(250);
/// Maximum number of metablocks in one call.
const NAMES_MAX: usize = 1000;

/// Deletes replicas, after safe start. Runs until the master stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    while !shared.is_stopped() {
        // I-17: before safe start an out-of-date map could make good replicas look superfluous.
        if shared.is_safe_start() {
            delete_all(&shared).await;
        }
        tokio::select! {
            biased;
            () = shared.state.wake.deletes.notified() => shared.runtime.sleep(GATHER).await,
            () = shared.runtime.sleep(PAUSE) => {}
        }
    }
}

async fn delete_all(shared: &Arc<Shared>) {
    let tasks: Vec<_> = sound_volumes(shared)
        .into_iter()
        .filter(|(_, volume)| has_work(shared, *volume))
        .map(|(node, volume)| {
            let shared = Arc::clone(shared);
            shared.clone().runtime.spawn("delete", async move {
                if let Err(error) = delete_on(&shared, node, volume).await {
                    tracing::info!(%node, %volume, %error, "replicas could not be deleted; it is tried again");
                }
            })
        })
        .collect();
    for task in tasks {
        let _ = task.join().await;
    }
}

/// Volumes that are live and not poisoned.
fn sound_volumes(shared: &Shared) -> Vec<(NodeId, VolumeId)> {
    let machine = shared.group.machine();
    let soft = shared.soft();
    let nodes = nodes(&machine);
    let all = nodes.flat_map(|node| node.volumes.iter().map(|volume| (NodeId::new(node.id), VolumeId::new(volume.id))));
    all.filter(|(node, volume)| soft.registry.is_sound(*node, *volume)).collect()
}

/// Whether live volumes have freed replicas to delete, or have deleted some and may not have reported their free space
/// since.
pub(crate) fn is_deleting(shared: &Shared) -> bool {
    let reported_within = shared.options.heartbeat * 2;
    let freed = shared.soft().work.freed;
    freed.is_some_and(|freed| shared.runtime.now().since(freed) < reported_within)
        || sound_volumes(shared)
            .into_iter()
            .any(|(_, volume)| shared.group.machine().deleted_on(volume).next().is_some())
}

fn has_work(shared: &Shared, volume: VolumeId) -> bool {
    let machine = shared.group.machine();
    machine.deleted_on(volume).next().is_some() || !strays(shared, volume).is_empty()
}

async fn delete_on(shared: &Arc<Shared>, node: NodeId, volume: VolumeId) -> Result<()> {
    let deleted: Vec<MetablockId> = shared.group.machine().deleted_on(volume).take(NAMES_MAX).collect();
    if !deleted.is_empty() {
        // Ids are never reused, so any replica of a deleted metablock may go, whatever its life.
        let all = deleted.iter().map(|metablock| freed(*metablock, 0)).collect();
        send(shared, node, volume, all).await?;
        let metablocks = deleted.iter().map(|metablock| metablock.raw()).collect();
        // Ordering: the record of a deletion is dropped only after the volume has made the deletion durable.
        shared.group.propose(Op::DropDeleted(pb::DropDeleted { volume: volume.raw(), metablocks })).await?;
        shared.state.wake.deletes.notify_one();
    }
    delete_strays(shared, node, volume).await
}

async fn delete_strays(shared: &Arc<Shared>, node: NodeId, volume: VolumeId) -> Result<()> {
    let candidates = strays(shared, volume);
    if candidates.is_empty() {
        return Ok(());
    }
    // Ordering: first ask which replica the volume has, then read a map that is not older. I-26: a replica can join a
    // set only through a copy, which gives it another life. So this call, however late it arrives, cannot hit a member.
    let asked = [asked_of(node, volume, &candidates), members_of(shared, &candidates)].concat();
    let described = describe(shared, asked).await;
    shared.group.read_barrier().await?;
    let Verdict { gone, kept, held } = sort_strays(shared, volume, &candidates, &described);
    for inode in held {
        // A holder keeps its lease long after its last write. `is_free` recalls it, and the stray is assessed again
        // afterwards.
        is_free(shared, inode);
    }
    let sent: Vec<MetablockId> = gone.iter().map(|one| MetablockId::new(one.metablock)).collect();
    if !gone.is_empty() {
        send(shared, node, volume, gone).await?;
    }
    let mut soft = shared.soft();
    let work = &mut soft.work;
    for metablock in sent.into_iter().chain(kept) {
        work.excess.remove(&(volume, metablock));
    }
    Ok(())
}

/// The replicas on one volume, as questions for [`describe`].
fn asked_of(node: NodeId, volume: VolumeId, metablocks: &[MetablockId]) -> Vec<(MetablockId, pb::Member)> {
    let member = pb::Member { node: node.raw(), volume: volume.raw(), incarnation: 0, home: 0 };
    metablocks.iter().map(|metablock| (*metablock, member)).collect()
}

/// Members of the metablocks' sets that are sound and awake, as questions for [`describe`].
fn members_of(shared: &Shared, metablocks: &[MetablockId]) -> Vec<(MetablockId, pb::Member)> {
    shared.with_view(|view| {
        let record = |metablock: &MetablockId| Some((*metablock, view.machine.find_record(*metablock)?));
        let members = metablocks
            .iter()
            .filter_map(record)
            .flat_map(|(metablock, record)| record.members.into_iter().map(move |one| (metablock, one)));
        let can_be_asked = |member: &pb::Member| {
            view.soft.registry.is_sound(member.node_id(), member.volume_id())
                && view.soft.plans.state(member.node_id(), view.now_ms) == NodeState::Awake
        };
        members.filter(|(_, member)| can_be_asked(member)).collect()
    })
}

/// Whether a set has as many good copies as wanted without its strays, by the members' own recent answers.
///
/// A member that sleeps by the power plan cannot be asked. It cannot have lost anything meanwhile, so it counts.
// I-85: the answers are fresh; the map alone does not show how good the copies are.
fn is_dispensable(
    view: &ClusterView<'_>,
    record: &pb::Metablock,
    wanted: usize,
    described: &BTreeMap<ReplicaKey, pb::DescribedReplica>,
) -> bool {
    let (metablock, committed) = (record.metablock_id(), record.min_version());
    let is_awake = |member: &pb::Member| view.soft.plans.state(member.node_id(), view.now_ms) == NodeState::Awake;
    let is_good = |member: &&pb::Member| match view.condition(metablock, member) {
        Condition::Good | Condition::Draining | Condition::Unknown if !is_awake(member) => true,
        Condition::Good | Condition::Draining => described
            .get(&(metablock, member.volume_id()))
            .is_some_and(|one| !one.absent && !one.corrupt && convert::version(one.version) >= committed),
        _ => false,
    };
    let nodes: BTreeSet<u64> = record.members.iter().filter(is_good).map(|member| member.node).collect();
    nodes.len() >= wanted
}

/// The deletion of an id that is not in use any more. `life`: which replica is meant; 0: any.
fn freed(metablock: MetablockId, life: u64) -> pb::DeletedReplica {
    pb::DeletedReplica { metablock: metablock.raw(), epoch: None, life }
}

fn strays(shared: &Shared, volume: VolumeId) -> Vec<MetablockId> {
    let soft = shared.soft();
    let work = &soft.work;
    let all = work.excess.range((volume, MetablockId::default())..).take_while(|(on, _)| *on == volume);
    all.map(|(_, metablock)| *metablock).take(NAMES_MAX).collect()
}

/// Decision about strays. A stray that is in none of the lists waits for another round.
#[derive(Default)]
struct Verdict {
    /// Strays to delete now.
    gone: Vec<pb::DeletedReplica>,
    /// Strays that are members of their set by now, or no longer there.
    kept: Vec<MetablockId>,
    /// Files whose strays wait until the holder's lease is back.
    held: BTreeSet<InodeId>,
}

fn sort_strays(
    shared: &Shared,
    volume: VolumeId,
    candidates: &[MetablockId],
    described: &BTreeMap<ReplicaKey, pb::DescribedReplica>,
) -> Verdict {
    let machine = shared.group.machine();
    let soft = shared.soft();
    let view = shared.view(&machine, &soft);
    // The seeded bug trusts the map alone.
    let is_by_map = shared.runtime.has_bug(SeededBug::MapAlone);
    let Verdict { mut gone, mut kept, mut held } = Verdict::default();
    for metablock in candidates.iter().copied() {
        let stray = match described.get(&(metablock, volume)) {
            // The volume did not answer, so it is asked again.
            None => continue,
            Some(none) if none.life == 0 => {
                kept.push(metablock);
                continue;
            }
            Some(stray) => stray,
        };
        let life = stray.life;
        if machine.is_placed_on(metablock, volume) || machine.is_left_out(metablock, volume) {
            kept.push(metablock);
            continue;
        }
        // S-2: a Seal may name it yet.
        if soft.encoding.is_a_row(metablock) {
            continue;
        }
        let Some(record) = machine.find_record(metablock) else {
            // A RAID set's own: another member has it, and this volume may have it again.
            let is_owned = machine.raid_set_of(metablock).is_some();
            let epoch = is_owned.then_some(Epoch::RETIRED.raw());
            gone.push(pb::DeletedReplica { epoch, ..freed(metablock, life) });
            continue;
        };
        // S-8a: nobody writes to what is frozen, so its holder does not matter, and no recovery takes a replica of it.
        let frozen = record.frozen.is_some();
        // A holder, a recovery or a repair may be about to take this very replica into the set.
        let file = machine.find_metablock(metablock).map(|(inode, _)| inode);
        if let Some(inode) = file.filter(|inode| !frozen && machine.holder(*inode).is_some()) {
            held.insert(inode);
            continue;
        }
        // What no file has any more is at its last epoch.
        let (epoch, replicas) = match file.map(|inode| machine.attr(inode)) {
            None => (record.min_version().epoch.raw(), 0),
            Some(Ok(attr)) if frozen || !attr.size_unknown => (attr.epoch, attr.replicas),
            Some(_) => continue,
        };
        // A replica newer than the file's epoch in this log is from a history that the log cannot explain, so it stays.
        let is_newer = convert::version(stray.version).epoch.raw() > epoch;
        let wanted = if frozen { record.members.len() } else { replicas.max(1) as usize };
        if is_newer || !(is_by_map || is_dispensable(&view, &record, wanted, described)) {
            continue;
        }
        let work = &soft.work;
        if !work.copies.contains_key(&metablock) && !work.extra_copies.contains_key(&metablock) {
            let epoch = if frozen { Epoch::FROZEN.raw() } else { epoch };
            gone.push(pb::DeletedReplica { metablock: metablock.raw(), epoch: Some(epoch), life });
        }
    }
    Verdict { gone, kept, held }
}

async fn send(shared: &Shared, node: NodeId, volume: VolumeId, replicas: Vec<pb::DeletedReplica>) -> Result<()> {
    let call = pb::DeleteReplicas { volume: volume.raw(), replicas };
    // Unlinking many files takes a disk a while.
    shared.awake(node).await?;
    shared.channel(node)?.call(&call, shared.options.call_timeout * 4).await?;
    shared.soft().work.freed = Some(shared.runtime.now());
    Ok(())
}
