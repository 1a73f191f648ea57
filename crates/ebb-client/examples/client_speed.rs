//! Throughput of a client with a master and three block servers on loopback, all in one process.
//!
//! `cargo run -p ebb-client --example client_speed [MiB] [files]`
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::sync::OnceLock;
use std::time::Instant;

use bytes::Bytes;
use ebb_block::{BlockOptions, BlockServer};
use ebb_client::{Access, Client, ClientOptions, Created, NewFile};
use ebb_identity::tls::Wire;
use ebb_identity::{Authority, Subject};
use ebb_master::{Master, Options};
use ebb_rpc::{Connector, Counters, Identity};
use ebb_runtime::Runtime;
use ebb_types::{ClusterId, Credentials, HostName, InodeId, RackName, Result, Role};

fn identity(host: &str, role: Role) -> Identity {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    let (cluster, runtime) = (ClusterId::new(7), Runtime::real());
    let authority = AUTHORITY.get_or_init(|| Authority::create(cluster, runtime.wall()).expect("random bytes"));
    let subject = Subject::process(cluster, role, HostName::new(host));
    Identity::issued(authority, &runtime, &subject, Wire::Encrypted).expect("a plain host")
}

async fn client(runtime: &Runtime, master: &str, host: &str) -> Result<Client> {
    let connector = Connector::new(runtime.clone(), identity(host, Role::Mount), Counters::default());
    let options = ClientOptions::new(vec![master.to_owned()], HostName::new(host), "measure");
    Client::connect(runtime.clone(), connector, options).await
}

/// Processor time of this process, with all roles in it, in seconds (proc_pid_stat(5), in ticks of 10 ms).
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Reads a file in pieces, from its start or jumping about; returns seconds and processor seconds.
async fn read_all(client: &Client, inode: InodeId, mebibytes: u64, piece: u64, jumping: bool) -> Result<(f64, f64)> {
    let (reader, _) = client.open(&Credentials::root(), inode, Access::Read).await?;
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    let pieces = (mebibytes << 20) / piece;
    for number in 0..pieces {
        // An odd step visits each of a power of two once.
        let place = if jumping { number.wrapping_mul(0x9e37_79b1) % pieces } else { number };
        client.read(reader, place * piece, piece as u32).await?;
    }
    client.close(reader).await;
    Ok((begun.elapsed().as_secs_f64(), cpu_seconds() - cpu))
}

async fn measure(mebibytes: u64, files: u64) -> Result<()> {
    let runtime = Runtime::real();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let options = Options::new(dir.path().join("master"), "127.0.0.1:0", identity("master", Role::Master));
    let master = Master::start(runtime.clone(), options).await?;
    let mut servers = Vec::new();
    for number in 0..3 {
        let host = format!("h{number}");
        let mut options =
            BlockOptions::new(dir.path().join(&host), identity(&host, Role::Block), vec![master.address().to_owned()]);
        options.rack = RackName::new("r");
        servers.push(BlockServer::start(runtime.clone(), options).await?);
    }
    runtime.sleep(std::time::Duration::from_secs(2)).await;
    let root = Credentials::root();
    let one = client(&runtime, master.address(), "client").await?;
    let Created { handle, attr, .. } =
        one.create(&root, NewFile::exclusive(InodeId::ROOT, b"big", Access::ReadWrite)).await?;
    let block: Bytes =
        (0..1u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect::<Vec<_>>().into();
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    for at in 0..mebibytes {
        one.write(handle, at << 20, block.clone()).await?;
    }
    one.fsync(handle).await?;
    let write = begun.elapsed().as_secs_f64();
    let per_gib = |seconds: f64| seconds * 1024.0 / mebibytes as f64;
    println!(
        "write and fsync, 3 copies: {:.0} MiB/s, {:.2} CPU seconds for each GiB",
        mebibytes as f64 / write,
        per_gib(cpu_seconds() - cpu)
    );

    for (order, jumping) in [("one after the other", false), ("jumping about", true)] {
        for (how, host) in [("over the network", "client"), ("from the file of the own host's server", "h0")] {
            // A client of its own each time: nothing is in its memory.
            let reader = client(&runtime, master.address(), host).await?;
            let (time, cpu) = read_all(&reader, attr.inode, mebibytes, 128 << 10, jumping).await?;
            println!(
                "read by 128 KiB {order}, {how}: {:.0} MiB/s, {:.2} CPU seconds for each GiB, {} of {} by descriptor",
                mebibytes as f64 / time,
                per_gib(cpu),
                reader.metrics().short_circuit_reads,
                mebibytes * 8,
            );
            reader.disconnect().await?;
        }
    }

    for (order, streams) in [("one after the other", 1), ("16 at a time", 16)] {
        let (begun, cpu) = (Instant::now(), cpu_seconds());
        let tasks: Vec<_> = (0..streams)
            .map(|stream| {
                let (one, root) = (one.clone(), root.clone());
                runtime.spawn("create", async move {
                    for number in 0..files / streams {
                        let name = format!("{streams}-{stream}-{number}");
                        let made = one.create(&root, NewFile::exclusive(InodeId::ROOT, name.as_bytes(), Access::Write));
                        let Created { handle, .. } = made.await?;
                        one.write(handle, 0, Bytes::from(vec![7; 4000])).await?;
                        one.close(handle).await;
                    }
                    Ok::<(), ebb_types::Error>(())
                })
            })
            .collect();
        for task in tasks {
            task.join().await??;
        }
        println!(
            "files of 4000 bytes, {order}: {:.0} a second, {:.0} CPU microseconds each",
            files as f64 / begun.elapsed().as_secs_f64(),
            (cpu_seconds() - cpu) * 1e6 / files as f64
        );
    }
    let begun = Instant::now();
    one.disconnect().await?;
    println!("rest flushed and committed in {:.2} s: {:?}", begun.elapsed().as_secs_f64(), one.metrics());
    Ok(())
}

fn main() -> Result<()> {
    let number = |at: usize, default| std::env::args().nth(at).and_then(|text| text.parse().ok()).unwrap_or(default);
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a tokio runtime");
    threads.block_on(measure(number(1, 512), number(2, 2000)))
}
