//! Carrying repairs out: one small step at a time, throttled.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ebb_meta::Machine;
use ebb_runtime::Plant;
use ebb_types::{InodeId, MetablockId, NodeId, Result, Version, VolumeId};
use ebb_wire::pb;
use pb::command::Command as Op;

use super::{Condition, Reason, Repair, choose_repair, readable};
use crate::acquire::Turn;
use crate::copies::executor::{Copy, begin};
use crate::copies::rejoin;
use crate::leases::{Decision, MASTER, Mode};
use crate::placement::{Need, place};
use crate::shared::Shared;
use crate::view::{ClusterView, nodes};
use crate::work::suspects::Mark;

/// How often sets that wait (for a lease, for room, for a node) are looked at again.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);
/// Sets queued at a time: others need the soft state, too.
const QUEUED_MAX: usize = 4096;
/// Sets looked at in one go.
const LOOKS_MAX: usize = 2000;
/// Of these, the most urgent ones, which are looked at whoever's turn it is.
const URGENT_MAX: usize = LOOKS_MAX / 2;
/// Sets that may find all nodes busy before a look around ends: more would only be found waiting too. As many of the most
/// urgent ones, and as many of the others, so that the one do not keep the others from ever being looked at.
const CROWDED_MAX: usize = 8;

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
    let recorded: BTreeSet<u64> = nodes(machine).flat_map(|node| &node.volumes).map(|volume| volume.id).collect();
    machine.replica_volumes().filter(|volume| !recorded.contains(&volume.raw())).collect()
}

/// Queues every set with a member on one of these volumes, by how many copies are left where nodes are not dead.
pub(crate) fn suspect_volumes(shared: &Shared, machine: &Machine, volumes: &[VolumeId]) {
    let dead: BTreeSet<NodeId> = {
        let soft = shared.soft();
        nodes(machine).map(|node| NodeId::new(node.id)).filter(|node| soft.registry.is_dead(*node)).collect()
    };
    let suspects: BTreeSet<MetablockId> = volumes.iter().flat_map(|volume| machine.on_volume(*volume)).collect();
    let left = |metablock: &MetablockId| {
        let members = machine.find_metablock(*metablock).map(|(_, record)| record.members).unwrap_or_default();
        members.iter().filter(|member| !dead.contains(&member.node_id())).count()
    };
    let ranked: Vec<_> = suspects.iter().map(|metablock| (*metablock, left(metablock))).collect();
    for part in ranked.chunks(QUEUED_MAX) {
        let mut soft = shared.soft();
        for (metablock, left) in part {
            soft.work.suspects.insert(*metablock);
            soft.work.suspects.rank(*metablock, *left);
        }
    }
    shared.state.wake.repair.notify_one();
}

