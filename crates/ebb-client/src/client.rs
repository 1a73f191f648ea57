//! The interface.

mod files;
mod locks;
mod maps;
mod names;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ebb_layout::SubRacks;
use ebb_power::work::Turn;
use ebb_rpc::{Connector, Counters};
use ebb_runtime::Runtime;
use ebb_types::{Credentials, HostName, Result, SessionId};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::Op;

use crate::ClientOptions;
use crate::metrics::Metrics;
use crate::nodes::gray;
use crate::power::rest;
use crate::session::masters::Masters;
use crate::session::{ATTEMPT, Session, poll, suspend, witness};
use crate::shared::Shared;
use crate::types::CacheListener;
use crate::write::committer;

/// Blocks that [`Client::read_by_map`] asks for at a time, and that [`Client::copy_range`] reads ahead of its writes.
const READS_AHEAD: usize = 4;

/// A session with a cluster. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
}

impl Client {
    /// Opens a session and starts its background tasks.
    pub async fn connect(runtime: Runtime, connector: Connector, options: ClientOptions) -> Result<Self> {
        let masters = Masters::new(runtime.clone(), connector.clone(), options.masters.clone(), options.waits.clone())?;
        let session = Session::new(runtime.clone(), masters, options.operation_deadline);
        let shared = Arc::new(Shared::new(runtime.clone(), connector, options, session));
        shared.open_session().await?;
        // The node map comes with a version only from a poll; it also tells which master process this is.
        shared.poll_once(0, poll::PollNews::default()).await?;
        runtime.spawn("client poll", poll::run(shared.clone()));
        runtime.spawn("client commits", committer::run(shared.clone()));
        runtime.spawn("client rests", rest::run(shared.clone()));
        runtime.spawn("client times members", gray::run(shared.clone()));
        if shared.options.short_circuit {
            runtime.spawn("client witnesses", witness::run(shared.clone()));
        }
        runtime.spawn("client attends", {
            let (connector, options) = (shared.connector.clone(), shared.options.clone());
            let shared = shared.clone();
            ebb_rpc::attend(connector, options.masters, options.serves_at, move || {
                shared.closing.load(Ordering::Relaxed)
            })
        });
        Ok(Self { shared })
    }

    /// Flushes, commits, gives everything back and ends the session. Fails if something could not be flushed.
    pub async fn disconnect(&self) -> Result<()> {
        let shared = &self.shared;
        let mut verdict = Ok(());
        for handle in shared.handles.all() {
            shared.close(handle);
        }
        shared.release_all().await;
        for inode in shared.inodes() {
            let _gate = inode.gate.write().await;
            let finished = shared.finish(&inode).await.and(shared.sync_everywhere(&inode).await);
            if let Err(error) = &finished {
                tracing::warn!(inode = %inode.id, %error, "disconnecting with unsynced writes");
                // Its session ends, and the members are made equal by a recovery.
                shared.lose_lease(&inode, error);
            }
            verdict = verdict.and(finished);
        }
        shared.give_back_idle().await;
        shared.closing.store(true, Ordering::Relaxed);
        shared.queue.wake();
        let close = pb::CloseSession { session: shared.session.name().id.raw() };
        let closed = shared.session.masters.call(&close, ATTEMPT, shared.session.deadline()).await.result;
        shared.session.on_expired();
        verdict.and(closed.map(drop))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Who this is to the master.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.shared.session.name().id
    }

    /// Whether the session certainly lives, so that its leases and locks are valid now.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.shared.session.is_trusted()
    }

    /// Who wants to hear of invalidations; at most one.
    pub fn set_listener(&self, listener: Arc<dyn CacheListener>) {
        suspend::listen(&self.shared, listener);
    }

    /// What its connections carried.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.connector.counters().clone()
    }

    /// What went wrong and was dealt with.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.shared.metrics.read().with_ahead(self.shared.cache.ahead())
    }

    /// The host that it runs on.
    #[must_use]
    pub fn host(&self) -> &HostName {
        &self.shared.options.host
    }

    /// The nodes as last heard.
    #[must_use]
    pub fn nodes(&self) -> Vec<pb::Node> {
        self.shared.nodes.all()
    }

    /// The sub-racks that the nodes have declared, as last heard.
    #[must_use]
    pub fn sub_racks(&self) -> Arc<SubRacks> {
        self.shared.nodes.sub_racks()
    }

    /// The user of requests that no program makes: that of a program's certificate, or the superuser.
    #[must_use]
    pub fn own_user(&self) -> &Credentials {
        &self.shared.own
    }

    /// Connections, for calls beyond the client's own.
    #[must_use]
    pub fn connector(&self) -> &Connector {
        &self.shared.connector
    }

    /// What a host does for work, by the power plans. One without a node is always on.
    #[must_use]
    pub fn turn_of(&self, host: &HostName) -> Turn {
        self.shared.turn_of(host)
    }

    /// A namespace request as it stands (administration, tests): session and request id are filled in, retries done.
    pub async fn meta(&self, credentials: &Credentials, op: Op) -> Result<pb::MetaReply> {
        if op.is_query() {
            self.shared.session.meta(credentials, op).await
        } else {
            self.shared.change(credentials, op).await.map(|answer| answer.rest)
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.session())
    }
}
