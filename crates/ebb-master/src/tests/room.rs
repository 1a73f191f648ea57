//! Room is promised before it is used, so that refusals come with the request for it.

use std::time::Duration;

use ebb_types::{Epoch, ErrorKind, Result, Version};
use ebb_wire::pb;
use pb::meta_op::{CreateDataset, Grant, Op, SetDataset, StatFs, Unlink};

use super::harness::{Cluster, TestClient, held, with_cluster};

const MIB: u64 = 1 << 20;

async fn dataset(client: &TestClient, quota_bytes: u64) -> pb::Dataset {
    let dataset = pb::Dataset { path: "/d".into(), quota_bytes, ..Default::default() };
    client
        .mutate(Op::CreateDataset(CreateDataset { dataset: Some(dataset), ..Default::default() }))
        .await
        .unwrap()
        .dataset
        .unwrap()
}

async fn create(client: &TestClient, parent: u64, name: &str) -> Result<pb::MetaReply> {
    let create = pb::meta_op::Create { parent, name: name.into(), mode: 0o644, ..Default::default() };
    client.mutate(Op::Create(create)).await
}

async fn more(client: &TestClient, attr: &pb::Attr, index: u64) -> Result<u64> {
    let grant = Grant { inode: attr.inode, epoch: attr.epoch, indexes: vec![index], ..Default::default() };
    client.mutate(Op::Grant(grant)).await.map(|reply| reply.metablocks[0].reserved)
}

async fn stat(client: &TestClient, inode: u64) -> pb::StatFsReply {
    client.send(0, Op::StatFs(StatFs { inode })).await.unwrap().stat_fs.unwrap()
}

#[test]
fn a_quota_refuses_a_grant_and_counts_what_is_reserved() {
    with_cluster(51, 3, |cluster: Cluster| async move {
        let client = cluster.watcher().await;
        let dataset = dataset(&client, 2 * MIB + 500).await;
        let made = create(&client, dataset.root_inode, "a").await.unwrap();
        let (attr, block) = (made.attr.unwrap(), made.metablocks[0].clone());
        assert_eq!(block.reserved, MIB, "a block to begin with");
        assert_eq!(more(&client, &attr, 0).await.unwrap(), 2 * MIB, "another one, as it gets tight");
        assert_eq!(more(&client, &attr, 0).await.unwrap(), 2 * MIB + 500, "the rest");
        assert_eq!(more(&client, &attr, 0).await.unwrap_err().kind(), ErrorKind::QuotaExceeded);
        assert_eq!(more(&client, &attr, 1).await.unwrap_err().kind(), ErrorKind::QuotaExceeded);
        let empty = create(&client, dataset.root_inode, "b").await.unwrap();
        assert!(empty.metablocks.is_empty(), "a file costs no bytes, but there is no room for any");
        let found = stat(&client, dataset.root_inode).await;
        assert_eq!((found.capacity_bytes, found.free_bytes), ((2 * MIB + 500) * 3, 0));
        // Committed bytes count; the rest of the promise comes back with the lease.
        let version = Some(pb::Version { epoch: attr.epoch, seq: 1 });
        let committed = pb::CommitMetablock { id: block.id, version, length: 700 };
        client.commit(&attr, vec![committed], 700, true).await.unwrap();
        assert_eq!(stat(&client, dataset.root_inode).await.free_bytes, (2 * MIB + 500 - 700) * 3);
        let set = SetDataset { dataset: dataset.id, quota_bytes: Some(0), quota_inodes: None, ..Default::default() };
        client.mutate(Op::SetDataset(set)).await.unwrap();
        let attr = empty.attr.unwrap();
        assert_eq!(more(&client, &attr, 0).await.unwrap(), 64 * MIB, "no quota, and plenty of room");
    });
}

