//! Parts that the other tests share: worlds, a service to call, and a relay that breaks connections on purpose.

/// A test of `fn name(runtime)` on Linux and one in virtual worlds of a few seeds.
macro_rules! both {
    ($name:ident) => {
        mod $name {
            #[test]
            fn real() {
                super::real(super::$name);
            }

            #[test]
            fn virtual_world() {
                super::virt(super::$name);
            }
        }
    };
}

mod calls;
mod faults;
mod greedy;
mod hostile;
mod outbox;
mod payloads;
mod relay;
mod stops;
mod trust;
mod worlds;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ebb_identity::tls::Wire;
use ebb_identity::{Authority, Holder, Subject};
use ebb_runtime::Runtime;
use ebb_runtime::virt::{World, WorldOptions};
use ebb_types::{ClusterId, HostName, Result, Role, bail};
use ebb_wire::{Method, pb};

pub use crate::testing::{CLUSTER, authority, certified as identity};
use crate::{
    Answer, Channel, Connector, Counters, Identity, Payload, Proof, Request, Server, ServerOptions, Service,
    ServiceFuture,
};

pub const LONG: Duration = Duration::from_secs(20);

/// Runs a test on Linux.
pub fn real<F: Future<Output = ()>>(test: impl FnOnce(Runtime) -> F) {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(async { test(Runtime::real()).await });
}

/// Runs a test in a process of a virtual world, for a few seeds.
pub fn virt<F: Future<Output = ()>>(test: impl Fn(Runtime) -> F) {
    for seed in 0..3 {
        World::run(seed, WorldOptions::default(), |world| {
            let process = world.process("h1");
            let test = &test;
            async move { test(process.runtime()).await }
        });
    }
}

/// A certified process. Both worlds check certificates by the real clock.
pub fn certified_by(authority: &Authority, subject: &Subject, wire: Wire) -> Identity {
    Identity::issued(authority, &Runtime::real(), subject, wire).unwrap()
}

/// A process that is what it says, for virtual worlds: keys are random, and so is the length of a handshake with them.
pub fn by_word(host: &str, role: Role) -> Identity {
    Identity::by_word(CLUSTER, host, role)
}

/// A service whose calls do what tests need:
/// - `Counters`: answers at once.
/// - `WriteReplica`: answers with the payload's length as sequence number, after `length` milliseconds. Until then it tells every
///   200 ms that it is held up, at most `offset` times.
/// - `ReadReplica`: a payload comes back as it is; without one, `length` bytes of [`pattern`] from `offset`.
/// - `SeekReplica`: answers after `offset` milliseconds.
/// - `SyncReplicas`: refuses.
/// - `ShortCircuitTicket`: panics.
#[derive(Debug)]
pub struct Echo {
    runtime: Runtime,
    pub running: AtomicUsize,
    pub dropped: AtomicUsize,
    pub answered: AtomicUsize,
}

impl Echo {
    pub fn new(runtime: &Runtime) -> Arc<Self> {
        let count = AtomicUsize::default;
        Arc::new(Self { runtime: runtime.clone(), running: count(), dropped: count(), answered: count() })
    }

    async fn hold_up(&self, request: &Request) -> Result<()> {
        let message: pb::WriteReplica = request.decode()?;
        let tell = async {
            for _ in 0..message.offset {
                self.runtime.sleep(Duration::from_millis(200)).await;
                request.caller.tell_held_up();
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            () = self.runtime.sleep(Duration::from_millis(message.length)) => Ok(()),
            () = tell => Ok(()),
        }
    }

    async fn answer(&self, request: Request) -> Result<Answer> {
        match request.method {
            Method::Counters => Ok(Answer::new(&pb::CountersReply { calls: 1, ..Default::default() })),
            Method::WriteReplica => {
                self.hold_up(&request).await?;
                let version = pb::Version { epoch: 1, seq: request.payload.len() as u64 };
                let result = pb::MemberResult { received: Some(version), ..Default::default() };
                Ok(Answer::new(&pb::WriteReplicaReply { results: vec![result] }))
            }
            Method::ReadReplica => {
                let message: pb::ReadReplica = request.decode()?;
                let payload = if request.payload.is_empty() {
                    pattern(message.offset, message.length as usize)
                } else {
                    request.payload
                };
                let reply = pb::ReadReplicaReply { length: payload.len() as u64, ..Default::default() };
                Ok(Answer::with(&reply, Payload::Buffers(vec![payload])))
            }
            Method::SeekReplica => {
                let message: pb::SeekReplica = request.decode()?;
                self.runtime.sleep(Duration::from_millis(message.offset)).await;
                Ok(Answer::new(&pb::SeekReplicaReply::default()))
            }
            Method::SyncReplicas => bail!(NotLeader, "ask m2"),
            Method::ShortCircuitTicket => panic!("a bug in a service"),
            other => bail!(Unsupported, "{other:?}"),
        }
    }
}

impl Service for Echo {
    fn handle(&self, request: Request) -> ServiceFuture<'_> {
        struct Running<'a>(&'a Echo, bool);
        impl Drop for Running<'_> {
            fn drop(&mut self) {
                self.0.running.fetch_sub(1, Ordering::SeqCst);
                let count = if self.1 { &self.0.answered } else { &self.0.dropped };
                count.fetch_add(1, Ordering::SeqCst);
            }
        }
        Box::pin(async move {
            self.running.fetch_add(1, Ordering::SeqCst);
            let mut running = Running(self, false);
            let answer = self.answer(request).await;
            running.1 = true;
            answer
        })
    }
}

/// Bytes that show their offset.
pub fn pattern(offset: u64, len: usize) -> Bytes {
    (offset..offset + len as u64).map(|at| (at % 251) as u8).collect::<Vec<_>>().into()
}

pub struct Site {
    pub address: String,
    pub counters: Counters,
    pub echo: Arc<Echo>,
}

/// A server of [`Echo`] on host `h1`.
pub async fn serve(runtime: &Runtime, options: ServerOptions) -> Site {
    let echo = Echo::new(runtime);
    serve_with(runtime, options, identity("h1", Role::Block), echo.clone(), echo).await
}

pub async fn serve_with(
    runtime: &Runtime,
    options: ServerOptions,
    identity: Identity,
    service: Arc<dyn Service>,
    echo: Arc<Echo>,
) -> Site {
    let listener = runtime.listen("127.0.0.1:0").await.unwrap();
    let address = listener.address();
    let counters = Counters::default();
    let running = Server::run(runtime.clone(), listener, identity, counters.clone(), options, service);
    runtime.spawn("server", running);
    Site { address, counters, echo }
}

pub fn connector(runtime: &Runtime, host: &str) -> Connector {
    Connector::new(runtime.clone(), identity(host, Role::Mount), Counters::default())
}

/// For a server that is [`by_word`].
pub fn connector_by_word(runtime: &Runtime, host: &str) -> Connector {
    Connector::new(runtime.clone(), by_word(host, Role::Mount), Counters::default())
}

pub async fn small_call(channel: &Channel, deadline: Duration) -> Result<pb::CountersReply> {
    channel.call(&pb::Counters {}, deadline).await
}

pub async fn slow_call(channel: &Channel, millis: u64, deadline: Duration) -> Result<pb::SeekReplicaReply> {
    channel.call(&pb::SeekReplica { offset: millis, ..Default::default() }, deadline).await
}

/// Waits until `condition` holds; a test that waits in vain fails with `event`.
pub async fn eventually(runtime: &Runtime, event: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if condition() {
            return;
        }
        runtime.sleep(Duration::from_millis(5)).await;
    }
    panic!("in vain: {event}");
}
