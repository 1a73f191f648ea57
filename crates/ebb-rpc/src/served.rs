//! One connection of a server: requests in, answers out.
//!
//! A request is begun where it was read, up to its first waiting point; what is not answered by then goes on as a task of its
//! own. So what is answered from memory costs no change of thread. Large requests are tasks from the start: the next one is
//! read meanwhile.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_runtime::{Moment, Runtime, Stream};
use ebb_types::{Error, ErrorKind, Result, bail, err};
use ebb_wire::frame::{MESSAGE_LEN_MAX, PAYLOAD_LEN_MAX};
use ebb_wire::{FrameHeader, FrameKind, Message, Method, pb};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::PeerInfo;
use crate::budget::{Budget, PeerKey, SMALL, Share};
use crate::counters::Link;
use crate::outbox::{Outbox, Outgoing};
use crate::reader::FrameReader;
use crate::server::{Answer, Payload, Request, ServerOptions, Service};
use crate::writer::{Body, Draft, Frame, FrameWriter, check_payload_len};

/// Counted for each request beyond its bytes: its task and its place in tables.
const REQUEST_OVERHEAD: usize = 1024;
/// The largest request.
pub(crate) const FRAME_BYTES_MAX: usize = MESSAGE_LEN_MAX + PAYLOAD_LEN_MAX + REQUEST_OVERHEAD;
/// Requests with so many raw bytes are tasks from the start.
const LARGE: u32 = 64 << 10;
/// Longest sentence in a failure.
const DETAIL_LEN_MAX: usize = 4096;

/// What the connections of a server share.
pub(crate) struct Common {
    pub runtime: Runtime,
    pub service: Arc<dyn Service>,
    pub options: ServerOptions,
    pub memory: Budget,
}

/// An answer on its way out. It holds its request's place until it has been written or dropped.
struct Answered {
    runtime: Runtime,
    frame: Frame,
    /// After this nobody waits for it.
    expires: Moment,
    memory: Share<PeerKey>,
    place: OwnedSemaphorePermit,
}

impl Outgoing for Answered {
    type Held = (Share<PeerKey>, OwnedSemaphorePermit);

    fn len(&self) -> u64 {
        self.frame.len()
    }

    fn unpack(self) -> Option<(Frame, Self::Held)> {
        // Nobody waits any more for big answers that are late; small ones tell the caller that we live.
        let is_wanted = self.frame.is_small() || self.expires >= self.runtime.now();
        is_wanted.then_some((self.frame, (self.memory, self.place)))
    }
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
    let writing = runtime.spawn("rpc-answers", async move {
        let error = running.await;
        tracing::debug!(%error, "a connection takes no more answers");
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
            () = stopped(stop) => Ok(()),
            ended = gathering => ended,
        }
    };
    let Served { places, peer, .. } = served;
    if let Err(error) = &ended {
        if matches!(error.kind(), ErrorKind::Protocol | ErrorKind::Timeout) {
            tracing::warn!(%error, peer = peer.address, role = peer.role, "close a connection");
        } else {
            tracing::debug!(%error, peer = peer.address, role = peer.role, "close a connection");
        }
    } else {
        // Ordering: the answers in progress go out before the connection closes.
        let all = u32::try_from(places_max).unwrap_or(u32::MAX);
        tokio::select! {
            biased;
            _ = is_broken.wait_for(|broken| *broken) => {}
            _ = places.acquire_many(all) => {}
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
            self.read_request(header, place).await?;
        }
    }

