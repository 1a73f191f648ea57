//! A block server in memory that keeps to the protocol: versions in order, boots, syncs. Bytes that were not synced
//! are gone after a restart. Its disk is an `Arc` that outlives the process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_rpc::{Answer, Connector, Counters, Identity, Payload, Request, Server, ServerOptions, Service, ServiceFuture};
use ebb_runtime::Runtime;
use ebb_types::{CHUNK_SIZE, Epoch, ErrorKind, HostName, Result, Version, err};
use ebb_wire::frame::crc32c;
use ebb_wire::{Method, convert, pb};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// What one state of a replica holds.
#[derive(Clone, Debug, Default)]
struct Content {
    version: Version,
    bytes: Vec<u8>,
    /// Chunks that were written.
    data: BTreeSet<u64>,
}

#[derive(Clone, Debug, Default)]
struct Replica {
    promised: Epoch,
    memory: Content,
    disk: Content,
    /// Which of the replicas that there were here under this id; a deletion names it.
    life: u64,
}

/// What outlives the process.
#[derive(Debug, Default)]
pub(crate) struct FakeDisk {
    node: u64,
    volume: u64,
    replicas: BTreeMap<u64, Replica>,
    /// Lives given out.
    lives: u64,
    /// Deleted ids, and the epoch below which they take nothing.
    tombstones: BTreeMap<u64, u64>,
    /// Reads answer with flipped bits.
    pub corrupt: bool,
    /// Writes are refused for want of space.
    pub full: bool,
}

impl FakeDisk {
    /// The replica, made if it is not there.
    fn replica(&mut self, metablock: u64) -> &mut Replica {
        let lives = &mut self.lives;
        self.replicas.entry(metablock).or_insert_with(|| {
            *lives += 1;
            Replica { life: *lives, ..Replica::default() }
        })
    }

    fn refuse_buried(&self, metablock: u64, epoch: u64) -> Result<()> {
        match self.tombstones.get(&metablock) {
            Some(below) if epoch < *below => Err(err!(StaleEpoch, "m{metablock} was deleted at e{below}")),
            _ => Ok(()),
        }
    }

    fn delete(&mut self, one: &pb::DeletedReplica) {
        let life = self.replicas.get(&one.metablock).map_or(0, |replica| replica.life);
        if one.life == 0 || one.life == life {
            self.replicas.remove(&one.metablock);
            let below = self.tombstones.entry(one.metablock).or_default();
            *below = one.epoch.unwrap_or(u64::MAX).max(*below);
        }
    }

    fn describe(&self, name: &pb::ReplicaName) -> pb::DescribedReplica {
        let found = self.replicas.get(&name.metablock).filter(|_| name.volume == self.volume);
        let (metablock, volume, absent) = (name.metablock, name.volume, found.is_none());
        let Some(replica) = found else {
            return pb::DescribedReplica { metablock, volume, absent, ..Default::default() };
        };
        pb::DescribedReplica {
            metablock,
            volume,
            version: Some(replica.disk.version.into()),
            length: replica.disk.bytes.len() as u64,
            life: replica.life,
            ..Default::default()
        }
    }
}

pub(crate) type SharedDisk = Arc<Mutex<FakeDisk>>;

struct FakeBlock {
    runtime: Runtime,
    connector: Connector,
    disk: SharedDisk,
    boot: u64,
    changed: Notify,
    sync_takes: Duration,
}

/// Starts a life of a block server. Bytes that an earlier one has not synced are gone.
pub(crate) async fn start(runtime: Runtime, identity: Identity, master: String, address: String, disk: SharedDisk) {
    let boot = runtime.random_u64() | 1;
    for replica in disk.lock().replicas.values_mut() {
        replica.memory = replica.disk.clone();
    }
    let connector = Connector::new(runtime.clone(), identity.clone(), Counters::default());
    let listener = runtime.listen(&address).await.unwrap();
    let address = listener.address();
    let host = identity.host.clone();
    let block = Arc::new(FakeBlock {
        runtime: runtime.clone(),
        connector: connector.clone(),
        disk: disk.clone(),
        boot,
        changed: Notify::new(),
        sync_takes: Duration::from_millis(2),
    });
    let server = Server::run(runtime.clone(), listener, identity, Counters::default(), ServerOptions::default(), block);
    runtime.spawn("fake block server", server);
    runtime.clone().spawn("fake heartbeat", async move {
        loop {
            if let Err(error) = live(&runtime, &connector, &master, &host, &address, boot, &disk).await {
                tracing::debug!(%error, "fake block server registers again");
            }
            runtime.sleep(Duration::from_millis(200)).await;
        }
    });
}

