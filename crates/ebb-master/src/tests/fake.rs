//! A block server in miniature: versions and lengths without bytes, but the same promises.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ebb_rpc::{Answer, Channel, Connector, Counters, Identity, Request, Server, ServerOptions, Service, ServiceFuture};
use ebb_runtime::Runtime;
use ebb_types::{Epoch, HostName, Result, Role, Version, bail, err};
use ebb_wire::{Method, convert, pb};
use parking_lot::Mutex;

/// One replica as the fake keeps it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Replica {
    pub version: Version,
    pub length: u64,
    pub promised: u64,
    pub corrupt: bool,
    pub life: u64,
}

/// Content of its one volume, and the calls that it got.
#[derive(Default)]
pub(crate) struct FakeState {
    pub node: u64,
    pub volume: u64,
    pub replicas: BTreeMap<u64, Replica>,
    pub deleted: Vec<u64>,
    pub deletions: Vec<pb::DeletedReplica>,
    /// Replicas made so far.
    pub lives: u64,
    pub pulls: u64,
    /// Rate limits of the copies, in bytes per second.
    pub pull_rates: Vec<u64>,
    pub corrupt_news: Vec<u64>,
    pub poisoned: bool,
    pub strays: Vec<u64>,
    /// Whether the next heartbeat is followed by another report.
    pub report_again: bool,
    /// Number of stamps to which the node does not answer.
    pub silent_stamps: u32,
    /// Bytes taken by something else.
    pub ballast_bytes: u64,
}

/// A running fake. Its state outlives its process, as a disk does.
#[derive(Clone)]
pub(crate) struct Fake {
    pub held: Arc<Mutex<FakeState>>,
    host: String,
    rack: String,
}

impl Fake {
    pub(crate) fn new(host: &str, rack: &str) -> Self {
        Self { held: Arc::default(), host: host.to_owned(), rack: rack.to_owned() }
    }

    /// Starts the node: it serves, registers, reports and sends heartbeats.
    pub(crate) async fn start(&self, runtime: &Runtime, ip: &str, identity: Identity, master: String) {
        let identity = Identity { host: HostName::new(self.host.clone()), role: Role::Block, ..identity };
        let counters = Counters::default();
        let connector = Connector::new(runtime.clone(), identity.clone(), counters.clone());
        let listener = runtime.listen(&format!("{ip}:7000")).await.unwrap();
        let address = listener.address();
        // It asks what a real one reads.
        let asker = Identity { role: Role::Master, ..identity.clone() };
        let asker = Connector::new(runtime.clone(), asker, counters.clone());
        let service = Arc::new(FakeService { held: Arc::clone(&self.held), connector: asker });
        let server = Server::run(runtime.clone(), listener, identity, counters, ServerOptions::default(), service);
        runtime.spawn("fake-server", server);
        let (fake, runtime_of_task) = (self.clone(), runtime.clone());
        let boot = runtime.random_u64() | 1;
        runtime.spawn("fake-heartbeat", async move {
            let master = connector.channel(&master);
            loop {
                let _ = fake.live(&runtime_of_task, &master, &address, boot).await;
                runtime_of_task.sleep(Duration::from_millis(200)).await;
            }
        });
    }

