//! Writes for members that sleep: what leaves the writer, and what members get from the always-on node's log.

use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, Handle, NewFile, NewName};
use ebb_power::PolicyKind;
use ebb_rpc::Counters;
use ebb_runtime::virt::{Dice, World, WorldOptions};
use ebb_types::{Credentials, InodeId};
use ebb_wire::pb;
use pb::meta_op::{CreateDataset, Op};

use crate::power::PowerCluster;

const INTERVAL: Duration = Duration::from_secs(2);
const NODES: usize = 9;
const FILES: u8 = 8;
/// Three parts.
const BYTES: usize = 5 << 19;

/// Half of the nodes are awake at a time.
async fn blinking(world: &World) -> PowerCluster {
    let cluster = PowerCluster::start(world, NODES, PolicyKind::BlinkCircular, INTERVAL).await.unwrap();
    cluster.set_fraction(0.5).await.unwrap();
    world.sleep(INTERVAL * 2 + Duration::from_secs(1)).await;
    cluster
}

fn content(number: u8) -> Bytes {
    (0..BYTES).map(|at| (at % 251) as u8 ^ number).collect::<Vec<u8>>().into()
}

async fn make(client: &Client, number: u8) -> Handle {
    let (root, name) = (Credentials::root(), format!("f{number}"));
    let new = NewFile::exclusive(InodeId::ROOT, name.as_bytes(), Access::ReadWrite);
    client.create(&root, new).await.unwrap().handle
}

/// Makes files, each safe before the next; waits until all members have everything.
async fn write_all(world: &World, client: &Client) {
    for number in 0..FILES {
        let file = make(client, number).await;
        client.write(file, 0, content(number)).await.unwrap();
        client.fsync(file).await.unwrap();
    }
    world.sleep(INTERVAL * 3).await;
    // Everything must be with all members for that.
    client.disconnect().await.unwrap();
}

async fn assert_contents(cluster: &PowerCluster) {
    let (reader, root) = (cluster.connect("reader").await.unwrap(), Credentials::root());
    for number in 0..FILES {
        let inode = reader.resolve(&root, format!("/f{number}").as_bytes()).await.unwrap().inode;
        let file = reader.open(&root, inode, Access::Read).await.unwrap().0;
        let data = reader.read(file, 0, BYTES as u32).await.unwrap();
        assert!(data == content(number), "file {number} is not as it was written");
    }
}

/// Goal: a byte leaves the writer once for the logs, and once for each member that is awake; those that slept get it
/// from the log. Method: the same files with and without that. A third and a half of the time a file's members sleep.
#[test]
fn the_log_feeds_members_that_slept() {
    let sent = |feed_min: Option<usize>| {
        // In some seeds a file is made while its three members are awake, and is not logged. In this one none is.
        World::run(12, WorldOptions::default(), |world| async move {
            let cluster = blinking(&world).await;
            let counters = Counters::default();
            let change = |options: &mut ebb_client::ClientOptions| {
                options.sizes.feed_min = feed_min.unwrap_or(options.sizes.feed_min);
            };
            let client = cluster.session_with(&world.process("client"), counters.clone(), change).await.unwrap();
            write_all(&world, &client).await;
            assert_contents(&cluster).await;
            let all = (BYTES * usize::from(FILES)) as f64;
            (
                client.metrics().fed_writes,
                client.metrics().logged_writes,
                counters.read().network_sent_bytes as f64 / all,
            )
        })
    };
    let ((fed, logged, times), (fed_before, logged_before, times_before)) = (sent(None), sent(Some(usize::MAX)));
    assert!(logged > 0 && logged_before > 0 && fed > 0 && fed_before == 0, "{fed}, {fed_before} writes fed");
    // Once for the log, and three times less what the log sent.
    let by_log = fed as f64 / f64::from(FILES) / 3.0;
    // Once for each of three members, and once for the log of each part that was logged.
    let model = 3.0 + logged_before as f64 / (f64::from(FILES) * 3.0);
    assert!((times_before - model).abs() < 0.01, "each byte left {times_before} times, and {model} by the log");
    assert!(times_before > 3.9, "each byte left {times_before} times");
    assert!((times + by_log - times_before).abs() < 0.3, "each byte left {times} times, {by_log} times the log");
}

