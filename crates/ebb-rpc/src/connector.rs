//! Calls to peers.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use ebb_runtime::{Moment, Runtime};
use ebb_types::{Error, Result, err};
use ebb_wire::{Call, Message};
use parking_lot::Mutex;

use crate::departure::{Departure, when_due};
use crate::lane::{Lane, Origin};
use crate::pending::{Outcome, RawReply};
use crate::writer::{Draft, check_payload_len};
use crate::{Counters, Identity, PeerInfo};

/// Calls with more bytes than this, there or back, keep off the connection for small ones.
pub const SMALL_CALL_MAX: usize = 64 << 10;
/// Connections for big calls to one address.
const BULK_LANES: usize = 2;
/// Times that a request which was not taken is tried on a new connection.
const SENDS_MAX: u32 = 3;
/// Number of remembered peers above which unused ones are forgotten.
const PEERS_SOFT_MAX: usize = 256;

/// A good answer.
#[derive(Clone, Debug)]
pub struct Response<M> {
    /// The message.
    pub message: M,
    /// Raw bytes beside it.
    pub payload: Bytes,
}

/// Connections of this process to its peers, made when needed: for each address one for small calls and up to two for
/// big ones, so that a heartbeat does not wait behind megabytes. Cheap to clone; the connections close with the last
/// clone and the last [`Channel`].
#[derive(Clone, Debug)]
pub struct Connector {
    origin: Arc<Origin>,
    peers: Arc<Mutex<BTreeMap<String, Channel>>>,
}

impl Connector {
    /// A connector that presents `identity`.
    ///
    /// # Panics
    /// If it has no certificate outside of a virtual world.
    #[must_use]
    pub fn new(runtime: Runtime, identity: Identity, counters: Counters) -> Self {
        identity.assert_fits(&runtime);
        Self { origin: Arc::new(Origin { runtime, identity, counters }), peers: Arc::default() }
    }

    /// The channel to `address`; connects at the first call and again after a break.
    #[must_use]
    pub fn channel(&self, address: &str) -> Channel {
        let mut peers = self.peers.lock();
        if let Some(channel) = peers.get(address) {
            return channel.clone();
        }
        if peers.len() >= PEERS_SOFT_MAX {
            peers.retain(|_, channel| Arc::strong_count(&channel.peer) > 1 || !channel.peer.is_idle());
        }
        let channel = Channel { peer: Arc::new(Peer::new(self.origin.clone(), address)) };
        peers.insert(address.to_owned(), channel.clone());
        channel
    }

    /// The traffic of its connections.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.origin.counters
    }

    /// Where it runs.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.origin.runtime
    }

    /// The identity that this process declares.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.origin.identity
    }
}

#[derive(Debug)]
struct Peer {
    origin: Arc<Origin>,
    address: Arc<str>,
    small: Lane,
    bulk: [Lane; BULK_LANES],
}

impl Peer {
    fn new(origin: Arc<Origin>, address: &str) -> Self {
        let address: Arc<str> = address.into();
        let lane = || Lane::new(origin.clone(), address.clone());
        Self { small: lane(), bulk: std::array::from_fn(|_| lane()), origin: origin.clone(), address }
    }

    fn is_idle(&self) -> bool {
        self.small.is_idle() && self.bulk.iter().all(Lane::is_idle)
    }

    /// The lane for a call that carries about `bytes`, there or back.
    fn lane(&self, bytes: usize, stream: Option<u64>) -> &Lane {
        if bytes <= SMALL_CALL_MAX {
            return &self.small;
        }
        if let Some(stream) = stream {
            // On another lane a call could come before the one that it waits for, by as much as the lanes' queues differ.
            return &self.bulk[(stream % BULK_LANES as u64) as usize];
        }
        // The first of the least loaded: the second one is dialed only when the first is busy.
        self.bulk.iter().min_by_key(|lane| lane.load()).expect("there is at least one")
    }
}

/// A request that is to be sent, perhaps more than once.
struct Outbound<'a> {
    draft: Draft,
    payload: Vec<Bytes>,
    /// That it carries, there or back.
    bytes: usize,
    /// Those of one stream go out in the order in which they were begun.
    stream: Option<u64>,
    deadline: Duration,
    departure: &'a Departure,
}

/// Calls to one peer. Cheap to clone; calls run side by side.
#[derive(Clone, Debug)]
pub struct Channel {
    peer: Arc<Peer>,
}

