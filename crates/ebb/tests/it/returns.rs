//! Everything is killed, and the nodes are started again one by one: their copies are kept, and not made again.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Cluster, pattern, wait_for, write_synced};

const FILES: u64 = 5;
const LENGTH: usize = 300_000;

/// A master that was started by hand, and is ended with the test.
struct Master(Child);

impl Master {
    fn start(cluster: &Cluster) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ebb"));
        command.arg("master").env("EBB_DIR", cluster.dir());
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn kill_everything(cluster: &Cluster) {
    let status = cluster.json(&["cluster", "status"]);
    let processes = status["processes"].as_array().unwrap();
    let pids = processes.iter().map(|process| u32::try_from(process["pid"].as_u64().unwrap()).unwrap());
    cluster.kill_all(&pids.collect::<Vec<u32>>());
}

/// Files are written and synced, everything is killed, the master and one node are started, and the others after
/// `later`. Returns the repairs in the status when all is well again. Sessions end after 4 s.
fn return_after(dead_after_ms: &str, later: Duration) -> Value {
    let cluster = Cluster::none();
    let times = ["--dead-after-ms", dead_after_ms, "--session-ttl-ms", "4000"];
    cluster.ok(&[&["cluster", "up", "--nodes", "3"], &times[..]].concat());
    let mount = cluster.mount("first");
    for file in 0..FILES {
        write_synced(&mount.join(format!("f{file}")), &pattern(LENGTH, file)).unwrap();
    }
    kill_everything(&cluster);
    let master = Master::start(&cluster);
    // It takes a moment until there is a master to register with.
    wait_for("a master and a node", Duration::from_secs(30), || cluster.ebb(&["node", "start", "h3"]).code == 0);
    std::thread::sleep(later);
    cluster.ok(&["node", "start", "h1"]);
    cluster.ok(&["node", "start", "h2"]);
    let mount = cluster.mount("second");
    for file in 0..FILES {
        assert!(std::fs::read(mount.join(format!("f{file}"))).unwrap() == pattern(LENGTH, file), "f{file}");
    }
    cluster.healthy();
    let status = cluster.json(&["cluster", "status"]);
    cluster.ok(&["cluster", "down"]);
    drop(master);
    status["repair"].clone()
}

/// Nodes come back after the sessions have ended, and before they count as dead: they are waited for.
#[test]
fn nodes_that_are_started_later_are_waited_for() {
    let repairs = return_after("30000", Duration::from_secs(12));
    assert_eq!((repairs["copies"].as_u64(), repairs["rejoined"].as_u64()), (Some(0), Some(0)), "{repairs}");
}

/// Nodes come back when they count as dead and files were recovered without them: they are members again, without a copy.
#[test]
fn nodes_that_are_started_far_later_rejoin_with_their_replicas() {
    let repairs = return_after("6000", Duration::from_secs(14));
    assert_eq!(repairs["copies"].as_u64(), Some(0), "{repairs}");
    assert!(repairs["rejoined"].as_u64().is_some_and(|rejoined| rejoined >= 2 * FILES), "{repairs}");
}
