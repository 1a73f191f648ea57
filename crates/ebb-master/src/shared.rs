//! Shared state of a master's tasks.
//!
//! There are two locks: the state machine's ([`Group::machine`]) and the soft state's ([`Shared::soft`]).
//!
//! Lock order: the machine comes first. Neither lock is held across an await.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ebb_handoff::HandoffLog;
use ebb_meta::Machine;
use ebb_rpc::{Channel, Connector};
use ebb_runtime::Runtime;
use ebb_types::{DatasetId, ErrorKind, InodeId, NodeId, Result, SessionId, bail};
use ebb_wire::{Call, pb};
use parking_lot::Mutex;
use pb::command::Command as Op;
use tokio::sync::{Notify, Semaphore};

use crate::group::Group;
use crate::leases::FileView;
use crate::options::Options;
use crate::soft::{Soft, SoftGuard};
use crate::standing::Standings;

/// Everything that a master's tasks share.
pub(crate) struct Shared {
    pub runtime: Runtime,
    pub options: Options,
    pub group: Group,
    pub connector: Connector,
    pub state: Arc<State>,
    /// Log of writes for sleeping members.
    pub handoff: HandoffLog,
    /// A permit for each byte that may be on its way from that log to members.
    pub feeds: Arc<Semaphore>,
    /// Random number of this start, for clients.
    pub boot: u64,
    pub stopped: AtomicBool,
    /// Permission to serve.
    pub standing: Standings,
}

/// Soft state, and the notifications of background tasks.
pub(crate) struct State {
    pub runtime: Runtime,
    soft: Mutex<Soft>,
    pub wake: Wake,
}

/// Notifications of possible work, one for each background task.
#[derive(Default)]
pub(crate) struct Wake {
    pub recovery: Notify,
    pub repair: Notify,
    pub deletes: Notify,
    pub reap: Notify,
    /// A node has made a member of a RAID set, and may make another.
    pub raid: Notify,
    /// Wakes all tasks that wait for a power plan.
    pub plans: Notify,
}

impl State {
    pub(crate) fn new(runtime: Runtime, soft: Soft) -> Self {
        Self { runtime, soft: Mutex::new(soft), wake: Wake::default() }
    }

    /// The soft state. See [`SoftGuard`].
    #[track_caller]
    pub(crate) fn soft(&self) -> SoftGuard<'_> {
        SoftGuard::lock(&self.soft, self.runtime.now())
    }
}

impl Shared {
    /// The soft state. See [`SoftGuard`].
    #[track_caller]
    pub(crate) fn soft(&self) -> SoftGuard<'_> {
        self.state.soft()
    }

    /// The facts that decide about leases on a file.
    ///
    /// Errors: `NotFound` for an unknown inode.
    pub(crate) fn file_view(
        &self,
        machine: &Machine,
        soft: &Soft,
        session: SessionId,
        inode: InodeId,
    ) -> Result<FileView> {
        let attr = machine.attr(inode)?;
        Ok(FileView {
            holder: machine.holder(inode),
            recovering: attr.size_unknown,
            unclaimed: soft.reclaim_until.is_some() && soft.sessions.any_unclaimed(session),
        })
    }

    /// Checks that a session is known.
    ///
    /// Errors: `SessionExpired`.
    pub(crate) fn check_session(&self, session: SessionId) -> Result<()> {
        if self.soft().sessions.contains(session) {
            return Ok(());
        }
        bail!(
            SessionExpired,
            "session {session} is over: it did not poll for {:?}, or was closed",
            self.options.session_ttl
        )
    }

    /// Ends a session, after a wait until no proxy can believe that it lives. Meanwhile it still exists, but gets no
    /// positive answer.
    ///
    /// Errors: those of the log.
    pub(crate) async fn end_session(&self, session: SessionId) -> Result<()> {
        let believed_until = self.soft().begin_end(session);
        if let Some(until) = believed_until {
            self.runtime.sleep(until.since(self.runtime.now())).await;
        }
        self.group.propose(Op::CloseSession(session.raw())).await.map(drop)
    }

    /// A channel to the registered address of a node.
    ///
    /// Errors: `NotFound` for an unregistered node.
    pub(crate) fn channel(&self, node: NodeId) -> Result<Channel> {
        let machine = self.group.machine();
        let Some(known) = machine.registered(node) else { bail!(NotFound, "node {node} is not registered") };
        Ok(self.connector.channel(&known.address))
    }

    /// Makes an idempotent call to an awake node.
    ///
    /// A connection from before a restart of the node fails with the first call. That says nothing about the node, so
    /// the call is repeated once on a new connection.
    ///
    /// Errors: those of the call; `Unavailable` if no plan wakes the node soon.
    pub(crate) async fn ask<C: Call>(&self, node: NodeId, call: &C, deadline: Duration) -> Result<C::Reply> {
        self.awake(node).await?;
        match self.channel(node)?.call(call, deadline).await {
            Err(error) if error.kind() == ErrorKind::Disconnected => self.channel(node)?.call(call, deadline).await,
            answer => answer,
        }
    }

    /// The address of a member's node, for a call by another node.
    ///
    /// Errors: `NotFound` for an unregistered node.
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
        self.with_view(|view| view.is_safe_start())
    }

    /// The node map for clients, with its version.
    pub(crate) fn node_map(&self) -> (u64, Vec<pb::Node>) {
        self.with_view(|view| {
            let Soft { registry, gray, allotting, .. } = view.soft;
            let describe = |record: &pb::NodeRecord| {
                let mut node = registry.describe(record);
                let id = NodeId::new(node.id);
                node.twin = registry.twin(id, view.now).unwrap_or_default().to_owned();
                node.gray = gray.verdict(id).map(|verdict| verdict.to_message());
                node.serves = allotting.serves(id).map(DatasetId::raw);
                node
            };
            (registry.version(), view.machine.nodes().map(describe).collect())
        })
    }

    /// Wakes all polls, so that clients get the changed node map.
    pub(crate) fn announce_node_map(&self) {
        self.soft().sessions.wake_all();
    }
}
