//! Programs on nodes that blink, and data on nodes that are never awake when theirs is: the proxy relays.

use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, Handle, NewFile};
use ebb_power::{PolicyKind, wall_ms};
use ebb_rpc::{Connector, Counters};
use ebb_runtime::Task;
use ebb_runtime::virt::{Process, World, WorldOptions};
use ebb_types::{Credentials, Error, ErrorKind, InodeId, NodeId, Result, Role, SessionId};
use ebb_wire::pb;
use ebb_wire::pb::relay_call::Call;

use crate::cluster::identity;
use crate::power::{PowerCluster, newest_plan};

const INTERVAL: Duration = Duration::from_secs(2);
const NODES: usize = 9;
const FILES: usize = 9;
const BLOCK: usize = 64 << 10;
/// One of nine nodes at a time: none is ever awake together with another.
const ONE_AT_A_TIME: f64 = 0.2;

fn content(number: usize, round: u8) -> Bytes {
    Bytes::from(vec![(number as u8) * 16 + round; BLOCK])
}

async fn open(client: &Client, number: usize, access: Access) -> Result<Handle> {
    let root = Credentials::root();
    let found = client.resolve(&root, format!("/f{number}").as_bytes()).await?;
    Ok(client.open(&root, found.inode, access).await?.0)
}

/// Writes every file with all nodes on, and goes.
async fn fill(cluster: &PowerCluster) {
    let client = cluster.connect("filler").await.unwrap();
    for number in 0..FILES {
        let (root, name) = (Credentials::root(), format!("f{number}"));
        let made = client.create(&root, NewFile::exclusive(InodeId::ROOT, name.as_bytes(), Access::ReadWrite)).await;
        let handle = made.unwrap().handle;
        client.write(handle, 0, content(number, 0)).await.unwrap();
        client.fsync(handle).await.unwrap();
    }
    client.disconnect().await.unwrap();
}

async fn dim(world: &World, cluster: &PowerCluster) {
    cluster.set_fraction(ONE_AT_A_TIME).await.unwrap();
    world.sleep(INTERVAL * 2 + Duration::from_secs(1)).await;
}

/// Runs on a node, and is frozen with it.
fn on<T: Send + 'static>(process: &Process, work: impl Future<Output = T> + Send + 'static) -> Task<T> {
    process.runtime().spawn("program", work)
}

/// Reads every file; how many times the letter of each was found, and the longest read.
async fn count(client: Client, process: Process) -> Result<(Vec<usize>, Duration)> {
    let (mut counts, mut longest) = (Vec::new(), Duration::ZERO);
    for number in 0..FILES {
        let handle = open(&client, number, Access::Read).await?;
        let began = process.runtime().now();
        let data = client.read(handle, 0, BLOCK as u32).await?;
        longest = longest.max(process.runtime().now().since(began));
        counts.push(data.iter().filter(|byte| **byte == content(number, 0)[0]).count());
        client.close(handle).await;
    }
    Ok((counts, longest))
}

/// Goal: workers that read any file come to an end at 20 % power, where no two nodes are ever awake together.
/// Method: a counter on every one of nine nodes reads all files, of three copies each, one node at a time being awake; in
/// the second half the always-on node's process, and the proxy in it, is killed while calls are held.
#[test]
fn workers_that_read_any_file_end_where_no_two_nodes_are_awake_together() {
    for (seed, kills_proxy) in [(41, false), (42, true)] {
        World::run(seed, WorldOptions::default(), |world| async move {
            let cluster = PowerCluster::start(&world, NODES, PolicyKind::BlinkCircular, INTERVAL).await.unwrap();
            fill(&cluster).await;
            let mut workers = Vec::new();
            for place in 0..NODES {
                workers.push(cluster.connect_on(place, &format!("worker{place}")).await.unwrap());
            }
            dim(&world, &cluster).await;
            let tasks: Vec<_> =
                workers.iter().map(|(client, process)| on(process, count(client.clone(), process.clone()))).collect();
            if kills_proxy {
                world.sleep(INTERVAL + INTERVAL / 3).await;
                cluster.restart_master().await;
            }
            for (place, task) in tasks.into_iter().enumerate() {
                let (counts, longest) = task.join().await.unwrap().unwrap_or_else(|error| panic!("h{place}: {error}"));
                assert!(counts.iter().all(|count| *count == BLOCK), "h{place}: {counts:?}");
                let most = if kills_proxy { INTERVAL * 5 } else { INTERVAL * 2 };
                assert!(longest <= most, "h{place}: {longest:?} for a read");
            }
            let relayed: u64 = workers.iter().map(|(client, _)| client.metrics().relayed_calls).sum();
            assert!(relayed > (FILES * NODES / 2) as u64, "{relayed} reads were relayed: the test shows nothing");
        });
    }
}

