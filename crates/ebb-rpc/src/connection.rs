//! One connection to a peer, seen from the caller: each caller writes its request, and a task reads the answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ebb_runtime::{Moment, Runtime, Stream, Task};
use ebb_types::{Error, Result, bail, err};
use ebb_wire::frame::GOODBYE;
use ebb_wire::{FrameHeader, FrameKind, Message, Method, pb};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::PeerInfo;
use crate::counters::Link;
use crate::departure::{Departure, Leaving, Movement};
use crate::outbox::{Outbox, Outgoing};
use crate::pending::{Outcome, Pending, RawReply};
use crate::reader::FrameReader;
use crate::writer::{Body, Draft, Frame, FrameWriter};

/// Requests that wait to be written; more callers wait.
const QUEUE_LEN: usize = 64;
/// A peer that lets this many calls pass their deadlines ...
const SILENT_CALLS_MAX: u32 = 3;
/// ... and sends not one byte for this long is taken for frozen: the connection is given up.
const SILENCE_MIN: Duration = Duration::from_secs(1);
/// A connection that was idle for longer is not used again: the server may be about to close it.
const IDLE_MAX: Duration = Duration::from_secs(240);

/// A connection whose handshake is done. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Connection {
    runtime: Runtime,
    server: PeerInfo,
    requests: Outbox<Waiting>,
    places: Arc<Semaphore>,
    pending: Arc<Pending>,
    arrived: Arc<AtomicU64>,
    movement: Movement,
    silence: Mutex<Silence>,
    used: Mutex<Moment>,
    reader: Task<()>,
    writer: Task<()>,
}

/// A request that has not been written yet.
struct Waiting {
    request: u64,
    frame: Frame,
    pending: Arc<Pending>,
    departure: Departure,
    place: OwnedSemaphorePermit,
}

impl Outgoing for Waiting {
    type Resources = (OwnedSemaphorePermit, Leaving);

    fn len(&self) -> u64 {
        self.frame.len()
    }

    fn unpack(self) -> Option<(Frame, Self::Resources)> {
        // Calls that were given up while they waited are not sent at all.
        self.pending.mark_sent(self.request).then(|| (self.frame, (self.place, Leaving(self.departure))))
    }
}

/// Calls that passed their deadline since the peer last said anything.
#[derive(Debug, Default)]
struct Silence {
    calls: u32,
    arrived: u64,
    since: Moment,
}

/// A request in progress. Dropping it forgets the call.
pub(crate) struct Ticket<'a> {
    connection: &'a Connection,
    request: u64,
    outcome: oneshot::Receiver<Outcome>,
    started: Moment,
    departure: Departure,
    arrived_before: u64,
    /// Its outcome was taken, or its silence was noted.
    ended: bool,
}

impl Connection {
    /// The other side.
    pub const fn server(&self) -> &PeerInfo {
        &self.server
    }

    /// Starts the tasks of a connection whose handshake is done.
    pub fn start(runtime: &Runtime, stream: Stream, link: &Link, server: PeerInfo) -> Self {
        let pending = Arc::new(Pending::default());
        let peer = stream.peer;
        let reader = FrameReader::new(stream.read, link.clone(), &peer, runtime.clone(), None);
        let writer = FrameWriter::new(stream.write, link.clone(), &peer, runtime.clone(), None);
        let (arrived, movement, requests) = (reader.arrived(), writer.movement(), Outbox::new(writer));
        let reading = read_answers(reader, requests.clone(), pending.clone(), link.clone(), peer);
        Self {
            runtime: runtime.clone(),
            server,
            places: Arc::new(Semaphore::new(QUEUE_LEN)),
            arrived,
            movement,
            silence: Mutex::default(),
            used: Mutex::new(runtime.now()),
            reader: runtime.spawn("rpc-answers", reading),
            writer: runtime.spawn("rpc-requests", write_requests(requests.clone(), pending.clone())),
            requests,
            pending,
        }
    }

    /// Whether calls may still go out on it.
    pub fn is_usable(&self) -> bool {
        let idle = self.runtime.now().since(*self.used.lock());
        !self.pending.is_closed()
            && (self.pending.len() > 0 || idle < IDLE_MAX)
            && self.server.check(&self.runtime).is_ok()
    }

    /// Whether a process of the server's role answers this call.
    ///
    /// # Errors
    /// `Unauthorized` if it does not: the address is of another process, or that one poses as something else.
    pub fn check_server(&self, method: Method) -> Result<()> {
        let PeerInfo { role, address, .. } = &self.server;
        if !method.servers().has(*role) {
            bail!(Unauthorized, "{address} is a {role}, and {method:?} is for a {}", method.servers());
        }
        Ok(())
    }

    /// Calls in progress.
    pub fn load(&self) -> usize {
        self.pending.len()
    }

    /// Queues a request. Fails if the connection is closed; then nothing was sent.
    ///
    /// Cancel-safety: dropping the future forgets the call.
    pub async fn send(
        &self,
        method: u16,
        draft: Draft,
        payload: Vec<Bytes>,
        deadline_ms: u32,
        departure: &Departure,
    ) -> Result<Ticket<'_>> {
        let started = self.runtime.now();
        *self.used.lock() = started;
        departure.queue(started, &self.movement);
        let (request, outcome) = self.pending.register(departure)?;
        let arrived_before = self.arrived.load(Ordering::Relaxed);
        let departure = departure.clone();
        let ticket = Ticket {
            connection: self,
            request,
            outcome,
            started,
            departure: departure.clone(),
            arrived_before,
            ended: false,
        };
        let frame = draft.seal(FrameKind::Request, method, request, deadline_ms, Body::Buffers(payload));
        let place = self.places.clone().acquire_owned().await.expect("never closed");
        self.requests.put(Waiting { request, frame, pending: self.pending.clone(), departure, place })?;
        Ok(ticket)
    }

    fn close(&self, error: &Error) {
        self.pending.close(error);
        self.requests.close(error);
        self.reader.abort();
        self.writer.abort();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close(&err!(ShuttingDown, "the connection was dropped"));
    }
}

