//! Throughput of a client with a master and three block servers on loopback, all in one process.
//!
//! `cargo run -p ebb-client --example measure [MiB] [files]`
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::time::Instant;

use bytes::Bytes;
use ebb_block::{BlockOptions, BlockServer};
use ebb_client::{Access, Client, ClientOptions};
use ebb_master::{Master, Options};
use ebb_rpc::{Connector, Counters, Identity, Secret};
use ebb_runtime::Runtime;
use ebb_types::{ClusterId, Credentials, HostName, InodeId, RackName, Result};

fn identity(host: &str, role: &str) -> Identity {
    let (cluster, secret) = (ClusterId::new(7), Secret::new([9; 32]));
    Identity { cluster, secret, host: HostName::new(host), role: role.to_owned() }
}

async fn client(runtime: &Runtime, master: &str) -> Result<Client> {
    let connector = Connector::new(runtime.clone(), identity("client", "measure"), Counters::default());
    let options = ClientOptions::new(vec![master.to_owned()], HostName::new("client"), "measure");
    Client::connect(runtime.clone(), connector, options).await
}

async fn measure(mebibytes: u64, files: u64) -> Result<()> {
    let runtime = Runtime::real();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let options = Options::new(dir.path().join("master"), "127.0.0.1:0", identity("master", "master"));
    let master = Master::start(runtime.clone(), options).await?;
    let mut servers = Vec::new();
    for number in 0..3 {
        let host = format!("h{number}");
        let mut options =
            BlockOptions::new(dir.path().join(&host), identity(&host, "block"), vec![master.address().to_owned()]);
        options.rack = RackName::new("r");
        servers.push(BlockServer::start(runtime.clone(), options).await?);
    }
    runtime.sleep(std::time::Duration::from_secs(2)).await;
    let root = Credentials::root();
    let one = client(&runtime, master.address()).await?;
    let (handle, attr, _) =
        one.create(&root, InodeId::ROOT, b"big", 0o644, 0, true, Access::ReadWrite, Vec::new()).await?;
    let block: Bytes =
        (0..1u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect::<Vec<_>>().into();
    let begun = Instant::now();
    for at in 0..mebibytes {
        one.write(handle, at << 20, block.clone()).await?;
    }
    one.fsync(handle).await?;
    let write = begun.elapsed().as_secs_f64();
    println!("write and fsync, 3 copies: {:.0} MiB/s", mebibytes as f64 / write);

    let two = client(&runtime, master.address()).await?;
    let (reader, _) = two.open(&root, InodeId::new(attr.inode), Access::Read).await?;
    let begun = Instant::now();
    let mut at = 0;
    while at < mebibytes << 20 {
        at += two.read(reader, at, 128 << 10).await?.len() as u64;
    }
    println!("read by 128 KiB: {:.0} MiB/s", mebibytes as f64 / begun.elapsed().as_secs_f64());

    for (what, streams) in [("one after the other", 1), ("16 at a time", 16)] {
        let begun = Instant::now();
        let tasks: Vec<_> = (0..streams)
            .map(|stream| {
                let (one, root) = (one.clone(), root.clone());
                runtime.spawn("create", async move {
                    for number in 0..files / streams {
                        let name = format!("{streams}-{stream}-{number}");
                        let made = one.create(
                            &root,
                            InodeId::ROOT,
                            name.as_bytes(),
                            0o644,
                            0,
                            true,
                            Access::Write,
                            Vec::new(),
                        );
                        let (handle, _, _) = made.await?;
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
        println!("files of 4000 bytes, {what}: {:.0} a second", files as f64 / begun.elapsed().as_secs_f64());
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
