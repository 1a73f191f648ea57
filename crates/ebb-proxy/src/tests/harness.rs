//! A master with a proxy, block servers and clients in the virtual world.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ebb_block::{BlockOptions, BlockServer};
use ebb_client::{Access, Client, ClientOptions, Created, Handle, NewFile};
use ebb_master::{Master, Options};
use ebb_rpc::{Connector, Counters, Identity};
use ebb_runtime::virt::{Process, World, WorldOptions};
use ebb_runtime::{Runtime, SeededBug};
use ebb_types::{ClusterId, Credentials, HostName, InodeId, RackName, Result, Role};
use ebb_wire::pb;
use parking_lot::Mutex;

use crate::{Hosted, Proxy, ProxyOptions, Sessions};

pub(crate) struct Cluster {
    pub world: World,
    master: Process,
    /// Of its own; none: it is in the master's.
    proxy: Option<Process>,
    /// What runs in it.
    running: Mutex<Option<Proxy>>,
    nodes: Vec<Process>,
    clients: AtomicUsize,
}

pub(crate) fn run<F: Future<Output = ()>>(seed: u64, test: impl FnOnce(Cluster) -> F) {
    World::run(seed, WorldOptions::default(), |world| async move {
        test(Cluster::start(world, false).await).await;
    });
}

/// The same with a seeded bug; what the test returns.
pub(crate) fn run_with_bug<F: Future>(bug: Option<SeededBug>, seed: u64, test: impl FnOnce(Cluster) -> F) -> F::Output {
    World::run(seed, WorldOptions { bug, ..WorldOptions::default() }, |world| async move {
        test(Cluster::start(world, false).await).await
    })
}

/// The same with the proxy in a process of its own, on a host of its own.
pub(crate) fn run_apart<F: Future<Output = ()>>(seed: u64, test: impl FnOnce(Cluster) -> F) {
    World::run(seed, WorldOptions::default(), |world| async move {
        test(Cluster::start(world, true).await).await;
    });
}

pub fn identity(host: &str, role: Role) -> Identity {
    Identity::by_word(ClusterId::new(7), host, role)
}

impl Cluster {
    async fn start(world: World, is_apart: bool) -> Self {
        let master = world.process("master");
        let nodes = (1..=3).map(|number| world.process(&format!("h{number}"))).collect();
        let proxy = is_apart.then(|| world.process("proxy"));
        let (running, clients) = (Mutex::default(), AtomicUsize::new(0));
        let cluster = Self { world, master, proxy, running, nodes, clients };
        cluster.start_master().await;
        if let Some(proxy) = &cluster.proxy {
            cluster.start_proxy(proxy.runtime()).await;
        }
        for node in &cluster.nodes {
            cluster.start_node(node).await;
        }
        cluster.world.sleep(Duration::from_secs(2)).await;
        cluster
    }

    fn master_address(&self) -> String {
        format!("{}:7000", self.master.ip())
    }

    pub fn proxy_address(&self) -> String {
        format!("{}:7200", self.proxy.as_ref().unwrap_or(&self.master).ip())
    }

    fn proxy_options(&self) -> ProxyOptions {
        let (identity, masters) = (identity("proxy", Role::Proxy), vec![self.master_address()]);
        ProxyOptions::apart(identity, masters, self.proxy_address(), "proxy-1")
    }

    /// One more where there is one already.
    pub async fn start_proxy_again(&self) -> Result<Proxy> {
        let process = self.proxy.as_ref().unwrap_or(&self.master);
        Proxy::start(process.runtime(), self.proxy_options()).await
    }

    /// Sessions that the master counts.
    pub async fn count_sessions(&self, by: &Client) -> u64 {
        let channel = by.connector().channel(&self.master_address());
        channel.call(&pb::ClusterStatus {}, Duration::from_secs(5)).await.unwrap().sessions
    }

    async fn start_proxy(&self, runtime: Runtime) {
        let proxy = Proxy::start(runtime, self.proxy_options()).await.unwrap();
        *self.running.lock() = Some(proxy);
    }

    /// The proxy in a process of its own ends in good order.
    pub async fn end_proxy(&self) -> Result<()> {
        let (process, proxy) = (self.proxy.as_ref().unwrap(), self.running.lock().take().unwrap());
        let ended = proxy.stop().await;
        process.kill();
        ended
    }

