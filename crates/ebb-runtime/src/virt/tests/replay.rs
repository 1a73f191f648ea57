//! One seed, one history.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::{Process, World, WorldOptions};
use super::with_directory;
use ebb_types::Result;

use crate::{OpenMode, Runtime};

/// A server that stores the bytes that it receives, and answers with their number.
async fn serve(runtime: Runtime) -> Result<()> {
    let directory = with_directory(&runtime).await;
    let file = runtime.disk().open(&directory.join("log"), OpenMode::Create).await?;
    let listener = runtime.listen("0.0.0.0:7000").await?;
    loop {
        let mut stream = listener.accept().await?;
        let file = file.clone();
        runtime.spawn("connection", async move {
            while let Ok(len) = stream.read.read_u32().await {
                let mut data = vec![0; len as usize];
                if stream.read.read_exact(&mut data).await.is_err() {
                    return;
                }
                let Ok(end) = file.len().await else { return };
                let stored = async {
                    file.write_at(end, vec![Bytes::from(data)]).await?;
                    file.sync_data().await
                };
                if stored.await.is_err() || stream.write.write_u64(end).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// Sends random bytes for ever, over a new connection after each error.
async fn send(runtime: Runtime) {
    loop {
        if let Ok(mut stream) = runtime.connect("server:7000").await {
            loop {
                let len = 1 + runtime.random_u64() % 6_000;
                let mut data = vec![0; len as usize];
                runtime.fill_random(&mut data);
                let call = async {
                    stream.write.write_u32(len as u32).await.map_err(|_| ebb_types::err!(Disconnected, "broken"))?;
                    stream.write.write_all(&data).await.map_err(|_| ebb_types::err!(Disconnected, "broken"))?;
                    stream.read.read_u64().await.map_err(|_| ebb_types::err!(Disconnected, "broken"))
                };
                if runtime.timeout(Duration::from_millis(500), "storing", call).await.is_err() {
                    break;
                }
            }
        }
        runtime.sleep(Duration::from_millis(20)).await;
    }
}

/// A few seconds of a small system under faults.
fn history(seed: u64) -> (u64, BTreeMap<&'static str, u64>) {
    history_of(seed, |_| {})
}

/// The same with a server that is made ready before it starts.
fn history_of(seed: u64, prepare: impl Fn(&Process)) -> (u64, BTreeMap<&'static str, u64>) {
    World::run(seed, WorldOptions::default(), |world| async move {
        let server = world.process("server");
        prepare(&server);
        let start = |runtime: Runtime| {
            runtime.clone().spawn("serve", serve(runtime));
        };
        start(server.runtime());
        for name in ["c1", "c2", "c3"] {
            let runtime = world.process(name).runtime();
            runtime.clone().spawn("send", send(runtime));
        }
        let mut dice = world.dice("faults");
        for _ in 0..20 {
            world.sleep(dice.span(Duration::from_millis(500))).await;
            match dice.below(5) {
                0 => {
                    server.crash();
                    start(server.restart());
                }
                1 => server.freeze(),
                2 => world.partition(["c1", "c2"][dice.index(2)], "server"),
                3 => server.slow_disk(20.0),
                _ => {
                    server.thaw();
                    server.slow_disk(1.0);
                    world.heal();
                }
            }
        }
        (world.trace_hash(), world.faults())
    })
}

#[test]
fn one_seed_gives_one_history_and_another_another() {
    let mut hashes = BTreeSet::new();
    for seed in 0..10 {
        let (hash, faults) = history(seed);
        assert_eq!((hash, faults.clone()), history(seed), "seed {seed}");
        assert!(!faults.is_empty());
        hashes.insert(hash);
    }
    assert_eq!(hashes.len(), 10);
}

/// Seeds keep their histories: a disk is split where somebody asks for it, and a part of it that is all of it is the disk.
#[test]
fn a_disk_with_one_spindle_has_the_history_of_any_disk() {
    for seed in 0..5 {
        let any = history(seed);
        assert_eq!(history_of(seed, |server| server.split_disk(&["/d"])), any);
        assert_eq!(history_of(seed, |server| server.split_disk(&[""; 0])), any);
    }
}

#[test]
fn the_order_of_wakes_has_no_say() {
    // Receivers of a tokio watch are woken in an order drawn from a generator of the thread: hashes still agree.
    let history = || {
        World::run(1, WorldOptions::default(), |world| async move {
            let runtime = world.process("h1").runtime();
            let (send, _) = tokio::sync::watch::channel(0_u64);
            for number in 0..20_u64 {
                let (mut receive, waiting, world) = (send.subscribe(), runtime.clone(), world.clone());
                runtime.spawn("receive", async move {
                    while receive.changed().await.is_ok() {
                        world.add_event("changed", &[number]);
                        waiting.sleep(Duration::from_micros(waiting.random_u64() % 3)).await;
                    }
                });
            }
            for value in 0..100 {
                send.send(value).unwrap();
                world.sleep(Duration::from_micros(100)).await;
            }
            world.trace_hash()
        })
    };
    let first = history();
    for _ in 0..5 {
        assert_eq!(history(), first);
    }
}
