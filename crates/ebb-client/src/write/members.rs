//! Calls to members of a set.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use ebb_rpc::{Departure, Response};
use ebb_runtime::{Moment, SeededBug};
use ebb_types::deadlines::{LATE_WAIT, WRITE_DEADLINE};
use ebb_types::{Error, ErrorKind, MetablockId, Result, Version, err};
use ebb_wire::{Call, pb};

use crate::nodes::Hop;
use crate::power::relay::{self, Relayed};
use crate::shared::Shared;
use crate::write::outgoing::Outgoing;

/// Deadline of a question to a silent node, and the pause before the next one.
const PROBE_DEADLINE: Duration = Duration::from_secs(1);
const PROBE_PAUSE: Duration = Duration::from_millis(500);

/// Outcome of a request for one member: its answer, the error in its place, or `None` if the member was not heard.
pub(crate) type Heard = Result<Option<pb::MemberResult>>;

/// Sends a write to the first of `hops`, with the others as its pipeline. Answers in the order of `hops`.
pub(crate) async fn write(
    shared: &Arc<Shared>,
    metablock: MetablockId,
    hops: &[Hop],
    write: &Outgoing,
    sync: bool,
) -> Vec<Heard> {
    let Some((first, pipeline)) = hops.split_first() else { return Vec::new() };
    let member = first.member;
    let (message, payload) = write.to_message(metablock);
    let message = pb::WriteReplica {
        volume: member.volume,
        incarnation: member.incarnation,
        sync,
        pipeline: pipeline.iter().map(Hop::to_message).collect(),
        hears_held_up: true,
        ..message
    };
    // Cancel-safety: the write is sent again to each member by itself, and a member that has it answers "done".
    let mut results = along_chain(shared, hops, call(shared, first, &message, payload, WRITE_DEADLINE)).await;
    if shared.runtime.has_bug(SeededBug::CommitUnsynced) {
        results.iter_mut().flatten().flatten().for_each(|answer| answer.synced = answer.received);
    }
    results
}

/// Has the first of `hops`, and the others as its pipeline, keep bytes for a later write. Answers as [`write`].
pub(crate) async fn put(shared: &Arc<Shared>, hops: &[Hop], message: pb::PutStaged, bytes: Bytes) -> Vec<Heard> {
    let Some((first, pipeline)) = hops.split_first() else { return Vec::new() };
    let member = first.member;
    let pipeline = pipeline.iter().map(Hop::to_message).collect();
    let (volume, incarnation) = (member.volume, member.incarnation);
    let message = pb::PutStaged { volume, incarnation, pipeline, hears_held_up: true, ..message };
    // Cancel-safety: the caller then gives up the ticket, and with it the bytes that members keep.
    along_chain(shared, hops, watched(shared, first, &message, vec![bytes], 0, WRITE_DEADLINE)).await
}

/// Waits for a pipeline's answer to a call to its first member. If a further member is missed, the wait ends before the
/// deadline. The hop before that member would wait for the whole deadline.
async fn along_chain(
    shared: &Arc<Shared>,
    hops: &[Hop],
    called: impl Future<Output = Result<Response<pb::WriteReplicaReply>>>,
) -> Vec<Heard> {
    let (pipeline, sent) = (&hops[1..], shared.runtime.now());
    tokio::select! {
        biased;
        reply = called => answers(hops, reply),
        () = pipeline_is_stuck(shared, pipeline, sent) => {
            let now = shared.runtime.now();
            for hop in pipeline.iter().filter(|hop| is_missed(shared, hop)) {
                let node = hop.member.node;
                if shared.nodes.on_unreached(node, sent, now) {
                    begin_asking(shared, node, &"the member before it in a pipeline got no answer");
                }
            }
            hops.iter().map(|_| Ok(None)).collect()
        }
    }
}

/// Reads the bytes that a member keeps of a direct write.
pub(crate) async fn read_put(
    shared: &Arc<Shared>,
    hop: &Hop,
    message: &pb::ReadStaged,
    expected: usize,
) -> Result<Response<pb::ReadStagedReply>> {
    watched(shared, hop, message, Vec::new(), expected, WRITE_DEADLINE).await
}

/// Whether a member of a pipeline is silent here, or late at the master.
fn is_missed(shared: &Shared, hop: &Hop) -> bool {
    let node = hop.member.node;
    shared.nodes.is_silent(node) || shared.nodes.is_late(node)
}

/// Returns when a call that was sent at `sent` waits for a member of its pipeline that is silent or late.
async fn pipeline_is_stuck(shared: &Arc<Shared>, pipeline: &[Hop], sent: Moment) {
    let nodes = &shared.nodes;
    loop {
        let changed = nodes.changes().notified_owned();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let waited = shared.runtime.now().since(sent);
        if !pipeline.iter().any(|hop| is_missed(shared, hop)) {
            changed.await;
        } else if waited >= LATE_WAIT {
            return;
        } else {
            shared.runtime.sleep(LATE_WAIT.saturating_sub(waited)).await;
        }
    }
}