async fn live(
    runtime: &Runtime,
    connector: &Connector,
    master: &str,
    host: &HostName,
    address: &str,
    boot: u64,
    disk: &SharedDisk,
) -> Result<()> {
    let deadline = Duration::from_secs(2);
    let channel = connector.channel(master);
    let (node, volume) = {
        let disk = disk.lock();
        (disk.node, disk.volume)
    };
    let space = pb::Volume {
        id: volume,
        incarnation: 1,
        path: format!("/{host}"),
        capacity_bytes: 1 << 40,
        free_bytes: 1 << 40,
        state: pb::VolumeState::VolumeLive as i32,
        ..Default::default()
    };
    let register = pb::RegisterNode {
        version: ebb_types::cluster_version::NEWEST,
        node,
        host: host.as_str().to_owned(),
        rack: "r".to_owned(),
        address: address.to_owned(),
        boot,
        pid: 1,
        volumes: vec![space.clone()],
        ..Default::default()
    };
    let reply = channel.call(&register, deadline).await?;
    let volume = reply.volumes[0].id;
    let states = {
        let mut disk = disk.lock();
        (disk.node, disk.volume) = (reply.node, volume);
        disk.replicas
            .iter()
            .map(|(id, replica)| pb::ReplicaState {
                metablock: *id,
                version: Some(replica.disk.version.into()),
                promised_epoch: replica.promised.raw(),
                length: replica.disk.bytes.len() as u64,
                corrupt: false,
            })
            .collect()
    };
    let report = pb::ReplicaReport { node: reply.node, boot, volume, replicas: states, last: true };
    channel.call(&report, deadline).await?;
    loop {
        let volumes = vec![pb::Volume { id: volume, ..space.clone() }];
        let beat =
            pb::Heartbeat { node: reply.node, boot, volumes, corrupt: Vec::new(), load: 0, ..Default::default() };
        if channel.call(&beat, deadline).await?.report {
            return Ok(());
        }
        runtime.sleep(Duration::from_millis(500)).await;
    }
}

impl Service for FakeBlock {
    fn handle(&self, request: Request) -> ServiceFuture<'_> {
        Box::pin(async move {
            match request.method {
                Method::WriteReplica => self.write(request.decode()?, request.payload.clone(), request.deadline).await,
                Method::SyncReplicas => self.sync(request.decode()?).await,
                Method::ReadReplica => self.read(&request.decode()?),
                Method::SeekReplica => self.seek(&request.decode()?),
                Method::PromiseEpoch => Ok(Answer::new(&self.promise(&request.decode()?))),
                Method::PullReplica => self.pull(request.decode()?).await,
                Method::StampReplica => self.stamp(&request.decode()?),
                Method::DeleteReplicas => {
                    let delete: pb::DeleteReplicas = request.decode()?;
                    let mut disk = self.disk.lock();
                    delete.replicas.iter().for_each(|one| disk.delete(one));
                    Ok(Answer::new(&pb::Empty {}))
                }
                Method::DescribeReplicas => {
                    let call: pb::DescribeReplicas = request.decode()?;
                    let disk = self.disk.lock();
                    let replicas = call.replicas.iter().map(|name| disk.describe(name)).collect();
                    Ok(Answer::new(&pb::DescribeReplicasReply { replicas }))
                }
                other => Err(err!(Unsupported, "{other:?}")),
            }
        })
    }
}

impl FakeBlock {
    async fn write(&self, message: pb::WriteReplica, payload: Bytes, deadline: Duration) -> Result<Answer> {
        let own = self.write_here(&message, &payload);
        let (own, behind) = tokio::join!(own, self.forward(&message, payload.clone(), deadline));
        let mut results = vec![self.result(&message, own)];
        results.extend(behind);
        Ok(Answer::new(&pb::WriteReplicaReply { results }))
    }

    async fn forward(&self, message: &pb::WriteReplica, payload: Bytes, deadline: Duration) -> Vec<pb::MemberResult> {
        let Some((next, pipeline)) = message.pipeline.split_first() else { return Vec::new() };
        let member = next.member.unwrap_or_default();
        let forward = pb::WriteReplica {
            volume: member.volume,
            incarnation: member.incarnation,
            pipeline: pipeline.to_vec(),
            ..message.clone()
        };
        let deadline = deadline.mul_f64(0.8);
        match self.connector.channel(&next.address).call_with(&forward, vec![payload], deadline).await {
            Ok(reply) => reply.message.results,
            Err(error) => vec![pb::MemberResult {
                node: member.node,
                volume: member.volume,
                failure: Some((&error).into()),
                ..Default::default()
            }],
        }
    }

    fn result(&self, message: &pb::WriteReplica, outcome: Result<()>) -> pb::MemberResult {
        let disk = self.disk.lock();
        let replica = disk.replicas.get(&message.metablock).cloned().unwrap_or_default();
        pb::MemberResult {
            node: disk.node,
            volume: disk.volume,
            boot: self.boot,
            received: Some(replica.memory.version.into()),
            synced: Some(replica.disk.version.into()),
            failure: outcome.err().map(|error| (&error).into()),
        }
    }

