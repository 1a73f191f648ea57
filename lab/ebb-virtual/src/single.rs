//! One fault at a time: block servers are impaired one after the other, with calm between, while clients that are well work on.
//!
//! The other runs look for losses. This one looks for waits ([`crate::invariants::available`]), and whether missing
//! copies are made again: after each fault every set has all its copies again. At the end one node's disk goes and
//! everything that was acknowledged is read.

mod faults;
mod work;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ebb_client::{Client, NewFile};
use ebb_runtime::SeededBug;
use ebb_runtime::virt::options::Panics;
use ebb_runtime::virt::{Dice, World, WorldOptions};
use ebb_types::{Credentials, InodeId, Result};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{CreateDataset, Op};
use parking_lot::Mutex;

use crate::cluster::{Cluster, Member, Role};
use crate::faults::kind::BLOCK_DIR;
use crate::invariants::available::{Impaired, Operation, OperationKind};
use crate::invariants::{Violation, available, healthy};
use crate::{Report, VirtualOptions};

/// A holder commits synced writes within this.
const COMMITTED_AFTER: Duration = Duration::from_secs(5);
/// Missing copies are made again within this after a fault.
const WHOLE_MAX: Duration = Duration::from_secs(180);
const ASK: Duration = Duration::from_secs(5);

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct SingleOptions {
    /// Block servers.
    pub block_servers: usize,
    /// Copies.
    pub replicas: u32,
    /// Copies that a write needs; 0: not set.
    pub min_copies: u32,
    /// Proxies in processes of their own; 0: one in the master's.
    pub proxies: usize,
    /// Whether the writer sends to every member itself.
    pub single_source: bool,
    /// Faults, one after the other.
    pub rounds: usize,
    /// A mistake that the code is to make.
    pub bug: Option<SeededBug>,
}

impl SingleOptions {
    /// A cluster drawn from the seed: mostly with as many block servers as copies.
    #[must_use]
    pub fn drawn(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "one fault at a time");
        let (replicas, block_servers, min_copies) =
            *dice.pick(&[(3, 3, 0), (3, 3, 0), (3, 4, 0), (2, 3, 0), (2, 2, 1), (4, 4, 3)]);
        Self {
            block_servers,
            replicas,
            min_copies,
            proxies: *dice.pick(&[0, 0, 1]),
            single_source: dice.chance(0.3),
            rounds: 4,
            bug: None,
        }
    }
}

/// The state that all parts of a run share.
#[derive(Clone)]
pub(crate) struct Desk {
    cluster: Cluster,
    operations: Arc<Mutex<Vec<Operation>>>,
    impaired: Arc<Mutex<Vec<Impaired>>>,
    done: Arc<AtomicBool>,
}

/// Runs a cluster under the faults of a seed.
#[must_use]
pub fn run(seed: u64, options: SingleOptions) -> Report {
    let world = WorldOptions { panics: Panics::EndTheTask, bug: options.bug, ..WorldOptions::default() };
    World::run(seed, world, |world| async move {
        let board = crate::board(&world);
        let virtual_options = VirtualOptions {
            block_servers: options.block_servers,
            replicas: options.replicas,
            proxies: options.proxies,
            clients: 0,
            racks: 2,
            bug: options.bug,
            ..VirtualOptions::default()
        };
        let cluster = Cluster::start(board.clone(), virtual_options);
        let desk = Desk { cluster, operations: Arc::default(), impaired: Arc::default(), done: Arc::default() };
        let mut violations = desk.drive(&options).await.err().map_or_else(Vec::new, |violation| vec![violation]);
        violations.extend(available::check(&desk.operations.lock(), &desk.impaired.lock()));
        violations.extend(board.history.lock().complaints().iter().cloned());
        violations.extend(healthy::check_panics(&world.panics()));
        let mut report = crate::report(&board, violations);
        let operations = desk.operations.lock();
        report.reads = count(&operations, |kind| matches!(kind, OperationKind::Read | OperationKind::ReadOther));
        report.writes = count(&operations, |kind| {
            !matches!(kind, OperationKind::Read | OperationKind::ReadOther | OperationKind::Unlink)
        });
        report.slowest = slowest(&operations);
        report
    })
}

fn count(operations: &[Operation], counts: impl Fn(OperationKind) -> bool) -> u64 {
    operations.iter().filter(|one| counts(one.kind)).count() as u64
}

/// The longest of each kind, in milliseconds.
fn slowest(operations: &[Operation]) -> std::collections::BTreeMap<String, u64> {
    let mut slowest = std::collections::BTreeMap::new();
    for one in operations {
        let took = u64::try_from((one.end - one.start).as_millis()).unwrap_or(u64::MAX);
        let most = slowest.entry(format!("{:?}", one.kind)).or_insert(0);
        *most = took.max(*most);
    }
    slowest
}

