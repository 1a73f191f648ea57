//! Who this client is to the master: session, request ids, and how long its leases may be believed.

pub(crate) mod masters;
pub(crate) mod poll;
pub(crate) mod suspend;
pub(crate) mod witness;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ebb_runtime::{Moment, Runtime};
use ebb_types::{Credentials, ErrorKind, KERNEL_TRUST_MAX, Result, SESSION_MARGIN, SessionId, err};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::Op;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::session::masters::{Masters, Outcome};

/// One attempt of a call that the master answers at once.
pub(crate) const ATTEMPT: Duration = Duration::from_secs(6);

/// The session and its clock.
#[derive(Debug)]
pub(crate) struct Session {
    runtime: Runtime,
    /// Calls.
    pub masters: Masters,
    deadline: Duration,
    /// Milliseconds that operations are retried at least, whatever the deadline says.
    least_ms: AtomicU64,
    /// Number of the last open that the master was asked for; 1: none yet, for 0 says nothing.
    openings: AtomicU64,
    state: Mutex<State>,
    /// The newest known position of a master. With it, an older master that is started instead is refused.
    position: Mutex<Option<pb::Position>>,
    /// A poll was answered or a new session was opened.
    changed: Notify,
    /// Asks the poll loop to poll at once.
    pub poke: Notify,
}

#[derive(Debug)]
struct State {
    id: SessionId,
    /// Counts the sessions of this client: leases of an earlier one are gone.
    generation: u64,
    next_request: u64,
    outstanding: BTreeSet<u64>,
    trusted_until: Moment,
    ttl: Duration,
}

/// A session as an operation sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionName {
    /// Its id.
    pub id: SessionId,
    /// Which of this client's sessions it is.
    pub generation: u64,
}

impl Session {
    /// No session yet: [`Session::open`] comes first.
    pub fn new(runtime: Runtime, masters: Masters, deadline: Duration) -> Self {
        let state = State {
            id: SessionId::new(0),
            generation: 0,
            next_request: 1,
            outstanding: BTreeSet::new(),
            trusted_until: Moment::default(),
            ttl: Duration::from_secs(10),
        };
        let least_ms = AtomicU64::new(0);
        Self {
            runtime,
            masters,
            deadline,
            least_ms,
            openings: AtomicU64::new(1),
            state: Mutex::new(state),
            position: Mutex::default(),
            changed: Notify::new(),
            poke: Notify::new(),
        }
    }

    /// Opens a new session in place of the old one; returns the nodes that came with it.
    pub async fn open(&self, open: &pb::OpenSession) -> Result<pb::OpenSessionReply> {
        let sent = self.runtime.now();
        let reply = self.masters.call(open, ATTEMPT, self.deadline()).await.result?;
        self.on_position(reply.position);
        let ttl = Duration::from_millis(reply.session_ttl_ms);
        if ttl <= SESSION_MARGIN {
            return Err(err!(Protocol, "a session of {} ms is too short to hold leases", reply.session_ttl_ms));
        }
        {
            let mut state = self.state.lock();
            state.id = SessionId::new(reply.session);
            state.generation += 1;
            state.next_request = 1;
            state.outstanding.clear();
            state.ttl = ttl;
            state.trusted_until = sent.after(ttl - SESSION_MARGIN);
        }
        self.changed.notify_waiters();
        Ok(reply)
    }

    /// The newest known position of a master.
    pub fn position(&self) -> Option<pb::Position> {
        *self.position.lock()
    }

    /// A master that knew the position before, and does not contradict it, is at this one.
    pub fn on_position(&self, reported: Option<pb::Position>) {
        let Some(reported) = reported else { return };
        let mut position = self.position.lock();
        // Answers may overtake each other. Another lineage took the place of the one before.
        let is_newer = |known: &pb::Position| {
            known.lineage != reported.lineage || (known.run, known.index) < (reported.run, reported.index)
        };
        if position.as_ref().is_none_or(is_newer) {
            *position = Some(reported);
        }
    }

    /// The session now.
    pub fn name(&self) -> SessionName {
        let state = self.state.lock();
        SessionName { id: state.id, generation: state.generation }
    }