/// Goal: neither a node that cannot pass writes on, nor a log that members cannot reach, keeps writes from their members.
/// Method: no node reaches the master for a second and a half while files are written; the writer does.
#[test]
fn nodes_that_are_cut_off_from_the_master_delay_nothing_for_long() {
    World::run(12, WorldOptions::default(), |world| async move {
        let cluster = blinking(&world).await;
        let client = cluster.connect("client").await.unwrap();
        for node in 1..=NODES {
            world.partition(&format!("h{node}"), "master");
        }
        let mut longest = Duration::ZERO;
        for number in 0..FILES {
            let file = make(&client, number).await;
            client.write(file, 0, content(number)).await.unwrap();
            let began = world.now();
            client.fsync(file).await.unwrap();
            longest = longest.max(world.now() - began);
            if number == 3 {
                world.heal();
            }
        }
        assert!(longest < INTERVAL * 3, "an fsync took {longest:?}");
        world.sleep(INTERVAL * 3).await;
        client.disconnect().await.unwrap();
        assert_contents(&cluster).await;
    });
}

/// A new file on a chain of all nodes, with three copies.
async fn file_on_chain(client: &Client, primaries: u32) -> Handle {
    let root = Credentials::root();
    let (path, layout) = ("/d".to_owned(), "equal-work".to_owned());
    let dataset = pb::Dataset { path, layout, replicas: 3, primaries, ..Default::default() };
    let made = client
        .meta(&root, Op::CreateDataset(CreateDataset { dataset: Some(dataset), ..Default::default() }))
        .await
        .unwrap();
    let directory = InodeId::new(made.dataset.unwrap().root_inode);
    client.create(&root, NewFile::exclusive(directory, b"f", Access::ReadWrite)).await.unwrap().handle
}

/// Overwrites the file's beginning with a byte; how long that takes until it is synced.
async fn overwrite(world: &World, client: &Client, file: Handle, byte: u8) -> Duration {
    let began = world.now();
    client.write(file, 0, Bytes::from(vec![byte; 1 << 16])).await.unwrap();
    client.fsync(file).await.unwrap();
    world.now() - began
}

/// Goal: a set that is only shorter than wanted takes writes while nodes that are to make it whole are asleep. Method: two
/// nodes of seven are on, and sets have two of three members. Then there is power for all, and the plan for it begins with
/// the next interval.
#[test]
fn writes_do_not_wait_for_nodes_that_an_announced_plan_wakes() {
    World::run(13, WorldOptions::default(), |world| async move {
        let interval = Duration::from_secs(20);
        let cluster = PowerCluster::start(&world, 7, PolicyKind::Activation, interval).await.unwrap();
        let client = cluster.connect("client").await.unwrap();
        let file = file_on_chain(&client, 2).await;
        let write = async |byte: u8| overwrite(&world, &client, file, byte).await;
        write(1).await;
        cluster.set_fraction(0.33).await.unwrap();
        world.sleep(interval * 2).await;
        assert_eq!(cluster.census().serving, 2);
        write(2).await;
        cluster.set_fraction(1.0).await.unwrap();
        let (mut longest, mut count) = (Duration::ZERO, 0);
        while cluster.census().serving == 2 {
            longest = longest.max(write(3).await);
            world.sleep(Duration::from_millis(500)).await;
            count += 1;
        }
        assert!(count > 3 && longest < Duration::from_secs(2), "{longest:?} for one of {count} writes");
    });
}

