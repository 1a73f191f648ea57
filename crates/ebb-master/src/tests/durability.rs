//! Acknowledged changes survive, and repeated requests get the earlier answer.

use std::time::Duration;

use ebb_runtime::virt::{DiskWork, PlannedFault, World, WorldOptions};
use ebb_types::ErrorKind;

use super::harness::{Cluster, create, options, with_cluster};
use crate::Master;

#[test]
fn a_repeated_request_is_answered_after_a_restart_and_not_redone() {
    with_cluster(1, 3, |mut cluster: Cluster| async move {
        let client = cluster.client().await;
        let first = client.send(1, create("a", true)).await.unwrap();
        assert!(first.created && first.metablocks[0].members.len() == 3);
        assert_eq!(client.send(2, create("a", true)).await.unwrap_err().kind(), ErrorKind::Exists);
        cluster.crash_master().await;
        let again = client.send(1, create("a", true)).await.unwrap();
        assert_eq!(again, first, "answered from the state");
        assert_eq!(client.send(2, create("a", true)).await.unwrap_err().kind(), ErrorKind::Exists);
    });
}

/// Goal: everything that was acknowledged before a power failure is there after the restart, however the unsynced part
/// of the disk was torn. Method: four callers create files until the crash, for many seeds and moments. By then there
/// are several checkpoints and segments.
#[test]
fn no_crash_loses_an_acknowledged_change() {
    let acknowledged = std::sync::atomic::AtomicUsize::new(0);
    for seed in 0..12 {
        let acknowledged = &acknowledged;
        with_cluster(seed, 3, |mut cluster| async move {
            let mut tasks = Vec::new();
            for _ in 0..4 {
                let client = cluster.client().await;
                let runtime = client.runtime.clone();
                tasks.push(runtime.spawn("creator", async move {
                    let mut done = Vec::new();
                    for number in 0..2000 {
                        let name = format!("{}-{number}", client.session);
                        match client.create(&name).await {
                            Ok(reply) => done.push((name, reply.attr.unwrap().inode)),
                            Err(_) => break,
                        }
                    }
                    done
                }));
            }
            let mut dice = cluster.world.dice("crash");
            cluster.world.sleep(Duration::from_micros(dice.below(900_000))).await;
            cluster.process.crash();
            let mut done = Vec::new();
            for task in tasks {
                done.extend(task.join().await.unwrap());
            }
            cluster.master = None;
            cluster.start_master().await;
            let names = cluster.client().await.list().await;
            for (name, inode) in &done {
                assert_eq!(names.get(name), Some(inode), "seed {seed} lost {name}");
            }
            acknowledged.fetch_add(done.len(), std::sync::atomic::Ordering::Relaxed);
        });
    }
    assert!(acknowledged.into_inner() > 1000);
}

#[test]
fn a_restart_reads_the_newest_checkpoint_and_the_log_behind_it() {
    with_cluster(3, 3, |mut cluster| async move {
        let client = cluster.client().await;
        for number in 0..1500 {
            client.create(&format!("f{number}")).await.unwrap();
        }
        cluster.world.sleep(Duration::from_secs(2)).await;
        let names = cluster.process.runtime().disk().read_dir("/data".as_ref()).await.unwrap();
        let checkpoints = names.iter().filter(|name| name.starts_with("checkpoint-")).count();
        let segments = names.iter().filter(|name| name.ends_with(".segment")).count();
        assert_eq!(checkpoints, 2, "{names:?}");
        assert!(segments < 16, "the log behind the older checkpoint alone is kept: {names:?}");
        let before = cluster.status().await;
        cluster.crash_master().await;
        let after = cluster.status().await;
        assert_eq!((before.inodes, before.metablocks), (after.inodes, after.metablocks));
        assert!(client.list().await.contains_key("f1499"));
    });
}

