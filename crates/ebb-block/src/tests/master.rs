//! A master that registers nodes and records their messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebb_rpc::{Answer, Counters, Request, Server, ServerOptions, Service, ServiceFuture};
use ebb_runtime::Runtime;
use ebb_types::{Result, Role, bail};
use ebb_wire::{Method, pb};
use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(super) struct Reports {
    pub(super) nodes: BTreeMap<u64, pb::RegisterNode>,
    pub(super) next_node: u64,
    pub(super) next_volume: u64,
    pub(super) registrations: u64,
    pub(super) heartbeats: u64,
    pub(super) last_heartbeat: BTreeMap<u64, pb::Heartbeat>,
    pub(super) corrupt: Vec<u64>,
    /// Replicas that nodes found damaged elsewhere.
    pub(super) damaged: Vec<pb::ReportReplica>,
    /// By volume: replicas of the last whole report, and of one that is under way.
    pub(super) reports: BTreeMap<u64, Vec<pb::ReplicaState>>,
    pub(super) reports_count: u64,
    parts: BTreeMap<u64, Vec<pb::ReplicaState>>,
    /// The next heartbeat is answered with "who are you?".
    pub(super) forget: bool,
    /// Sessions whose processes have ended.
    pub(super) ended: Vec<u64>,
    /// Everything is refused: another master leads.
    pub(super) deposed: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct FakeMaster(pub(super) Arc<Mutex<Reports>>);

impl FakeMaster {
    /// Starts it; returns its address.
    pub(super) async fn start(&self, runtime: &Runtime, listen: &str) -> String {
        let listener = runtime.listen(listen).await.unwrap();
        let address = listener.address();
        let (identity, counters) = (ebb_rpc::testing::identity(runtime, "m1", Role::Master), Counters::default());
        let service = Arc::new(self.clone());
        let run = Server::run(runtime.clone(), listener, identity, counters, ServerOptions::default(), service);
        runtime.spawn("master", async move { drop(run.await) });
        address
    }

    fn register(&self, message: pb::RegisterNode) -> pb::RegisterNodeReply {
        let mut state = self.0.lock();
        state.registrations += 1;
        let node = if message.node == 0 {
            state.next_node += 1;
            state.next_node
        } else {
            message.node
        };
        let mut volumes = message.volumes.clone();
        for volume in volumes.iter_mut().filter(|volume| volume.id == 0) {
            state.next_volume += 1;
            volume.id = 100 + state.next_volume;
        }
        state.nodes.insert(node, pb::RegisterNode { volumes: volumes.clone(), node, ..message });
        pb::RegisterNodeReply { node, volumes, heartbeat_ms: 100, position: None }
    }

    fn report(&self, message: pb::ReplicaReport) {
        let mut state = self.0.lock();
        state.reports_count += 1;
        let part = state.parts.entry(message.volume).or_default();
        part.extend(message.replicas);
        if message.last {
            let whole = state.parts.remove(&message.volume).unwrap();
            state.reports.insert(message.volume, whole);
        }
    }

    fn heartbeat(&self, message: pb::Heartbeat) -> pb::HeartbeatReply {
        let mut state = self.0.lock();
        state.heartbeats += 1;
        state.corrupt.extend(&message.corrupt);
        let known = state.nodes.get(&message.node).is_some_and(|node| node.boot == message.boot);
        state.last_heartbeat.insert(message.node, message);
        let report = std::mem::take(&mut state.forget) || !known;
        pb::HeartbeatReply { report, position: None, gray: false }
    }

    fn answer(&self, request: &Request) -> Result<Answer> {
        if self.0.lock().deposed {
            bail!(NotLeader, "another master leads");
        }
        match request.method {
            Method::RegisterNode => Ok(Answer::new(&self.register(request.decode()?))),
            Method::ReplicaReport => {
                self.report(request.decode()?);
                Ok(Answer::new(&pb::Empty {}))
            }
            Method::SessionEnded => {
                self.0.lock().ended.push(request.decode::<pb::SessionEnded>()?.session);
                Ok(Answer::new(&pb::Empty {}))
            }
            Method::ReportReplica => {
                self.0.lock().damaged.push(request.decode()?);
                Ok(Answer::new(&pb::Empty {}))
            }
            Method::Heartbeat => Ok(Answer::new(&self.heartbeat(request.decode()?))),
            other => bail!(Unsupported, "{other:?}"),
        }
    }
}

impl Service for FakeMaster {
    fn handle(&self, request: Request) -> ServiceFuture<'_> {
        Box::pin(async move { self.answer(&request) })
    }
}
