//! A whole cluster in one thread: the real master, block servers and clients in a seeded virtual world, under faults.
//!
//! [`run`] starts a cluster, lets clients work on shared and own files while a swarm of faults goes on, heals
//! everything, waits until the system has come to rest, and compares what clients met, and what is on the disks, with
//! what was promised ([`invariants`]). The same seed gives the same run, event by event: a report with violations is
//! replayed by its seed. [`swarm`] runs many of them.
//!
//! This crate never looks into a service: what it knows, it knows as a client, as an operator or as the disks' owner
//! would. It never suspends a promise: faults keep to a budget ([`faults::budget`]) of what the copies bear. That it
//! would notice a broken one is tried with planted mistakes ([`ebb_runtime::plant`]).
//!
//! Clients sit on hosts of their own, or, where a seed says so, beside block servers: they read from these by descriptors, whose slots
//! and sockets the world has, and the two die together.
//!
//! Reading order: [`options`], [`report`], [`cluster`] with [`datasets`], [`faults`], [`workload`] with [`own`],
//! [`locks`], [`cell`] and [`files`], [`history`], [`watch`], [`observer`], [`survey`], [`invariants`], [`swarm`].
//! Beside them: [`gray`], runs in which a node is slow for long; [`power`], a cluster that follows its power, with runs of its own
//! ([`power::run`]); and [`single`], one fault at a time.
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
    let plant = options.plant;
    let world_options = WorldOptions { panics: Panics::EndTheTask, kept_events_max, plant, ..WorldOptions::default() };
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
        short_reads: counts.values().map(|counts| counts.short_reads).sum(),
        extra_reads: counts.values().map(|counts| counts.extra_reads).sum(),
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
    // Before repair has had the time to hide what a crash has damaged.
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
