//! This node's handoff log: what members on other nodes have not got yet.

use std::sync::Arc;
use std::time::Duration;

use ebb_rpc::{Answer, Payload};
use ebb_types::{Result, err};
use ebb_wire::pb;

use crate::node::Node;

/// Interval of the search for bytes that are not needed any more.
const LOOK: Duration = Duration::from_secs(10);
/// Files that the master is asked about at a time.
const FILES_MAX: usize = 1000;
/// For an answer of the master.
const ASK: Duration = Duration::from_secs(5);

/// Answers `ReadLog`.
pub(crate) async fn read(node: &Node, message: &pb::ReadLog) -> Result<Answer> {
    let (reply, payload) = node.handoff.read(message).await?;
    let payload = if payload.is_empty() { Payload::Empty } else { Payload::Buffers(payload) };
    Ok(Answer::with(&reply, payload))
}

/// Cuts the parts that the master reports as over: parts that all members have, and whose holder is gone without a
/// report. The task of a node.
pub(crate) async fn tidy(node: Arc<Node>) {
    loop {
        node.runtime.sleep(LOOK).await;
        let marks = node.handoff.marks();
        for files in marks.chunks(FILES_MAX) {
            if let Err(error) = tidy_files(&node, files).await {
                tracing::debug!(%error, "what the handoff log still needs is not known");
            }
        }
    }
}

async fn tidy_files(node: &Node, files: &[pb::LoggedFile]) -> Result<()> {
    let call = pb::JudgeLogs { files: files.to_vec() };
    let mut last = err!(Unreachable, "no master is known");
    for master in &node.masters {
        match node.connector.channel(master).call(&call, ASK).await {
            Ok(reply) => {
                for over in reply.over {
                    node.handoff.cut(over).await?;
                }
                return Ok(());
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
