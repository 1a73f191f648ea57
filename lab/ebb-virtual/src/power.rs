//! A cluster that follows its power, in virtual time: the real power manager and power client beside the real master,
//! block servers and clients. The world freezes nodes, and the number of the others is compared with the budget.

pub mod meter;
pub mod options;
mod raid;
pub mod run;
pub mod sites;
pub mod supplied;
pub mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ebb_block::{BlockOptions, BlockServer};
use ebb_client::{Client, ClientOptions};
use ebb_handoff::HandoffLog;
use ebb_master::Master;
pub use ebb_master::OverloadRule;
use ebb_power::{NodePower, PolicyKind, PowerPlan};
use ebb_power_drivers::{PowerDriver, Powered, Work};
use ebb_power_manager::client::{self, Nodes};
use ebb_power_manager::manager::{self, ManagerOptions};
pub use ebb_power_manager::settings::Settings;
use ebb_proxy::{Hosted, Proxy, ProxyOptions, Sessions};
use ebb_rpc::testing::{EveryChannel, Everyone};
use ebb_rpc::{Connector, Counters};
use ebb_runtime::Runtime;
use ebb_runtime::virt::{Process, World};
use ebb_types::{Credentials, HostName, NodeId, Result, Role, bail};
use ebb_wire::pb::meta_op::{Op, SetDataset};
use ebb_wire::{Call, pb};
use parking_lot::Mutex;

use crate::cluster::{CUT_BYTES, identity};
use crate::power::sites::Site;

/// Patience of an operator's question.
const ASK: Duration = Duration::from_secs(10);

/// A node that should have spoken for so long is dead.
pub(crate) const DEAD_TIME: Duration = Duration::from_secs(10);

/// Smallest journal segment of a volume on a disk to scale.
const SEGMENT_LEAST: u64 = 256 << 10;

/// The options of a cluster.
#[derive(Clone, Debug)]
pub struct PowerOptions {
    /// Block servers, each on a node of its own.
    pub sites: Vec<Site>,
    /// The manager's first settings: policy, interval, draws, transitions, battery. Waking a node takes half of the
    /// transition that plans count with.
    pub settings: Settings,
    /// Bytes that a byte stands for: the nodes' background work by bytes (scrubbing, checkpoints) is divided by it, as
    /// the world's disks and links are.
    pub scale: u64,
    /// When a home has so much to write that others write for it; its bytes are divided by the scale.
    pub overload_rule: OverloadRule,
    /// What a master allows for a call beside the time for its bytes, which it takes to be true ones; if not given, as much as
    /// it does by itself.
    pub call_timeout: Option<Duration>,
}

impl PowerOptions {
    /// The reference figures, with transitions as short as freezing a process is.
    #[must_use]
    pub fn new(nodes: usize, policy: PolicyKind, interval: Duration) -> Self {
        Self {
            sites: Site::equal(nodes),
            settings: Settings::new(policy, interval),
            scale: 1,
            overload_rule: OverloadRule::default(),
            call_timeout: None,
        }
    }
}

/// Nodes by what they do; nodes that are lost for good are none of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Census {
    /// Awake.
    pub serving: usize,
    /// On the way to being awake: they draw as much.
    pub changing: usize,
    /// Frozen.
    pub asleep: usize,
}

/// Where the always-on node's handoff log is, on the master's disk.
pub const LOG_DIR: &str = "/master/offload";

/// The cluster.
pub struct PowerCluster {
    world: World,
    master: Process,
    manager: Process,
    keeper: Process,
    nodes: Arc<WorldNodes>,
    settings: Settings,
    scale: u64,
    overload_rule: OverloadRule,
    call_timeout: Option<Duration>,
}

/// Nodes of the world, frozen and thawed.
struct WorldNodes {
    /// Hardware continues on behalf of no process.
    world: World,
    blocks: Vec<Process>,
    /// In the same order.
    sites: Vec<Site>,
    /// Clients that run on a node: they are frozen with it.
    guests: Mutex<BTreeMap<usize, Vec<Process>>>,
    /// From the call to wake up to the first instruction.
    waking: Duration,
    /// By the order in which they registered: an operator's ask of the master.
    ids: Mutex<BTreeMap<NodeId, usize>>,
    asleep: Mutex<BTreeMap<usize, bool>>,
    /// Nodes that are being woken.
    changing: Mutex<BTreeSet<usize>>,
    /// Nodes whose machines are gone for good.
    lost: Mutex<BTreeSet<usize>>,
}

