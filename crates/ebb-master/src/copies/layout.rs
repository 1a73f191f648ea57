//! Layout restoration, the last stage after a failure (Rabbit, Sec. 3.5): copies return to the places that their
//! dataset's chain (or circle) wants, and another node replaces one that is lost for good.
//!
//! [`ebb_layout::choose_shift`] and [`ebb_layout::choose_change`] choose the place of a copy, and [`choose_successor`]
//! the node for a place. This module turns their choices into steps, batch by batch, in idle time, and only while no
//! set lacks copies. While a node of a chain is missed, nothing of its dataset moves: the node may return, with all its
//! copies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebb_layout::restore::check_off;
use ebb_layout::{ChainView, Shift, choose_change, choose_shift};
use ebb_meta::Machine;
use ebb_power::chain::sum_scores;
use ebb_types::{DatasetId, InodeId, MetablockId, NodeClass, NodeId};
use ebb_wire::pb;
use pb::command::Command as Op;

use super::executor::begin_step;
use super::holders::Holders;
use super::{Kind, Outcome, Priority, Reason, Step, Target, Task};
use crate::chains;
use crate::shared::Shared;
use crate::view::{ClusterView, nodes};

/// Maximum number of copies that one batch moves. The nodes' shares are computed once for each batch.
const BATCH_MAX: usize = 256;
/// Maximum number of changes without a copy in one batch.
const RECORDS_MAX: usize = 64;

/// Whether blocks may go to other columns of their chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Columns {
    /// They may not: copies outside their runs go first.
    Stay,
    /// They may: every copy is in its run.
    MayChange,
}

/// State of the rounds: when each file's holder may be asked again.
#[derive(Default)]
pub(crate) struct Round {
    holders: Holders,
}

/// The successor of a node that is lost for good. It is the usable node outside the chain with the lowest score in all
/// chains (Rabbit, Sec. 3.4), and among equals the lowest id.
#[must_use]
pub fn choose_successor(chain: &[NodeId], well: &BTreeSet<NodeId>, scores: &BTreeMap<NodeId, f64>) -> Option<NodeId> {
    let score = |node: &NodeId| scores.get(node).copied().unwrap_or(0.0);
    let spare = well.iter().copied().filter(|node| !chain.contains(node));
    spare.min_by(|one, other| score(one).total_cmp(&score(other)).then(one.cmp(other)))
}

impl Round {
    /// Starts a replacement of a node, or a batch of copies, and returns the number of steps. `off` are metablocks with
    /// copies off their chain. Further moves, which even out the nodes' shares, are searched for.
    pub(crate) async fn look_around(&mut self, shared: &Arc<Shared>, off: &[MetablockId]) -> usize {
        if shared.soft().work.is_mending() {
            return 0;
        }
        let machine = shared.group.snapshot();
        self.holders.forget_old(shared.runtime.now());
        let mut begun = 0;
        let mut views = BTreeMap::new();
        for dataset in machine.datasets().filter(|dataset| !dataset.chain.is_empty()) {
            let id = DatasetId::new(dataset.id);
            let Some(chain) = shared.soft().chains.chain(id).filter(|chain| chain.layout().has_chain()) else {
                continue;
            };
            let missed: Vec<NodeId> = {
                let soft = shared.soft();
                chain.nodes().iter().copied().filter(|node| soft.registry.is_missed(*node)).collect()
            };
            if missed.is_empty() {
                views.insert(id, chain);
                continue;
            }
            for gone in missed {
                // The replacement changes the chain, so the other missed nodes wait for the next round.
                if replace(shared, &machine, id, &chain, gone).await {
                    begun += 1;
                    break;
                }
            }
        }
        if begun > 0 || views.is_empty() {
            return begun;
        }
        move_batch(shared, &mut self.holders, &machine, views, off).await
    }
}

/// The node that takes a place on a chain which another one leaves for good: the one that is used least by other chains.
/// `None` if all nodes that are well are on it.
pub(crate) fn find_successor(shared: &Shared, machine: &Machine, class: NodeClass, chain: &[NodeId]) -> Option<NodeId> {
    let well: BTreeSet<NodeId> = {
        let soft = shared.soft();
        let registry = &soft.registry;
        chains::nodes_in_use(machine, class)
            .filter(|node| registry.is_live(*node) && !registry.is_missed(*node))
            .collect()
    };
    let all: Vec<NodeId> = well.iter().copied().collect();
    let charted: Vec<_> = machine
        .datasets()
        .filter(|dataset| !dataset.chain.is_empty() && !dataset.path.is_empty())
        .filter_map(|dataset| chains::power_chain(dataset, &all).ok())
        .collect();
    choose_successor(chain, &well, &sum_scores(&charted))
}

/// Replaces a node that is lost for good in a chain. Returns false if the node may return, or if there is no successor.
async fn replace(shared: &Arc<Shared>, machine: &Machine, id: DatasetId, chain: &ChainView, gone: NodeId) -> bool {
    {
        let soft = shared.soft();
        let registry = &soft.registry;
        let silent = registry.missed(shared.runtime.now()).find(|(node, _)| *node == gone).map(|(_, silent)| silent);
        if !registry.is_dead(gone) || silent.is_none_or(|silent| silent < shared.options.replace_after) {
            return false;
        }
    }
    let class = machine.dataset(id).map_or(NodeClass::Any, chains::class_of);
    let Some(by) = find_successor(shared, machine, class, chain.nodes()) else { return false };
    let command = pb::ReplaceInChain { dataset: id.raw(), gone: gone.raw(), by: by.raw() };
    match shared.group.propose(Op::ReplaceInChain(command)).await {
        Ok(_) => {
            tracing::warn!(dataset = %id, %gone, %by, "a lost node is replaced on an expansion chain")
        }
        Err(error) => {
            tracing::info!(dataset = %id, %gone, %by, %error, "a lost node could not be replaced on an expansion chain")
        }
    }
    true
}