    async fn live(&self, runtime: &Runtime, master: &Channel, address: &str, boot: u64) -> Result<()> {
        let deadline = Duration::from_secs(2);
        let (node, volume) = {
            let held = self.held.lock();
            (held.node, held.volume)
        };
        let reported = pb::Volume {
            id: volume,
            incarnation: 1,
            path: "/v".into(),
            capacity_bytes: 1 << 40,
            free_bytes: 1 << 39,
            ..Default::default()
        };
        let register = pb::RegisterNode {
            version: ebb_types::cluster_version::NEWEST,
            node,
            host: self.host.clone(),
            rack: self.rack.clone(),
            address: address.to_owned(),
            boot,
            pid: 1,
            volumes: vec![reported.clone()],
            ..Default::default()
        };
        let reply = master.call(&register, deadline).await?;
        let volume = reply.volumes[0].id;
        {
            let mut held = self.held.lock();
            (held.node, held.volume) = (reply.node, volume);
        }
        master.call(&self.report(boot), deadline).await?;
        loop {
            runtime.sleep(Duration::from_secs(1)).await;
            let beat = {
                let mut held = self.held.lock();
                let state =
                    if held.poisoned { pb::VolumeState::VolumePoisoned } else { pb::VolumeState::VolumeLive } as i32;
                let free_bytes = reported.free_bytes - held.ballast_bytes;
                let volume = pb::Volume { id: volume, state, free_bytes, ..reported.clone() };
                let corrupt = std::mem::take(&mut held.corrupt_news);
                pb::Heartbeat { node: reply.node, boot, volumes: vec![volume], corrupt, load: 0, ..Default::default() }
            };
            if master.call(&beat, deadline).await?.report {
                return Ok(());
            }
            if std::mem::take(&mut self.held.lock().report_again) {
                master.call(&self.report(boot), deadline).await?;
            }
        }
    }

    fn report(&self, boot: u64) -> pb::ReplicaReport {
        let held = self.held.lock();
        let state = |(id, replica): (&u64, &Replica)| pb::ReplicaState {
            metablock: *id,
            version: Some(replica.version.into()),
            promised_epoch: replica.promised,
            length: replica.length,
            corrupt: replica.corrupt,
        };
        let mut replicas: Vec<_> = held.replicas.iter().map(state).collect();
        replicas.extend(held.strays.iter().map(|id| pb::ReplicaState { metablock: *id, ..Default::default() }));
        pb::ReplicaReport { node: held.node, boot, volume: held.volume, replicas, last: true }
    }

    /// Puts a replica in place as a write would have.
    pub(crate) fn put(&self, metablock: u64, version: Version, length: u64) {
        let mut held = self.held.lock();
        let promised = version.epoch.raw();
        held.lives += 1;
        let life = held.lives;
        held.replicas.insert(metablock, Replica { version, length, promised, corrupt: false, life });
    }

    pub(crate) fn replica(&self, metablock: u64) -> Option<Replica> {
        self.held.lock().replicas.get(&metablock).cloned()
    }
}

struct FakeService {
    held: Arc<Mutex<FakeState>>,
    connector: Connector,
}

impl Service for FakeService {
    fn handle(&self, request: Request) -> ServiceFuture<'_> {
        Box::pin(async move {
            match request.method {
                Method::PromiseEpoch => self.promise(&request.decode()?),
                Method::PullReplica => self.pull(request.decode()?).await,
                Method::StampReplica => self.stamp(&request.decode()?),
                Method::DescribeReplicas => Ok(self.describe(&request.decode()?)),
                Method::DeleteReplicas => {
                    let call: pb::DeleteReplicas = request.decode()?;
                    let mut held = self.held.lock();
                    for one in &call.replicas {
                        let life = held.replicas.get(&one.metablock).map_or(0, |replica| replica.life);
                        if one.life == 0 || one.life == life {
                            held.replicas.remove(&one.metablock);
                            held.strays.retain(|id| *id != one.metablock);
                        }
                    }
                    held.deletions.extend(call.replicas.iter().copied());
                    held.deleted.extend(call.replicas.iter().map(|one| one.metablock));
                    Ok(Answer::new(&pb::Empty {}))
                }
                Method::Scrub => {
                    let held = self.held.lock();
                    let corrupt =
                        held.replicas.iter().filter(|(_, replica)| replica.corrupt).map(|(id, _)| *id).collect();
                    Ok(Answer::new(&pb::ScrubReply { replicas: held.replicas.len() as u64, bytes: 0, corrupt }))
                }
                other => bail!(Unsupported, "the fake does not answer {other:?}"),
            }
        })
    }
}

