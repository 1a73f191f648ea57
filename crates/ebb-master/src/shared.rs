//! What all parts of a master share, and the hook that keeps soft state in step with the logged one.
//!
//! Lock order: [`State::vigil`], then the state machine (through [`Group::machine`]), then [`State::soft`], then
//! [`State::registry`], then [`State::room`], then [`State::work`], then [`State::chains`], then [`State::popular`], then
//! [`State::plans`]. No other lock is taken under [`State::holdings`]. None of them is held across an await.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ebb_handoff::HandoffLog;
use ebb_meta::{Applied, Effect, Machine, Reply};
use ebb_power::{PowerPlan, Timetable, wall_ms};
use ebb_rpc::{Channel, Connector};
use ebb_runtime::{Moment, Runtime};
use ebb_types::{ErrorKind, HostName, InodeId, NodeId, Result, SessionId, bail};
use ebb_wire::{Call, pb};
use parking_lot::Mutex;
use pb::command::Command as Op;
use pb::meta_op::Op as MetaOp;
use tokio::sync::Notify;

use crate::chains::Chains;
use crate::failures::Failures;
use crate::gray::Gray;
use crate::group::{Group, Observer};
use crate::handoff::Drain;
use crate::holdings::Holdings;
use crate::leases::sharing::Sharing;
use crate::leases::watches::Watches;
use crate::leases::{FileView, Leases};
use crate::nameless::Nameless;
use crate::options::Options;
use crate::placement;
use crate::popular::Popular;
use crate::registry::{Registry, Rest};
use crate::repair::Condition;
use crate::repair::queue::Work;
use crate::repair::run::condition;
use crate::reserve::Reservations;
use crate::served::Served;
use crate::sessions::Sessions;
use crate::standing::Standings;
use crate::vigil::Vigil;
use crate::vouched::Vouched;
use crate::waker::Waker;

/// Everything that a master's tasks share.
pub(crate) struct Shared {
    pub runtime: Runtime,
    pub options: Options,
    pub group: Group,
    pub connector: Connector,
    pub state: Arc<State>,
    /// What sleeping members have not got yet.
    pub handoff: HandoffLog,
    /// Number of this start, for clients.
    pub boot: u64,
    pub stopped: AtomicBool,
    /// Whether the master may serve.
    pub standing: Standings,
}

/// Soft state and what wakes the background work.
pub(crate) struct State {
    runtime: Runtime,
    pub soft: Mutex<Soft>,
    pub registry: Mutex<Registry>,
    pub room: Mutex<Reservations>,
    pub work: Mutex<Work>,
    pub chains: Mutex<Chains>,
    /// What lies where.
    pub holdings: Mutex<Holdings>,
    /// Power plans in force and announced.
    pub plans: Mutex<Timetable>,
    /// Version of the newest plan that a mount or the power client said it has.
    pub followed: AtomicU64,
    /// Who wakes nodes, as it was heard last.
    pub waker: Mutex<Option<Waker>>,
    pub popular: Mutex<Popular>,
    /// Alone: no other lock is taken while it is held.
    pub failures: Mutex<Failures>,
    /// Alone: no other lock is taken while it is held.
    pub served: Mutex<Served>,
    /// Alone: no other lock is taken while it is held.
    pub gray: Mutex<Gray>,
    /// What was logged for nodes that sleep, and they cannot have yet.
    pub drain: Mutex<Drain>,
    /// Before all others.
    pub vigil: Mutex<Vigil>,
    pub wake: Wake,
}

/// Leases and sessions: they change together.
pub(crate) struct Soft {
    pub leases: Leases,
    pub watches: Watches,
    pub sharing: Sharing,
    pub sessions: Sessions,
    pub nameless: Nameless,
    /// What proxies in processes of their own were told of sessions; none: the proxy is in this process.
    pub vouched: Option<Vouched>,
    /// Until when sessions of an earlier master process may tell what they hold; `None`: all have, or it is over.
    pub reclaim_until: Option<Moment>,
}

/// One for each background task: there may be something to do.
#[derive(Default)]
pub(crate) struct Wake {
    pub recovery: Notify,
    pub repair: Notify,
    pub deletes: Notify,
    pub reap: Notify,
    /// Of those who watch for power plans: all of them are woken.
    pub plans: Notify,
}

impl Soft {
    /// Neither its client nor a proxy is told any more that a session lives. Returns until when a proxy may believe it all
    /// the same.
    pub(crate) fn begin_end(&mut self, session: SessionId) -> Option<Moment> {
        self.sessions.begin_end(session);
        self.vouched.as_mut().map(|vouched| vouched.begin_end(session))
    }
}

