//! Copies between nodes; damage that is reported.

use std::time::Duration;

use ebb_types::ErrorKind;
use ebb_wire::pb;

use super::rig::{Client, LONG, bytes, hop, in_world, options, registered, version, virt_server};
use crate::{BlockServer, PatrolOptions};

fn pull(source: &pb::Hop, target: &pb::Hop, rate_bytes_per_sec: u64) -> pb::PullReplica {
    let pb::Member { volume, incarnation, .. } = target.member.unwrap();
    let (at, source) = (version(1, 2), Some(source.clone()));
    pb::PullReplica {
        metablock: 1,
        volume,
        incarnation,
        epoch: 1,
        source,
        at,
        rate_bytes_per_sec,
        ..Default::default()
    }
}

#[test]
fn a_replica_is_copied_at_a_rate() {
    in_world(1, |world, _, master| async move {
        let (source, target) =
            (hop(&virt_server(&world, "h1", &master).await), hop(&virt_server(&world, "h2", &master).await));
        let runtime = world.process("client").runtime();
        let client = Client::new(&runtime);
        let data = bytes(3_000_000, 1);
        client.write(std::slice::from_ref(&source), 1, 1, 0, &data, false, LONG).await;
        client.write(std::slice::from_ref(&source), 1, 2, 9_000_000, &bytes(77, 2), false, LONG).await;
        let started = runtime.now();
        let reply = client.call(&target, &pull(&source, &target, 1_000_000)).await.unwrap();
        assert_eq!((reply.version, reply.length), (version(1, 2), 9_000_077));
        let took = runtime.now().since(started);
        assert!((Duration::from_millis(2900)..Duration::from_millis(4000)).contains(&took), "{took:?}");
        let (_, found) = client.read(&target, 1, version(1, 2), 0, 3_014_656).await.unwrap();
        assert_eq!(found[..3_000_000], data);
        let (_, found) = client.read(&target, 1, version(1, 2), 8_994_816, 16384).await.unwrap();
        assert_eq!(found[9_000_000 - 8_994_816..], bytes(77, 2));
    });
}

#[test]
fn a_copy_lives_through_a_restart_of_its_source() {
    in_world(2, |world, _, master| async move {
        let (source, target) =
            (hop(&virt_server(&world, "h1", &master).await), hop(&virt_server(&world, "h2", &master).await));
        let runtime = world.process("client").runtime();
        let client = Client::new(&runtime);
        client.write(std::slice::from_ref(&source), 1, 1, 0, &bytes(3_000_000, 1), false, LONG).await;
        client.write(std::slice::from_ref(&source), 1, 2, 3_000_000, &bytes(3_000_000, 2), true, LONG).await;
        let copying = {
            let channel = client.connector.channel(&target.address);
            let message = pull(&source, &target, 2_000_000);
            runtime.spawn("copy", async move { channel.call(&message, LONG).await })
        };
        runtime.sleep(Duration::from_millis(1200)).await;
        world.process("h1").crash();
        world.process("h1").restart();
        virt_server(&world, "h1", &master).await;
        assert_eq!(copying.join().await.unwrap().unwrap().length, 6_000_000);
        let (_, found) = client.read(&target, 1, version(1, 2), 2_998_272, 16384).await.unwrap();
        assert_eq!(found[1728..1828], bytes(3_000_000, 2)[..100]);
    });
}

#[test]
fn a_copy_from_nowhere_or_of_nothing_fails_with_a_reason() {
    in_world(3, |world, _, master| async move {
        let (source, target) =
            (hop(&virt_server(&world, "h1", &master).await), hop(&virt_server(&world, "h2", &master).await));
        let client = Client::new(&world.process("client").runtime());
        let nothing = client.call(&target, &pull(&source, &target, 0)).await.unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::NoReplica);
        world.process("h1").crash();
        let nowhere = client.call(&target, &pull(&source, &target, 0)).await.unwrap_err();
        assert_eq!(nowhere.kind(), ErrorKind::Unavailable, "the target answers: it is not unreachable");
        assert!(nowhere.to_string().contains(&source.address), "{nowhere}");
    });
}

#[test]
fn damage_is_reported_to_the_master_once() {
    in_world(4, |world, state, master| async move {
        let running = virt_server(&world, "h1", &master).await;
        let server = hop(&running);
        let runtime = world.process("client").runtime();
        let client = Client::new(&runtime);
        client.write(std::slice::from_ref(&server), 1, 1, 0, &bytes(300_000, 1), true, LONG).await;
        let pb::Member { volume, incarnation, .. } = server.member.unwrap();
        let name = pb::ReplicaName { metablock: 1, volume, incarnation };
        let described = client.call(&server, &pb::DescribeReplicas { replicas: vec![name] }).await.unwrap();
        world.process("h1").flip_bits(described.replicas[0].file.as_ref(), 5, 1).unwrap();
        let scrubbed = client.call(&server, &pb::Scrub::default()).await.unwrap();
        assert_eq!((scrubbed.replicas, scrubbed.corrupt), (1, vec![1]));
        let refused = client.read(&server, 1, version(1, 1), 0, 16384).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corrupt);
        runtime.sleep(Duration::from_secs(1)).await;
        assert_eq!(state.0.lock().corrupt, [1]);
        drop(running);
    });
}

#[test]
fn damage_is_found_without_anybody_asking() {
    in_world(5, |world, state, master| async move {
        let process = world.process("h1");
        let mut start = options("h1", "/data/h1".into(), &[master]);
        start.listen = format!("{}:7001", process.ip());
        start.patrol = PatrolOptions { pause: Duration::from_secs(2), rate_bytes_per_sec: 1 << 20 };
        let running = BlockServer::start(process.runtime(), start).await.unwrap();
        registered(&process.runtime(), &running).await;
        let server = hop(&running);
        let runtime = world.process("client").runtime();
        let client = Client::new(&runtime);
        for metablock in 1..=3 {
            let block = bytes(300_000, 1);
            client.write(std::slice::from_ref(&server), metablock, 1, 0, &block, true, LONG).await;
        }
        let pb::Member { volume, incarnation, .. } = server.member.unwrap();
        let name = pb::ReplicaName { metablock: 2, volume, incarnation };
        let described = client.call(&server, &pb::DescribeReplicas { replicas: vec![name] }).await.unwrap();
        process.flip_bits(described.replicas[0].file.as_ref(), 299_999, 1).unwrap();
        runtime.sleep(Duration::from_secs(6)).await;
        assert_eq!(state.0.lock().corrupt, [2]);
    });
}
