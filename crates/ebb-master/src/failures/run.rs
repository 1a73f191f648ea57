//! The looks: which nodes are missed, what is wrong, and what lies off its chain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::Plant;
use ebb_types::{DatasetId, InodeId, MetablockId, NodeId};

use super::{Census, Counting, Facts, VolumeFacts};
use crate::chains;
use crate::shared::Shared;
use crate::view::{ClusterView, nodes};

/// Between two looks at least.
const PERIOD: Duration = Duration::from_millis(500);
/// A look that counts is followed by a pause of so many times what it took, so that the master has time for others.
const PAUSES: u32 = 20;
/// Longest pause while the layout alone is not restored and nothing can be done about it.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A look at the layout without any cause: files that were removed may have left nodes with unequal shares.
const PATROL: Duration = Duration::from_secs(600);
/// Between two looks at least while a node of a chain has not its share, and nobody was missed: a writer that met a node which was
/// gone for a moment took another one.
const UNEVEN: Duration = Duration::from_secs(10);
/// Metablocks counted on end.
const CHUNK: usize = 4096;
/// Metablocks that are remembered as lying off their chain, of one look.
const OFF_MAX: usize = 4096;

/// Looks which nodes are missed and how far the cluster is over it, and tells the reconciler what lies off its chain. Runs as long as the master.
pub(crate) async fn run(shared: Arc<Shared>) {
    // What an earlier master process was about to restore shows in the map alone.
    let (mut is_due, mut pause) = (true, PERIOD);
    let (mut in_use, mut counted) = (BTreeSet::new(), shared.runtime.now());
    while !shared.is_stopped() {
        shared.runtime.sleep(pause).await;
        let began = shared.runtime.now();
        let now_ms = shared.wall_ms();
        let are_open = {
            let missed = missed(&shared);
            let mut soft = shared.soft();
            soft.failures.on_look(&missed, now_ms);
            soft.failures.are_open()
        };
        // A node that is drained leaves its chain's shares to others, and takes its own again when that is undone.
        let before = std::mem::replace(&mut in_use, chains::nodes_in_use(&shared.group.machine()).collect());
        let rested = began.since(counted);
        let is_uneven = rested >= UNEVEN && shared.soft().chains.is_uneven();
        if !(are_open || is_due || before != in_use || is_uneven || rested >= PATROL) {
            pause = PERIOD;
            continue;
        }
        let (census, off) = count(&shared).await;
        counted = shared.runtime.now();
        shared.soft().failures.on_census(census, shared.wall_ms());
        is_due = census.misplaced > 0;
        let took = counted.since(began);
        // Durability goes before layout, as far as something can be done for it.
        let is_calm = (census.short == 0 && census.unreachable == 0) || is_settled(&shared);
        let may_move = is_calm && !shared.runtime.has_plant(Plant::StaysMisplaced);
        // Of the batch before: this one is carried out meanwhile.
        let begun = shared.soft().work.moved.take();
        if is_due && may_move {
            shared.soft().work.misplaced = Some(off);
            shared.state.wake.repair.notify_one();
        }
        let is_stuck = is_due && is_calm && begun == Some(0);
        pause = if is_stuck { (pause * 2).min(PAUSE_MAX) } else { PERIOD }.max(took * PAUSES);
    }
}

/// Whether what lacks copies will go on lacking them: who is missed has been given up, and nothing more can be mended.
fn is_settled(shared: &Shared) -> bool {
    shared.with_view(|view| {
        let registry = &view.soft.registry;
        let may_come_back = registry.missed(view.now).any(|(node, _)| !registry.is_dead(node));
        !may_come_back && view.is_safe_start() && !view.soft.work.is_mending()
    })
}

/// Nodes that are missed, and when they were heard last.
fn missed(shared: &Shared) -> BTreeMap<NodeId, u64> {
    let (now, now_ms) = (shared.runtime.now(), shared.wall_ms());
    let soft = shared.soft();
    let heard_ms = |silent: Duration| now_ms.saturating_sub(u64::try_from(silent.as_millis()).unwrap_or(u64::MAX));
    soft.registry.missed(now).map(|(node, silent)| (node, heard_ms(silent))).collect()
}

fn facts(view: &ClusterView<'_>) -> Facts {
    let registry = &view.soft.registry;
    let mut volumes = BTreeMap::new();
    for node in nodes(view.machine) {
        let id = NodeId::new(node.id);
        let serves = !view.is_off(id);
        for volume in &node.volumes {
            let is_there = !registry.is_missed(id) && !registry.is_poisoned(id, ebb_types::VolumeId::new(volume.id));
            volumes.insert(volume.id, VolumeFacts { incarnation: volume.incarnation, is_there, serves });
        }
    }
    let of = |dataset: &ebb_wire::pb::Dataset| {
        let id = DatasetId::new(dataset.id);
        Some((id, (dataset.replicas.max(1), view.soft.chains.chain(id)?)))
    };
    Facts {
        volumes,
        damaged: view.soft.work.damaged.clone(),
        datasets: view.machine.datasets().filter_map(of).collect(),
    }
}

/// Looks at every metablock once; what is wrong, and which ones lie off their chain.
async fn count(shared: &Arc<Shared>) -> (Census, Vec<MetablockId>) {
    let (machine, facts) = shared.with_view(|view| (view.machine.clone(), facts(view)));
    let (mut counting, mut off) = (Counting::default(), Vec::new());
    for (seen, (dataset, _, metablock, members)) in machine.written_from(InodeId::default()).enumerate() {
        if facts.count(&mut counting, dataset, metablock, members) && off.len() < OFF_MAX {
            off.push(metablock);
        }
        if seen % CHUNK == CHUNK - 1 {
            // Others are to get their turn.
            shared.runtime.sleep(Duration::from_millis(1)).await;
        }
    }
    (facts.finish(&counting), off)
}
