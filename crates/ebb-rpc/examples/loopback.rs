//! Measures calls over loopback: latency of small calls, calls per second, and bytes per second of 1 MiB payloads from
//! memory, from a file in the page cache, and towards the server.
//!
//! `cargo run -p ebb-rpc --example loopback -- /tmp/payload` (the file is made).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_rpc::{
    Answer, Channel, Connector, Counters, Identity, Payload, Request, Secret, Server, ServerOptions, Service,
    ServiceFuture,
};
use ebb_runtime::{File, OpenMode, Runtime};
use ebb_types::{ClusterId, HostName, Result};
use ebb_wire::{Method, pb};

const BLOCK: usize = 1 << 20;
const DEADLINE: Duration = Duration::from_secs(20);

struct Target {
    block: Bytes,
    file: File,
}

impl Service for Target {
    fn handle(&self, request: Request) -> ServiceFuture<'_> {
        Box::pin(async move {
            if request.method != Method::ReadReplica {
                return Ok(Answer::new(&pb::WriteReplicaReply::default()));
            }
            let read: pb::ReadReplica = request.decode()?;
            let payload = match read.volume {
                0 => Payload::Empty,
                1 => Payload::Buffers(vec![self.block.clone()]),
                _ => Payload::Files(vec![(self.file.clone(), 0, BLOCK as u64)]),
            };
            Ok(Answer::with(&pb::ReadReplicaReply::default(), payload))
        })
    }
}

fn main() -> Result<()> {
    let tokio = tokio::runtime::Runtime::new().expect("a tokio runtime");
    tokio.block_on(measure())
}

async fn measure() -> Result<()> {
    let runtime = Runtime::real();
    let path = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "/tmp/ebb-loopback".to_owned()));
    let file = runtime.disk().open(&path, OpenMode::Create).await?;
    let block = Bytes::from(vec![7; BLOCK]);
    file.write_at(0, vec![block.clone()]).await?;
    let identity = Identity {
        cluster: ClusterId::new(1),
        secret: Secret::new([1; 32]),
        host: HostName::new("h1"),
        role: "measure".to_owned(),
    };
    let listener = runtime.listen("127.0.0.1:0").await?;
    let address = listener.address();
    let service = Arc::new(Target { block: block.clone(), file });
    let (counters, options) = (Counters::default(), ServerOptions::default());
    runtime.spawn("server", Server::run(runtime.clone(), listener, identity.clone(), counters, options, service));
    let channel = Connector::new(runtime.clone(), identity, Counters::default()).channel(&address);

    let read = |volume| pb::ReadReplica { volume, ..Default::default() };
    let small = move |channel: Channel| async move { channel.call(&read(0), DEADLINE).await.map(|_| ()) };
    let memory = move |channel: Channel| async move { channel.call_with(&read(1), vec![], DEADLINE).await.map(|_| ()) };
    let from_file =
        move |channel: Channel| async move { channel.call_with(&read(2), vec![], DEADLINE).await.map(|_| ()) };
    let write = move |channel: Channel| {
        let block = block.clone();
        async move { channel.call_with(&pb::WriteReplica::default(), vec![block], DEADLINE).await.map(|_| ()) }
    };
    for side_by_side in [1, 64] {
        let rate = run(&runtime, &channel, 20_000, side_by_side, small).await?;
        let latency = 1e6 / rate * side_by_side as f64;
        println!("small calls, {side_by_side} at once: {rate:.0} per second, {latency:.1} us each");
    }
    for side_by_side in [1, 4, 8] {
        let rates = [
            run(&runtime, &channel, 3000, side_by_side, memory).await?,
            run(&runtime, &channel, 3000, side_by_side, from_file).await?,
            run(&runtime, &channel, 3000, side_by_side, write.clone()).await?,
        ];
        let [memory, file, write] = rates.map(|rate| rate / 1024.0);
        println!("1 MiB, {side_by_side} at once: memory {memory:.2}, file {file:.2}, write {write:.2} GiB/s");
    }
    Ok(())
}

/// Calls per second.
async fn run<F: Future<Output = Result<()>> + Send>(
    runtime: &Runtime,
    channel: &Channel,
    count: usize,
    side_by_side: usize,
    call: impl Fn(Channel) -> F + Send + Sync + Clone + 'static,
) -> Result<f64> {
    let started = runtime.now();
    let workers: Vec<_> = (0..side_by_side)
        .map(|_| {
            let (channel, call) = (channel.clone(), call.clone());
            runtime.spawn("caller", async move {
                for _ in 0..count / side_by_side {
                    call(channel.clone()).await?;
                }
                Ok::<(), ebb_types::Error>(())
            })
        })
        .collect();
    for worker in workers {
        worker.join().await??;
    }
    Ok(count as f64 / runtime.now().since(started).as_secs_f64())
}