impl FakeService {
    fn promise(&self, call: &pb::PromiseEpoch) -> Result<Answer> {
        let mut held = self.held.lock();
        let mut replicas = Vec::new();
        for name in &call.replicas {
            let mut reported =
                pb::PromisedReplica { metablock: name.metablock, volume: name.volume, ..Default::default() };
            if name.volume != held.volume {
                reported.failure = Some((&err!(NoReplica, "no volume v{}", name.volume)).into());
            } else if let Some(replica) = held.replicas.get_mut(&name.metablock) {
                if replica.promised > call.epoch {
                    bail!(StaleEpoch, "promised e{}", replica.promised);
                }
                replica.promised = call.epoch;
                (reported.version, reported.length) = (Some(replica.version.into()), replica.length);
            } else {
                reported.absent = true;
            }
            replicas.push(reported);
        }
        Ok(Answer::new(&pb::PromiseEpochReply { replicas }))
    }

    /// Copies a replica by the source's description, because it has no bytes.
    async fn pull(&self, call: pb::PullReplica) -> Result<Answer> {
        let source = call.source.clone().unwrap_or_default();
        let name = pb::ReplicaName {
            metablock: call.metablock,
            volume: source.member.unwrap_or_default().volume,
            incarnation: 1,
        };
        let describe = pb::DescribeReplicas { replicas: vec![name] };
        let reply = self.connector.channel(&source.address).call(&describe, Duration::from_secs(2)).await?;
        let described = &reply.replicas[0];
        if described.corrupt {
            bail!(Corrupt, "the source is damaged");
        }
        let version = convert::version(described.version);
        if described.absent || version < convert::version(call.at) {
            bail!(StaleVersion, "the source is at {version}");
        }
        let mut held = self.held.lock();
        held.lives += 1;
        let life = held.lives;
        if let Some(replica) =
            held.replicas.get_mut(&call.metablock).filter(|replica| replica.version == version && !replica.corrupt)
        {
            (replica.life, replica.promised) = (life, call.epoch);
            return Ok(Answer::new(&pb::PullReplicaReply { version: Some(version.into()), length: replica.length }));
        }
        held.pulls += 1;
        held.pull_rates.push(call.rate_bytes_per_sec);
        held.replicas.insert(
            call.metablock,
            Replica { version, length: described.length, promised: call.epoch, corrupt: false, life },
        );
        Ok(Answer::new(&pb::PullReplicaReply { version: Some(version.into()), length: described.length }))
    }

    fn stamp(&self, call: &pb::StampReplica) -> Result<Answer> {
        let mut held = self.held.lock();
        if held.silent_stamps > 0 {
            held.silent_stamps -= 1;
            bail!(Disconnected, "the connection is gone");
        }
        let Some(replica) = held.replicas.get_mut(&call.metablock) else { bail!(NoReplica, "no m{}", call.metablock) };
        if replica.promised > call.epoch {
            bail!(StaleEpoch, "promised e{}", replica.promised);
        }
        if replica.version != convert::version(call.base) {
            bail!(StaleVersion, "at {}", replica.version);
        }
        replica.version = Version::new(Epoch::new(call.epoch), 0);
        replica.length = call.length;
        Ok(Answer::new(&pb::StampReplicaReply { version: Some(replica.version.into()), length: call.length }))
    }

    fn describe(&self, call: &pb::DescribeReplicas) -> Answer {
        let held = self.held.lock();
        let replicas = call.replicas.iter().map(|name| {
            let found = held.replicas.get(&name.metablock).filter(|_| name.volume == held.volume);
            let replica = found.cloned().unwrap_or_default();
            pb::DescribedReplica {
                metablock: name.metablock,
                volume: name.volume,
                version: Some(replica.version.into()),
                length: replica.length,
                file: format!("/v/m{}", name.metablock),
                absent: found.is_none(),
                corrupt: replica.corrupt,
                life: replica.life,
                ..Default::default()
            }
        });
        Answer::new(&pb::DescribeReplicasReply { replicas: replicas.collect() })
    }
}
