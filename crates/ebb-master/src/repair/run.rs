//! Carrying repairs out: one small step at a time, throttled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ebb_meta::Machine;
use ebb_runtime::Plant;
use ebb_types::{HostName, InodeId, MetablockId, NodeId, Result, Version, VolumeId};
use ebb_wire::pb;
use pb::command::Command as Op;

use super::copy::{Copy, begin};
use super::rejoin;
use super::suspects::Mark;
use super::{Condition, Reason, Repair, SetView, choose_repair, readable};
use crate::acquire::Turn;
use crate::leases::{Decision, MASTER, Mode};
use crate::placement::{Need, place, rest};
use crate::registry::{Registry, Rest};
use crate::repair::queue::Work;
use crate::route::{Route, choose_route};
use crate::shared::Shared;

/// How often sets that wait (for a lease, for room, for a node) are looked at again.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// Sets looked at in one go.
const LOOKS_MAX: usize = 2000;
/// Of these, the most urgent ones, which are looked at whoever's turn it is.
const URGENT_MAX: usize = LOOKS_MAX / 2;
/// Sets that may find all nodes busy before a look around ends: more would only be found waiting too. As many of the most
/// urgent ones, and as many of the others, so that the one do not keep the others from ever being looked at.
const CROWDED_MAX: usize = 8;

/// A wait for two nodes that is no longer than this is nothing to writers.
const SOON_MS: u64 = 2_000;

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
    let mut from = Mark::default();
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

/// Queues every set with a member on one of these volumes, by how many copies are left where nodes are not dead.
pub(crate) fn suspect_volumes(shared: &Shared, machine: &Machine, volumes: &[VolumeId]) {
    let dead: BTreeSet<NodeId> = {
        let registry = shared.state.registry.lock();
        let nodes = machine.nodes().filter_map(|record| record.node.as_ref()).map(|node| NodeId::new(node.id));
        nodes.filter(|node| registry.is_dead(*node)).collect()
    };
    let suspects: BTreeSet<MetablockId> = volumes.iter().flat_map(|volume| machine.on_volume(*volume)).collect();
    let left = |metablock: &MetablockId| {
        let members = machine.find_metablock(*metablock).map(|(_, record)| record.members).unwrap_or_default();
        members.iter().filter(|member| !dead.contains(&member.node_id())).count()
    };
    let ranked: Vec<_> = suspects.iter().map(|metablock| (*metablock, left(metablock))).collect();
    let mut work = shared.state.work.lock();
    for (metablock, left) in ranked {
        work.suspects.insert(metablock);
        work.suspects.rank(metablock, left);
    }
    drop(work);
    shared.state.wake.repair.notify_one();
}

/// Looks at the next suspects and starts what can be started: first at the most urgent ones, then at those whose turn it is.
/// Returns where to go on.
async fn look_around(shared: &Arc<Shared>, from: Mark) -> Mark {
    let (urgent, in_turn) = {
        let work = shared.state.work.lock();
        let is_idle = |mark: &&Mark| !work.copies.contains_key(&mark.1);
        let next = |from: Mark, count: usize| work.suspects.from(from).filter(is_idle).take(count).copied().collect();
        let (urgent, in_turn): (Vec<Mark>, Vec<Mark>) = (next(Mark::default(), URGENT_MAX), next(from, LOOKS_MAX));
        (urgent, in_turn)
    };
    look_at(shared, &urgent).await;
    // Those that were just looked at are settled, under way, or waiting.
    let looked: BTreeSet<Mark> = urgent.into_iter().collect();
    let all_seen = in_turn.len() < LOOKS_MAX;
    let rest: Vec<Mark> = in_turn.into_iter().filter(|mark| !looked.contains(mark)).collect();
    match look_at(shared, &rest).await {
        Some(stopped) => stopped,
        None if all_seen => Mark::default(),
        None => rest.last().map_or_else(Mark::default, |last| (last.0, MetablockId::new(last.1.raw() + 1))),
    }
}

/// Where it stopped, for all nodes are busy; none: all were looked at.
async fn look_at(shared: &Arc<Shared>, marks: &[Mark]) -> Option<Mark> {
    let mut crowded = 0;
    for mark in marks {
        match look(shared, mark.1) {
            Look::Settled => shared.state.work.lock().suspects.remove(&mark.1),
            Look::Later => shared.state.work.lock().suspects.on_looked(mark.1, false),
            Look::Step(step) => {
                let (task, repair) = *step;
                let found_none = start(shared, task, repair).await == Started::NoPair;
                let mut work = shared.state.work.lock();
                // While copies are made, their nodes may be all that it waits for.
                let could = !found_none || !work.copies.is_empty();
                work.suspects.on_looked(mark.1, could);
                crowded += usize::from(found_none);
            }
        }
        if crowded >= CROWDED_MAX {
            return Some(*mark);
        }
    }
    None
}

