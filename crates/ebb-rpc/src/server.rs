//! Answers to peers.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_runtime::{File, Listener, Moment, Runtime, Stream};
use ebb_types::{Error, ErrorKind, Result, err};
use ebb_wire::{Message, Method};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::budget::{Budget, PeerKey, Quota, Share, host_of};
use crate::counters::Link;
use crate::pace::Pace;
use crate::served::{self, Common};
use crate::{Caller, Counters, Identity, PeerInfo, handshake};

/// A request as a service sees it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which call.
    pub method: Method,
    /// Encoded message; decode it with [`Request::decode`].
    pub message: Bytes,
    /// Raw bytes beside it.
    pub payload: Bytes,
    /// The caller.
    pub peer: Arc<PeerInfo>,
    /// How long the caller waits, from receipt.
    pub deadline: Duration,
    /// To tell it something before the answer.
    pub caller: Caller,
}

impl Request {
    /// The message, decoded; kind `Protocol` if it does not decode.
    pub fn decode<M: Message + Default>(&self) -> Result<M> {
        M::decode(self.message.clone())
            .map_err(|error| ebb_types::err!(Protocol, "{:?} from {}: {error}", self.method, self.peer.address))
    }
}

/// Raw bytes of an answer.
#[derive(Clone, Debug, Default)]
pub enum Payload {
    /// None.
    #[default]
    Empty,
    /// From memory, one buffer after the other, uncopied.
    Buffers(Vec<Bytes>),
    /// From files, in order, sent by the kernel where it can. A short file makes the connection break.
    Files(Vec<(File, u64, u64)>),
}

impl From<Vec<Bytes>> for Payload {
    fn from(buffers: Vec<Bytes>) -> Self {
        if buffers.is_empty() { Self::Empty } else { Self::Buffers(buffers) }
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() { Self::Empty } else { Self::Buffers(vec![bytes]) }
    }
}

/// An answer.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Encoded reply message.
    pub message: Vec<u8>,
    /// Raw bytes beside it.
    pub payload: Payload,
    /// Dropped when the answer has been written, or given up.
    pub held: Option<Arc<dyn Any + Send + Sync>>,
}

impl Answer {
    /// An answer without raw bytes.
    pub fn new(message: &impl Message) -> Self {
        Self::with(message, Payload::Empty)
    }

    /// An answer with raw bytes.
    pub fn with(message: &impl Message, payload: Payload) -> Self {
        Self { message: message.encode_to_vec(), payload, held: None }
    }

    /// The same answer. It keeps `guard` until it has been written, or given up.
    #[must_use]
    pub fn holding(self, guard: impl Any + Send + Sync) -> Self {
        Self { held: Some(Arc::new(guard)), ..self }
    }
}

/// The result of a service's method.
pub type ServiceFuture<'a> = Pin<Box<dyn Future<Output = Result<Answer>> + Send + 'a>>;

/// Something that answers requests. Each request runs as its own task.
pub trait Service: Send + Sync + 'static {
    /// Answers one request. The future is dropped when the caller's deadline has passed, so work that must not stop
    /// half-way belongs in a task of its own. A broken connection does not drop it.
    fn handle(&self, request: Request) -> ServiceFuture<'_>;

    /// An answer ended half-way because bytes of a file could not be read from its disk. The service had returned by then.
    fn note_unreadable_file(&self) {}
}

