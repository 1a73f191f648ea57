//! Making an extra copy: from a member to a node that has none, while writers may come at any time.
//!
//! Nobody is kept waiting: who takes the write lease meanwhile raises the file's epoch, the record at the end is refused, and
//! what was copied is a stray.

use std::collections::BTreeSet;
use std::sync::Arc;

use ebb_types::{HostName, MetablockId, NodeId, Result, Version, VolumeId, bail};
use ebb_wire::{convert, pb};
use pb::command::Command as Op;

use super::look::change;
use crate::copies::repair::Condition;
use crate::copies::repair::look::is_free;
use crate::copies::route::Route;
use crate::copies::transfer::transfer;
use crate::placement::{Need, place_roomy};
use crate::shared::Shared;
use crate::view::{ClusterView, nodes};
use crate::work::CopyInProgress;

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
    shared.soft().work.extra_copies.insert(metablock, in_progress);
    tracing::info!(%metablock, from = task.source.node, to = task.target.node, "making an extra copy");
    let shared = Arc::clone(shared);
    shared.clone().runtime.spawn("extra copy", async move {
        let done = carry_out(&shared, &task).await;
        // Invariant: as it is applied, a record that came after all takes it out of what is excess again.
        let machine = shared.group.machine();
        let mut soft = shared.soft();
        let work = &mut soft.work;
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
    let dataset = machine.dataset_of(inode).ok()?;
    let present: Vec<&pb::Member> = record.members.iter().chain(&record.extra).collect();
    let weight_max = shared.options.copies_per_node_max;
    let bytes = record.length;
    let soft = shared.soft();
    let view = shared.view(&machine, &soft);
    let all: Vec<NodeId> = view.nodes().collect();
    let is_good = |member: &&pb::Member| view.condition(metablock, member) == Condition::Good;
    let sources: Vec<pb::Member> = record.members.iter().filter(is_good).copied().collect();
    // Where a copy belongs that is away it comes home some day.
    let mut exclude: BTreeSet<NodeId> =
        present.iter().flat_map(|member| [member.node_id(), member.home_id()]).collect();
    exclude.extend(view.nodes_with_strays(metablock));
    exclude.extend(nodes_short_of_room(&view));
    exclude.extend(all.iter().filter(|node| !soft.work.takes(**node, bytes, weight_max)));
    let routes = |node: NodeId| sources.iter().filter_map(move |source| view.route(source.node_id(), node, bytes));
    let is_met = |node: &NodeId| routes(*node).any(|route| route != Route::ByProxy);
    let is_reached = |node: &NodeId| routes(*node).next().is_some();
    let without = |is_open: &dyn Fn(&NodeId) -> bool| -> Vec<NodeId> {
        exclude.iter().copied().chain(all.iter().copied().filter(|node| !is_open(node))).collect()
    };
    let (unmet, unreached) = (without(&is_met), without(&is_reached));
    drop(soft);
    let need = |exclude: Vec<NodeId>| Need {
        replicas: present.len() + 1,
        present: present.iter().copied().copied().collect(),
        exclude,
        ..Need::fresh(inode, dataset.clone(), record.index, HostName::default(), bytes)
    };
    // From node to node where two nodes meet; else by way of a proxy (BlinkFS, Sec. 4.2).
    let placed = place_roomy(shared, &need(unmet));
    let target = match placed.or_else(|_| place_roomy(shared, &need(unreached))) {
        // A guest would have a home to go to, and an extra copy has none.
        Ok(members) => *members.first().filter(|member| !member.is_guest())?,
        Err(error) => {
            tracing::debug!(%metablock, %error, "no place for an extra copy now");
            return None;
        }
    };
    let source = shared.look(|view| {
        let work = &view.soft.work;
        let idle = sources.iter().filter(|source| work.takes(source.node_id(), bytes, weight_max));
        let reaching = idle.filter_map(|one| Some((view.route(one.node_id(), target.node_id(), bytes)?, *one)));
        reaching.min_by_key(|(route, source)| (*route, work.copy_load(source.node_id())))
    });
    let (_, source) = source?;
    let change = change(&machine, metablock, |extras| extras.push(target))?;
    Some(Task { metablock, at: record.min_version(), bytes: record.length, source, target, change })
}

fn nodes_short_of_room(view: &ClusterView<'_>) -> Vec<NodeId> {
    let tight = view.soft.registry.tight_volumes(&view.soft.room);
    let is_short = |node: &&pb::Node| node.volumes.iter().any(|volume| tight.contains(&VolumeId::new(volume.id)));
    nodes(view.machine).filter(is_short).map(|node| NodeId::new(node.id)).collect()
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
