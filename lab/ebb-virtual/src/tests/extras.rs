//! Extra copies of often read data, in a cluster.

use std::num::NonZeroUsize;
use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, Handle, NewFile};
use ebb_power::PolicyKind;
use ebb_runtime::virt::{World, WorldOptions};
use ebb_types::{Credentials, InodeId, NodeId};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{Op, SetDataset};

use crate::power::PowerCluster;
use crate::swarm::{self, Next};
use crate::{Report, VirtualOptions};

const INTERVAL: Duration = Duration::from_secs(2);
const BLOCK: usize = 64 << 10;
const NODES: usize = 7;

async fn set_share(client: &Client, percent: u32) {
    let set = SetDataset { dataset: 0, extra_share_percent: Some(percent), ..Default::default() };
    client.meta(&Credentials::root(), Op::SetDataset(set)).await.unwrap();
}

async fn make(client: &Client, name: &str, mark: u8) -> InodeId {
    let root = Credentials::root();
    let access = Access::ReadWrite;
    let made = client.create(&root, NewFile::exclusive(InodeId::ROOT, name.as_bytes(), access)).await.unwrap();
    client.write(made.handle, 0, Bytes::from(vec![mark; BLOCK])).await.unwrap();
    client.fsync(made.handle).await.unwrap();
    client.close(made.handle).await;
    made.attr.inode
}

async fn open(client: &Client, inode: InodeId, access: Access) -> Handle {
    client.open(&Credentials::root(), inode, access).await.unwrap().0
}

/// Nodes with a member, and nodes with an extra copy, as recorded.
async fn placed(client: &Client, inode: InodeId) -> (Vec<u64>, Vec<u64>) {
    let map = pb::meta_op::GetMap { inode: inode.raw(), first_index: 0, limit: 1 };
    let record = client.meta(&Credentials::root(), Op::GetMap(map)).await.unwrap().metablocks.remove(0);
    let nodes = |members: &[pb::Member]| members.iter().map(|member| member.node).collect();
    (nodes(&record.members), nodes(&record.extra))
}

/// Reads a file again and again for so long; everything must be this mark.
async fn read_often(world: &World, client: &Client, file: Handle, mark: u8, span: Duration) {
    let until = world.now() + span;
    while world.now() < until {
        let data = client.read(file, 0, BLOCK as u32).await.unwrap();
        assert!(data.len() == BLOCK && data.iter().all(|byte| *byte == mark), "another mark than {mark}");
        world.sleep(Duration::from_millis(20)).await;
    }
}

