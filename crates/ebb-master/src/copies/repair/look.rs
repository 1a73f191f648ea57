//! Which sets are looked at for repair, and when.

use std::collections::BTreeSet;
use std::sync::Arc;

use ebb_meta::Machine;
use ebb_types::{MetablockId, NodeId, Version, VolumeId};

use super::{Repair, choose_repair, readable};
use crate::copies::executor::begin_step;
use crate::copies::{Kind, Obstacle, Outcome, Priority, Reason, Step, Target, Task, rejoin};
use crate::shared::Shared;
use crate::view::{ClusterView, nodes};
use crate::work::suspects::Mark;

/// Sets queued at a time: others need the soft state, too.
const QUEUED_MAX: usize = 4096;
/// Sets looked at in one go.
const LOOKS_MAX: usize = 2000;
/// Of these, the most urgent ones, which are looked at whatever comes next by turn.
const URGENT_MAX: usize = LOOKS_MAX / 2;
/// Sets that may find all nodes busy before a look around ends: more would only be found waiting too. As many of the most
/// urgent ones, and as many of the others, so that the one do not keep the others from ever being looked at.
const CROWDED_MAX: usize = 8;

/// What a look at a set comes to.
pub(crate) enum Look {
    /// As it should be, or gone.
    Settled,
    /// Something is wrong, and nothing can be done now.
    Later(Reason, Obstacle),
    /// To do.
    Step(Box<Step>),
}

/// Where the next look around begins.
#[derive(Default)]
pub(crate) struct Round {
    from: Mark,
    /// Every set was queued once since safe start.
    scanned: bool,
}

impl Round {
    /// Looks at the next suspects and begins what can be begun: first at the most urgent ones, then at those whose turn it is.
    pub(crate) async fn look_around(&mut self, shared: &Arc<Shared>) {
        if !self.scanned && shared.is_safe_start() {
            suspect_all(shared);
            self.scanned = true;
        }
        let (urgent, in_turn): (Vec<Mark>, Vec<Mark>) = {
            let soft = shared.soft();
            let work = &soft.work;
            let is_idle = |mark: &&Mark| !work.copies.contains_key(&mark.1);
            let next =
                |from: Mark, count: usize| work.suspects.from(from).filter(is_idle).take(count).copied().collect();
            (next(Mark::default(), URGENT_MAX), next(self.from, LOOKS_MAX))
        };
        look_at(shared, &urgent).await;
        // Those that were just looked at are settled, under way, or waiting.
        let looked: BTreeSet<Mark> = urgent.into_iter().collect();
        let all_seen = in_turn.len() < LOOKS_MAX;
        let others: Vec<Mark> = in_turn.into_iter().filter(|mark| !looked.contains(mark)).collect();
        self.from = match look_at(shared, &others).await {
            Some(stopped) => stopped,
            None if all_seen => Mark::default(),
            None => others.last().map_or_else(Mark::default, |last| (last.0, MetablockId::new(last.1.raw() + 1))),
        };
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

/// Where it stopped, for all nodes are busy; none: all were looked at.
async fn look_at(shared: &Arc<Shared>, marks: &[Mark]) -> Option<Mark> {
    let mut crowded = 0;
    for mark in marks {
        let found = shared.with_view(|view| look_at_set(view, mark.1));
        if let Some(copies) = found.copies {
            shared.soft().work.suspects.rank(mark.1, copies);
        }
        match found.look {
            Look::Settled => shared.soft().work.on_settled(mark.1),
            Look::Later(reason, obstacle) => {
                let mut soft = shared.soft();
                soft.work.suspects.on_looked(mark.1, false);
                soft.work.on_obstacle(mark.1, reason, obstacle, shared.runtime.now());
            }
            Look::Step(step) => {
                let replaced = replaced(&step.kind);
                let found_none = is_crowded(&begin_step(shared, *step).await);
                let mut soft = shared.soft();
                if found_none && let Some(member) = replaced {
                    // Where no other node has room, room may come where the damage is.
                    soft.work.cramped.remove(&(mark.1, member.volume_id()));
                }
                // While copies are made, their nodes may be all that it waits for.
                let could = !found_none || !soft.work.copies.is_empty();
                soft.work.suspects.on_looked(mark.1, could);
                crowded += usize::from(found_none);
            }
        }
        if crowded >= CROWDED_MAX {
            return Some(*mark);
        }
    }
    None
}

/// Whether all nodes that could serve are busy or full.
const fn is_crowded(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Not(Obstacle::NoSource | Obstacle::NodesBusy | Obstacle::NoPlace(_)))
}

const fn replaced(kind: &Kind) -> Option<ebb_wire::pb::Member> {
    match kind {
        Kind::Join { target: Target::Layout { replaced }, .. } => *replaced,
        _ => None,
    }
}

/// A set, looked at.
pub(crate) struct Found {
    /// Copies that can be read, if that is known.
    copies: Option<usize>,
    pub look: Look,
}

pub(crate) fn look_at_set(view: &ClusterView<'_>, metablock: MetablockId) -> Found {
    let settled = |copies| Found { copies, look: Look::Settled };
    let Some(task) = Task::find(view.machine, metablock) else { return settled(None) };
    let Ok(attr) = view.machine.attr(task.inode) else { return settled(None) };
    let set = view.set(metablock, &task.record, attr.replicas);
    let copies = Some(readable(&set));
    let Some(repair) = choose_repair(&set) else { return settled(copies) };
    let later = |obstacle| Found { copies, look: Look::Later(Reason::TooFew, obstacle) };
    // A recovery settles the set first; what was never written has nothing to copy, its holder deals with it.
    if attr.size_unknown {
        return later(Obstacle::Recovering);
    }
    if task.record.min_version() == Version::ZERO {
        return later(Obstacle::Unwritten);
    }
    match to_step(view, task, repair) {
        Some(step) => Found { copies, look: Look::Step(Box::new(step)) },
        None => later(Obstacle::NoSource),
    }
}

/// The step for what repair has chosen; none: nothing can be done.
fn to_step(view: &ClusterView<'_>, task: Task, repair: Repair) -> Option<Step> {
    let (kind, reason) = match repair {
        Repair::Impossible => return None,
        Repair::Drop { staying, reason, .. } => (Kind::Change { members: staying }, reason),
        Repair::Renew { member, .. } => (Kind::Renew { member }, Reason::MemberDamaged),
        Repair::Copy { replaced, staying, reason, .. } => match rejoin::choose(view, &task, &staying) {
            Some(left_out) => (Kind::Rejoin { left_out, staying }, Reason::Returned),
            None => {
                let seats = staying.into_iter().map(Some).chain([None]).collect();
                (Kind::Join { target: Target::Layout { replaced }, seats }, reason)
            }
        },
    };
    Some(Step { task, kind, priority: Priority::Mend, reason })
}
