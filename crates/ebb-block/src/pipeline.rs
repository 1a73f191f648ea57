//! Pipelined writes: forwarded to the next member while they are written here.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_rpc::{Caller, Departure};
use ebb_runtime::Runtime;
use ebb_store::{Change, Progress, Write};
use ebb_types::{Epoch, Error, Incarnation, MetablockId, Result, VolumeId, bail, err};
use ebb_wire::{Call, convert, pb};

use crate::direct;
use crate::node::{Node, for_all};

/// While a call to the next hop is held up, the caller hears of it so many times within its deadline.
const TELLS: u32 = 6;
/// Longest pipeline: more members than any set has.
const PIPELINE_MAX: usize = 16;

/// Members that a request is still to reach, in order.
#[derive(Debug)]
pub(crate) struct Pipeline<'a> {
    hops: &'a [pb::Hop],
    /// One for each hop.
    members: Vec<pb::Member>,
}

impl<'a> Pipeline<'a> {
    /// `Protocol`: it is longer than any set, or a hop names no member.
    pub(crate) fn new(hops: &'a [pb::Hop]) -> Result<Self> {
        if hops.len() > PIPELINE_MAX {
            bail!(Protocol, "a pipeline of {} members; at most {PIPELINE_MAX}", hops.len());
        }
        let members = hops.iter().map(pb::Hop::required_member).collect::<Result<_>>()?;
        Ok(Self { hops, members })
    }
}

/// The one that waits for the answers of a pipeline.
pub(crate) struct Ahead<'a> {
    /// Of a call to the next hop.
    deadline: Duration,
    hears: Option<&'a Caller>,
}

impl<'a> Ahead<'a> {
    /// It waits for `deadline` after a request that says whether it hears of what is held up.
    pub(crate) fn new(deadline: Duration, hears_held_up: bool, caller: &'a Caller) -> Self {
        // Where the answers of those behind are waited for, the caller must still hear ours.
        Self { deadline: deadline * 3 / 4, hears: hears_held_up.then_some(caller) }
    }

    /// Tells the caller when a call to the next hop is held up in front of a link.
    async fn hears_of(&self, runtime: &Runtime, departure: &Departure) -> Infallible {
        let Some(caller) = self.hears else { return std::future::pending().await };
        let mut told = Duration::ZERO;
        loop {
            runtime.sleep(self.deadline / TELLS).await;
            let held_up = departure.held_up();
            if held_up > told {
                caller.tell_held_up();
                told = held_up;
            }
        }
    }
}

/// Writes here and at the members of the pipeline; one result for each, this one first. A failure of any of them is a
/// result; only a malformed request is an error.
pub(crate) async fn write(
    node: &Arc<Node>,
    message: pb::WriteReplica,
    payload: Bytes,
    deadline: Duration,
    caller: &Caller,
) -> Result<pb::WriteReplicaReply> {
    let pipeline = Pipeline::new(&message.pipeline)?;
    let write = match message.staged {
        None => to_write(&message, payload.clone())?,
        Some(ticket) => match direct::staged_write(node, &message, ticket, &payload)? {
            Some(write) => write,
            None => {
                let here = direct::without_bytes(node, &message, ticket).await;
                let here = result(node, message.volume, MetablockId::new(message.metablock), here);
                return Ok(pb::WriteReplicaReply { results: vec![here] });
            }
        },
    };
    let ahead = Ahead::new(deadline, message.hears_held_up, caller);
    let bytes = message.length;
    let here = async {
        let _writing = node.begin_writing(bytes);
        let done = async { node.volume(message.volume)?.write(&write, message.sync).await }.await;
        let (version, predecessor) = (write.version, write.predecessor);
        let (kind, at) = (message.kind(), message.offset);
        tracing::trace!(metablock = %write.metablock, %version, %predecessor, ?kind, at, bytes, ?done, "write");
        done
    };
    // Forwarded first: the next hop works while this one does.
    let onward = |member: pb::Member, rest: &[pb::Hop]| pb::WriteReplica {
        volume: member.volume,
        incarnation: member.incarnation,
        pipeline: rest.to_vec(),
        ..message.clone()
    };
    let (mut behind, here) = tokio::join!(biased; forward(node, &pipeline, onward, payload, &ahead), here);
    let mut results = vec![result(node, message.volume, write.metablock, here)];
    results.append(&mut behind);
    // The node before this one in the pipeline counts the results.
    assert_eq!(results.len(), 1 + message.pipeline.len(), "one result for this node, and one for each behind it");
    Ok(pb::WriteReplicaReply { results })
}

pub(crate) fn result(node: &Node, volume: u64, metablock: MetablockId, done: Result<Progress>) -> pb::MemberResult {
    let failure = done.as_ref().err().map(pb::Failure::from);
    let progress =
        done.unwrap_or_else(|_| node.volume(volume).map(|volume| volume.progress(metablock)).unwrap_or_default());
    pb::MemberResult {
        node: node.raw_id(),
        volume,
        boot: node.boot.raw(),
        received: Some(progress.received.into()),
        synced: Some(progress.synced.into()),
        failure,
    }
}