/// The outcome for each hop. The call reached the first hop's address. If another node answers there, that node has the
/// address now, as after the loss of all volumes.
fn answers(hops: &[Hop], reply: Result<Response<pb::WriteReplicaReply>>) -> Vec<Heard> {
    let found = reply.and_then(|reply| {
        let results = reply.message.results;
        match hops.first().map(|hop| hop.member.node).zip(results.first()) {
            Some((asked, first)) if first.node != asked => {
                Err(err!(Unreachable, "n{} answers at {}, the former address of n{asked}", first.node, hops[0].address))
            }
            _ => Ok(results),
        }
    });
    let results = match found {
        Ok(results) => results,
        Err(error) => return std::iter::once(Err(error)).chain(hops.iter().skip(1).map(|_| Ok(None))).collect(),
    };
    let of = |hop: &Hop| Ok(results.iter().find(|result| result.node == hop.member.node).cloned());
    hops.iter().map(of).collect()
}

/// Asks a member to sync a metablock up to a version.
pub(crate) async fn sync(
    shared: &Arc<Shared>,
    metablock: MetablockId,
    member: &pb::Member,
    version: Version,
) -> Result<pb::SyncReplicasReply> {
    let hop = shared.nodes.hop(member)?;
    let replica = pb::SyncReplica {
        metablock: metablock.raw(),
        volume: member.volume,
        incarnation: member.incarnation,
        version: Some(version.into()),
    };
    let message = pb::SyncReplicas { replicas: vec![replica], pipeline: Vec::new() };
    Ok(call(shared, &hop, &message, Vec::new(), WRITE_DEADLINE).await?.message)
}

/// Makes `target` a copy of `source` at `at`, within a deadline.
pub(crate) async fn pull(
    shared: &Arc<Shared>,
    metablock: MetablockId,
    epoch: u64,
    source: &pb::Member,
    target: &pb::Member,
    at: Version,
    deadline: Duration,
) -> Result<()> {
    let hop = shared.nodes.hop(target)?;
    let message = pb::PullReplica {
        metablock: metablock.raw(),
        volume: target.volume,
        incarnation: target.incarnation,
        epoch,
        source: Some(shared.nodes.hop(source)?.to_message()),
        at: Some(at.into()),
        rate_bytes_per_sec: 0,
        source_metablock: 0,
        raid_set: 0,
        front_bytes: 0,
    };
    let reply = call(shared, &hop, &message, Vec::new(), deadline).await?.message;
    let reached = ebb_wire::convert::version(reply.version);
    if reached < at {
        return Err(err!(StaleVersion, "node n{} copied {metablock} at {reached}, {at} was wanted", target.node));
    }
    Ok(())
}

/// One call to a member, once its node is awake. If the node and this client are never awake together, a proxy relays
/// the call.
pub(crate) async fn call<C: Relayed>(
    shared: &Arc<Shared>,
    hop: &Hop,
    message: &C,
    payload: Vec<Bytes>,
    deadline: Duration,
) -> Result<Response<C::Reply>> {
    let member = hop.member;
    if shared.is_out_of_step(member.node) {
        return Ok(relay::call(shared, &[member], message, payload, 0).await?.response);
    }
    ask(shared, hop, message, payload, deadline).await
}

/// One call to a member, once its node is awake. It counts as a call in progress on the node. It ends early if a plan
/// comes that switches the node off: the node would keep the call for as long as it is off.
pub(crate) async fn ask<C: Call>(
    shared: &Arc<Shared>,
    hop: &Hop,
    message: &C,
    payload: Vec<Bytes>,
    deadline: Duration,
) -> Result<Response<C::Reply>> {
    shared.awake(hop.member.node).await?;
    unless(shared.switched_off(hop.member.node), watched(shared, hop, message, payload, 0, deadline)).await
}

/// The same, but it ends as soon as the node falls asleep: another node can do what it is asked for.
pub(crate) async fn ask_awake<C: Call>(
    shared: &Arc<Shared>,
    hop: &Hop,
    message: &C,
    payload: Vec<Bytes>,
    deadline: Duration,
) -> Result<Response<C::Reply>> {
    shared.awake(hop.member.node).await?;
    unless(shared.fallen_asleep(hop.member.node), watched(shared, hop, message, payload, 0, deadline)).await
}

/// The answer, or the error that comes before it. Answers are small: reads, which get large ones, go another way.
async fn unless<T>(ends: impl Future<Output = Error>, answer: impl Future<Output = Result<T>>) -> Result<T> {
    // Cancel-safety: as if the deadline had passed.
    tokio::select! {
        biased;
        answer = answer => answer,
        error = ends => Err(error),
    }
}

/// A read. Its size selects the connection, so that a small read does not queue behind big ones.
pub(crate) async fn read(
    shared: &Arc<Shared>,
    hop: &Hop,
    message: &pb::ReadReplica,
    deadline: Duration,
) -> Result<Response<pb::ReadReplicaReply>> {
    let expected = usize::try_from(message.length).unwrap_or(usize::MAX);
    watched(shared, hop, message, Vec::new(), expected, deadline).await
}

