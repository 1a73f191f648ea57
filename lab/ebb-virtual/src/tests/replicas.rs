//! The number of copies of a dataset is changed, and nodes leave for good, while programs write and nodes fail.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, Handle, NewFile, NewName};
use ebb_layout::restore::is_in_runs;
use ebb_layout::{ChainView, LayoutKind};
use ebb_power::PolicyKind;
use ebb_runtime::virt::{Dice, World, WorldOptions};
use ebb_types::{Credentials, ErrorKind, InodeId, NodeId};
use ebb_wire::pb;
use pb::meta_op::{CreateDataset, GetMap, Op, SetDataset};

use crate::power::PowerCluster;

const NODES: usize = 8;
const STEPS: usize = 30;
/// Nodes that leave at most: the others have room for every copy.
const REMOVED_MAX: usize = 2;
const CALL_MAX: Duration = Duration::from_secs(5);
/// Time for the copies to be as wanted once nothing fails any more.
const SETTLES_WITHIN: Duration = Duration::from_secs(300);
/// Time for copies to be at even places: the layout is checked every ten minutes.
const EVEN_WITHIN: Duration = Duration::from_secs(900);

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
    /// Nodes that have left, or are to.
    removed: BTreeSet<NodeId>,
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
        let made = client
            .meta(&root, Op::CreateDataset(CreateDataset { dataset: Some(dataset), ..Default::default() }))
            .await
            .unwrap();
        let dataset = made.dataset.unwrap().id;
        Self {
            cluster,
            client,
            dice: Dice::new(seed, "replicas"),
            directory,
            dataset,
            replicas: 3,
            files: BTreeMap::new(),
            failed: None,
            removed: BTreeSet::new(),
            history: Vec::new(),
        }
    }

    async fn step(&mut self, world: &World) {
        match self.dice.below(11) {
            0..=4 => self.write().await,
            5 | 6 => self.change().await,
            7 => match self.failed.take() {
                Some(node) => {
                    self.history.push(format!("{node} is repaired"));
                    self.cluster.repair(node).unwrap();
                }
                None => {
                    let node = self.node();
                    self.history.push(format!("{node} fails"));
                    self.cluster.fail(node).unwrap();
                    self.failed = Some(node);
                }
            },
            8 => {
                self.history.push("the master restarts".into());
                self.cluster.restart_master().await;
            }
            9 if self.removed.len() < REMOVED_MAX => self.remove(world).await,
            _ => world.sleep(Duration::from_millis(self.dice.below(20_000))).await,
        }
    }

    /// One that stays.
    fn node(&mut self) -> NodeId {
        let nodes = (1..=NODES as u64).map(NodeId::new).filter(|node| !self.removed.contains(node));
        *self.dice.pick(&nodes.collect::<Vec<_>>())
    }

    /// Begins to remove a node. The rest of the history goes on beside it.
    async fn remove(&mut self, world: &World) {
        let node = self.node();
        let call = pb::RemoveNode { node: node.raw(), ask: true };
        if let Err(error) = self.cluster.ask(&self.cluster.master_address(), &call).await {
            self.history.push(format!("{node} cannot leave: {error}"));
            return;
        }
        self.history.push(format!("{node} leaves"));
        self.removed.insert(node);
        let master = self.cluster.channel(&self.cluster.master_address());
        let runtime = world.process("operator").runtime();
        runtime.clone().spawn("remove", async move {
            loop {
                let drained = master.call(&pb::DrainNode { node: node.raw(), undo: false }, CALL_MAX).await;
                let left = master.call(&pb::RemoveNode { node: node.raw(), ask: false }, CALL_MAX).await;
                // The answer to the removal may have been lost.
                let is_gone = left.is_ok() || drained.is_err_and(|error| error.kind() == ErrorKind::NotFound);
                if is_gone || left.is_err_and(|error| error.kind() == ErrorKind::Invalid) {
                    return;
                }
                runtime.sleep(Duration::from_secs(1)).await;
            }
        });
    }

    /// At least two copies: one failed node takes no file out of reach.
    async fn change(&mut self) {
        let replicas = *self.dice.pick(&[2, 3, 4]);
        let set = SetDataset { dataset: self.dataset, replicas: Some(replicas), ..Default::default() };
        match self.client.meta(&Credentials::root(), Op::SetDataset(set)).await {
            Ok(_) => {
                self.history.push(format!("{replicas} copies"));
                self.replicas = replicas;
            }
            // The chain is too short for them, after nodes have left.
            Err(error) => {
                assert!(error.kind() == ErrorKind::Invalid && !self.removed.is_empty(), "{error} {:#?}", self.history);
                self.history.push(format!("not {replicas} copies: {error}"));
            }
        }
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

    /// Nodes that cannot leave any more, as more copies are wanted since, are used again.
    async fn take_back(&mut self) {
        for node in self.removed.clone() {
            let call = pb::RemoveNode { node: node.raw(), ask: true };
            let asked = self.cluster.ask(&self.cluster.master_address(), &call).await;
            if let Some(error) = asked.err().filter(|error| error.kind() == ErrorKind::Invalid) {
                self.history.push(format!("{node} stays: {error}"));
                self.removed.remove(&node);
                self.cluster.drain(node.raw(), true).await.unwrap();
            }
        }
    }

    /// Every file lies on as many nodes as the dataset wants now, and reads as it was written.
    async fn check(&mut self, world: &World, seed: u64) {
        if let Some(node) = self.failed.take() {
            self.cluster.repair(node).unwrap();
        }
        world.sleep(SETTLES_WITHIN).await;
        self.take_back().await;
        let deadline = world.now() + SETTLES_WITHIN;
        loop {
            world.sleep(Duration::from_secs(2)).await;
            let reply = self.cluster.scrub().await;
            let mut counts = BTreeMap::new();
            let mut is_left = false;
            for (name, file) in &self.files {
                let nodes = self.cluster.locate(file.inode.raw()).await.unwrap_or_default();
                is_left |= nodes.iter().any(|node| self.removed.contains(node));
                counts.insert(name.clone(), nodes.len());
            }
            let status = self.cluster.cluster_status().await.unwrap_or_default();
            is_left |= status.nodes.iter().any(|node| self.removed.contains(&NodeId::new(node.id)));
            let wanted = LENGTH.div_ceil(128 << 10) * self.replicas as usize;
            let whole = reply.as_ref().is_ok_and(|reply| {
                [reply.missing, reply.under_replicated, reply.over_replicated, reply.corrupt] == [0; 4]
            });
            if whole && !is_left && counts.values().all(|count| *count == wanted) {
                break;
            }
            assert!(
                world.now() < deadline,
                "seed {seed}: {reply:?} {counts:?}, not {wanted}; {:?}\n{:#?}",
                self.removed,
                self.history
            );
        }
        for (name, file) in &self.files {
            let (handle, _) = self.client.open(&Credentials::root(), file.inode, Access::Read).await.unwrap();
            let bytes = self.client.read(handle, 0, LENGTH as u32).await.unwrap();
            assert!(bytes.len() == LENGTH && bytes.iter().all(|byte| *byte == file.value), "seed {seed}: {name}");
            self.client.close(handle).await;
        }
    }

    /// On the circle every copy comes to its place, and no set has fewer copies meanwhile.
    async fn check_even(&self, world: &World, seed: u64) {
        let since = world.now();
        loop {
            let datasets = self.cluster.describe().await.map(|reply| reply.datasets).unwrap_or_default();
            let chain =
                datasets.into_iter().find(|one| one.id == self.dataset).map(|one| one.chain).unwrap_or_default();
            let order = chain.iter().copied().map(NodeId::new).collect();
            let chain = ChainView::new(LayoutKind::PowerBalanced, order, 0, 0, self.replicas).unwrap();
            let mut sets = Vec::new();
            for file in self.files.values() {
                let map = GetMap { inode: file.inode.raw(), first_index: 0, limit: 10 };
                let found = self.client.meta(&Credentials::root(), Op::GetMap(map)).await.unwrap().metablocks;
                let homes = |record: &pb::Metablock| record.members.iter().map(pb::Member::home_id).collect::<Vec<_>>();
                // What was granted ahead and not written has no copies to move.
                sets.extend(found.iter().filter(|record| record.is_written()).map(homes));
            }
            let case = format!("seed {seed}: {sets:?} of {:?}\n{:#?}", chain.nodes(), self.history);
            assert!(sets.iter().all(|homes| homes.len() == self.replicas as usize), "{case}");
            if sets.iter().all(|homes| is_in_runs(&chain, homes)) {
                return;
            }
            assert!(world.now() - since < EVEN_WITHIN, "{case}");
            world.sleep(Duration::from_secs(2)).await;
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

#[test]
fn on_the_circle_every_copy_comes_to_its_place_with_each_number_of_copies() {
    for seed in 1..=15 {
        World::run(seed, WorldOptions::default(), move |world| async move {
            let mut scene = Scene::start(&world, seed, "power-balanced").await;
            for _ in 0..STEPS {
                scene.step(&world).await;
            }
            scene.check(&world, seed).await;
            scene.check_even(&world, seed).await;
        });
    }
}

/// Goal: a node is emptied of metablocks that were granted to a writer ahead and never written, while its file stays open.
#[test]
fn a_node_leaves_though_an_open_file_was_granted_metablocks_there() {
    World::run(21, WorldOptions::default(), |world| async move {
        let scene = Scene::start(&world, 21, "power-balanced").await;
        let root = Credentials::root();
        let new = NewFile::exclusive(scene.directory, b"open", Access::ReadWrite);
        let made = scene.client.create(&root, new).await.unwrap();
        scene.client.write(made.handle, 0, Bytes::from(vec![1; LENGTH])).await.unwrap();
        scene.client.fsync(made.handle).await.unwrap();
        // The master hears of versions a moment later.
        world.sleep(Duration::from_secs(2)).await;
        let map = GetMap { inode: made.attr.inode.raw(), first_index: 0, limit: 10 };
        let found = scene.client.meta(&root, Op::GetMap(map)).await.unwrap().metablocks;
        let (written, ahead): (Vec<_>, Vec<_>) = found.iter().partition(|record| record.is_written());
        let nodes = |records: &[&pb::Metablock]| -> Vec<NodeId> {
            records.iter().flat_map(|record| &record.members).map(pb::Member::node_id).collect()
        };
        // To move a written metablock the file is recalled, and grants go back with it.
        let written = nodes(&written);
        let node = *nodes(&ahead).iter().find(|node| !written.contains(node)).expect("a node that has grants alone");
        let master = scene.cluster.channel(&scene.cluster.master_address());
        let end = world.now() + Duration::from_secs(120);
        loop {
            master.call(&pb::DrainNode { node: node.raw(), undo: false }, CALL_MAX).await.unwrap();
            match master.call(&pb::RemoveNode { node: node.raw(), ask: false }, CALL_MAX).await {
                Ok(_) => break,
                Err(error) => assert!(world.now() < end, "{error}"),
            }
            world.sleep(Duration::from_secs(1)).await;
        }
        scene.client.write(made.handle, LENGTH as u64, Bytes::from(vec![2; LENGTH])).await.unwrap();
        scene.client.fsync(made.handle).await.unwrap();
        scene.client.close(made.handle).await;
        scene.client.disconnect().await.unwrap();
    });
}
