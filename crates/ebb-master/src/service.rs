//! The master's service: start, stop, and the dispatch of calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ebb_handoff::HandoffLog;
use ebb_meta::{Reply, SESSION_DRAWN_MIN};
use ebb_rpc::{Answer, Connector, Counters, PeerInfo, Request, Server, Service, ServiceFuture};
use ebb_runtime::{Runtime, SeededBug, Task};
use ebb_types::{ErrorKind, HostName, Result, SessionId, bail};
use ebb_wire::{Method, pb};
use parking_lot::Mutex;
use pb::command::Command as Op;
use tokio::sync::Semaphore;

use crate::chains;
use crate::copies::{reconciler, why};
use crate::group::{Group, Opened};
use crate::leases::sharing::Proxy;
use crate::log::DataDir;
use crate::options::Options;
use crate::shared::{Shared, State};
use crate::soft::Soft;
use crate::standing::{self, Standings};
use crate::vouched::BELIEF;
use crate::{
    accept, acquire, admin, admission, caller, deletes, fsck, handoff, namespace, nodes, poll, power, raid, recovery,
    removal, rights, room, upkeep, version, vigil,
};

/// Part of a caller's deadline that is kept, so that a refusal with its reason arrives before the caller's time-out.
const MARGIN: Duration = Duration::from_millis(200);

/// Maximum number of draws for a session id. A draw that is in use already is next to impossible.
const DRAWS: usize = 8;

/// Role of a proxy's session.
const PROXY_ROLE: &str = "proxy";

/// Role of a mount's session. A mount has a kernel that keeps pages and attributes.
const MOUNT_ROLE: &str = "mount";

/// A running master.
pub struct Master {
    shared: Arc<Shared>,
    address: String,
    raft: Mutex<Option<Task<Result<()>>>>,
    tasks: Vec<Task<()>>,
    server: Task<Result<()>>,
    _data_dir: DataDir,
}

impl Master {
    /// Opens the data directory, recovers, elects itself and starts to listen. An empty directory becomes a new cluster
    /// with the identity's id.
    ///
    /// Errors: those of the disk and of the address; `Invalid` if the directory belongs to another cluster.
    pub async fn start(runtime: Runtime, options: Options) -> Result<Self> {
        let begun = runtime.now();
        let cluster = options.identity.cluster;
        let data_dir = DataDir::open(&runtime, &options.data_dir, cluster).await?;
        let opened = Group::open(&runtime, &data_dir, cluster, options.group.clone()).await?;
        tracing::info!(took = ?runtime.now().since(begun), applied = opened.group().applied_index(), "log and checkpoint read");
        let counters = Counters::default();
        let connector = Connector::new(runtime.clone(), options.identity.clone(), counters.clone());
        let listener = runtime.listen(&options.listen).await?;
        let address = listener.address();
        let is_begun = opened.group().machine().cluster().is_some();
        let handoff = handoff::open(&runtime, &options, is_begun).await?;
        let standing = Standings::new(accept::read(&runtime, &options.data_dir).await?);
        let (shared, raft) = assemble(&runtime, options, opened, connector, handoff, standing);
        init_cluster(&shared).await?;
        begin_run(&shared).await?;
        end_old_proxies(&shared).await?;
        admission::learn(&shared);
        let tasks = start_tasks(&shared);
        let front = Arc::new(Front { shared: Arc::clone(&shared), counters: counters.clone() });
        let (identity, bounds) = (shared.options.identity.clone(), shared.options.server.clone());
        let server = runtime.spawn("server", Server::run(runtime.clone(), listener, identity, counters, bounds, front));
        tracing::info!(address, %cluster, "master serves");
        Ok(Self { shared, address, raft: Mutex::new(Some(raft)), tasks, server, _data_dir: data_dir })
    }

