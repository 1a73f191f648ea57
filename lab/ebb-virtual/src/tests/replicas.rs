//! The number of copies of a dataset is changed while programs write and nodes fail.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, Handle, NewFile, NewName};
use ebb_power::PolicyKind;
use ebb_runtime::virt::{Dice, World, WorldOptions};
use ebb_types::{Credentials, InodeId, NodeId};
use ebb_wire::pb;
use pb::meta_op::{CreateDataset, Op, SetDataset};

use crate::power::PowerCluster;

const NODES: usize = 8;
const STEPS: usize = 30;
/// Time for the copies to be as wanted once nothing fails any more.
const SETTLES_WITHIN: Duration = Duration::from_secs(300);

/// A file with one byte everywhere, which every write raises.
#[derive(Clone, Copy)]
struct File {
    inode: InodeId,
    value: u8,
    open: Option<Handle>,
}

struct Scene {
    cluster: PowerCluster,
    client: Client,
    dice: Dice,
    directory: InodeId,
    dataset: u64,
    replicas: u32,
    files: BTreeMap<String, File>,
    failed: Option<NodeId>,
    history: Vec<String>,
}

impl Scene {
    async fn start(world: &World, seed: u64, layout: &str) -> Self {
        let interval = Duration::from_secs(4);
        let cluster = PowerCluster::start(world, NODES, PolicyKind::AlwaysOn, interval).await.unwrap();
        let client = cluster.connect("changer").await.unwrap();
        let root = Credentials::root();
        let name = NewName { parent: InodeId::ROOT, name: b"d", mode: 0o755, umask: 0 };
        let directory = client.make_dir(&root, name).await.unwrap().inode;
        let dataset = pb::Dataset {
            path: "/d".into(),
            layout: layout.into(),
            primaries: if layout == "equal-work" { 2 } else { 0 },
            replicas: 3,
            block_size: 64 << 10,
            metablock_size: 128 << 10,
            replication: "pipeline".into(),
            ..Default::default()
        };
        let made = client.meta(&root, Op::CreateDataset(CreateDataset { dataset: Some(dataset) })).await.unwrap();
        let dataset = made.dataset.unwrap().id;
        let (dice, files, history) = (Dice::new(seed, "replicas"), BTreeMap::new(), Vec::new());
        Self { cluster, client, dice, directory, dataset, replicas: 3, files, failed: None, history }
    }

    async fn step(&mut self, world: &World) {
        match self.dice.below(10) {
            0..=4 => self.write().await,
            5 | 6 => self.change().await,
            7 => match self.failed.take() {
                Some(node) => {
                    self.history.push(format!("{node} is repaired"));
                    self.cluster.repair(node).unwrap();
                }
                None => {
                    let node = NodeId::new(1 + self.dice.below(NODES as u64));
                    self.history.push(format!("{node} fails"));
                    self.cluster.fail(node).unwrap();
                    self.failed = Some(node);
                }
            },
            8 => {
                self.history.push("the master restarts".into());
                self.cluster.restart_master().await;
            }
            _ => world.sleep(Duration::from_millis(self.dice.below(20_000))).await,
        }
    }

    /// At least two copies: one failed node takes no file out of reach.
    async fn change(&mut self) {
        self.replicas = *self.dice.pick(&[2, 3, 4]);
        self.history.push(format!("{} copies", self.replicas));
        let set = SetDataset { dataset: self.dataset, replicas: Some(self.replicas), ..Default::default() };
        self.client.meta(&Credentials::root(), Op::SetDataset(set)).await.unwrap();
    }

    async fn write(&mut self) {
        let root = Credentials::root();
        let name = format!("f{}", self.dice.below(6));
        let mut file = match self.files.get(&name) {
            Some(file) => *file,
            None => {
                let new = NewFile::exclusive(self.directory, name.as_bytes(), Access::ReadWrite);
                let made = self.client.create(&root, new).await.unwrap();
                File { inode: made.attr.inode, value: 0, open: Some(made.handle) }
            }
        };
        let handle = match file.open {
            Some(handle) => handle,
            None => self.client.open(&root, file.inode, Access::ReadWrite).await.unwrap().0,
        };
        file.value = file.value.wrapping_add(1);
        self.history.push(format!("{} to {name}", file.value));
        self.client.write(handle, 0, Bytes::from(vec![file.value; LENGTH])).await.unwrap();
        self.client.fsync(handle).await.unwrap();
        // Some files stay open: their writers are asked to give the lease back before copies change.
        file.open = if self.dice.chance(0.4) { Some(handle) } else { None };
        if file.open.is_none() {
            self.client.close(handle).await;
        }
        self.files.insert(name, file);
    }

    /// Every file lies on as many nodes as the dataset wants now, and reads as it was written.
    async fn check(&mut self, world: &World, seed: u64) {
        if let Some(node) = self.failed.take() {
            self.cluster.repair(node).unwrap();
        }
        let deadline = world.now() + SETTLES_WITHIN;
        loop {
            world.sleep(Duration::from_secs(2)).await;
            let reply = self.cluster.scrub().await;
            let mut counts = BTreeMap::new();
            for (name, file) in &self.files {
                counts.insert(name.clone(), self.cluster.locate(file.inode.raw()).await.unwrap_or_default().len());
            }
            let wanted = LENGTH.div_ceil(128 << 10) * self.replicas as usize;
            let whole = reply.as_ref().is_ok_and(|reply| {
                [reply.missing, reply.under_replicated, reply.over_replicated, reply.corrupt] == [0; 4]
            });
            if whole && counts.values().all(|count| *count == wanted) {
                break;
            }
            assert!(world.now() < deadline, "seed {seed}: {reply:?} {counts:?}, not {wanted}\n{:#?}", self.history);
        }
        for (name, file) in &self.files {
            let (handle, _) = self.client.open(&Credentials::root(), file.inode, Access::Read).await.unwrap();
            let bytes = self.client.read(handle, 0, LENGTH as u32).await.unwrap();
            assert!(bytes.len() == LENGTH && bytes.iter().all(|byte| *byte == file.value), "seed {seed}: {name}");
            self.client.close(handle).await;
        }
    }
}

/// Two metablocks.
const LENGTH: usize = 200_000;

#[test]
fn every_file_comes_to_the_number_of_copies_that_its_dataset_wants() {
    for seed in 1..=30 {
        World::run(seed, WorldOptions::default(), move |world| async move {
            let layout = if seed % 2 == 0 { "equal-work" } else { "random" };
            let mut scene = Scene::start(&world, seed, layout).await;
            for _ in 0..STEPS {
                scene.step(&world).await;
            }
            scene.check(&world, seed).await;
        });
    }
}
