//! Carrying repairs out: one small step at a time, throttled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ebb_meta::Machine;
use ebb_types::{HostName, InodeId, MetablockId, NodeId, Result, Version, VolumeId};
use ebb_wire::pb;
use pb::command::Command as Op;

use super::copy::{Copy, begin};
use super::{Condition, Reason, Repair, SetView, choose_repair};
use crate::acquire::Turn;
use crate::leases::{Decision, MASTER, Mode};
use crate::placement::{Need, place, rest};
use crate::registry::{Registry, Rest};
use crate::repair::queue::Work;
use crate::shared::Shared;

/// How often sets that wait (for a lease, for room, for a node) are looked at again.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// Sets looked at in one go.
const LOOKS_MAX: usize = 2000;
/// Sets that may find all nodes busy before a look around ends: more would only be found waiting too.
const CROWDED_MAX: usize = 16;

/// What the next step for a set needs.
pub(crate) struct Task {
    pub metablock: MetablockId,
    pub inode: InodeId,
    /// The file's.
    pub epoch: u64,
    pub record: pb::Metablock,
    pub dataset: pb::Dataset,
}

enum Look {
    /// As it should be, or gone.
    Settled,
    /// Something is wrong, and nothing can be done now.
    Later,
    /// To do.
    Step(Box<(Task, Repair)>),
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
    let volumes: Vec<_> = machine.replica_volumes().collect();
    suspect_volumes(shared, &machine, &volumes);
}

