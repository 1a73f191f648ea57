//! A small cluster in the virtual world.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ebb_block::{BlockOptions, BlockServer};
use ebb_master::{Master, Options};
use ebb_rpc::{Connector, Counters, Identity};
use ebb_runtime::SeededBug;
use ebb_runtime::virt::{Process, World, WorldOptions};
use ebb_types::{ClusterId, Credentials, HostName, InodeId, RackName, Result, Role};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{CreateDataset, MakeDir, Op, SetDataset};
use parking_lot::Mutex;

use super::fake_block::{self, SharedDisk};
use crate::{Access, Client, ClientOptions, Created, Handle, NewFile};

/// Of the datasets of the tests: small, so that edges are met.
pub(crate) const BLOCK: u64 = 64 << 10;
pub(crate) const METABLOCK: u64 = 256 << 10;

/// The tests' credentials.
pub(crate) fn root() -> Credentials {
    Credentials::root()
}

/// One block server.
pub(crate) struct Node {
    pub process: Process,
    pub disk: SharedDisk,
}

/// A master, block servers, and whatever clients a test makes.
pub(crate) struct Cluster {
    pub world: World,
    pub master: Process,
    pub master_address: String,
    pub nodes: Vec<Node>,
    blocks: Blocks,
    session_ttl: Duration,
    clients: AtomicUsize,
}

/// Of sessions, as on real masters.
const SESSION_TTL: Duration = Duration::from_secs(10);

/// Which block servers a cluster has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Blocks {
    /// `ebb_block`, on virtual disks.
    Real,
    /// In memory, with faults of their own.
    Fake,
}

/// Runs a test in a world with a cluster of so many block servers.
pub(crate) fn run<F: Future<Output = ()>>(seed: u64, nodes: usize, test: impl FnOnce(Arc<Cluster>) -> F) {
    run_with(Blocks::Real, seed, nodes, test);
}

/// The same with a seeded bug, or none; what the test returns.
pub(crate) fn run_with_bug<F: Future>(
    bug: Option<SeededBug>,
    seed: u64,
    nodes: usize,
    test: impl FnOnce(Arc<Cluster>) -> F,
) -> F::Output {
    World::run(seed, WorldOptions { bug, ..WorldOptions::default() }, |world| async move {
        test(Arc::new(Cluster::start(world, Blocks::Real, SESSION_TTL, nodes).await)).await
    })
}

/// The same, with sessions that are over after this time.
pub(crate) fn run_with_ttl<F: Future<Output = ()>>(
    session_ttl: Duration,
    seed: u64,
    nodes: usize,
    test: impl FnOnce(Arc<Cluster>) -> F,
) {
    run_cluster(Blocks::Real, session_ttl, seed, nodes, test);
}

/// The same, with these block servers.
pub(crate) fn run_with<F: Future<Output = ()>>(
    blocks: Blocks,
    seed: u64,
    nodes: usize,
    test: impl FnOnce(Arc<Cluster>) -> F,
) {
    run_cluster(blocks, SESSION_TTL, seed, nodes, test);
}

fn run_cluster<F: Future<Output = ()>>(
    blocks: Blocks,
    session_ttl: Duration,
    seed: u64,
    nodes: usize,
    test: impl FnOnce(Arc<Cluster>) -> F,
) {
    World::run(seed, WorldOptions::default(), |world| async move {
        test(Arc::new(Cluster::start(world, blocks, session_ttl, nodes).await)).await;
    });
}

pub(crate) fn identity(host: &str, role: Role) -> Identity {
    Identity::by_word(ClusterId::new(7), host, role)
}

impl Cluster {
    async fn start(world: World, blocks: Blocks, session_ttl: Duration, count: usize) -> Self {
        let master = world.process("master");
        let mut cluster = Self {
            master_address: format!("{}:7000", master.ip()),
            master,
            world,
            nodes: Vec::new(),
            blocks,
            session_ttl,
            clients: AtomicUsize::new(0),
        };
        cluster.start_master().await;
        for number in 0..count {
            let process = cluster.world.process(&format!("h{number}"));
            let node = Node { process, disk: Arc::default() };
            cluster.start_node(&node, false).await;
            cluster.nodes.push(node);
        }
        cluster.world.sleep(Duration::from_secs(1)).await;
        cluster
    }

    async fn start_master(&self) {
        let runtime = self.master.runtime();
        let mut options = Options::new("/master".into(), self.master_address.clone(), identity("master", Role::Master));
        options.dead_time = Duration::from_secs(8);
        options.suspect_time = Duration::from_secs(3);
        options.session_ttl = self.session_ttl;
        let master = Master::start(runtime.clone(), options).await.unwrap();
        // It lives as long as its process.
        runtime.spawn("keep the master", async move {
            let _ = master.failed().await;
            std::future::pending::<()>().await;
        });
    }