/// Goal: the recovery of a dead writer may find its whole promise written, so that room is not given to another before.
#[test]
fn a_dead_holders_grant_counts_until_it_is_recovered() {
    with_cluster(57, 3, |cluster: Cluster| async move {
        let client = cluster.watcher().await;
        let dataset = dataset(&client, 2 * MIB + 500).await;
        let dying = cluster.client().await;
        let made = create(&dying, dataset.root_inode, "a").await.unwrap();
        let (attr, block) = (made.attr.unwrap(), made.metablocks[0].clone());
        assert_eq!(block.reserved, MIB);
        for member in &block.members {
            cluster.node(member.node).put(block.id, Version::new(Epoch::new(attr.epoch), 1), MIB);
        }
        cluster.node(block.members[0].node).held.lock().silent_stamps = u32::MAX;
        let second = create(&client, dataset.root_inode, "b").await.unwrap();
        let b = second.attr.unwrap();
        assert_eq!(second.metablocks[0].reserved, MIB);
        while cluster.status().await.sessions > 1 {
            cluster.world.sleep(Duration::from_millis(20)).await;
        }
        assert!(client.attr(attr.inode).await.is_err(), "it is being recovered");
        assert_eq!(more(&client, &b, 0).await.unwrap(), MIB + 500, "the rest, without the promised bytes");
        cluster.node(block.members[0].node).held.lock().silent_stamps = 0;
        let recovered = loop {
            match client.attr(attr.inode).await {
                Ok(attr) => break attr,
                Err(_) => cluster.world.sleep(Duration::from_millis(100)).await,
            }
        };
        assert_eq!(recovered.size, MIB);
        assert_eq!(more(&client, &b, 0).await.unwrap_err().kind(), ErrorKind::QuotaExceeded);
    });
}

