//! A master, fake block servers and clients in a virtual world.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ebb_rpc::testing::{EveryChannel, Everyone};
use ebb_rpc::{Channel, Connector, Counters, Identity};
use ebb_runtime::SeededBug;
use ebb_runtime::virt::{Process, World, WorldOptions};
use ebb_types::{ClusterId, Epoch, HostName, Result, Role, Version};
use ebb_wire::pb;
use pb::meta_op::Op;

use super::fake::Fake;
use crate::{Master, Options};

pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A cluster of one master and some fakes, each on its host.
pub(crate) struct Cluster {
    pub world: World,
    pub master: Option<Master>,
    pub process: Process,
    pub fakes: Vec<Fake>,
    clients: AtomicU64,
}

pub(crate) fn identity() -> Identity {
    Identity::by_word(ClusterId::new(77), "m", Role::Master)
}

/// Runs a test in a world with `nodes` fakes that have all reported.
pub(crate) fn with_cluster<F: Future<Output = ()>>(seed: u64, nodes: usize, test: impl FnOnce(Cluster) -> F) {
    with_bug(None, seed, nodes, test);
}

/// Runs a test with or without a seeded bug, and returns its result.
pub(crate) fn with_bug<F: Future>(
    bug: Option<SeededBug>,
    seed: u64,
    nodes: usize,
    test: impl FnOnce(Cluster) -> F,
) -> F::Output {
    World::run(seed, WorldOptions { bug, ..WorldOptions::default() }, |world| async move {
        let process = world.process("m");
        let mut cluster = Cluster { world, master: None, process, fakes: Vec::new(), clients: AtomicU64::new(0) };
        cluster.start_master().await;
        for number in 1..=nodes {
            let fake = Fake::new(&format!("h{number}"), &format!("r{}", number % 2));
            cluster.fakes.push(fake);
            cluster.start_fake(number).await;
        }
        cluster.until("safe start", |status| status.safe_start && status.nodes.len() == nodes).await;
        test(cluster).await
    })
}

pub(crate) fn options() -> Options {
    let mut options = Options::new(PathBuf::from("/data"), "0.0.0.0:6000", identity());
    options.group.wal.segment_bytes = 64 << 10;
    options.group.checkpoint_entries = 400;
    // Tests name epochs, and stop all nodes.
    options.group.epoch_step_max = 1;
    options.hear_time = Duration::ZERO;
    options
}

impl Cluster {
    pub(crate) fn address(&self) -> String {
        format!("{}:6000", self.process.ip())
    }

    pub(crate) async fn start_master(&mut self) {
        let runtime = self.process.restart();
        let mut options = options();
        options.listen = self.address();
        self.master = Some(Master::start(runtime, options).await.unwrap());
    }

    /// Lets the power fail at the master, and come back.
    pub(crate) async fn crash_master(&mut self) {
        self.process.crash();
        self.master = None;
        self.start_master().await;
    }

    /// Starts node `number` (from 1), or starts it again.
    pub(crate) async fn start_fake(&self, number: usize) {
        let process = self.world.process(&format!("h{number}"));
        let runtime = process.restart();
        self.fakes[number - 1].start(&runtime, &process.ip(), identity(), self.address()).await;
    }

    pub(crate) fn kill_fake(&self, number: usize) {
        self.world.process(&format!("h{number}")).kill();
    }

    /// The fake with this node id.
    pub(crate) fn node(&self, id: u64) -> &Fake {
        self.fakes.iter().find(|fake| fake.held.lock().node == id).unwrap()
    }

    pub(crate) fn number(&self, id: u64) -> usize {
        self.fakes.iter().position(|fake| fake.held.lock().node == id).unwrap() + 1
    }

    /// A channel from a process of its own.
    pub(crate) fn channel(&self) -> (EveryChannel, ebb_runtime::Runtime) {
        self.channel_from("client")
    }

    /// A channel from a process of this role.
    pub(crate) fn channel_as(&self, host: &str, role: Role) -> Channel {
        let number = self.clients.fetch_add(1, Ordering::Relaxed);
        let runtime = self.world.process(&format!("c{number}")).runtime();
        let identity = Identity { host: HostName::new(host), role, ..identity() };
        Connector::new(runtime, identity, Counters::default()).channel(&self.address())
    }

    /// A channel from a process of its own that declares this host.
    pub(crate) fn channel_from(&self, host: &str) -> (EveryChannel, ebb_runtime::Runtime) {
        let number = self.clients.fetch_add(1, Ordering::Relaxed);
        let runtime = self.world.process(&format!("c{number}")).runtime();
        let identity = |role| Identity { host: HostName::new(host), role, ..identity() };
        let everyone = Everyone::new(&runtime, identity);
        (everyone.channel(&self.address()), runtime)
    }

    pub(crate) async fn client(&self) -> TestClient {
        let (channel, runtime) = self.channel();
        let open = pb::OpenSession { host: "client".into(), role: "cli".into(), pid: 1, ..Default::default() };
        let reply = channel.call(&open, DEADLINE).await.unwrap();
        let (next, node_map_version) = (AtomicU64::new(1), AtomicU64::new(0));
        TestClient { channel, runtime, session: reply.session, next, node_map_version }
    }

