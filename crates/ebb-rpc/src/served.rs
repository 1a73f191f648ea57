//! One connection of a server: requests in, answers out.
//!
//! A request begins where it was read, up to its first waiting point; if it is not answered by then, it goes on as a
//! task of its own. So an answer from memory costs no change of thread. Large requests are tasks from the start: the
//! next one is read meanwhile.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_runtime::{Runtime, Stream};
use ebb_types::{ErrorKind, Result, bail, err};
use ebb_wire::frame::{GOODBYE, MESSAGE_LEN_MAX, PAYLOAD_LEN_MAX};
use ebb_wire::{FrameHeader, FrameKind, Method};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::PeerInfo;
use crate::budget::{Budget, PeerKey, SMALL, Share};
use crate::caller::Caller;
use crate::counters::Link;
use crate::outbox::Outbox;
use crate::reader::FrameReader;
use crate::reply::{Answered, Reply, failure_frame};
use crate::server::{Answer, Request, ServerOptions, Service};
use crate::writer::FrameWriter;

/// Counted for each request beyond its bytes: its task and its place in tables.
const REQUEST_OVERHEAD: usize = 1024;
/// The largest request.
pub(crate) const FRAME_BYTES_MAX: usize = MESSAGE_LEN_MAX + PAYLOAD_LEN_MAX + REQUEST_OVERHEAD;
/// Requests with so many raw bytes are tasks from the start.
const LARGE: u32 = 64 << 10;
/// After its goodbye a connection waits so long for the caller to close it. Closed with requests unread, it would be reset, and
/// the goodbye might be lost with it.
const LINGER_MAX: Duration = Duration::from_secs(1);

/// The state that the connections of a server share.
pub(crate) struct Common {
    pub runtime: Runtime,
    pub service: Arc<dyn Service>,
    pub options: ServerOptions,
    pub memory: Budget,
}

/// Serves a connection whose handshake is done. Returns when it has ended, or, after `stop`, when the requests in
/// progress have been answered.
pub(crate) async fn serve(
    common: Arc<Common>,
    stream: Stream,
    peer: Arc<PeerInfo>,
    link: Link,
    stop: watch::Receiver<bool>,
) {
    let pace = Some(common.options.pace());
    let runtime = &common.runtime;
    let reader = FrameReader::new(stream.read, link.clone(), &stream.peer, runtime.clone(), pace);
    let writer = FrameWriter::new(stream.write, link.clone(), &stream.peer, runtime.clone(), pace);
    // Bounded: each answer holds one of the connection's places.
    let answers = Outbox::new(writer);
    let (broken, mut is_broken) = watch::channel(false);
    let running = answers.clone().run();
    let service = common.service.clone();
    let writing = runtime.spawn("rpc-answers", async move {
        let error = running.await;
        tracing::debug!(%error, "a connection takes no more answers");
        // Errors of the connection itself have other kinds.
        if error.kind() == ErrorKind::Io {
            service.note_unreadable_file();
        }
        broken.send_replace(true);
    });
    let places_max = common.options.requests_per_connection_max.max(1);
    let places = Arc::new(Semaphore::new(places_max));
    let key = PeerKey::of(&peer);
    let mut served = Served { common: common.clone(), reader, answers: answers.clone(), places, peer, key, link };
    let ended = {
        let mut reading = std::pin::pin!(served.read_requests());
        let gathering = std::future::poll_fn(|context| answers.gather(|| reading.as_mut().poll(context)));
        tokio::select! {
            biased;
            _ = is_broken.wait_for(|broken| *broken) => Ok(()),
            () = stopped(stop.clone()) => Ok(()),
            ended = gathering => ended,
        }
    };
    let peer = served.peer.clone();
    if let Err(error) = &ended {
        if matches!(error.kind(), ErrorKind::Protocol | ErrorKind::Timeout) {
            tracing::warn!(%error, peer = peer.address, role = %peer.role, "close a connection");
        } else {
            tracing::debug!(%error, peer = peer.address, role = %peer.role, "close a connection");
        }
    } else {
        let is_stopped = *stop.borrow();
        let said_goodbye = tokio::select! {
            biased;
            _ = is_broken.wait_for(|broken| *broken) => false,
            said_goodbye = served.finish(places_max, is_stopped) => said_goodbye,
        };
        if said_goodbye {
            answers.close(&err!(ShuttingDown, "the server ends"));
            served.linger().await;
        }
    }
    answers.close(&err!(Disconnected, "the connection was closed"));
    writing.abort();
}

/// Completes when the server is to stop.
pub(crate) async fn stopped(mut stop: watch::Receiver<bool>) {
    // A server whose future was dropped is stopped, too.
    let _ = stop.wait_for(|stop| *stop).await;
}

struct Served {
    common: Arc<Common>,
    reader: FrameReader,
    answers: Outbox<Answered>,
    places: Arc<Semaphore>,
    peer: Arc<PeerInfo>,
    key: PeerKey,
    link: Link,
}

impl Served {
    /// Starts requests as they come until the peer closes the connection or breaks a rule.
    async fn read_requests(&mut self) -> Result<()> {
        loop {
            let place = self.places.clone().acquire_owned().await.expect("never closed");
            let idle = self.common.options.idle_timeout;
            let header = tokio::select! {
                biased;
                header = self.reader.header() => header?,
                // The caller is gone without a word, or has forgotten this connection.
                () = self.common.runtime.sleep(idle) => None,
            };
            let Some(header) = header else { return Ok(()) };
            if self.read_request(header, place).await?.is_break() {
                return Ok(());
            }
        }
    }