/// Bounds of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Requests in progress on one connection; more wait in the socket.
    pub requests_per_connection_max: usize,
    /// Bytes of requests and answers in memory over all connections; more wait in the sockets. Each peer has a share.
    pub memory_bytes_max: usize,
    /// Connections. Each peer has a share: at most as many as are left for all others. Further ones are closed at once.
    pub connections_max: usize,
    /// Time for the handshake.
    pub handshake_timeout: Duration,
    /// Handshakes in progress. Each address has a share; up to `STRANGERS` times as many strangers wait for their turn, and
    /// further ones are closed at once.
    pub handshakes_max: usize,
    /// A peer that neither sends the rest of a frame nor takes a byte of an answer for this long loses its connection.
    pub stall_timeout: Duration,
    /// So does one that sends a frame, or takes an answer, at a lower rate than this, `stall_timeout` not counted.
    pub bytes_per_sec_min: u64,
    /// A connection without requests for this long is closed. Callers stop using theirs well before.
    pub idle_timeout: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            requests_per_connection_max: 256,
            memory_bytes_max: 256 << 20,
            connections_max: 4096,
            handshake_timeout: Duration::from_secs(5),
            handshakes_max: 128,
            stall_timeout: Duration::from_secs(15),
            // A quarter of a link of 1 Mbit/s, for a peer has several connections.
            bytes_per_sec_min: 32 << 10,
            idle_timeout: Duration::from_secs(600),
        }
    }
}

impl ServerOptions {
    pub(crate) fn pace(&self) -> Pace {
        Pace { stall: self.stall_timeout, bytes_per_sec_min: self.bytes_per_sec_min }
    }
}

/// A listening server.
#[derive(Debug)]
pub struct Server {}

impl Server {
    /// Accepts connections on `listener` and answers their requests until the process ends.
    ///
    /// Cancel-safety: dropping the future stops accepting; connections then read no further request, answer those in
    /// progress and close. [`Server::run_until`] also waits for that.
    pub async fn run(
        runtime: Runtime,
        listener: Listener,
        identity: Identity,
        counters: Counters,
        options: ServerOptions,
        service: Arc<dyn Service>,
    ) -> Result<()> {
        let never = std::future::pending();
        Self::run_until(runtime, listener, identity, counters, options, service, never).await
    }

    /// The same until `stop` completes. Then takes no further request, answers those in progress, informs callers that
    /// it took no other, and returns, at the latest after [`DRAIN_MAX`].
    pub async fn run_until(
        runtime: Runtime,
        listener: Listener,
        identity: Identity,
        counters: Counters,
        options: ServerOptions,
        service: Arc<dyn Service>,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<()> {
        let gate = Gate::new(runtime, identity, counters, options, service);
        let ended = {
            let accepting = gate.accept(&listener);
            tokio::select! {
                biased;
                () = stop => Ok(()),
                ended = accepting => ended,
            }
        };
        drop(listener);
        gate.drain().await;
        ended
    }
}

/// Longest wait for requests in progress when a server stops.
pub const DRAIN_MAX: Duration = Duration::from_secs(5);
/// Pause when no connection can be accepted for lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// For each handshake in progress so many connections may be open that have not proved themselves.
const STRANGERS: usize = 8;
/// Connections that a peer has as long as there are any: those of one client to a server.
const CONNECTIONS_GUARANTEED: usize = 8;
/// Refused strangers are logged at most this often.
const REFUSAL_LOG_PAUSE: Duration = Duration::from_secs(1);

/// Lets peers in that prove themselves.
struct Gate {
    entrance: Arc<Entrance>,
    stop: watch::Sender<bool>,
}

struct Entrance {
    common: Arc<Common>,
    identity: Identity,
    counters: Counters,
    /// Of addresses whose peers have not proved themselves: sockets, and those of them whose turn has come.
    strangers: Quota<String>,
    handshakes: Quota<String>,
    connections: Quota<PeerKey>,
    refusals: Mutex<Refusals>,
}

/// Strangers refused since the last log line about them.
#[derive(Default)]
struct Refusals {
    quiet_until: Moment,
    unlogged: u64,
}

impl Gate {
    fn new(
        runtime: Runtime,
        identity: Identity,
        counters: Counters,
        options: ServerOptions,
        service: Arc<dyn Service>,
    ) -> Self {
        identity.assert_fits(&runtime);
        let memory = Budget::new(options.memory_bytes_max, served::FRAME_BYTES_MAX);
        let strangers = Quota::new(STRANGERS * options.handshakes_max.max(1), 1);
        let handshakes = Quota::new(options.handshakes_max.max(1), 1);
        let connections = Quota::new(options.connections_max, CONNECTIONS_GUARANTEED);
        let common = Arc::new(Common { runtime, service, options, memory });
        let refusals = Mutex::default();
        let entrance = Entrance { common, identity, counters, strangers, handshakes, connections, refusals };
        Self { entrance: Arc::new(entrance), stop: watch::Sender::new(false) }
    }