/// Looks at the next suspects and starts what can be started: first at the most urgent ones, then at those whose turn it is.
/// Returns where to go on.
async fn look_around(shared: &Arc<Shared>, from: Mark) -> Mark {
    let (urgent, in_turn): (Vec<Mark>, Vec<Mark>) = {
        let soft = shared.soft();
        let work = &soft.work;
        let is_idle = |mark: &&Mark| !work.copies.contains_key(&mark.1);
        let next = |from: Mark, count: usize| work.suspects.from(from).filter(is_idle).take(count).copied().collect();
        (next(Mark::default(), URGENT_MAX), next(from, LOOKS_MAX))
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
            Look::Settled => shared.soft().work.suspects.remove(&mark.1),
            Look::Later => shared.soft().work.suspects.on_looked(mark.1, false),
            Look::Step(step) => {
                let (task, repair) = *step;
                let found_none = start(shared, task, repair).await == Started::NoPair;
                let mut soft = shared.soft();
                let work = &mut soft.work;
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
    let mut soft = shared.soft();
    let view = shared.view(&machine, &soft).set(metablock, &record, attr.replicas);
    soft.work.suspects.rank(metablock, readable(&view));
    let Some(repair) = choose_repair(&view) else { return Look::Settled };
    // A recovery settles the set first; what was never written has nothing to copy, its holder deals with it.
    if attr.size_unknown || record.min_version() == Version::ZERO || repair == Repair::Impossible {
        return Look::Later;
    }
    Look::Step(Box::new((Task { metablock, inode, epoch: attr.epoch, record, dataset }, repair)))
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
            let Some(source) = free_source(shared, &task, &sources, member.node_id()) else { return Started::NoPair };
            begin(shared, task, Copy { source, target: member, set: None, rejoins: None }, Reason::MemberDamaged);
        }
        Repair::Copy { sources, replaced, staying, reason } => {
            let left_out = shared.look(|view| rejoin::choose(view, &task, &staying));
            if let Some(left_out) = left_out
                && let Some(target) = left_out.member
            {
                let source = free_source(shared, &task, &sources, target.node_id());
                let Some(source) = source else { return Started::NoPair };
                let set = staying.into_iter().chain([target]).collect();
                let copy = Copy { source, target, set: Some(set), rejoins: Some(left_out) };
                begin(shared, task, copy, Reason::Returned);
                return Started::Yes;
            }
            let Some((source, target)) = choose_pair(shared, &task, &sources, replaced, &staying, reason) else {
                // Where nobody else has room, room may come where the damage is.
                replaced.map(|member| shared.soft().work.cramped.remove(&(task.metablock, member.volume_id())));
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

/// The member to copy from to a node that is not busy itself; none: later.
fn free_source(shared: &Shared, task: &Task, sources: &[pb::Member], target: NodeId) -> Option<pb::Member> {
    let bytes = task.record.length;
    shared.look(|view| {
        let is_free = !view.busy_nodes(bytes).contains(&target);
        view.choose_source(sources, target, bytes).filter(|_| is_free)
    })
}

/// Where a copy may go.
enum Place {
    /// To an extra copy, which becomes a member.
    TakeOver(pb::Member),
    /// To where the layout wants it.
    Layout {
        /// Where it belongs, if that is known.
        home: Option<NodeId>,
        exclude: Vec<NodeId>,
        /// Nodes with strays, beside those: taken only where no other is.
        strays: Vec<NodeId>,
    },
}

fn choose_place(
    view: &ClusterView<'_>,
    task: &Task,
    sources: &[pb::Member],
    replaced: Option<pb::Member>,
    staying: &[pb::Member],
    reason: Reason,
) -> Option<Place> {
    let busy = view.busy_nodes(task.record.length);
    if sources.iter().all(|source| busy.contains(&source.node_id())) {
        return None;
    }
    // A node that is without the member's volume may take the copy on another one.
    let comes_back = replaced.filter(|_| reason == Reason::VolumeLost);
    let members = task.record.members.iter().filter(|member| Some(**member) != comes_back);
    let mut exclude = busy;
    exclude.extend(members.map(pb::Member::node_id));
    let strays = view.nodes_with_strays(task.metablock);
    // What was away from home stays away from there, or goes there now.
    let home = replaced.and_then(|member| view.home_to_keep(&[member], staying));
    if home.is_none()
        && let Some(extra) = take_over(view, task)
    {
        return Some(Place::TakeOver(extra));
    }
    exclude.extend(task.record.extra.iter().map(pb::Member::node_id));
    let work = &view.soft.work;
    exclude.extend(work.extra_copies.get(&task.metablock).map(|copy| copy.target));
    exclude.extend(work.parted.held_back(task.inode, view.now).map(|(node, _)| node));
    Some(Place::Layout { home, exclude, strays })
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
    let place_for_it = shared.look(|view| choose_place(view, task, sources, replaced, staying, reason))?;
    let target = match place_for_it {
        Place::TakeOver(extra) => extra,
        Place::Layout { home, exclude, strays } => {
            let clear = exclude.iter().chain(&strays).copied().collect();
            let need = Need { home, exclude: clear, ..Need::beside(task, staying.to_vec()) };
            // Where there is no other node the copy takes a stray's place, with a life of its own: nothing is deleted for a
            // set that lacks copies.
            let beside = |error| {
                if strays.is_empty() || shared.runtime.has_plant(Plant::MapAlone) {
                    Err(error)
                } else {
                    place(shared, &Need { exclude, ..need.clone() })
                }
            };
            let placed = place(shared, &need).or_else(beside);
            placed
                .inspect_err(|error| tracing::debug!(metablock = %task.metablock, %error, "no place for a copy now"))
                .ok()?
                .first()
                .copied()?
        }
    };
    shared.look(|view| view.choose_source(sources, target.node_id(), task.record.length)).map(|source| (source, target))
}

/// An extra copy that may become a member: it has the bytes already. Not where a chain says which nodes have what.
fn take_over(view: &ClusterView<'_>, task: &Task) -> Option<pb::Member> {
    if !task.dataset.chain.is_empty() {
        return None;
    }
    let is_good = |extra: &&pb::Member| {
        view.condition(task.metablock, extra) == Condition::Good
            && !view.soft.popular.is_condemned(&(task.metablock, extra.volume_id()))
    };
    // One where another copy belongs could not become a member: that one could not go home.
    let is_home = |extra: &&pb::Member| task.record.members.iter().any(|member| member.home_id() == extra.node_id());
    task.record.extra.iter().filter(is_good).find(|extra| !is_home(extra)).copied()
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