impl State {
    pub(crate) fn new(runtime: Runtime, soft: Soft, registry: Registry) -> Self {
        let vigil = Mutex::new(Vigil::new(runtime.now()));
        let gray = Mutex::new(Gray::for_runtime(&runtime));
        Self {
            runtime,
            soft: Mutex::new(soft),
            registry: Mutex::new(registry),
            room: Mutex::default(),
            work: Mutex::default(),
            chains: Mutex::default(),
            holdings: Mutex::default(),
            plans: Mutex::default(),
            followed: AtomicU64::default(),
            waker: Mutex::default(),
            popular: Mutex::default(),
            failures: Mutex::default(),
            served: Mutex::default(),
            gray,
            drain: Mutex::default(),
            vigil,
            wake: Wake::default(),
        }
    }

    /// What is promised to writers, as it is now.
    pub(crate) fn room(&self) -> parking_lot::MutexGuard<'_, Reservations> {
        let mut room = self.room.lock();
        room.on_time(self.runtime.now());
        room
    }
}

impl Shared {
    /// What stands in the way of leases on a file, as logged.
    pub(crate) fn view(&self, machine: &Machine, soft: &Soft, session: SessionId, inode: InodeId) -> Result<FileView> {
        let attr = machine.attr(inode)?;
        Ok(FileView {
            holder: machine.holder(inode),
            recovering: attr.size_unknown,
            unclaimed: soft.reclaim_until.is_some() && soft.sessions.any_unclaimed(session),
        })
    }

    /// Refuses sessions that this cluster does not know any more.
    pub(crate) fn check_session(&self, session: SessionId) -> Result<()> {
        if self.state.soft.lock().sessions.contains(session) {
            return Ok(());
        }
        bail!(
            SessionExpired,
            "session {session} is over: it did not poll for {:?}, or was closed",
            self.options.session_ttl
        )
    }

    /// Ends a session, when no proxy can believe any more that it lives. Until then it is there, and nobody is told so.
    pub(crate) async fn end_session(&self, session: SessionId) -> Result<()> {
        let believed_until = self.state.soft.lock().begin_end(session);
        if let Some(until) = believed_until {
            self.runtime.sleep(until.since(self.runtime.now())).await;
        }
        self.group.propose(Op::CloseSession(session.raw())).await.map(drop)
    }

    /// Where a node was last registered.
    pub(crate) fn channel(&self, node: NodeId) -> Result<Channel> {
        let machine = self.group.machine();
        let Some(known) = machine.registered(node) else { bail!(NotFound, "node {node} is not registered") };
        Ok(self.connector.channel(&known.address))
    }

    /// Asks a node for something that may be asked twice. A connection that stood since before a restart of the node
    /// breaks with the first call on it: that says nothing of the node, so it is asked once more, on a new connection.
    pub(crate) async fn ask<C: Call>(&self, node: NodeId, call: &C, deadline: Duration) -> Result<C::Reply> {
        self.awake(node).await?;
        match self.channel(node)?.call(call, deadline).await {
            Err(error) if error.kind() == ErrorKind::Disconnected => self.channel(node)?.call(call, deadline).await,
            answer => answer,
        }
    }

    /// How a node is reached, as another node needs it.
    pub(crate) fn hop(&self, member: pb::Member) -> Result<pb::Hop> {
        let machine = self.group.machine();
        let Some(node) = machine.registered(member.node_id()) else {
            bail!(NotFound, "node n{} is not registered", member.node);
        };
        Ok(pb::Hop { member: Some(member), address: node.address.clone(), host: node.host.clone() })
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire) || self.standing.check().is_err()
    }

    /// Whether replicas may be deleted (docs/protocol.md, "Repair").
    pub(crate) fn is_safe_start(&self) -> bool {
        let machine = self.group.machine();
        // What a lost history left behind may be all that there is of a file.
        if machine.deletions_held() {
            return false;
        }
        let (now_ms, plans) = (self.wall_ms(), self.state.plans.lock().clone());
        let is_off = |node| placement::rest(&plans, node, now_ms) == Rest::Off;
        self.state.registry.lock().is_safe_start(machine.nodes(), is_off)
    }

    /// All nodes as clients see them, with the version of this view.
    pub(crate) fn node_map(&self) -> (u64, Vec<pb::Node>) {
        let machine = self.group.machine();
        let (registry, now) = (self.state.registry.lock(), self.runtime.now());
        let describe = |record: &pb::NodeRecord| {
            let mut node = registry.describe(record);
            node.twin = registry.twin(NodeId::new(node.id), now).unwrap_or_default().to_owned();
            let verdict = self.state.gray.lock().verdict(NodeId::new(node.id));
            node.gray = verdict.map(|verdict| verdict.to_message());
            node
        };
        (registry.version(), machine.nodes().map(describe).collect())
    }

    /// Clients learn of a change of the node map with their next answer.
    pub(crate) fn tell_node_map(&self) {
        self.state.soft.lock().sessions.wake_all();
    }
}

