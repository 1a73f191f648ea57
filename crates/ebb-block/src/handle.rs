//! From a request to an answer.

use std::future::Future;
use std::sync::Arc;

use ebb_rpc::{Answer, Payload, Request, Service, ServiceFuture};
use ebb_store::{Deletion, Pull, Purpose, ReadData, ReplicaVersion};
use ebb_types::{Epoch, Error, ErrorKind, Incarnation, MetablockId, Result, bail, err};
use ebb_wire::{Message, Method, convert, pb};

use crate::node::{Node, for_all};
use crate::pipeline;
use crate::source::{Front, RemoteReplica};
use crate::{direct, disks, feed, handoff, raid, rest};

/// The block server's calls.
#[derive(Debug)]
pub(crate) struct BlockService(pub(crate) Arc<Node>);

impl Service for BlockService {
    fn handle(&self, request: Request) -> ServiceFuture<'_> {
        let node = self.0.clone();
        // Encoding ends by itself before a rest, which so does not wait for it.
        let in_progress = (request.method != Method::EncodeSet).then(|| node.enter());
        Box::pin(async move {
            let _in_progress = in_progress;
            node.check_awake(request.method)?;
            node.seen.check(request.method)?;
            match request.method {
                Method::ReadReplica => read(&node, request.decode()?).await,
                Method::SeekReplica => reply(seek(&node, request.decode()?).await),
                Method::DescribeReplicas => reply(describe(&node, request.decode()?).await),
                Method::ShortCircuitTicket => reply(node.short_circuit.ticket(&node.runtime, &request.peer.address)),
                Method::Rest => reply(rest::rest(&node, request.decode()?).await),
                Method::Counters => Ok(Answer::new(&counters(&node))),
                _ => to_the_end(&node.clone(), change(node, request)).await,
            }
        })
    }

    fn note_unreadable_file(&self) {
        disks::try_all(&self.0);
    }
}

/// Runs work that may not stop half-way in a task of its own: the request's future is dropped at its deadline.
async fn to_the_end(node: &Node, work: impl Future<Output = Result<Answer>> + Send + 'static) -> Result<Answer> {
    node.runtime.spawn("block-request", work).join().await?
}

async fn change(node: Arc<Node>, request: Request) -> Result<Answer> {
    match request.method {
        Method::WriteReplica => {
            let message = request.decode()?;
            reply(pipeline::write(&node, message, request.payload, request.deadline, &request.caller).await)
        }
        Method::PutStaged => {
            let message = request.decode()?;
            reply(direct::put(&node, message, request.payload, request.deadline, &request.caller).await)
        }
        Method::ReadStaged => direct::read(&node, &request.decode()?),
        Method::DropStaged => reply(direct::forget(&node, &request.decode()?)),
        Method::SyncReplicas => reply(pipeline::sync(&node, request.decode()?).await),
        Method::PromiseEpoch => reply(promise(&node, request.decode()?).await),
        Method::PullReplica => reply(pull(&node, request.decode()?).await),
        Method::StampReplica => reply(stamp(&node, request.decode()?).await),
        Method::DeleteReplicas => reply(delete(&node, request.decode()?).await),
        Method::LogWrites => {
            let message = request.decode()?;
            reply(handoff::append(&node, message, request.payload, request.deadline).await)
        }
        Method::FeedReplica => reply(feed::feed(&node, request.decode()?, request.deadline).await),
        Method::ReadLog => handoff::read(&node, &request.decode()?).await,
        Method::EncodeSet => reply(raid::encode::encode_set(&node, request.decode()?).await),
        Method::RebuildReplica => reply(raid::rebuild::rebuild(&node, request.decode()?).await),
        Method::VerifySet => reply(raid::verify::verify_set(&node, request.decode()?).await),
        Method::Scrub => reply(scrub(&node, request.decode()?).await),
        other => bail!(Unsupported, "a block server does not answer {other:?}"),
    }
}

fn reply<M: Message>(done: Result<M>) -> Result<Answer> {
    done.map(|message| Answer::new(&message))
}