    /// Its next process.
    pub async fn next_proxy(&self) {
        let process = self.proxy.as_ref().unwrap();
        process.restart();
        self.start_proxy(process.runtime()).await;
    }

    async fn start_master(&self) {
        let runtime = self.master.runtime();
        let mut options = Options::new("/master".into(), self.master_address(), identity("master", Role::Master));
        options.hosts_proxy = self.proxy.is_none();
        let master = Master::start(runtime.clone(), options).await.unwrap();
        if self.proxy.is_some() {
            runtime.spawn("keep the master", async move {
                let _ = master.failed().await;
                std::future::pending::<()>().await;
            });
            return;
        }
        let (identity, masters) = (identity("master", Role::Proxy), vec![self.master_address()]);
        let sessions = Sessions::new(master.living());
        let options = ProxyOptions::new(identity, masters, self.proxy_address(), sessions);
        let proxy = Hosted::start(&runtime, options);
        // Both live as long as their process.
        runtime.spawn("keep the master", async move {
            let _proxy = proxy;
            let _ = master.failed().await;
            std::future::pending::<()>().await;
        });
    }

    async fn start_node(&self, node: &Process) {
        let mut options =
            BlockOptions::new("/data".into(), identity(node.host(), Role::Block), vec![self.master_address()]);
        options.listen = format!("{}:7100", node.ip());
        options.rack = RackName::new("r");
        let runtime = node.runtime();
        let server = BlockServer::start(runtime.clone(), options).await.unwrap();
        runtime.spawn("keep the block server", async move {
            let _server = server;
            std::future::pending::<()>().await;
        });
    }

    /// The master's process, and the proxy in it, is killed and started again.
    pub async fn restart_master(&self) {
        self.master.kill();
        self.world.sleep(Duration::from_millis(300)).await;
        self.master.restart();
        self.start_master().await;
    }

    /// A block server's process is killed and started again: its memory is gone.
    pub async fn restart_node(&self, index: usize) {
        self.nodes[index].kill();
        self.world.sleep(Duration::from_millis(50)).await;
        self.nodes[index].restart();
        self.start_node(&self.nodes[index]).await;
    }

    /// Where block servers listen.
    pub fn node_addresses(&self) -> Vec<String> {
        self.nodes.iter().map(|node| format!("{}:7100", node.ip())).collect()
    }

    /// A block server gets no processor.
    pub fn freeze_node(&self, index: usize) {
        self.nodes[index].freeze();
    }

    /// It gets it again.
    pub fn thaw_node(&self, index: usize) {
        self.nodes[index].thaw();
    }

    /// Nothing goes between a host and the master's, and the proxy's, any more.
    pub fn cut_off(&self, host: &str) {
        for other in self.servers().filter(|other| *other != host) {
            self.world.partition(host, other);
        }
    }

    /// What was sent meanwhile arrives.
    pub fn let_in(&self, host: &str) {
        for other in self.servers().filter(|other| *other != host) {
            self.world.mend(host, other);
        }
    }

    fn servers(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.master.host()).chain(self.proxy.as_ref().map(Process::host))
    }

    pub async fn client(&self) -> Client {
        let number = self.clients.fetch_add(1, Ordering::Relaxed);
        let host = format!("c{number}");
        let runtime = self.world.process(&host).runtime();
        let connector = Connector::new(runtime.clone(), identity(&host, Role::Operator), Counters::default());
        let options = ClientOptions::new(vec![self.master_address()], HostName::new(host), "test");
        Client::connect(runtime, connector, options).await.unwrap()
    }

    /// So many clients that have one file open, and its inode.
    pub async fn sharers(&self, count: usize) -> (Vec<(Client, Handle)>, InodeId) {
        let mut sharers = Vec::new();
        let mut inode = InodeId::new(0);
        for _ in 0..count {
            let client = self.client().await;
            let (root, access) = (Credentials::root(), Access::ReadWrite);
            let made = client.create(&root, NewFile::or_existing(InodeId::ROOT, b"shared", access)).await;
            let Created { handle, attr, .. } = made.unwrap();
            inode = attr.inode;
            sharers.push((client, handle));
        }
        (sharers, inode)
    }
}