    /// Address at which it listens.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A function that says, without a wait, whether a session lives. It says "no" before any session can learn that a
    /// lock of that session is free.
    pub fn living(&self) -> impl Fn(SessionId) -> bool + Send + Sync + 'static {
        let state = Arc::clone(&self.shared.state);
        move |session| state.soft().sessions.contains(session)
    }

    /// Completes when the log fails. The master must then be restarted, because the state of its disk is unknown. Call
    /// this once.
    pub async fn failed(&self) -> Result<()> {
        let raft = self.raft.lock().take();
        match raft {
            Some(raft) => raft.join().await?,
            None => bail!(Internal, "the master's log is watched already"),
        }
    }

    /// Stops the service. Acknowledged changes are always on disk, so there is nothing to flush.
    pub async fn stop(self) {
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.soft().sessions.wake_all();
        self.server.abort();
        for task in &self.tasks {
            task.abort();
        }
        self.shared.group.stop();
        let raft = self.raft.lock().take();
        if let Some(raft) = raft {
            // The task ends after the current batch.
            let _ = raft.join().await;
        }
    }
}

impl std::fmt::Debug for Master {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Master({})", self.address)
    }
}

fn assemble(
    runtime: &Runtime,
    options: Options,
    opened: Opened,
    connector: Connector,
    handoff: HandoffLog,
    standing: Standings,
) -> (Arc<Shared>, Task<Result<()>>) {
    let group = opened.group().clone();
    let soft = Soft::rebuild(&group.machine(), runtime, &options);
    let state = Arc::new(State::new(runtime.clone(), soft));
    let raft = opened.serve(Arc::clone(&state) as _);
    let feeds = Arc::new(Semaphore::new(options.feed_bytes_max as usize));
    let shared = Shared {
        runtime: runtime.clone(),
        options,
        group,
        connector,
        state,
        boot: runtime.random_u64() | 1,
        handoff,
        feeds,
        stopped: AtomicBool::new(false),
        standing,
    };
    (Arc::new(shared), raft)
}

async fn init_cluster(shared: &Shared) -> Result<()> {
    let Options { default_replicas, extra_share_percent, .. } = shared.options;
    let cluster = shared.options.identity.cluster;
    let known = shared.group.machine().cluster();
    match known {
        Some(known) if known == cluster => Ok(()),
        Some(known) => bail!(Invalid, "the log belongs to cluster {known}, this is {cluster}"),
        None => {
            let init = pb::InitCluster {
                cluster: cluster.raw(),
                default_replicas,
                extra_share_percent,
                version: ebb_meta::version::NEWEST,
            };
            shared.group.propose(Op::InitCluster(init)).await.map(|_| ())
        }
    }
}

/// Records this start under a random mark. A master that continues from a copy of the log thus gets another mark.
async fn begin_run(shared: &Shared) -> Result<()> {
    let draw = || (shared.runtime.random_u64() >> 1) | 1;
    let begin = pb::BeginRun { lineage: draw(), mark: draw(), after: shared.group.applied_index() };
    shared.group.propose(Op::BeginRun(begin)).await.map(drop)
}

/// Closes sessions of proxies in earlier master processes. Their files are recovered at once, without a wait for them
/// to reclaim.
async fn end_old_proxies(shared: &Shared) -> Result<()> {
    if !shared.options.hosts_proxy {
        return Ok(());
    }
    let old: Vec<SessionId> = {
        let machine = shared.group.machine();
        machine.sessions().filter(|(_, _, role)| *role == PROXY_ROLE).map(|(session, _, _)| session).collect()
    };
    for session in old {
        tracing::info!(%session, "the proxy of an earlier process is gone");
        shared.group.propose(Op::CloseSession(session.raw())).await?;
    }
    Ok(())
}

fn start_tasks(shared: &Arc<Shared>) -> Vec<Task<()>> {
    let runtime = &shared.runtime;
    let when_serving = |name, work: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| {
        let shared = Arc::clone(shared);
        runtime.spawn(name, async move {
            shared.standing.until_serving().await;
            work.await;
        })
    };
    vec![
        runtime.spawn("vigil", vigil::run(Arc::clone(shared))),
        runtime.spawn("standing", standing::run(Arc::clone(shared))),
        runtime.spawn("upkeep", upkeep::run(Arc::clone(shared))),
        // The tasks below change, place or free data, which a master with an out-of-date log must not do.
        when_serving("doubts", Box::pin(upkeep::run_doubts(Arc::clone(shared)))),
        when_serving("reaper", Box::pin(upkeep::run_reaper(Arc::clone(shared)))),
        when_serving("recoveries", Box::pin(recovery::run::run(Arc::clone(shared)))),
        when_serving("copies", Box::pin(reconciler::run(Arc::clone(shared)))),
        when_serving("encoding", Box::pin(crate::raid::run(Arc::clone(shared)))),
        when_serving("RAID sets", Box::pin(crate::raid::keep::run(Arc::clone(shared)))),
        when_serving("failures", Box::pin(crate::failures::run::run(Arc::clone(shared)))),
        when_serving("deletes", Box::pin(deletes::run(Arc::clone(shared)))),
        when_serving("trash", Box::pin(crate::trash::run(Arc::clone(shared)))),
        when_serving("snapshots", Box::pin(crate::snapshots::run(Arc::clone(shared)))),
        when_serving("handoff", Box::pin(handoff::tidy(Arc::clone(shared)))),
    ]
}