impl WorldNodes {
    /// Every process of a node.
    fn processes(&self, place: usize) -> Vec<Process> {
        let guests = self.guests.lock().get(&place).cloned().unwrap_or_default();
        std::iter::once(self.blocks[place].clone()).chain(guests).collect()
    }

    fn place(&self, node: NodeId) -> Result<usize> {
        match self.ids.lock().get(&node) {
            Some(place) => Ok(*place),
            None => bail!(NotFound, "nothing is known of {node}"),
        }
    }
}

impl PowerDriver for WorldNodes {
    fn name(&self) -> &'static str {
        "world"
    }

    fn sleep(&self, node: NodeId, _wake_ms: Option<u64>) -> Work<'_, Result<()>> {
        Box::pin(async move {
            let place = self.place(node)?;
            self.processes(place).iter().for_each(Process::freeze);
            self.changing.lock().remove(&place);
            self.asleep.lock().insert(place, true);
            Ok(())
        })
    }

    fn wake(&self, node: NodeId) -> Work<'_, Result<()>> {
        Box::pin(async move {
            let place = self.place(node)?;
            // From here on it draws.
            self.asleep.lock().insert(place, false);
            self.changing.lock().insert(place);
            self.world.sleep(self.waking).await;
            self.processes(place).iter().for_each(Process::thaw);
            self.changing.lock().remove(&place);
            Ok(())
        })
    }

    fn powered(&self, node: NodeId) -> Work<'_, Result<Powered>> {
        Box::pin(async move {
            if self.lost.lock().contains(&self.place(node)?) {
                return Ok(Powered::Gone);
            }
            if self.changing.lock().contains(&self.place(node)?) {
                return Ok(Powered::Changing);
            }
            let is_asleep = self.asleep.lock().get(&self.place(node)?).copied().unwrap_or(false);
            Ok(if is_asleep { Powered::Off } else { Powered::On })
        })
    }
}

impl Nodes for WorldNodes {
    fn refresh(&self) -> Result<BTreeMap<NodeId, String>> {
        let ids = self.ids.lock();
        Ok(ids.iter().map(|(node, place)| (*node, address(&self.blocks[*place]))).collect())
    }

    fn pids(&self, _node: NodeId) -> Vec<u32> {
        Vec::new()
    }
}

fn address(block: &Process) -> String {
    format!("{}:7100", block.ip())
}

/// The newest plan that the master reports; none: every node is on.
pub fn newest_plan(reply: &pb::DescribePowerReply) -> Result<Option<PowerPlan>> {
    reply.plans.last().map(|plan| PowerPlan::decode(plan)).transpose()
}

impl PowerCluster {
    /// A cluster of so many nodes with the reference figures.
    pub async fn start(world: &World, nodes: usize, policy: PolicyKind, interval: Duration) -> Result<Self> {
        Self::start_with(world, PowerOptions::new(nodes, policy, interval)).await
    }

    /// Starts everything, and returns when all nodes have registered and the manager knows them.
    pub async fn start_with(world: &World, options: PowerOptions) -> Result<Self> {
        let blocks: Vec<Process> = options.sites.iter().map(|site| site.process(world)).collect();
        let keeper = world.process("power-client");
        let nodes = WorldNodes {
            world: world.clone(),
            blocks,
            sites: options.sites,
            guests: Mutex::default(),
            waking: options.settings.node().wake / 2,
            ids: Mutex::default(),
            asleep: Mutex::default(),
            lost: Mutex::default(),
            changing: Mutex::default(),
        };
        let cluster = Self {
            world: world.clone(),
            master: world.process("master"),
            manager: world.process("power-manager"),
            keeper,
            nodes: Arc::new(nodes),
            settings: options.settings,
            scale: options.scale.max(1),
            overload_rule: options.overload_rule,
            call_timeout: options.call_timeout,
        };
        cluster.start_master(cluster.master.runtime());
        for (place, block) in cluster.nodes.blocks.iter().enumerate() {
            cluster.start_block(place, block.runtime());
        }
        cluster.learn_nodes().await?;
        cluster.start_keeper(cluster.keeper.runtime());
        cluster.start_manager(cluster.manager.runtime());
        while cluster.status().await.is_err() {
            world.sleep(Duration::from_millis(100)).await;
        }
        Ok(cluster)
    }

    pub(crate) fn master_address(&self) -> String {
        format!("{}:7000", self.master.ip())
    }

    /// Where the proxy listens, which lives in the master's process.
    #[must_use]
    pub fn proxy_address(&self) -> String {
        format!("{}:7400", self.master.ip())
    }

