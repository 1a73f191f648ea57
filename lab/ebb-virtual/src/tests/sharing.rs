//! Several datasets that are read at once, each by nodes of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, NewFile, NewName};
use ebb_power::PolicyKind;
use ebb_runtime::virt::{World, WorldOptions};
use ebb_types::{Credentials, InodeId, NodeId};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{CreateDataset, Op, SetDataset};

use crate::power::{DEAD_TIME, PowerCluster};

const NODES: usize = 8;
const FILES: u64 = 4;
const BLOCKS: u64 = 16;
const BLOCK: u64 = 64 << 10;
/// More than the time in which reads are reported twice, and the decision is made.
const SEEN: Duration = Duration::from_secs(8);
/// More than the time after which a dataset that is not read gives its nodes up.
const LEFT: Duration = Duration::from_secs(15);

/// A dataset and the client that reads it, block by block, but for pauses.
struct Reader {
    dataset: u64,
    client: Client,
    pauses: Arc<AtomicBool>,
    read: Arc<AtomicU64>,
}

/// Makes a dataset with data in it, and begins to read it. Every read has to succeed, with the bytes that were written.
async fn read_dataset(world: &World, cluster: &PowerCluster, name: &str, share: u32) -> Reader {
    let (root, host) = (Credentials::root(), format!("reader of {name}"));
    let client = cluster.connect(&host).await.unwrap();
    let directory = NewName { parent: InodeId::ROOT, name: name.as_bytes(), mode: 0o755, umask: 0 };
    let directory = client.make_dir(&root, directory).await.unwrap().inode;
    let dataset = pb::Dataset {
        path: format!("/{name}"),
        layout: "equal-work".to_owned(),
        primaries: 2,
        replicas: 3,
        block_size: BLOCK,
        metablock_size: BLOCK,
        share,
        ..Default::default()
    };
    let made = client
        .meta(&root, Op::CreateDataset(CreateDataset { dataset: Some(dataset), ..Default::default() }))
        .await
        .unwrap();
    let mut handles = Vec::new();
    for number in 0..FILES {
        let name = format!("f{number}");
        let made = client.create(&root, NewFile::exclusive(directory, name.as_bytes(), Access::Write)).await.unwrap();
        for block in 0..BLOCKS {
            let data = Bytes::from(vec![(number * BLOCKS + block) as u8; BLOCK as usize]);
            client.write(made.handle, block * BLOCK, data).await.unwrap();
        }
        client.fsync(made.handle).await.unwrap();
        client.close(made.handle).await;
        handles.push(client.open(&root, made.attr.inode, Access::Read).await.unwrap().0);
    }
    let (pauses, read) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let reader = Reader { dataset: made.dataset.unwrap().id, client, pauses, read };
    let (client, pauses, read) = (reader.client.clone(), Arc::clone(&reader.pauses), Arc::clone(&reader.read));
    let world = world.clone();
    world.process(&host).runtime().spawn("read", async move {
        loop {
            let number = read.load(Ordering::Relaxed) * 7 % (FILES * BLOCKS);
            let handle = handles[(number / BLOCKS) as usize];
            let data = client.read(handle, number % BLOCKS * BLOCK, BLOCK as u32).await.unwrap();
            assert!(data.len() as u64 == BLOCK && data.iter().all(|byte| u64::from(*byte) == number));
            read.fetch_add(1, Ordering::Relaxed);
            world.sleep(Duration::from_millis(15)).await;
            while pauses.load(Ordering::Relaxed) {
                world.sleep(Duration::from_millis(15)).await;
            }
        }
    });
    reader
}

impl Reader {
    /// Nodes that serve its dataset alone, as its client knows it.
    fn own(&self) -> Vec<NodeId> {
        let own = self.client.nodes().into_iter().filter(|node| node.serves == Some(self.dataset));
        own.map(|node| NodeId::new(node.id)).collect()
    }

    /// Blocks that each node sent while this one alone read for so long; of all nodes that sent any.
    async fn served(
        &self,
        world: &World,
        cluster: &PowerCluster,
        others: &[&Reader],
        span: Duration,
    ) -> BTreeMap<NodeId, u64> {
        others.iter().for_each(|other| other.pauses.store(true, Ordering::Relaxed));
        world.sleep(Duration::from_millis(500)).await;
        let (before, read) = (cluster.sent_bytes().await.unwrap(), self.read.load(Ordering::Relaxed));
        world.sleep(span).await;
        let after = cluster.sent_bytes().await.unwrap();
        assert!(self.read.load(Ordering::Relaxed) - read > 20, "it does not read");
        others.iter().for_each(|other| other.pauses.store(false, Ordering::Relaxed));
        let place = |host: &str| host.strip_prefix('h').unwrap().parse::<usize>().unwrap() - 1;
        let nodes = self.client.nodes().into_iter().map(|node| (NodeId::new(node.id), place(&node.host)));
        let blocks = nodes.map(|(node, place)| (node, (after[place] - before[place]) / BLOCK));
        blocks.filter(|(_, blocks)| *blocks > 0).collect()
    }
}

