//! Snapshots in a whole cluster: taken while files are written, and read while everything changes.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, Created, EntryDetail, Handle, NewFile, Rename, RenameMode};
use ebb_power::PolicyKind;
use ebb_runtime::SeededBug;
use ebb_runtime::virt::{Dice, World, WorldOptions};
use ebb_types::{Credentials, ErrorKind, InodeId, NodeId, Result};
use ebb_wire::pb;
use pb::meta_op::{CreateDataset, GetMap, ListDatasets, Op, RemoveSnapshot, TakeSnapshot};

use crate::power::{PowerCluster, PowerOptions};
use crate::swarm::{self, Next};
use crate::tests::cluster::good;
use crate::{VirtualOptions, run};

const NODES: usize = 6;
const METABLOCK: usize = 512 << 10;
const INTERVAL: Duration = Duration::from_secs(2);
/// Time for everything that a removed snapshot had to go, and for lost copies to be made again.
const WITHIN: Duration = Duration::from_secs(900);

fn root() -> Credentials {
    Credentials::root()
}

/// A dataset, a client that writes to it, and what its files have by name.
struct Scene {
    cluster: PowerCluster,
    client: Client,
    dataset: u64,
    directory: InodeId,
    open: BTreeMap<String, Handle>,
    files: BTreeMap<String, Vec<u8>>,
    /// Snapshots that can be read.
    taken: BTreeMap<String, (u64, BTreeMap<String, Vec<u8>>)>,
    dice: Dice,
    made: u32,
}

impl Scene {
    async fn start(world: &World, seed: u64) -> Self {
        let cluster =
            PowerCluster::start_with(world, PowerOptions::new(NODES, PolicyKind::AlwaysOn, INTERVAL)).await.unwrap();
        let client = cluster.connect("writer").await.unwrap();
        let dataset = pb::Dataset {
            path: "/data".into(),
            replicas: 2,
            block_size: 128 << 10,
            metablock_size: METABLOCK as u64,
            ..Default::default()
        };
        let create = CreateDataset { dataset: Some(dataset), ..Default::default() };
        let dataset = client.meta(&root(), Op::CreateDataset(create)).await.unwrap().dataset.unwrap();
        Self {
            cluster,
            client,
            dataset: dataset.id,
            directory: InodeId::new(dataset.root_inode),
            open: BTreeMap::new(),
            files: BTreeMap::new(),
            taken: BTreeMap::new(),
            dice: Dice::new(seed, "snapshots"),
            made: 0,
        }
    }

    fn some_file(&mut self) -> Option<String> {
        let names: Vec<String> = self.files.keys().cloned().collect();
        (!names.is_empty()).then(|| self.dice.pick(&names).clone())
    }

    async fn handle(&mut self, name: &str) -> Handle {
        if let Some(handle) = self.open.get(name) {
            return *handle;
        }
        let inode = self.client.lookup(&root(), self.directory, name.as_bytes()).await.unwrap().inode;
        let handle = self.client.open(&root(), inode, Access::ReadWrite).await.unwrap().0;
        self.open.insert(name.to_owned(), handle);
        handle
    }

    async fn create(&mut self) {
        self.made += 1;
        let name = format!("f{}", self.made);
        let new = NewFile::exclusive(self.directory, name.as_bytes(), Access::ReadWrite);
        let Created { handle, .. } = self.client.create(&root(), new).await.unwrap();
        self.open.insert(name.clone(), handle);
        self.files.insert(name.clone(), Vec::new());
        let len = 1 + self.dice.below(2 * METABLOCK as u64);
        self.write(&name, 0, len as usize).await;
    }

    async fn write(&mut self, name: &str, at: usize, len: usize) {
        let fill = self.dice.below(251) as u8;
        let bytes: Vec<u8> = (0..len).map(|at| (at / 7 + at * 13) as u8 ^ fill).collect();
        let handle = self.handle(name).await;
        self.client.write(handle, at as u64, Bytes::from(bytes.clone())).await.unwrap();
        let file = self.files.get_mut(name).unwrap();
        file.resize(file.len().max(at + len), 0);
        file[at..at + len].copy_from_slice(&bytes);
    }

