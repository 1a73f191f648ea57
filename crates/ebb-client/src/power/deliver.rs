//! Carries out a call that a proxy holds: asks the first member that wakes, and the others if that one fails.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_types::deadlines::WRITE_DEADLINE;
use ebb_types::{CHUNK_SIZE, Error, ErrorKind, Result, Version, bail, err};
use ebb_wire::frame::crc32c;
use ebb_wire::pb::relay_call::Call as Held;
use ebb_wire::pb::relay_reply::Answer;
use ebb_wire::{convert, pb};

use crate::client::Client;
use crate::shared::Shared;
use crate::write::members;

/// A copy that a proxy has a node make for a node that never serves together with it.
const RELAYED_PULL: Duration = Duration::from_secs(60);

/// After a failure that may pass.
const PAUSE: Duration = Duration::from_millis(50);
/// A longer wait is judged anew after this: plans change, clocks are put right, and the caller may give up.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How long after its time a node that falls asleep is still waited for.
const SLACK: Duration = Duration::from_millis(50);

/// A member's answer, and the bytes beside it.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// Who.
    pub node: u64,
    /// The answer.
    pub answer: Answer,
    /// Bytes that were read.
    pub payload: Bytes,
}

impl Client {
    /// Carries a call out at the first of `members` that wakes, for a caller that is asleep then. `volume` and
    /// `incarnation` are filled in. `may` is asked before each attempt and while no member is awake; its error ends
    /// the wait. The call must be safe to repeat.
    ///
    /// Errors: `may`'s; the last member's, when every one of them has refused for good.
    pub async fn deliver<F: Future<Output = Result<()>> + Send>(
        &self,
        members: &[pb::Member],
        call: &Held,
        payload: &Bytes,
        may: impl Fn() -> F + Send + Sync,
    ) -> Result<Delivered> {
        let shared = self.shared();
        // In the order in which they are to be asked.
        let mut left = members.to_vec();
        loop {
            may().await?;
            let Some(place) = left.iter().position(|member| !shared.awake_for(member.node_id()).is_asleep()) else {
                let wakes = left.iter().filter_map(|member| shared.wakes_in(member.node)).min();
                shared.runtime.sleep(wakes.map_or(LOOK_AGAIN, |wait| wait.min(LOOK_AGAIN))).await;
                continue;
            };
            let member = left.remove(place);
            let error = match attempt(shared, &member, call, payload).await {
                Ok((answer, payload)) => return Ok(Delivered { node: member.node, answer, payload }),
                Err(error) => error,
            };
            tracing::debug!(node = member.node, %error, "delivering a call that was held");
            if passes(error.kind()) {
                left.push(member);
                shared.runtime.sleep(PAUSE).await;
                continue;
            }
            if let Some(metablock) = metablock_of(call) {
                members::report(shared, metablock, member, &error);
            }
            if left.is_empty() {
                return Err(error);
            }
        }
    }
}

/// Whether the member may well carry it out later.
fn passes(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Timeout
            | ErrorKind::Disconnected
            | ErrorKind::Unreachable
            | ErrorKind::Unavailable
            | ErrorKind::Overloaded
            | ErrorKind::ShuttingDown
            | ErrorKind::Busy
            | ErrorKind::Interrupted
    )
}

fn metablock_of(call: &Held) -> Option<ebb_types::MetablockId> {
    let id = match call {
        Held::Read(read) => read.metablock,
        Held::Seek(seek) => seek.metablock,
        Held::Write(write) => write.metablock,
        Held::Pull(pull) => pull.metablock,
        Held::Sync(sync) => sync.replicas.first()?.metablock,
    };
    Some(ebb_types::MetablockId::new(id))
}

async fn attempt(shared: &Arc<Shared>, member: &pb::Member, call: &Held, payload: &Bytes) -> Result<(Answer, Bytes)> {
    let hop = shared.nodes.hop(member)?;
    // Who falls asleep meanwhile answers when it wakes: it is asked again then.
    let left = shared.awake_for(member.node_id()).left();
    let within = |longest: Duration| left.map_or(longest, |left| longest.min(left + SLACK));
    let (volume, incarnation) = (member.volume, member.incarnation);
    match call {
        Held::Read(read) => {
            let read = pb::ReadReplica { volume, queue_max: None, ..*read };
            let answer = members::read(shared, &hop, &read, within(WRITE_DEADLINE)).await?;
            let (message, data) = (answer.message, answer.payload);
            check(&read, &message, &data)?;
            Ok((Answer::Read(message), data))
        }
        Held::Seek(seek) => {
            let seek = pb::SeekReplica { volume, ..*seek };
            let answer = members::ask(shared, &hop, &seek, Vec::new(), within(WRITE_DEADLINE)).await?;
            Ok((Answer::Seek(answer.message), Bytes::new()))
        }
        Held::Write(write) => {
            let write = pb::WriteReplica { volume, incarnation, pipeline: Vec::new(), ..write.clone() };
            let payload = if payload.is_empty() { Vec::new() } else { vec![payload.clone()] };
            let answer = members::ask(shared, &hop, &write, payload, within(WRITE_DEADLINE)).await?;
            Ok((Answer::Write(answer.message), Bytes::new()))
        }
        Held::Sync(sync) => {
            let of_member = |replica: &pb::SyncReplica| pb::SyncReplica { volume, incarnation, ..*replica };
            let replicas = sync.replicas.iter().map(of_member).collect();
            let sync = pb::SyncReplicas { replicas, pipeline: Vec::new() };
            let answer = members::ask(shared, &hop, &sync, Vec::new(), within(WRITE_DEADLINE)).await?;
            Ok((Answer::Sync(answer.message), Bytes::new()))
        }
        Held::Pull(pull) => {
            let pull = pb::PullReplica { volume, incarnation, ..pull.clone() };
            // It goes on while its node sleeps, and is answered when it is over.
            let answer = members::ask(shared, &hop, &pull, Vec::new(), RELAYED_PULL).await?;
            Ok((Answer::Pull(answer.message), Bytes::new()))
        }
    }
}

/// The kept answer must match the request: no older version, no damaged bytes.
fn check(read: &pb::ReadReplica, reply: &pb::ReadReplicaReply, data: &Bytes) -> Result<()> {
    let (served, wanted): (Version, Version) = (convert::version(reply.version), convert::version(read.min_version));
    if served < wanted {
        bail!(StaleVersion, "m{} at {served}, {wanted} was asked for", read.metablock);
    }
    verify(data, &reply.checksums, read.metablock, read.offset, read.length)
}

/// Compares bytes of a metablock with the checksums that their writer made.
pub(crate) fn verify(data: &Bytes, checksums: &[u32], metablock: u64, offset: u64, len: u64) -> Result<()> {
    let chunks = data.chunks(CHUNK_SIZE as usize);
    if data.len() as u64 > len || chunks.len() != checksums.len() {
        return Err(err!(
            Protocol,
            "{} bytes with {} checksums for {len} wanted of m{metablock}",
            data.len(),
            checksums.len()
        ));
    }
    for (at, (chunk, checksum)) in chunks.zip(checksums).enumerate() {
        if crc32c(chunk) != *checksum {
            let offset = offset + at as u64 * CHUNK_SIZE;
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("m{metablock}: bytes at {offset} do not match their checksum"),
            ));
        }
    }
    Ok(())
}
