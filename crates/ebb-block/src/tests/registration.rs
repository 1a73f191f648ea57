//! Ids, reports and heartbeats; foreign directories.

use std::path::Path;
use std::time::Duration;

use ebb_types::{ClusterId, ErrorKind};
use ebb_wire::pb;

use super::master::FakeMaster;
use super::rig::{Client, LONG, bytes, failures, hop, in_world, options, registered, version, virt_server};
use crate::BlockServer;

#[test]
fn ids_are_given_once_and_kept() {
    in_world(1, |world, state, master| async move {
        let server = virt_server(&world, "h1", &master).await;
        let before = hop(&server);
        assert_eq!((before.member.unwrap().node, before.member.unwrap().volume), (1, 101));
        let client = Client::new(&world.process("client").runtime());
        let first = client.write(std::slice::from_ref(&before), 9, 1, 0, &bytes(500, 1), true, LONG).await;
        server.stop().await.unwrap();
        world.process("h1").crash();
        world.process("h1").restart();
        let server = virt_server(&world, "h1", &master).await;
        assert_eq!(hop(&server).member, before.member);
        let runtime = world.process("client").runtime();
        runtime.sleep(Duration::from_millis(500)).await;
        {
            let state = state.0.lock();
            assert_eq!((state.registrations, state.nodes.len()), (2, 1));
            assert_ne!(state.nodes[&1].boot, first[0].boot, "each start has its own boot id");
            let replica = &state.reports[&101][0];
            assert_eq!((replica.metablock, replica.version, replica.length), (9, version(1, 1), 500));
            let beat = &state.last_heartbeat[&1].volumes[0];
            assert_eq!((beat.id, beat.replicas, beat.used_bytes), (101, 1, 500));
            assert!(beat.free_bytes > 0 && beat.state == pb::VolumeState::VolumeLive as i32);
        }
        // The node's own file is lost: its volumes know.
        server.stop().await.unwrap();
        let process = world.process("h1");
        process.runtime().disk().remove_file(Path::new("/data/h1/node")).await.unwrap();
        process.restart();
        let server = virt_server(&world, "h1", &master).await;
        assert_eq!(hop(&server).member, before.member);
    });
}

#[test]
fn a_master_that_forgot_or_was_exchanged_gets_the_report_again() {
    in_world(2, |world, state, first| async move {
        let other = FakeMaster::default();
        let process = world.process("m2");
        let second = other.start(&process.runtime(), &format!("{}:7000", process.ip())).await;
        let process = world.process("h1");
        let mut start = options("h1", "/data/h1".into(), &[first, second]);
        start.listen = format!("{}:7001", process.ip());
        let server = BlockServer::start(process.runtime(), start).await.unwrap();
        let runtime = process.runtime();
        registered(&runtime, &server).await;
        state.0.lock().forget = true;
        runtime.sleep(Duration::from_secs(1)).await;
        assert_eq!(state.0.lock().registrations, 2);
        state.0.lock().deposed = true;
        runtime.sleep(Duration::from_secs(1)).await;
        assert_eq!(other.0.lock().registrations, 1);
        assert!(other.0.lock().reports.contains_key(&101));
        // Its process dies: back to the first.
        state.0.lock().deposed = false;
        world.process("m2").crash();
        let beats = state.0.lock().heartbeats;
        runtime.sleep(Duration::from_secs(5)).await;
        assert!(state.0.lock().heartbeats > beats);
    });
}

