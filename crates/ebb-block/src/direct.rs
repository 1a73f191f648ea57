//! Direct writes: bytes come from the client that writes, and are written when the file's proxy says with which version.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_rpc::{Answer, Caller, Payload};
use ebb_store::{Change, Progress, Write};
use ebb_types::{Epoch, Error, ErrorKind, Incarnation, MetablockId, Result, bail};
use ebb_wire::{convert, pb};

use crate::node::Node;
use crate::pipeline::{Ahead, Pipeline, forward, result, to_write};
use crate::staging::{Put, name_of};

/// Answers `PutStaged`: keeps the bytes here and at the members of the pipeline; one result for each, this one first.
pub(crate) async fn put(
    node: &Arc<Node>,
    message: pb::PutStaged,
    payload: Bytes,
    deadline: Duration,
    caller: &Caller,
) -> Result<pb::WriteReplicaReply> {
    let pipeline = Pipeline::new(&message.pipeline)?;
    let onward = |member: pb::Member, rest: &[pb::Hop]| pb::PutStaged {
        volume: member.volume,
        incarnation: member.incarnation,
        pipeline: rest.to_vec(),
        ..message.clone()
    };
    let here = async { keep(node, &message, &payload) };
    let ahead = Ahead::new(deadline, message.hears_held_up, caller);
    let behind = forward(node, &pipeline, onward, payload.clone(), &ahead);
    // Forwarded first: the next hop works while this one looks at the sums.
    let (mut behind, here) = tokio::join!(biased; behind, here);
    let kept = here.and_then(|()| Ok(node.volume(message.volume)?.progress(MetablockId::new(message.metablock))));
    let mut results = vec![result(node, message.volume, MetablockId::new(message.metablock), kept)];
    results.append(&mut behind);
    assert_eq!(results.len(), 1 + message.pipeline.len(), "one result for this node, and one for each behind it");
    Ok(pb::WriteReplicaReply { results })
}

fn keep(node: &Node, message: &pb::PutStaged, payload: &Bytes) -> Result<()> {
    let Some(ticket) = message.ticket else { bail!(Protocol, "bytes are put for a ticket") };
    let (metablock, epoch) = (MetablockId::new(message.metablock), Epoch::new(message.epoch));
    let (offset, checksums) = (message.offset, message.checksums.clone());
    let change = Change::Data { offset, bytes: payload.clone(), checksums: checksums.clone() };
    node.volume(message.volume)?.check_ahead(metablock, Incarnation::new(message.incarnation), epoch, &change)?;
    let put = Put { epoch, offset, bytes: payload.clone(), checksums };
    node.staging.lock().put(name_of(ticket, message.metablock), put, node.runtime.now())
}

/// The write that a `WriteReplica` without bytes names; none: its bytes were not put here.
pub(crate) fn staged_write(
    node: &Node,
    message: &pb::WriteReplica,
    ticket: pb::Ticket,
    payload: &Bytes,
) -> Result<Option<Write>> {
    if !payload.is_empty() || !message.pipeline.is_empty() {
        bail!(Protocol, "what was put is written without other bytes, and by each member for itself");
    }
    let Some(put) = find(node, message, ticket)? else { return Ok(None) };
    let message = pb::WriteReplica { checksums: put.checksums, ..message.clone() };
    to_write(&message, put.bytes).map(Some)
}

/// Writes to be logged, with the bytes that were put here in the place of their names.
///
/// Errors: `Gap` if some were not put here, or are gone; `Protocol` as of [`staged_write`].
pub(crate) fn with_bytes(node: &Node, mut message: pb::LogWrites, payload: Bytes) -> Result<(pb::LogWrites, Bytes)> {
    if message.writes.iter().all(|write| write.staged.is_none()) {
        return Ok((message, payload));
    }
    let mut parts = Vec::with_capacity(message.writes.len());
    let mut rest = payload;
    for write in &mut message.writes {
        match write.staged.take() {
            Some(ticket) => {
                let Some(put) = find(node, write, ticket)? else { bail!(Gap, "{}", nothing_of(ticket)) };
                write.checksums = put.checksums;
                parts.push(put.bytes);
            }
            None if write.kind() == pb::WriteKind::WriteData => {
                let length = usize::try_from(write.length).ok().filter(|length| *length <= rest.len());
                let Some(length) = length else { bail!(Protocol, "a write to be logged ends behind the payload") };
                parts.push(rest.split_to(length));
            }
            None => {}
        }
    }
    // What is left belongs to no write: the log refuses it.
    parts.push(rest);
    parts.retain(|part| !part.is_empty());
    let payload = if parts.len() == 1 { parts.remove(0) } else { parts.concat().into() };
    Ok((message, payload))
}

/// What was put here for a write. None: it was not put here, or is gone.
fn find(node: &Node, message: &pb::WriteReplica, ticket: pb::Ticket) -> Result<Option<Put>> {
    let Some(put) = node.staging.lock().get(&name_of(ticket, message.metablock)) else { return Ok(None) };
    // I-58: the write has exactly the bytes that the client put, or it is refused.
    if (put.offset, put.bytes.len() as u64) != (message.offset, message.length) {
        bail!(Protocol, "{} bytes at {} were put, others are to be written", put.bytes.len(), put.offset);
    }
    Ok(Some(put))
}

fn nothing_of(ticket: pb::Ticket) -> String {
    format!("nothing is kept here for request {} of s{}", ticket.request, ticket.session)
}

/// The answer to a write whose bytes are not here: it was received already, or they are to be sent.
pub(crate) async fn without_bytes(node: &Node, message: &pb::WriteReplica, ticket: pb::Ticket) -> Result<Progress> {
    let (metablock, incarnation) = (MetablockId::new(message.metablock), Incarnation::new(message.incarnation));
    let (volume, version) = (node.volume(message.volume)?, convert::version(message.version));
    if !volume.has_received(metablock, incarnation, version)? {
        bail!(Gap, "{}", nothing_of(ticket));
    }
    if message.sync {
        volume.sync(metablock, incarnation, version).await?;
    }
    Ok(volume.progress(metablock))
}

/// Answers `ReadStaged`.
pub(crate) fn read(node: &Node, message: &pb::ReadStaged) -> Result<Answer> {
    let put = node.staging.lock().get(&name(message.name)?);
    Ok(match put {
        Some(put) => {
            let reply = pb::ReadStagedReply { found: true, checksums: put.checksums };
            Answer::with(&reply, Payload::Buffers(vec![put.bytes]))
        }
        None => Answer::new(&pb::ReadStagedReply::default()),
    })
}

/// Answers `DropStaged`.
pub(crate) fn forget(node: &Node, message: &pb::DropStaged) -> Result<pb::Empty> {
    let mut staging = node.staging.lock();
    staging.sweep(node.runtime.now());
    for one in &message.names {
        staging.drop_one(&name(Some(*one))?);
    }
    Ok(pb::Empty {})
}

fn name(name: Option<pb::StagedName>) -> Result<crate::staging::Name> {
    let of = |name: pb::StagedName| Some(name_of(name.ticket?, name.metablock));
    name.and_then(of).ok_or_else(|| Error::new(ErrorKind::Protocol, "what was put has a name"))
}