    async fn write_here(&self, message: &pb::WriteReplica, payload: &Bytes) -> Result<()> {
        let (version, predecessor) = (convert::version(message.version), convert::version(message.predecessor));
        let started = self.runtime.now();
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut disk = self.disk.lock();
                if disk.volume != message.volume {
                    return Err(err!(NoReplica, "another volume"));
                }
                if disk.full {
                    return Err(err!(NoSpace, "full"));
                }
                disk.refuse_buried(message.metablock, version.epoch.raw())?;
                let replica = disk.replica(message.metablock);
                if version.epoch < replica.promised {
                    return Err(err!(StaleEpoch, "promised {}", replica.promised));
                }
                if replica.memory.version >= version {
                    break;
                }
                if replica.memory.version == predecessor {
                    replica.promised = version.epoch;
                    apply(&mut replica.memory, message, payload);
                    replica.memory.version = version;
                    break;
                }
            }
            if self.runtime.now().since(started) > Duration::from_millis(500) {
                return Err(err!(Gap, "{predecessor} is missing"));
            }
            tokio::select! {
                biased;
                () = changed => {}
                () = self.runtime.sleep(Duration::from_millis(100)) => {}
            }
        }
        self.changed.notify_waiters();
        if message.sync {
            self.sync_one(message.metablock).await;
        }
        Ok(())
    }

    async fn sync_one(&self, metablock: u64) {
        let reached = self.disk.lock().replicas.get(&metablock).map(|replica| replica.memory.clone());
        self.runtime.sleep(self.sync_takes).await;
        if let (Some(content), Some(replica)) = (reached, self.disk.lock().replicas.get_mut(&metablock))
            && content.version > replica.disk.version
        {
            replica.disk = content;
        }
    }

    async fn sync(&self, message: pb::SyncReplicas) -> Result<Answer> {
        let mut replicas = Vec::new();
        for wanted in message.replicas {
            self.sync_one(wanted.metablock).await;
            let disk = self.disk.lock();
            let synced = disk.replicas.get(&wanted.metablock).map_or(Version::ZERO, |replica| replica.disk.version);
            let failure = (synced < convert::version(wanted.version))
                .then(|| pb::Failure::from(&err!(Gap, "only {synced} is here")));
            replicas.push(pb::SyncedReplica { metablock: wanted.metablock, synced: Some(synced.into()), failure });
        }
        Ok(Answer::new(&pb::SyncReplicasReply { boot: self.boot, replicas }))
    }

    fn read(&self, message: &pb::ReadReplica) -> Result<Answer> {
        let mut disk = self.disk.lock();
        let (corrupt, volume) = (disk.corrupt, disk.volume);
        let Some(replica) = disk.replicas.get_mut(&message.metablock).filter(|_| volume == message.volume) else {
            return Err(err!(NoReplica, "no m{}", message.metablock));
        };
        let wanted = convert::version(message.min_version);
        if replica.disk.version < wanted && replica.memory.version >= wanted {
            replica.disk = replica.memory.clone();
        }
        if replica.disk.version < wanted {
            return Err(err!(StaleVersion, "{} is below {wanted}", replica.disk.version));
        }
        let bytes = &replica.disk.bytes;
        let start = (message.offset as usize).min(bytes.len());
        let end = ((message.offset + message.length) as usize).min(bytes.len());
        let mut payload = bytes[start..end].to_vec();
        let checksums = payload.chunks(CHUNK_SIZE as usize).map(crc32c).collect();
        if corrupt && !payload.is_empty() {
            payload[0] ^= 1;
        }
        let reply = pb::ReadReplicaReply {
            version: Some(replica.disk.version.into()),
            length: bytes.len() as u64,
            checksums,
            ..Default::default()
        };
        Ok(Answer::with(&reply, Payload::Buffers(vec![payload.into()])))
    }

    fn seek(&self, message: &pb::SeekReplica) -> Result<Answer> {
        let disk = self.disk.lock();
        let Some(replica) = disk.replicas.get(&message.metablock) else {
            return Err(err!(NoReplica, "no m{}", message.metablock));
        };
        let length = replica.disk.bytes.len() as u64;
        let mut at = message.offset;
        while at < length && replica.disk.data.contains(&(at / CHUNK_SIZE)) == message.hole {
            at = (at / CHUNK_SIZE + 1) * CHUNK_SIZE;
        }
        Ok(Answer::new(&pb::SeekReplicaReply { offset: at, found: at < length, length }))
    }

    fn promise(&self, message: &pb::PromiseEpoch) -> pb::PromiseEpochReply {
        let mut disk = self.disk.lock();
        let epoch = Epoch::new(message.epoch);
        let replicas = message
            .replicas
            .iter()
            .map(|name| {
                let absent = !disk.replicas.contains_key(&name.metablock);
                let replica = disk.replica(name.metablock);
                replica.promised = replica.promised.max(epoch);
                replica.disk = replica.memory.clone();
                pb::PromisedReplica {
                    metablock: name.metablock,
                    volume: name.volume,
                    version: Some(replica.disk.version.into()),
                    length: replica.disk.bytes.len() as u64,
                    absent,
                    failure: None,
                }
            })
            .collect();
        pb::PromiseEpochReply { replicas }
    }

    async fn pull(&self, message: pb::PullReplica) -> Result<Answer> {
        let source = message.source.unwrap_or_default();
        let wanted = convert::version(message.at);
        let mut content = Content::default();
        loop {
            let read = pb::ReadReplica {
                metablock: message.metablock,
                volume: source.member.unwrap_or_default().volume,
                min_version: Some(wanted.into()),
                offset: content.bytes.len() as u64,
                length: 1 << 20,
                queue_max: None,
                raid_set: 0,
                sums_only: false,
            };
            let deadline = Duration::from_secs(5);
            let part = self.connector.channel(&source.address).call_with(&read, Vec::new(), deadline).await?;
            let version = convert::version(part.message.version);
            if !content.bytes.is_empty() && version != content.version {
                content = Content::default();
                continue;
            }
            content.version = version;
            content.bytes.extend_from_slice(&part.payload);
            if content.bytes.len() as u64 >= part.message.length {
                break;
            }
        }
        content.data = (0..(content.bytes.len() as u64).div_ceil(CHUNK_SIZE)).collect();
        let reply = pb::PullReplicaReply { version: Some(content.version.into()), length: content.bytes.len() as u64 };
        let promised = Epoch::new(message.epoch);
        let mut disk = self.disk.lock();
        disk.refuse_buried(message.metablock, message.epoch)?;
        disk.lives += 1;
        let replica = Replica { promised, memory: content.clone(), disk: content, life: disk.lives };
        disk.replicas.insert(message.metablock, replica);
        Ok(Answer::new(&reply))
    }

    fn stamp(&self, message: &pb::StampReplica) -> Result<Answer> {
        let mut disk = self.disk.lock();
        let Some(replica) = disk.replicas.get_mut(&message.metablock) else {
            return Err(err!(NoReplica, "no m{}", message.metablock));
        };
        let version = Version::new(Epoch::new(message.epoch), 0);
        if replica.disk.version != convert::version(message.base) && replica.disk.version != version {
            return Err(ebb_types::Error::new(ErrorKind::StaleVersion, format!("at {}", replica.disk.version)));
        }
        replica.disk.bytes.truncate(message.length as usize);
        replica.disk.version = version;
        replica.promised = version.epoch;
        replica.memory = replica.disk.clone();
        let length = replica.disk.bytes.len() as u64;
        Ok(Answer::new(&pb::StampReplicaReply { version: Some(version.into()), length }))
    }
}

