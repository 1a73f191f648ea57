//! Writes while nodes sleep are no more than the nodes take when they wake.

use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, Handle, NewFile};
use ebb_power::PolicyKind;
use ebb_runtime::virt::{DiskOptions, World, WorldOptions};
use ebb_types::{Credentials, InodeId, Result};

use crate::power::PowerCluster;

const INTERVAL: Duration = Duration::from_secs(4);
/// Transitions, the last writes' way, and a clock's inaccuracy.
const SLACK: Duration = Duration::from_millis(1500);
const WRITE: usize = 256 << 10;
const NODES: usize = 6;

fn disk(bytes_per_sec: u64) -> DiskOptions {
    DiskOptions { bandwidth_bytes_per_sec: bytes_per_sec, ..DiskOptions::default() }
}

fn disks(bytes_per_sec: u64) -> WorldOptions {
    WorldOptions { disk: disk(bytes_per_sec), ..WorldOptions::default() }
}

async fn create(client: &Client, name: &str) -> Result<Handle> {
    let (root, access) = (Credentials::root(), Access::ReadWrite);
    let made = client.create(&root, NewFile::exclusive(InodeId::ROOT, name.as_bytes(), access)).await;
    Ok(made?.handle)
}

/// Writes as fast as it may until a moment, and syncs each write, or none; how much.
async fn write_on(world: &World, client: &Client, name: &str, span: Duration, sync: bool) -> u64 {
    let file = create(client, name).await.unwrap();
    let until = world.now() + span;
    let (mut written, length) = (0, if sync { WRITE / 2 } else { WRITE });
    while world.now() < until {
        client.write(file, written, Bytes::from(vec![7; length])).await.unwrap();
        written += length as u64;
        if sync {
            client.fsync(file).await.unwrap();
        }
    }
    written
}

/// Writers on hosts that are always on, each with a file of its own; then the longest that one takes to have everything
/// with all members, and how much all wrote.
async fn write_and_drain(
    world: &World,
    cluster: &PowerCluster,
    writers: usize,
    span: Duration,
    sync: bool,
) -> (Duration, u64) {
    let mut tasks = Vec::new();
    for number in 0..writers {
        let host = format!("writer{number}");
        let client = cluster.connect(&host).await.unwrap();
        let own = world.clone();
        tasks.push(world.process(&host).runtime().spawn("write", async move {
            let name = format!("f{number} of {:?}", own.now());
            let written = write_on(&own, &client, &name, span, sync).await;
            let began = own.now();
            client.disconnect().await.unwrap();
            (own.now() - began, written)
        }));
    }
    let (mut longest, mut sum) = (Duration::ZERO, 0);
    for task in tasks {
        let (took, written) = task.join().await.unwrap();
        longest = longest.max(took);
        sum += written;
    }
    (longest, sum)
}

/// A cluster that blinks, and whose nodes have found out how fast they write.
async fn blinking(world: &World) -> (PowerCluster, Vec<u64>) {
    let cluster = PowerCluster::start(world, NODES, PolicyKind::BlinkCircular, INTERVAL).await.unwrap();
    // Logging does not wait for the always-on node's disk, so that the members are the slow ones.
    world.process("master").set_disk_options(DiskOptions::default());
    for _ in 0..9 {
        write_and_drain(world, &cluster, 2, INTERVAL * 8, true).await;
        let status = cluster.cluster_status().await.unwrap();
        let paces: Vec<u64> = status.nodes.iter().map(|node| node.write_bytes_per_sec).collect();
        if !paces.contains(&0) {
            cluster.set_fraction(0.4).await.unwrap();
            world.sleep(INTERVAL * 2).await;
            return (cluster, paces);
        }
    }
    panic!("there are nodes that do not know their pace");
}

/// Goal: written data are with all members within an interval, however fast they are written. Method: disks that take a
/// few megabytes a second, and a writer that writes as fast as it can for eight intervals; the rest is drained then.
#[test]
fn bytes_of_one_writer_are_with_all_members_within_an_interval() {
    World::run(21, disks(6_000_000), |world| async move {
        let (cluster, paces) = blinking(&world).await;
        assert!(paces.iter().all(|pace| (2_000_000..8_000_000).contains(pace)), "{paces:?}");
        let (took, written) = write_and_drain(&world, &cluster, 1, INTERVAL * 8, false).await;
        assert!(took <= INTERVAL + SLACK, "{took:?} for the rest of {written} bytes");
        assert!(written > 10 << 20, "{written}: it is held up, and not stopped");
    });
}

/// Goal: writers share the nodes' capacity: their logged data are with all members within an interval, too. Method:
/// several writers that sync each of their writes, and one node of six that is much slower than the others. The log
/// that the writers share admits none of them beyond the rate of that node. The data that each is about to sync come on
/// top.
#[test]
fn bytes_logged_by_several_writers_are_with_all_members_within_an_interval() {
    World::run(22, disks(12_000_000), |world| async move {
        world.process("h1").set_disk_options(disk(1_500_000));
        let (cluster, paces) = blinking(&world).await;
        assert!(paces.iter().max() > paces.iter().min().map(|pace| pace * 3).as_ref(), "{paces:?}");
        let (took, written) = write_and_drain(&world, &cluster, 6, INTERVAL * 3, true).await;
        let status = cluster.cluster_status().await.unwrap().handoff.unwrap();
        assert!(took <= INTERVAL * 3 / 2 + SLACK, "{took:?} for the rest of {written} bytes");
        assert!(written > 5 << 20, "{written}: they are held up, and not stopped");
        assert!(status.refused > 0, "no writer was: {status:?}");
        assert_eq!(status.debts.len(), NODES);
        world.sleep(INTERVAL).await;
        let debts = cluster.cluster_status().await.unwrap().handoff.unwrap().debts;
        assert!(debts.iter().all(|debt| debt.owed_bytes == 0 && debt.room_bytes > 1 << 20), "{debts:?}");
    });
}

/// Goal: data written at once are with all members within an interval: each has its part, and has synced it, after one
/// wake, be it a block or most of what the nodes may be given. Method: whole blocks, which are sent before a sync is
/// asked for, at several moments of an interval; disks that are fast.
#[test]
fn whole_blocks_are_with_all_members_after_one_wake_of_each() {
    World::run(23, WorldOptions::default(), |world| async move {
        let cluster = PowerCluster::start(&world, NODES, PolicyKind::BlinkStaggered, INTERVAL).await.unwrap();
        cluster.set_fraction(0.4).await.unwrap();
        world.sleep(INTERVAL * 2).await;
        for (number, blocks) in [1, 1, 1, 1, 24, 24].into_iter().enumerate() {
            world.sleep(INTERVAL / 5).await;
            let client = cluster.connect("writer").await.unwrap();
            let file = create(&client, &format!("whole{number}")).await.unwrap();
            let began = world.now();
            for block in 0..blocks {
                client.write(file, block << 20, Bytes::from(vec![7; 1 << 20])).await.unwrap();
            }
            client.disconnect().await.unwrap();
            let took = world.now() - began;
            assert!(took <= INTERVAL + Duration::from_millis(500), "{took:?} for {blocks} blocks");
        }
    });
}
