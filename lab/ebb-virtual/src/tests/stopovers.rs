//! Copies between nodes that are never awake together: they go by way of the proxy.

use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, NewFile};
use ebb_layout::rendezvous;
use ebb_power::PolicyKind;
use ebb_runtime::virt::{World, WorldOptions};
use ebb_types::{Credentials, InodeId, NodeId};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{GetMap, Op, SetDataset};

use crate::power::PowerCluster;

const INTERVAL: Duration = Duration::from_secs(4);
const NODES: usize = 7;
/// More than one piece of a copy.
const LEN: usize = (1 << 20) + (300 << 10);
/// One of seven nodes at a time.
const ONE_AT_A_TIME: f64 = 0.2;

fn content(mark: u8) -> Bytes {
    (0..LEN).map(|at| (at / 251) as u8 ^ mark).collect::<Vec<u8>>().into()
}

async fn make(client: &Client, name: &str, mark: u8) -> InodeId {
    let (root, access) = (Credentials::root(), Access::ReadWrite);
    let made = client.create(&root, NewFile::exclusive(InodeId::ROOT, name.as_bytes(), access)).await.unwrap();
    client.write(made.handle, 0, content(mark)).await.unwrap();
    client.fsync(made.handle).await.unwrap();
    client.close(made.handle).await;
    made.attr.inode
}

async fn record(client: &Client, inode: InodeId) -> pb::Metablock {
    let map = GetMap { inode: inode.raw(), first_index: 0, limit: 1 };
    client.meta(&Credentials::root(), Op::GetMap(map)).await.unwrap().metablocks.remove(0)
}

fn nodes(members: &[pb::Member]) -> Vec<u64> {
    members.iter().map(|member| member.node).collect()
}

async fn check(client: &Client, inode: InodeId, mark: u8) {
    let file = client.open(&Credentials::root(), inode, Access::Read).await.unwrap().0;
    for at in (0..LEN).step_by(256 << 10) {
        let data = client.read(file, at as u64, 256 << 10).await.unwrap();
        assert!(data == content(mark).slice(at..LEN.min(at + (256 << 10))), "{inode} at {at}");
    }
    client.close(file).await;
}

/// A cluster with files of three copies each, on which one node is awake at a time, and then one of a file's nodes is lost.
async fn lose_one(world: &World, cluster: &PowerCluster, files: u8) -> (Client, Vec<InodeId>, u64) {
    let client = cluster.connect("client").await.unwrap();
    let mut made = Vec::new();
    for mark in 0..files {
        made.push(make(&client, &format!("f{mark}"), mark).await);
    }
    client.disconnect().await.unwrap();
    cluster.set_fraction(ONE_AT_A_TIME).await.unwrap();
    world.sleep(INTERVAL * 2).await;
    let client = cluster.connect("reader").await.unwrap();
    let lost = record(&client, made[0]).await.members[0].node;
    cluster.fail(NodeId::new(lost)).unwrap();
    (client, made, lost)
}

/// Half an interval after copies have begun: some are on their way to the proxy, some wait there.
async fn copies_under_way(world: &World, cluster: &PowerCluster) {
    while cluster.cluster_status().await.unwrap().repairs_running == 0 {
        world.sleep(Duration::from_millis(100)).await;
    }
    world.sleep(INTERVAL / 2).await;
    assert!(cluster.cluster_status().await.unwrap().repairs_running > 0, "copies take longer than half an interval");
}

/// Waits until every file has three copies without the node that was lost, and looks at every one of them.
async fn all_made_again(world: &World, cluster: &PowerCluster, client: &Client, files: &[InodeId], lost: u64) {
    let began = world.now();
    for (mark, file) in (0..).zip(files) {
        loop {
            let members = record(client, *file).await.members;
            if members.len() == 3 && !nodes(&members).contains(&lost) {
                break;
            }
            world.sleep(Duration::from_secs(1)).await;
            assert!(world.now() - began < Duration::from_secs(300), "{members:?} without n{lost}");
        }
        check(client, *file, mark).await;
    }
    // Every copy is good, also those that came by way of the proxy.
    cluster.set_fraction(1.0).await.unwrap();
    world.sleep(Duration::from_secs(30)).await;
    let found = cluster.scrub().await.unwrap();
    assert!(found.metablocks == files.len() as u64 && found.findings.is_empty(), "{found:?}");
}

