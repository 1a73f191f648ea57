//! Names are as linearizable as data: one order explains every answer to programs on one mount or on several, also
//! while processes are frozen or killed.
//!
//! `EBB_NAMES_OPERATIONS` sets how many operations each run has; a million is the long form. Under faults these are then
//! repeated until all operations are done.

use std::path::PathBuf;
use std::time::Duration;

use crate::harness::{Cluster, Signal, signal};
use crate::programs::Run;
use crate::watch::StopAtEnd;

/// Programs at a time.
const PROGRAMS: usize = 6;
const OPERATIONS: &str = "EBB_NAMES_OPERATIONS";

fn operations(usual: u64) -> u64 {
    std::env::var(OPERATIONS).map_or(usual, |text| text.parse().expect("a number of operations"))
}

/// The directory as the programs see it, dealt to these mounts.
fn paths(mounts: &[PathBuf]) -> Vec<PathBuf> {
    std::fs::create_dir_all(mounts[0].join("names")).unwrap();
    (0..PROGRAMS).map(|program| mounts[program % mounts.len()].join("names")).collect()
}

#[test]
fn names_of_a_local_file_system_pass_the_same_check() {
    for directory in [std::env::temp_dir(), PathBuf::from("/dev/shm")] {
        let directory = tempfile::tempdir_in(directory).unwrap();
        let run = Run::of(operations(20_000));
        run.work(&paths(&[directory.path().to_owned()]), 1);
        let (done, unknown) = run.check_answers();
        assert!(done > 10_000 && unknown == 0, "{done} operations, {unknown} without an answer");
    }
}

#[test]
fn names_on_one_mount_are_linearizable() {
    let cluster = Cluster::up(3);
    let run = Run::of(operations(20_000));
    run.work(&paths(&[cluster.mount("m")]), 2);
    let (done, unknown) = run.check_answers();
    assert!(done > 10_000 && unknown == 0, "{done} operations, {unknown} without an answer");
}

#[test]
fn names_on_three_mounts_are_linearizable() {
    let cluster = Cluster::up(3);
    let mounts: Vec<_> = (0..3).map(|index| cluster.mount_as(&format!("m{index}"), "client")).collect();
    let run = Run::of(operations(8_000));
    run.work(&paths(&mounts), 3);
    let (done, unknown) = run.check_answers();
    assert!(done > 4_000 && unknown == 0, "{done} operations, {unknown} without an answer");
}

/// A fault while programs work.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// It stands still for so many milliseconds.
    Frozen(u64),
    /// It is killed, and started again after so many.
    Killed(u64),
}

fn befall(cluster: &Cluster, role: &str, host: &str, fault: Fault) {
    let pid = cluster.pid(role, host);
    match fault {
        Fault::Frozen(millis) => {
            signal(pid, Signal::STOP);
            std::thread::sleep(Duration::from_millis(millis));
            signal(pid, Signal::CONT);
        }
        Fault::Killed(millis) => {
            cluster.kill(pid);
            std::thread::sleep(Duration::from_millis(millis));
            match role {
                "block" => cluster.ok(&["node", "start", host]),
                _ => cluster.ok(&["cluster", "up", "--nodes", "4"]),
            };
        }
    }
}

/// Programs on three mounts, and these faults one after the other.
fn under(faults: &[(&str, &str, Fault)], seed: u64) {
    let cluster = Cluster::up(4);
    let mounts: Vec<_> = (0..3).map(|index| cluster.mount_as(&format!("m{index}"), "client")).collect();
    let is_long = std::env::var_os(OPERATIONS).is_some();
    let run = Run::of(operations(u64::MAX));
    let paths = paths(&mounts);
    std::thread::scope(|scope| {
        let end = StopAtEnd(&run.stop);
        let work = scope.spawn(|| run.work(&paths, seed));
        loop {
            for (role, host, fault) in faults {
                std::thread::sleep(Duration::from_secs(2));
                befall(&cluster, role, host, *fault);
            }
            std::thread::sleep(Duration::from_secs(3));
            if !is_long || run.is_over() {
                break;
            }
        }
        drop(end);
        work.join().unwrap();
    });
    let (done, unknown) = run.check_answers();
    eprintln!("{done} operations, {unknown} without an answer");
    assert!(done > 500, "{done} operations show little");
    cluster.healthy();
}

#[test]
fn names_are_linearizable_while_the_master_freezes_and_dies() {
    let master = |fault| ("master", "", fault);
    under(&[master(Fault::Frozen(1500)), master(Fault::Killed(200)), master(Fault::Frozen(6000))], 5);
}

/// Goal: a program that reads and writes whole files under names that move never meets two that were there at a time,
/// or none, while the members of these files come and go. Method: of four nodes each has copies of most files; one is
/// frozen for less and for longer than until it counts as dead, one is killed and soon back, one after it counts as
/// dead, and two in turn.
#[test]
fn names_are_linearizable_while_block_servers_freeze_and_die() {
    let faults = [
        ("block", "h1", Fault::Frozen(1200)),
        ("block", "h2", Fault::Killed(200)),
        ("block", "h3", Fault::Frozen(5000)),
        ("block", "h4", Fault::Killed(4000)),
        ("block", "h1", Fault::Killed(0)),
        ("block", "h2", Fault::Frozen(2500)),
    ];
    under(&faults, 6);
}