async fn read(node: &Node, message: pb::ReadReplica) -> Result<Answer> {
    let min_version = convert::version(message.min_version);
    let volume = node.volume(message.volume)?;
    let queued = node.reads.bytes();
    if message.queue_max.is_some_and(|max| queued > max) {
        let is_busy = pb::ReadReplicaReply { queued_bytes: Some(queued), is_busy: true, ..Default::default() };
        return Ok(Answer::new(&is_busy));
    }
    let place = node.reads.enter(if message.sums_only { 0 } else { message.length });
    let purpose = if message.raid_set == 0 { Purpose::File } else { Purpose::Decoding };
    let metablock = MetablockId::new(message.metablock);
    let read = volume.read_for(purpose, metablock, min_version, message.offset, message.length).await;
    let read = read.inspect_err(|error| disks::try_after(node, &volume, error))?;
    // I-4: a replica that is older than the reader may see gives no data.
    assert!(read.version >= min_version, "m{} at {} for a reader of {min_version}", message.metablock, read.version);
    let payload = match read.data {
        _ if message.sums_only => Payload::default(),
        ReadData::Buffer(bytes) => bytes.into(),
        ReadData::File(file, runs) => {
            Payload::Files(runs.into_iter().map(|(offset, len)| (file.clone(), offset, len)).collect())
        }
    };
    let message = pb::ReadReplicaReply {
        version: Some(read.version.into()),
        length: read.length,
        checksums: read.checksums,
        queued_bytes: Some(place.ahead_bytes()),
        is_busy: false,
    };
    // A file is read while it is sent.
    Ok(Answer::with(&message, payload).holding(place))
}

async fn seek(node: &Node, message: pb::SeekReplica) -> Result<pb::SeekReplicaReply> {
    let min_version = convert::version(message.min_version);
    let volume = node.volume(message.volume)?;
    let found = volume.seek(MetablockId::new(message.metablock), min_version, message.offset, message.hole).await?;
    Ok(pb::SeekReplicaReply { offset: found.offset.unwrap_or(0), found: found.offset.is_some(), length: found.length })
}

/// All replicas at once, so that they share their syncs.
async fn promise(node: &Arc<Node>, message: pb::PromiseEpoch) -> Result<pb::PromiseEpochReply> {
    let epoch = Epoch::new(message.epoch);
    let promise = |name: pb::ReplicaName| {
        let node = node.clone();
        async move { promise_one(&node, &name, epoch).await }
    };
    let replicas = for_all(&node.runtime, message.replicas, promise).await?;
    Ok(pb::PromiseEpochReply { replicas })
}

async fn promise_one(node: &Node, name: &pb::ReplicaName, epoch: Epoch) -> pb::PromisedReplica {
    let promised = async {
        let volume = node.volume(name.volume)?;
        volume.promise(MetablockId::new(name.metablock), Incarnation::new(name.incarnation), epoch).await
    };
    let promised = promised.await;
    tracing::trace!(metablock = name.metablock, %epoch, ?promised, "promise");
    if promised.is_ok() {
        // I-58: the putter has lost the file; bytes that are not written yet never will be.
        node.staging.lock().drop_below(MetablockId::new(name.metablock), epoch);
    }
    let failure = promised.as_ref().err().map(pb::Failure::from);
    let ReplicaVersion { version, length } = promised.unwrap_or_default();
    let absent = failure.is_none() && version == ebb_types::Version::ZERO;
    let (metablock, volume) = (name.metablock, name.volume);
    pb::PromisedReplica { metablock, volume, version: Some(version.into()), length, absent, failure }
}

async fn pull(node: &Arc<Node>, message: pb::PullReplica) -> Result<pb::PullReplicaReply> {
    let volume = node.volume(message.volume)?;
    let source = convert::required(message.source, "the source of a copy")?;
    let member = source.required_member()?;
    let replica = RemoteReplica {
        channel: node.connector.channel(&source.address),
        metablock: if message.source_metablock == 0 { message.metablock } else { message.source_metablock },
        volume: member.volume,
        raid_set: message.raid_set,
    };
    let pull = Pull {
        metablock: MetablockId::new(message.metablock),
        incarnation: Incarnation::new(message.incarnation),
        epoch: Epoch::new(message.epoch),
        at: convert::version(message.at),
        anew: false,
        rate_bytes_per_sec: message.rate_bytes_per_sec,
    };
    let _place = node.pulls.acquire().await.expect("never closed");
    let done = volume.pull(pull, &Front::of(&replica, message.front_bytes)).await;
    tracing::trace!(metablock = message.metablock, epoch = message.epoch, at = ?message.at, ?done, "pull");
    let done = done.map_err(|error| of_the_source(&source.address, error))?;
    Ok(pb::PullReplicaReply { version: Some(done.version.into()), length: done.length })
}