    /// One change, of what snapshots have or of what they have not.
    async fn change(&mut self) {
        let Some(name) = self.some_file() else { return self.create().await };
        let len = self.files[&name].len();
        match self.dice.below(10) {
            0 | 1 => self.create().await,
            2..=4 => {
                let at = self.dice.below(len.max(1) as u64) as usize;
                let more = 1 + self.dice.below(200_000) as usize;
                self.write(&name, at, more).await;
            }
            5 => self.write(&name, len, 70_000).await,
            6 => {
                let handle = self.handle(&name).await;
                let size = self.dice.below(len as u64 + 1);
                let set = ebb_client::SetAttr { size: Some(size), ..Default::default() };
                self.client.set_attr_through(handle, &root(), set).await.unwrap();
                self.files.get_mut(&name).unwrap().truncate(size as usize);
            }
            7 => {
                self.client.unlink(&root(), self.directory, name.as_bytes()).await.unwrap();
                self.files.remove(&name);
                if let Some(handle) = self.open.remove(&name) {
                    self.client.close(handle).await;
                }
            }
            8 => {
                let to = self.some_file().unwrap();
                if to != name {
                    let rename = Rename {
                        source_parent: self.directory,
                        source_name: name.as_bytes(),
                        target_parent: self.directory,
                        target_name: to.as_bytes(),
                        mode: RenameMode::Replace,
                    };
                    self.client.rename(&root(), rename).await.unwrap();
                    let bytes = self.files.remove(&name).unwrap();
                    self.files.insert(to.clone(), bytes);
                    if let Some(handle) = self.open.remove(&to) {
                        self.client.close(handle).await;
                    }
                    if let Some(handle) = self.open.remove(&name) {
                        self.open.insert(to, handle);
                    }
                }
            }
            _ => {
                if let Some(handle) = self.open.remove(&name) {
                    self.client.close(handle).await;
                }
            }
        }
    }

    async fn take_snapshot(&mut self, name: &str) -> Result<()> {
        let op = TakeSnapshot { dataset: self.dataset, name: name.into() };
        let reply = self.client.meta(&root(), Op::TakeSnapshot(op)).await?;
        self.taken.insert(name.to_owned(), (reply.snapshots[0].number, self.files.clone()));
        Ok(())
    }

    async fn remove(&mut self, name: &str) {
        let (snapshot, _) = self.taken.remove(name).unwrap();
        let op = RemoveSnapshot { dataset: self.dataset, snapshot };
        self.client.meta(&root(), Op::RemoveSnapshot(op)).await.unwrap();
    }

    /// Every snapshot, and the live tree, by a client that has nothing in memory.
    async fn check(&mut self, reader: &str) {
        for handle in self.open.values() {
            self.client.fsync(*handle).await.unwrap();
        }
        let client = self.cluster.connect(reader).await.unwrap();
        for (name, (_, files)) in &self.taken {
            let top = client.resolve(&root(), format!("/data/.snapshot/{name}").as_bytes()).await.unwrap().inode;
            compare(&client, top, files, name).await;
        }
        compare(&client, self.directory, &self.files, "the live tree").await;
        client.disconnect().await.unwrap();
    }

    async fn kept_bytes(&self) -> u64 {
        let listed = self.client.meta(&root(), Op::ListDatasets(ListDatasets::default())).await.unwrap().datasets;
        listed.iter().find(|dataset| dataset.id == self.dataset).unwrap().kept_bytes
    }

    /// The first metablock of a file, with nodes and volumes of its members, once it is synced.
    async fn members_of(&mut self, name: &str) -> (u64, Vec<(u64, u64)>) {
        let handle = self.handle(name).await;
        self.client.fsync(handle).await.unwrap();
        let inode = self.client.lookup(&root(), self.directory, name.as_bytes()).await.unwrap().inode;
        let map = Op::GetMap(GetMap { inode: inode.raw(), first_index: 0, limit: 1 });
        let block = self.client.meta(&root(), map).await.unwrap().metablocks.remove(0);
        let mut members: Vec<_> = block.members.iter().map(|member| (member.node, member.volume)).collect();
        members.sort_unstable();
        (block.id, members)
    }

    /// Replicas on a node, as it reports them.
    async fn replicas_on(&self, node: u64) -> u64 {
        let nodes = self.cluster.cluster_status().await.unwrap().nodes;
        let found = nodes.iter().filter(|one| one.id == node).flat_map(|one| &one.volumes);
        found.map(|volume| volume.replicas).sum()
    }

