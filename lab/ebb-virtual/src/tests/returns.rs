//! A power cut after which nodes come back one by one: nothing is copied that is still there, and no node is needed alone.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, Created, NewFile};
use ebb_runtime::virt::{World, WorldOptions};
use ebb_types::{Credentials, InodeId};
use ebb_wire::pb;

use crate::VirtualOptions;
use crate::cluster::{Cluster, Member, Role};
use crate::faults::kind::BLOCK_DIR;
use crate::invariants::copies;

const FILES: u8 = 8;
const LENGTH: usize = 200_000;
const CALL_MAX: Duration = Duration::from_secs(5);

fn blocks(cluster: &Cluster) -> Vec<Member> {
    cluster.members().iter().filter(|member| member.role == Role::Block).cloned().collect()
}

async fn connect(cluster: &Cluster, host: &str) -> Client {
    let runtime = cluster.world().process(host).restart();
    loop {
        match cluster.connect(&runtime, host).await {
            Ok(client) => return client,
            Err(_) => cluster.world().sleep(Duration::from_millis(500)).await,
        }
    }
}

async fn until(
    cluster: &Cluster,
    event: &str,
    is_so: impl Fn(&pb::ClusterStatusReply) -> bool,
) -> pb::ClusterStatusReply {
    let mut last = None;
    for _ in 0..400 {
        if let Ok(status) = cluster.operator().call(&pb::ClusterStatus {}, CALL_MAX).await {
            if is_so(&status) {
                return status;
            }
            last = Some(status);
        }
        cluster.world().sleep(Duration::from_millis(500)).await;
    }
    panic!("{event} did not come about: {last:?}");
}

fn is_complete(status: &pb::ClusterStatusReply) -> bool {
    let live = status.nodes.iter().filter(|node| node.state() == pb::NodeState::NodeLive).count();
    status.safe_start && live == 3 && status.under_replicated == 0 && status.repairs_running == 0
}

async fn write(client: &Client) -> Vec<InodeId> {
    let (root, access) = (Credentials::root(), Access::ReadWrite);
    let mut files = Vec::new();
    for number in 0..FILES {
        let name = format!("f{number}");
        let made = client.create(&root, NewFile::exclusive(InodeId::ROOT, name.as_bytes(), access)).await;
        let Created { handle, attr, .. } = made.unwrap();
        client.write(handle, 0, Bytes::from(vec![number; LENGTH])).await.unwrap();
        client.fsync(handle).await.unwrap();
        files.push(attr.inode);
    }
    files
}

async fn check(client: &Client, files: &[InodeId]) {
    for (number, file) in files.iter().enumerate() {
        let handle = client.open(&Credentials::root(), *file, Access::Read).await.unwrap().0;
        let mut read = Vec::new();
        while read.len() < LENGTH {
            let part =
                client.read(handle, read.len() as u64, (LENGTH - read.len()).min(64 << 10) as u32).await.unwrap();
            assert!(!part.is_empty(), "f{number} ends at {}", read.len());
            read.extend_from_slice(&part);
        }
        assert!(read.iter().all(|byte| usize::from(*byte) == number), "f{number} does not have its synced content");
    }
}

/// Power fails everywhere; the master and one node are back at once, the others after `later`. Returns the status with
/// the copies that were made again.
fn return_after(seed: u64, later: Duration) -> pb::ClusterStatusReply {
    World::run(seed, WorldOptions::default(), |world| async move {
        let options = VirtualOptions { block_servers: 3, clients: 0, racks: 1, ..VirtualOptions::default() };
        let cluster = Cluster::start(crate::board(&world), options);
        until(&cluster, "three nodes", |status| status.safe_start && status.nodes.len() == 3).await;
        let client = connect(&cluster, "writer").await;
        let files = write(&client).await;
        for member in cluster.members() {
            member.process.power_off();
        }
        world.process("writer").power_off();
        world.sleep(Duration::from_secs(2)).await;
        let blocks = blocks(&cluster);
        cluster.restart(&cluster.members()[0]);
        cluster.restart(&blocks[0]);
        world.sleep(later).await;
        cluster.restart(&blocks[1]);
        cluster.restart(&blocks[2]);
        let mut before = copies::scan_disks(&cluster);
        for _ in 0..400 {
            world.sleep(Duration::from_millis(50)).await;
            let now = copies::scan_disks(&cluster);
            assert_eq!(copies::check(&before, &now, 3), [], "seed {seed}");
            before = now;
        }
        // Until recoveries have ended, with any result.
        let reader = connect(&cluster, "reader").await;
        check(&reader, &files).await;
        let status = until(&cluster, "three copies", is_complete).await;
        world.sleep(Duration::from_secs(5)).await;
        // Any one may go now.
        blocks[0].process.power_off();
        blocks[0].process.wipe_disk(Path::new(BLOCK_DIR));
        let reader = connect(&cluster, "other reader").await;
        check(&reader, &files).await;
        status
    })
}

#[test]
fn nodes_that_come_back_while_recoveries_wait_keep_their_replicas() {
    for (seed, later) in [(1, 15), (2, 22), (3, 25)] {
        let status = return_after(seed, Duration::from_secs(later));
        assert_eq!((status.repaired, status.repaired_bytes), (0, 0), "seed {seed}: copied again");
    }
}

#[test]
fn nodes_that_were_left_out_come_back_with_their_replicas() {
    for (seed, later) in [(4, 45), (5, 60)] {
        let status = return_after(seed, Duration::from_secs(later));
        assert_eq!((status.repaired, status.repaired_bytes), (0, 0), "seed {seed}: copied again");
        assert!(status.rejoined >= u64::from(FILES), "seed {seed}: {} members rejoined", status.rejoined);
    }
}
