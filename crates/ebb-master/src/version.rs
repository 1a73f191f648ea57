//! The cluster's version, which an operator raises when all run a release that knows it.

use ebb_meta::version::{NEWEST, OLDEST};
use ebb_types::{NodeId, Result, bail};
use ebb_wire::pb;
use pb::command::Command as Op;

use crate::shared::Shared;
use crate::view::nodes;

/// The newest cluster version that a node's release knows. One that does not say is from before there were versions.
pub(crate) fn of_release(call: &pb::RegisterNode) -> u32 {
    call.version.max(OLDEST)
}

/// Refuses a node of a release that the cluster has left behind.
///
/// # Errors
/// `Unsupported`.
pub(crate) fn check_release(shared: &Shared, call: &pb::RegisterNode) -> Result<()> {
    let (cluster, node) = (shared.group.machine().version(), of_release(call));
    if node < cluster {
        bail!(
            Unsupported,
            "the cluster is at version {cluster}, the release on {} knows up to {node}: install a newer one",
            call.host
        );
    }
    Ok(())
}

/// Answers `RaiseVersion`.
///
/// # Errors
/// `Invalid` for a version that this release does not know, `Busy` if a node may be of an older release.
pub(crate) async fn raise(shared: &Shared, call: &pb::RaiseVersion) -> Result<()> {
    if call.version > NEWEST {
        bail!(Invalid, "this master knows versions up to {NEWEST}: install a newer release on it first");
    }
    let waits: Vec<String> = {
        let machine = shared.group.machine();
        let soft = shared.soft();
        let wait = |node: &pb::Node| match soft.registry.release_of(NodeId::new(node.id)) {
            Some(known) if known >= call.version => None,
            Some(known) => Some(format!("n{} on {} runs a release that knows up to {known}", node.id, node.host)),
            None if call.force => None,
            None => Some(format!("n{} on {} is away, and its release is not known", node.id, node.host)),
        };
        nodes(&machine).filter_map(wait).collect()
    };
    if !waits.is_empty() {
        bail!(Busy, "not yet: {}", waits.join("; "));
    }
    shared.group.propose(Op::RaiseVersion(call.version)).await?;
    tracing::warn!(version = call.version, "the cluster's version was raised");
    Ok(())
}
