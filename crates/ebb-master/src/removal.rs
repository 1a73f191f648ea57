//! Nodes that leave the cluster for good.
//!
//! A node is drained first, so the removal itself moves nothing. On the chains another node takes its place; where all
//! are on the chain already, it becomes shorter.

use ebb_meta::Machine;
use ebb_types::{DatasetId, NodeId, Result};
use ebb_wire::pb;
use pb::command::Command as Op;

use crate::chains;
use crate::copies::layout::find_successor;
use crate::shared::Shared;
use crate::soft::Soft;

/// Answers `RemoveNode`.
///
/// Errors: `NotFound` for an unknown node, `Busy` if it takes data or holds some, `Invalid` if a chain cannot do without
/// it, `Stale` if a chain has changed meanwhile.
pub(crate) async fn remove(shared: &Shared, call: &pb::RemoveNode) -> Result<()> {
    let node = NodeId::new(call.node);
    let machine = shared.group.snapshot();
    let chains = leave_chains(shared, &machine, node)?;
    if call.ask {
        return Ok(());
    }
    machine.check_removable(node)?;
    shared.group.propose(Op::ForgetNode(pb::ForgetNode { node: call.node, chains })).await?;
    tracing::warn!(%node, "a node was removed from the cluster");
    shared.announce_node_map();
    Ok(())
}

/// For each chain with the node: which one takes its place.
fn leave_chains(shared: &Shared, machine: &Machine, node: NodeId) -> Result<Vec<pb::ReplaceInChain>> {
    let on_chain = machine.datasets().filter(|dataset| dataset.chain.contains(&node.raw()));
    let change = |dataset: &pb::Dataset| {
        let chain: Vec<NodeId> = dataset.chain.iter().copied().map(NodeId::new).collect();
        let by = find_successor(shared, machine, chains::class_of(dataset), &chain);
        if by.is_none() {
            let chain = dataset.chain.iter().copied().filter(|other| *other != node.raw()).collect();
            chains::view(&pb::Dataset { chain, ..dataset.clone() }).map_err(|error| {
                error
                    .context(format_args!("{} cannot do without {node}; `ebb node add` adds another one", dataset.path))
            })?;
        }
        Ok(pb::ReplaceInChain { dataset: dataset.id, gone: node.raw(), by: by.map_or(0, NodeId::raw) })
    };
    on_chain.map(change).collect()
}

impl Soft {
    /// Forgets all that was learned of a node that is removed.
    pub(crate) fn on_node_removed(&mut self, machine: &Machine, forget: &pb::ForgetNode) {
        let node = NodeId::new(forget.node);
        let volumes = self.registry.forget(node);
        self.work.forget_volumes(&volumes);
        self.gray.forget(node);
        self.failures.forget(node);
        for change in &forget.chains {
            self.chains.on_chain_changed(machine, DatasetId::new(change.dataset));
        }
        self.sessions.wake_all();
    }
}
