//! The master's view of this node: registration, reports, heartbeats.

use std::sync::Arc;
use std::time::Duration;

use ebb_store::Volume;
use ebb_types::{Error, ErrorKind, NodeId, Result, VolumeId, bail, cluster_version};
use ebb_wire::{Call, pb};

use crate::node::Node;
use crate::report::{self, Rounds};
use crate::{disks, identity, seen};

/// For one call to a master.
pub(crate) const DEADLINE: Duration = Duration::from_secs(5);

/// Heartbeats wait less: a late one is worth nothing.
const HEARTBEAT_DEADLINE: Duration = Duration::from_secs(2);

/// Pause after a call that no master answered; doubled up to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// This node's identity.
#[derive(Clone, Debug)]
pub(crate) struct Introduction {
    pub(crate) host: String,
    pub(crate) rack: String,
    pub(crate) serves_hosts: Vec<String>,
    pub(crate) address: String,
    pub(crate) pid: u32,
}

/// Keeps the master informed, until it is stopped.
pub(crate) async fn run(node: Arc<Node>, introduction: Introduction, report_every: Duration) {
    let mut masters = Masters::new(node.clone());
    loop {
        let mut pause = PAUSE_MIN;
        let interval = loop {
            match register(&node, &mut masters, &introduction).await {
                Ok(interval) => break interval,
                Err(error) => {
                    if node.seen.on_refused(&error) {
                        tracing::error!(%error, "this process is refused, and serves nothing");
                    }
                    if node.seen.on_declined(&error) {
                        tracing::error!(%error, "this node cannot be registered as it is declared");
                    }
                    // Of two masters on copies of one directory this is not the one that it has seen last.
                    if error.kind() == ErrorKind::WentBack {
                        masters.turn();
                    }
                    tracing::info!(%error, "not registered yet");
                    node.runtime.sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        };
        let mut rounds = Rounds::new(&node, report_every);
        heartbeats(&node, &mut masters, interval, &mut rounds).await;
    }
}

/// Calls to whichever master leads.
pub(crate) struct Masters {
    node: Arc<Node>,
    current: usize,
}

impl Masters {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node, current: 0 }
    }

    pub(crate) async fn call<C: Call>(&mut self, message: &C, deadline: Duration) -> Result<C::Reply> {
        let Some(address) = self.node.masters.get(self.current) else {
            bail!(Invalid, "no master is configured");
        };
        let done = self.node.connector.channel(address).call(message, deadline).await;
        if done.as_ref().is_err_and(elsewhere) {
            self.turn();
        }
        done
    }

    /// To the next one.
    fn turn(&mut self) {
        self.current = (self.current + 1) % self.node.masters.len().max(1);
    }
}

/// Whether another master may know better.
pub(crate) fn elsewhere(error: &Error) -> bool {
    use ErrorKind as K;
    matches!(
        error.kind(),
        K::NotLeader | K::Unreachable | K::Timeout | K::Disconnected | K::ShuttingDown | K::Unavailable
    )
}

/// Registers and reports everything; returns the pause between heartbeats.
async fn register(node: &Node, masters: &mut Masters, introduction: &Introduction) -> Result<Duration> {
    let message = pb::RegisterNode {
        node: node.raw_id(),
        host: introduction.host.clone(),
        rack: introduction.rack.clone(),
        serves_hosts: introduction.serves_hosts.clone(),
        address: introduction.address.clone(),
        boot: node.boot.raw(),
        pid: introduction.pid,
        volumes: describe_volumes(node).await,
        position: Some(node.seen.position()),
        knows_frozen: true,
        version: cluster_version::NEWEST,
    };
    let reply = masters.call(&message, DEADLINE).await?;
    take_ids(node, &reply).await?;
    for volume in &node.volumes {
        report::all(node, masters, volume).await?;
    }
    tracing::info!(node = node.title(), address = introduction.address, "registered");
    Ok(Duration::from_millis(u64::from(reply.heartbeat_ms.max(10))))
}