    fn start_master(&self, runtime: Runtime) {
        let (address, masters, proxy) = (self.master_address(), vec![self.master_address()], self.proxy_address());
        let mut overload_rule = self.overload_rule;
        overload_rule.ahead_bytes = overload_rule.ahead_bytes.map(|bytes| bytes / self.scale);
        let (scale, call_timeout) = (self.scale, self.call_timeout);
        runtime.clone().spawn("main", async move {
            let mut options = ebb_master::Options::new("/master".into(), address, identity("master", Role::Master));
            options.dead_time = DEAD_TIME;
            options.extra_share_percent = 0;
            options.replace_after = Duration::from_secs(120);
            options.overload_rule = overload_rule;
            options.feed_bytes_max = (u64::from(options.feed_bytes_max) / scale) as u32;
            options.encode_rate_bytes_per_sec /= scale;
            options.call_timeout = call_timeout.unwrap_or(options.call_timeout);
            let master = Master::start(runtime.clone(), options).await?;
            let sessions = Sessions::new(master.living());
            let _proxy =
                Hosted::start(&runtime, ProxyOptions::new(identity("master", Role::Proxy), masters, proxy, sessions));
            master.failed().await
        });
    }

    /// Starts a proxy in a process of its own, beside the one in the master's: they share the work by its name.
    pub fn start_proxy(&self, name: &str) -> Process {
        let process = self.world.process(name);
        let (runtime, listen) = (process.runtime(), format!("{}:7400", process.ip()));
        let options = ProxyOptions::apart(identity(name, Role::Proxy), vec![self.master_address()], listen, name);
        runtime.clone().spawn("main", async move {
            let _proxy = Proxy::start(runtime, options).await?;
            // It serves until its process ends.
            std::future::pending::<Result<()>>().await
        });
        process
    }

    fn start_block(&self, place: usize, runtime: Runtime) {
        let block = &self.nodes.blocks[place];
        let mut options =
            BlockOptions::new("/node".into(), identity(block.host(), Role::Block), vec![self.master_address()]);
        options.listen = address(block);
        self.nodes.sites[place].declare(&mut options);
        options.volume.cut_bytes = CUT_BYTES;
        let scale = self.scale;
        if scale > 1 {
            options.volume.segment_bytes = (options.volume.segment_bytes / scale).max(SEGMENT_LEAST);
            options.volume.checkpoint_bytes =
                (options.volume.checkpoint_bytes / scale).max(4 * options.volume.segment_bytes);
            options.volume.journaled_bytes_max /= scale;
            options.patrol.rate_bytes_per_sec = (options.patrol.rate_bytes_per_sec / scale).max(1);
        }
        runtime.clone().spawn("main", async move {
            let _server = BlockServer::start(runtime, options).await?;
            // It serves until its process ends.
            std::future::pending::<Result<()>>().await
        });
    }

    /// Starts a node again that has lost its power. It comes up awake, also against its plan.
    fn restart_block(&self, place: usize) {
        if !self.nodes.blocks[place].is_alive() && !self.nodes.lost.lock().contains(&place) {
            self.nodes.asleep.lock().insert(place, false);
            self.start_block(place, self.nodes.blocks[place].restart());
        }
    }

    async fn learn_nodes(&self) -> Result<()> {
        let wanted = self.nodes.blocks.len();
        for _ in 0..600 {
            if let Ok(reply) = self.ask(&self.master_address(), &pb::ClusterStatus {}).await
                && reply.nodes.len() == wanted
            {
                let place = |host: &str| self.nodes.blocks.iter().position(|block| block.host() == host);
                let ids = reply.nodes.iter().filter_map(|node| Some((NodeId::new(node.id), place(&node.host)?)));
                *self.nodes.ids.lock() = ids.collect();
                return Ok(());
            }
            self.world.sleep(Duration::from_millis(100)).await;
        }
        bail!(Timeout, "the nodes have not registered")
    }

    fn start_keeper(&self, runtime: Runtime) {
        let (nodes, master) = (Arc::clone(&self.nodes), self.master_address());
        let listen = format!("{}:7300", self.keeper.ip());
        runtime.clone().spawn("main", async move {
            let listener = runtime.listen(&listen).await?;
            let (identity, client) = (identity("power-client", Role::PowerClient), Arc::clone(&nodes));
            client::run(runtime, listener, identity, master, client, nodes, std::future::pending()).await
        });
    }