    /// A session that stays alive by itself, and answers no recall.
    pub(crate) async fn watcher(&self) -> TestClient {
        let client = self.client().await;
        let (channel, runtime) = (client.channel.clone(), client.runtime.clone());
        let mut poll = pb::Poll { session: client.session, wait_ms: 2000, ..Default::default() };
        client.runtime.spawn("keep-alive", async move {
            loop {
                match channel.call(&poll, DEADLINE).await {
                    Ok(reply) => poll.node_map_version = reply.node_map_version,
                    Err(_) => runtime.sleep(Duration::from_millis(200)).await,
                }
            }
        });
        client
    }

    pub(crate) async fn status(&self) -> pb::ClusterStatusReply {
        self.channel().0.call(&pb::ClusterStatus {}, DEADLINE).await.unwrap()
    }

    /// Waits, for at most two minutes of virtual time, until the master's state passes a test.
    pub(crate) async fn until(&self, event: &str, test: impl Fn(&pb::ClusterStatusReply) -> bool) {
        let (channel, _) = self.channel();
        for _ in 0..600 {
            if let Ok(status) = channel.call(&pb::ClusterStatus {}, DEADLINE).await
                && test(&status)
            {
                return;
            }
            self.world.sleep(Duration::from_millis(200)).await;
        }
        panic!("{event} did not come about: {:?}", self.status().await);
    }

    /// Waits until a test outside the master passes.
    pub(crate) async fn until_seen(&self, event: &str, test: impl Fn() -> bool) {
        for _ in 0..600 {
            if test() {
                return;
            }
            self.world.sleep(Duration::from_millis(200)).await;
        }
        panic!("{event} did not come about");
    }

    pub(crate) async fn fsck(&self) -> pb::FsckReply {
        self.channel().0.call(&pb::Fsck { scrub: false, ..Default::default() }, DEADLINE).await.unwrap()
    }

    pub(crate) async fn scrub(&self) -> pb::FsckReply {
        self.channel().0.call(&pb::Fsck { scrub: true, ..Default::default() }, DEADLINE).await.unwrap()
    }
}

/// A session that is driven entirely by the test.
pub(crate) struct TestClient {
    pub channel: EveryChannel,
    pub runtime: ebb_runtime::Runtime,
    pub session: u64,
    next: AtomicU64,
    node_map_version: AtomicU64,
}

impl TestClient {
    pub(crate) async fn send(&self, request: u64, op: Op) -> Result<pb::MetaReply> {
        let request = pb::MetaRequest {
            session: self.session,
            request,
            acknowledged: 0,
            credentials: Some(pb::Credentials::default()),
            op: Some(pb::MetaOp { op: Some(op) }),
            lease: false,
        };
        self.channel.call(&request, DEADLINE).await
    }

    /// A query whose reply may be cached.
    pub(crate) async fn keep(&self, op: Op) -> pb::MetaReply {
        let request = pb::MetaRequest {
            session: self.session,
            op: Some(pb::MetaOp { op: Some(op) }),
            credentials: Some(pb::Credentials::default()),
            lease: true,
            ..Default::default()
        };
        self.channel.call(&request, DEADLINE).await.unwrap()
    }

    /// Polls until there is a request to forget an inode.
    pub(crate) async fn next_forgetting(&self) -> pb::Forgetting {
        for _ in 0..200 {
            if let Some(forgetting) = self.poll(Vec::new()).await.unwrap().forget.first() {
                return *forgetting;
            }
            self.runtime.sleep(Duration::from_millis(100)).await;
        }
        panic!("session {} got no request to forget an inode", self.session);
    }

    pub(crate) async fn forgotten(&self, numbers: Vec<u64>) {
        let poll = pb::Poll { session: self.session, forgotten: numbers, ..Default::default() };
        self.channel.call(&poll, DEADLINE).await.unwrap();
    }

    pub(crate) async fn mutate(&self, op: Op) -> Result<pb::MetaReply> {
        let request = self.next.fetch_add(1, Ordering::Relaxed);
        self.send(request, op).await
    }

    pub(crate) async fn create(&self, name: &str) -> Result<pb::MetaReply> {
        self.create_in(1, name).await
    }

    pub(crate) async fn create_in(&self, parent: u64, name: &str) -> Result<pb::MetaReply> {
        let create = pb::meta_op::Create { parent, name: name.into(), mode: 0o644, ..Default::default() };
        self.mutate(Op::Create(create)).await
    }

    pub(crate) async fn lookup(&self, name: &str) -> Result<pb::Attr> {
        let reply = self.send(0, Op::Lookup(pb::meta_op::Lookup { parent: 1, name: name.into() })).await?;
        Ok(reply.attr.unwrap())
    }

