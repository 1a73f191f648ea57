//! Making an extra copy: from a member to a node that has none, while writers may come at any time.
//!
//! Nobody is kept waiting: who takes the write lease meanwhile raises the file's epoch, the record at the end is refused, and
//! what was copied is a stray.

use std::collections::BTreeSet;
use std::sync::Arc;

use ebb_meta::Machine;
use ebb_types::{HostName, MetablockId, NodeId, Result, Version, VolumeId, bail};
use ebb_wire::{convert, pb};
use pb::command::Command as Op;

use super::run::change;
use crate::placement::{Need, place_roomy};
use crate::repair::Condition;
use crate::repair::copy::need_ms;
use crate::repair::queue::CopyInProgress;
use crate::repair::run::{condition, is_free, nodes_with_strays};
use crate::route::{Route, choose_route};
use crate::shared::Shared;
use crate::transfer::transfer;

/// Extra copies take one part in so many of what copies of a node may take: users and repair have the rest.
const RATE_PART: u64 = 4;

/// A copy to make.
struct Task {
    metablock: MetablockId,
    at: Version,
    bytes: u64,
    source: pb::Member,
    target: pb::Member,
    /// The record at its end, if nothing has changed by then.
    change: pb::ChangeExtras,
}

/// Begins an extra copy, which ends by itself. False: no two nodes can make it now.
pub(crate) fn begin(shared: &Arc<Shared>, metablock: MetablockId) -> bool {
    let Some(task) = choose(shared, metablock) else { return false };
    let in_progress = CopyInProgress::new(task.source.node_id(), task.target.node_id(), task.bytes);
    shared.state.work.lock().extra_copies.insert(metablock, in_progress);
    tracing::info!(%metablock, from = task.source.node, to = task.target.node, "making an extra copy");
    let shared = Arc::clone(shared);
    shared.clone().runtime.spawn("extra copy", async move {
        let done = carry_out(&shared, &task).await;
        // Invariant: as it is applied, a record that came after all takes it out of what is excess again.
        let machine = shared.group.machine();
        let mut work = shared.state.work.lock();
        work.extra_copies.remove(&metablock);
        if let Err(error) = done {
            tracing::info!(%metablock, %error, "no extra copy");
            if !machine.is_placed_on(metablock, task.target.volume_id()) {
                work.excess.insert((task.target.volume_id(), metablock));
            }
        }
    });
    true
}