impl Observer for State {
    fn on_applied(&self, machine: &Machine, command: &pb::Command, applied: &Applied) {
        let mut soft = self.soft.lock();
        if let Some(op) = &command.command {
            self.on_command(machine, &mut soft, op, applied);
        }
        if let (Some(Op::ReplaceInChain(replace)), Ok(_)) = (&command.command, &applied.reply) {
            self.chains.lock().on_replaced(machine, replace);
        }
        crate::room::on_applied(self, machine, command, &applied.effects);
        for effect in &applied.effects {
            self.on_effect(machine, &mut soft, command, effect);
        }
    }
}

impl State {
    fn on_command(&self, machine: &Machine, soft: &mut Soft, op: &Op, applied: &Applied) {
        match (op, &applied.reply) {
            (Op::OpenSession(open), Ok(Reply::Session(session))) => {
                soft.sessions.insert(*session, HostName::new(open.host.clone()), true, self.runtime.now());
            }
            (Op::CloseSession(session), _) => {
                let session = SessionId::new(*session);
                soft.sessions.remove(session);
                soft.leases.drop_session(session);
                soft.watches.drop_session(session);
                if let Some(vouched) = &mut soft.vouched {
                    vouched.forget(session);
                }
                if soft.sharing.drop_session(session) {
                    // Clients look for another.
                    self.registry.lock().bump();
                    soft.sessions.wake_all();
                }
                self.wake.reap.notify_one();
            }
            (Op::AcquireWrite(acquire), Ok(_)) => {
                let (session, inode) = (SessionId::new(acquire.session), InodeId::new(acquire.inode));
                soft.leases.remove_reader(session, inode);
                soft.sharing.on_lease(session, inode);
                soft.leases.touch(inode);
            }
            (Op::FinishRecovery(finish), Ok(_)) => soft.leases.touch(InodeId::new(finish.inode)),
            (Op::RegisterNode(_) | Op::SetNodeState(_), Ok(_)) => {
                self.registry.lock().bump();
                soft.sessions.wake_all();
            }
            (Op::PublishPlan(published), Ok(_)) => {
                self.on_plan(published);
                soft.sessions.wake_all();
            }
            (Op::Client(client), reply) => {
                if let Ok(Reply::Meta(pb::MetaReply { dataset: Some(dataset), .. })) = reply {
                    self.chains.lock().on_dataset(dataset);
                }
                self.on_commit(machine, soft, client, reply);
                on_client(machine, soft, client, reply);
            }
            _ => {}
        }
    }

    fn on_commit(&self, machine: &Machine, soft: &mut Soft, client: &pb::ClientCommand, reply: &Result<Reply>) {
        let op = client.request.as_ref().and_then(|request| request.op.as_ref()?.op.as_ref());
        if let (Some(MetaOp::Commit(commit)), Ok(_)) = (op, reply) {
            for inode in commit.files.iter().filter(|file| file.gone).map(|file| InodeId::new(file.inode)) {
                if machine.is_emptied(inode) {
                    tracing::trace!(%inode, "what was written to a removed file is gone");
                    soft.nameless.end(inode);
                }
            }
            self.popular.lock().on_commit(&commit.files);
        }
    }

    fn on_plan(&self, published: &pb::PublishedPlan) {
        let now_ms = wall_ms(self.runtime.wall());
        let taken = PowerPlan::decode(&published.plan).and_then(|plan| self.plans.lock().accept(plan, now_ms));
        if let Err(error) = taken {
            tracing::error!(version = published.version, %error, "a logged power plan cannot be followed");
        }
        self.wake.plans.notify_waiters();
    }

