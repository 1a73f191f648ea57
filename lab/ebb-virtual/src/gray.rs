//! A run in which one node is slow for long. Files are written and synced all the time.
//!
//! First everything is well. Then a disk or the links of one node are slow for longer than any bound. Then all is well
//! again, and new files are made. The conditions are in [`crate::invariants::gray`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ebb_client::{Access, Client, NewFile};
use ebb_runtime::SeededBug;
use ebb_runtime::virt::{LinkOptions, World, WorldOptions};
use ebb_types::{Credentials, InodeId, Result};
use ebb_wire::pb;
use parking_lot::Mutex;
use pb::meta_op::{GetMap, Op};

use crate::VirtualOptions;
use crate::cluster::{Cluster, Member, Role};
use crate::faults::links;
use crate::invariants::Violation;
use crate::invariants::gray::{Look, Plan, Synced, check_delays, check_sets, check_verdicts};

const NODES: usize = 6;
const FILES: usize = 12;
const COPIES: usize = 3;
const WRITE_BYTES: usize = 4096;
/// Between two writes of a file.
const PAUSE: Duration = Duration::from_millis(20);
const LOOK_PAUSE: Duration = Duration::from_millis(500);
const CALL_MAX: Duration = Duration::from_secs(5);
/// How long each part of a run lasts.
const CALM: Duration = Duration::from_secs(10);
const SLOW: Duration = Duration::from_secs(70);
const WELL: Duration = Duration::from_secs(60);
/// Of a slow node writers wait for so long at most, and so long after it is well it is used.
const SETTLE: Duration = Duration::from_secs(20);
const BACK: Duration = Duration::from_secs(45);
/// How much longer writes may take then than the longest did before.
const TIMES: u32 = 5;

/// The part that is slow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Slow {
    /// Nothing.
    Nothing,
    /// A disk, by so many times.
    Disk(f64),
    /// All links of a node.
    Links(LinkOptions),
    /// All disks, by so many times.
    AllDisks(f64),
}

/// The observations of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct GrayReport {
    /// Broken promises.
    pub violations: Vec<Violation>,
    /// The longest write and fsync before the fault, in its first seconds, and from then on.
    pub longest: [Duration; 3],
    /// Writes and their fsyncs.
    pub synced: usize,
    /// Members that were replaced.
    pub replaced: u64,
    /// Of the files that were made at the end, those with a copy on the node that had been slow.
    pub used_again: usize,
}

struct Scene {
    cluster: Cluster,
    client: Client,
    files: Vec<(InodeId, ebb_client::Handle)>,
    synced: Mutex<Vec<Synced>>,
    failed: Mutex<Vec<Violation>>,
    looks: Mutex<Vec<Look>>,
    done: AtomicBool,
}

/// Runs it.
#[must_use]
pub fn run(seed: u64, slow: Slow, bug: Option<SeededBug>) -> GrayReport {
    World::run(seed, WorldOptions { bug, ..WorldOptions::default() }, |world| async move {
        let options = VirtualOptions { block_servers: NODES, clients: 0, ..VirtualOptions::default() };
        let cluster = Cluster::start(crate::board(&world), options);
        let runtime = world.process("writer").runtime();
        let client = loop {
            match cluster.connect(&runtime, "writer").await {
                Ok(client) if is_whole(&cluster).await => break client,
                _ => world.sleep(LOOK_PAUSE).await,
            }
        };
        let files = make(&client, "f", FILES).await.expect("nothing is wrong yet");
        let scene = Arc::new(Scene {
            cluster,
            client,
            files,
            synced: Mutex::default(),
            failed: Mutex::default(),
            looks: Mutex::default(),
            done: AtomicBool::default(),
        });
        for file in 0..FILES {
            let own = scene.clone();
            runtime.spawn("write and sync", async move { own.write(file).await });
        }
        let own = scene.clone();
        world.process("observer").runtime().spawn("look", async move { own.look_on().await });
        scene.clone().play(slow).await
    })
}

async fn is_whole(cluster: &Cluster) -> bool {
    let status = cluster.operator().call(&pb::ClusterStatus {}, CALL_MAX).await;
    status.is_ok_and(|status| status.serving && status.safe_start && status.nodes.len() == NODES)
}

async fn make(client: &Client, prefix: &str, count: usize) -> Result<Vec<(InodeId, ebb_client::Handle)>> {
    let (root, access) = (Credentials::root(), Access::ReadWrite);
    let mut files = Vec::new();
    for number in 0..count {
        let name = format!("{prefix}{number}");
        let made = client.create(&root, NewFile::exclusive(InodeId::ROOT, name.as_bytes(), access)).await?;
        files.push((made.attr.inode, made.handle));
    }
    Ok(files)
}

impl Scene {
    fn world(&self) -> &World {
        self.cluster.world()
    }

