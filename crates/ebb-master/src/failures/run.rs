//! The watch over failures: missed nodes, the census of damage, and metablocks off their chain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ebb_runtime::SeededBug;
use ebb_types::{DatasetId, Incarnation, InodeId, MetablockId, NodeClass, NodeId, VolumeId};

use super::{Census, Counting, DatasetFacts, Facts, VolumeFacts};
use crate::chains;
use crate::shared::Shared;
use crate::view::{ClusterView, nodes};

/// Minimum time between two rounds.
const PERIOD: Duration = Duration::from_millis(500);
/// A census is followed by a pause of this many times its duration, so that the master has time for other work.
const PAUSES: u32 = 20;
/// Longest pause while only the layout is not restored and no step can start.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Interval of a census without a cause. Removed files may have left nodes with unequal shares.
const PATROL: Duration = Duration::from_secs(600);
/// Minimum time between censuses for unequal shares while no node is missed. A writer may have chosen another node when
/// the right one was gone for a moment.
const UNEVEN: Duration = Duration::from_secs(10);
/// Metablocks counted without a pause.
const CHUNK: usize = 4096;
/// Largest map for which a debug build checks the counts that follow its changes.
#[cfg(debug_assertions)]
const CHECKED_MAX: usize = 10_000;
/// Maximum number of metablocks off their chain that a census lists.
const OFF_MAX: usize = 4096;

/// Follows failures, and gives the reconciler the metablocks off their chain. Runs until the master stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    // A restoration that an earlier master process had started shows only in the map.
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
        // A drained node leaves its shares to others, and takes them back when the drain is undone.
        let before =
            std::mem::replace(&mut in_use, chains::nodes_in_use(&shared.group.machine(), NodeClass::Any).collect());
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
        // Durability is restored before the layout, unless nothing more can be done for it.
        let is_calm = (census.short == 0 && census.unreachable == 0) || is_settled(&shared);
        let may_move = is_calm && !shared.runtime.has_bug(SeededBug::StaysMisplaced);
        // The number is of the previous batch, because this one is only started now.
        let begun = shared.soft().work.moved.take();
        if is_due && may_move {
            shared.soft().work.misplaced = Some(off);
            shared.state.wake.repair.notify_one();
        }
        let is_stuck = is_due && is_calm && begun == Some(0);
        pause = if is_stuck { (pause * 2).min(PAUSE_MAX) } else { PERIOD }.max(took * PAUSES);
    }
}

/// Whether nothing more can be done for sets that lack copies: missed nodes are dead, and no repair is promising.
fn is_settled(shared: &Shared) -> bool {
    shared.with_view(|view| {
        let registry = &view.soft.registry;
        let may_come_back = registry.missed(view.now).any(|(node, _)| !registry.is_dead(node));
        !may_come_back && view.is_safe_start() && !view.soft.work.is_mending()
    })
}

/// Missed nodes, each with the moment of its last heartbeat in milliseconds since the Unix epoch.
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
            let (volume_id, incarnation) = (VolumeId::new(volume.id), Incarnation::new(volume.incarnation));
            let is_there = !registry.is_missed(id) && !registry.is_poisoned(id, volume_id);
            volumes.insert(volume_id, VolumeFacts { incarnation, is_there, serves });
        }
    }
    let of = |dataset: &ebb_wire::pb::Dataset| {
        let id = DatasetId::new(dataset.id);
        Some((id, DatasetFacts { wanted: dataset.replicas.max(1), chain: view.soft.chains.chain(id)? }))
    };
    Facts {
        volumes,
        damaged: view.soft.work.damaged.clone(),
        datasets: view.machine.datasets().filter_map(of).collect(),
    }
}

/// Counts over every written metablock. Returns the census, and metablocks off their chain.
async fn count(shared: &Arc<Shared>) -> (Census, Vec<MetablockId>) {
    let (machine, facts) = shared.with_view(|view| (view.machine.clone(), facts(view)));
    #[cfg(debug_assertions)]
    shared.with_view(|view| {
        if view.machine.placed().take(CHECKED_MAX).count() < CHECKED_MAX {
            view.soft.check_counts(view.machine);
        }
    });
    let (mut counting, mut off) = (Counting::default(), Vec::new());
    for (seen, (dataset, _, metablock, members)) in machine.written_from(InodeId::default()).enumerate() {
        if facts.count(&mut counting, dataset, metablock, members) && off.len() < OFF_MAX {
            off.push(metablock);
        }
        if seen % CHUNK == CHUNK - 1 {
            // A pause lets other tasks run.
            shared.runtime.sleep(Duration::from_millis(1)).await;
        }
    }
    (facts.finish(&counting), off)
}
