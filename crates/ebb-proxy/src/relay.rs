//! Calls to block servers that sleep: held, carried out when a node wakes, answered when the caller does.
//!
//! Nothing is decided here. The member judges a call that was held as it judges any other: it refuses versions, epochs
//! and lives of replicas that are over, and answers no read below the version that it names.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_client::Client;
use ebb_rpc::{Answer, Payload};
use ebb_runtime::Runtime;
use ebb_types::{Error, ErrorKind, Result, SessionId, bail, err};
use ebb_wire::pb;
use ebb_wire::pb::relay_call::Call;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::holds::{Hold, Holds, Kept};
use crate::sessions::Sessions;

/// Longest that a call is held, whatever patience its caller has: two of the longest intervals in use, and some.
const PATIENCE_MAX: Duration = Duration::from_secs(3600);
/// Largest payload there or back: as large as a frame's may be.
const BYTES_MAX: u64 = 16 << 20;
/// Counted for each call beyond its bytes.
const OVERHEAD: usize = 1024;
/// Members of a set are few.
const MEMBERS_MAX: usize = 64;

/// Holds calls and relays them.
pub(crate) struct Relay {
    runtime: Runtime,
    client: Client,
    sessions: Sessions,
    holds: Arc<Mutex<Holds>>,
    /// Bytes of calls and answers in memory.
    memory: Arc<Semaphore>,
    memory_max: usize,
}

impl Relay {
    /// With room for so many bytes of calls and answers at a time.
    pub fn new(runtime: Runtime, client: Client, sessions: Sessions, memory_max: usize) -> Self {
        let memory_max = memory_max.clamp(BYTES_MAX as usize + OVERHEAD, u32::MAX as usize);
        let memory = Arc::new(Semaphore::new(memory_max));
        Self { runtime, client, sessions, holds: Arc::default(), memory, memory_max }
    }

    /// Answers a call that is held: when it has been carried out, or `Timeout` before `deadline`; it stays held then.
    pub async fn answer(&self, call: pb::RelayCall, payload: Bytes, deadline: Duration) -> Result<Answer> {
        let session = SessionId::new(call.session);
        self.holds.lock().acknowledge(session, call.acknowledged);
        if call.request == 0 {
            return Ok(Answer::new(&pb::RelayReply::default()));
        }
        let hold = self.hold(call, payload, deadline).await?;
        let what = "no node that could carry the call out has woken yet";
        let kept = self.runtime.timeout(deadline, what, async { Ok(hold.wait().await) }).await?;
        let payload = if kept.payload.is_empty() { Payload::Empty } else { Payload::Buffers(vec![kept.payload]) };
        Ok(Answer::with(&kept.reply, payload))
    }

    async fn hold(&self, call: pb::RelayCall, payload: Bytes, deadline: Duration) -> Result<Arc<Hold>> {
        let session = SessionId::new(call.session);
        let patience = Duration::from_millis(call.patience_ms.into()).min(PATIENCE_MAX);
        let until = self.runtime.now().after(patience);
        if let Some(hold) = self.holds.lock().find(session, call.request, until) {
            return Ok(hold);
        }
        self.sessions.check(session).await?;
        let bytes = check(&call, &payload)?;
        let room = self.room(bytes, deadline).await?;
        let (hold, is_new) = self.holds.lock().enter(session, call.request, until, room)?;
        if is_new {
            let errand = Errand {
                runtime: self.runtime.clone(),
                client: self.client.clone(),
                sessions: self.sessions.clone(),
                session,
                hold: Arc::clone(&hold),
            };
            // A task of its own: the caller may fall asleep, and the call is carried out all the same.
            self.runtime.spawn("a call that is held", errand.run(call, payload));
        }
        Ok(hold)
    }

    async fn room(&self, bytes: usize, deadline: Duration) -> Result<OwnedSemaphorePermit> {
        let permits = u32::try_from(bytes.min(self.memory_max)).unwrap_or(u32::MAX);
        let taking = async {
            let taken = Arc::clone(&self.memory).acquire_many_owned(permits).await;
            taken.map_err(|_| err!(ShuttingDown, "this proxy is shutting down"))
        };
        let waited = self.runtime.timeout(deadline, "room among calls that are held", taking).await;
        waited.map_err(|error| if error.kind() == ErrorKind::Timeout { full(self.memory_max) } else { error })
    }

    /// Forgets what nobody waits for any more. To be called every now and then.
    pub fn sweep(&self) {
        let lives = |session| self.sessions.may_live(session);
        self.holds.lock().sweep(self.runtime.now(), lives);
    }
}

fn full(bytes: usize) -> Error {
    err!(Overloaded, "calls that are held fill the {bytes} bytes that there are for them")
}

/// A call on its way.
struct Errand {
    runtime: Runtime,
    client: Client,
    sessions: Sessions,
    session: SessionId,
    hold: Arc<Hold>,
}

impl Errand {
    async fn run(self, call: pb::RelayCall, payload: Bytes) {
        let Some(held) = call.call else { return };
        let delivered = self.client.deliver(&call.members, &held, &payload, || self.may()).await;
        self.hold.fill(match delivered {
            Ok(done) => Kept {
                reply: pb::RelayReply { node: done.node, failure: None, answer: Some(done.answer) },
                payload: done.payload,
            },
            Err(error) => Kept {
                reply: pb::RelayReply { failure: Some(pb::Failure::from(&error)), ..pb::RelayReply::default() },
                payload: Bytes::new(),
            },
        });
    }

    /// Whether it may still be carried out.
    ///
    /// Ordering: with its session a client loses its leases, and whoever gets them next may go on with the same replicas.
    /// The epoch fences what was sent before; what was not sent yet is not sent any more.
    async fn may(&self) -> Result<()> {
        self.sessions.check(self.session).await?;
        if !self.hold.is_wanted(self.runtime.now()) {
            bail!(Timeout, "no node that could carry the call out woke in time");
        }
        Ok(())
    }
}

/// Bytes that a call, or its answer, takes here.
fn check(call: &pb::RelayCall, payload: &Bytes) -> Result<usize> {
    if call.members.is_empty() || call.members.len() > MEMBERS_MAX {
        bail!(Invalid, "a call is held for one to {MEMBERS_MAX} members, not for {}", call.members.len());
    }
    let answer = match &call.call {
        None => bail!(Protocol, "a call to hold that says nothing"),
        Some(Call::Read(read)) => read.length,
        Some(Call::Seek(_) | Call::Write(_) | Call::Sync(_) | Call::Pull(_)) => 0,
    };
    if answer > BYTES_MAX {
        bail!(Invalid, "a read of {answer} bytes is above {BYTES_MAX}");
    }
    Ok((answer as usize).max(payload.len()) + OVERHEAD)
}