    fn on_effect(&self, machine: &Machine, soft: &mut Soft, command: &pb::Command, effect: &Effect) {
        match effect {
            Effect::SetChanged { dataset, metablock, old, new, .. } => {
                self.chains.lock().on_set_changed(*dataset, old, new);
                self.holdings.lock().on_set_changed(*dataset, old, new);
                let (registry, mut work) = (self.registry.lock(), self.work.lock());
                // A grant was placed a moment ago, with as many copies as wanted if there were nodes. Since then one of them may
                // have begun to drain, or have been lost: the look for what lies there did not see this set.
                let wanted = machine.dataset(*dataset).map_or(0, |dataset| dataset.replicas as usize);
                let is_good = |member| condition(machine, &registry, &work, *metablock, member) == Condition::Good;
                if old.is_empty() && new.len() >= wanted && new.iter().all(is_good) {
                    return;
                }
                drop(registry);
                let exists = machine.has_metablock(*metablock);
                work.on_set_changed(*metablock, old, new, exists);
                if !exists {
                    self.popular.lock().forget(*metablock);
                }
                self.wake.repair.notify_one();
                self.wake.deletes.notify_one();
            }
            Effect::ExtrasChanged { metablock, old, new, .. } => {
                let mut work = self.work.lock();
                let mut popular = self.popular.lock();
                for member in old.iter().chain(new) {
                    let volume = member.volume_id();
                    popular.acquit(&(*metablock, volume));
                    if machine.is_placed_on(*metablock, volume) {
                        work.excess.remove(&(volume, *metablock));
                    } else if machine.has_metablock(*metablock) {
                        work.excess.insert((volume, *metablock));
                    }
                }
                self.wake.deletes.notify_one();
            }
            // It is reaped when nobody can come for it any more: the reaper looks by itself.
            Effect::Orphaned(inode) => soft.nameless.add(*inode, self.runtime.now()),
            Effect::LeftOutChanged { metablock, old } => {
                let mut work = self.work.lock();
                let now = machine.find_metablock(*metablock).map(|(_, record)| record.left_out);
                for member in old.iter().chain(now.iter().flatten()).filter_map(|one| one.member) {
                    let volume = member.volume_id();
                    let is_wanted = machine.is_left_out(*metablock, volume) || machine.is_placed_on(*metablock, volume);
                    if is_wanted {
                        work.excess.remove(&(volume, *metablock));
                    } else if now.is_some() {
                        work.excess.insert((volume, *metablock));
                    }
                }
                self.wake.deletes.notify_one();
            }
            Effect::Freed(inode) => {
                soft.nameless.end(*inode);
                soft.leases.drop_file(*inode);
                soft.watches.drop_inode(*inode);
                self.wake.deletes.notify_one();
            }
            Effect::Changed { inode, by } => {
                let interested = soft.leases.interested(*inode);
                soft.sessions.tell_changed(interested, *inode, *by);
            }
            Effect::LockGranted { session, inode, owner, flock, deadlock } => {
                let lock = pb::LockGranted { inode: inode.raw(), owner: *owner, flock: *flock, deadlock: *deadlock };
                soft.sessions.grant_lock(*session, lock);
            }
            Effect::LeaseEnded { inode, session } => {
                // A holder that commits and releases may go on reading from its caches (recall with keep READ), and
                // its answer to the recall comes later: until then it counts as a reader.
                if matches!(command.command, Some(Op::Client(_))) && soft.sessions.contains(*session) {
                    soft.leases.add_reader(*session, *inode);
                }
                soft.leases.touch(*inode);
                self.wake.repair.notify_one();
                self.wake.reap.notify_one();
            }
            Effect::NeedsRecovery(inode) => {
                self.work.lock().recoveries.insert(*inode);
                self.wake.recovery.notify_one();
            }
        }
    }
}

fn on_client(machine: &Machine, soft: &mut Soft, client: &pb::ClientCommand, reply: &Result<Reply>) {
    let Some(request) = &client.request else { return };
    let session = SessionId::new(request.session);
    let is_new = soft.sessions.note_request(session, request.request);
    match (request.op.as_ref().and_then(|op| op.op.as_ref()), reply) {
        (Some(MetaOp::Create(_)), Ok(Reply::Meta(pb::MetaReply { attr: Some(attr), .. })))
            if soft.sessions.contains(session) && machine.attr(InodeId::new(attr.inode)).is_ok() =>
        {
            soft.leases.add_open(session, InodeId::new(attr.inode), 0);
        }
        (Some(MetaOp::SetLock(set)), _) if is_new => {
            if let Some(lock) = &set.lock {
                soft.sessions.forget_lock(session, InodeId::new(set.inode), lock.owner, lock.flock);
            }
        }
        _ => {}
    }
}
