//! A new localized storage node (LSN) joins the chains of datasets with the layout `lsn`.
//!
//! Other chains are chosen once, since the shares of their nodes follow from their length. On LSNs first copies are where the
//! writers are, so a sub-rack whose LSN is on no chain would write everything to others.

use ebb_layout::LayoutKind;
use ebb_layout::chain::halves::Half;
use ebb_meta::Machine;
use ebb_types::{NodeId, Result};
use ebb_wire::pb;
use pb::command::Command as Op;

use crate::chains;
use crate::shared::Shared;

/// Has a node that has registered join. Nothing is to be done for most.
///
/// Errors: those of proposing. The next registration of the node tries again.
pub(crate) async fn join_chains(shared: &Shared, node: NodeId) -> Result<()> {
    let joins = joins(&shared.group.machine(), node);
    for join in joins {
        let (dataset, is_first) = (join.dataset, join.first);
        shared.group.propose(Op::JoinChain(join)).await?;
        tracing::info!(%node, dataset, is_first, "a localized storage node joins a chain");
    }
    Ok(())
}

/// The chains that the node is to join, and at which end: beside nodes of its rack, if all of these are in one half.
fn joins(machine: &Machine, node: NodeId) -> Vec<pb::JoinChain> {
    let Some(record) = machine.registered(node) else { return Vec::new() };
    let is_meant = |dataset: &&pb::Dataset| {
        dataset.layout == LayoutKind::Lsn.name()
            && !dataset.chain.contains(&node.raw())
            && chains::nodes_in_use(machine, chains::class_of(dataset)).any(|other| other == node)
    };
    let is_of_rack =
        |other: &u64| machine.registered(NodeId::new(*other)).is_some_and(|other| other.rack == record.rack);
    let join = |dataset: &pb::Dataset| {
        let count = dataset.chain.len();
        let has_rack = |half: Half| {
            let in_half = dataset.chain.iter().enumerate().filter(|(place, _)| half.has(*place, count));
            in_half.map(|(_, node)| node).any(is_of_rack)
        };
        let first = has_rack(Half::First) && !has_rack(Half::Second);
        pb::JoinChain { dataset: dataset.id, node: node.raw(), first }
    };
    machine.datasets().filter(is_meant).map(join).collect()
}