fn look(shared: &Shared, metablock: MetablockId) -> Look {
    let machine = shared.group.machine();
    let Some((inode, record)) = machine.find_metablock(metablock) else { return Look::Settled };
    let (Ok(attr), Ok(dataset)) = (machine.attr(inode), machine.dataset_of(inode)) else { return Look::Settled };
    let registry = shared.state.registry.lock();
    let mut work = shared.state.work.lock();
    let wanted = attr.replicas.max(1) as usize;
    let members =
        record.members.iter().map(|member| (*member, condition(&machine, &registry, &work, metablock, member)));
    let view = SetView { wanted, members: members.collect() };
    work.suspects.rank(metablock, readable(&view));
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
    let record = machine.node(node);
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
            let is_busy = busy_nodes(shared, task.record.length).contains(&member.node_id());
            let source = choose_source(shared, &task, &sources, member.node_id()).filter(|_| !is_busy);
            let Some(source) = source else { return Started::NoPair };
            begin(shared, task, Copy { source, target: member, set: None, rejoins: None }, Reason::MemberDamaged);
        }
        Repair::Copy { sources, replaced, staying, reason } => {
            if let Some(left_out) = rejoin::choose(shared, &task, &staying)
                && let Some(target) = left_out.member
            {
                let is_busy = busy_nodes(shared, task.record.length).contains(&target.node_id());
                let source = choose_source(shared, &task, &sources, target.node_id()).filter(|_| !is_busy);
                let Some(source) = source else { return Started::NoPair };
                let set = staying.into_iter().chain([target]).collect();
                let copy = Copy { source, target, set: Some(set), rejoins: Some(left_out) };
                begin(shared, task, copy, Reason::Returned);
                return Started::Yes;
            }
            let Some((source, target)) = choose_pair(shared, &task, &sources, replaced, &staying, reason) else {
                // Where nobody else has room, room may come where the damage is.
                replaced.map(|member| shared.state.work.lock().cramped.remove(&(task.metablock, member.volume_id())));
                return Started::NoPair;
            };
            let set = staying.into_iter().chain([target]).collect();
            begin(shared, task, Copy { source, target, set: Some(set), rejoins: None }, reason);
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
    let busy = busy_nodes(shared, task.record.length);
    if sources.iter().all(|source| busy.contains(&source.node_id())) {
        return None;
    }
    // A node that is without the member's volume may take the copy on another one.
    let comes_back = replaced.filter(|_| reason == Reason::VolumeLost);
    let members = task.record.members.iter().filter(|member| Some(**member) != comes_back);
    let mut exclude = busy;
    exclude.extend(members.map(pb::Member::node_id));
    let strays = nodes_with_strays(shared, task.metablock);
    // What was away from home stays away from there, or goes there now.
    let home = replaced.and_then(|member| crate::away::home_to_keep(shared, &[member], staying));
    if home.is_none()
        && let Some(extra) = take_over(shared, task)
    {
        return choose_source(shared, task, sources, extra.node_id()).map(|source| (source, extra));
    }
    exclude.extend(task.record.extra.iter().map(pb::Member::node_id));
    {
        let work = shared.state.work.lock();
        exclude.extend(work.extra_copies.get(&task.metablock).map(|copy| copy.target));
        exclude.extend(work.parted.held_back(task.inode, shared.runtime.now()).map(|(node, _)| node));
    }
    let need = Need {
        inode: task.inode,
        dataset: task.dataset.clone(),
        index: task.record.index,
        writer: HostName::default(),
        preferred: Vec::new(),
        present: staying.to_vec(),
        home,
        replicas: staying.len() + 1,
        exclude: exclude.iter().copied().chain(strays.iter().copied()).collect(),
        bytes: task.record.length,
    };
    // Where there is no other node the copy takes a stray's place, with a life of its own: nothing is deleted for a set that
    // lacks copies.
    let beside = |error| {
        if strays.is_empty() || shared.runtime.has_plant(Plant::MapAlone) {
            Err(error)
        } else {
            place(shared, &Need { exclude: exclude.clone(), ..need.clone() })
        }
    };
    match place(shared, &need).or_else(beside) {
        Ok(members) => {
            let target = *members.first()?;
            choose_source(shared, task, sources, target.node_id()).map(|source| (source, target))
        }
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

/// Nodes that take part in as many copies as they may.
fn busy_nodes(shared: &Shared, len: u64) -> Vec<NodeId> {
    let work = shared.state.work.lock();
    let nodes: BTreeSet<NodeId> = work.copies.values().flat_map(|copy| [copy.source, copy.target]).collect();
    nodes.into_iter().filter(|node| !work.takes(*node, len, shared.options.copies_per_node_max)).collect()
}

/// The member to copy from to a node: of those that are not busy and that the plans wake the one that meets it soonest, then
/// the one that has least to do. A node that is switched off is no source, however idle.
pub(crate) fn choose_source(
    shared: &Shared,
    task: &Task,
    sources: &[pb::Member],
    target: NodeId,
) -> Option<pb::Member> {
    let busy = busy_nodes(shared, task.record.length);
    let (now_ms, plans) = (shared.wall_ms(), shared.state.plans.lock().clone());
    let need_ms = crate::repair::copy::need_ms(shared, task.record.length);
    let idle = sources.iter().filter(|source| !busy.contains(&source.node_id()));
    let reached =
        idle.filter_map(|source| Some((choose_route(&plans, source.node_id(), target, now_ms, need_ms)?, *source)));
    let work = shared.state.work.lock();
    let best = reached.min_by_key(|(route, source)| (*route, work.copy_load(source.node_id())));
    best.map(|(_, source)| source)
}

/// Whether a copy that can wait may begin: the nodes serve together now or soon, or never do. Writers to its file are kept waiting
/// while it is under way.
pub(crate) fn is_time(shared: &Shared, task: &Task, source: NodeId, target: NodeId) -> bool {
    let need_ms = crate::repair::copy::need_ms(shared, task.record.length);
    let route = choose_route(&shared.state.plans.lock(), source, target, shared.wall_ms(), need_ms);
    matches!(route, Some(Route::Direct { wait_ms: 0..=SOON_MS } | Route::ByProxy))
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