/// Goal: a damaged newest checkpoint costs nothing as long as the older one and the log have everything. Otherwise it
/// stops the master. Method: files until there are two checkpoints; one is damaged, then both.
#[test]
fn a_damaged_checkpoint_is_made_good_by_the_older_one_and_the_log() {
    with_cluster(9, 3, |mut cluster| async move {
        let client = cluster.client().await;
        for number in 0..1500 {
            client.create(&format!("f{number}")).await.unwrap();
        }
        cluster.world.sleep(Duration::from_secs(2)).await;
        let before = cluster.status().await;
        damage_newest(&cluster).await;
        cluster.crash_master().await;
        let after = cluster.status().await;
        assert_eq!((before.inodes, before.metablocks), (after.inodes, after.metablocks));
        let names = cluster.process.runtime().disk().read_dir("/data".as_ref()).await.unwrap();
        assert_eq!(names.iter().filter(|name| name.ends_with(".damaged")).count(), 1, "{names:?}");
        // The log behind the older one begins too late to do without it.
        damage_newest(&cluster).await;
        cluster.process.crash();
        cluster.master = None;
        let error = Master::start(cluster.process.restart(), options()).await.unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{text}");
        assert!(text.contains("/data/checkpoint-") && text.contains("offset") && text.contains("saved copy"), "{text}");
    });
}

fn unlink(name: &str) -> ebb_wire::pb::meta_op::Op {
    ebb_wire::pb::meta_op::Op::Unlink(ebb_wire::pb::meta_op::Unlink { parent: 1, name: name.into() })
}

async fn damage_newest(cluster: &Cluster) {
    let disk = cluster.process.runtime().disk();
    let names = disk.read_dir("/data".as_ref()).await.unwrap();
    let newest = names.iter().rfind(|name| name.starts_with("checkpoint-") && !name.contains('.')).unwrap();
    let file = disk.open(&std::path::Path::new("/data").join(newest), ebb_runtime::OpenMode::Existing).await.unwrap();
    file.write_at(1000, vec![bytes::Bytes::from_static(b"rot")]).await.unwrap();
    file.sync_data().await.unwrap();
}

/// Goal: a full disk at the master refuses growth with `NoSpace` and nothing else. Reading and removing work, nothing
/// panics, and everything works again when there is room. Method: a foreign file takes nearly the whole disk.
#[test]
fn a_full_disk_at_the_master_stops_growth_alone_and_only_while_it_is_full() {
    with_cluster(10, 3, |mut cluster| async move {
        let client = cluster.watcher().await;
        for number in 0..50 {
            client.create(&format!("f{number}")).await.unwrap();
        }
        cluster.process.fill_disk(Some(10_000));
        let mut made = 0;
        let refused = loop {
            match client.create(&format!("g{made}")).await {
                Ok(_) => made += 1,
                Err(error) => break error,
            }
            assert!(made < 5000, "the disk never fills");
        };
        assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
        assert!(refused.to_string().contains("master's disk"), "{refused}");
        for number in 0..50 {
            client.mutate(unlink(&format!("f{number}"))).await.unwrap();
        }
        assert_eq!(client.create("one more").await.unwrap_err().kind(), ErrorKind::NoSpace);
        assert!(client.lookup("g0").await.is_ok(), "reading goes on");
        cluster.process.fill_disk(None);
        cluster.world.sleep(Duration::from_secs(3)).await;
        client.create("room again").await.unwrap();
        cluster.crash_master().await;
        let names = client.list().await;
        assert_eq!(names.len(), made + 1, "what was acknowledged on a full disk survives");
    });
}

#[test]
fn one_directory_serves_one_master_and_one_cluster() {
    World::run(4, WorldOptions::default(), |world| async move {
        let runtime = world.process("m").runtime();
        let master = Master::start(runtime.clone(), options()).await.unwrap();
        let error = Master::start(runtime.clone(), options()).await.unwrap_err();
        assert!(error.to_string().contains("another master"), "{error}");
        master.stop().await;
        let mut other = options();
        other.identity.cluster = ebb_types::ClusterId::new(78);
        let error = Master::start(runtime.clone(), other).await.unwrap_err();
        assert!(error.to_string().contains("belongs to cluster"), "{error}");
        Master::start(runtime, options()).await.unwrap().stop().await;
    });
}

