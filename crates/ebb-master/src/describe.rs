//! Questions to members about their replicas.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebb_types::{MetablockId, NodeId, VolumeId};
use ebb_wire::pb;

use crate::nodes::is_damaged;
use crate::shared::Shared;
use crate::work::ReplicaKey;

/// Maximum number of replicas in one call.
const NAMES_MAX: usize = 1000;

/// Asks members about their replicas. Members that do not answer are missing from the result.
pub(crate) async fn describe(
    shared: &Arc<Shared>,
    wanted: Vec<(MetablockId, pb::Member)>,
) -> BTreeMap<ReplicaKey, pb::DescribedReplica> {
    let mut by_node: BTreeMap<NodeId, Vec<pb::ReplicaName>> = BTreeMap::new();
    for (metablock, member) in wanted {
        let name =
            pb::ReplicaName { metablock: metablock.raw(), volume: member.volume, incarnation: member.incarnation };
        by_node.entry(member.node_id()).or_default().push(name);
    }
    // Nodes are asked in parallel, each with one call after the other.
    let calls: Vec<_> = by_node
        .into_iter()
        .map(|(node, names)| {
            let shared = Arc::clone(shared);
            shared.clone().runtime.spawn("describe", async move {
                let mut described = Vec::new();
                for names in names.chunks(NAMES_MAX) {
                    let call = pb::DescribeReplicas { replicas: names.to_vec() };
                    match shared.ask(node, &call, shared.options.call_timeout).await {
                        Ok(reply) => described.extend(reply.replicas),
                        Err(error) => {
                            tracing::debug!(%node, %error, "a node does not describe its replicas");
                            break;
                        }
                    }
                }
                described
            })
        })
        .collect();
    let mut answers = BTreeMap::new();
    for call in calls {
        let described = call.join().await.unwrap_or_default();
        let place =
            |replica: &pb::DescribedReplica| (MetablockId::new(replica.metablock), VolumeId::new(replica.volume));
        answers.extend(described.into_iter().map(|replica| (place(&replica), replica)));
    }
    answers
}

/// Resolves doubts: asks for each replica that may be damaged or missing, and queues those that are.
pub(crate) async fn settle_doubts(shared: &Arc<Shared>) {
    let doubts: Vec<ReplicaKey> = {
        let soft = shared.soft();
        let work = &soft.work;
        work.doubts.iter().take(10 * NAMES_MAX).copied().collect()
    };
    if doubts.is_empty() {
        return;
    }
    let machine = shared.group.snapshot();
    let (mut wanted, mut committed) = (Vec::new(), BTreeMap::new());
    for (metablock, volume) in &doubts {
        let (members, version) = machine.placed_metablock(*metablock).unwrap_or_default();
        committed.insert((*metablock, *volume), version);
        let member = members.into_iter().find(|member| member.volume_id() == *volume);
        match member {
            Some(member) if shared.soft().registry.is_sound(member.node_id(), *volume) => {
                wanted.push((*metablock, member))
            }
            // The metablock was deleted, or the member replaced; or its node is down, which repair handles by itself.
            _ => {
                shared.soft().work.doubts.remove(&(*metablock, *volume));
            }
        }
    }
    let answers = describe(shared, wanted).await;
    let machine = shared.group.machine();
    let mut soft = shared.soft();
    let work = &mut soft.work;
    for (place, described) in answers {
        work.doubts.remove(&place);
        // The member must have had everything that was committed before the question. A later commit may be of writes
        // that it got after its answer.
        let (Some(committed), Some((now, _))) = (committed.get(&place), machine.placed_metablock(place.0)) else {
            continue;
        };
        let is_member = now.iter().any(|member| member.volume_id() == place.1);
        if is_member && is_damaged(&described, *committed) {
            work.on_damage(place.0, place.1);
            shared.state.wake.repair.notify_one();
        }
    }
}
