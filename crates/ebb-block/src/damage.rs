//! Damage that this node found while it read parts of RAID sets, here or on other nodes. The master has it mended.

use std::sync::Arc;
use std::time::Duration;

use ebb_wire::pb;

use crate::handoff::ask_master;
use crate::node::Node;

/// Deadline of a report. One that is lost is made again by the next reader, or by a scrub.
const DEADLINE: Duration = Duration::from_secs(5);

/// Sends a report to the master, without waiting.
pub(crate) fn report(node: &Arc<Node>, report: pb::ReportReplica) {
    tracing::warn!(?report, "a replica is damaged or absent");
    let own = Arc::clone(node);
    node.runtime.spawn("report a damaged replica", async move {
        if let Err(error) = ask_master(&own, &report, Vec::new(), DEADLINE).await {
            tracing::debug!(%error, "reporting a damaged replica");
        }
    });
}
