//! The part of a check that reads every replica.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebb_types::{Error, MetablockId, NodeId, Result, VolumeId, bail};
use ebb_wire::pb;

use super::FINDINGS_MAX;
use crate::shared::Shared;

/// Lets every live node read all its replicas, or those of the metablocks `only`. A node that fails is named in the
/// reply. Part of the deadline is left for the rest of the check.
pub(super) async fn scrub(
    shared: &Arc<Shared>,
    only: Option<&[MetablockId]>,
    deadline: Duration,
    reply: &mut pb::FsckReply,
) -> Result<()> {
    let mut live: BTreeMap<NodeId, Vec<u64>> = shared.with_view(|view| {
        view.nodes().filter(|node| view.soft.registry.is_live(*node)).map(|node| (node, Vec::new())).collect()
    });
    if let Some(only) = only {
        let machine = shared.group.machine();
        for record in only.iter().filter_map(|metablock| machine.find_record(*metablock)) {
            for member in &record.members {
                live.entry(member.node_id()).and_modify(|ids| ids.push(record.id));
            }
        }
        // For a node, no metablocks would mean all of them.
        live.retain(|_, ids| !ids.is_empty());
    }
    let calls: Vec<_> = live
        .into_iter()
        .map(|(node, metablocks)| {
            let own = Arc::clone(shared);
            let scrub = async move {
                let call = pb::Scrub { rate_bytes_per_sec: 0, metablocks };
                let reply = tokio::select! {
                    biased;
                    reply = own.ask(node, &call, deadline * 3 / 4) => reply?,
                    () = death(&own, node) => bail!(Unreachable, "it has been silent for {:?}", own.options.dead_time),
                };
                note_scrubbed(&own, node, &reply);
                Ok::<_, Error>(())
            };
            (node, shared.runtime.spawn("scrub", scrub))
        })
        .collect();
    for (node, call) in calls {
        if let Err(error) = call.join().await? {
            tracing::warn!(%node, %error, "a node could not be scrubbed");
            reply.unscrubbed.push(node.raw());
            if reply.findings.len() < FINDINGS_MAX {
                reply
                    .findings
                    .push(format!("node {node} was not scrubbed ({error}); run it again when the node answers"));
            }
        }
    }
    Ok(())
}

/// Returns when the node counts as dead. A scrub may take hours, and a frozen node would use up all of them.
async fn death(shared: &Shared, node: NodeId) {
    while shared.soft().registry.is_live(node) {
        shared.runtime.sleep(Duration::from_secs(1)).await;
    }
}

/// Queues the damage that a scrub found.
fn note_scrubbed(shared: &Shared, node: NodeId, reply: &pb::ScrubReply) {
    let machine = shared.group.machine();
    let mut soft = shared.soft();
    for metablock in reply.corrupt.iter().map(|id| MetablockId::new(*id)) {
        let Some(record) = machine.find_record(metablock) else { continue };
        for member in record.members.iter().filter(|member| member.node_id() == node) {
            soft.work.on_damage(metablock, VolumeId::new(member.volume));
        }
        for extra in record.extra.iter().filter(|extra| extra.node_id() == node) {
            soft.popular.condemn((metablock, extra.volume_id()));
        }
    }
    shared.state.wake.repair.notify_one();
}