    fn start_manager(&self, runtime: Runtime) {
        let listen = self.manager_address();
        let client = format!("{}:7300", self.keeper.ip());
        let options = ManagerOptions {
            dir: "/power".into(),
            fresh: self.settings.clone(),
            master: self.master_address(),
            power_client: Arc::new(move || Some(client.clone())),
        };
        runtime.clone().spawn("main", async move {
            let listener = runtime.listen(&listen).await?;
            manager::run(runtime, listener, identity("power-manager", Role::PowerManager), options).await
        });
    }

    pub(crate) fn manager_address(&self) -> String {
        format!("{}:7200", self.manager.ip())
    }

    /// A node loses its power, without a word.
    pub fn fail(&self, node: NodeId) -> Result<()> {
        self.nodes.blocks[self.nodes.place(node)?].power_off();
        Ok(())
    }

    /// It comes back with its disk.
    pub fn repair(&self, node: NodeId) -> Result<()> {
        self.restart_block(self.nodes.place(node)?);
        Ok(())
    }

    /// Kills the master and starts it again; returns when it serves.
    pub async fn restart_master(&self) {
        self.restart_master_after(|_| {}).await;
    }

    /// Kills the master, calls `harm`, and starts it again; returns when it serves.
    pub async fn restart_master_after(&self, harm: impl FnOnce(&Process)) {
        self.master.kill();
        harm(&self.master);
        self.start_master(self.master.restart());
        while self.cluster_status().await.is_err() {
            self.world.sleep(Duration::from_millis(100)).await;
        }
    }

    /// The always-on node's handoff log, as a process that starts now would find it.
    pub async fn log(&self) -> Result<HandoffLog> {
        HandoffLog::open(&self.master.runtime(), Path::new(LOG_DIR), usize::MAX, false).await
    }

    /// Kills the manager; it stays down.
    pub fn kill_manager(&self) {
        self.manager.kill();
    }

    /// Starts it again, if it has ended.
    pub fn restart_manager(&self) {
        if !self.manager.is_alive() {
            self.start_manager(self.manager.restart());
        }
    }

    /// Kills the power client: a node that sleeps stays asleep, and a node that is awake stays awake.
    pub fn kill_keeper(&self) {
        self.keeper.kill();
    }

    /// Starts it again, if it has ended.
    pub fn restart_keeper(&self) {
        if !self.keeper.is_alive() {
            self.start_keeper(self.keeper.restart());
        }
    }

    /// Starts the master again, if it has ended.
    fn begin_master(&self) {
        if !self.master.is_alive() {
            self.start_master(self.master.restart());
        }
    }

    /// Bytes that each block server has sent since it started, in the order of the nodes.
    pub async fn sent_bytes(&self) -> Result<Vec<u64>> {
        let mut sent = Vec::new();
        for node in &self.nodes.blocks {
            sent.push(self.ask(&format!("{}:7100", node.ip()), &pb::Counters {}).await?.network_sent_bytes);
        }
        Ok(sent)
    }

    /// An operator's question.
    pub(crate) async fn ask<C: Call>(&self, address: &str, call: &C) -> Result<C::Reply> {
        self.channel(address).call(call, ASK).await
    }

    /// An operator's connection. What no operator may ask is asked by a process that may.
    pub(crate) fn channel(&self, address: &str) -> EveryChannel {
        let runtime = self.world.process("operator").runtime();
        Everyone::new(&runtime, |role| identity("operator", role)).channel(address)
    }

    /// The power manager's status.
    pub async fn status(&self) -> Result<pb::PowerStatusReply> {
        self.ask(&self.manager_address(), &pb::PowerStatus {}).await
    }

    /// The operator's override of the supply.
    pub async fn set_fraction(&self, share: f64) -> Result<()> {
        let call = pb::SetPower { fraction: Some(share), watts: None };
        self.ask(&self.manager_address(), &call).await.map(drop)
    }

    /// The operator's override of the supply of the whole cluster, in watts.
    pub async fn set_watts(&self, watts: f64) -> Result<()> {
        let call = pb::SetPower { fraction: None, watts: Some(watts) };
        self.ask(&self.manager_address(), &call).await.map(drop)
    }

    /// A trace as the source.
    pub async fn follow(&self, csv: &str) -> Result<()> {
        let trace = pb::TraceSource {
            name: "signal".to_owned(),
            csv: csv.to_owned(),
            compress: 1.0,
            ..pb::TraceSource::default()
        };
        let call = pb::FollowSource { source: Some(pb::follow_source::Source::Trace(trace)), ..Default::default() };
        self.ask(&self.manager_address(), &call).await.map(drop)
    }

    /// Nodes, plans and the places of copies, as the master reports them to a power manager.
    pub async fn describe(&self) -> Result<pb::DescribePowerReply> {
        self.ask(&self.master_address(), &pb::DescribePower::default()).await
    }