/// Goal: the last bytes of nearly full volumes are promised once, and the next writer is refused when it asks.
#[test]
fn full_volumes_are_refused_before_any_write_and_service_goes_on_with_space() {
    with_cluster(52, 3, |cluster: Cluster| async move {
        let client = cluster.watcher().await;
        let plenty = create(&client, 1, "a").await.unwrap();
        let attr = plenty.attr.unwrap();
        fill(&cluster, 256 * MIB + 3 * MIB).await;
        assert_eq!(more(&client, &attr, 0).await.unwrap(), 2 * MIB, "a block more, of the three that are left");
        let second = create(&client, 1, "b").await.unwrap();
        assert_eq!(second.metablocks[0].reserved, MIB);
        assert_eq!(more(&client, &attr, 0).await.unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(create(&client, 1, "c").await.unwrap_err().kind(), ErrorKind::NoSpace);
        assert!(stat(&client, 1).await.free_bytes <= 3 * 256 * MIB, "df subtracts promised bytes");
        assert!(client.lookup("a").await.is_ok());
        fill(&cluster, 1 << 39).await;
        assert_eq!(more(&client, &attr, 0).await.unwrap(), 64 * MIB);
        create(&client, 1, "c").await.unwrap();
    });
}

/// Goal: a request for room waits, for a bounded time, while room of a removed file is coming back. It is refused at
/// once if none is coming. Method: volumes that report freed space only with a heartbeat.
#[test]
fn room_of_removed_files_is_waited_for() {
    with_cluster(56, 3, |cluster: Cluster| async move {
        let client = cluster.watcher().await;
        let attr = create(&client, 1, "a").await.unwrap().attr.unwrap();
        let lost = create(&client, 1, "b").await.unwrap().attr.unwrap();
        fill(&cluster, 256 * MIB + MIB).await;
        while more(&client, &attr, 0).await.is_ok() {}
        let ask = async |name: &str| {
            let begun = client.runtime.now();
            let (grown, made) = (more(&client, &attr, 0).await, create(&client, 1, name).await);
            (
                grown.map_err(|error| error.kind()),
                made.map(drop).map_err(|error| error.kind()),
                client.runtime.now().since(begun),
            )
        };
        let (grown, made, took) = ask("c").await;
        assert_eq!((grown, made), (Err(ErrorKind::NoSpace), Err(ErrorKind::NoSpace)));
        assert!(took < Duration::from_millis(500), "nothing comes: {took:?}");

        client.mutate(Op::Unlink(Unlink { parent: 1, name: "b".into() })).await.unwrap();
        client.forget(lost.inode).await;
        let freed = async {
            cluster.world.sleep(Duration::from_millis(600)).await;
            cluster.fakes.iter().for_each(|fake| fake.held.lock().ballast_bytes -= 64 * MIB);
        };
        let ((grown, made, took), ()) = tokio::join!(ask("c"), freed);
        assert_eq!((grown.is_ok(), made), (true, Ok(())), "{took:?}");
    });
}

/// Goal: a new process of the master gives no room that an earlier one had reserved for another writer.
#[test]
fn reservations_survive_a_restart_of_the_master() {
    with_cluster(53, 3, |mut cluster: Cluster| async move {
        let (client, other) = (cluster.watcher().await, cluster.watcher().await);
        let dataset = dataset(&client, 3 * MIB).await;
        let made = create(&client, dataset.root_inode, "a").await.unwrap();
        let (attr, block) = (made.attr.unwrap(), made.metablocks[0].clone());
        assert_eq!((block.reserved, more(&client, &attr, 0).await.unwrap()), (MIB, 2 * MIB));
        cluster.crash_master().await;
        cluster.until("nodes", |status| status.safe_start).await;
        assert_eq!(stat(&client, dataset.root_inode).await.free_bytes, 0, "anything may have been reserved");
        let second = create(&other, dataset.root_inode, "b").await.unwrap().attr.unwrap();
        let reclaim = async {
            client.runtime.sleep(Duration::from_secs(1)).await;
            let reserved = vec![pb::Reserved { metablock: block.id, reserved: 2 * MIB }];
            let lease = pb::Held { reserved, ..held(attr.inode, pb::LeaseMode::LeaseWrite, attr.epoch, 0) };
            let leases = vec![lease];
            let reclaim = pb::Reclaim { session: client.session, leases, tells_reserved: true, ..Default::default() };
            client.channel.call(&reclaim, Duration::from_secs(5)).await.unwrap();
        };
        let (own, granted, ()) = tokio::join!(more(&client, &attr, 0), more(&other, &second, 0), reclaim);
        // Both wait for the report, and then one of them has the third block.
        let total = own.clone().unwrap_or(2 * MIB) + granted.clone().unwrap_or(0);
        assert_eq!(total, 3 * MIB, "{own:?}, {granted:?}");
        assert_eq!(stat(&client, dataset.root_inode).await.free_bytes, 0);
    });
}

/// Leaves this many bytes free on each volume, and waits until the master has heard it.
async fn fill(cluster: &Cluster, free_bytes: u64) {
    for fake in &cluster.fakes {
        fake.held.lock().ballast_bytes = (1 << 39) - free_bytes;
    }
    cluster.world.sleep(Duration::from_secs(3)).await;
}

/// Goal: unused room of files that are not being written comes back when another file needs it, and only then. Active
/// writers keep their room.
#[test]
fn room_that_is_not_used_comes_back_when_another_needs_it() {
    with_cluster(53, 3, |cluster: Cluster| async move {
        let (idle, other) = (cluster.client().await, cluster.watcher().await);
        let dataset = dataset(&idle, 2 * MIB).await;
        let made = create(&idle, dataset.root_inode, "a").await.unwrap().attr.unwrap();
        let begun = idle.runtime.now();
        while idle.runtime.now().since(begun) < Duration::from_secs(12) {
            assert!(idle.poll(vec![]).await.unwrap().recalls.is_empty());
        }
        let busy = create(&other, dataset.root_inode, "b").await.unwrap().attr.unwrap();
        assert_eq!(stat(&other, dataset.root_inode).await.free_bytes, 0, "two first blocks");
        let attr = create(&other, dataset.root_inode, "c").await.unwrap().attr.unwrap();
        let give_back = async {
            let recall = idle.next_recall().await;
            assert_eq!((recall.inode, recall.keep()), (made.inode, pb::LeaseMode::LeaseRead));
            idle.commit(&made, Vec::new(), 0, true).await.unwrap();
        };
        let (granted, ()) = tokio::join!(more(&other, &attr, 0), give_back);
        assert_eq!(granted.unwrap(), MIB);
        let begun = other.runtime.now();
        assert_eq!(more(&other, &busy, 1).await.unwrap_err().kind(), ErrorKind::QuotaExceeded);
        assert!(other.runtime.now().since(begun) < Duration::from_secs(1), "nobody has any to give back");
    });
}

#[test]
fn a_client_that_returns_no_room_keeps_another_waiting_for_a_bounded_time() {
    with_cluster(54, 3, |cluster: Cluster| async move {
        let (idle, other) = (cluster.watcher().await, cluster.watcher().await);
        let dataset = dataset(&idle, MIB).await;
        create(&idle, dataset.root_inode, "a").await.unwrap();
        let attr = create(&other, dataset.root_inode, "b").await.unwrap().attr.unwrap();
        cluster.world.sleep(Duration::from_secs(12)).await;
        let begun = other.runtime.now();
        assert_eq!(more(&other, &attr, 0).await.unwrap_err().kind(), ErrorKind::QuotaExceeded);
        let took = other.runtime.now().since(begun);
        assert!((Duration::from_secs(3)..Duration::from_secs(4)).contains(&took), "{took:?}");
    });
}
