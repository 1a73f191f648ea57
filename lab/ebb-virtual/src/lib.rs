//! A whole cluster in one thread: the real master, block servers and clients in a seeded virtual world, under faults.
//!
//! What this crate never does:
//! - look into a service. It observes only what a client, an operator or the owner of the disks can observe;
//! - suspend a promise. Faults keep to a budget ([`faults::budget`]) that the copies can bear.
//!
//! Seeded bugs ([`ebb_runtime::seeded_bug`]) test that it detects a broken promise.
//!
//! [`run`] does these steps:
//! 1. It starts a cluster.
//! 2. Clients work on shared files and on files of their own, while a swarm of faults goes on.
//! 3. It repairs every fault, and waits until the system is at rest.
//! 4. It compares the clients' observations and the contents of the disks with the promises ([`invariants`]).
//!
//! The same seed gives the same run, event by event. A report with violations is replayed by its seed. [`swarm`] runs
//! many seeds.
//!
//! Each client is on a host of its own, or, if the seed says so, on the host of a block server. In the second case it
//! reads from the server through descriptors. The virtual world models their slots and sockets. Client and block server
//! die together.
//!
//! Reading order: [`options`], [`report`], [`cluster`] with [`datasets`], [`faults`], [`workload`] with [`own`],
//! [`locks`], [`snapshots`], [`cell`] and [`files`], [`history`], [`watch`], [`observer`], [`survey`], [`invariants`], [`swarm`].
//! Beside them: [`gray`], runs in which a node is slow for long; [`power`], a cluster that follows its power, with runs
//! of its own ([`power::run`]); and [`single`], one fault at a time.
#![forbid(unsafe_code)]

pub mod cell;
pub mod cluster;
pub mod datasets;
pub mod faults;
pub mod files;
pub mod gray;
pub mod history;
pub mod invariants;
pub mod locks;
pub mod names;
pub mod observer;
pub mod options;
pub mod own;
pub mod power;
pub mod report;
pub mod single;
pub mod snapshots;
pub mod survey;
pub mod swarm;
#[cfg(test)]
mod tests;
pub mod watch;
pub mod workload;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ebb_runtime::virt::options::Panics;
use ebb_runtime::virt::{Event, World, WorldOptions};

use crate::cluster::Cluster;
use crate::history::History;
use crate::invariants::{Violation, healthy};
use crate::observer::Observer;
pub use crate::options::VirtualOptions;
pub use crate::report::{ProxyUse, Report};
use crate::watch::Watch;
use crate::workload::Board;

/// Runs a cluster under the faults of a seed.
#[must_use]
pub fn run(seed: u64, options: VirtualOptions) -> Report {
    run_and_keep(seed, options, 0).0
}

/// The same, with the first events: where two runs of a seed first differ, something has escaped from the world.
#[must_use]
pub fn run_and_keep(seed: u64, options: VirtualOptions, kept_events_max: usize) -> (Report, Vec<Event>) {
    let bug = options.bug;
    let world_options = WorldOptions { panics: Panics::EndTheTask, kept_events_max, bug, ..WorldOptions::default() };
    World::run(seed, world_options, |world| async move {
        let board = Board { in_turns: options.in_turns, ..board(&world) };
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
    let counts = board.counts.lock();
    Report {
        seed: world.seed(),
        trace_hash: format!("{:016x}", world.trace_hash()),
        virtual_seconds: world.now().as_secs_f64(),
        faults: world.faults().into_iter().map(|(kind, count)| (kind.to_owned(), count)).collect(),
        injected: board.injected.lock().iter().map(|(kind, count)| (kind.to_string(), *count)).collect(),
        writes: history.writes().len() as u64,
        acked,
        firm,
        reads: history.reads().len() as u64,
        locks: history.holds().len() as u64,
        names: history.names().len() as u64,
        snapshots: history.snapshots().values().filter(|taken| taken.end.is_some()).count() as u64,
        short_circuit_reads: counts.values().map(|counts| counts.short_circuit_reads).sum(),
        extra_reads: counts.values().map(|counts| counts.extra_reads).sum(),
        thawed: counts.values().map(|counts| counts.thawed_metablocks).sum(),
        degraded_reads: counts.values().map(|counts| counts.degraded_reads).sum(),
        away_from_on: 0,
        gray: board.gray.lock().len() as u64,
        slowest: Default::default(),
        proxy: ProxyUse::of(counts.values()),
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

    let watch = Watch::new(&cluster, observer.client());
    tokio::select! {
        biased;
        () = faults::run(&cluster, world, &watch, options.chaos, options.fault_pause) => {}
        () = watch.run() => {}
    }
    world.sleep(options.calm).await;
    // Before repair has had the time to hide the damage of a crash.
    watch.is_complete(true).await;
    board.done.store(true, Ordering::Relaxed);

    // A fault that was still under way may end after the healing, and its end changes nothing.
    let settled = observer.wait_for_rest(options.rest_max).await;
    let mut violations = watch.take_violations();
    violations.extend(settled.err());
    match observer.look_at_everything(&made, options.rest_max).await {
        Ok(found) => violations.extend(found),
        Err(violation) => violations.push(violation),
    }
    let history: History = board.history.lock().clone();
    violations.extend(invariants::check_history(&history));
    Ok(violations)
}

fn board(world: &World) -> Board {
    Board {
        world: world.clone(),
        history: Arc::default(),
        last: Arc::default(),
        injected: Arc::default(),
        counts: Arc::default(),
        gray: Arc::default(),
        in_turns: false,
        done: Arc::default(),
    }
}