async fn set_share(client: &Client, dataset: u64, share: u32) {
    let set = SetDataset { dataset, share: Some(share), ..Default::default() };
    client.meta(&Credentials::root(), Op::SetDataset(set)).await.unwrap();
}

/// Goal: each node serves one of two datasets, in proportion to shares that are changed while they are read; a node that
/// dies, a master that begins anew and a dataset that is no more read cost no read. Method: readers that check every byte
/// read all the time; while one pauses, what the nodes send is the other's.
#[test]
fn each_node_serves_one_of_the_datasets_that_are_read() {
    World::run(5, WorldOptions::default(), |world| async move {
        let interval = Duration::from_secs(60);
        let cluster = PowerCluster::start(&world, NODES, PolicyKind::AlwaysOn, interval).await.unwrap();
        let one = read_dataset(&world, &cluster, "one", 1).await;
        world.sleep(SEEN).await;
        assert_eq!(one.own().len(), NODES, "it is the only one");
        let other = read_dataset(&world, &cluster, "other", 1).await;
        world.sleep(SEEN).await;
        assert_eq!((one.own().len(), other.own().len()), (4, 4));
        for (reader, rival) in [(&one, &other), (&other, &one)] {
            let served = reader.served(&world, &cluster, &[rival], Duration::from_secs(3)).await;
            assert_eq!(served.keys().copied().collect::<Vec<_>>(), reader.own(), "{served:?}");
        }
        world.sleep(SEEN).await;

        set_share(&one.client, one.dataset, 3).await;
        world.sleep(Duration::from_secs(2)).await;
        assert_eq!((one.own().len(), other.own().len()), (6, 2));
        let served = other.served(&world, &cluster, &[&one], Duration::from_secs(3)).await;
        assert_eq!(
            served.keys().copied().collect::<Vec<_>>(),
            other.own(),
            "its primaries hold everything: {served:?}"
        );
        world.sleep(SEEN).await;

        let victim = other.own()[0];
        cluster.fail(victim).unwrap();
        world.sleep(DEAD_TIME + SEEN).await;
        assert!(!one.own().contains(&victim) && !other.own().contains(&victim));
        assert_eq!(one.own().len() + other.own().len(), NODES - 1);
        let before = other.read.load(Ordering::Relaxed);
        world.sleep(Duration::from_secs(2)).await;
        assert!(other.read.load(Ordering::Relaxed) > before + 20, "what its node held is read from others");
        cluster.repair(victim).unwrap();
        world.sleep(SEEN).await;
        assert_eq!((one.own().len(), other.own().len()), (6, 2));

        cluster.restart_master().await;
        world.sleep(SEEN * 2).await;
        assert_eq!((one.own().len(), other.own().len()), (6, 2), "clients have reported their reads again");

        one.pauses.store(true, Ordering::Relaxed);
        world.sleep(LEFT).await;
        assert_eq!((one.own().len(), other.own().len()), (0, NODES));
        set_share(&one.client, other.dataset, 0).await;
        world.sleep(Duration::from_secs(2)).await;
        assert_eq!(other.own(), [], "without a share it is read from all nodes");
    });
}

/// Goal: an allotment keeps to the nodes that a plan leaves on, and never puts data out of reach. Method: the power falls
/// to that of four nodes of eight, while both datasets are read.
#[test]
fn nodes_that_a_plan_keeps_off_serve_no_dataset() {
    World::run(6, WorldOptions::default(), |world| async move {
        let interval = Duration::from_secs(2);
        let cluster = PowerCluster::start(&world, NODES, PolicyKind::Activation, interval).await.unwrap();
        let one = read_dataset(&world, &cluster, "one", 1).await;
        let other = read_dataset(&world, &cluster, "other", 1).await;
        world.sleep(SEEN).await;
        assert_eq!((one.own().len(), other.own().len()), (4, 4));
        cluster.set_fraction(0.6).await.unwrap();
        world.sleep(SEEN).await;
        let on = cluster.census().serving;
        assert!(on < NODES, "no node is off");
        assert_eq!(one.own().len() + other.own().len(), on, "{:?} {:?}", one.own(), other.own());
        let reads = [&one, &other].map(|reader| reader.read.load(Ordering::Relaxed));
        world.sleep(Duration::from_secs(2)).await;
        let later = [&one, &other].map(|reader| reader.read.load(Ordering::Relaxed));
        assert!(later.iter().zip(reads).all(|(later, before)| *later > before + 20), "{reads:?} {later:?}");
    });
}
