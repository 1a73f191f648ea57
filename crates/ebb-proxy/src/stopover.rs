//! Replicas on their way between nodes that are never awake together. The proxy fetches a replica while its node is
//! awake. The other node pulls it when it wakes (BlinkFS, Sec. 4.2: "node to node if both are awake, else via the
//! proxy").
//!
//! The proxy keeps a metablock at one version, and the bytes of a version never change. The node that pulls it checks
//! by version and epoch whether it still needs it. So nothing is fenced here. Nothing has to survive this process
//! either: the master has it fetched again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_client::Client;
use ebb_rpc::Answer;
use ebb_runtime::{Moment, Runtime};
use ebb_types::{CHUNK_SIZE, Error, MetablockId, Result, Version, bail, err};
use ebb_wire::pb::relay_call::Call as Held;
use ebb_wire::pb::relay_reply::Answer as RelayAnswer;
use ebb_wire::{convert, pb};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Bytes of one fetch.
const PIECE_BYTES: u64 = 1 << 20;
/// Longest time that a replica is kept, whatever the master asks for: twice the longest usual interval, and some.
const PATIENCE_MAX: Duration = Duration::from_secs(3600);
/// Memory that is counted for each replica, beyond its bytes.
const OVERHEAD: u64 = 1024;
/// Largest answer: the largest payload of a frame.
const READ_MAX: u64 = 16 << 20;

/// Replicas that are here, and replicas on their way here.
pub(crate) struct Stopovers {
    runtime: Runtime,
    client: Client,
    kept: Mutex<BTreeMap<CopyName, Stopover>>,
    memory: Arc<Semaphore>,
    memory_max: u64,
}

/// A metablock at one version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct CopyName {
    metablock: MetablockId,
    at: Version,
}

impl CopyName {
    fn new(metablock: u64, at: Option<pb::Version>) -> Self {
        Self { metablock: MetablockId::new(metablock), at: convert::version(at) }
    }
}

struct Stopover {
    source: pb::Member,
    until: Moment,
    state: watch::Receiver<State>,
}

/// State of a replica's fetch.
#[derive(Clone)]
enum State {
    OnItsWay,
    Here(Arc<Replica>),
    Failed(Error),
}

/// A whole replica, in pieces of one size. The last piece may be shorter.
struct Replica {
    version: Version,
    length: u64,
    pieces: Vec<Bytes>,
    /// Checksum of each chunk, made by the writer.
    checksums: Vec<u32>,
    _memory: OwnedSemaphorePermit,
}

impl Stopovers {
    /// An empty store, with room for this many bytes.
    pub fn new(runtime: Runtime, client: Client, memory_max: usize) -> Self {
        let memory_max = memory_max.min(u32::MAX as usize);
        Self {
            runtime,
            client,
            kept: Mutex::default(),
            memory: Arc::new(Semaphore::new(memory_max)),
            memory_max: memory_max as u64,
        }
    }

    /// Answers `FetchReplica` when the replica is here.
    ///
    /// Errors: `Timeout` before `deadline`, and the fetch goes on; `Overloaded` if there is no room.
    pub async fn fetch(&self, call: pb::FetchReplica, deadline: Duration) -> Result<Answer> {
        let name = CopyName::new(call.metablock, call.at);
        if call.taken {
            self.kept.lock().remove(&name);
            return Ok(Answer::new(&pb::FetchReplicaReply::default()));
        }
        let mut state = self.enter(name, call)?;
        let arrived = async {
            let arrived = state.wait_for(|state| !matches!(state, State::OnItsWay)).await;
            arrived.map(|state| state.clone()).map_err(|_| err!(Unavailable, "fetching a replica was given up"))
        };
        match self.runtime.timeout(deadline, "the replica is not here yet", arrived).await? {
            State::Here(replica) => Ok(Answer::new(&pb::FetchReplicaReply { length: replica.length })),
            State::Failed(error) => {
                // The next call tries again.
                let mut kept = self.kept.lock();
                if kept.get(&name).is_some_and(|stopover| stopover.state.same_channel(&state)) {
                    kept.remove(&name);
                }
                Err(error)
            }
            State::OnItsWay => bail!(Internal, "a replica that is on its way was taken for one that is here"),
        }
    }