    async fn start_node(&self, node: &Node, again: bool) {
        let runtime = if again { node.process.restart() } else { node.process.runtime() };
        let host = node.process.host().to_owned();
        let address = format!("{}:7100", node.process.ip());
        if self.blocks == Blocks::Real {
            let data_dir = std::path::PathBuf::from("/data");
            let mut options =
                BlockOptions::new(data_dir, identity(&host, Role::Block), vec![self.master_address.clone()]);
            options.listen = address;
            options.rack = RackName::new("r");
            options.volume.gap_wait = Duration::from_millis(300);
            let server = BlockServer::start(runtime.clone(), options).await.unwrap();
            // It lives as long as its process.
            runtime.spawn("keep the block server", async move {
                let _server = server;
                std::future::pending::<()>().await;
            });
            return;
        }
        fake_block::start(
            runtime,
            identity(&host, Role::Block),
            self.master_address.clone(),
            address,
            node.disk.clone(),
        )
        .await;
    }

    pub async fn restart_master(&self) {
        self.restart_master_after(Duration::from_millis(300)).await;
    }

    pub async fn restart_master_after(&self, away: Duration) {
        self.master.kill();
        self.world.sleep(away).await;
        self.master.restart();
        self.start_master().await;
    }

    /// Power fails: bytes that were not synced are gone.
    pub fn kill_node(&self, number: usize) {
        self.nodes[number].process.crash();
    }

    pub async fn restart_node(&self, number: usize) {
        self.start_node(&self.nodes[number], true).await;
    }

    pub fn options(&self, host: &str) -> ClientOptions {
        ClientOptions::new(vec![self.master_address.clone()], HostName::new(host), "test")
    }

    pub async fn client(&self, host: &str) -> Client {
        self.client_with(self.options(host)).await
    }

    pub async fn client_with(&self, options: ClientOptions) -> Client {
        self.process_with(options).await.1
    }

    /// A client, and the process that it is.
    pub async fn process_with(&self, options: ClientOptions) -> (Process, Client) {
        let host = options.host.as_str().to_owned();
        let role = options.role.parse().unwrap_or(Role::Operator);
        // A process of its own: its host's block server may die without it.
        let number = self.clients.fetch_add(1, Ordering::Relaxed);
        let process = self.world.process_on(&host, &format!("client {number}"));
        let runtime = process.runtime();
        let connector = Connector::new(runtime.clone(), identity(&host, role), Counters::default());
        let client = Client::connect(runtime, connector, options).await.unwrap();
        (process, client)
    }

    /// Files that would have to be recovered if their holders died now, as the master has it.
    pub async fn write_leases(&self, client: &Client) -> u64 {
        let master = client.connector().channel(&self.master_address);
        master.call(&pb::ClusterStatus::default(), Duration::from_secs(5)).await.unwrap().write_leases
    }

    /// From now on, a write needs so many members.
    pub async fn set_min_copies(&self, client: &Client, count: u32) {
        let set = SetDataset { dataset: 0, min_copies: Some(count), ..Default::default() };
        client.meta(&root(), Op::SetDataset(set)).await.unwrap();
    }

    /// A directory with small blocks and metablocks.
    pub async fn small_dataset(&self, client: &Client, replicas: u32) -> InodeId {
        let dataset = pb::Dataset {
            path: "/small".to_owned(),
            layout: "random".to_owned(),
            replicas,
            block_size: BLOCK,
            metablock_size: METABLOCK,
            replication: "pipeline".to_owned(),
            ..Default::default()
        };
        let make = MakeDir { parent: 1, name: b"small".to_vec(), mode: 0o755, umask: 0 };
        let _ = client.meta(&root(), Op::MakeDir(make)).await;
        client
            .meta(&root(), Op::CreateDataset(CreateDataset { dataset: Some(dataset), ..Default::default() }))
            .await
            .unwrap();
        client.resolve(&root(), b"/small").await.unwrap().inode
    }
}

/// Makes a file for reading and writing.
pub(crate) async fn create(client: &Client, parent: InodeId, name: &str) -> (Handle, InodeId) {
    let made = client.create(&root(), NewFile::or_existing(parent, name.as_bytes(), Access::ReadWrite)).await;
    let Created { handle, attr, .. } = made.unwrap();
    (handle, attr.inode)
}

/// Bytes that tell where they are from.
pub(crate) fn pattern(seed: u64, len: usize) -> Bytes {
    (0..len as u64)
        .map(|at| ((at.wrapping_mul(0x9E37_79B9) >> 7) ^ seed.wrapping_mul(31) ^ at) as u8)
        .collect::<Vec<_>>()
        .into()
}

/// Reads all of a file.
pub(crate) async fn read_all(client: &Client, handle: Handle) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let part = client.read(handle, out.len() as u64, 100_000).await?;
        if part.is_empty() {
            return Ok(out);
        }
        out.extend_from_slice(&part);
    }
}

/// What a listener heard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard(pub Arc<Mutex<Vec<InodeId>>>);

impl crate::CacheListener for Heard {
    fn guard(&self, inode: InodeId) -> Box<dyn crate::CacheGuard> {
        Box::new(Guarded(self.clone(), inode))
    }

    fn forget(&self, inodes: &[InodeId]) {
        self.0.lock().extend(inodes);
    }
}

struct Guarded(Heard, InodeId);

impl crate::CacheGuard for Guarded {
    fn drop_pages<'a>(&'a mut self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        self.0.0.lock().push(self.1);
        Box::pin(async {})
    }
}