#[test]
fn a_create_on_too_few_nodes_is_refused_and_makes_nothing() {
    // With two of three copies a write may be acknowledged.
    with_cluster(5, 1, |cluster| async move {
        let client = cluster.client().await;
        assert_eq!(client.create("a").await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(client.lookup("a").await.unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn a_failing_disk_stops_the_master_and_nothing_unsynced_is_acknowledged() {
    with_cluster(6, 3, |mut cluster| async move {
        let client = cluster.client().await;
        client.create("before").await.unwrap();
        let faults = ebb_runtime::virt::DiskFaults { sync_error: 1.0, ..Default::default() };
        cluster.process.disk_faults(faults);
        let unknown = client.create("during").await.unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::ShuttingDown, "it may be in the log all the same: {unknown}");
        assert!(client.create("after").await.is_err(), "the log takes no more since the failure");
        let failed = cluster.master.as_ref().unwrap().failed().await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Io, "{failed}");
        cluster.process.disk_faults(ebb_runtime::virt::DiskFaults::default());
        cluster.crash_master().await;
        assert!(client.lookup("before").await.is_ok());
    });
}

#[test]
fn malformed_and_foreign_requests_are_refused_with_a_reason() {
    with_cluster(7, 1, |cluster| async move {
        let client = cluster.client().await;
        let (channel, _) = cluster.channel();
        let wait = Duration::from_secs(5);
        let request = ebb_wire::pb::MetaRequest { session: client.session, ..Default::default() };
        assert_eq!(channel.call(&request, wait).await.unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(client.send(0, create("a", false)).await.unwrap_err().kind(), ErrorKind::Invalid, "no number");
        let poll = ebb_wire::pb::Poll { session: 999, ..Default::default() };
        assert_eq!(channel.call(&poll, wait).await.unwrap_err().kind(), ErrorKind::SessionExpired);
        let read = ebb_wire::pb::ReadReplica::default();
        assert_eq!(channel.call(&read, wait).await.unwrap_err().kind(), ErrorKind::Unauthorized);
        let register = ebb_wire::pb::RegisterNode::default();
        assert_eq!(channel.call(&register, wait).await.unwrap_err().kind(), ErrorKind::Invalid);
        let report = ebb_wire::pb::ReplicaReport { node: 5, ..Default::default() };
        assert_eq!(channel.call(&report, wait).await.unwrap_err().kind(), ErrorKind::Stale);
    });
}

/// Goal: bytes that a failed sync has left in the page cache are synced before they are believed. Method: the sync of a
/// change fails. The process is killed and started again, and so reads the cache. A change is acknowledged, and the
/// power fails.
#[test]
fn bytes_left_in_the_cache_by_a_failed_sync_are_synced_before_they_are_believed() {
    for seed in 0..12 {
        with_cluster(seed, 3, |mut cluster| async move {
            let client = cluster.watcher().await;
            client.create("before").await.unwrap();
            cluster.process.plan_disk_fault(PlannedFault::next(DiskWork::Sync, ".segment"));
            assert!(client.create("during").await.is_err(), "seed {seed}: its sync failed");
            cluster.process.kill();
            cluster.master = None;
            cluster.start_master().await;
            cluster.until("safe start", |status| status.safe_start && status.nodes.len() == 3).await;
            client.create("after").await.unwrap();
            let seen = client.list().await;
            cluster.crash_master().await;
            let names = client.list().await;
            assert!(seen.contains_key("after") && seen == names, "seed {seed}: {seen:?} was shown, {names:?} is there");
        });
    }
}