/// Goal: copies lost with a node are made again, although no two nodes are ever awake together, and although the
/// always-on node's process, with the proxy's copies in it, dies on the way.
#[test]
fn copies_are_made_again_where_no_two_nodes_are_awake_together() {
    for (seed, kills_proxy) in [(61, false), (62, true)] {
        World::run(seed, WorldOptions::default(), |world| async move {
            let cluster = PowerCluster::start(&world, NODES, PolicyKind::BlinkCircular, INTERVAL).await.unwrap();
            let (client, files, lost) = lose_one(&world, &cluster, 4).await;
            if kills_proxy {
                copies_under_way(&world, &cluster).await;
                cluster.restart_master().await;
            }
            all_made_again(&world, &cluster, &client, &files, lost).await;
            client.disconnect().await.unwrap();
        });
    }
}

/// Goal: a proxy in a process of its own that dies with copies on their way costs these copies and nothing else: they are begun
/// again by way of another one. Method: of two proxies that each have some of the copies one dies for good.
#[test]
fn a_proxy_that_dies_with_copies_on_their_way_costs_only_these() {
    World::run(64, WorldOptions::default(), |world| async move {
        let cluster = PowerCluster::start(&world, NODES, PolicyKind::BlinkCircular, INTERVAL).await.unwrap();
        let aside = cluster.start_proxy("aside");
        world.sleep(Duration::from_secs(3)).await;
        let (client, files, lost) = lose_one(&world, &cluster, 8).await;
        let mut of_aside = 0;
        for file in &files {
            let record = record(&client, *file).await;
            let chosen = rendezvous::choose(record.id, ["aside", "proxy"], |name| name);
            of_aside += usize::from(nodes(&record.members).contains(&lost) && chosen == Some("aside"));
        }
        assert!(of_aside > 0, "none of the copies is the proxy's that dies: the test shows nothing");
        copies_under_way(&world, &cluster).await;
        aside.kill();
        all_made_again(&world, &cluster, &client, &files, lost).await;
        client.disconnect().await.unwrap();
    });
}

/// Goal: often read data get extra copies on nodes that never meet a member.
#[test]
fn extra_copies_go_by_way_of_the_proxy_where_nodes_never_meet() {
    World::run(63, WorldOptions::default(), |world| async move {
        let cluster = PowerCluster::start(&world, NODES, PolicyKind::BlinkCircular, INTERVAL).await.unwrap();
        let client = cluster.connect("client").await.unwrap();
        let hot = make(&client, "hot", 9).await;
        let set = SetDataset { dataset: 0, extra_share_percent: Some(50), ..Default::default() };
        client.meta(&Credentials::root(), Op::SetDataset(set)).await.unwrap();
        cluster.set_fraction(ONE_AT_A_TIME).await.unwrap();
        world.sleep(INTERVAL * 2).await;
        let began = world.now();
        loop {
            check(&client, hot, 9).await;
            let record = record(&client, hot).await;
            if record.extra.len() == 3 {
                let (members, extras) = (nodes(&record.members), nodes(&record.extra));
                assert!(extras.iter().all(|extra| !members.contains(extra)), "{extras:?} beside {members:?}");
                break;
            }
            assert!(world.now() - began < Duration::from_secs(300), "{record:?}");
            world.sleep(INTERVAL / 20).await;
        }
        let before = client.metrics().extra_reads;
        // Every node's turn comes.
        for _ in 0..40 {
            check(&client, hot, 9).await;
            world.sleep(INTERVAL / 20).await;
        }
        assert!(client.metrics().extra_reads > before, "they are read, and hold the right data");
        client.disconnect().await.unwrap();
    });
}