    fn enter(&self, name: CopyName, call: pb::FetchReplica) -> Result<watch::Receiver<State>> {
        let until = self.runtime.now().after(Duration::from_millis(call.patience_ms.into()).min(PATIENCE_MAX));
        let Some(source) = call.source else { bail!(Invalid, "a replica without a node to fetch it from") };
        let mut kept = self.kept.lock();
        if let Some(known) = kept.get_mut(&name) {
            // I-7: bytes of a version are the same from every source, so a replica that is here serves. A fetch from a
            // node that the master has given up may never end.
            if known.source == source || !matches!(*known.state.borrow(), State::OnItsWay) {
                known.until = known.until.max(until);
                return Ok(known.state.clone());
            }
            kept.remove(&name);
        }
        let bytes = call.length.saturating_add(OVERHEAD);
        if bytes > self.memory_max {
            bail!(Invalid, "m{} has {} bytes, and {} fit here", call.metablock, call.length, self.memory_max);
        }
        let permits =
            u32::try_from(bytes).map_err(|_| err!(Invalid, "m{} has {} bytes", call.metablock, call.length))?;
        let memory = Arc::clone(&self.memory).try_acquire_many_owned(permits);
        let memory =
            memory.map_err(|_| err!(Overloaded, "replicas on their way fill the {} bytes", self.memory_max))?;
        let (state_sender, state) = watch::channel(State::OnItsWay);
        let before = kept.insert(name, Stopover { source, until, state: state.clone() });
        assert!(before.is_none(), "{name:?} is fetched twice: its room would be counted twice");
        drop(kept);
        let client = self.client.clone();
        // A task of its own: the caller may stop waiting, and call again.
        self.runtime.spawn("fetch a replica", async move {
            let fetched = tokio::select! {
                biased;
                // No call waits for it any more.
                () = state_sender.closed() => return,
                fetched = fetch(&client, source, name, call.length, memory) => fetched,
            };
            let state = fetched.map_or_else(State::Failed, |replica| State::Here(Arc::new(replica)));
            // The send fails if no call waits for it any more.
            let _ = state_sender.send(state);
        });
        Ok(state)
    }

    fn find(&self, name: CopyName) -> Result<Arc<Replica>> {
        let kept = self.kept.lock();
        let state = kept.get(&name).map(|stopover| stopover.state.borrow().clone());
        match state {
            Some(State::Here(replica)) => Ok(replica),
            _ => bail!(NoReplica, "{} at {} is not kept here", name.metablock, name.at),
        }
    }

    /// Answers `ReadReplica`, at exactly the named version.
    pub fn read(&self, call: &pb::ReadReplica) -> Result<Answer> {
        let replica = self.find(CopyName::new(call.metablock, call.min_version))?;
        let is_whole = call.offset.is_multiple_of(CHUNK_SIZE) && call.length.is_multiple_of(CHUNK_SIZE);
        if !is_whole || call.length > READ_MAX {
            bail!(Invalid, "{} bytes at {} of m{} are no whole chunks", call.length, call.offset, call.metablock);
        }
        let (buffers, checksums) = replica.range(call.offset, call.length);
        let (version, length) = (Some(replica.version.into()), replica.length);
        let reply = pb::ReadReplicaReply { version, length, checksums, ..Default::default() };
        Ok(Answer::with(&reply, buffers.into()))
    }

    /// Answers `SeekReplica`. All bytes count as data. Zeros become holes again when they are written.
    pub fn seek(&self, call: &pb::SeekReplica) -> Result<Answer> {
        let length = self.find(CopyName::new(call.metablock, call.min_version))?.length;
        let found = !call.hole && call.offset < length;
        Ok(Answer::new(&pb::SeekReplicaReply { offset: if found { call.offset } else { 0 }, found, length }))
    }

    /// Forgets replicas whose time is over. The caller runs it periodically.
    pub fn sweep(&self) {
        let now = self.runtime.now();
        self.kept.lock().retain(|_, stopover| now < stopover.until);
    }
}