/// Decodes calls and passes them to their handlers.
struct Front {
    shared: Arc<Shared>,
    counters: Counters,
}

impl Service for Front {
    fn handle(&self, request: Request) -> ServiceFuture<'_> {
        Box::pin(async move {
            if self.shared.stopped.load(Ordering::Acquire) {
                bail!(ShuttingDown, "this master is shutting down");
            }
            self.shared.admit(request.method, request.deadline.saturating_sub(MARGIN)).await?;
            match request.method as u16 {
                0..20 => self.for_clients(request).await,
                20..40 => self.for_operators(request).await,
                140..160 => self.for_identities(request).await,
                _ => self.for_nodes(request).await,
            }
        })
    }
}

impl Front {
    async fn for_clients(&self, request: Request) -> Result<Answer> {
        let shared = &self.shared;
        let deadline = request.deadline.saturating_sub(MARGIN);
        match request.method {
            Method::MetaRequest => {
                let call = caller::decode(shared, &request)?;
                rights::check_request(shared, &request.peer, &call)?;
                namespace::answer(shared, call, deadline).await.map(|reply| Answer::new(&reply))
            }
            Method::OpenSession => self.open_session(caller::decode(shared, &request)?).await,
            Method::CloseSession => self.close_session(caller::decode(shared, &request)?).await,
            Method::Poll => {
                poll::poll(shared, caller::decode(shared, &request)?, deadline).await.map(|reply| Answer::new(&reply))
            }
            Method::Reclaim => acquire::reclaim(shared, &caller::decode(shared, &request)?).map(|()| done()),
            Method::Acquire => {
                let call = caller::decode(shared, &request)?;
                rights::check_acquire(shared, &request.peer, &call)?;
                let reply = acquire::acquire(shared, call, deadline).await?;
                Ok(Answer::new(&room::on_acquired(shared, reply)))
            }
            Method::Forget => {
                acquire::forget(shared, &caller::decode(shared, &request)?);
                Ok(done())
            }
            Method::Release => {
                acquire::release(shared, &caller::decode(shared, &request)?);
                Ok(done())
            }
            Method::ChooseReplacement => {
                admin::choose_replacement(shared, &caller::decode(shared, &request)?).map(|reply| Answer::new(&reply))
            }
            Method::ReportReplica => {
                nodes::report_replica(shared, &request.decode()?);
                Ok(done())
            }
            Method::RegisterProxy => self.register_proxy(caller::decode(shared, &request)?),
            Method::VouchSessions => self.vouch(&caller::decode(shared, &request)?),
            other => not_here(other),
        }
    }

    async fn for_operators(&self, request: Request) -> Result<Answer> {
        let shared = &self.shared;
        let deadline = request.deadline.saturating_sub(MARGIN);
        match request.method {
            Method::ClusterStatus => Ok(Answer::new(&admin::status(shared).await)),
            Method::DrainNode => admin::drain(shared, &request.decode()?).await.map(|reply| Answer::new(&reply)),
            Method::RemoveNode => removal::remove(shared, &request.decode()?).await.map(|()| done()),
            Method::Fsck => fsck::fsck(shared, &request.decode()?, deadline).await.map(|reply| Answer::new(&reply)),
            Method::Locate => admin::locate(shared, &request.decode()?).await.map(|reply| Answer::new(&reply)),
            Method::ExplainCopies => why::explain(shared, &request.decode()?).map(|reply| Answer::new(&reply)),
            Method::RaidStatus => raid::status::status(shared, &request.decode()?).map(|reply| Answer::new(&reply)),
            Method::DescribeRaidSets => Ok(Answer::new(&raid::status::describe(shared, &request.decode()?))),
            Method::RaidWork => raid::status::work(shared, &request.decode()?).map(|reply| Answer::new(&reply)),
            Method::DescribeDataset => chains::describe(shared, &request.decode()?).map(|reply| Answer::new(&reply)),
            other => not_here(other),
        }
    }

