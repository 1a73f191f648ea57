//! A whole cluster in one thread: the real master, block servers and clients in a seeded virtual world, under faults.
//!
//! [`run`] starts a cluster, lets clients work on a few shared files while a swarm of faults goes on, heals
//! everything, waits until the system has come to rest, and compares what clients met with what was promised
//! ([`invariants`]). The same seed gives the same run, event by event: a report with violations is replayed by its
//! seed.
//!
//! This crate never looks into a service: what it knows, it knows as a client or an operator would. It never suspends
//! a promise: whatever the faults are, data that was synced is on disks that come back.
//!
//! Reading order: [`options`], [`report`], [`cluster`], [`faults`], [`workload`] with [`cell`] and [`files`],
//! [`history`], [`invariants`].

pub mod cell;
pub mod cluster;
pub mod faults;
pub mod files;
pub mod history;
pub mod invariants;
pub mod options;
pub mod report;
#[cfg(test)]
mod tests;
pub mod workload;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ebb_client::Client;
use ebb_runtime::virt::options::Panics;
use ebb_runtime::virt::{Event, World, WorldOptions};
use ebb_types::Result;

use crate::cluster::Cluster;
use crate::files::{ClientFiles, Files};
use crate::history::History;
use crate::invariants::{Violation, healthy, names};
pub use crate::options::VirtualOptions;
pub use crate::report::Report;
use crate::workload::{Board, TOKENS, Worker};

/// Runs a cluster under the faults of a seed.
#[must_use]
pub fn run(seed: u64, options: VirtualOptions) -> Report {
    run_and_keep(seed, options, 0).0
}

/// The same, with the first events: where two runs of a seed first differ, something has escaped from the world.
#[must_use]
pub fn run_and_keep(seed: u64, options: VirtualOptions, kept_events_max: usize) -> (Report, Vec<Event>) {
    let world_options = WorldOptions { panics: Panics::EndTheTask, kept_events_max, ..WorldOptions::default() };
    World::run(seed, world_options, |world| async move {
        let board = Board { world: world.clone(), history: Arc::default(), done: Arc::default() };
        let mut violations = match drive(&board, options).await {
            Ok(violations) => violations,
            Err(violation) => vec![violation],
        };
        violations.extend(healthy::check_panics(&world.panics()));
        (report(&board, violations), world.events())
    })
}

fn report(board: &Board, violations: Vec<Violation>) -> Report {
    let (world, history) = (&board.world, board.history.lock());
    let (acked, firm) = history.acked();
    Report {
        seed: world.seed(),
        trace_hash: format!("{:016x}", world.trace_hash()),
        virtual_seconds: world.now().as_secs_f64(),
        faults: world.faults().into_iter().map(|(kind, count)| (kind.to_owned(), count)).collect(),
        writes: history.writes().len() as u64,
        acked,
        firm,
        reads: history.reads().len() as u64,
        violations,
    }
}

/// The phases of a run. An error is a violation that leaves nothing to compare.
async fn drive(board: &Board, options: VirtualOptions) -> Result<Vec<Violation>, Violation> {
    let world = &board.world;
    let cluster = Cluster::start(board.clone(), options.clone());
    let observer = Observer::new(&cluster, board).await?;
    let made = observer.set_up(options.block_servers).await?;
    cluster.start_clients();

    faults::run(&cluster, world, options.chaos, options.fault_pause).await;
    world.sleep(options.calm).await;
    board.done.store(true, Ordering::Relaxed);

    // A fault that was still under way may end after the healing, and its end changes nothing.
    let settled = observer.wait_for_rest(options.rest_max).await;
    let mut violations = observer.look_at_everything(&made, options.rest_max).await?;
    violations.extend(settled.err());
    let history: History = board.history.lock().clone();
    violations.extend(invariants::check_history(&history));
    Ok(violations)
}

/// A client that sets up and looks, and meets no fault.
struct Observer<'a> {
    cluster: &'a Cluster,
    board: &'a Board,
    client: Client,
}