    /// Removes everything, and waits until no node has a replica.
    async fn leave_nothing(mut self, world: &World) {
        let names: Vec<String> = self.taken.keys().cloned().collect();
        for name in names {
            self.remove(&name).await;
        }
        for handle in std::mem::take(&mut self.open).into_values() {
            self.client.close(handle).await;
        }
        for name in std::mem::take(&mut self.files).into_keys() {
            self.client.unlink(&root(), self.directory, name.as_bytes()).await.unwrap();
        }
        let begun = world.now();
        loop {
            let nodes = self.cluster.cluster_status().await.unwrap().nodes;
            let live = nodes.iter().filter(|node| node.state() == pb::NodeState::NodeLive);
            let left: u64 = live.flat_map(|node| &node.volumes).map(|volume| volume.replicas).sum();
            if left == 0 {
                break;
            }
            assert!(world.now() - begun < WITHIN, "{left} replicas are left, and nothing needs them");
            world.sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(self.kept_bytes().await, 0);
        self.client.disconnect().await.unwrap();
    }
}

async fn compare(client: &Client, top: InodeId, files: &BTreeMap<String, Vec<u8>>, what: &str) {
    let mut listed = Vec::new();
    let mut cookie = None;
    loop {
        let page = client.read_dir(&root(), top, cookie, 3, EntryDetail::Names).await.unwrap();
        listed.extend(page.entries.iter().map(|entry| String::from_utf8(entry.name.to_vec()).unwrap()));
        match page.entries.last() {
            Some(last) if !page.is_last => cookie = Some(last.cookie),
            _ => break,
        }
    }
    listed.sort();
    assert_eq!(listed, files.keys().cloned().collect::<Vec<_>>(), "names in {what}");
    for (name, bytes) in files {
        let inode = client.lookup(&root(), top, name.as_bytes()).await.unwrap().inode;
        let (handle, attr) = client.open(&root(), inode, Access::Read).await.unwrap();
        assert_eq!(attr.size, bytes.len() as u64, "{name} in {what}");
        let found = client.read(handle, 0, bytes.len() as u32 + 10).await.unwrap();
        assert!(found == *bytes, "{name} in {what}: {} bytes, and not those of then", found.len());
        client.close(handle).await;
    }
}

/// Goal (I-74): a snapshot has what was written before it, also what was only in the writer's memory, and never changes. Method: a
/// writer that keeps its files open changes them between snapshots; nodes fail and come back, and the master starts anew.
fn snapshots_stay(seed: u64) {
    World::run(seed, WorldOptions::default(), |world| async move {
        let mut scene = Scene::start(&world, seed).await;
        for round in 0..4 {
            for _ in 0..12 {
                scene.change().await;
            }
            scene.take_snapshot(&format!("s{round}")).await.unwrap();
            for _ in 0..8 {
                scene.change().await;
            }
            match round {
                0 => scene.cluster.restart_master().await,
                1 => scene.cluster.fail(NodeId::new(1 + seed % NODES as u64)).unwrap(),
                2 => {
                    scene.cluster.repair(NodeId::new(1 + seed % NODES as u64)).unwrap();
                    let gone = scene.dice.below(2);
                    scene.remove(&format!("s{gone}")).await;
                }
                _ => {}
            }
            scene.check(&format!("reader{round}")).await;
        }
        scene.leave_nothing(&world).await;
    });
}

#[test]
fn snapshots_stay_as_they_were_while_files_change_and_nodes_fail() {
    for seed in 1..=6 {
        snapshots_stay(seed);
    }
}

#[test]
fn nothing_below_a_snapshot_can_be_written_and_a_removed_one_is_gone() {
    World::run(41, WorldOptions::default(), |world| async move {
        let mut scene = Scene::start(&world, 41).await;
        scene.create().await;
        scene.take_snapshot("one").await.unwrap();
        let path = b"/data/.snapshot/one/f1";
        let inode = scene.client.resolve(&root(), path).await.unwrap().inode;
        let refused = scene.client.open(&root(), inode, Access::ReadWrite).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ReadOnly, "{refused}");
        let top = scene.client.resolve(&root(), b"/data/.snapshot/one").await.unwrap().inode;
        let refused = scene.client.unlink(&root(), top, b"f1").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ReadOnly, "{refused}");
        // A name that was looked up before there was a snapshot is found after it, and the other way round.
        let other = scene.cluster.connect("other").await.unwrap();
        assert!(other.lookup(&root(), scene.directory, b".snapshot").await.is_ok());
        scene.remove("one").await;
        assert_eq!(other.lookup(&root(), scene.directory, b".snapshot").await.unwrap_err().kind(), ErrorKind::NotFound);
        scene.take_snapshot("two").await.unwrap();
        assert!(other.lookup(&root(), scene.directory, b".snapshot").await.is_ok());
        other.disconnect().await.unwrap();
        scene.leave_nothing(&world).await;
    });
}

