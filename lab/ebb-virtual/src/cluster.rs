//! The real services, as processes of the virtual world.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ebb_block::{BlockOptions, BlockServer};
use ebb_client::{Client, ClientOptions};
use ebb_master::Master;
use ebb_proxy::{Hosted, Proxy, ProxyOptions, Sessions};
use ebb_rpc::testing::{EveryChannel, Everyone};
use ebb_rpc::{Channel, Connector, Counters, Identity};
use ebb_runtime::Runtime;
use ebb_runtime::virt::{Process, World};
use ebb_types::Role as Certified;
use ebb_types::{ClusterId, ErrorKind, HostName, RackName, Result};
use ebb_wire::pb;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use crate::faults::budget::Budget;
use crate::faults::kind::{BLOCK_DIR, Kind, VOLUME_DIR};
use crate::faults::master_disk::{self, MASTER_DIR, Rot};
use crate::files::ClientFiles;
use crate::names::work::Names;
use crate::options::VirtualOptions;
use crate::snapshots::work::Taker;
use crate::workload::{Board, Worker};

/// Steps in which removed files give their space back: some in each of the longer files here.
pub(crate) const CUT_BYTES: u64 = 64 << 10;

/// How often block servers report all their replicas: several times in a run.
const REPORT_EVERY: Duration = Duration::from_secs(20);

/// The share of starts after which a block server is scrubbed.
const SCRUBBED: f64 = 0.3;

/// How often a server is asked that does not answer yet, with which pause, and how long it may take.
const SCRUB_CALLS: usize = 20;
const SCRUB_PAUSE: Duration = Duration::from_millis(20);
const SCRUB_MAX: Duration = Duration::from_secs(5);

/// Between two readings of a client's counters.
const COUNT_PAUSE: Duration = Duration::from_millis(500);

/// Work on snapshots is rarer than that on files: each snapshot recalls the leases of all writers.
const SNAPSHOT_PAUSES: u32 = 8;

/// How long a process that gave up stays down.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// The program that a process of the cluster runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The master.
    Master,
    /// A proxy.
    Proxy,
    /// A block server.
    Block,
    /// A client of the workload, with its number.
    Client(usize),
}

/// A process and its role.
#[derive(Clone, Debug)]
pub struct Member {
    /// The process.
    pub process: Process,
    /// Its program.
    pub role: Role,
}

/// A cluster in a world. Cheap to clone.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    board: Board,
    options: VirtualOptions,
    master_address: String,
    members: Vec<Member>,
    budget: Mutex<Budget>,
    /// Names of processes that never come back.
    given_up: Mutex<BTreeSet<String>>,
    /// Names of processes that stay away until a fault has ended.
    away: Mutex<BTreeSet<String>>,
    /// The host that is being drained.
    drained: Mutex<Option<String>>,
    /// The damage on the master's disk, if there is any.
    rot: Mutex<Option<Rot>>,
    /// No fault begins any more.
    are_faults_over: AtomicBool,
    /// Clients that have done their work.
    finished: Mutex<BTreeSet<usize>>,
    /// How proxies are asked to end in good order, by their names.
    endings: Mutex<BTreeMap<String, oneshot::Sender<()>>>,
}

impl Cluster {
    /// Makes the processes and starts the services; clients come later.
    #[must_use]
    pub fn start(board: Board, options: VirtualOptions) -> Self {
        let world = &board.world;
        let mut members = vec![Member { process: world.process("master"), role: Role::Master }];
        let master_address = format!("{}:7000", members[0].process.ip());
        for number in 1..=options.proxies {
            members.push(Member { process: world.process(&format!("proxy-{number}")), role: Role::Proxy });
        }
        for number in 1..=options.block_servers {
            members.push(Member { process: world.process(&format!("h{number}")), role: Role::Block });
        }
        for number in 0..options.clients {
            let name = format!("c{number}");
            let process = match options.shares_hosts && number < options.block_servers {
                true => world.process_on(&format!("h{}", number + 1), &name),
                false => world.process(&name),
            };
            members.push(Member { process, role: Role::Client(number) });
        }
        let replicas = options.replicas;
        let cluster = Self(Arc::new(Inner {
            board,
            options,
            master_address,
            members,
            budget: Mutex::new(Budget::new(replicas)),
            given_up: Mutex::default(),
            away: Mutex::default(),
            drained: Mutex::default(),
            rot: Mutex::default(),
            are_faults_over: AtomicBool::default(),
            finished: Mutex::default(),
            endings: Mutex::default(),
        }));
        for member in cluster.members().iter().filter(|member| !matches!(member.role, Role::Client(_))) {
            cluster.launch(member, member.process.runtime());
        }
        cluster
    }

