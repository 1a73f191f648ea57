//! The life of a mount's connection: handshake, reader threads, tasks that answer, and the end.
//!
//! A reader thread takes a request and runs it up to its first waiting point. An unanswered request
//! then goes on as a task of the runtime. So an answer from a cache costs no change of thread, and
//! a request that waits does not block a reader.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use ebb_runtime::Runtime;
use ebb_types::{Error, Result, err};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};

use crate::abi::request::{self, ControlRequest, FileRequest, Header, LockRequest, Request, Write};
use crate::abi::{IN_HEADER, init};
use crate::device::{Device, Received};
use crate::server::{Server, errno};
use crate::vfs::{EntryDetail, IfLocked, Vfs};

/// Maximum of requests under way, in units. A request counts one unit, and one more for each
/// 64 KiB that it reads or writes.
const UNITS: u32 = 4096;
/// Number of bytes for which a request counts one more unit.
const UNIT_BYTES: usize = 64 << 10;
/// Bytes of a message for the headers of a WRITE, beside its data.
const HEADER_ROOM: usize = 4096;
/// Minimum size of a message that keeps its read buffer. Smaller messages are copied out of it.
const HAND_OVER_MIN: usize = 64 << 10;
/// How long the end of a mount waits for requests under way. It is longer than any deadline of
/// a request.
const DRAIN_MAX: Duration = Duration::from_secs(40);

/// Does the handshake on a new connection.
pub fn handshake(device: &Device, max_write: u32, listings: EntryDetail) -> Result<init::Agreement> {
    let mut buffer = Vec::with_capacity(max_write as usize + HEADER_ROOM);
    if device.receive(&mut buffer)? == Received::Unmounted {
        return Err(err!(Disconnected, "it was unmounted before the handshake was over"));
    }
    let header = request::header(&buffer)?;
    if !init::is_init(&header) {
        return Err(err!(Protocol, "the kernel began with request {} instead of a handshake", header.opcode));
    }
    let agreed = init::parse(&buffer[IN_HEADER..]).and_then(|offer| init::agree(offer, max_write, listings));
    match &agreed {
        Ok(agreement) => device.reply(header.unique, &init::answer(*agreement)),
        Err(_) => device.refuse(header.unique, libc::EPROTO),
    }
    agreed
}

/// State that the readers share.
pub struct Session<V> {
    server: Arc<Server<V>>,
    runtime: Runtime,
    tokio: Handle,
    units: Arc<Semaphore>,
    max_write: u32,
}

impl<V: Vfs> Session<V> {
    /// A session within the current tokio runtime.
    pub fn new(runtime: Runtime, server: Arc<Server<V>>, max_write: u32) -> Arc<Self> {
        let units = Arc::new(Semaphore::new(UNITS as usize));
        Arc::new(Self { server, runtime, tokio: Handle::current(), units, max_write })
    }

    /// Starts a reader for each of `devices`.
    ///
    /// The receiver gets one error for each reader that fails. It ends when all readers have ended.
    pub fn start(self: &Arc<Self>, devices: Vec<Arc<Device>>) -> Result<mpsc::UnboundedReceiver<Error>> {
        let (ended, wait) = mpsc::unbounded_channel();
        for (number, device) in devices.into_iter().enumerate() {
            let (this, ended) = (Arc::clone(self), ended.clone());
            thread::Builder::new()
                .name(format!("ebb-fuse-{number}"))
                .spawn(move || {
                    if let Err(error) = this.read(&device) {
                        // No task receives errors of an abandoned mount.
                        let _ = ended.send(error);
                    }
                })
                .map_err(|error| Error::from_io(&error, "starting a thread for the mount"))?;
        }
        Ok(wait)
    }