impl Replica {
    /// Bytes and checksums from `offset` on, at most `len` bytes.
    fn range(&self, offset: u64, len: u64) -> (Vec<Bytes>, Vec<u32>) {
        let end = offset.saturating_add(len).min(self.length);
        let (mut at, mut buffers) = (offset, Vec::new());
        while at < end {
            let within = at % PIECE_BYTES;
            let Some(piece) = self.pieces.get((at / PIECE_BYTES) as usize) else { break };
            let until = (end - at + within).min(piece.len() as u64);
            if until <= within {
                break;
            }
            buffers.push(piece.slice(within as usize..until as usize));
            at += until - within;
        }
        let first = (offset / CHUNK_SIZE) as usize;
        let chunks = at.saturating_sub(offset).div_ceil(CHUNK_SIZE) as usize;
        let checksums = self.checksums.iter().skip(first).take(chunks).copied().collect();
        (buffers, checksums)
    }
}

/// Reads a whole replica from its node, while the node is awake. If the node falls asleep, the rest follows when it
/// wakes.
async fn fetch(
    client: &Client,
    source: pb::Member,
    name: CopyName,
    length_max: u64,
    memory: OwnedSemaphorePermit,
) -> Result<Replica> {
    let CopyName { metablock, at } = name;
    let mut replica = Replica { version: at, length: 0, pieces: Vec::new(), checksums: Vec::new(), _memory: memory };
    loop {
        let offset = replica.pieces.len() as u64 * PIECE_BYTES;
        let read = pb::ReadReplica {
            metablock: metablock.raw(),
            volume: source.volume,
            min_version: Some(at.into()),
            offset,
            length: PIECE_BYTES,
            queue_max: None,
            raid_set: 0,
            sums_only: false,
        };
        // This verifies the checksums, and waits until the node wakes. The wait ends with this task.
        let done = client.deliver(&[source], &Held::Read(read), &Bytes::new(), || async { Ok(()) }).await?;
        let RelayAnswer::Read(answer) = done.answer else {
            bail!(Protocol, "a read of {metablock} was answered otherwise")
        };
        let version = convert::version(answer.version);
        if version != at || (offset > 0 && answer.length != replica.length) {
            bail!(StaleVersion, "{metablock} is at {version}, and {at} was wanted");
        }
        if answer.length > length_max {
            bail!(Protocol, "{metablock} has {} bytes, not the {length_max} that were announced", answer.length);
        }
        replica.length = answer.length;
        let is_last = offset + done.payload.len() as u64 >= answer.length;
        if !is_last && done.payload.len() as u64 != PIECE_BYTES {
            bail!(Protocol, "{metablock}: {} bytes at {offset} of {}", done.payload.len(), answer.length);
        }
        replica.pieces.push(done.payload);
        replica.checksums.extend(answer.checksums);
        if is_last {
            let bytes: u64 = replica.pieces.iter().map(|piece| piece.len() as u64).sum();
            assert!(bytes >= replica.length, "{metablock} has {} bytes and {bytes} are here", replica.length);
            return Ok(replica);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_whole_chunks_are_found_across_pieces_with_their_checksums() {
        let length = 2 * PIECE_BYTES + CHUNK_SIZE + 5;
        let all: Vec<u8> = (0..length).map(|at| (at / 7) as u8).collect();
        let memory = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let pieces = all.chunks(PIECE_BYTES as usize).map(Bytes::copy_from_slice).collect();
        let sums: Vec<u32> = (0..length.div_ceil(CHUNK_SIZE)).map(|chunk| chunk as u32).collect();
        let replica = Replica { version: Version::ZERO, length, pieces, checksums: sums.clone(), _memory: memory };
        for (offset, len) in [
            (0, PIECE_BYTES),
            (CHUNK_SIZE, PIECE_BYTES),
            (PIECE_BYTES - CHUNK_SIZE, PIECE_BYTES + 2 * CHUNK_SIZE),
            (2 * PIECE_BYTES, PIECE_BYTES),
            (2 * PIECE_BYTES + CHUNK_SIZE, CHUNK_SIZE),
            (0, u64::MAX - CHUNK_SIZE),
            (3 * PIECE_BYTES, CHUNK_SIZE),
        ] {
            let (buffers, checksums) = replica.range(offset, len);
            let end = offset.saturating_add(len).min(length).max(offset);
            let expected = all.get(offset as usize..end as usize).unwrap_or_default();
            assert_eq!(buffers.concat(), expected, "{len} at {offset}");
            let first = (offset / CHUNK_SIZE) as usize;
            let expected: Vec<u32> =
                sums.iter().skip(first).take((end - offset).div_ceil(CHUNK_SIZE) as usize).copied().collect();
            assert_eq!(checksums, expected, "{len} at {offset}");
        }
    }
}
