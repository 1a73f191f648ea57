//! Who answers which call.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_client::Client;
use ebb_rpc::{Answer, Counters, Payload, Request, Service, ServiceFuture};
use ebb_runtime::Runtime;
use ebb_types::{Epoch, Error, ErrorKind, InodeId, Result, SessionId, bail, err};
use ebb_wire::pb::shared_op::Op;
use ebb_wire::{Method, pb};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::carry::Operation;
use crate::files::Files;
use crate::options::ProxyOptions;
use crate::relay::Relay;
use crate::results::{Place, Results, Slot};
use crate::sessions::Sessions;
use crate::stopover::Stopovers;

/// Kept back from callers' deadlines, so that a refusal with its reason arrives instead of a time-out.
const MARGIN: Duration = Duration::from_millis(200);
/// Largest read: as large as a frame's payload may be.
const READ_MAX: u32 = 16 << 20;
/// Counted for each operation beyond its bytes.
const OPERATION_OVERHEAD: usize = 1024;
/// Files that are being taken at a time.
const JOINS_MAX: usize = 256;

/// Takes calls apart and sees to it that each is carried out once.
pub(crate) struct Front {
    pub runtime: Runtime,
    pub client: Client,
    pub boot: u64,
    pub files: Arc<Files>,
    pub results: Mutex<Results>,
    sessions: Sessions,
    /// Bytes of operations in memory.
    memory: Arc<Semaphore>,
    memory_max: usize,
    joins: Arc<Semaphore>,
    pub relay: Relay,
    pub stopovers: Stopovers,
    counters: Counters,
}

impl Front {
    /// With the bounds of `options`.
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
        // A task of its own: dropped half-way, a lease that was taken would be nobody's.
        let joining = self.runtime.spawn("take a shared file", async move {
            let _place = place;
            files.join(inode).await
        });
        let epoch = joining.join().await??;
        Ok(Answer::new(&pb::JoinSharedReply { boot: self.boot, epoch: epoch.raw() }))
    }

    async fn operate(&self, mut call: pb::SharedOp, payload: Bytes, deadline: Duration) -> Result<Answer> {
        if call.boot != self.boot {
            return Ok(Answer::new(&self.moved(false)));
        }
        let Some(op) = call.op.take() else { bail!(Protocol, "an operation on a shared file that says nothing") };
        let bytes = check_size(&op, &payload)?;
        if call.request == 0 {
            return self.repeatable(&call, op, payload, bytes, deadline).await;
        }
        let slot = self.once(&call, op, payload, bytes, deadline).await?;
        let what = "the operation is still under way";
        let reply = self.runtime.timeout(deadline, what, async { Ok(slot.wait().await) }).await?;
        Ok(Answer::new(&reply))
    }

    /// What changes nothing is carried out by whoever waits for it.
    async fn repeatable(
        &self,
        call: &pb::SharedOp,
        op: Op,
        payload: Bytes,
        bytes: usize,
        deadline: Duration,
    ) -> Result<Answer> {
        if matches!(op, Op::Write(_) | Op::Allocate(_) | Op::Set(_) | Op::Direct(_) | Op::Apply(_)) {
            bail!(Invalid, "what changes a file needs a request number above 0");
        }
        let _memory = self.room(bytes, deadline).await?;
        let (reply, data) = self.carry_out(call, op, payload).await;
        let payload = if data.is_empty() { Payload::Empty } else { Payload::Buffers(vec![data]) };
        Ok(Answer::with(&reply, payload))
    }

    /// The slot of an operation that is to be carried out once: found, or made and the work begun.
    async fn once(
        &self,
        call: &pb::SharedOp,
        op: Op,
        payload: Bytes,
        bytes: usize,
        deadline: Duration,
    ) -> Result<Arc<Slot>> {
        let (session, inode) = (SessionId::new(call.session), InodeId::new(call.inode));
        let known = self.results.lock().find(session, call.request, inode, self.runtime.now())?;
        if let Some(slot) = known {
            return Ok(slot);
        }
        // Ordering: what was done while the session lived is answered even now. What takes no slot here was never done.
        self.sessions.check(session).await?;
        let memory = self.room(bytes, deadline).await?;
        let place = self.results.lock().enter(session, call.request, call.acknowledged, inode, self.runtime.now())?;
        let slot = match place {
            Place::Known(slot) => return Ok(slot),
            Place::New(slot) => slot,
        };
        let duty = Duty { slot: Arc::clone(&slot), boot: self.boot };
        let work = self.prepare(call, op, payload);
        let (boot, files) = (self.boot, Arc::clone(&self.files));
        // A task of its own: the caller may stop waiting, and the operation is carried out all the same.
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
            request: call.request,
            op,
            payload,
        });
        Work { inode, epoch, session, operation }
    }

    async fn carry_out(&self, call: &pb::SharedOp, op: Op, payload: Bytes) -> (pb::SharedOpReply, Bytes) {
        finish(self.boot, &self.files, self.prepare(call, op, payload)).await
    }

    fn moved(&self, kept: bool) -> pb::SharedOpReply {
        pb::SharedOpReply { boot: self.boot, moved: true, kept, ..Default::default() }
    }
}

/// An operation and the stay that it is meant for; without the one, the other is over.
struct Work {
    inode: InodeId,
    epoch: Epoch,
    session: SessionId,
    operation: Option<Operation>,
}

/// Carries an operation out, and puts the outcome into a reply.
async fn finish(boot: u64, files: &Files, work: Work) -> (pb::SharedOpReply, Bytes) {
    let Work { inode, epoch, session, operation } = work;
    let outcome = match operation {
        Some(operation) => {
            let file = Arc::clone(&operation.file);
            let outcome = operation.run().await;
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
            let kept = files.tell(inode, epoch, session);
            (pb::SharedOpReply { boot, moved: true, kept, ..Default::default() }, Bytes::new())
        }
        Err(error) => {
            let failure = Some(pb::Failure::from(&error));
            (pb::SharedOpReply { boot, failure, ..Default::default() }, Bytes::new())
        }
    }
}

/// The duty to fill a slot: if the task that has it ends without doing so, those who wait hear that, too.
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
