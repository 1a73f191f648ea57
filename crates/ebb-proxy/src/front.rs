//! Dispatch of calls: which part answers which call.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_client::Client;
use ebb_rpc::{Answer, Counters, Request, Service, ServiceFuture};
use ebb_runtime::Runtime;
use ebb_types::{Epoch, Error, ErrorKind, InodeId, RequestId, Result, SessionId, bail, err};
use ebb_wire::pb::shared_op::Op;
use ebb_wire::{Method, pb};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::carry::Operation;
use crate::ended::Ended;
use crate::files::{Files, Joined};
use crate::options::ProxyOptions;
use crate::relay::Relay;
use crate::requests::RequestName;
use crate::results::{Entered, Results, Slot};
use crate::sessions::Sessions;
use crate::stopover::Stopovers;

/// Subtracted from a caller's deadline, so that a refusal with its reason arrives before the caller's time-out.
const MARGIN: Duration = Duration::from_millis(200);
/// Largest read: as large as a frame's payload may be.
const READ_MAX: u32 = 16 << 20;
/// Memory that is counted for each operation, beyond its bytes.
const OPERATION_OVERHEAD: usize = 1024;
/// Most files that are being taken at a time.
const JOINS_MAX: usize = 256;

/// Decodes calls, and executes each one once.
pub(crate) struct Front {
    pub runtime: Runtime,
    pub client: Client,
    pub boot: u64,
    pub files: Arc<Files>,
    pub results: Mutex<Results>,
    sessions: Sessions,
    /// Budget of bytes of operations in memory.
    memory: Arc<Semaphore>,
    memory_max: usize,
    joins: Arc<Semaphore>,
    pub relay: Relay,
    pub stopovers: Stopovers,
    counters: Counters,
}

impl Front {
    /// A front with the bounds of `options`.
    pub fn new(
        runtime: Runtime,
        client: Client,
        boot: u64,
        files: Arc<Files>,
        sessions: Sessions,
        options: &ProxyOptions,
        counters: Counters,
    ) -> Self {
        let relay = Relay::new(runtime.clone(), client.clone(), sessions.clone(), options.held_bytes_max);
        let stopovers = Stopovers::new(runtime.clone(), client.clone(), options.stopover_bytes_max);
        // Permits are counted in 32 bits when they are taken.
        let memory_max = options.operation_bytes_max.clamp(READ_MAX as usize + OPERATION_OVERHEAD, u32::MAX as usize);
        Self {
            runtime,
            client,
            boot,
            files,
            results: Mutex::default(),
            sessions,
            memory: Arc::new(Semaphore::new(memory_max)),
            memory_max,
            joins: Arc::new(Semaphore::new(JOINS_MAX)),
            relay,
            stopovers,
            counters,
        }
    }

    async fn join(&self, call: pb::JoinShared) -> Result<Answer> {
        self.sessions.check(SessionId::new(call.session)).await?;
        let Ok(place) = Arc::clone(&self.joins).try_acquire_owned() else {
            bail!(Overloaded, "the proxy waits for {JOINS_MAX} files already");
        };
        let (files, inode) = (Arc::clone(&self.files), InodeId::new(call.inode));
        // A task of its own: if it were dropped half-way, a lease could be left that no stay has.
        let joining = self.runtime.spawn("take a shared file", async move {
            let _place = place;
            files.join(inode).await
        });
        let Joined { epoch, takeovers } = joining.join().await??;
        Ok(Answer::new(&pb::JoinSharedReply { boot: self.boot, epoch: epoch.raw(), takeovers }))
    }

    async fn operate(&self, mut call: pb::SharedOp, payload: Bytes, deadline: Duration) -> Result<Answer> {
        if call.boot != self.boot {
            // I-39: the epoch is from an earlier process, and this one does not know how that stay ended.
            return Ok(Answer::new(&moved(self.boot, Ended::Unknown)));
        }
        let Some(op) = call.op.take() else { bail!(Protocol, "an empty operation on a shared file") };
        let bytes = check_size(&op, &payload)?;
        if call.request == 0 {
            return self.repeatable(&call, op, payload, bytes, deadline).await;
        }
        let slot = self.once(&call, op, payload, bytes, deadline).await?;
        let reason = "the operation is still under way";
        let reply = self.runtime.timeout(deadline, reason, async { Ok(slot.wait().await) }).await?;
        Ok(Answer::new(&reply))
    }

    /// Executes an operation that changes nothing, in the task of its caller.
    async fn repeatable(
        &self,
        call: &pb::SharedOp,
        op: Op,
        payload: Bytes,
        bytes: usize,
        deadline: Duration,
    ) -> Result<Answer> {
        let changes =
            matches!(op, Op::Write(_) | Op::Allocate(_) | Op::Set(_) | Op::Direct(_) | Op::Apply(_) | Op::TakeOver(_));
        if changes {
            bail!(Invalid, "what changes a file needs a request number above 0");
        }
        let _memory = self.room(bytes, deadline).await?;
        let (reply, data) = self.carry_out(call, op, payload).await;
        Ok(Answer::with(&reply, data.into()))
    }