fn choose(shared: &Arc<Shared>, metablock: MetablockId) -> Option<Task> {
    let machine = shared.group.snapshot();
    let (inode, record) = machine.find_metablock(metablock)?;
    let attr = machine.attr(inode).ok()?;
    if attr.size_unknown || record.min_version() == Version::ZERO {
        return None;
    }
    if machine.holder(inode).is_some() {
        // A lease is kept long after its last write: who does not write goes on reading without it.
        is_free(shared, inode);
        return None;
    }
    let (sources, dataset) = (sources(shared, metablock, &record), machine.dataset_of(inode).ok()?);
    let all: Vec<NodeId> =
        machine.nodes().filter_map(|record| record.node.as_ref()).map(|node| NodeId::new(node.id)).collect();
    let present: Vec<&pb::Member> = record.members.iter().chain(&record.extra).collect();
    // Where a copy belongs that is away it comes home some day.
    let mut exclude: BTreeSet<NodeId> =
        present.iter().flat_map(|member| [member.node_id(), member.home_id()]).collect();
    exclude.extend(nodes_with_strays(shared, metablock));
    exclude.extend(nodes_short_of_room(shared, &machine));
    let weight_max = shared.options.copies_per_node_max;
    exclude.extend(all.iter().filter(|node| !shared.state.work.lock().takes(**node, record.length, weight_max)));
    let routes =
        |node: NodeId| sources.iter().filter_map(move |source| route(shared, source.node_id(), node, record.length));
    let is_met = |node: &NodeId| routes(*node).any(|route| route != Route::ByProxy);
    let is_reached = |node: &NodeId| routes(*node).next().is_some();
    let need = |exclude: Vec<NodeId>| Need {
        inode,
        dataset: dataset.clone(),
        index: record.index,
        writer: HostName::default(),
        preferred: Vec::new(),
        replicas: present.len() + 1,
        present: present.iter().copied().copied().collect(),
        home: None,
        exclude,
        bytes: record.length,
    };
    // From node to node where two nodes meet; else by way of a proxy (BlinkFS, Sec. 4.2).
    let without = |is_open: &dyn Fn(&NodeId) -> bool| -> Vec<NodeId> {
        exclude.iter().copied().chain(all.iter().copied().filter(|node| !is_open(node))).collect()
    };
    let placed = place_roomy(shared, &need(without(&is_met)));
    let target = match placed.or_else(|_| place_roomy(shared, &need(without(&is_reached)))) {
        // A guest would have a home to go to, and an extra copy has none.
        Ok(members) => *members.first().filter(|member| !member.is_guest())?,
        Err(error) => {
            tracing::debug!(%metablock, %error, "no place for an extra copy now");
            return None;
        }
    };
    let reaching = sources
        .iter()
        .filter_map(|source| Some((route(shared, source.node_id(), target.node_id(), record.length)?, *source)));
    let reaching: Vec<(Route, pb::Member)> = reaching.collect();
    let work = shared.state.work.lock();
    let idle = reaching.iter().filter(|(_, source)| work.takes(source.node_id(), record.length, weight_max));
    let source = idle.min_by_key(|(route, source)| (*route, work.copy_load(source.node_id())))?.1;
    let change = change(&machine, metablock, |extras| extras.push(target))?;
    Some(Task { metablock, at: record.min_version(), bytes: record.length, source, target, change })
}

fn nodes_short_of_room(shared: &Shared, machine: &Machine) -> Vec<NodeId> {
    let tight = shared.state.registry.lock().tight_volumes(&shared.state.room.lock());
    let nodes = machine.nodes().filter_map(|record| record.node.as_ref());
    let is_short = |node: &&pb::Node| node.volumes.iter().any(|volume| tight.contains(&VolumeId::new(volume.id)));
    nodes.filter(is_short).map(|node| NodeId::new(node.id)).collect()
}

/// Members that can be read.
fn sources(shared: &Shared, metablock: MetablockId, record: &pb::Metablock) -> Vec<pb::Member> {
    let (machine, registry) = (shared.group.snapshot(), shared.state.registry.lock());
    let work = shared.state.work.lock();
    let is_good = |member: &&pb::Member| condition(&machine, &registry, &work, metablock, member) == Condition::Good;
    record.members.iter().filter(is_good).copied().collect()
}

/// The way from a node to another, if the plans ever wake both.
fn route(shared: &Shared, source: NodeId, target: NodeId, bytes: u64) -> Option<Route> {
    choose_route(&shared.state.plans.lock(), source, target, shared.wall_ms(), need_ms(shared, bytes))
}

async fn carry_out(shared: &Shared, task: &Task) -> Result<()> {
    let (source, target) = (task.source.node_id(), task.target.node_id());
    let options = &shared.options;
    let rate = CopyInProgress::new(source, target, task.bytes)
        .rate(options.copy_rate_bytes_per_sec / RATE_PART, options.copies_per_node_max);
    let call = pb::PullReplica {
        metablock: task.metablock.raw(),
        volume: task.target.volume,
        incarnation: task.target.incarnation,
        epoch: task.change.epoch,
        source: None,
        at: Some(task.at.into()),
        rate_bytes_per_sec: rate,
    };
    let reply = transfer(shared, task.source, target, call, task.bytes).await?;
    let version = convert::version(reply.version);
    if version != task.at {
        bail!(StaleVersion, "the extra copy is at {version}, committed is {}", task.at);
    }
    shared.group.propose(Op::ChangeExtras(task.change.clone())).await.map(drop)
}