    /// The number of an open that the master is going to be asked for.
    pub fn next_opening(&self) -> u64 {
        self.openings.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The number of the last one.
    pub fn last_opening(&self) -> u64 {
        self.openings.load(Ordering::SeqCst)
    }

    /// Time to live, as the master said.
    pub fn ttl(&self) -> Duration {
        self.state.lock().ttl
    }

    /// How long an operation is retried.
    pub fn deadline(&self) -> Duration {
        self.deadline.max(Duration::from_millis(self.least_ms.load(Ordering::Relaxed)))
    }

    /// Who waits for a node that sleeps by plan does not give up before it has woken.
    pub fn wait_at_least(&self, span: Duration) {
        self.least_ms.store(u64::try_from(span.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether leases may be believed now.
    pub fn is_trusted(&self) -> bool {
        self.runtime.now() < self.state.lock().trusted_until
    }

    /// How long leases may still be believed.
    pub fn trust_left(&self) -> Duration {
        self.state.lock().trusted_until.since(self.runtime.now())
    }

    /// Time for which a kernel behind this client may believe an answer of now.
    pub fn kernel_trust(&self) -> Duration {
        self.trust_left().min(KERNEL_TRUST_MAX)
    }

    /// A poll of session `id`, sent at `sent`, was answered.
    pub fn on_poll_answered(&self, id: SessionId, sent: Moment) {
        {
            let mut state = self.state.lock();
            if state.id != id {
                return;
            }
            let until = sent.after(state.ttl - SESSION_MARGIN);
            state.trusted_until = state.trusted_until.max(until);
        }
        self.changed.notify_waiters();
    }

    /// The master does not know the session any more.
    pub fn on_expired(&self) {
        self.state.lock().trusted_until = Moment::default();
    }

    /// Waits until leases may be believed. Fails at the operation's deadline.
    ///
    /// A client that was frozen, with its node or by its machine, has believed nothing since. The master answers a poll
    /// that it keeps waiting only after a quarter of the time to live. So one is sent that it answers at once.
    pub async fn ensure_trusted(&self) -> Result<()> {
        if self.is_trusted() {
            return Ok(());
        }
        self.poke.notify_one();
        let purpose = "waiting for the master to answer a poll, without which leases may not be believed";
        self.wait_until(purpose, || self.is_trusted()).await
    }

    /// Waits for a session after `generation`.
    pub async fn ensure_newer(&self, generation: u64) -> Result<()> {
        self.poke.notify_one();
        let newer = || self.state.lock().generation > generation;
        self.wait_until("waiting for a new session after the old one expired", newer).await
    }

    async fn wait_until(&self, purpose: &'static str, done: impl Fn() -> bool) -> Result<()> {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if done() {
                    return Ok(());
                }
                changed.await;
            }
        };
        let reason = purpose.strip_prefix("waiting for ").unwrap_or(purpose);
        let _entry = self.masters.waits().enter(self.runtime.now(), reason);
        self.runtime.timeout(self.deadline(), purpose, waiting).await
    }

    /// A namespace request. A mutation gets a request id and is answered, not redone, when it is repeated.
    ///
    /// A request on a session that has expired is sent once more on the next session, unless it may have been carried
    /// out or belongs to a lease of the old session.
    pub async fn meta(&self, credentials: &Credentials, op: Op) -> Result<pb::MetaReply> {
        self.meta_kept(credentials, op, false).await
    }

    /// The same. `lease`: the caller will keep the parts that the answer leases.
    pub async fn meta_kept(&self, credentials: &Credentials, op: Op, lease: bool) -> Result<pb::MetaReply> {
        let may_move = !is_of_lease(&op);
        let query = op.is_query();
        let mut request = pb::MetaRequest {
            credentials: Some(credentials.into()),
            op: Some(pb::MetaOp { op: Some(op) }),
            lease,
            ..Default::default()
        };
        let (outcome, generation) = self.meta_once(&mut request, query, self.deadline()).await;
        match &outcome.result {
            Err(error) if error.kind() == ErrorKind::SessionExpired => {
                self.ensure_newer(generation).await?;
                if !may_move || (outcome.repeated && !query) {
                    return outcome.result;
                }
                self.meta_once(&mut request, query, self.deadline()).await.0.result
            }
            _ => outcome.result,
        }
    }

    async fn meta_once(
        &self,
        request: &mut pb::MetaRequest,
        query: bool,
        deadline: Duration,
    ) -> (Outcome<pb::MetaReply>, u64) {
        let ticket = Ticket::new(self, query);
        request.session = ticket.name.id.raw();
        request.request = ticket.request;
        request.acknowledged = ticket.acknowledged;
        (self.masters.call(request, ATTEMPT, deadline).await, ticket.name.generation)
    }
}

/// A request id in use.
///
/// Cancel-safety: dropped with its call, it counts as taken: no task waits for the reply any more.
struct Ticket<'a> {
    session: &'a Session,
    name: SessionName,
    request: u64,
    acknowledged: u64,
}

impl<'a> Ticket<'a> {
    fn new(session: &'a Session, query: bool) -> Self {
        let mut state = session.state.lock();
        let mut request = 0;
        if !query {
            request = state.next_request;
            state.next_request += 1;
            state.outstanding.insert(request);
        }
        let acknowledged = state.outstanding.first().copied().unwrap_or(state.next_request);
        let name = SessionName { id: state.id, generation: state.generation };
        Self { session, name, request, acknowledged }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut state = self.session.state.lock();
        if state.generation == self.name.generation {
            state.outstanding.remove(&self.request);
        }
    }
}

/// Whether the request means anything only under a lease or lock queue of its session.
fn is_of_lease(op: &Op) -> bool {
    match op {
        Op::Grant(_) | Op::Commit(_) | Op::ChangeSet(_) | Op::SetLock(_) | Op::TakeOver(_) => true,
        Op::SetAttr(set) => set.epoch != 0,
        _ => false,
    }
}
