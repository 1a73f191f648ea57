//! The relay: calls to block servers that sleep. A call is held, executed when the server's node wakes, and answered
//! when the caller's node does.
//!
//! Nothing is decided here. The member checks a held call like any other. It refuses versions, epochs and lives of
//! replicas that are over, and answers no read below the named version.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_client::Client;
use ebb_rpc::Answer;
use ebb_runtime::Runtime;
use ebb_types::{Error, ErrorKind, RequestId, Result, SessionId, bail, err};
use ebb_wire::pb;
use ebb_wire::pb::relay_call::Call;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::holds::{Hold, Holds, Kept};
use crate::requests::RequestName;
use crate::results::Entered;
use crate::sessions::Sessions;

/// Longest time that a call is held, whatever patience its caller has: twice the longest usual interval, and some.
const PATIENCE_MAX: Duration = Duration::from_secs(3600);
/// Largest payload of a call or an answer: the largest payload of a frame.
const BYTES_MAX: u64 = 16 << 20;
/// Memory that is counted for each call, beyond its bytes.
const OVERHEAD: usize = 1024;
/// Most members that a call names.
const MEMBERS_MAX: usize = 64;

/// Holds calls and relays them.
pub(crate) struct Relay {
    runtime: Runtime,
    client: Client,
    sessions: Sessions,
    holds: Arc<Mutex<Holds>>,
    /// Budget of bytes of calls and answers in memory.
    memory: Arc<Semaphore>,
    memory_max: usize,
}

impl Relay {
    /// A relay with room for this many bytes of calls and answers at a time.
    pub fn new(runtime: Runtime, client: Client, sessions: Sessions, memory_max: usize) -> Self {
        let memory_max = memory_max.clamp(BYTES_MAX as usize + OVERHEAD, u32::MAX as usize);
        let memory = Arc::new(Semaphore::new(memory_max));
        Self { runtime, client, sessions, holds: Arc::default(), memory, memory_max }
    }

    /// Answers a held call when it has been executed. Fails with `Timeout` before `deadline`, and the call stays held.
    pub async fn answer(&self, call: pb::RelayCall, payload: Bytes, deadline: Duration) -> Result<Answer> {
        let session = SessionId::new(call.session);
        self.holds.lock().acknowledge(session, RequestId::new(call.acknowledged));
        if call.request == 0 {
            return Ok(Answer::new(&pb::RelayReply::default()));
        }
        let hold = self.hold(call, payload, deadline).await?;
        let reason = "no node that could carry the call out has woken yet";
        let kept = self.runtime.timeout(deadline, reason, async { Ok(hold.wait().await) }).await?;
        Ok(Answer::with(&kept.reply, kept.payload.into()))
    }

    async fn hold(&self, call: pb::RelayCall, payload: Bytes, deadline: Duration) -> Result<Arc<Hold>> {
        let session = SessionId::new(call.session);
        let patience = Duration::from_millis(call.patience_ms.into()).min(PATIENCE_MAX);
        let until = self.runtime.now().after(patience);
        let name = RequestName::new(session, call.request);
        if let Some(hold) = self.holds.lock().find(name, until) {
            return Ok(hold);
        }
        self.sessions.check(session).await?;
        let bytes = check(&call, &payload)?;
        let room = self.room(bytes, deadline).await?;
        // Ordering: entered after the wait for room, as the same call may have been entered meanwhile.
        let entered = self.holds.lock().enter(name, until, room)?;
        let hold = match entered {
            Entered::Known(hold) => return Ok(hold),
            Entered::New(hold) => hold,
        };
        let errand = Errand {
            runtime: self.runtime.clone(),
            client: self.client.clone(),
            sessions: self.sessions.clone(),
            session,
            hold: Arc::clone(&hold),
        };
        // A task of its own: the caller may fall asleep, and the call is carried out all the same.
        self.runtime.spawn("a call that is held", errand.run(call, payload));
        Ok(hold)
    }

    async fn room(&self, bytes: usize, deadline: Duration) -> Result<OwnedSemaphorePermit> {
        // A call larger than all of the room waits for all of it, instead of for ever.
        let permits = u32::try_from(bytes.min(self.memory_max)).unwrap_or(u32::MAX);
        let taking = async {
            let taken = Arc::clone(&self.memory).acquire_many_owned(permits).await;
            taken.map_err(|_| err!(ShuttingDown, "this proxy is shutting down"))
        };
        let waited = self.runtime.timeout(deadline, "room among calls that are held", taking).await;
        waited.map_err(|error| if error.kind() == ErrorKind::Timeout { full(self.memory_max) } else { error })
    }

    /// Forgets calls that no client waits for. The caller runs it periodically.
    pub fn sweep(&self) {
        let lives = |session| self.sessions.may_live(session);
        self.holds.lock().sweep(self.runtime.now(), lives);
    }
}

fn full(bytes: usize) -> Error {
    err!(Overloaded, "calls that are held fill the {bytes} bytes that there are for them")
}

/// The execution of one held call.
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

    /// Refuses a call that may not be executed any more.
    ///
    /// Ordering: with its session a client loses its leases, and their next holder may use the same replicas. The epoch
    /// fences off calls that were sent before. Calls that were not sent yet are not sent any more (I-54).
    async fn may(&self) -> Result<()> {
        self.sessions.check(self.session).await?;
        if !self.hold.is_wanted(self.runtime.now()) {
            bail!(Timeout, "no node that could carry the call out woke in time");
        }
        Ok(())
    }
}

/// Bytes of memory for a call or its answer. Refuses a malformed call.
fn check(call: &pb::RelayCall, payload: &Bytes) -> Result<usize> {
    if call.members.is_empty() || call.members.len() > MEMBERS_MAX {
        bail!(Invalid, "a call is held for one to {MEMBERS_MAX} members, not for {}", call.members.len());
    }
    let answer = match &call.call {
        None => bail!(Protocol, "an empty call to hold"),
        Some(Call::Read(read)) => read.length,
        Some(Call::Seek(_) | Call::Write(_) | Call::Sync(_) | Call::Pull(_)) => 0,
    };
    if answer > BYTES_MAX {
        bail!(Invalid, "a read of {answer} bytes is above {BYTES_MAX}");
    }
    Ok((answer as usize).max(payload.len()) + OVERHEAD)
}