/// Goal: extra copies come with reads and go with them, are read, end at once when a writer comes, outlive the master,
/// and spare repair its copy. Method: one file of two is read all the time by a client without a cache.
#[test]
fn extra_copies_come_and_go_with_reads_and_make_way_for_writers() {
    World::run(21, WorldOptions::default(), |world| async move {
        let cluster = PowerCluster::start(&world, NODES, PolicyKind::AlwaysOn, INTERVAL).await.unwrap();
        let client = cluster.connect("client").await.unwrap();
        let (hot, cold) = (make(&client, "hot", 1).await, make(&client, "cold", 2).await);
        let file = open(&client, hot, Access::Read).await;
        let minute = Duration::from_secs(60);
        read_often(&world, &client, file, 1, minute).await;
        assert_eq!(placed(&client, hot).await.1, [0_u64; 0], "without a share there are none");
        set_share(&client, 50).await;
        read_often(&world, &client, file, 1, minute).await;
        let (members, extras) = placed(&client, hot).await;
        assert_eq!((members.len(), extras.len()), (3, 3), "six copies at most");
        assert_eq!(placed(&client, cold).await.1, [0_u64; 0]);
        let before = client.metrics().extra_reads;
        read_often(&world, &client, file, 1, Duration::from_secs(10)).await;
        assert!(client.metrics().extra_reads > before + 100, "extra copies take their part of the reads");
        let on_disks = cluster.locate(hot.raw()).await.unwrap();
        assert_eq!(on_disks.len(), 6, "{on_disks:?}");

        cluster.restart_master().await;
        assert_eq!(placed(&client, hot).await, (members.clone(), extras), "the record is durable");
        read_often(&world, &client, file, 1, minute).await;

        // A member's node is gone: an extra copy becomes the member, and nothing is copied for it.
        let copied = cluster.cluster_status().await.unwrap();
        cluster.fail(NodeId::new(members[0])).unwrap();
        read_often(&world, &client, file, 1, minute).await;
        let (after, extras) = placed(&client, hot).await;
        assert!(after.len() == 3 && !after.contains(&members[0]), "{after:?}");
        assert!(extras.iter().all(|extra| !after.contains(extra)), "{extras:?} beside {after:?}");
        assert!(cluster.cluster_status().await.unwrap().repaired > copied.repaired);
        cluster.repair(NodeId::new(members[0])).unwrap();
        world.sleep(minute).await;

        // A writer: extra copies are gone before its first byte, and readers see its write.
        read_often(&world, &client, file, 1, minute).await;
        assert!(!placed(&client, hot).await.1.is_empty());
        let writer = cluster.connect("writer").await.unwrap();
        let write = open(&writer, hot, Access::Write).await;
        writer.write(write, 0, Bytes::from(vec![9; BLOCK])).await.unwrap();
        assert_eq!(placed(&client, hot).await.1, [0_u64; 0]);
        read_often(&world, &client, file, 9, Duration::from_secs(5)).await;
        writer.close(write).await;
        writer.disconnect().await.unwrap();
        read_often(&world, &client, file, 9, minute).await;
        assert!(!placed(&client, hot).await.1.is_empty(), "it is read as before");

        // No client reads any more.
        world.sleep(minute * 2).await;
        assert_eq!(placed(&client, hot).await.1, [0_u64; 0]);
        assert_eq!(cluster.locate(hot.raw()).await.unwrap().len(), 3);
        client.disconnect().await.unwrap();
        world.sleep(minute).await;
        let status = cluster.cluster_status().await.unwrap();
        let replicas: u64 = status.nodes.iter().flat_map(|node| &node.volumes).map(|volume| volume.replicas).sum();
        assert_eq!((status.under_replicated, replicas), (0, 6), "nothing is left behind");
    });
}

/// Goal: nodes that blink get extra copies where they meet, and the reads of each node's data reach the power manager.
#[test]
fn popularity_reaches_the_power_manager() {
    World::run(22, WorldOptions::default(), |world| async move {
        let cluster = PowerCluster::start(&world, NODES, PolicyKind::LoadProportional, INTERVAL).await.unwrap();
        let client = cluster.connect("client").await.unwrap();
        let hot = make(&client, "hot", 1).await;
        let file = open(&client, hot, Access::Read).await;
        cluster.set_fraction(0.6).await.unwrap();
        read_often(&world, &client, file, 1, Duration::from_secs(60)).await;
        let members = placed(&client, hot).await.0;
        let reads = cluster.describe().await.unwrap().reads;
        assert_eq!(reads.iter().map(|one| one.node).collect::<std::collections::BTreeSet<_>>().len(), 3, "{reads:?}");
        let status = cluster.status().await.unwrap();
        let active = |wanted: bool| {
            let of = status.nodes.iter().filter(|node| members.contains(&node.id) == wanted);
            of.map(|node| node.active_s).collect::<Vec<f64>>()
        };
        let least_popular = active(true).into_iter().fold(f64::MAX, f64::min);
        let most_other = active(false).into_iter().fold(0.0, f64::max);
        assert!(
            least_popular > most_other * 1.5,
            "{:?} of those with the file, {:?} of others",
            active(true),
            active(false)
        );
    });
}

fn good(report: &Report) {
    let shown: Vec<_> = report.violations.iter().take(5).collect();
    assert!(report.violations.is_empty(), "seed {}: {shown:#?}\nof {:?}", report.seed, report.injected);
}

/// Goal: extra copies under faults break no promise. Method: seeds in which nearly everything is to have some, also
/// data that are written all the time, so that leases end most of them while they are made, or soon after.
#[test]
fn extra_copies_under_faults_keep_their_promises() {
    let options = |seed| VirtualOptions {
        extra_share_percent: 80,
        chaos: Duration::from_secs(50),
        fault_pause: Duration::from_secs(4),
        ..VirtualOptions::drawn(seed)
    };
    let mut read = Vec::new();
    swarm::run_all(3000..3010, NonZeroUsize::MIN, options, |report| {
        good(&report);
        read.push(report.extra_reads);
        Next::GoOn
    });
    assert!(read.iter().sum::<u64>() > 0, "extra copies are read: {read:?}");
}