impl Desk {
    async fn drive(&self, options: &SingleOptions) -> Result<(), Violation> {
        let world = self.cluster.world().clone();
        self.until_whole("at the start").await?;
        let observer = self.connect("observer").await;
        let directory = set_up(&observer, options).await.map_err(|error| broken("setting up", &error))?;
        let mut tasks = Vec::new();
        for client in 0..2 {
            let host = format!("c{client}");
            let worker = work::Worker::new(self.clone(), client, self.connect(&host).await, directory);
            let dice = world.dice(&host);
            tasks.push(world.process(&host).runtime().spawn("work", worker.run(dice)));
        }
        let mut dice = world.dice("single faults");
        for _ in 0..options.rounds {
            world.sleep(dice.span_between(Duration::from_secs(2), Duration::from_secs(6))).await;
            let fault = faults::Fault::draw(&self.cluster, &mut dice);
            let lasts = faults::span(&mut dice);
            tracing::debug!(%fault, ?lasts, "a fault begins");
            let start = world.now();
            fault.inject(&self.cluster);
            world.sleep(lasts).await;
            fault.end(&self.cluster);
            self.impaired.lock().push(Impaired { how: fault.to_string(), start, end: world.now() });
            self.until_whole(&format!("after {fault} for {lasts:.1?}")).await?;
        }
        self.done.store(true, Ordering::Relaxed);
        let mut known = Vec::new();
        for task in tasks {
            known.extend(task.join().await.map_err(|error| broken("a client's end", &error))?);
        }
        // Writes synced in the last moment are not committed yet, and do not count as short.
        world.sleep(COMMITTED_AFTER).await;
        self.until_whole("at the end").await?;
        self.lose_one_and_read(directory, known, &mut dice).await
    }

    /// One node's disk goes, and everything that was acknowledged is read.
    async fn lose_one_and_read(
        &self,
        directory: InodeId,
        known: Vec<(String, Vec<u8>)>,
        dice: &mut Dice,
    ) -> Result<(), Violation> {
        let blocks = self.blocks();
        let lost = dice.pick(&blocks);
        lost.process.power_off();
        lost.process.wipe_disk(Path::new(BLOCK_DIR));
        let reader = self.connect("reader").await;
        for (name, contents) in known {
            let read = work::read_whole(&reader, directory, &name).await;
            let read =
                read.map_err(|error| broken(&format!("reading {name} without {}", lost.process.name()), &error))?;
            if read != contents {
                let at = read.iter().zip(&contents).position(|(one, other)| one != other);
                let text = format!("{name}: {} of {} bytes, first difference at {at:?}", read.len(), contents.len());
                return Err(Violation::new("fresh", text));
            }
        }
        Ok(())
    }

    fn blocks(&self) -> Vec<Member> {
        self.cluster.members().iter().filter(|member| member.role == Role::Block).cloned().collect()
    }

    async fn connect(&self, host: &str) -> Client {
        let runtime = self.cluster.world().process(host).restart();
        loop {
            match self.cluster.connect(&runtime, host).await {
                Ok(client) => return client,
                Err(_) => self.cluster.world().sleep(Duration::from_millis(500)).await,
            }
        }
    }

    /// Waits until all nodes are there and every set has all its copies.
    async fn until_whole(&self, when: &str) -> Result<(), Violation> {
        let (world, nodes) = (self.cluster.world(), self.blocks().len());
        let until = world.now() + WHOLE_MAX;
        loop {
            let status = self.cluster.operator().call(&pb::ClusterStatus {}, ASK).await;
            let is_live = |node: &&pb::Node| node.state() == pb::NodeState::NodeLive && !node.late;
            let is_whole = |status: &pb::ClusterStatusReply| {
                status.safe_start
                    && status.nodes.iter().filter(is_live).count() == nodes
                    && (status.under_replicated, status.repairs_running) == (0, 0)
            };
            if status.as_ref().is_ok_and(is_whole) {
                return Ok(());
            }
            if world.now() > until {
                let why = status.map(|status| status.shortages);
                return Err(Violation::new("rest", format!("{when}: not whole within {WHOLE_MAX:?}: {why:?}")));
            }
            world.sleep(Duration::from_millis(500)).await;
        }
    }
}

fn broken(kind: &str, error: &ebb_types::Error) -> Violation {
    Violation::new("available", format!("{kind}: {error}"))
}

/// The dataset that clients work in, and the file that they share.
async fn set_up(client: &Client, options: &SingleOptions) -> Result<InodeId> {
    let root = Credentials::root();
    let dataset = pb::Dataset {
        path: "/d".to_owned(),
        replicas: options.replicas,
        min_copies: options.min_copies,
        block_size: 64 << 10,
        metablock_size: 256 << 10,
        replication: if options.single_source { "single-source" } else { "pipeline" }.to_owned(),
        ..Default::default()
    };
    client.meta(&root, Op::CreateDataset(CreateDataset { dataset: Some(dataset), ..Default::default() })).await?;
    let directory = client.resolve(&root, b"/d").await?.inode;
    let access = ebb_client::Access::ReadWrite;
    let made = client.create(&root, NewFile::exclusive(directory, work::SHARED.as_bytes(), access)).await?;
    client.close(made.handle).await;
    Ok(directory)
}