    async fn read_request(&mut self, header: FrameHeader, place: OwnedSemaphorePermit) -> Result<()> {
        if header.kind != FrameKind::Request {
            bail!(Protocol, "{} sent a frame of kind {:?} to a server", self.peer.address, header.kind);
        }
        let received = self.common.runtime.now();
        let deadline = Duration::from_millis(header.deadline_ms.into());
        let reply = Reply {
            common: self.common.clone(),
            answers: self.answers.clone(),
            key: self.key.clone(),
            link: self.link.clone(),
            method: header.method,
            request: header.request,
            expires: received.after(deadline),
            place: Some(place),
        };
        let (message_len, payload_len) = (header.message_len as usize, header.payload_len as usize);
        let Some(method) = Method::from_raw(header.method) else {
            self.reader.skip_rest().await?;
            reply.send(Err(err!(Unsupported, "this release does not know call {}: update it", header.method)));
            return Ok(());
        };
        let bytes = message_len + payload_len + REQUEST_OVERHEAD;
        let received = if bytes <= SMALL {
            Some(self.receive(bytes, message_len, payload_len).await?)
        } else {
            // What is large holds memory that others wait for: no longer than its caller waits for the answer.
            let runtime = self.common.runtime.clone();
            tokio::select! {
                biased;
                received = self.receive(bytes, message_len, payload_len) => Some(received?),
                () = runtime.sleep(deadline) => None,
            }
        };
        let Some((memory, message, payload)) = received else {
            self.reader.restart_clock();
            self.reader.skip_rest().await?;
            reply.send(Err(err!(Timeout, "{method:?} was not received within {} ms", deadline.as_millis())));
            return Ok(());
        };
        let request = Request { method, message, payload, peer: self.peer.clone(), deadline };
        let common = self.common.clone();
        let work = async move {
            let answer = answer(&common, request).await;
            drop(memory);
            reply.send(answer);
        };
        if header.payload_len >= LARGE {
            self.common.runtime.spawn("rpc-request", work);
        } else {
            self.common.runtime.begin("rpc-request", work);
        }
        Ok(())
    }
}

impl Served {
    /// Waits for the peer's part of the memory, then for the bytes.
    async fn receive(
        &mut self,
        bytes: usize,
        message_len: usize,
        payload_len: usize,
    ) -> Result<(Share<PeerKey>, Bytes, Bytes)> {
        let memory = self.common.memory.take(&self.key, bytes).await;
        self.reader.restart_clock();
        let message = self.reader.bytes(message_len).await?;
        let payload = self.reader.bytes(payload_len).await?;
        Ok((memory, message, payload))
    }
}

async fn answer(common: &Common, request: Request) -> Result<Answer> {
    let (method, deadline) = (request.method, request.deadline);
    tokio::select! {
        biased;
        answer = common.service.handle(request) => answer,
        () = common.runtime.sleep(deadline) => {
            Err(err!(Timeout, "{method:?} was not done within {} ms", deadline.as_millis()))
        }
    }
}

/// The duty to answer a request: if the task that has it ends without doing so, the caller hears that, too.
struct Reply {
    common: Arc<Common>,
    answers: Outbox<Answered>,
    key: PeerKey,
    link: Link,
    method: u16,
    request: u64,
    expires: Moment,
    /// Taken when the answer is queued.
    place: Option<OwnedSemaphorePermit>,
}

impl Reply {
    fn send(mut self, answer: Result<Answer>) {
        self.queue(answer);
    }

    fn queue(&mut self, answer: Result<Answer>) {
        let Some(place) = self.place.take() else { return };
        let frame = match answer.and_then(|answer| self.reply_frame(answer)) {
            Ok(frame) => frame,
            Err(error) => self.failure_frame(&error),
        };
        self.link.count_call();
        let memory = self.common.memory.charge(&self.key, frame.memory());
        // A connection that is gone needs no answer.
        let runtime = self.common.runtime.clone();
        let _ = self.answers.put(Answered { runtime, frame, expires: self.expires, memory, place });
    }

    fn reply_frame(&self, answer: Answer) -> Result<Frame> {
        let body = match answer.payload {
            Payload::Empty => Body::Buffers(Vec::new()),
            Payload::Buffers(buffers) => Body::Buffers(buffers),
            Payload::Files(ranges) => Body::Files(ranges),
        };
        check_payload_len(body.len()).map_err(|error| err!(Internal, "answer: {error}"))?;
        let draft = Draft::of(answer.message).map_err(|error| err!(Internal, "answer: {error}"))?;
        Ok(draft.seal(FrameKind::Reply, self.method, self.request, 0, body))
    }

    fn failure_frame(&self, error: &Error) -> Frame {
        let mut failure = pb::Failure::from(error);
        failure.detail.truncate(failure.detail.floor_char_boundary(DETAIL_LEN_MAX));
        let draft = Draft::of(failure.encode_to_vec()).expect("a short sentence fits in a frame");
        draft.seal(FrameKind::Failure, self.method, self.request, 0, Body::Buffers(Vec::<Bytes>::new()))
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.queue(Err(err!(Internal, "the request was dropped without an answer: see the server's log")));
    }
}