/// The number of the observer among the clients.
const OBSERVER: usize = usize::MAX;

impl<'a> Observer<'a> {
    async fn new(cluster: &'a Cluster, board: &'a Board) -> Result<Self, Violation> {
        let runtime = board.world.process("observer").runtime();
        for _ in 0..60 {
            if let Ok(client) = cluster.connect(&runtime, "observer").await {
                return Ok(Self { cluster, board, client });
            }
            runtime.sleep(Duration::from_secs(1)).await;
        }
        Err(Violation::new("healthy", "no session within a minute of the start, without any fault"))
    }

    /// Waits for all block servers, makes the directory and its files; tells the inodes of those that are renamed.
    async fn set_up(&self, block_servers: usize) -> Result<Vec<u64>, Violation> {
        self.wait(Duration::from_secs(60), "all block servers to register", |status| {
            status.safe_start && status.nodes.len() == block_servers
        })
        .await?;
        let made = async {
            let directory = self.cluster.make_directory(&self.client).await?;
            let files = ClientFiles::new(self.client.clone(), directory);
            let mut made = Vec::new();
            for token in 0..TOKENS {
                made.push(files.make(&format!("t{token}")).await?);
            }
            Ok(made)
        };
        let failed = |error: ebb_types::Error| Violation::new("healthy", format!("set-up, without any fault: {error}"));
        made.await.map_err(failed)
    }

    async fn wait_for_rest(&self, longest: Duration) -> Result<(), Violation> {
        // Workers end, clients sync, leases expire, repair does its work.
        self.board.world.sleep(Duration::from_secs(60)).await;
        self.wait(longest, "repair to end", |status| {
            status.serving && status.safe_start && status.under_replicated == 0 && status.repairs_running == 0
        })
        .await
    }

    async fn wait(
        &self,
        longest: Duration,
        what: &str,
        is_good: impl Fn(&ebb_wire::pb::ClusterStatusReply) -> bool,
    ) -> Result<(), Violation> {
        let world = &self.board.world;
        let end = world.now() + longest;
        let mut last = String::from("no answer");
        while world.now() < end {
            match self.cluster.status(&self.client).await {
                Ok(status) if is_good(&status) => return Ok(()),
                Ok(status) => last = format!("{status:?}"),
                Err(error) => last = error.to_string(),
            }
            world.sleep(Duration::from_secs(1)).await;
        }
        Err(Violation::new("healthy", format!("waited {} s for {what}; at last: {last}", longest.as_secs())))
    }

    /// Reads all files, all names and the state of all replicas, through a session that has no caches yet.
    async fn look_at_everything(&self, made: &[u64], rest_max: Duration) -> Result<Vec<Violation>, Violation> {
        let failed = |error: ebb_types::Error| Violation::new("healthy", format!("at rest: {error}"));
        let runtime = self.board.world.process("observer").runtime();
        let files = Arc::new(self.cluster.files(&runtime, "observer").await);
        let worker = Worker { board: self.board.clone(), client: OBSERVER, files: files.clone() };
        let mut violations: Vec<Violation> = worker.read_everything().await.map_err(failed).err().into_iter().collect();
        violations.extend(names::check(made, &files.list().await.map_err(failed)?));
        violations.extend(self.wait_for_clean_fsck(rest_max).await.map_err(failed)?);
        Ok(violations)
    }

    /// Excess replicas go last and in the background: only what stays wrong is wrong.
    async fn wait_for_clean_fsck(&self, longest: Duration) -> Result<Vec<Violation>> {
        let end = self.board.world.now() + longest;
        loop {
            let found = healthy::check_fsck(&self.cluster.fsck(&self.client).await?);
            if found.is_empty() || self.board.world.now() >= end {
                return Ok(found);
            }
            self.board.world.sleep(Duration::from_secs(10)).await;
        }
    }
}

/// For tests that drive the workload without a cluster.
#[cfg(test)]
fn board(world: &World) -> Board {
    Board { world: world.clone(), history: Arc::default(), done: Arc::default() }
}
