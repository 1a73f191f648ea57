//! Rounds of load and kill -9: acknowledged data are there, and nothing that was never written.
//!
//! `EBB_KILL_ROUNDS` sets how many rounds there are; every fifth kills all processes at once. To hunt for rare
//! failures, `EBB_KILL_ONLY` names the process that dies in each round: `block`, `mount`, `master` or `all`.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::harness::{Cluster, Dice, Signal, signal};
use crate::load::Worker;
use crate::watch::StopAtEnd;

const NODES: u64 = 5;
const WORKERS_PER_MOUNT: u64 = 2;

/// The process that dies.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Victim {
    Block(u64),
    Mount(usize),
    Master,
    All,
}

impl Victim {
    /// Victim of this name.
    fn named(name: &str, dice: &mut Dice) -> Self {
        match name {
            "block" => Self::Block(1 + dice.below(NODES)),
            "mount" => Self::Mount(dice.below(2) as usize),
            "master" => Self::Master,
            "all" => Self::All,
            other => panic!("EBB_KILL_ONLY={other}: not one of block, mount, master, all"),
        }
    }

    fn of_round(round: u64, dice: &mut Dice) -> Self {
        // The first rounds meet each kind once; chance takes over then.
        let kind = if round < 5 { round } else { dice.below(4) };
        match kind {
            _ if round % 5 == 4 => Self::All,
            0 => Self::Block(1 + dice.below(NODES)),
            1 => Self::Mount(dice.below(2) as usize),
            2 => Self::Master,
            _ => Self::Block(1 + dice.below(NODES)),
        }
    }

    /// Whether the clients of a mount lose unsynced data.
    fn takes(self, mount: usize) -> bool {
        self == Self::All || self == Self::Mount(mount)
    }
}

struct Rig {
    cluster: Cluster,
    mounts: [PathBuf; 2],
}

impl Rig {
    fn kill(&self, victim: Victim) {
        match victim {
            Victim::Block(number) => self.cluster.kill(self.cluster.pid("block", &format!("h{number}"))),
            Victim::Master => self.cluster.kill(self.cluster.pid("master", "")),
            Victim::Mount(index) => self.cluster.kill(self.mount_pid(index)),
            Victim::All => {
                let status = self.cluster.json(&["cluster", "status"]);
                let processes = status["processes"].as_array().unwrap();
                let pids = processes.iter().map(|process| u32::try_from(process["pid"].as_u64().unwrap()).unwrap());
                self.cluster.kill_all(&pids.collect::<Vec<u32>>());
            }
        }
    }

    fn mount_pid(&self, index: usize) -> u32 {
        let status = self.cluster.json(&["cluster", "status"]);
        let mount = self.mounts[index].to_str().unwrap();
        let process = status["processes"].as_array().unwrap().iter().find(|p| p["mountpoint"] == mount).cloned();
        u32::try_from(process.expect("the mount is listed")["pid"].as_u64().unwrap()).unwrap()
    }

    fn restart(&self, victim: Victim) {
        if !matches!(victim, Victim::Mount(_)) {
            self.cluster.ok(&["cluster", "up", "--nodes", &NODES.to_string()]);
        }
        for (index, mount) in self.mounts.iter().enumerate() {
            if victim.takes(index) {
                self.cluster.ok(&["mount", "--host", ["client", "h1"][index], mount.to_str().unwrap()]);
            }
        }
    }
}

#[test]
fn acknowledged_changes_survive_kill_9_of_anything_at_any_moment() {
    let rounds: u64 = std::env::var("EBB_KILL_ROUNDS").map_or(10, |text| text.parse().expect("a number of rounds"));
    let only = std::env::var("EBB_KILL_ONLY").ok();
    let cluster = Cluster::up(NODES as u32);
    let mounts = [cluster.mount_as("a", "client"), cluster.mount_as("b", "h1")];
    let rig = Rig { cluster, mounts };
    let mut dice = Dice::new(rounds);
    let mut workers: Vec<(usize, Worker)> = (0..2 * WORKERS_PER_MOUNT)
        .map(|number| (number as usize % 2, number))
        .map(|(mount, number)| (mount, Worker::new(&rig.mounts[mount], &format!("w{number}"), number)))
        .collect();
    for round in 0..rounds {
        let victim = match &only {
            Some(name) => Victim::named(name, &mut dice),
            None => Victim::of_round(round, &mut dice),
        };
        let before: u64 = workers.iter().map(|(_, worker)| worker.done).sum();
        play(&rig, victim, &mut workers, &mut dice);
        for (mount, worker) in &mut workers {
            let other = &rig.mounts[1 - *mount];
            if victim.takes(*mount) { worker.check_after_crash(other) } else { worker.check_all(other) }
        }
        let done: u64 = workers.iter().map(|(_, worker)| worker.done).sum();
        eprintln!("round {round}: {victim:?} killed, {} operations", done - before);
    }
    rig.cluster.healthy();
}

/// Lets the workers work, kills, restarts, and lets those that live work on a little.
fn play(rig: &Rig, victim: Victim, workers: &mut [(usize, Worker)], dice: &mut Dice) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let end = StopAtEnd(&stop);
        let running: Vec<_> =
            workers.iter_mut().map(|(mount, worker)| (*mount, scope.spawn(|| worker.run(&stop)))).collect();
        std::thread::sleep(Duration::from_millis(200 + dice.below(1500)));
        rig.kill(victim);
        std::thread::sleep(Duration::from_millis(dice.below(1000)));
        rig.restart(victim);
        std::thread::sleep(Duration::from_millis(dice.below(1000)));
        drop(end);
        for (mount, handle) in running {
            let ended = handle.join().expect("a worker does not panic");
            assert!(
                ended.is_ok() || victim.takes(mount),
                "{victim:?} died, and an operation on another mount failed: {ended:?}"
            );
        }
    });
}

/// A server that is frozen for a while, not dead: no operation fails, and it is made whole or used again.
#[test]
fn a_block_server_frozen_under_load_makes_nothing_fail() {
    let cluster = Cluster::up(NODES as u32);
    let mounts = [cluster.mount_as("a", "client"), cluster.mount_as("b", "h2")];
    let mut workers: Vec<Worker> =
        (0..2).map(|number| Worker::new(&mounts[number], &format!("w{number}"), number as u64)).collect();
    let stop = AtomicBool::new(false);
    let frozen = cluster.pid("block", "h3");
    std::thread::scope(|scope| {
        let end = StopAtEnd(&stop);
        let running: Vec<_> = workers.iter_mut().map(|worker| scope.spawn(|| worker.run(&stop))).collect();
        std::thread::sleep(Duration::from_millis(500));
        signal(frozen, Signal::STOP);
        std::thread::sleep(Duration::from_secs(8));
        signal(frozen, Signal::CONT);
        std::thread::sleep(Duration::from_secs(2));
        drop(end);
        for handle in running {
            handle.join().unwrap().unwrap();
        }
    });
    workers[0].check_all(&mounts[1]);
    workers[1].check_all(&mounts[0]);
    cluster.healthy();
}