/// Moves copies, and returns their number. Each chain's counts follow the started moves, so that a batch does not
/// overshoot.
async fn move_batch(
    shared: &Arc<Shared>,
    holders: &mut Holders,
    machine: &Machine,
    mut views: BTreeMap<DatasetId, Arc<ChainView>>,
    off: &[MetablockId],
) -> usize {
    let (mut copies, mut records) = (0, 0);
    // Copies outside their runs come first, then the moves that even out the shares.
    let open = shared.with_view(open_nodes);
    let strays = off.iter().copied();
    let changes = if off.is_empty() { Columns::MayChange } else { Columns::Stay };
    let uneven: BTreeSet<DatasetId> =
        views.iter().filter(|(_, view)| check_off(view) > 0).map(|(dataset, _)| *dataset).collect();
    let others = machine.written_from(InodeId::default()).filter(|(dataset, ..)| uneven.contains(dataset));
    for metablock in strays.chain(others.map(|(_, _, metablock, _)| metablock)) {
        if copies >= BATCH_MAX || records >= RECORDS_MAX {
            break;
        }
        let Some((task, shift)) = find(shared, machine, &views, &open, metablock, changes) else { continue };
        if holders.is_waited_for(machine, task.inode, shared.runtime.now()) {
            continue;
        }
        let (dataset, before) = (DatasetId::new(task.dataset.id), homes(&task.record.members));
        let Some(step) = to_step(task, shift) else { continue };
        match begin_step(shared, step).await {
            Outcome::Not(_) => continue,
            Outcome::Copying => copies += 1,
            Outcome::Recorded => records += 1,
        }
        if let Some(view) = views.get_mut(&dataset).map(Arc::make_mut) {
            view.remove(&before);
            view.add(&before.iter().map(|node| if *node == shift.from { shift.to } else { *node }).collect::<Vec<_>>());
        }
    }
    copies + records
}

fn homes(members: &[pb::Member]) -> Vec<NodeId> {
    members.iter().map(pb::Member::home_id).collect()
}

/// Nodes that may take copies: usable, not switched off, and with all replicas reported.
fn open_nodes(view: &ClusterView<'_>) -> BTreeSet<NodeId> {
    // Without the report a replica from before could be deleted there just after a copy made it good.
    let is_open = |recorded: &&pb::Node| {
        let node = NodeId::new(recorded.id);
        !view.is_off(node) && view.is_home(node) && view.soft.registry.has_reported(recorded)
    };
    nodes(view.machine).filter(is_open).map(|recorded| NodeId::new(recorded.id)).collect()
}

/// Chooses a move of one of this metablock's copies that is possible now.
fn find(
    shared: &Shared,
    machine: &Machine,
    views: &BTreeMap<DatasetId, Arc<ChainView>>,
    open: &BTreeSet<NodeId>,
    metablock: MetablockId,
    changes: Columns,
) -> Option<(Task, Shift)> {
    let (inode, record) = machine.find_metablock(metablock).filter(|(_, record)| !record.is_in_raid_set())?;
    let attr = machine.attr(inode).ok()?;
    let chain = views.get(&DatasetId::new(attr.dataset))?;
    // During a recovery the set is about to change, and a metablock has one copy in progress at a time. A guest counts
    // at its home.
    if attr.size_unknown || shared.soft().work.copies.contains_key(&metablock) {
        return None;
    }
    // A failed copy leaves a stray, which is deleted after safe start. That may take long while nodes are off. Until
    // then the next copy replaces the stray, with another life.
    let strays =
        shared.with_view(|view| if view.is_safe_start() { view.nodes_with_strays(metablock) } else { Vec::new() });
    let beside = |node: &NodeId| record.extra.iter().any(|extra| extra.node_id() == *node);
    let may_take = |node: NodeId| open.contains(&node) && !strays.contains(&node) && !beside(&node);
    let homes = homes(&record.members);
    let change = || (changes == Columns::MayChange).then(|| choose_change(chain, &homes, may_take)).flatten();
    let shift = choose_shift(chain, &homes, may_take).or_else(change)?;
    let dataset = machine.dataset_of(inode).ok()?;
    Some((Task { metablock, inode, epoch: attr.epoch, record, dataset, is_kept: false }, shift))
}

/// The step that moves a copy. `None` if the copy is no longer there.
fn to_step(task: Task, shift: Shift) -> Option<Step> {
    let leaves = *task.record.members.iter().find(|member| member.home_id() == shift.from)?;
    let kind = Kind::Join { target: Target::Home(shift.to), seats: task.seats_without(&leaves) };
    Some(Step { task, kind, priority: Priority::Move, reason: Reason::Misplaced })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_goes_to_the_node_that_chains_want_least() {
        let ids = |range: std::ops::RangeInclusive<u64>| range.map(NodeId::new);
        let chain: Vec<NodeId> = ids(1..=4).collect();
        let scores = BTreeMap::from([(NodeId::new(5), 1.0), (NodeId::new(6), 0.25)]);
        assert_eq!(choose_successor(&chain, &ids(1..=6).collect(), &scores), Some(NodeId::new(6)));
        assert_eq!(choose_successor(&chain, &ids(1..=8).collect(), &scores), Some(NodeId::new(7)), "one that none has");
        assert_eq!(choose_successor(&chain, &ids(2..=4).collect(), &scores), None);
    }
}