    fn read(self: &Arc<Self>, device: &Arc<Device>) -> Result<()> {
        let _context = self.tokio.enter();
        let capacity = self.max_write as usize + HEADER_ROOM;
        let mut buffer = Vec::with_capacity(capacity);
        while device.receive(&mut buffer)? == Received::Message {
            let message = if buffer.len() >= HAND_OVER_MIN {
                Bytes::from(std::mem::replace(&mut buffer, Vec::with_capacity(capacity)))
            } else {
                Bytes::copy_from_slice(&buffer)
            };
            // A panic in one request must not end the reader, just as a panic in a task does not
            // end the runtime.
            if catch_unwind(AssertUnwindSafe(|| self.accept(device, message))).is_err() {
                tracing::error!("a request met a bug and was answered with EIO");
            }
        }
        Ok(())
    }

    fn accept(self: &Arc<Self>, device: &Arc<Device>, message: Bytes) {
        let header = match request::header(&message) {
            Ok(header) => header,
            Err(error) => return tracing::error!(%error, "skip a message of the kernel"),
        };
        let answer = Answer { device: Arc::clone(device), header, given: false };
        match request::parse(&header, message) {
            Ok(Request::Control(ControlRequest::Forget)) => answer.none(),
            // After ENOSYS the kernel does not send this kind of request again.
            Ok(Request::Control(ControlRequest::Unknown)) => answer.refuse(libc::ENOSYS),
            Ok(Request::Control(ControlRequest::Interrupt { unique })) => {
                self.server.interrupts.interrupt(unique);
                answer.none();
            }
            Ok(request) => self.run(answer, request),
            Err(error) => answer.give(Err(error)),
        }
    }

    fn run(self: &Arc<Self>, answer: Answer, request: Request) {
        let permit = match units_of(&request) {
            0 => None,
            units => match Arc::clone(&self.units).try_acquire_many_owned(units) {
                Ok(permit) => Some(permit),
                // No units are free: this reader takes no more requests until there are.
                // The semaphore is never closed.
                Err(_) => self.tokio.block_on(Arc::clone(&self.units).acquire_many_owned(units)).ok(),
            },
        };
        let server = Arc::clone(&self.server);
        self.runtime.run_or_spawn("fuse request", async move {
            let outcome = server.perform(&answer.header, request).await;
            answer.give(outcome);
            drop(permit);
        });
    }

    /// Waits for requests under way, then gives everything back. Called after the last reader ends.
    pub async fn finish(&self) -> Result<()> {
        self.server.interrupts.close();
        let drained = self
            .runtime
            .timeout(DRAIN_MAX, "requests under way at the end of the mount", async {
                drop(self.units.acquire_many(UNITS).await);
                Ok(())
            })
            .await;
        if let Err(error) = drained {
            tracing::warn!(%error, "end the mount regardless");
        }
        self.server.shut_down().await
    }
}

/// Number of units of a request. A wait for a lock counts 0, so that the unlock that ends the wait
/// finds free units.
fn units_of(request: &Request) -> u32 {
    let bytes = match request {
        Request::Lock(LockRequest::SetLock { if_locked: IfLocked::Wait, .. }) => return 0,
        Request::File(FileRequest::Write(Write { data, .. })) => data.len(),
        Request::File(FileRequest::Read { len, .. }) => *len as usize,
        _ => 0,
    };
    (1 + bytes / UNIT_BYTES).min(UNITS as usize / 2) as u32
}

/// Duty to answer a request. If it is dropped without an answer, the waiting program gets EIO.
struct Answer {
    device: Arc<Device>,
    header: Header,
    given: bool,
}

impl Answer {
    fn give(mut self, outcome: Result<Bytes>) {
        self.given = true;
        match outcome {
            Ok(body) => self.device.reply(self.header.unique, &body),
            Err(error) => self.device.refuse(self.header.unique, errno(&error)),
        }
    }

    fn refuse(mut self, errno: i32) {
        self.given = true;
        self.device.refuse(self.header.unique, errno);
    }

    /// Ends the duty, for the few requests that have no answer.
    fn none(mut self) {
        self.given = true;
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.given {
            self.device.refuse(self.header.unique, libc::EIO);
        }
    }
}
