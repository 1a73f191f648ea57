//! Rounds of repair: which sets are examined, and when.

use std::collections::BTreeSet;
use std::sync::Arc;

use ebb_meta::Machine;
use ebb_types::{MetablockId, NodeId, Version, VolumeId};

use super::{Condition, Repair, choose_repair, readable};
use crate::copies::executor::begin_step;
use crate::copies::{Kind, Obstacle, Outcome, Priority, Reason, Step, Target, Task, rejoin};
use crate::shared::Shared;
use crate::view::{ClusterView, nodes};
use crate::work::suspects::{Mark, Outlook};

/// Sets queued under one hold of the soft state's lock, because others need it too.
const QUEUED_MAX: usize = 4096;
/// Maximum number of sets examined in one round.
const LOOKS_MAX: usize = 2000;
/// Maximum number of the most urgent sets, which are in every round.
const URGENT_MAX: usize = LOOKS_MAX / 2;
/// Number of sets without a free node after which a part of a round ends, because more sets would find the same. It
/// applies to the urgent sets and to the others separately, so that neither keeps the other from being examined.
const CROWDED_MAX: usize = 8;

/// Result of the examination of a set.
pub(crate) enum Look {
    /// The set is as wanted, or gone.
    Settled,
    /// The set needs repair, and nothing can be done now.
    Later(Reason, Obstacle),
    /// The next step of its repair.
    Step(Box<Step>),
}

/// State from round to round.
#[derive(Default)]
pub(crate) struct Round {
    from: Mark,
    /// Whether every set was queued once since safe start.
    scanned: bool,
}

impl Round {
    /// Examines the next suspects, the most urgent ones first, and starts the steps that can start.
    pub(crate) async fn look_around(&mut self, shared: &Arc<Shared>) {
        if !self.scanned && shared.is_safe_start() {
            suspect_all(shared);
            self.scanned = true;
        } else if self.scanned && std::mem::take(&mut shared.soft().work.rescan) {
            suspect_all(shared);
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
        // The urgent sets were just examined. They are done, in progress, or waiting.
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

/// Queues every set after a start, because the queue of the earlier process is lost.
fn suspect_all(shared: &Shared) {
    let machine = shared.group.snapshot();
    let volumes: Vec<_> = machine.replica_volumes().collect();
    suspect_volumes(shared, &machine, &volumes);
}

/// Volumes that have members of sets, but that no node has any more.
pub(crate) fn lost_volumes(machine: &Machine) -> Vec<VolumeId> {
    let recorded: BTreeSet<u64> = nodes(machine).flat_map(|node| &node.volumes).map(|volume| volume.id).collect();
    machine.replica_volumes().filter(|volume| !recorded.contains(&volume.raw())).collect()
}

/// Queues every set with a member on one of these volumes, ranked by the number of members on nodes that are not dead.
pub(crate) fn suspect_volumes(shared: &Shared, machine: &Machine, volumes: &[VolumeId]) {
    let dead: BTreeSet<NodeId> = {
        let soft = shared.soft();
        nodes(machine).map(|node| NodeId::new(node.id)).filter(|node| soft.registry.is_dead(*node)).collect()
    };
    let suspects: BTreeSet<MetablockId> = volumes.iter().flat_map(|volume| machine.on_volume(*volume)).collect();
    let left = |metablock: &MetablockId| {
        let members = machine.find_record(*metablock).map(|record| record.members).unwrap_or_default();
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

/// Examines sets in order. Returns the set at which it stopped because too many found no free node.
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
                soft.work.suspects.on_tried(mark.1, Outlook::Stalled);
                soft.work.on_obstacle(mark.1, reason, obstacle, shared.runtime.now());
            }
            Look::Step(step) => {
                let replaced = replaced(&step.kind);
                let found_none = is_crowded(&begin_step(shared, *step).await);
                let mut soft = shared.soft();
                if found_none && let Some(member) = replaced {
                    // No other node has room. The damaged volume itself may have room by now, so it is tried again.
                    soft.work.cramped.remove(&(mark.1, member.volume_id()));
                }
                // Copies in progress may occupy just the nodes that this set needs.
                let could = !found_none || !soft.work.copies.is_empty();
                soft.work.suspects.on_tried(mark.1, if could { Outlook::Promising } else { Outlook::Stalled });
                crowded += usize::from(found_none);
            }
        }
        if crowded >= CROWDED_MAX {
            return Some(*mark);
        }
    }
    None
}

/// Whether all nodes for the step are busy or full.
const fn is_crowded(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Not(Obstacle::NoSource | Obstacle::NodesBusy | Obstacle::NoPlace(_)))
}

const fn replaced(kind: &Kind) -> Option<ebb_wire::pb::Member> {
    match kind {
        Kind::Join { target: Target::Layout { replaced }, .. } => *replaced,
        _ => None,
    }
}

/// An examined set.
pub(crate) struct Found {
    /// Number of readable copies, if known.
    copies: Option<usize>,
    pub look: Look,
}

pub(crate) fn look_at_set(view: &ClusterView<'_>, metablock: MetablockId) -> Found {
    let settled = |copies| Found { copies, look: Look::Settled };
    let Some(task) = Task::find(view.machine, metablock) else { return settled(None) };
    let Some(is_in_recovery) = task.is_in_recovery(view.machine) else { return settled(None) };
    let set = view.set(metablock, &task.record, task.dataset.replicas);
    let copies = Some(readable(&set));
    let Some(repair) = choose_repair(&set) else { return settled(copies) };
    let later = |obstacle| Found { copies, look: Look::Later(Reason::TooFew, obstacle) };
    // A recovery makes the set equal first. A set without writes has nothing to copy, and its holder takes care of it.
    if is_in_recovery {
        return later(Obstacle::Recovering);
    }
    // On a node that is to be emptied the holder does not take care of it. It may not write for as long as its file is open.
    let drains = set.members.iter().any(|(_, condition)| *condition == Condition::Draining);
    let moves = drains && matches!(repair, Repair::Copy { .. } | Repair::Drop { .. });
    if task.record.min_version() == Version::ZERO && !moves {
        return later(Obstacle::Unwritten);
    }
    match to_step(view, task, repair) {
        Some(step) => Found { copies, look: Look::Step(Box::new(step)) },
        None => later(Obstacle::NoSource),
    }
}

/// The step for a repair. `None` means that nothing can be done.
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
