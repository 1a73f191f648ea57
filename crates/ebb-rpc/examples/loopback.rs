//! Measures calls over loopback: latency of small calls, calls per second, and bytes per second of 1 MiB payloads from
//! memory, from a file in the page cache, and towards the server; encrypted, and plain.
//!
//! `cargo run -p ebb-rpc --example loopback -- /tmp/payload` (the file is made).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ebb_identity::tls::Wire;
use ebb_identity::{Authority, Subject};
use ebb_rpc::{
    Answer, Channel, Connector, Counters, Identity, Payload, Request, Server, ServerOptions, Service, ServiceFuture,
};
use ebb_runtime::{File, OpenMode, Runtime};
use ebb_types::{ClusterId, HostName, Result, Role};
use ebb_wire::{Method, pb};
use rustix::time::{ClockId, clock_gettime};

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
    for wire in [Wire::Plain, Wire::Encrypted, Wire::Plain, Wire::Encrypted] {
        println!("{wire:?}");
        tokio.block_on(measure(wire))?;
    }
    Ok(())
}

async fn measure(wire: Wire) -> Result<()> {
    let runtime = Runtime::real();
    let path = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "/tmp/ebb-loopback".to_owned()));
    let file = runtime.disk().open(&path, OpenMode::Create).await?;
    let block = Bytes::from(vec![7; BLOCK]);
    file.write_at(0, vec![block.clone()]).await?;
    let (cluster, host) = (ClusterId::new(1), HostName::new("h1"));
    let authority = Authority::create(cluster, runtime.wall())?;
    let certified = |role| Identity::issued(&authority, &runtime, &Subject::process(cluster, role, host.clone()), wire);
    let identity = certified(Role::Block)?;
    let listener = runtime.listen("127.0.0.1:0").await?;
    let address = listener.address();
    let service = Arc::new(Target { block: block.clone(), file });
    let (counters, options) = (Counters::default(), ServerOptions::default());
    runtime.spawn("server", Server::run(runtime.clone(), listener, identity, counters, options, service));
    let channel = Connector::new(runtime.clone(), certified(Role::Mount)?, Counters::default()).channel(&address);

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
        let Measured { rate, cpu } = run(&runtime, &channel, 20_000, side_by_side, small).await?;
        let latency = 1e6 / rate * side_by_side as f64;
        let cpu = cpu * 1e6;
        println!(
            "small calls, {side_by_side} at once: {rate:.0} per second, {latency:.1} us each, {cpu:.1} us of processor"
        );
    }
    for side_by_side in [1, 4, 8] {
        let rates = [
            run(&runtime, &channel, 3000, side_by_side, memory).await?,
            run(&runtime, &channel, 3000, side_by_side, from_file).await?,
            run(&runtime, &channel, 3000, side_by_side, write.clone()).await?,
        ];
        let [memory, file, write] =
            rates.map(|Measured { rate, cpu }| format!("{:.2} GiB/s at {:.2} CPU-s", rate / 1024.0, cpu * 1024.0));
        println!("1 MiB, {side_by_side} at once: memory {memory}, file {file}, write {write}");
    }
    Ok(())
}

struct Measured {
    /// Calls per second.
    rate: f64,
    /// Processor seconds of both sides for each call.
    cpu: f64,
}

fn processor_time() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

async fn run<F: Future<Output = Result<()>> + Send>(
    runtime: &Runtime,
    channel: &Channel,
    count: usize,
    side_by_side: usize,
    call: impl Fn(Channel) -> F + Send + Sync + Clone + 'static,
) -> Result<Measured> {
    let (started, spent) = (runtime.now(), processor_time());
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
    let rate = count as f64 / runtime.now().since(started).as_secs_f64();
    Ok(Measured { rate, cpu: (processor_time() - spent) / count as f64 })
}