impl Ticket<'_> {
    /// Waits for the end of the call.
    pub async fn outcome(&mut self) -> Outcome {
        let outcome = (&mut self.outcome).await;
        self.ended = true;
        outcome.unwrap_or_else(|_| Outcome::Broken(err!(Disconnected, "the connection was dropped")))
    }

    /// Records that the deadline passed. A connection on which several calls in a row passed theirs without a byte from
    /// the peer is closed. The peer may be frozen, or cut off without our kernel having noticed, and a new connection
    /// will find out. (The kernel of a frozen process still acknowledges bytes.)
    pub fn deadline_passed(mut self) {
        self.note_silence();
    }

    /// Since when the peer owes an answer.
    fn owed_since(&self) -> Moment {
        self.started.after(self.departure.held_up())
    }

    fn note_silence(&mut self) {
        self.ended = true;
        let connection = self.connection;
        let arrived = connection.arrived.load(Ordering::Relaxed);
        let mut silence = connection.silence.lock();
        if arrived != self.arrived_before {
            silence.calls = 0;
            return;
        }
        if silence.calls == 0 || silence.arrived != arrived {
            *silence = Silence { calls: 0, arrived, since: self.owed_since() };
        }
        silence.calls += 1;
        let quiet = connection.runtime.now().since(silence.since);
        if silence.calls >= SILENT_CALLS_MAX && quiet >= SILENCE_MIN {
            let calls = silence.calls;
            drop(silence);
            connection.close(&err!(
                Disconnected,
                "{calls} calls passed their deadlines without a byte from the peer in {} ms",
                quiet.as_millis()
            ));
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.connection.pending.forget(self.request);
        // A caller with a clock of its own gave up: as good a sign as a deadline, if it waited long enough.
        if !self.ended && self.connection.runtime.now().since(self.owed_since()) >= SILENCE_MIN {
            self.note_silence();
        }
    }
}

async fn write_requests(requests: Outbox<Waiting>, pending: Arc<Pending>) {
    let error = requests.run().await;
    pending.close(&error);
}

/// An arrival on a connection.
enum Arrival {
    /// An answer, or what comes before it.
    Answer,
    /// The peer takes no further request, and has answered all that it took.
    Goodbye(Error),
    End,
}

async fn read_answers(
    mut reader: FrameReader,
    requests: Outbox<Waiting>,
    pending: Arc<Pending>,
    link: Link,
    peer: String,
) {
    let error = loop {
        match read_answer(&mut reader, &pending, &link).await {
            Ok(Arrival::Answer) => {}
            Ok(Arrival::Goodbye(error)) => {
                pending.turn_away(&error);
                // The peer waits for our end of the connection to close.
                return requests.close(&error);
            }
            Ok(Arrival::End) => break err!(Disconnected, "{peer} closed the connection"),
            Err(error) => {
                if error.kind() == ebb_types::ErrorKind::Protocol {
                    tracing::warn!(%error, "close a connection on which the peer sent a malformed frame");
                }
                break err!(Disconnected, "{error}");
            }
        }
    };
    pending.close(&error);
}

/// Reads one answer and hands it over.
async fn read_answer(reader: &mut FrameReader, pending: &Pending, link: &Link) -> Result<Arrival> {
    let Some(header) = reader.header().await? else { return Ok(Arrival::End) };
    if header.kind == FrameKind::HeldUp {
        reader.skip_rest().await?;
        pending.tell_held_up(header.request, reader.movement().last());
        return Ok(Arrival::Answer);
    }
    if !matches!(header.kind, FrameKind::Reply | FrameKind::Failure) {
        bail!(Protocol, "a server sent a frame of kind {:?}", header.kind);
    }
    let (message_len, payload_len) = (header.message_len as usize, header.payload_len as usize);
    let is_goodbye = header.kind == FrameKind::Failure && header.request == GOODBYE;
    // Nothing is allocated for an answer that comes too late.
    if !is_goodbye && !pending.is_waiting(header.request) {
        reader.skip_rest().await?;
        return Ok(Arrival::Answer);
    }
    let message = reader.bytes(message_len).await?;
    let payload = reader.bytes(payload_len).await?;
    let answer = decode(&header, message, payload)?;
    if let (true, Err(error)) = (is_goodbye, &answer) {
        return Ok(Arrival::Goodbye(error.clone()));
    }
    // Ordering: counted before the caller gets the answer, so that a caller that reads the counters finds its own
    // calls.
    link.count_call();
    pending.answer(header.request, answer);
    Ok(Arrival::Answer)
}

/// The outer error is of the connection, the inner one of the call.
fn decode(header: &FrameHeader, message: Bytes, payload: Bytes) -> Result<Result<RawReply>> {
    if header.kind == FrameKind::Reply {
        return Ok(Ok(RawReply { message, payload }));
    }
    let failure = pb::Failure::decode(message).map_err(|error| err!(Protocol, "a failure does not decode: {error}"))?;
    Ok(Err(failure.into()))
}
