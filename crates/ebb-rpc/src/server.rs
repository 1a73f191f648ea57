//! Answers to peers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_runtime::{File, Listener, Runtime};
use ebb_types::Result;
use ebb_wire::{Message, Method};

use crate::{Counters, Identity, PeerInfo};

/// A request as a service sees it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which call.
    pub method: Method,
    /// Encoded message; decode it with [`Request::decode`].
    pub message: Bytes,
    /// Raw bytes beside it.
    pub payload: Bytes,
    /// Who asks.
    pub peer: Arc<PeerInfo>,
    /// How long the caller waits, from receipt.
    pub deadline: Duration,
}

impl Request {
    /// The message, decoded; kind `Protocol` if it does not decode.
    pub fn decode<M: Message + Default>(&self) -> Result<M> {
        M::decode(self.message.clone()).map_err(|error| {
            ebb_types::err!(Protocol, "{:?} from {}: {error}", self.method, self.peer.address)
        })
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

/// An answer.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Encoded reply message.
    pub message: Vec<u8>,
    /// Raw bytes beside it.
    pub payload: Payload,
}

impl Answer {
    /// An answer without raw bytes.
    pub fn new(message: &impl Message) -> Self {
        Self { message: message.encode_to_vec(), payload: Payload::Empty }
    }

    /// An answer with raw bytes.
    pub fn with(message: &impl Message, payload: Payload) -> Self {
        Self { message: message.encode_to_vec(), payload }
    }
}

/// What a service's method returns.
pub type ServiceFuture<'a> = Pin<Box<dyn Future<Output = Result<Answer>> + Send + 'a>>;

/// Something that answers requests. Each request runs as its own task.
pub trait Service: Send + Sync + 'static {
    /// Answers one request. The future is dropped when the caller's deadline has passed, so work that must not stop
    /// half-way belongs in a task of its own.
    fn handle(&self, request: Request) -> ServiceFuture<'_>;
}

/// Bounds of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Requests in progress on one connection; more wait in the socket.
    pub requests_per_connection_max: usize,
    /// Bytes of requests and answers in memory over all connections; more wait in the sockets.
    pub memory_bytes_max: usize,
    /// Connections; further ones are closed at once.
    pub connections_max: usize,
    /// Time for the handshake.
    pub handshake_timeout: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            requests_per_connection_max: 256,
            memory_bytes_max: 256 << 20,
            connections_max: 4096,
            handshake_timeout: Duration::from_secs(5),
        }
    }
}

/// A listening server.
#[derive(Debug)]
pub struct Server {}

impl Server {
    /// Accepts connections on `listener` and answers their requests until the process ends.
    pub async fn run(
        _runtime: Runtime,
        _listener: Listener,
        _identity: Identity,
        _counters: Counters,
        _options: ServerOptions,
        _service: Arc<dyn Service>,
    ) -> Result<()> {
        unreachable!()
    }
}