impl Channel {
    /// Where it leads.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.peer.address
    }

    /// Connects, if there is no connection, and says who answers.
    ///
    /// # Errors
    /// `Unreachable` or `Unauthorized`.
    pub async fn meet(&self) -> Result<PeerInfo> {
        self.peer.small.connection().await.map(|connection| connection.server().clone())
    }

    /// Sends a request and waits for its answer for at most `deadline`. Time in front of a slow link does not count as long
    /// as bytes leave. Dropping the future forgets the call.
    ///
    /// Besides the service's own errors: `Unreachable` and `Unauthorized` (nothing was done), `Disconnected` and
    /// `Timeout` (it may have been done), `Protocol` (the answer does not decode).
    pub async fn call<C: Call>(&self, message: &C, deadline: Duration) -> Result<C::Reply> {
        self.call_sized(message, Vec::new(), 0, deadline).await.map(|response| response.message)
    }

    /// A call with raw bytes in the request, the answer, or both. The buffers go out one after the other, uncopied.
    /// If the request has none, many are expected in the answer.
    pub async fn call_with<C: Call>(
        &self,
        message: &C,
        payload: Vec<Bytes>,
        deadline: Duration,
    ) -> Result<Response<C::Reply>> {
        let answer_bytes = if payload.is_empty() { usize::MAX } else { 0 };
        self.call_sized(message, payload, answer_bytes, deadline).await
    }

    /// As [`Self::call_with`], for a caller that knows about how many raw bytes the answer has: small exchanges then do
    /// not queue behind big ones.
    pub async fn call_sized<C: Call>(
        &self,
        message: &C,
        payload: Vec<Bytes>,
        answer_bytes: usize,
        deadline: Duration,
    ) -> Result<Response<C::Reply>> {
        self.call_observed(message, payload, answer_bytes, deadline, &Departure::default()).await
    }

    /// As [`Self::call_sized`], for a caller that judges the peer by the time that it takes: `departure` tells how much of
    /// it was spent in front of the link.
    pub async fn call_observed<C: Call>(
        &self,
        message: &C,
        payload: Vec<Bytes>,
        answer_bytes: usize,
        deadline: Duration,
        departure: &Departure,
    ) -> Result<Response<C::Reply>> {
        check_payload_len(payload.iter().map(|buffer| buffer.len() as u64).sum())?;
        let draft = Draft::encode(message)?;
        let bytes = payload.iter().map(Bytes::len).sum::<usize>().max(answer_bytes).max(draft.len());
        let request = Outbound { draft, payload, bytes, stream: message.stream(), deadline, departure };
        let reply = self.exchange::<C>(&request).await?;
        Ok(Response { message: self.decode::<C>(reply.message)?, payload: reply.payload })
    }

    fn decode<C: Call>(&self, message: Bytes) -> Result<C::Reply> {
        C::Reply::decode(message)
            .map_err(|error| err!(Protocol, "answer of {} to {:?} does not decode: {error}", self.address(), C::METHOD))
    }

    async fn exchange<C: Call>(&self, request: &Outbound<'_>) -> Result<RawReply> {
        let end = self.peer.origin.runtime.now().after(request.deadline);
        let mut sends = 0;
        loop {
            sends += 1;
            match self.attempt::<C>(request, end).await {
                Outcome::Answered(answer) => return answer,
                Outcome::Broken(error) => return Err(error.context(format_args!("{:?}", C::METHOD))),
                // The connection turned out to be gone when the request was about to be written, or the server ends.
                Outcome::NotTaken(_) if sends < SENDS_MAX => {}
                Outcome::NotTaken(error) => return Err(err!(Unreachable, "{}: {error}", self.address())),
            }
        }
    }

    /// Sends the request once, on a connection that stands or can be made, and waits.
    async fn attempt<C: Call>(&self, request: &Outbound<'_>, end: Moment) -> Outcome {
        let runtime = &self.peer.origin.runtime;
        let lane = self.peer.lane(request.bytes, request.stream);
        // The call ends later by the time that links held it up.
        let mut timer = std::pin::pin!(when_due(runtime, || end.after(request.departure.held_up())));
        let connected = async {
            let turn = match request.stream {
                Some(_) => Some(lane.turn().await),
                None => None,
            };
            lane.connection().await.map(|connection| (turn, connection))
        };
        let (turn, connection) = tokio::select! {
            biased;
            connected = connected => match connected {
                Ok(connected) => connected,
                Err(error) => return Outcome::Answered(Err(error)),
            },
            () = &mut timer => return Outcome::Answered(Err(self.not_connected(request.deadline))),
        };
        if let Err(error) = connection.check_server(C::METHOD) {
            return Outcome::Answered(Err(error));
        }
        let left_ms = u32::try_from(end.since(runtime.now()).as_millis()).unwrap_or(u32::MAX).max(1);
        let (draft, payload) = (request.draft.clone(), request.payload.clone());
        let mut sending = std::pin::pin!(connection.send(C::METHOD as u16, draft, payload, left_ms, request.departure));
        let begun = poll_fn(|context| Poll::Ready(sending.as_mut().poll(context))).await;
        // It has its place in the connection's queue: the next one may follow.
        drop(turn);
        let sent = match begun {
            Poll::Ready(sent) => sent,
            Poll::Pending => tokio::select! {
                biased;
                sent = sending => sent,
                () = &mut timer => return Outcome::Answered(Err(self.late::<C>(request))),
            },
        };
        let mut ticket = match sent {
            Ok(ticket) => ticket,
            Err(error) => return Outcome::NotTaken(error),
        };
        tokio::select! {
            biased;
            outcome = ticket.outcome() => outcome,
            () = &mut timer => {
                ticket.deadline_passed();
                Outcome::Answered(Err(self.late::<C>(request)))
            }
        }
    }

    fn late<C: Call>(&self, request: &Outbound<'_>) -> Error {
        let link = match request.departure.held_up().as_millis() {
            0 => String::new(),
            held_up => format!(", beyond {held_up} ms in front of the link"),
        };
        let waited = request.deadline.as_millis();
        err!(Timeout, "{:?} to {}: no answer within {waited} ms{link}", C::METHOD, self.address())
    }

    fn not_connected(&self, deadline: Duration) -> Error {
        err!(Unreachable, "{}: no connection within {} ms", self.address(), deadline.as_millis())
    }
}