    /// Starts one request. Breaks when no further one is to be read.
    async fn read_request(&mut self, header: FrameHeader, place: OwnedSemaphorePermit) -> Result<ControlFlow<()>> {
        if header.kind != FrameKind::Request {
            bail!(Protocol, "{} sent a frame of kind {:?} to a server", self.peer.address, header.kind);
        }
        let deadline = Duration::from_millis(header.deadline_ms.into());
        let mut reply = Reply {
            common: self.common.clone(),
            answers: self.answers.clone(),
            key: self.key.clone(),
            link: self.link.clone(),
            method: header.method,
            request: header.request,
            expires: self.common.runtime.now().after(deadline),
            place: Some(place),
            is_begun: false,
        };
        let (message_len, payload_len) = (header.message_len as usize, header.payload_len as usize);
        let Some(method) = Method::from_raw(header.method) else {
            self.reader.skip_rest().await?;
            reply.send(Err(err!(Unsupported, "this release does not know call {}: update it", header.method)));
            return Ok(ControlFlow::Continue(()));
        };
        // As of now: revocations reach connections that stand. On the next one the peer may show another certificate.
        if let Err(refusal) = self.peer.check(&self.common.runtime) {
            self.reader.skip_rest().await?;
            reply.send(Err(refusal));
            return Ok(ControlFlow::Break(()));
        }
        if let Err(refusal) = self.check_caller(method) {
            self.reader.skip_rest().await?;
            reply.send(Err(refusal));
            return Ok(ControlFlow::Continue(()));
        }
        let bytes = message_len + payload_len + REQUEST_OVERHEAD;
        let received = if bytes <= SMALL {
            Some(self.receive(bytes, message_len, payload_len).await?)
        } else {
            // A large request holds memory that others wait for. So it waits no longer than its caller does for an
            // answer, and as its caller it waits on while bytes move. The pace bounds that.
            let (runtime, movement) = (self.common.runtime.clone(), self.reader.movement());
            tokio::select! {
                biased;
                received = self.receive(bytes, message_len, payload_len) => Some(received?),
                () = movement.rested(&runtime, deadline) => None,
            }
        };
        reply.expires = self.common.runtime.now().after(deadline);
        let Some((memory, message, payload)) = received else {
            self.reader.restart_clock();
            self.reader.skip_rest().await?;
            reply.send(Err(err!(Timeout, "{method:?} got neither memory nor a byte for {} ms", deadline.as_millis())));
            return Ok(ControlFlow::Continue(()));
        };
        let caller = Caller::new(&self.common, &self.answers, &self.key, (header.method, header.request));
        let request = Request { method, message, payload, peer: self.peer.clone(), deadline, caller };
        let common = self.common.clone();
        reply.is_begun = true;
        let work = async move {
            let answer = answer(&common, request).await;
            drop(memory);
            reply.send(answer);
        };
        if header.payload_len >= LARGE {
            self.common.runtime.spawn("rpc-request", work);
        } else {
            self.common.runtime.run_or_spawn("rpc-request", work);
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl Served {
    /// Whether the peer may make this call.
    fn check_caller(&self, method: Method) -> Result<()> {
        let PeerInfo { role, host, .. } = &*self.peer;
        if !method.callers().has(*role) {
            let callers = method.callers();
            bail!(Unauthorized, "{method:?} is not for a {role}, as the caller on {host} is, but for {callers}");
        }
        Ok(())
    }

    /// Waits until all that was begun is answered. If the server ends, says so, and returns true.
    async fn finish(&mut self, places_max: usize, is_stopped: bool) -> bool {
        let all = u32::try_from(places_max).unwrap_or(u32::MAX);
        // Ordering: the answers in progress go out before the goodbye, and before the connection closes.
        let mut places = self.places.clone().acquire_many_owned(all).await.expect("never closed");
        let Some(place) = places.split(1).filter(|_| is_stopped) else { return false };
        let goodbye = failure_frame(0, GOODBYE, &err!(ShuttingDown, "this server ends, and did not begin the request"));
        let memory = self.common.memory.charge(&self.key, goodbye.memory());
        let runtime = self.common.runtime.clone();
        let expires = runtime.now();
        if self
            .answers
            .put(Answered { runtime, frame: goodbye, expires, memory, place: Some(place), held: None })
            .is_err()
        {
            return false;
        }
        drop(places);
        // All are free again when it has been written.
        let _written = self.places.acquire_many(all).await;
        true
    }

    /// Waits until the caller, which has heard the goodbye, closes the connection.
    async fn linger(&mut self) {
        let runtime = self.common.runtime.clone();
        tokio::select! {
            biased;
            () = self.reader.drop_rest() => {}
            () = runtime.sleep(LINGER_MAX) => {}
        }
    }

    /// Waits for the peer's part of the memory, then for the bytes.
    async fn receive(
        &mut self,
        bytes: usize,
        message_len: usize,
        payload_len: usize,
    ) -> Result<(Share<PeerKey>, Bytes, Bytes)> {
        let memory = self.common.memory.take_bytes(&self.key, bytes).await;
        self.reader.restart_clock();
        let message = self.reader.bytes(message_len).await?;
        let payload = self.reader.bytes(payload_len).await?;
        Ok((memory, message, payload))
    }
}

async fn answer(common: &Common, request: Request) -> Result<Answer> {
    let (method, deadline, caller) = (request.method, request.deadline, request.caller.clone());
    tokio::select! {
        biased;
        answer = common.service.handle(request) => answer,
        () = caller.has_given_up(&common.runtime, deadline) => {
            Err(err!(Timeout, "{method:?} was not done within {} ms", deadline.as_millis()))
        }
    }
}