    /// Publishes a plan in the manager's place.
    pub async fn publish(&self, plan: &PowerPlan) -> Result<()> {
        self.ask(&self.master_address(), &pb::PublishPlan { plan: plan.encode() }).await.map(drop)
    }

    /// Nodes with a replica of a file.
    pub async fn locate(&self, inode: u64) -> Result<Vec<NodeId>> {
        let reply = self.ask(&self.master_address(), &pb::Locate { inode }).await?;
        Ok(reply.replicas.iter().map(|replica| NodeId::new(replica.node)).collect())
    }

    /// Another policy.
    pub async fn set_policy(&self, policy: PolicyKind) -> Result<()> {
        let call = pb::SetPolicy { policy: policy.name().to_owned(), force: false };
        self.ask(&self.manager_address(), &call).await.map(drop)
    }

    /// Compares the map with the disks, every checksum of them.
    pub async fn scrub(&self) -> Result<pb::FsckReply> {
        self.ask(&self.master_address(), &pb::Fsck { scrub: true, parity: true, ..Default::default() }).await
    }

    /// Has a node drained, or used again.
    pub async fn drain(&self, node: u64, undo: bool) -> Result<()> {
        self.ask(&self.master_address(), &pb::DrainNode { node, undo }).await.map(drop)
    }

    /// A dataset's wish for so many active nodes.
    pub async fn set_active(&self, client: &Client, path: &str, active: u32) -> Result<()> {
        let reply = self.describe().await?.datasets;
        let dataset = reply.iter().find(|dataset| dataset.path == path).map_or(0, |dataset| dataset.id);
        let set = SetDataset { dataset, active: Some(active), ..SetDataset::default() };
        client.meta(&Credentials::root(), Op::SetDataset(set)).await.map(drop)
    }

    /// Nodes that the plan in force has on, or blinks.
    pub async fn powered(&self) -> BTreeSet<u64> {
        let status = self.status().await.unwrap_or_default();
        status.nodes.iter().filter(|node| node.active_s > 0.0).map(|node| node.id).collect()
    }

    /// The master's status.
    pub async fn cluster_status(&self) -> Result<pb::ClusterStatusReply> {
        self.ask(&self.master_address(), &pb::ClusterStatus {}).await
    }

    /// A session on a host of its own.
    pub async fn connect(&self, host: &str) -> Result<Client> {
        self.session(&self.world.process(host)).await
    }

    /// A session of a process on a node, counted from 0, which is frozen with it; and the process.
    pub async fn connect_on(&self, place: usize, name: &str) -> Result<(Client, Process)> {
        let process = self.world.process_on(self.nodes.blocks[place].host(), name);
        self.nodes.guests.lock().entry(place).or_default().push(process.clone());
        Ok((self.session(&process).await?, process))
    }

    async fn session(&self, process: &Process) -> Result<Client> {
        self.session_with(process, Counters::default(), |_| {}).await
    }

    /// A session of a process, with other options, whose bytes are counted.
    pub async fn session_with(
        &self,
        process: &Process,
        counters: Counters,
        change: impl FnOnce(&mut ClientOptions),
    ) -> Result<Client> {
        let (runtime, host) = (process.runtime(), process.host());
        let connector = Connector::new(runtime.clone(), identity(host, Role::Operator), counters);
        let mut options = ClientOptions::new(vec![self.master_address()], HostName::new(host), "virtual");
        options.sizes = options.sizes.divided_by(self.scale);
        // Each read comes from a node.
        options.read_cache_bytes = 0;
        // The virtual world passes no descriptors.
        options.short_circuit = false;
        change(&mut options);
        Client::connect(runtime, connector, options).await
    }

    /// What the nodes do now.
    #[must_use]
    pub fn census(&self) -> Census {
        let (lost, changing) = (self.nodes.lost.lock(), self.nodes.changing.lock());
        let is_there = |place: &usize| !lost.contains(place);
        let asleep = self.nodes.asleep.lock().iter().filter(|(place, asleep)| **asleep && is_there(place)).count();
        let changing = changing.iter().filter(|place| is_there(place)).count();
        Census { serving: self.nodes.blocks.len() - lost.len() - asleep - changing, changing, asleep }
    }

    /// Watts that the nodes draw now: a node that is not frozen draws all it can.
    #[must_use]
    pub fn nodes_watts(&self) -> f64 {
        let (power, census) = (NodePower::REFERENCE, self.census());
        (census.serving + census.changing) as f64 * power.active_watts + census.asleep as f64 * power.asleep_watts
    }
}