/// Goal: writes go on with fewer nodes on than a write needs, also while nodes are about to wake, and outlive their writer.
/// Method: one node of seven is on, and a write needs two. The power returns. In another run the writer dies before that.
#[test]
fn writes_go_on_with_fewer_nodes_on_than_they_need() {
    let run = |seed: u64, dies: bool| {
        World::run(seed, WorldOptions::default(), |world| async move {
            let interval = Duration::from_secs(20);
            let cluster = PowerCluster::start(&world, 7, PolicyKind::Activation, interval).await.unwrap();
            let (process, root) = (world.process("client"), Credentials::root());
            let client = cluster.session_with(&process, Counters::default(), |_| {}).await.unwrap();
            let file = file_on_chain(&client, 1).await;
            let write = async |byte: u8| overwrite(&world, &client, file, byte).await;
            write(1).await;
            cluster.set_fraction(0.2).await.unwrap();
            world.sleep(Duration::from_secs(3)).await;
            let (mut longest, mut last) = (Duration::ZERO, 1);
            for byte in 2..100 {
                if byte == 80 && !dies {
                    cluster.set_fraction(1.0).await.unwrap();
                }
                assert!(byte > 80 || cluster.census().serving == 1, "{:?}", cluster.census());
                longest = longest.max(write(byte).await);
                last = byte;
                world.sleep(Duration::from_millis(700)).await;
            }
            assert!(longest < Duration::from_secs(1), "a write took {longest:?}");
            if dies {
                process.kill();
                cluster.set_fraction(1.0).await.unwrap();
            }
            world.sleep(interval * 2).await;
            let reader = cluster.connect("reader").await.unwrap();
            let inode = reader.resolve(&root, b"/d/f").await.unwrap().inode;
            let file = reader.open(&root, inode, Access::Read).await.unwrap().0;
            let read = reader.read(file, 0, 1 << 16).await.unwrap();
            assert!(read.len() == 1 << 16 && read.iter().all(|one| *one == last), "{:?} is not {last}", read.first());
        });
    };
    run(14, false);
    run(15, true);
}

/// The longest of the writes of two writers, block by block, while the power has these shares one after the other, each
/// for so many rounds.
fn longest_write(seed: u64, shares: &[f64], rounds: u64) -> Duration {
    let shares = shares.to_vec();
    World::run(seed, WorldOptions::default(), |world| async move {
        const BLOCK: usize = 256 << 10;
        let cluster = PowerCluster::start(&world, NODES, PolicyKind::Tide, INTERVAL).await.unwrap();
        let (client, root) = (cluster.connect("client").await.unwrap(), Credentials::root());
        let name = NewName { parent: InodeId::ROOT, name: b"d", mode: 0o755, umask: 0 };
        let directory = client.make_dir(&root, name).await.unwrap().inode;
        let size = BLOCK as u64;
        let dataset = pb::Dataset {
            path: "/d".to_owned(),
            layout: "equal-work".to_owned(),
            replicas: 3,
            primaries: 2,
            block_size: size,
            metablock_size: size,
            ..Default::default()
        };
        client
            .meta(&root, Op::CreateDataset(CreateDataset { dataset: Some(dataset), ..Default::default() }))
            .await
            .unwrap();
        let mut files = Vec::new();
        for name in [b"f0", b"f1"] {
            let new = NewFile::exclusive(directory, name, Access::ReadWrite);
            files.push(client.create(&root, new).await.unwrap().handle);
        }
        let mut longest = Duration::ZERO;
        for share in shares {
            cluster.set_fraction(share).await.unwrap();
            for number in 0..rounds {
                for file in &files {
                    let began = world.now();
                    client.write(*file, number % 4 * size, Bytes::from(vec![number as u8; BLOCK])).await.unwrap();
                    client.fsync(*file).await.unwrap();
                    longest = longest.max(world.now() - began);
                }
                world.sleep(Duration::from_millis(200)).await;
            }
        }
        longest
    })
}

/// Goal: copies that the master makes hold no writer up for a node that sleeps. Method: sets lose members when the power
/// falls, and get them back while some nodes sleep for seconds.
#[test]
fn copies_hold_writers_up_for_no_sleeping_node() {
    let longest: Vec<Duration> = (1..5).map(|seed| longest_write(seed, &[1.0, 0.2, 0.5, 0.8], 80)).collect();
    assert!(longest.iter().all(|one| *one < Duration::from_millis(2_500)), "{longest:?}");
}

/// Goal: with plans that follow each other faster than intervals, a write waits for no node that one of them switches
/// off: not as the source or the target of a copy, not as a log. Method: another share of the power every half a second.
#[test]
fn plans_in_quick_succession_hold_no_writer_up() {
    let longest: Vec<Duration> = (1..7)
        .map(|seed| {
            let mut dice = Dice::new(seed, "shares");
            let shares: Vec<f64> = (0..120).map(|_| dice.between(25, 100) as f64 / 100.0).collect();
            longest_write(seed, &shares, 2)
        })
        .collect();
    assert!(longest.iter().all(|one| *one < Duration::from_millis(2_500)), "{longest:?}");
}