    async fn for_nodes(&self, request: Request) -> Result<Answer> {
        let shared = &self.shared;
        match request.method {
            Method::RegisterNode => {
                nodes::register(shared, caller::decode(shared, &request)?).await.map(|reply| Answer::new(&reply))
            }
            Method::ReplicaReport => nodes::report(shared, &caller::decode(shared, &request)?).await.map(|()| done()),
            Method::Heartbeat => {
                nodes::heartbeat(shared, &caller::decode(shared, &request)?).map(|reply| Answer::new(&reply))
            }
            Method::SessionEnded => self.session_ended(&request.decode()?, &request.peer).await,
            Method::PublishPlan => power::publish(shared, request.decode()?).await.map(|()| done()),
            Method::WatchPower => {
                let deadline = request.deadline.saturating_sub(MARGIN);
                Ok(Answer::new(&power::watch(shared, &request.decode()?, deadline).await))
            }
            Method::LogWrites => {
                handoff::append(shared, request.decode()?, request.payload).await?;
                Ok(Answer::new(&pb::LogWritesReply::default()))
            }
            Method::ReadLogged => handoff::feed(shared, &request.decode()?).await,
            Method::JudgeLogs => Ok(Answer::new(&handoff::judge_logs(shared, &request.decode()?))),
            Method::DescribePower => {
                let deadline = request.deadline.saturating_sub(MARGIN);
                power::describe(shared, &request.decode()?, deadline).await.map(|reply| Answer::new(&reply))
            }
            Method::RaftMessage => bail!(Unsupported, "this master's group has one member: it exchanges no messages"),
            Method::Counters => Ok(Answer::new(&self.counters.read().to_reply(self.shared.group.syncs()))),
            other => not_here(other),
        }
    }

    async fn for_identities(&self, request: Request) -> Result<Answer> {
        let (shared, peer) = (&self.shared, &request.peer);
        match request.method {
            Method::InviteHost => admission::invite(shared, request.decode()?).await.map(|reply| Answer::new(&reply)),
            Method::JoinCluster => {
                admission::join(shared, request.decode()?, peer).await.map(|reply| Answer::new(&reply))
            }
            Method::RenewIdentity => {
                admission::renew(shared, &request.decode()?, peer).map(|reply| Answer::new(&reply))
            }
            Method::RevokeIdentities => admission::revoke(shared, request.decode()?).await.map(|()| done()),
            Method::DescribeTrust => Ok(Answer::new(&admission::describe(shared))),
            Method::Announce => Ok(Answer::new(&admission::announce(shared, request.decode()?, peer))),
            Method::RaiseVersion => version::raise(shared, &request.decode()?).await.map(|()| done()),
            Method::CallBack => admission::call_back(shared, request.decode()?, peer).await.map(|()| done()),
            other => not_here(other),
        }
    }

    async fn open_session(&self, call: pb::OpenSession) -> Result<Answer> {
        let shared = &self.shared;
        if call.host.is_empty() {
            bail!(Invalid, "a session is opened with the client's declared host");
        }
        let host = HostName::new(call.host.clone());
        shared.soft().sessions.check_room(&host, shared.options.sessions_max)?;
        shared.hear(|| format!("{} on {}", call.role, call.host), call.position.as_ref())?;
        let session = open_drawn(shared, &call).await?;
        tracing::info!(%session, host = call.host, role = call.role, pid = call.pid, "session opened");
        let (_, nodes) = shared.node_map();
        let plans = power::encoded(&shared.group.machine());
        Ok(Answer::new(&pb::OpenSessionReply {
            session: session.raw(),
            cluster: shared.options.identity.cluster.raw(),
            session_ttl_ms: u64::try_from(shared.options.session_ttl.as_millis()).unwrap_or(u64::MAX),
            nodes,
            plans,
            master_boot: shared.boot,
            position: Some(shared.position()),
        }))
    }