/// Goal: copies that snapshots alone need are made again like others, though their files are gone. Method: all files are removed, and
/// every node but three is drained in turn, or fails for good.
#[test]
fn what_snapshots_alone_have_is_copied_when_a_node_is_drained_or_lost() {
    World::run(51, WorldOptions::default(), |world| async move {
        let mut scene = Scene::start(&world, 51).await;
        for _ in 0..6 {
            scene.create().await;
        }
        scene.take_snapshot("all").await.unwrap();
        for handle in std::mem::take(&mut scene.open).into_values() {
            scene.client.close(handle).await;
        }
        for name in std::mem::take(&mut scene.files).into_keys() {
            scene.client.unlink(&root(), scene.directory, name.as_bytes()).await.unwrap();
        }
        let begun = world.now();
        while scene.kept_bytes().await == 0 {
            assert!(world.now() - begun < WITHIN, "removed files keep their bytes");
            world.sleep(Duration::from_secs(1)).await;
        }
        for node in [1, 2] {
            scene.cluster.drain(node, false).await.unwrap();
            let begun = world.now();
            while scene.replicas_on(node).await > 0 {
                assert!(world.now() - begun < WITHIN, "n{node} keeps copies that only a snapshot has");
                world.sleep(Duration::from_secs(1)).await;
            }
            scene.check(&format!("reader after n{node}")).await;
        }
        scene.cluster.fail(NodeId::new(3)).unwrap();
        let begun = world.now();
        loop {
            world.sleep(Duration::from_secs(5)).await;
            let status = scene.cluster.cluster_status().await.unwrap();
            let is_dead = status.nodes.iter().any(|node| node.id == 3 && node.state() == pb::NodeState::NodeDead);
            if is_dead && status.under_replicated == 0 && status.repairs_running == 0 {
                break;
            }
            assert!(world.now() - begun < WITHIN, "{} sets lack copies", status.under_replicated);
        }
        // The other copy of what n3 had was made again: any further loss is borne.
        scene.cluster.fail(NodeId::new(4)).unwrap();
        scene.check("last reader").await;
        scene.client.disconnect().await.unwrap();
    });
}

#[test]
fn without_faults_snapshots_are_cuts() {
    let options = VirtualOptions { snapshots: true, fault_pause: Duration::ZERO, ..VirtualOptions::default() };
    let report = run(3, options);
    good(&report);
    assert!(report.snapshots > 5, "{report:?}");
}

#[test]
fn under_faults_every_snapshot_is_a_cut_and_stays() {
    let mut taken = 0;
    swarm::run_all(0..16, NonZeroUsize::MIN, VirtualOptions::snapshots, |report| {
        good(&report);
        taken += report.snapshots;
        Next::GoOn
    });
    assert!(taken > 100, "{taken} snapshots");
}

#[test]
fn writes_to_what_a_snapshot_has_are_found() {
    let mut found = Vec::new();
    let options = |seed| VirtualOptions { bug: Some(SeededBug::WritesFrozen), ..VirtualOptions::snapshots(seed) };
    swarm::run_all(0..10, NonZeroUsize::MIN, options, |report| {
        found = report.violations;
        if found.is_empty() { Next::GoOn } else { Next::Stop }
    });
    assert!(!found.is_empty());
}

/// Goal: no link carries what a write to a snapshot's metablock copies. Method: the heir has the volumes of the old one; with a node that
/// drains it has others.
#[test]
fn what_a_snapshot_has_is_copied_where_it_lies() {
    World::run(61, WorldOptions::default(), |world| async move {
        let mut scene = Scene::start(&world, 61).await;
        scene.create().await;
        let first = scene.members_of("f1").await;
        scene.take_snapshot("one").await.unwrap();
        scene.write("f1", 0, 1_000).await;
        let heir = scene.members_of("f1").await;
        assert!(heir.0 != first.0 && heir.1 == first.1, "{first:?}, then {heir:?}");
        scene.take_snapshot("two").await.unwrap();
        scene.cluster.drain(first.1[0].0, false).await.unwrap();
        scene.write("f1", 0, 2_000).await;
        let last = scene.members_of("f1").await;
        assert!(!last.1.contains(&first.1[0]), "{last:?} on a node that drains");
        scene.check("reader").await;
        scene.client.disconnect().await.unwrap();
    });
}