/// That the source does not answer says nothing of this node, which does.
fn of_the_source(address: &str, error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unreachable | ErrorKind::Disconnected | ErrorKind::Timeout => {
            err!(Unavailable, "copying from {address}: {error}")
        }
        _ => error,
    }
}

async fn stamp(node: &Node, message: pb::StampReplica) -> Result<pb::StampReplicaReply> {
    let volume = node.volume(message.volume)?;
    let (metablock, incarnation) = (MetablockId::new(message.metablock), Incarnation::new(message.incarnation));
    let (epoch, base) = (Epoch::new(message.epoch), convert::version(message.base));
    if !epoch.is_real() {
        bail!(Protocol, "a stamp of epoch {epoch}, which no recovery has");
    }
    let done = volume.stamp(metablock, incarnation, epoch, base, message.length).await;
    tracing::trace!(%metablock, %epoch, %base, length = message.length, ?done, "stamp");
    let done = done?;
    Ok(pb::StampReplicaReply { version: Some(done.version.into()), length: done.length })
}

async fn delete(node: &Node, message: pb::DeleteReplicas) -> Result<pb::Empty> {
    let deletion = |one: &pb::DeletedReplica| Deletion {
        metablock: MetablockId::new(one.metablock),
        epoch: one.epoch.map(Epoch::new),
        // I-26: a replica that was made since the judgement has another life, and stays.
        life: (one.life != 0).then_some(one.life),
    };
    let deletions: Vec<_> = message.replicas.iter().map(deletion).collect();
    tracing::trace!(volume = message.volume, ?deletions, "delete");
    node.volume(message.volume)?.delete(&deletions).await?;
    Ok(pb::Empty {})
}

async fn describe(node: &Node, message: pb::DescribeReplicas) -> Result<pb::DescribeReplicasReply> {
    let mut replicas = Vec::with_capacity(message.replicas.len());
    for name in message.replicas {
        let found = match node.volume(name.volume) {
            Ok(volume) => volume.describe(MetablockId::new(name.metablock)).await?,
            Err(_) => None,
        };
        let (metablock, volume) = (name.metablock, name.volume);
        replicas.push(match found {
            None => pb::DescribedReplica { metablock, volume, absent: true, ..pb::DescribedReplica::default() },
            Some(found) => pb::DescribedReplica {
                metablock,
                volume,
                version: Some(found.summary.version.into()),
                length: found.summary.length,
                file: found.file,
                file_offset: found.file_offset,
                absent: false,
                corrupt: found.summary.corrupt,
                allocated_bytes: found.allocated_bytes,
                life: found.life,
            },
        });
    }
    Ok(pb::DescribeReplicasReply { replicas })
}

async fn scrub(node: &Node, message: pb::Scrub) -> Result<pb::ScrubReply> {
    let Ok(_one_at_a_time) = node.scrubbing.try_lock() else {
        bail!(Busy, "{} is being scrubbed already", node.title());
    };
    let these: Vec<MetablockId> = message.metablocks.into_iter().map(MetablockId::new).collect();
    let mut sum = pb::ScrubReply::default();
    for volume in node.volumes.iter().filter(|volume| volume.poisoned().is_none()) {
        let outcome = match &these[..] {
            [] => volume.scrub(message.rate_bytes_per_sec).await?,
            these => volume.scrub_these(these, message.rate_bytes_per_sec).await?,
        };
        sum.replicas += outcome.replicas;
        sum.bytes += outcome.bytes;
        sum.corrupt.extend(outcome.corrupt.iter().map(|metablock| metablock.raw()));
    }
    Ok(sum)
}

fn counters(node: &Node) -> pb::CountersReply {
    node.counters.read().to_reply(node.volumes.iter().map(ebb_store::Volume::sync_count).sum())
}