    async fn close_session(&self, call: pb::CloseSession) -> Result<Answer> {
        self.shared.check_session(SessionId::new(call.session))?;
        self.shared.end_session(SessionId::new(call.session)).await?;
        Ok(done())
    }

    /// Answers `SessionEnded`: a witness on the client's own host reports that its process has ended. Such a session
    /// can hold nothing any more.
    ///
    /// Errors: `Invalid` if the witness is on another host.
    async fn session_ended(&self, call: &pb::SessionEnded, witness: &PeerInfo) -> Result<Answer> {
        let shared = &self.shared;
        let session = SessionId::new(call.session);
        let Some(host) = shared.soft().sessions.host(session) else { return Ok(done()) };
        if host != witness.host {
            bail!(
                Invalid,
                "session {session} is of host {host}: host {} cannot know how its process fares",
                witness.host
            );
        }
        tracing::info!(%session, %host, "the session's process has ended");
        let has_kernel = {
            let machine = shared.group.machine();
            machine.sessions().any(|(id, _, role)| id == session && role == MOUNT_ROLE)
        };
        if has_kernel && !shared.runtime.has_bug(SeededBug::EndsMountAtOnce) {
            // I-99: the kernel may answer from its pages for a while. `upkeep` ends the session after that.
            shared.soft().sessions.on_outlived(session, shared.runtime.now());
        } else {
            shared.end_session(session).await?;
        }
        Ok(done())
    }

    /// Answers `VouchSessions`.
    fn vouch(&self, call: &pb::VouchSessions) -> Result<Answer> {
        self.shared.check_session(SessionId::new(call.proxy))?;
        let (mut soft, now) = (self.shared.soft(), self.shared.runtime.now());
        let Soft { sessions, vouched: Some(vouched), .. } = &mut *soft else {
            bail!(Unsupported, "this cluster's proxy is in the master's process: there is no other")
        };
        let mut lives = |session: SessionId| sessions.contains(session) && vouched.vouch(session, now);
        let over = call.sessions.iter().copied().filter(|session| !lives(SessionId::new(*session))).collect();
        let vouched_ms = u32::try_from(BELIEF.as_millis()).unwrap_or(u32::MAX);
        Ok(Answer::new(&pb::VouchSessionsReply { over, vouched_ms }))
    }

    fn register_proxy(&self, call: pb::RegisterProxy) -> Result<Answer> {
        let session = SessionId::new(call.session);
        self.shared.check_session(session)?;
        if call.address.is_empty() {
            bail!(Invalid, "a proxy says where it listens");
        }
        let name = if call.name.is_empty() { PROXY_ROLE.to_owned() } else { call.name };
        let proxy = Proxy { name, session, address: call.address, boot: call.boot, is_leaving: call.leaving };
        let is_news = self.shared.soft().sharing.on_proxy(proxy);
        if is_news {
            // Clients get the list of proxies with the node map.
            self.shared.soft().registry.bump();
            self.shared.announce_node_map();
        }
        Ok(done())
    }
}

/// Opens a session with a random id. A counter would repeat ids after the log is restored from a copy, while clients
/// still use them.
///
/// Errors: those of the log.
async fn open_drawn(shared: &Shared, call: &pb::OpenSession) -> Result<SessionId> {
    for _ in 0..DRAWS {
        let session = (shared.runtime.random_u64() >> 2) | SESSION_DRAWN_MIN;
        let open = pb::OpenSessionCommand { host: call.host.clone(), role: call.role.clone(), session };
        match shared.group.propose(Op::OpenSession(open)).await {
            Ok(Reply::Session(session)) => return Ok(session),
            Ok(other) => bail!(Internal, "OpenSession was answered with {other:?}"),
            Err(error) if error.kind() == ErrorKind::Busy => {}
            Err(error) => return Err(error),
        }
    }
    bail!(Internal, "{DRAWS} session ids were drawn, and all are in use")
}

fn done() -> Answer {
    Answer::new(&pb::Empty {})
}

fn not_here(method: Method) -> Result<Answer> {
    bail!(Unsupported, "a master does not answer {method:?}")
}
