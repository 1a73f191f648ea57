//! RAID sets in a whole cluster.

mod encode;
mod on_lsns;
mod on_volumes;
mod repack;
mod snapshots;
mod soon;
mod swarm;
mod thaw;

use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, Created, NewFile};
use ebb_power::PolicyKind;
use ebb_runtime::virt::World;
use ebb_types::{Credentials, InodeId};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{CreateDataset, GetMap, GetRaidSets, Op};

use crate::power::{PowerCluster, PowerOptions};

const INTERVAL: Duration = Duration::from_secs(2);
const METABLOCK: usize = 1 << 20;
const FILES: u8 = 8;
/// Time for RAID sets to be as wanted. A lost member is waited for ten minutes while others may be lost without harm.
const WITHIN: Duration = Duration::from_secs(900);

/// A file's bytes, which differ by place and number.
fn content(number: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 11 + at * 29) as u8 ^ number.wrapping_mul(41)).collect()
}

struct Scene {
    cluster: PowerCluster,
    client: Client,
    dataset: u64,
    directory: InodeId,
    /// Files with their lengths.
    files: Vec<(InodeId, usize)>,
    /// Their numbers, which their names and bytes come from.
    numbers: Vec<u8>,
}

impl Scene {
    /// Eight nodes, and a dataset of 4+2 with files of one metablock and a bit less.
    async fn start(world: &World, policy: PolicyKind) -> Self {
        Self::start_on(world, policy, 8, "").await
    }

    /// So many nodes, and this layout.
    async fn start_on(world: &World, policy: PolicyKind, nodes: usize, layout: &str) -> Self {
        let settings = pb::Dataset { layout: layout.into(), replicas: 3, ..Default::default() };
        Self::start_with(world, PowerOptions::new(nodes, policy, INTERVAL), settings).await
    }

    /// This cluster, and a dataset with this layout and so many copies.
    async fn start_with(world: &World, options: PowerOptions, settings: pb::Dataset) -> Self {
        Self::written_on("client", world, options, settings).await
    }

    /// The same, with files written on this host.
    async fn written_on(host: &str, world: &World, options: PowerOptions, settings: pb::Dataset) -> Self {
        let cluster = PowerCluster::start_with(world, options).await.unwrap();
        let client = cluster.connect(host).await.unwrap();
        let dataset = pb::Dataset {
            path: "/cold".into(),
            block_size: 256 << 10,
            metablock_size: METABLOCK as u64,
            raid_copies: 1,
            raid_slots: if settings.raid_slots == 0 { 4 } else { settings.raid_slots },
            raid_rows: 2,
            delay_ms: 5_000,
            ..settings
        };
        let root = Credentials::root();
        let accept_node_loss = dataset.raid_domain > 0;
        let create = CreateDataset { dataset: Some(dataset), accept_node_loss, ..Default::default() };
        let made = client.meta(&root, Op::CreateDataset(create)).await.unwrap();
        let dataset = made.dataset.unwrap();
        let directory = InodeId::new(dataset.root_inode);
        let mut files = Vec::new();
        for number in 0..FILES {
            let len = METABLOCK - usize::from(number) * 7_777;
            let (name, access) = (format!("f{number}"), Access::ReadWrite);
            let new = NewFile::exclusive(directory, name.as_bytes(), access);
            let Created { handle, attr, .. } = client.create(&root, new).await.unwrap();
            client.write(handle, 0, Bytes::from(content(number, len))).await.unwrap();
            client.fsync(handle).await.unwrap();
            client.close(handle).await;
            files.push((attr.inode, len));
        }
        Self { cluster, client, dataset: dataset.id, directory, files, numbers: (0..FILES).collect() }
    }

    async fn record(&self, file: usize) -> pb::Metablock {
        let map = GetMap { inode: self.files[file].0.raw(), first_index: 0, limit: 1 };
        self.client.meta(&Credentials::root(), Op::GetMap(map)).await.unwrap().metablocks.remove(0)
    }

    /// The RAID sets of all files, once each file is in one, and all of them are so.
    async fn encoded(&self, world: &World, are: impl Fn(&pb::RaidSet) -> bool) -> Vec<pb::RaidSet> {
        let begun = world.now();
        loop {
            let mut metablocks = Vec::new();
            for file in 0..self.files.len() {
                metablocks.push(self.record(file).await);
            }
            if metablocks.iter().all(pb::Metablock::is_in_raid_set) {
                let metablocks = metablocks.iter().map(|record| record.id).collect();
                let query = Op::GetRaidSets(GetRaidSets { metablocks });
                let sets = self.client.meta(&Credentials::root(), query).await.unwrap().raid_sets;
                if sets.iter().all(&are) {
                    return sets;
                }
                assert!(world.now() - begun < WITHIN, "{sets:?}");
            }
            assert!(world.now() - begun < WITHIN, "{metablocks:?}");
            world.sleep(Duration::from_secs(1)).await;
        }
    }

    /// Waits until the nodes have exactly so many replicas.
    async fn until_replicas(&self, world: &World, wanted: u64) {
        let begun = world.now();
        loop {
            let nodes = self.cluster.cluster_status().await.unwrap().nodes;
            let live = nodes.iter().filter(|node| node.state() == pb::NodeState::NodeLive);
            let found: u64 = live.flat_map(|node| &node.volumes).map(|volume| volume.replicas).sum();
            if found == wanted {
                return;
            }
            assert!(world.now() - begun < Duration::from_secs(60), "{found} replicas, {wanted} are wanted");
            world.sleep(Duration::from_secs(1)).await;
        }
    }

    /// Reads every file with a client that has nothing in memory.
    async fn check(&self, name: &str) -> ebb_client::Metrics {
        let client = self.cluster.connect(name).await.unwrap();
        for (number, (file, len)) in self.numbers.iter().zip(&self.files) {
            let handle = client.open(&Credentials::root(), *file, Access::Read).await.unwrap().0;
            let found = client.read(handle, 0, METABLOCK as u32).await.unwrap();
            assert!(found == content(*number, *len), "f{number}: {} bytes", found.len());
            client.close(handle).await;
        }
        let metrics = client.metrics();
        client.disconnect().await.unwrap();
        metrics
    }
}

/// Members of a RAID set by node, each with what it is a member of.
fn nodes_of(set: &pb::RaidSet) -> Vec<u64> {
    let slots = set.slots.iter().flat_map(|slot| &slot.members);
    slots.chain(set.rows.iter().filter_map(|row| row.member.as_ref())).map(|member| member.node).collect()
}

/// Whether each slot has one copy, and none leaves.
fn is_thin(set: &pb::RaidSet) -> bool {
    set.slots.iter().all(|slot| slot.members.len() == 1 && slot.leaving.is_empty())
}