/// A replica that a late write makes on a volume is reported without a start or a registration.
#[test]
fn everything_is_reported_again_every_now_and_then() {
    in_world(6, |world, state, master| async move {
        let process = world.process("h1");
        let mut start = options("h1", "/data/h1".into(), &[master]);
        start.volumes = vec!["/data/a".into(), "/data/b".into()];
        start.listen = format!("{}:7001", process.ip());
        start.report_every = Duration::from_secs(600);
        let server = BlockServer::start(process.runtime(), start).await.unwrap();
        let runtime = process.runtime();
        registered(&runtime, &server).await;
        let client = Client::new(&world.process("client").runtime());
        let [first, second] = [0, 1].map(|index: usize| {
            let (mut hop, volume) = (hop(&server), &server.volumes()[index]);
            let member = hop.member.as_mut().unwrap();
            (member.volume, member.incarnation) = (volume.id().raw(), volume.label().incarnation.raw());
            hop
        });
        for round in 1..=3 {
            client.write(std::slice::from_ref(&first), round, 1, 0, &bytes(500, 1), true, LONG).await;
            client.write(std::slice::from_ref(&second), 10 + round, 1, 0, &bytes(500, 1), true, LONG).await;
            runtime.sleep(Duration::from_secs(601)).await;
            let ids = |volume: u64| state.0.lock().reports[&volume].iter().map(|one| one.metablock).collect::<Vec<_>>();
            assert_eq!(ids(101), (1..=round).collect::<Vec<_>>());
            assert_eq!(ids(102), (11..=10 + round).collect::<Vec<_>>());
        }
        assert_eq!(state.0.lock().registrations, 1);
        assert!(state.0.lock().reports_count <= 2 * 5, "{} reports", state.0.lock().reports_count);
    });
}

#[test]
fn a_poisoned_volume_is_reported_and_refuses() {
    in_world(3, |world, state, master| async move {
        let server = hop(&virt_server(&world, "h1", &master).await);
        let client = Client::new(&world.process("client").runtime());
        let faults = ebb_runtime::virt::DiskFaults { sync_error: 1.0, ..Default::default() };
        world.process("h1").disk_faults(faults);
        let results = client.write(std::slice::from_ref(&server), 1, 1, 0, &bytes(9, 1), true, LONG).await;
        assert_eq!(failures(&results), [ErrorKind::VolumePoisoned.raw()]);
        world.process("client").runtime().sleep(Duration::from_secs(1)).await;
        let state = state.0.lock().last_heartbeat[&1].volumes[0].state;
        assert_eq!(state, pb::VolumeState::VolumePoisoned as i32);
    });
}

#[test]
fn directories_of_another_cluster_or_node_are_refused() {
    in_world(4, |world, _, master| async move {
        for host in ["h1", "h2"] {
            virt_server(&world, host, &master).await.stop().await.unwrap();
        }
        let process = world.process("h1");
        let runtime = process.restart();
        let masters = [master];
        let mut foreign = options("h1", "/data/h1".into(), &masters);
        foreign.identity.cluster = ClusterId::new(8);
        let error = BlockServer::start(runtime.clone(), foreign).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "/data/h1/node belongs to cluster c7, not to c8: give this node another directory"
        );
        // One node's file with another one's volume.
        let disk = runtime.disk();
        disk.create_dir_all(Path::new("/data/mixed")).await.unwrap();
        disk.replace(Path::new("/data/mixed/node"), "ebb-node 1\ncluster 7\nnode 2\n".into()).await.unwrap();
        let mut mixed = options("h1", "/data/mixed".into(), &masters);
        mixed.volumes = vec!["/data/h1/volume-1".into()];
        let error = BlockServer::start(runtime, mixed).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized);
        assert!(error.to_string().starts_with("/data/h1/volume-1 is a volume of node n1, not of n2"), "{error}");
    });
}

#[test]
fn one_damaged_volume_of_two_is_left_out() {
    in_world(5, |world, state, master| async move {
        let process = world.process("h1");
        let mut start = options("h1", "/data/h1".into(), &[master]);
        start.volumes = vec!["/data/a".into(), "/data/b".into()];
        start.listen = format!("{}:7001", process.ip());
        let server = BlockServer::start(process.runtime(), start.clone()).await.unwrap();
        registered(&process.runtime(), &server).await;
        server.stop().await.unwrap();
        let runtime = process.restart();
        assert_eq!(process.flip_bits(Path::new("/data/a/volume"), 15, 1).unwrap(), 1);
        let server = BlockServer::start(runtime.clone(), start.clone()).await.unwrap();
        runtime.sleep(Duration::from_secs(1)).await;
        assert_eq!(server.volumes().len(), 1);
        assert_eq!(state.0.lock().nodes[&1].volumes[0].path, "/data/b");
        server.stop().await.unwrap();
        let runtime = process.restart();
        process.flip_bits(Path::new("/data/b/volume"), 15, 1).unwrap();
        assert_eq!(BlockServer::start(runtime, start).await.unwrap_err().kind(), ErrorKind::Corrupt);
    });
}
