//! Writes along a pipeline, with members that die, freeze or refuse; the other calls of a block server.

use std::time::Duration;

use ebb_runtime::Runtime;
use ebb_runtime::virt::LinkOptions;
use ebb_types::{ErrorKind, Role};
use ebb_wire::pb;

use super::master::FakeMaster;
use super::rig::{Client, LONG, bytes, failures, hop, in_world, options, registered, synced, version, virt_server};
use crate::BlockServer;

#[test]
fn a_chain_writes_everywhere_and_tells_each_result() {
    in_world(1, |world, _, master| async move {
        let mut hops = Vec::new();
        for host in ["h1", "h2", "h3"] {
            hops.push(hop(&virt_server(&world, host, &master).await));
        }
        let client = Client::new(&world.process("client").runtime());
        let block = bytes(1 << 20, 3);
        let results = client.write(&hops, 5, 1, 0, &block, true, LONG).await;
        assert_eq!(failures(&results), [0, 0, 0]);
        assert_eq!(results.iter().map(|one| one.node).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(results.iter().all(|one| synced(one) == 1 && one.boot != 0));
        let results = client.write(&hops, 5, 2, 1 << 20, &bytes(100, 4), false, LONG).await;
        assert!(results.iter().all(|one| synced(one) == 1 && one.received == version(1, 2)));
        for hop in &hops {
            let (reply, data) = client.read(hop, 5, version(1, 2), 0, 2 << 20).await.unwrap();
            assert_eq!((reply.version, reply.length), (version(1, 2), (1 << 20) + 100));
            assert_eq!((&data[..1 << 20], &data[1 << 20..]), (&block[..], &bytes(100, 4)[..]));
        }
        let seek = pb::SeekReplica {
            metablock: 5,
            volume: hops[0].member.unwrap().volume,
            offset: 7,
            ..pb::SeekReplica::default()
        };
        assert!(client.call(&hops[0], &seek).await.unwrap().found);
    });
}

#[test]
fn a_dead_frozen_or_refusing_hop_is_a_result_in_time() {
    in_world(2, |world, _, master| async move {
        let mut hops = Vec::new();
        for host in ["h1", "h2", "h3"] {
            hops.push(hop(&virt_server(&world, host, &master).await));
        }
        let runtime = world.process("client").runtime();
        let client = Client::new(&runtime);
        let data = bytes(100_000, 1);
        world.process("h2").crash();
        let results = client.write(&hops, 1, 1, 0, &data, true, LONG).await;
        assert_eq!(results.len(), 3);
        assert_eq!((failures(&results)[0], synced(&results[0])), (0, 1));
        assert!(failures(&results)[1..].iter().all(|kind| *kind != 0), "{results:?}");
        assert_eq!(results.iter().map(|one| one.node).collect::<Vec<_>>(), [1, 2, 3]);

        // Frozen: the kernel still takes the bytes. The answer comes within the caller's deadline all the same.
        let two = [hops[0].clone(), hops[2].clone()];
        world.process("h3").freeze();
        let results = client.write(&two, 1, 2, 100_000, &data, true, Duration::from_secs(2)).await;
        // No connection stood yet.
        assert_eq!(failures(&results), [0, ErrorKind::Unreachable.raw()]);
        assert_eq!(synced(&results[0]), 2);
        world.process("h3").thaw();

        // Refusing: h3 never got the first write.
        let results = client.write(&two, 1, 3, 200_000, &data, false, LONG).await;
        assert_eq!(failures(&results), [0, ErrorKind::Gap.raw()]);
        // Frozen with a connection that stands.
        world.process("h3").freeze();
        let results = client.write(&two, 1, 4, 300_000, &data, true, Duration::from_secs(2)).await;
        assert_eq!(failures(&results), [0, ErrorKind::Timeout.raw()]);
        world.process("h3").thaw();
        // A member at an unknown address.
        let mut wrong = hops[0].clone();
        wrong.member.as_mut().unwrap().volume = 77;
        let results = client.write(&[wrong], 1, 5, 0, &data, false, LONG).await;
        assert_eq!(failures(&results), [ErrorKind::NoReplica.raw()]);
    });
}

/// The first member takes the bytes at once, and its own link holds them up for longer than the caller's deadline.
#[test]
fn a_caller_waits_for_a_chain_as_long_as_a_link_within_it_carries_bytes() {
    in_world(6, |world, _, master| async move {
        let hops = [hop(&virt_server(&world, "h1", &master).await), hop(&virt_server(&world, "h2", &master).await)];
        world.link("h1", "h2", LinkOptions { bandwidth_bytes_per_sec: 2 << 20, ..LinkOptions::default() });
        let runtime = world.process("client").runtime();
        let (client, begun) = (Client::new(&runtime), runtime.now());
        let data = bytes(1 << 20, 1);
        let writes =
            (1..=20).map(|seq| client.write(&hops, 1, seq, (seq - 1) << 20, &data, false, Duration::from_secs(4)));
        for results in futures_util::future::join_all(writes).await {
            assert_eq!(failures(&results), [0, 0], "{results:?}");
        }
        let took = runtime.now().since(begun);
        assert!(took > Duration::from_secs(9), "the link was not slow: {took:?}");
        // Frozen, the last member takes no bytes: the caller hears of it in time.
        world.process("h2").freeze();
        let begun = runtime.now();
        let results = client.write(&hops, 1, 21, 20 << 20, &data, false, Duration::from_secs(4)).await;
        assert_eq!(failures(&results), [0, ErrorKind::Timeout.raw()]);
        assert!(runtime.now().since(begun) < Duration::from_secs(5));
    });
}

#[test]
fn a_write_goes_on_after_its_caller_gave_up() {
    in_world(3, |world, _, master| async move {
        let server = hop(&virt_server(&world, "h1", &master).await);
        let runtime = world.process("client").runtime();
        let client = Client::new(&runtime);
        world.process("h1").slow_disk(2000.0);
        let member = server.member.unwrap();
        let data = bytes(5000, 1);
        let message = pb::WriteReplica {
            metablock: 1,
            volume: member.volume,
            incarnation: member.incarnation,
            version: version(1, 1),
            length: 5000,
            checksums: super::rig::sums(0, &data),
            sync: true,
            ..pb::WriteReplica::default()
        };
        let channel = client.connector.channel(&server.address);
        let error = channel.call_with(&message, vec![data.clone()], Duration::from_millis(50)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        world.process("h1").slow_disk(1.0);
        runtime.sleep(Duration::from_secs(5)).await;
        let (reply, found) = client.read(&server, 1, version(1, 1), 0, 16384).await.unwrap();
        assert_eq!((reply.version, found), (version(1, 1), data));
    });
}

#[test]
fn recovery_calls_answer_for_each_replica() {
    in_world(4, |world, _, master| async move {
        let server = hop(&virt_server(&world, "h1", &master).await);
        let client = Client::new(&world.process("client").runtime());
        client.write(std::slice::from_ref(&server), 1, 1, 0, &bytes(500, 1), false, LONG).await;
        let pb::Member { volume, incarnation, .. } = server.member.unwrap();
        let name = |metablock, volume, incarnation| pb::ReplicaName { metablock, volume, incarnation };
        let replicas = vec![
            name(1, volume, incarnation),
            name(2, volume, incarnation),
            name(3, 9, incarnation),
            name(4, volume, 1),
        ];
        let promised = client.call(&server, &pb::PromiseEpoch { epoch: 3, replicas }).await.unwrap().replicas;
        assert_eq!((promised[0].version, promised[0].length, promised[0].absent), (version(1, 1), 500, false));
        assert!(promised[1].absent && promised[1].failure.is_none());
        for refused in &promised[2..] {
            assert!(!refused.absent);
            assert_eq!(refused.failure.as_ref().unwrap().kind, ErrorKind::NoReplica.raw());
        }
        let stamp = pb::StampReplica { metablock: 1, volume, incarnation, epoch: 3, base: version(1, 1), length: 400 };
        assert_eq!(client.call(&server, &stamp).await.unwrap().version, version(3, 0));
        let sync = |metablock, seq| pb::SyncReplica { metablock, volume, incarnation, version: version(3, seq) };
        let message = pb::SyncReplicas { replicas: vec![sync(1, 0), sync(1, 9)], pipeline: Vec::new() };
        let reply = client.call(&server, &message).await.unwrap();
        assert_eq!((reply.replicas[0].synced, &reply.replicas[0].failure), (version(3, 0), &None));
        assert_eq!(reply.replicas[1].failure.as_ref().unwrap().kind, ErrorKind::Gap.raw());
        let describe =
            pb::DescribeReplicas { replicas: vec![name(1, volume, incarnation), name(8, volume, incarnation)] };
        let described = client.call(&server, &describe).await.unwrap().replicas;
        assert_eq!((described[0].length, described[0].absent, described[1].absent), (400, false, true));
        assert!(described[0].file.ends_with("replicas/01/0000000000000001"));
        let replicas = vec![pb::DeletedReplica { metablock: 1, epoch: None, life: 0 }];
        client.call(&server, &pb::DeleteReplicas { volume, replicas }).await.unwrap();
        let gone = client.read(&server, 1, version(3, 0), 0, 16384).await.unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::NoReplica);
        assert!(client.call(&server, &pb::Counters {}).await.unwrap().syncs > 0);
        assert_eq!(
            client.call(&server, &pb::OpenSession::default()).await.unwrap_err().kind(),
            ErrorKind::Unauthorized
        );
    });
}

#[test]
fn a_chain_over_loopback() {
    let directory = tempfile::tempdir().unwrap();
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(async {
        let runtime = Runtime::real();
        let master = FakeMaster::default();
        let address = master.start(&runtime, "127.0.0.1:0").await;
        let mut servers = Vec::new();
        for host in ["h1", "h2"] {
            let mut options = options(host, directory.path().join(host), std::slice::from_ref(&address));
            options.identity = ebb_rpc::testing::certified(host, Role::Block);
            servers.push(BlockServer::start(runtime.clone(), options).await.unwrap());
            registered(&runtime, servers.last().unwrap()).await;
        }
        let hops: Vec<_> = servers.iter().map(hop).collect();
        let client = Client::new(&runtime);
        let block = bytes(1 << 20, 1);
        for seq in 1..=8 {
            let results = client.write(&hops, 1, seq, (seq - 1) << 20, &block, seq == 8, LONG).await;
            assert_eq!(failures(&results), [0, 0]);
        }
        // From the file, by the kernel, and from memory.
        let (_, data) = client.read(&hops[1], 1, version(1, 8), 3 << 20, 1 << 20).await.unwrap();
        assert_eq!(data, block);
        let (_, data) = client.read(&hops[1], 1, version(1, 8), 3 << 20, 16384).await.unwrap();
        assert_eq!(data, block[..16384]);
        for server in servers {
            server.stop().await.unwrap();
        }
        let file = directory.path().join("h2/volume-1/replicas/01/0000000000000001");
        assert_eq!(std::fs::read(file).unwrap(), block.repeat(8));
    });
}
