//! The oracle finds nothing in a file system that keeps its promises, and each seeded bug in one that does not.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ebb_runtime::virt::{World, WorldOptions};

use super::memory::{Bug, Memory};
use crate::invariants::check_history;
use crate::workload::Worker;

/// Enough for a few to meet at every write.
const CLIENTS: usize = 8;

const PAUSE_MAX: Duration = Duration::from_millis(60);

/// The invariants that clients' work on a store with this bug breaks.
fn broken_by(bug: Bug, seed: u64) -> BTreeSet<&'static str> {
    World::run(seed, WorldOptions::default(), |world| async move {
        let board = crate::board(&world);
        let runtime = world.process("clients").runtime();
        let files = Arc::new(Memory::new(runtime.clone(), world.dice("memory"), bug));
        let mut tasks = Vec::new();
        for client in 0..CLIENTS {
            let worker = Worker { board: board.clone(), client, files: files.clone() };
            let dice = world.dice(&format!("worker {client}"));
            let locks = worker.clone().run_locks(runtime.clone(), world.dice(&format!("locks {client}")), PAUSE_MAX);
            tasks.push(runtime.spawn("locks", locks));
            tasks.push(runtime.spawn("worker", worker.run(runtime.clone(), dice, PAUSE_MAX)));
        }
        world.sleep(Duration::from_secs(30)).await;
        board.done.store(true, Ordering::Relaxed);
        for task in tasks {
            task.join().await.unwrap();
        }
        for client in 0..CLIENTS {
            Worker { board: board.clone(), client, files: files.clone() }.fsync_everything().await;
        }
        Worker { board: board.clone(), client: CLIENTS, files }.read_everything().await.unwrap();
        let history = board.history.lock().clone();
        assert!(history.acked().1 > 100, "{:?}", history.acked());
        assert!(history.holds().len() > 50, "{} locks", history.holds().len());
        check_history(&history).into_iter().map(|violation| violation.invariant).collect()
    })
}

#[test]
fn kept_promises_raise_no_alarm() {
    for seed in 0..10 {
        assert_eq!(broken_by(Bug::None, seed), BTreeSet::new(), "seed {seed}");
    }
}

#[test]
fn every_seeded_bug_is_found() {
    for (bug, invariant) in [
        (Bug::Loss, "fresh"),
        (Bug::Tear, "torn"),
        (Bug::Stale, "fresh"),
        (Bug::Flicker, "atomic"),
        (Bug::NoTruncate, "fresh"),
        (Bug::Overlap, "append"),
        (Bug::NoHole, "fresh"),
        (Bug::TwoLocks, "locks"),
    ] {
        let found = (0..5).any(|seed| broken_by(bug, seed).contains(invariant));
        assert!(found, "{bug:?} is not found by {invariant}");
    }
}

#[test]
fn no_two_events_of_a_history_have_one_time() {
    World::run(1, WorldOptions::default(), |world| async move {
        let runtime = world.process("clients").runtime();
        let files = Arc::new(Memory::new(runtime, world.dice("memory"), Bug::None));
        let one = Worker { board: crate::board(&world), client: 0, files };
        let other = Worker { client: 1, ..one.clone() };
        let times = [one.now(), other.now(), one.now()];
        assert!(times.is_sorted_by(|earlier, later| earlier < later), "{times:?}");
    });
}
