//! The life of a mount's connection: handshake, threads that read requests, tasks that answer them, the end.
//!
//! A reader thread takes a request and runs it up to its first waiting point; what is not answered by then goes on as
//! a task of the runtime. So answers from caches cost no change of thread, and nothing that waits holds a reader up.

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

/// Requests under way, in units: one for each, and one more for each 64 KiB that it reads or writes.
const UNITS: u32 = 4096;
/// Bytes for which a request counts once more.
const UNIT_BYTES: usize = 64 << 10;
/// Room beside the data of a WRITE for its headers.
const HEADER_ROOM: usize = 4096;
/// Messages with so much in them keep the buffer that they were read into; others are copied out of it.
const HAND_OVER_MIN: usize = 64 << 10;
/// How long the end of a mount waits for requests under way: longer than the deadline of any.
const DRAIN_MAX: Duration = Duration::from_secs(40);

/// Shakes hands on a fresh connection.
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

/// What the readers share.
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

    /// Starts a reader for each of `devices`; the receiver ends when all have ended, after one error for each reader
    /// that ended badly.
    pub fn start(self: &Arc<Self>, devices: Vec<Arc<Device>>) -> Result<mpsc::UnboundedReceiver<Error>> {
        let (ended, wait) = mpsc::unbounded_channel();
        for (number, device) in devices.into_iter().enumerate() {
            let (this, ended) = (Arc::clone(self), ended.clone());
            thread::Builder::new()
                .name(format!("ebb-fuse-{number}"))
                .spawn(move || {
                    if let Err(error) = this.read(&device) {
                        // Nobody waits for a mount that is being abandoned.
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
            // A bug met by one request must not take the reader with it, as it would not take a task's runtime.
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
            // The kernel stops asking.
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
                // Full: this reader takes nothing more until there is room. The semaphore is never closed.
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

    /// After the last reader: lets requests under way end, then gives everything back.
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

/// What a request counts for. Waits for locks count nothing: the unlock that ends them must find room.
fn units_of(request: &Request) -> u32 {
    let bytes = match request {
        Request::Lock(LockRequest::SetLock { if_locked: IfLocked::Wait, .. }) => return 0,
        Request::File(FileRequest::Write(Write { data, .. })) => data.len(),
        Request::File(FileRequest::Read { len, .. }) => *len as usize,
        _ => 0,
    };
    (1 + bytes / UNIT_BYTES).min(UNITS as usize / 2) as u32
}

/// The duty to answer a request: whatever happens to the work, the program that waits gets an answer.
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

    /// For the few requests that the kernel wants no answer to.
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