    /// Names and inodes of the root directory.
    pub(crate) async fn list(&self) -> std::collections::BTreeMap<String, u64> {
        let mut names = std::collections::BTreeMap::new();
        let mut cookie = 0;
        loop {
            let read = pb::meta_op::ReadDir { inode: 1, cookie, limit: 1000, ..Default::default() };
            let page = self.send(0, Op::ReadDir(read)).await.unwrap();
            cookie = page.entries.last().map_or(cookie, |entry| entry.cookie);
            names.extend(page.entries.into_iter().map(|entry| (String::from_utf8(entry.name).unwrap(), entry.inode)));
            if page.end {
                return names;
            }
        }
    }

    pub(crate) async fn attr(&self, inode: u64) -> Result<pb::Attr> {
        Ok(self.send(0, Op::GetAttr(pb::meta_op::GetAttr { inode })).await?.attr.unwrap())
    }

    pub(crate) async fn map(&self, inode: u64) -> Vec<pb::Metablock> {
        let get = pb::meta_op::GetMap { inode, first_index: 0, limit: 100 };
        self.send(0, Op::GetMap(get)).await.unwrap().metablocks
    }

    pub(crate) async fn poll(&self, recalled: Vec<pb::Held>) -> Result<pb::PollReply> {
        let node_map_version = self.node_map_version.load(Ordering::Relaxed);
        let poll = pb::Poll { session: self.session, wait_ms: 2000, node_map_version, recalled, ..Default::default() };
        let reply = self.channel.call(&poll, DEADLINE).await?;
        self.node_map_version.store(reply.node_map_version, Ordering::Relaxed);
        Ok(reply)
    }

    /// Polls until a recall comes.
    pub(crate) async fn next_recall(&self) -> pb::Recall {
        for _ in 0..200 {
            if let Some(recall) = self.poll(Vec::new()).await.unwrap().recalls.first() {
                return *recall;
            }
            self.runtime.sleep(Duration::from_millis(100)).await;
        }
        panic!("no recall came to session {}", self.session);
    }

    pub(crate) async fn acquire(&self, inode: u64, mode: pb::LeaseMode, open: bool) -> Result<pb::AcquireReply> {
        let acquire = pb::Acquire { session: self.session, inode, mode: mode as i32, open, ..Default::default() };
        self.channel.call(&acquire, DEADLINE).await
    }

    /// Commits a write to a file's first metablock, and gives the lease back if asked to.
    pub(crate) async fn commit(
        &self,
        attr: &pb::Attr,
        metablocks: Vec<pb::CommitMetablock>,
        size: u64,
        release: bool,
    ) -> Result<pb::MetaReply> {
        let file = pb::CommitFile {
            inode: attr.inode,
            epoch: attr.epoch,
            size,
            mtime_ns: 5,
            metablocks,
            release,
            ..Default::default()
        };
        self.mutate(Op::Commit(pb::meta_op::Commit { files: vec![file] })).await
    }

    pub(crate) async fn forget(&self, inode: u64) {
        self.channel
            .call(&pb::Forget { session: self.session, inodes: vec![inode], opening: 0 }, DEADLINE)
            .await
            .unwrap();
    }

    /// Makes a file of one metablock that all its members have written and that is committed. The lease is given back.
    pub(crate) async fn written_file(&self, cluster: &Cluster, name: &str, length: u64) -> (pb::Attr, pb::Metablock) {
        self.written_in(cluster, 1, name, length).await
    }

    /// Makes such a file in a directory.
    pub(crate) async fn written_in(
        &self,
        cluster: &Cluster,
        parent: u64,
        name: &str,
        length: u64,
    ) -> (pb::Attr, pb::Metablock) {
        let reply = self.create_in(parent, name).await.unwrap();
        let (attr, block) = (reply.attr.unwrap(), reply.metablocks[0].clone());
        let version = Version::new(Epoch::new(attr.epoch), 1);
        for member in &block.members {
            cluster.node(member.node).put(block.id, version, length);
        }
        let committed = pb::CommitMetablock { id: block.id, version: Some(version.into()), length };
        let reply = self.commit(&attr, vec![committed], length, true).await.unwrap();
        assert!(reply.refusals.is_empty(), "{reply:?}");
        let release = pb::Release { session: self.session, inodes: vec![attr.inode] };
        self.channel.call(&release, DEADLINE).await.unwrap();
        (attr, block)
    }
}

pub(crate) fn create(name: &str, exclusive: bool) -> Op {
    Op::Create(pb::meta_op::Create { parent: 1, name: name.into(), mode: 0o644, exclusive, ..Default::default() })
}

pub(crate) fn unlink(name: &str) -> Op {
    Op::Unlink(pb::meta_op::Unlink { parent: 1, name: name.into() })
}

pub(crate) fn held(inode: u64, mode: pb::LeaseMode, epoch: u64, size: u64) -> pb::Held {
    pb::Held { inode, mode: mode as i32, epoch, size, mtime_ns: 99, ..Default::default() }
}

/// A holder's answer to a question.
pub(crate) fn answer(recall: &pb::Recall, epoch: u64, size: u64) -> pb::Held {
    pb::Held { question: recall.question, ..held(recall.inode, pb::LeaseMode::LeaseWrite, epoch, size) }
}