/// Sends what came to the first member of the pipeline, with the rest of it; one result for each member. `onward` makes
/// the message for the first one.
pub(crate) async fn forward<C: Call<Reply = pb::WriteReplicaReply>>(
    node: &Arc<Node>,
    pipeline: &Pipeline<'_>,
    onward: impl FnOnce(pb::Member, &[pb::Hop]) -> C,
    payload: Bytes,
    ahead: &Ahead<'_>,
) -> Vec<pb::MemberResult> {
    let (Some((hop, rest)), Some(member)) = (pipeline.hops.split_first(), pipeline.members.first()) else {
        return Vec::new();
    };
    let onward = onward(*member, rest);
    let payload = if payload.is_empty() { Vec::new() } else { vec![payload] };
    let departure = Departure::default();
    let channel = node.connector.channel(&hop.address);
    let sent = tokio::select! {
        biased;
        sent = channel.call_observed(&onward, payload, 0, ahead.deadline, &departure) => sent,
        never = ahead.hears_of(&node.runtime, &departure) => match never {},
    };
    let members = &pipeline.members;
    let results = match sent {
        Ok(reply) if reply.message.results.len() == members.len() => reply.message.results,
        Ok(reply) => {
            let error = err!(
                Protocol,
                "{}: {} results for {} members",
                hop.address,
                reply.message.results.len(),
                members.len()
            );
            failures(members, &error)
        }
        Err(error) => failures(members, &error.context(format_args!("next hop {}", hop.address))),
    };
    assert_eq!(results.len(), members.len(), "one result for each member of the pipeline");
    results
}

/// The same failure for all: those behind a broken hop were not reached, or did not get their answer through.
fn failures(members: &[pb::Member], error: &Error) -> Vec<pb::MemberResult> {
    let failed = |member: &pb::Member| pb::MemberResult {
        node: member.node,
        volume: member.volume,
        failure: Some(error.into()),
        ..pb::MemberResult::default()
    };
    members.iter().map(failed).collect()
}

pub(crate) fn to_write(message: &pb::WriteReplica, payload: Bytes) -> Result<Write> {
    let kind = message.kind();
    let (offset, length) = (message.offset, message.length);
    if kind != pb::WriteKind::WriteData && !payload.is_empty() {
        bail!(Protocol, "{kind:?} with {} bytes of payload", payload.len());
    }
    // Above them are promises, which no write may make.
    let epochs = [convert::version(message.version).epoch, Epoch::new(message.authority)];
    if let Some(epoch) = epochs.into_iter().find(|epoch| !epoch.is_real()) {
        bail!(Protocol, "a write of epoch {epoch}, which no writer has");
    }
    let change = match kind {
        pb::WriteKind::WriteData if payload.len() as u64 != length => {
            bail!(Protocol, "a write of {length} bytes with {} bytes of payload", payload.len());
        }
        pb::WriteKind::WriteData => Change::Data { offset, bytes: payload, checksums: message.checksums.clone() },
        pb::WriteKind::WriteTruncate => Change::Truncate { length: offset },
        pb::WriteKind::WritePunch => Change::Punch { offset, len: length },
        pb::WriteKind::WriteAllocate => Change::Allocate { offset, len: length },
        pb::WriteKind::WriteZero => Change::Zero { offset, len: length },
    };
    Ok(Write {
        metablock: MetablockId::new(message.metablock),
        incarnation: Incarnation::new(message.incarnation),
        version: convert::version(message.version),
        predecessor: convert::version(message.predecessor),
        change,
        authority: Epoch::new(message.authority),
    })
}

/// Syncs replicas here.
pub(crate) async fn sync(node: &Arc<Node>, message: pb::SyncReplicas) -> Result<pb::SyncReplicasReply> {
    if !message.pipeline.is_empty() {
        bail!(Unsupported, "syncs are sent to each member by its own");
    }
    let sync = |replica| {
        let node = node.clone();
        async move { sync_one(&node, replica).await }
    };
    let replicas = for_all(&node.runtime, message.replicas, sync).await?;
    Ok(pb::SyncReplicasReply { boot: node.boot.raw(), replicas })
}

async fn sync_one(node: &Node, replica: pb::SyncReplica) -> pb::SyncedReplica {
    let metablock = MetablockId::new(replica.metablock);
    let synced = async {
        let _writing = node.begin_writing(0);
        let volume = node.volume(VolumeId::new(replica.volume).raw())?;
        volume.sync(metablock, Incarnation::new(replica.incarnation), convert::version(replica.version)).await
    };
    let synced = synced.await;
    tracing::trace!(%metablock, version = ?replica.version, ?synced, "sync");
    let failure = synced.as_ref().err().map(pb::Failure::from);
    pb::SyncedReplica { metablock: replica.metablock, synced: Some(synced.unwrap_or_default().into()), failure }
}

#[cfg(test)]
mod tests {
    use ebb_types::ErrorKind;

    use super::*;

    #[test]
    fn a_chain_with_an_empty_hop_or_too_many_is_refused() {
        let whole = pb::Hop { member: Some(pb::Member::default()), ..pb::Hop::default() };
        let refused = |hops: &[pb::Hop]| Pipeline::new(hops).unwrap_err();
        let error = refused(&[whole.clone(), pb::Hop::default()]);
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert!(error.to_string().contains("the member of a hop"), "{error}");
        assert_eq!(refused(&vec![whole.clone(); PIPELINE_MAX + 1]).kind(), ErrorKind::Protocol);
        assert_eq!(Pipeline::new(&vec![whole; PIPELINE_MAX]).unwrap().members.len(), PIPELINE_MAX);
    }
}