    async fn write(&self, file: usize) {
        let (handle, mut number) = (self.files[file].1, 0_u64);
        while !self.done.load(Ordering::Relaxed) {
            let begun = self.world().now();
            let bytes = Bytes::from(vec![u8::try_from(number % 251).unwrap_or(0); WRITE_BYTES]);
            let offset = number % 8 * WRITE_BYTES as u64;
            let written = async {
                self.client.write(handle, offset, bytes).await?;
                self.client.fsync(handle).await
            };
            match written.await {
                Ok(()) => self.synced.lock().push(Synced { file, at: begun, took: self.world().now() - begun }),
                Err(error) => {
                    let detail = format!("a write to file {file} failed at {begun:?}: {error}");
                    self.failed.lock().push(Violation::new("gray", detail));
                    return;
                }
            }
            number += 1;
            self.world().sleep(PAUSE).await;
        }
    }

    async fn look_on(&self) {
        while !self.done.load(Ordering::Relaxed) {
            if let Ok(look) = self.inspect_cluster().await {
                self.looks.lock().push(look);
            }
            self.world().sleep(LOOK_PAUSE).await;
        }
    }

    async fn inspect_cluster(&self) -> Result<Look> {
        let status = self.cluster.operator().call(&pb::ClusterStatus {}, CALL_MAX).await?;
        let ids = |is: &dyn Fn(&pb::Node) -> bool| -> BTreeSet<u64> {
            status.nodes.iter().filter(|node| is(node)).map(|node| node.id).collect()
        };
        let (gray, live) = (ids(&|node| node.gray.is_some()), ids(&|node| node.state() == pb::NodeState::NodeLive));
        let mut sets = BTreeMap::new();
        for file in 0..FILES {
            sets.insert(file, self.members(self.files[file].0).await?);
        }
        Ok(Look { at: self.world().now(), gray, live, sets })
    }

    async fn members(&self, inode: InodeId) -> Result<BTreeSet<u64>> {
        let map = Op::GetMap(GetMap { inode: inode.raw(), first_index: 0, limit: 1 });
        let reply = self.client.meta(&Credentials::root(), map).await?;
        Ok(reply.metablocks.iter().flat_map(|record| &record.members).map(|member| member.node).collect())
    }

    /// Makes a node with files slow, well again, and observes the effects.
    async fn play(self: Arc<Self>, slow: Slow) -> GrayReport {
        self.world().sleep(CALM).await;
        let node = *self.members(self.files[0].0).await.expect("nothing is wrong yet").first().expect("it has copies");
        let member = self.member(node).await;
        let from = self.world().now();
        self.set(slow, &member, true);
        self.world().sleep(SLOW).await;
        self.set(slow, &member, false);
        let until = self.world().now();
        self.world().sleep(WELL).await;
        let is_one = matches!(slow, Slow::Disk(_) | Slow::Links(_));
        let slow = is_one.then_some(node);
        let plan = Plan { from, until, settle: SETTLE, back: BACK, slow, times: TIMES };
        let mut violations = std::mem::take(&mut *self.failed.lock());
        let mut used_again = 0;
        match make(&self.client, "again", FILES * 2).await {
            Ok(files) => {
                for (inode, _) in files {
                    let members = self.members(inode).await.unwrap_or_default();
                    used_again += usize::from(members.contains(&node));
                }
            }
            Err(error) => violations.push(Violation::new("gray", format!("new files: {error}"))),
        }
        self.done.store(true, Ordering::Relaxed);
        let (synced, looks) = (self.synced.lock().clone(), self.looks.lock().clone());
        if is_one {
            violations.extend(check_delays(&plan, &synced));
        }
        violations.extend(check_sets(&looks, COPIES));
        violations.extend(check_verdicts(&plan, &looks));
        if used_again == 0 {
            violations.push(Violation::new("gray", format!("n{node} is well since {until:?}, and gets no new file")));
        }
        let longest = |from: Duration, until: Duration| {
            let within = synced.iter().filter(|one| one.at >= from && one.at < until);
            within.map(|one| one.took).max().unwrap_or_default()
        };
        let longest = [longest(Duration::ZERO, from), longest(from, from + SETTLE), longest(from + SETTLE, until)];
        let replaced = self.client.metrics().replaced_members;
        GrayReport { violations, longest, synced: synced.len(), replaced, used_again }
    }

    async fn member(&self, node: u64) -> Member {
        let status = self.cluster.operator().call(&pb::ClusterStatus {}, CALL_MAX).await.expect("nothing is wrong yet");
        let host = status.nodes.iter().find(|known| known.id == node).expect("it has copies").host.clone();
        let found = self.cluster.members().iter().find(|member| member.process.host() == host);
        found.expect("hosts are processes").clone()
    }

    fn set(&self, slow: Slow, member: &Member, begins: bool) {
        let factor = |times: f64| if begins { times } else { 1.0 };
        match slow {
            Slow::Nothing => {}
            Slow::Disk(times) => member.process.slow_disk(factor(times)),
            Slow::AllDisks(times) => {
                let blocks = self.cluster.members().iter().filter(|member| member.role == Role::Block);
                blocks.for_each(|member| member.process.slow_disk(factor(times)));
            }
            Slow::Links(options) => {
                let options = if begins { options } else { LinkOptions::default() };
                let host = member.process.host();
                links::set(&self.cluster, self.world(), host, options);
                // The writer is none of the cluster's processes.
                self.world().link(host, "writer", options);
                self.world().link("writer", host, options);
            }
        }
    }
}
