//! Damage that this node found while it read parts of RAID sets, here or on other nodes. The master has it mended.

use std::sync::Arc;
use std::time::Duration;

use ebb_types::{Error, MetablockId};
use ebb_wire::pb;

use crate::handoff::ask_master;
use crate::node::Node;

/// Deadline of a report. One that is lost is made again by the next reader, or by a scrub.
const DEADLINE: Duration = Duration::from_secs(5);

/// Reports a replica to the master, without waiting, if the error says that it is damaged or absent.
pub(crate) fn report(node: &Arc<Node>, metablock: MetablockId, member: pb::Member, error: &Error) {
    let Some(message) = pb::ReportReplica::of(metablock, member, error) else { return };
    tracing::warn!(%metablock, node = member.node, volume = member.volume, %error, "a damaged replica was found");
    let own = Arc::clone(node);
    node.runtime.spawn("report a damaged replica", async move {
        if let Err(error) = ask_master(&own, &message, Vec::new(), DEADLINE).await {
            tracing::debug!(%error, "reporting a damaged replica");
        }
    });
}