/// Volumes with members of sets that no node has any more.
pub(crate) fn lost_volumes(machine: &Machine) -> Vec<VolumeId> {
    let nodes = machine.nodes().filter_map(|record| record.node.as_ref());
    let recorded: BTreeSet<u64> = nodes.flat_map(|node| &node.volumes).map(|volume| volume.id).collect();
    machine.replica_volumes().filter(|volume| !recorded.contains(&volume.raw())).collect()
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
            Look::Step(step) => {
                let (task, repair) = *step;
                crowded += usize::from(start(shared, task, repair).await == Started::NoPair);
            }
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
    Look::Step(Box::new((Task { metablock, inode, epoch: attr.epoch, record, dataset }, repair)))
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
    let record = machine.nodes().find(|record| record.node.as_ref().is_some_and(|known| known.id == member.node));
    let Some(record) = record else { return Condition::NodeLost };
    if registry.is_dead(node) {
        return Condition::NodeLost;
    }
    let known = record.node.iter().flat_map(|node| &node.volumes).find(|known| known.id == member.volume);
    // Another life of the volume does not have this replica.
    if known.is_none_or(|known| known.incarnation != member.incarnation) || registry.is_poisoned(node, volume) {
        return Condition::VolumeLost;
    }
    let place = (metablock, volume);
    if work.damaged.contains(&place) {
        return if work.cramped.contains(&place) { Condition::Cramped } else { Condition::Damaged };
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

async fn start(shared: &Arc<Shared>, task: Task, repair: Repair) -> Started {
    match repair {
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
        Repair::Renew { sources, member } => {
            let (source, busy) = choose_source(shared, &task, &sources);
            let Some(source) = source.filter(|_| !busy.contains(&member.node_id())) else { return Started::NoPair };
            begin(shared, task, Copy { source, target: member, set: None }, Reason::MemberDamaged);
        }
        Repair::Copy { sources, replaced, staying, reason } => {
            let Some((source, target)) = choose_pair(shared, &task, &sources, replaced, &staying, reason) else {
                // Where nobody else has room, room may come where the damage is.
                replaced.map(|member| shared.state.work.lock().cramped.remove(&(task.metablock, member.volume_id())));
                return Started::NoPair;
            };
            let set = staying.into_iter().chain([target]).collect();
            begin(shared, task, Copy { source, target, set: Some(set) }, reason);
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
    replaced: Option<pb::Member>,
    staying: &[pb::Member],
    reason: Reason,
) -> Option<(pb::Member, pb::Member)> {
    let (source, busy) = choose_source(shared, task, sources);
    let source = source?;
    // A node that is without the member's volume may take the copy on another one.
    let comes_back = replaced.filter(|_| reason == Reason::VolumeLost);
    let members = task.record.members.iter().filter(|member| Some(**member) != comes_back);
    let mut exclude = busy;
    exclude.extend(members.map(pb::Member::node_id));
    exclude.extend(nodes_with_strays(shared, task.metablock));
    // What was away from home stays away from there, or goes there now.
    let home = replaced.and_then(|member| crate::away::home_to_keep(shared, &[member], staying));
    if home.is_none()
        && let Some(extra) = take_over(shared, task)
    {
        return Some((source, extra));
    }
    exclude.extend(task.record.extra.iter().map(pb::Member::node_id));
    exclude.extend(shared.state.work.lock().extra_copies.get(&task.metablock).map(|copy| copy.target));
    let need = Need {
        inode: task.inode,
        dataset: task.dataset.clone(),
        index: task.record.index,
        writer: HostName::default(),
        preferred: Vec::new(),
        present: staying.to_vec(),
        home,
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

/// An extra copy that may become a member: it has the bytes already. Not where a chain says which nodes have what.
fn take_over(shared: &Shared, task: &Task) -> Option<pb::Member> {
    if !task.dataset.chain.is_empty() {
        return None;
    }
    let (machine, registry) = (shared.group.snapshot(), shared.state.registry.lock());
    let (work, popular) = (shared.state.work.lock(), shared.state.popular.lock());
    let is_good = |extra: &&pb::Member| {
        condition(&machine, &registry, &work, task.metablock, extra) == Condition::Good
            && !popular.is_condemned(&(task.metablock, extra.volume_id()))
    };
    // One where another copy belongs could not become a member: that one could not go home.
    let is_home = |extra: &&pb::Member| task.record.members.iter().any(|member| member.home_id() == extra.node_id());
    task.record.extra.iter().filter(is_good).find(|extra| !is_home(extra)).copied()
}

/// The member to copy from that has least to do, and the nodes that are busy.
pub(crate) fn choose_source(shared: &Shared, task: &Task, sources: &[pb::Member]) -> (Option<pb::Member>, Vec<NodeId>) {
    let work = shared.state.work.lock();
    let nodes: BTreeSet<NodeId> = work.copies.values().flat_map(|copy| [copy.source, copy.target]).collect();
    let is_busy = |node: &NodeId| !work.takes(*node, task.record.length, shared.options.copies_per_node_max);
    let busy: Vec<NodeId> = nodes.into_iter().filter(is_busy).collect();
    let idle = sources.iter().filter(|source| !busy.contains(&source.node_id()));
    (idle.min_by_key(|source| work.copy_load(source.node_id())).copied(), busy)
}

/// Nodes where a stray replica of this metablock waits for its deletion: it would take a new copy with it. Those that are
/// off take no copy now, and may be its home.
pub(crate) fn nodes_with_strays(shared: &Shared, metablock: MetablockId) -> Vec<NodeId> {
    let machine = shared.group.machine();
    let volumes = shared.state.work.lock().strays(metablock);
    let (now_ms, plans) = (shared.wall_ms(), shared.state.plans.lock().clone());
    let nodes = machine.nodes().filter_map(|record| record.node.as_ref());
    let has = |node: &&pb::Node| node.volumes.iter().any(|volume| volumes.contains(&VolumeId::new(volume.id)));
    let nodes = nodes.filter(has).map(|node| NodeId::new(node.id));
    nodes.filter(|node| rest(&plans, *node, now_ms) != Rest::Off).collect()
}

/// Compare-and-swap on the file's epoch and the set's generation: a lease or a recovery in between makes it fail.
pub(crate) async fn change_set(shared: &Shared, task: &Task, members: Vec<pb::Member>) -> Result<()> {
    let change = pb::MasterChangeSet {
        inode: task.inode.raw(),
        epoch: task.epoch,
        metablock: task.metablock.raw(),
        generation: task.record.generation,
        members,
    };
    shared.group.propose(Op::ChangeSet(change)).await.map(|_| ())
}