    /// The slot of an operation that is to be executed once. A new one is started.
    async fn once(
        &self,
        call: &pb::SharedOp,
        op: Op,
        payload: Bytes,
        bytes: usize,
        deadline: Duration,
    ) -> Result<Arc<Slot>> {
        let (session, inode) = (SessionId::new(call.session), InodeId::new(call.inode));
        let (name, acknowledged) = (RequestName::new(session, call.request), RequestId::new(call.acknowledged));
        let known = self.results.lock().find(name, inode, self.runtime.now())?;
        if let Some(slot) = known {
            return Ok(slot);
        }
        // Ordering: the slot is looked for first. An operation from the session's lifetime is answered even after its
        // end. An operation without a slot was never executed.
        self.sessions.check(session).await?;
        let memory = self.room(bytes, deadline).await?;
        let place = self.results.lock().enter(name, acknowledged, inode, self.runtime.now())?;
        let slot = match place {
            Entered::Known(slot) => return Ok(slot),
            Entered::New(slot) => slot,
        };
        let duty = Duty { slot: Arc::clone(&slot), boot: self.boot };
        let work = self.prepare(call, op, payload);
        let (boot, files) = (self.boot, Arc::clone(&self.files));
        // A task of its own: the caller may stop waiting, and the operation is executed all the same.
        self.runtime.spawn("operation on a shared file", async move {
            let _memory = memory;
            let (reply, _) = finish(boot, &files, work).await;
            duty.slot.fill(reply);
        });
        Ok(slot)
    }

    async fn room(&self, bytes: usize, deadline: Duration) -> Result<OwnedSemaphorePermit> {
        let permits = u32::try_from(bytes.min(self.memory_max)).unwrap_or(u32::MAX);
        let taking = async {
            let taken = Arc::clone(&self.memory).acquire_many_owned(permits).await;
            taken.map_err(|_| err!(ShuttingDown, "this proxy is shutting down"))
        };
        self.runtime.timeout(deadline, "waiting for room among operations", taking).await
    }

    fn prepare(&self, call: &pb::SharedOp, op: Op, payload: Bytes) -> Work {
        let (inode, epoch) = (InodeId::new(call.inode), Epoch::new(call.epoch));
        let session = SessionId::new(call.session);
        let operation = self.files.find(inode, epoch).map(|file| Operation {
            runtime: self.runtime.clone(),
            client: self.client.clone(),
            sessions: self.sessions.clone(),
            file,
            session,
            request: RequestId::new(call.request),
            op,
            payload,
        });
        Work { inode, epoch, session, operation }
    }

    async fn carry_out(&self, call: &pb::SharedOp, op: Op, payload: Bytes) -> (pb::SharedOpReply, Bytes) {
        finish(self.boot, &self.files, self.prepare(call, op, payload)).await
    }
}

/// The reply to an operation whose stay is over.
fn moved(boot: u64, ended: Ended) -> pb::SharedOpReply {
    pb::SharedOpReply { boot, moved: true, kept: ended == Ended::Kept, ..Default::default() }
}

/// An operation, and the stay that it is for. Without an operation, the stay is over.
struct Work {
    inode: InodeId,
    epoch: Epoch,
    session: SessionId,
    operation: Option<Operation>,
}

/// Executes an operation, and makes a reply of the result.
async fn finish(boot: u64, files: &Files, work: Work) -> (pb::SharedOpReply, Bytes) {
    let Work { inode, epoch, session, operation } = work;
    let outcome = match operation {
        Some(operation) => {
            let (file, takes_over) = (Arc::clone(&operation.file), matches!(operation.op, Op::TakeOver(_)));
            let mut outcome = operation.run().await;
            if takes_over && outcome.is_ok() {
                // Ordering: the stay ends before the answer. Whoever joins after it learns of the takeover.
                outcome = files.end_stay(&file).await.and(outcome);
            }
            if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Moved) {
                files.on_moved(&file);
            }
            outcome
        }
        None => Err(err!(Moved, "{inode} is not held under epoch {epoch}")),
    };
    match outcome {
        Ok((reply, data)) => (pb::SharedOpReply { boot, ..reply }, data),
        Err(error) if error.kind() == ErrorKind::Moved => {
            (moved(boot, files.end_of(inode, epoch, session)), Bytes::new())
        }
        Err(error) => {
            let failure = Some(pb::Failure::from(&error));
            (pb::SharedOpReply { boot, failure, ..Default::default() }, Bytes::new())
        }
    }
}

/// The duty to fill a slot. If its task ends without an answer, the callers that wait get an error.
struct Duty {
    slot: Arc<Slot>,
    boot: u64,
}

impl Drop for Duty {
    fn drop(&mut self) {
        let error = Error::new(ErrorKind::Io, "the operation ended half-way; see the proxy's log");
        self.slot.fill(pb::SharedOpReply {
            boot: self.boot,
            failure: Some(pb::Failure::from(&error)),
            ..Default::default()
        });
    }
}

fn check_size(op: &Op, payload: &Bytes) -> Result<usize> {
    let answer = match op {
        Op::Read(read) if read.length > READ_MAX => {
            bail!(Invalid, "a read of {} bytes is above {READ_MAX}", read.length)
        }
        Op::Read(read) => read.length as usize,
        _ => 0,
    };
    Ok(answer.max(payload.len()) + OPERATION_OVERHEAD)
}

impl Service for Front {
    fn handle(&self, request: Request) -> ServiceFuture<'_> {
        Box::pin(async move {
            let deadline = request.deadline.saturating_sub(MARGIN);
            match request.method {
                Method::JoinShared => self.join(request.decode()?).await,
                Method::SharedOp => {
                    let payload = request.payload.clone();
                    self.operate(request.decode()?, payload, deadline).await
                }
                Method::RelayCall => {
                    let payload = request.payload.clone();
                    self.relay.answer(request.decode()?, payload, deadline).await
                }
                Method::FetchReplica => self.stopovers.fetch(request.decode()?, deadline).await,
                Method::ReadReplica => self.stopovers.read(&request.decode()?),
                Method::SeekReplica => self.stopovers.seek(&request.decode()?),
                Method::Counters => Ok(Answer::new(&self.counters.read().to_reply(0))),
                other => bail!(Unsupported, "a proxy does not answer {other:?}"),
            }
        })
    }
}