/// Makes the ids that the master gave durable.
async fn take_ids(node: &Node, reply: &pb::RegisterNodeReply) -> Result<()> {
    let id = NodeId::new(reply.node);
    if reply.volumes.len() != node.volumes.len() || reply.node == 0 || reply.volumes.iter().any(|one| one.id == 0) {
        bail!(Protocol, "the master registered {id} with {} of {} volumes", reply.volumes.len(), node.volumes.len());
    }
    if Some(id) != node.id() {
        let cluster = node.connector.identity().cluster;
        let identity = identity::Identity { node: Some(id), position: node.seen.position() };
        identity::write(&node.runtime.disk(), &node.data_dir, cluster, &identity).await?;
        node.set_id(id);
    }
    // Ordering: from here on, a master that asks this node is one that it will know again.
    seen::remember_position(node, reply.position).await;
    for (volume, given) in node.volumes.iter().zip(&reply.volumes) {
        volume.assign(id, VolumeId::new(given.id)).await?;
    }
    node.list_volumes();
    assert!(node.volumes.iter().all(|volume| volume.id().raw() != 0), "each volume has the id that was given");
    node.seen.on_registered();
    Ok(())
}

/// Sends heartbeats until a master asks for a new registration.
async fn heartbeats(node: &Arc<Node>, masters: &mut Masters, interval: Duration, rounds: &mut Rounds) {
    loop {
        // What says that a node woke doubles as a heartbeat (BlinkFS, Sec. 4.3).
        tokio::select! {
            biased;
            () = node.resting.woken.notified() => {}
            () = node.runtime.sleep(interval) => {}
        }
        let corrupt = {
            let mut damaged = node.damaged.lock();
            damaged.extend(node.volumes.iter().flat_map(Volume::take_damaged));
            damaged.clone()
        };
        let message = pb::Heartbeat {
            node: node.raw_id(),
            boot: node.boot.raw(),
            volumes: describe_volumes(node).await,
            corrupt: corrupt.iter().map(|metablock| metablock.raw()).collect(),
            load: node.load(),
            write_bytes_per_sec: node.write_bytes_per_sec(),
            position: Some(node.seen.position()),
            working: node.is_excused(),
        };
        match masters.call(&message, HEARTBEAT_DEADLINE).await {
            Ok(reply) if reply.report => return,
            Ok(reply) => {
                if reply.gray {
                    disks::time_idle(node);
                }
                // The heartbeat has reported the damage; damage found meanwhile goes with the next one.
                drop(node.damaged.lock().drain(..corrupt.len()));
                // A slow disk keeps no heartbeat.
                let (noting, position) = (Arc::clone(node), reply.position);
                node.runtime.spawn("note", async move { seen::remember_position(&noting, position).await });
            }
            Err(error) => {
                tracing::debug!(%error, "heartbeat not answered");
                continue;
            }
        }
        if let Err(error) = rounds.step(node, masters).await {
            tracing::debug!(%error, "part of a report not answered");
        }
    }
}

async fn describe_volumes(node: &Node) -> Vec<pb::Volume> {
    let mut volumes = Vec::with_capacity(node.volumes.len());
    for volume in &node.volumes {
        let space = volume.space().await;
        let space = space.inspect_err(|error| disks::try_after(node, volume, error)).unwrap_or_default();
        let (trouble, latency) = (volume.poisoned(), volume.commit_latency());
        let state = match trouble {
            Some(_) => pb::VolumeState::VolumePoisoned,
            None => pb::VolumeState::VolumeLive,
        };
        volumes.push(pb::Volume {
            id: volume.id().raw(),
            incarnation: volume.label().incarnation.raw(),
            path: volume.path().display().to_string(),
            capacity_bytes: space.capacity_bytes,
            used_bytes: volume.stored_bytes(),
            free_bytes: space.free_bytes,
            state: state.into(),
            replicas: volume.replica_count() as u64,
            device: space.device,
            trouble: trouble.unwrap_or_default(),
            starts: volume.label().starts,
            lsn: volume.lsn(),
            commit_us: latency.map_or(0, |(median, _)| u64::try_from(median.as_micros()).unwrap_or(u64::MAX)),
            scrubbed_bytes: volume.scrubbed_bytes(),
            compressed_bytes: volume.compressed_bytes(),
            commits: latency.map_or(0, |(_, count)| count),
        });
    }
    volumes
}
