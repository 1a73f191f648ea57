//! This node's handoff log: what members on other nodes have not got yet.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_rpc::{Answer, Response};
use ebb_types::{Result, err};
use ebb_wire::{Call, pb};

use crate::direct;
use crate::node::Node;
use crate::register::elsewhere;

/// Interval of the search for bytes that are not needed any more.
const LOOK: Duration = Duration::from_secs(10);
/// Files that the master is asked about at a time.
const FILES_MAX: usize = 1000;
/// For an answer of the master.
const ASK: Duration = Duration::from_secs(5);

/// Answers `LogWrites`. Here and at the always-on node at the same time, if the message asks for it: then the holder
/// sends each byte once. It sends none of a direct write whose bytes were put here.
pub(crate) async fn append(
    node: &Node,
    message: pb::LogWrites,
    payload: Bytes,
    deadline: Duration,
) -> Result<pb::LogWritesReply> {
    let (message, payload) = direct::with_bytes(node, message, payload)?;
    if !message.pass_on {
        node.handoff.append(message, payload).await?;
        return Ok(pb::LogWritesReply::default());
    }
    let onward = pb::LogWrites { pass_on: false, ..message.clone() };
    // The holder must still hear our answer.
    let passed = ask_master(node, &onward, vec![payload.clone()], deadline * 3 / 4);
    let (passed, here) = tokio::join!(biased; passed, node.handoff.append(message, payload));
    here?;
    Ok(pb::LogWritesReply { passed_on: true, failure: passed.err().as_ref().map(pb::Failure::from) })
}

/// Asks the masters in turn, until one answers that no other knows better.
pub(crate) async fn ask_master<C: Call>(
    node: &Node,
    message: &C,
    payload: Vec<Bytes>,
    deadline: Duration,
) -> Result<Response<C::Reply>> {
    let mut last = err!(Unreachable, "no master is known");
    for master in &node.masters {
        match node.connector.channel(master).call_with(message, payload.clone(), deadline).await {
            Err(error) if elsewhere(&error) => last = error,
            answer => return answer,
        }
    }
    Err(last)
}

/// Answers `ReadLog`.
pub(crate) async fn read(node: &Node, message: &pb::ReadLog) -> Result<Answer> {
    let (reply, payload) = node.handoff.read(message).await?;
    Ok(Answer::with(&reply, payload.into()))
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
    for over in ask_master(node, &call, Vec::new(), ASK).await?.message.over {
        node.handoff.cut(over).await?;
    }
    Ok(())
}