    /// Its processes: the master, proxies, block servers, clients.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.0.members
    }

    /// The options of the cluster.
    #[must_use]
    pub fn options(&self) -> &VirtualOptions {
        &self.0.options
    }

    /// How much is wrong.
    pub fn budget(&self) -> MutexGuard<'_, Budget> {
        self.0.budget.lock()
    }

    /// The world that it is in.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.0.board.world
    }

    /// A process that has ended never comes back.
    pub fn give_up(&self, member: &Member) {
        self.0.given_up.lock().insert(member.process.name().to_owned());
    }

    /// Counts a fault that begins.
    pub fn note_fault(&self, kind: Kind) {
        *self.0.board.injected.lock().entry(kind).or_default() += 1;
    }

    /// A server may have lost what it had received and not synced.
    pub fn note_lost_memory(&self) {
        self.0.board.history.lock().memory_lost();
    }

    /// Records which nodes the master calls gray.
    pub fn note_gray(&self, status: &pb::ClusterStatusReply) {
        let gray = status.nodes.iter().filter(|node| node.gray.is_some());
        self.0.board.gray.lock().extend(gray.map(|node| node.id));
    }

    /// Whether a process never comes back.
    #[must_use]
    pub fn is_given_up(&self, member: &Member) -> bool {
        self.0.given_up.lock().contains(member.process.name())
    }

    /// Keeps a process away until it may come back, also if other faults end meanwhile.
    pub fn set_away(&self, member: &Member, away: bool) {
        let name = member.process.name();
        let mut all = self.0.away.lock();
        if away {
            all.insert(name.to_owned());
        } else {
            all.remove(name);
        }
    }

    /// No fault does anything from now on but end.
    pub fn end_faults(&self) {
        self.0.are_faults_over.store(true, Ordering::Relaxed);
    }

    /// Whether faults are over for good.
    #[must_use]
    pub fn are_faults_over(&self) -> bool {
        self.0.are_faults_over.load(Ordering::Relaxed)
    }

    /// Whether some process stays away.
    #[must_use]
    pub fn is_any_away(&self) -> bool {
        !self.0.away.lock().is_empty()
    }

    /// The host that is to be drained from now on.
    pub fn set_drained(&self, host: Option<&str>) {
        *self.0.drained.lock() = host.map(str::to_owned);
    }

    /// The host that is being drained.
    #[must_use]
    pub fn drained(&self) -> Option<String> {
        self.0.drained.lock().clone()
    }

    /// The damage on the master's disk, if there is any.
    pub fn rot(&self) -> MutexGuard<'_, Option<Rot>> {
        self.0.rot.lock()
    }

    /// Whether every client has ended its work and said so.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.finished.lock().len() == self.0.options.clients
    }

    /// Starts the clients' work.
    pub fn start_clients(&self) {
        for member in self.members().iter().filter(|member| matches!(member.role, Role::Client(_))) {
            self.launch(member, member.process.runtime());
        }
    }

    /// Starts a process again that has ended.
    pub fn restart(&self, member: &Member) {
        let is_away = self.0.away.lock().contains(member.process.name());
        if !member.process.is_alive() && !is_away && !self.is_given_up(member) {
            let runtime = member.process.restart();
            self.launch(member, runtime);
            if member.role == Role::Block && self.world().dice(&self.purpose("scrub", member)).chance(SCRUBBED) {
                self.scrub_started(member);
            }
        }
    }

    /// Dice of their own for everything that is done to a process at a moment.
    fn purpose(&self, purpose: &str, member: &Member) -> String {
        format!("{purpose} {} {}", member.process.name(), self.world().now().as_nanos())
    }

    /// Has a block server that was just started read everything, as a careful operator would after a crash, before its
    /// writers and repair heal damage that they meet. No fault of its process may have damaged anything.
    fn scrub_started(&self, member: &Member) {
        let runtime = self.world().process("operator").runtime();
        let everyone = Everyone::new(&runtime, |role| identity("operator", role));
        let channel = everyone.channel(&format!("{}:7100", member.process.ip()));
        let (cluster, member) = (self.clone(), member.clone());
        runtime.clone().spawn("scrub", async move {
            for _ in 0..SCRUB_CALLS {
                if let Ok(found) = channel.call(&pb::Scrub::default(), SCRUB_MAX).await {
                    cluster.judge_scrub(&member, &found.corrupt);
                    return;
                }
                runtime.sleep(SCRUB_PAUSE).await;
            }
        });
    }

    fn judge_scrub(&self, member: &Member, corrupt: &[u64]) {
        let name = member.process.name();
        if !corrupt.is_empty() && !self.budget().was_marred(name) {
            let complaint =
                format!("after a start {name} has damaged replicas of {corrupt:?}; no fault has hit its disk");
            self.0.board.history.lock().complain("synced", complaint);
        }
    }

    /// Records that a client has died: its unsynced writes may be lost.
    pub fn on_death(&self, member: &Member) {
        if let Role::Client(number) = member.role {
            self.0.board.history.lock().died(number);
        }
    }

    /// Runs the service of a process; one that gives up is started again after a while, as a service manager does.
    fn launch(&self, member: &Member, runtime: Runtime) {
        let (cluster, member) = (self.clone(), member.clone());
        let keeper = self.world().process("keeper").runtime();
        let main = runtime.spawn("main", cluster.clone().main(member.clone(), runtime.clone()));
        keeper.clone().spawn("keeper", async move {
            match main.join().await {
                Err(error) if error.kind() == ErrorKind::ShuttingDown => {}
                Ok(Ok(())) => {}
                Ok(Err(error)) | Err(error) => {
                    tracing::warn!(process = member.process.name(), %error, "gave up");
                    cluster.world().add_event("gave_up", &[]);
                    member.process.kill();
                    cluster.on_death(&member);
                    cluster.note_lost_memory();
                    if error.kind() == ErrorKind::Corrupt {
                        cluster.replace_disk(&member, &error);
                    }
                    keeper.sleep(RESTART_PAUSE).await;
                    cluster.restart(&member);
                }
            }
        });
    }

    /// Does the operator's part that the error asks for: formats the volume anew, or puts the master's file back. Only
    /// the world's own damage may lead there.
    fn replace_disk(&self, member: &Member, error: &ebb_types::Error) {
        if member.role == Role::Master && master_disk::restore(self, member, &error.to_string()) {
            self.world().add_event("master_restored", &[]);
        } else if member.role == Role::Block && self.budget().was_marred(member.process.name()) {
            member.process.wipe_disk(Path::new(VOLUME_DIR));
        } else {
            let complaint = format!("{} refuses a disk that nothing has damaged: {error}", member.process.name());
            self.0.board.history.lock().complain("healthy", complaint);
        }
    }

    async fn main(self, member: Member, runtime: Runtime) -> Result<()> {
        match member.role {
            Role::Master => self.run_master(runtime).await,
            Role::Proxy => self.run_proxy(&member, runtime).await,
            Role::Block => self.run_block(&member, runtime).await,
            Role::Client(number) => self.run_client(number, &member, runtime).await,
        }
    }

    async fn run_proxy(&self, member: &Member, runtime: Runtime) -> Result<()> {
        let (name, masters) = (member.process.host(), vec![self.0.master_address.clone()]);
        let listen = format!("{}:7200", member.process.ip());
        let proxy =
            Proxy::start(runtime, ProxyOptions::apart(identity(name, Certified::Proxy), masters, listen, name)).await?;
        let (ask, asked) = oneshot::channel();
        self.0.endings.lock().insert(name.to_owned(), ask);
        // It serves until its process ends, or is asked to.
        if asked.await.is_ok()
            && let Err(error) = proxy.stop().await
        {
            tracing::debug!(%error, "a proxy ends with files that it could not give back");
        }
        std::future::pending().await
    }

    /// Asks a proxy to end in good order. Its process is there until it is killed.
    pub fn ask_to_end(&self, proxy: &Member) {
        if let Some(ask) = self.0.endings.lock().remove(proxy.process.host()) {
            // A process that was killed meanwhile hears nothing.
            let _ = ask.send(());
        }
    }

    async fn run_master(&self, runtime: Runtime) -> Result<()> {
        let mut options = ebb_master::Options::new(
            MASTER_DIR.into(),
            self.0.master_address.clone(),
            identity("master", Certified::Master),
        );
        // Extra copies come and go within a run, also of data that are written all the time.
        options.popularity_interval = Duration::from_secs(1);
        options.extra_share_percent = 0;
        (options.extra_rule.often_read, options.extra_rule.often_written) = (0.05, 50.0);
        // RAID sets are whole again within a run.
        options.rebuild_after = Duration::from_secs(20);
        options.hosts_proxy = self.0.options.proxies == 0;
        if !options.hosts_proxy {
            return Master::start(runtime, options).await?.failed().await;
        }
        let master = Master::start(runtime.clone(), options).await?;
        let masters = vec![self.0.master_address.clone()];
        let listen = self.0.master_address.replace(":7000", ":7200");
        let sessions = Sessions::new(master.living());
        let _proxy =
            Hosted::start(&runtime, ProxyOptions::new(identity("master", Certified::Proxy), masters, listen, sessions));
        master.failed().await
    }

    async fn run_block(&self, member: &Member, runtime: Runtime) -> Result<()> {
        let identity = identity(member.process.host(), Certified::Block);
        let mut options = BlockOptions::new(BLOCK_DIR.into(), identity, vec![self.0.master_address.clone()]);
        options.listen = format!("{}:7100", member.process.ip());
        options.rack = RackName::new(format!("r{}", self.rack_of(member)));
        options.volume.segment_bytes = 2 << 20;
        options.volume.checkpoint_bytes = 6 << 20;
        options.volume.unplaced_bytes_max = 4 << 20;
        options.volume.cut_bytes = CUT_BYTES;
        options.report_every = REPORT_EVERY;
        let _server = BlockServer::start(runtime, options).await?;
        // It serves until its process ends.
        std::future::pending().await
    }

    /// Racks take turns over the block servers.
    fn rack_of(&self, member: &Member) -> usize {
        let names = self.members().iter().filter(|other| other.role == Role::Block);
        let place = names.take_while(|other| other.process.name() != member.process.name()).count();
        place % self.0.options.racks.max(1) + 1
    }

    async fn run_client(&self, number: usize, member: &Member, runtime: Runtime) -> Result<()> {
        let files = self.files(&runtime, member.process.host()).await;
        let files = Arc::new(files);
        let worker = Worker { board: self.0.board.clone(), client: number, files: files.clone() };
        runtime.spawn("count", self.clone().count(number, files.client().clone(), runtime.clone()));
        let mut tasks = Vec::new();
        for index in 0..self.0.options.workers_per_client {
            // Another life draws other operations.
            let purpose = format!("worker {number} {index} {}", self.world().now().as_nanos());
            let dice = self.world().dice(&purpose);
            let pause_max = self.0.options.work_pause_max;
            tasks.push(runtime.spawn("worker", worker.clone().run(runtime.clone(), dice, pause_max)));
        }
        let dice = self.world().dice(&format!("locks {number} {}", self.world().now().as_nanos()));
        let locks = worker.clone().run_locks(runtime.clone(), dice, self.0.options.work_pause_max);
        tasks.push(runtime.spawn("locks", locks));
        if self.0.options.names {
            let dice = self.world().dice(&format!("names {number} {}", self.world().now().as_nanos()));
            let pause_max = self.0.options.work_pause_max;
            let (board, client, runtime_there) = (self.0.board.clone(), files.client().clone(), runtime.clone());
            tasks.push(runtime.spawn("names", async move {
                match Names::new(board, number, client, runtime_there, "/run").await {
                    Ok(names) => names.run(dice, pause_max).await,
                    Err(error) => tracing::debug!(number, %error, "no directory of names"),
                }
            }));
        }
        if self.0.options.snapshots {
            let dice = self.world().dice(&format!("snapshots {number} {}", self.world().now().as_nanos()));
            let taker = Taker::new(self.0.board.clone(), number, files.client().clone(), runtime.clone());
            tasks.push(runtime.spawn("snapshots", taker.run(dice, self.0.options.work_pause_max * SNAPSHOT_PAUSES)));
        }
        for task in tasks {
            task.join().await?;
        }
        worker.fsync_everything().await;
        // An fsync after this is no business of the first one.
        worker.fsync_everything().await;
        // Some go in good order, others only stop: their leases are recalled, or end with them.
        if number.is_multiple_of(2) {
            files.disconnect().await?;
        }
        self.0.finished.lock().insert(number);
        Ok(())
    }

    /// Records a client's counters while it lives.
    async fn count(self, number: usize, client: Client, runtime: Runtime) {
        let born = u64::try_from(self.world().now().as_nanos()).unwrap_or(u64::MAX);
        loop {
            self.0.board.counts.lock().insert((number, born), client.metrics());
            runtime.sleep(COUNT_PAUSE).await;
        }
    }

    /// The run's directory, through a session of its own; tries until it has both.
    pub async fn files(&self, runtime: &Runtime, host: &str) -> ClientFiles {
        loop {
            match self.try_files(runtime, host).await {
                Ok(files) => return files,
                Err(error) => tracing::debug!(host, %error, "no session yet"),
            }
            runtime.sleep(Duration::from_secs(1)).await;
        }
    }

    async fn try_files(&self, runtime: &Runtime, host: &str) -> Result<ClientFiles> {
        let client = self.connect(runtime, host).await?;
        ClientFiles::open_all(client, self.0.options.clients, !self.0.options.keep_leases).await
    }

    /// Opens a session.
    pub async fn connect(&self, runtime: &Runtime, host: &str) -> Result<Client> {
        let connector = Connector::new(runtime.clone(), identity(host, Certified::Mount), Counters::default());
        let defaults = ClientOptions::new(vec![self.0.master_address.clone()], HostName::new(host), "virtual");
        let VirtualOptions { direct_bytes_min, keep_leases, .. } = self.0.options;
        let options = ClientOptions { direct_bytes_min, keep_leases, ..defaults };
        Client::connect(runtime.clone(), connector, options).await
    }

    /// The cluster's status by the master.
    pub async fn status(&self, client: &Client, deadline: Duration) -> Result<pb::ClusterStatusReply> {
        self.master(client).call(&pb::ClusterStatus {}, deadline).await
    }

    /// Which replicas of a file there are, where, as the master has them described by their volumes.
    pub async fn locate(&self, inode: u64) -> Result<Vec<pb::LocatedReplica>> {
        Ok(self.operator().call(&pb::Locate { inode }, Duration::from_secs(30)).await?.replicas)
    }

    /// A way to the master that needs no session.
    #[must_use]
    pub fn operator(&self) -> EveryChannel {
        let runtime = self.world().process("operator").runtime();
        let everyone = Everyone::new(&runtime, |role| identity("operator", role));
        everyone.channel(&self.0.master_address)
    }

    fn master(&self, client: &Client) -> Channel {
        client.connector().channel(&self.0.master_address)
    }

    /// The findings of the master's file-system check.
    pub async fn fsck(&self, scrub: bool, deadline: Duration) -> Result<pb::FsckReply> {
        self.operator().call(&pb::Fsck { scrub, parity: scrub, ..Default::default() }, deadline).await
    }
}

/// The identity of a process of a virtual cluster.
pub(crate) fn identity(host: &str, role: Certified) -> Identity {
    Identity::by_word(ClusterId::new(7), host, role)
}