    async fn accept(&self, listener: &Listener) -> Result<()> {
        let runtime = &self.entrance.common.runtime;
        loop {
            match listener.accept().await {
                Ok(stream) => {
                    let address = host_of(&stream.peer).to_owned();
                    let Some(place) = self.entrance.strangers.try_take(&address, 1) else {
                        let (waiting, _) = self.entrance.strangers.held_and_free(&address);
                        let full =
                            err!(Overloaded, "{waiting} connections of {address} have not proved themselves yet");
                        self.entrance.log_refusal(&stream.peer, &full);
                        continue;
                    };
                    let entering = self.entrance.clone().enter(stream, place, self.stop.subscribe());
                    runtime.spawn("rpc-connection", entering);
                }
                Err(error) if error.kind() == ErrorKind::ShuttingDown => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "wait before accepting again");
                    runtime.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn drain(self) {
        self.stop.send_replace(true);
        // Each connection's task holds a receiver until it has ended.
        tokio::select! {
            biased;
            () = self.stop.closed() => {}
            () = self.entrance.common.runtime.sleep(DRAIN_MAX) => {
                tracing::warn!("end with requests in progress after {} s", DRAIN_MAX.as_secs());
            }
        }
    }
}

impl Entrance {
    /// Life of one connection.
    async fn enter(self: Arc<Self>, stream: Stream, place: Share<String>, stop: watch::Receiver<bool>) {
        let address = stream.peer.clone();
        let met = tokio::select! {
            biased;
            () = served::stopped(stop.clone()) => return,
            met = self.meet(stream) => met,
        };
        drop(place);
        match met {
            Ok((peer, _connection, stream)) => {
                let link = Link::new(&self.counters, &self.identity.host, &peer.host);
                served::serve(self.common.clone(), stream, Arc::new(peer), link, stop).await;
            }
            Err(error) => self.log_refusal(&address, &error),
        }
    }

    async fn meet(&self, stream: Stream) -> Result<(PeerInfo, Share<PeerKey>, Stream)> {
        let common = &self.common;
        let _turn = self.handshakes.take_units(&host_of(&stream.peer).to_owned(), 1).await;
        let admit = |peer: &PeerInfo| {
            let key = PeerKey::of(peer);
            self.connections.try_take(&key, 1).ok_or_else(|| {
                let ((held, free), most) = (self.connections.held_and_free(&key), common.options.connections_max);
                err!(
                    Overloaded,
                    "host {} has {held} of the server's {most} connections, {free} are left for all",
                    peer.host
                )
            })
        };
        let handshake = handshake::receive(&common.runtime, stream, &self.identity, &self.counters, admit);
        tokio::select! {
            biased;
            met = handshake => met,
            () = common.runtime.sleep(common.options.handshake_timeout) => {
                Err(err!(Timeout, "no handshake within {} ms", common.options.handshake_timeout.as_millis()))
            }
        }
    }

    fn log_refusal(&self, address: &str, error: &Error) {
        let now = self.common.runtime.now();
        let mut refusals = self.refusals.lock();
        if now < refusals.quiet_until {
            refusals.unlogged += 1;
            return;
        }
        let unlogged = std::mem::take(&mut refusals.unlogged);
        refusals.quiet_until = now.after(REFUSAL_LOG_PAUSE);
        drop(refusals);
        tracing::warn!(%error, peer = address, others_not_told = unlogged, "refuse a connection");
    }
}