fn apply(content: &mut Content, message: &pb::WriteReplica, payload: &Bytes) {
    let (start, len) = (message.offset as usize, message.length as usize);
    let end = start + len;
    let chunks = message.offset / CHUNK_SIZE..(end as u64).div_ceil(CHUNK_SIZE);
    match message.kind() {
        pb::WriteKind::WriteData => {
            assert_eq!(payload.len(), len);
            let mut sums = Vec::new();
            let mut at = 0;
            while at < len {
                let stop = len.min(at + CHUNK_SIZE as usize - (start + at) % CHUNK_SIZE as usize);
                sums.push(crc32c(&payload[at..stop]));
                at = stop;
            }
            assert_eq!(sums, message.checksums);
            if content.bytes.len() < end {
                content.bytes.resize(end, 0);
            }
            content.bytes[start..end].copy_from_slice(payload);
            content.data.extend(chunks);
        }
        pb::WriteKind::WriteTruncate => {
            content.bytes.resize(start.min(content.bytes.len()), 0);
            content.data.retain(|chunk| chunk * CHUNK_SIZE < message.offset);
        }
        pb::WriteKind::WritePunch | pb::WriteKind::WriteZero => {
            if message.kind() == pb::WriteKind::WriteZero && content.bytes.len() < end {
                content.bytes.resize(end, 0);
            }
            let (from, to) = (start.min(content.bytes.len()), end.min(content.bytes.len()));
            content.bytes[from..to].fill(0);
            if message.kind() == pb::WriteKind::WritePunch {
                content
                    .data
                    .retain(|chunk| chunk * CHUNK_SIZE < message.offset || (chunk + 1) * CHUNK_SIZE > end as u64);
            }
        }
        pb::WriteKind::WriteAllocate => {}
    }
}
