//! The long poll: it keeps the session alive and brings the master's news. A session that has expired is
//! replaced by a new one here, and only here.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ebb_types::{Error, ErrorKind, InodeId, Result};
use ebb_wire::pb;
use parking_lot::Mutex;

use crate::inode::{Inode, Registered};
use crate::session::ATTEMPT;
use crate::shared::Shared;

/// Between polls that failed.
const PAUSE: Duration = Duration::from_millis(200);
/// Longer than the master waits: for the way there and back.
const LATE: Duration = Duration::from_secs(2);

/// What a client has to say with a poll.
#[derive(Clone, Debug, Default)]
pub(crate) struct PollNews {
    /// Recalls that were dealt with, and the leases that are held now.
    pub recalled: Vec<pb::Held>,
    /// Numbers of the requests to forget that were carried out.
    pub forgotten: Vec<u64>,
    /// It is going to rest.
    pub rest: bool,
}

/// Which master process answered last.
#[derive(Debug, Default)]
pub(crate) struct MasterBoot(Mutex<Option<(u64, u64)>>);

impl MasterBoot {
    /// Whether another process than before answers polls of the session `generation`.
    fn is_new(&self, generation: u64, boot: u64) -> bool {
        self.0.lock().is_some_and(|(session, known)| session == generation && known != boot)
    }

    /// Records the process that answered, once it knows this session's leases.
    fn on_answered(&self, generation: u64, boot: u64) {
        *self.0.lock() = Some((generation, boot));
    }
}

/// Polls until the client disconnects.
pub(crate) async fn run(shared: Arc<Shared>) {
    while !shared.closing.load(Ordering::Relaxed) {
        // A quarter of the time to live: a few polls may be lost before leases stop being believed.
        let wait = shared.session.ttl() / 4;
        let outcome = tokio::select! {
            biased;
            outcome = shared.poll_once(wait.as_millis() as u32, PollNews::default()) => outcome,
            () = shared.session.poke.notified() => poll_at_once(&shared).await,
        };
        if let Err(error) = outcome {
            if shared.closing.load(Ordering::Relaxed) {
                return;
            }
            if error.kind() == ErrorKind::SessionExpired {
                shared.renew(&error).await;
                continue;
            }
            tracing::debug!(%error, "poll");
            // A program that begins to wait does not wait for the pause, too.
            let answered = tokio::select! {
                biased;
                () = shared.session.poke.notified() => poll_at_once(&shared).await.is_ok(),
                () = shared.runtime.sleep(PAUSE) => true,
            };
            if !answered {
                shared.runtime.sleep(PAUSE).await;
            }
        }
    }
}

/// A poll that the master does not keep waiting. A connection from before this client was frozen fails with the first call,
/// which says nothing about the master: then it is sent once more.
async fn poll_at_once(shared: &Arc<Shared>) -> Result<()> {
    match shared.poll_once(0, PollNews::default()).await {
        Err(error) if error.kind() == ErrorKind::Disconnected => shared.poll_once(0, PollNews::default()).await,
        answer => answer,
    }
}

impl Shared {
    /// One poll, and everything that its answer asks for.
    pub async fn poll_once(self: &Arc<Self>, wait_ms: u32, news: PollNews) -> Result<()> {
        let session = self.session.name();
        let (id, node_map_version) = (session.id.raw(), self.nodes.version());
        let plan_version = self.plan_version();
        let PollNews { recalled, forgotten, rest } = news;
        let served = Some(self.served.to_message());
        let (slow, well) = self.gray.to_message();
        let message = pb::Poll {
            session: id,
            wait_ms,
            node_map_version,
            recalled,
            forgotten,
            plan_version,
            served,
            rest,
            reads: self.extras.take_reads(),
            dataset_reads: self.dataset_reads.take_counts(),
            working: self.recalls.lock().keys().map(|inode| inode.raw()).collect(),
            position: self.session.position(),
            slow,
            well,
            reached: self.nodes.take_reached(),
        };
        let sent = self.runtime.now();
        let deadline = Duration::from_millis(u64::from(wait_ms)) + LATE;
        let reply = match self.session.masters.call_once(&message, deadline).await {
            Ok(reply) => reply,
            Err(error) => {
                if crate::session::masters::is_transient(error.kind()) {
                    self.session.masters.turn_from(&error);
                }
                return Err(error);
            }
        };
        self.session.on_position(reply.position);
        if self.boot.is_new(session.generation, reply.master_boot) {
            tracing::info!("another master process answers: telling it what this client holds");
            self.nodes.forget_version();
            // Ordering: the new process does not know the kept names. Once it serves, it asks no client to forget them.
            self.forget_everything().await;
            self.reclaim().await?;
        }
        self.boot.on_answered(session.generation, reply.master_boot);
        self.session.on_poll_answered(session.id, sent);
        self.on_poll_reply(reply).await;
        Ok(())
    }

    fn on_node_map(&self, version: u64, nodes: Vec<pb::Node>) {
        self.nodes.update(version, nodes);
        let sub_racks = self.nodes.sub_racks();
        let neighbours = sub_racks.neighbours(self.options.host.as_str());
        self.connector.counters().set_sub_rack(neighbours.cloned());
    }

