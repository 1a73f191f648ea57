//! Many clients that read at once, and how their reads spread over the nodes.

use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, Handle, NewFile, NewName};
use ebb_power::PolicyKind;
use ebb_runtime::virt::{DiskOptions, LinkOptions, World, WorldOptions};
use ebb_types::{Credentials, InodeId};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{CreateDataset, Op};

use crate::power::PowerCluster;

const NODES: usize = 9;
const READERS: usize = 9;
/// Requests of each at a time.
const STREAMS: usize = 3;
const FILES: usize = 30;
const BLOCKS: u64 = 12;
const BLOCK: u64 = 64 << 10;
/// Reads of each stream.
const READS: u64 = 40;

/// Disks that need a thirtieth of a second for a block, as for one of 4 MB.
fn options() -> WorldOptions {
    let disk = DiskOptions { bandwidth_bytes_per_sec: 2 << 20, ..DiskOptions::default() };
    let link = LinkOptions { bandwidth_bytes_per_sec: 8 << 20, ..LinkOptions::default() };
    WorldOptions { disk, link, ..WorldOptions::default() }
}

async fn fill(client: &Client) -> Vec<InodeId> {
    let root = Credentials::root();
    let name = NewName { parent: InodeId::ROOT, name: b"data", mode: 0o755, umask: 0 };
    let directory = client.make_dir(&root, name).await.unwrap().inode;
    let dataset = pb::Dataset {
        path: "/data".to_owned(),
        layout: "random".to_owned(),
        replicas: 3,
        block_size: BLOCK,
        metablock_size: BLOCK,
        ..Default::default()
    };
    client
        .meta(&root, Op::CreateDataset(CreateDataset { dataset: Some(dataset), ..Default::default() }))
        .await
        .unwrap();
    let mut files = Vec::new();
    for number in 0..FILES {
        let name = format!("f{number}");
        let made = client.create(&root, NewFile::exclusive(directory, name.as_bytes(), Access::Write)).await.unwrap();
        for block in 0..BLOCKS {
            client.write(made.handle, block * BLOCK, Bytes::from(vec![number as u8; BLOCK as usize])).await.unwrap();
        }
        client.fsync(made.handle).await.unwrap();
        client.close(made.handle).await;
        files.push(made.attr.inode);
    }
    files
}

/// Blocks that each node served when all clients read at random. One disk may be slower by so many times.
fn served(seed: u64, slow: Option<(usize, f64)>) -> (Vec<f64>, u64, Duration) {
    World::run(seed, options(), |world| async move {
        let cluster = PowerCluster::start(&world, NODES, PolicyKind::AlwaysOn, Duration::from_secs(60)).await.unwrap();
        let writer = cluster.connect("writer").await.unwrap();
        let files = fill(&writer).await;
        writer.disconnect().await.unwrap();
        let mut readers: Vec<(Client, Vec<Handle>)> = Vec::new();
        for number in 0..READERS {
            let client = cluster.connect(&format!("c{number}")).await.unwrap();
            let mut handles = Vec::new();
            for file in &files {
                handles.push(client.open(&Credentials::root(), *file, Access::Read).await.unwrap().0);
            }
            readers.push((client, handles));
        }
        world.sleep(Duration::from_secs(60)).await;
        if let Some((node, times)) = slow {
            world.process(&format!("h{}", node + 1)).slow_disk(times);
        }
        let (before, began) = (cluster.sent_bytes().await.unwrap(), world.now());
        let mut tasks = Vec::new();
        for (number, (client, handles)) in readers.iter().enumerate() {
            for _ in 0..STREAMS {
                let (client, handles, mut dice) = (client.clone(), handles.clone(), world.dice("blocks to read"));
                tasks.push(world.process(&format!("c{number}")).runtime().spawn("stream", async move {
                    for _ in 0..READS {
                        let (file, block) = (dice.index(FILES), dice.below(BLOCKS));
                        let data = client.read(handles[file], block * BLOCK, BLOCK as u32).await.unwrap();
                        assert!(data.len() as u64 == BLOCK && data.iter().all(|byte| *byte == file as u8));
                    }
                }));
            }
        }
        for task in tasks {
            task.join().await.unwrap();
        }
        let took = world.now() - began;
        let after = cluster.sent_bytes().await.unwrap();
        let served = before.iter().zip(&after).map(|(before, after)| (after - before) as f64 / BLOCK as f64).collect();
        (served, readers.iter().map(|(client, _)| client.metrics().refused_reads).sum(), took)
    })
}

fn worst_over_mean(served: &[f64]) -> f64 {
    served.iter().copied().fold(0.0, f64::max) * served.len() as f64 / served.iter().sum::<f64>()
}

/// Goal: many clients do not crowd a node. Method: nine clients that know nothing of each other read at random; the
/// bytes that each node sent are counted. A node has some 40 reads, so one seed's worst node differs by chance: by 1.24
/// times the mean if nodes were drawn.
#[test]
fn clients_that_read_at_once_load_all_nodes_alike() {
    const SEEDS: u64 = 8;
    let mut worst = 0.0;
    for seed in 0..SEEDS {
        let (served, refused, took) = served(seed, None);
        println!(
            "seed {seed}: {:.3} times the mean, {refused} refused, {took:?}, {served:.0?}",
            worst_over_mean(&served)
        );
        worst += worst_over_mean(&served) / SEEDS as f64;
        assert!(refused > 0, "no node was ever found busy");
    }
    // Over 96 seeds it is 1.12, and one of them differs by 0.045.
    assert!(worst < 1.18, "{worst:.3} times the mean");
}

/// The same with one disk that is five times slower: its node gets fewer reads, and no other is crowded instead.
#[test]
fn a_slow_server_gets_fewer_reads() {
    const SEEDS: u64 = 8;
    let (mut worst, mut share) = (0.0, 0.0);
    for seed in 0..SEEDS {
        let (mut served, _, took) = served(seed, Some((4, 5.0)));
        let mean = served.iter().sum::<f64>() / NODES as f64;
        let slow = served.remove(4);
        println!("seed {seed}: slow {:.2} of the mean, others {:.3}, {took:?}", slow / mean, worst_over_mean(&served));
        share += slow / mean / SEEDS as f64;
        worst += worst_over_mean(&served) / SEEDS as f64;
    }
    // Over 79 seeds they are 0.51 and 1.12. Each differs by 0.045 in one of them.
    assert!(share < 0.6, "{share:.2} of the mean");
    assert!(worst < 1.18, "{worst:.3} times the mean of the others");
}