/// Goal: writes of a program on a node that blinks reach members that are never awake when it is, and are read back by
/// others, too. Method: writers on three nodes overwrite and sync the same files one after the other, so that leases
/// must go from one to the next; then a reader that is always on looks.
#[test]
fn bytes_written_on_a_blinking_node_reach_members_that_never_meet_it() {
    World::run(43, WorldOptions::default(), |world| async move {
        let cluster = PowerCluster::start(&world, NODES, PolicyKind::BlinkCircular, INTERVAL).await.unwrap();
        fill(&cluster).await;
        let mut writers = Vec::new();
        for place in [0, 3, 7] {
            writers.push(cluster.connect_on(place, &format!("writer{place}")).await.unwrap());
        }
        dim(&world, &cluster).await;
        for (round, (client, process)) in (1..).zip(&writers) {
            let own = client.clone();
            let write = async move {
                for number in 0..3 {
                    let handle = open(&own, number, Access::ReadWrite).await?;
                    let before = own.read(handle, 0, BLOCK as u32).await?;
                    assert!(before == content(number, round - 1), "f{number} in round {round}");
                    own.write(handle, 0, content(number, round)).await?;
                    own.fsync(handle).await?;
                    own.close(handle).await;
                }
                Ok::<(), Error>(())
            };
            on(process, write).join().await.unwrap().unwrap();
        }
        let reader = cluster.connect("reader").await.unwrap();
        for number in 0..3 {
            let handle = open(&reader, number, Access::Read).await.unwrap();
            assert!(reader.read(handle, 0, BLOCK as u32).await.unwrap() == content(number, 3), "f{number}");
        }
        let relayed: u64 = writers.iter().map(|(client, _)| client.metrics().relayed_calls).sum();
        assert!(relayed > 9, "{relayed} calls were relayed: the test shows nothing");
        for (client, process) in &writers {
            let client = client.clone();
            on(process, async move { client.disconnect().await }).join().await.unwrap().unwrap();
        }
        assert_eq!(cluster.cluster_status().await.unwrap().under_replicated, 0, "no node was replaced for sleeping");
    });
}

/// A write of a replica that exists nowhere else, to be held for one member.
fn held_write(session: SessionId, member: pb::Member, metablock: u64) -> pb::RelayCall {
    let write = pb::WriteReplica {
        metablock,
        version: Some(pb::Version { epoch: 1, seq: 1 }),
        kind: pb::WriteKind::WriteTruncate as i32,
        offset: 5,
        sync: true,
        ..pb::WriteReplica::default()
    };
    pb::RelayCall {
        session: session.raw(),
        request: 1,
        patience_ms: 60_000,
        members: vec![member],
        call: Some(Call::Write(write)),
        ..pb::RelayCall::default()
    }
}

/// Whether a member has a replica of a metablock, as it says when it is awake.
async fn has(world: &World, cluster: &PowerCluster, address: &str, member: pb::Member, metablock: u64) -> bool {
    let name = pb::ReplicaName { metablock, volume: member.volume, incarnation: member.incarnation };
    loop {
        if let Ok(reply) = cluster.ask(address, &pb::DescribeReplicas { replicas: vec![name] }).await {
            return !reply.replicas[0].absent;
        }
        world.sleep(Duration::from_millis(10)).await;
    }
}

/// Goal: a call held for a sleeping node is not carried out once its session is over.
/// Method: two sessions have a write held for a node while it sleeps; one of them ends before the node wakes.
#[test]
fn a_held_request_is_carried_out_only_while_its_session_lives() {
    World::run(44, WorldOptions::default(), |world| async move {
        let cluster = PowerCluster::start(&world, NODES, PolicyKind::BlinkCircular, INTERVAL).await.unwrap();
        let (lives, ends) = (cluster.connect("lives").await.unwrap(), cluster.connect("ends").await.unwrap());
        dim(&world, &cluster).await;
        let reply = cluster.describe().await.unwrap();
        let plan = newest_plan(&reply).unwrap().unwrap();
        let node = &reply.nodes[4];
        let volume = &node.volumes[0];
        let member = pb::Member { node: node.id, volume: volume.id, incarnation: volume.incarnation, home: 0 };
        let sleeps_long = || {
            let now_ms = wall_ms(world.process("operator").runtime().wall());
            plan.next_wake_ms(NodeId::new(node.id), now_ms).is_some_and(|wake| wake > now_ms + 1_000)
        };
        while !sleeps_long() {
            world.sleep(Duration::from_millis(50)).await;
        }
        let proxy = cluster.proxy_address();
        let runtime = world.process("operator").runtime();
        let send = |call: pb::RelayCall| {
            let connector = Connector::new(runtime.clone(), identity("operator", Role::Operator), Counters::default());
            let channel = connector.channel(&proxy);
            runtime.spawn("send", async move { channel.call(&call, Duration::from_secs(8)).await })
        };
        let kept = send(held_write(lives.session(), member, 1 << 40));
        let dropped = send(held_write(ends.session(), member, 1 << 41));
        world.sleep(Duration::from_millis(300)).await;
        ends.disconnect().await.unwrap();
        assert!(sleeps_long() || !plan.is_awake(NodeId::new(node.id), wall_ms(runtime.wall())), "it has not woken yet");
        let answer = kept.join().await.unwrap().unwrap();
        assert_eq!((answer.node, answer.failure), (node.id, None));
        let refused = dropped.join().await.unwrap();
        let kind = |reply: pb::RelayReply| reply.failure.map(|failure| ErrorKind::from_raw(failure.kind));
        assert_eq!(refused.map(kind).unwrap(), Some(ErrorKind::SessionExpired));
        assert!(has(&world, &cluster, &node.address, member, 1 << 40).await);
        assert!(!has(&world, &cluster, &node.address, member, 1 << 41).await, "carried out after its session");
        lives.disconnect().await.unwrap();
    });
}