    async fn on_poll_reply(self: &Arc<Self>, reply: pb::PollReply) {
        if !reply.nodes.is_empty() {
            *self.proxies.lock() = reply.proxies;
            self.on_node_map(reply.node_map_version, reply.nodes);
        }
        self.on_slow_nodes(&reply.slow);
        self.extras.on_extra_copies(reply.extras);
        if !reply.plans.is_empty() {
            self.on_plans(&reply.plans);
        }
        for granted in &reply.locks {
            self.locks.on_granted(granted);
        }
        for recall in &reply.recalls {
            self.on_recall(recall);
        }
        if !reply.forget.is_empty() {
            self.on_forget(reply.forget);
        }
        if !reply.forget_all.is_empty() {
            self.on_forget_all(reply.forget_all);
        }
        if !reply.nameless.is_empty() {
            self.on_nameless(reply.nameless);
        }
        for id in reply.changed {
            self.on_changed(InodeId::new(id));
        }
    }

    /// Names or attributes of a file were changed by others.
    fn on_changed(self: &Arc<Self>, id: InodeId) {
        if let Some(inode) = self.find(id) {
            let mut core = inode.core.lock();
            core.attr_stale = true;
            if core.open_count == 0 && core.registered.may_be() {
                // It may have lost its last name: nothing here keeps it alive.
                self.return_closed(id);
            }
        }
        let shared = self.clone();
        self.runtime.spawn("invalidate attributes", async move { shared.invalidate(id).await });
    }

    /// Tells a new master process which leases and handles this session has.
    async fn reclaim(self: &Arc<Self>) -> Result<()> {
        let (mut leases, mut open) = (Vec::new(), Vec::new());
        for inode in self.inodes() {
            let held = self.reclaimed(&inode);
            if held.mode() != pb::LeaseMode::LeaseNone {
                leases.push(held);
            }
            let core = inode.core.lock();
            // An open that is under way may have been answered by the process before.
            if core.registered.may_be() || core.open_count > 0 {
                open.push(inode.id.raw());
            }
        }
        let opening = self.session.last_opening();
        let session = self.session.name().id.raw();
        let message = pb::Reclaim { session, leases, open, opening, tells_reserved: true };
        self.session.masters.call(&message, ATTEMPT, self.session.ttl()).await.result?;
        Ok(())
    }

    /// The session has expired: whatever was held is lost. Opens a new one, for as long as it takes.
    async fn renew(self: &Arc<Self>, error: &Error) {
        tracing::warn!(%error, session = %self.session.name().id, "the session has expired");
        self.metrics.sessions_expired.add(1);
        self.session.on_expired();
        self.returns.forget_thrown_away();
        self.locks.on_session_lost();
        let is_concerned = |inode: &Arc<Inode>| !inode.core.lock().hold.is_nothing();
        let lost: Vec<Arc<Inode>> = self.inodes().into_iter().filter(is_concerned).collect();
        self.end_stays();
        let mut paths = self.known.paths(&lost.iter().map(|inode| inode.id).collect());
        for inode in &lost {
            self.lose_lease_of(inode, error, || paths.remove(&inode.id));
        }
        self.known.clear();
        while let Err(error) = self.open_session().await {
            tracing::warn!(%error, "opening a new session");
            if self.closing.load(Ordering::Relaxed) {
                return;
            }
            self.runtime.sleep(PAUSE).await;
        }
        // A task of its own: the kernel may wait for requests that wait for the new session.
        let shared = self.clone();
        self.runtime.spawn("invalidate what was lost", async move {
            shared.forget_everything().await;
            for inode in lost {
                shared.invalidate(inode.id).await;
            }
        });
    }

    /// Opens a session and tells it which files are open here.
    pub async fn open_session(self: &Arc<Self>) -> Result<()> {
        let message = pb::OpenSession {
            host: self.options.host.as_str().to_owned(),
            role: self.options.role.clone(),
            pid: self.options.pid,
            position: self.session.position(),
        };
        let reply = self.session.open(&message).await?;
        if reply.master_boot != 0 {
            self.boot.on_answered(self.session.name().generation, reply.master_boot);
        }
        self.on_plans(&reply.plans);
        // Version 0: the first poll brings the map with its version.
        self.on_node_map(0, reply.nodes);
        let open: Vec<u64> = self
            .inodes()
            .iter()
            .filter(|inode| {
                let mut core = inode.core.lock();
                core.registered = if core.open_count > 0 { Registered::Yes } else { Registered::No };
                core.registered.may_be()
            })
            .map(|inode| inode.id.raw())
            .collect();
        if !open.is_empty() {
            let opening = self.session.last_opening();
            let session = self.session.name().id.raw();
            let message = pb::Reclaim { session, open, opening, ..Default::default() };
            self.session.masters.call(&message, ATTEMPT, self.session.deadline()).await.result?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_than_the_one_that_opened_the_session_is_new() {
        let boot = MasterBoot::default();
        assert!(!boot.is_new(1, 7), "of a session that an older release opened nothing is known before its first poll");
        boot.on_answered(1, 7);
        assert!(!boot.is_new(1, 7) && boot.is_new(1, 8));
        assert!(!boot.is_new(2, 8), "a new session holds nothing that an earlier process would know");
    }
}