/// One call to a member, whose outcome is recorded as evidence about its node.
async fn watched<C: Call>(
    shared: &Arc<Shared>,
    hop: &Hop,
    message: &C,
    payload: Vec<Bytes>,
    expected: usize,
    deadline: Duration,
) -> Result<Response<C::Reply>> {
    let (nodes, node) = (&shared.nodes, hop.member.node);
    nodes.check_answers(node)?;
    let _outstanding = nodes.count_call(node);
    let (sent, bytes) = (shared.runtime.now(), payload.iter().map(Bytes::len).sum());
    // A node that sleeps by plan before the deadline may fail to answer. That is no evidence of a fault.
    let serves_on = shared.awake_for(hop.member.node_id()).left().is_none_or(|left| left >= deadline);
    let (channel, departure) = (shared.connector.channel(&hop.address), Departure::default());
    let answer = tokio::select! {
        biased;
        answer = channel.call_observed(message, payload, expected, deadline, &departure) => answer,
        // Cancel-safety: the call is forgotten as if its deadline had passed.
        () = given_up(shared, node, sent, deadline, &departure) => {
            Err(err!(Timeout, "node n{node} answers nothing: it is frozen, or cut off from here"))
        }
    };
    let (now, held_up) = (shared.runtime.now(), departure.held_up());
    shared.own_link.on_write(bytes, held_up, now);
    let sent = sent.after(held_up);
    let is_silent = match &answer {
        Ok(_) => {
            nodes.on_answer(node, now);
            false
        }
        Err(_) if !serves_on => false,
        Err(error) => match error.kind() {
            ErrorKind::Timeout => nodes.on_timeout(node, sent, deadline, now),
            ErrorKind::Disconnected => nodes.on_broken(node, sent, now),
            ErrorKind::Unreachable => nodes.on_unreached(node, sent, now),
            _ => false,
        },
    };
    if let (true, Err(error)) = (is_silent, &answer) {
        begin_asking(shared, node, error);
    }
    answer
}

/// Returns when it makes no sense any more to wait for an answer to a call that was begun at `begun`. Reasons are:
/// another call has found the node silent, the master misses its heartbeats too, or earlier calls failed.
async fn given_up(shared: &Arc<Shared>, node: u64, begun: Moment, deadline: Duration, departure: &Departure) {
    let nodes = &shared.nodes;
    loop {
        let changed = nodes.changes().notified_owned();
        tokio::pin!(changed);
        changed.as_mut().enable();
        if nodes.is_silent(node) {
            return;
        }
        // What waits in front of the link has not been sent.
        let (now, sent) = (shared.runtime.now(), begun.after(departure.held_up()));
        match nodes.ends_early(node, sent, deadline) {
            Some(end) if now < end => shared.runtime.sleep(end.since(now)).await,
            Some(_) if nodes.on_waited(node, sent, now) => {
                begin_asking(shared, node, &"the master misses its heartbeats, too, or earlier calls were in vain");
                return;
            }
            _ => changed.await,
        }
    }
}

fn begin_asking(shared: &Arc<Shared>, node: u64, reason: &dyn Display) {
    tracing::warn!(node, %reason, "a node answers nothing: do without it until it does");
    let own = shared.clone();
    shared.runtime.spawn("ask a silent node", async move { ask_silent(&own, node).await });
}

/// Asks a silent node until it answers this call or another, or is no node of the cluster any more. One such task runs
/// for each silent node.
async fn ask_silent(shared: &Shared, node: u64) {
    while !shared.closing.load(Ordering::Relaxed)
        && shared.nodes.is_silent(node)
        && let Some(address) = shared.nodes.address(node)
    {
        let asked = shared.connector.channel(&address).call(&pb::Counters {}, PROBE_DEADLINE).await;
        if asked.err().is_none_or(|error| is_answer(error.kind())) {
            break;
        }
        shared.runtime.sleep(PROBE_PAUSE).await;
    }
    if shared.nodes.on_answer(node, shared.runtime.now()) {
        tracing::info!(node, "a node answers again");
    }
}

/// Whether an error of this kind is an answer of the node. Connections to a frozen process break, because nothing comes
/// from it. They can also be made, because its kernel accepts them. So such errors prove nothing.
fn is_answer(kind: ErrorKind) -> bool {
    !matches!(kind, ErrorKind::Timeout | ErrorKind::Unreachable | ErrorKind::Disconnected)
}

/// Reports damage to the master, without waiting.
pub(crate) fn report(shared: &Arc<Shared>, metablock: MetablockId, member: pb::Member, error: &Error) {
    let Some(message) = pb::ReportReplica::of(metablock, member, error) else { return };
    let own = shared.clone();
    shared.runtime.spawn("report a replica", async move {
        let outcome = own.session.masters.call(&message, crate::session::ATTEMPT, own.session.deadline()).await;
        if let Err(error) = outcome.result {
            tracing::debug!(%error, "reporting a replica");
        }
    });
}
