//! Missing, damaged, out of reach by plan and out of reach by failure: `fsck`, `cluster status` and their exit codes
//! tell the four apart, and name files.

use std::time::Duration;

use serde_json::Value;

use crate::harness::{Cluster, wait_for};

/// Puts `bytes` bytes at this path of the cluster.
fn put(cluster: &Cluster, path: &str, bytes: usize) {
    let local = cluster.path("local");
    std::fs::write(&local, vec![7; bytes]).unwrap();
    cluster.ok(&["fs", "put", "-f", local.to_str().unwrap(), path]);
}

/// The replicas of the file's first metablock.
fn replicas(cluster: &Cluster, path: &str) -> Vec<Value> {
    cluster.json(&["fs", "locations", path])["metablocks"][0]["replicas"].as_array().unwrap().clone()
}

fn findings(report: &Value) -> Vec<String> {
    report["findings"].as_array().unwrap().iter().map(|finding| finding.as_str().unwrap().to_owned()).collect()
}

/// The exit codes of `fsck` and of `cluster status`, and what they print.
fn verdicts(cluster: &Cluster) -> (i32, i32, String, String) {
    let (fsck, status) = (cluster.ebb(&["fsck"]), cluster.ebb(&["cluster", "status"]));
    (fsck.code, status.code, fsck.out, status.out)
}

/// Goal: a replica whose file was removed by hand is found at once, although its server has the file open. With a good
/// copy left it is repaired; without one, no sentence promises a copy.
#[test]
fn removed_replica_files_are_found_at_once_and_named() {
    let cluster = Cluster::up(3);
    put(&cluster, "/one", 100_000);
    put(&cluster, "/all", 100_000);
    let files = |path: &str| -> Vec<String> {
        replicas(&cluster, path).iter().map(|replica| replica["file"].as_str().unwrap().to_owned()).collect()
    };
    std::fs::remove_file(&files("/one")[0]).unwrap();
    let report = cluster.json(&["fsck"]);
    assert_eq!((&report["healthy"], &report["corrupt"]), (&false.into(), &1.into()), "{report:#}");
    let found = findings(&report);
    assert!(
        found.iter().any(|finding| finding.starts_with("/one, bytes 0 to 100000: replica on n")
            && finding.contains("its file is gone; a good copy takes its place")),
        "{found:?}"
    );
    cluster.healthy();
    files("/all").iter().for_each(|file| std::fs::remove_file(file).unwrap());
    let report = cluster.json(&["fsck"]);
    assert_eq!((&report["verdict"], &report["damaged"]), (&"damaged".into(), &1.into()), "{report:#}");
    assert!(findings(&report).iter().all(|finding| !finding.contains("takes its place")), "{report:#}");
    assert_eq!(report["lost"][0]["path"], "/all");
    let (fsck, status, of_fsck, of_status) = verdicts(&cluster);
    assert_eq!((fsck, status), (6, 6), "{of_fsck}{of_status}");
    for printed in [&of_fsck, &of_status] {
        assert!(printed.contains("1 metablock without a good copy"), "{printed}");
    }
    assert!(of_fsck.contains("/all: 100000 bytes"), "{of_fsck}");
    // Another file is healthy by itself, and a check of the damaged one reads it.
    assert_eq!(cluster.ebb(&["fsck", "--scrub", "/one"]).code, 0);
    let own = cluster.ebb(&["fsck", "--scrub", "/all"]);
    assert!(own.code == 6 && own.out.contains("NOT healthy: 1 metablock; "), "{}", own.out);
    let none = cluster.ebb(&["fsck", "/none"]);
    assert!(none.code == 1 && none.err.contains("/none"), "{}", none.err);
}

/// Goal: data whose only node has died are out of reach by failure, and healthy again when it is back.
#[test]
fn data_of_a_dead_node_are_out_of_reach_by_failure() {
    let cluster = Cluster::none();
    cluster.ok(&["cluster", "up", "--nodes", "2", "--dead-after-ms", "4000"]);
    cluster.ok(&["dataset", "create", "/single", "--replicas", "1"]);
    put(&cluster, "/single/f", 100_000);
    let host = replicas(&cluster, "/single/f")[0]["host"].as_str().unwrap().to_owned();
    let refused = cluster.ebb(&["node", "stop", &host]);
    assert!(refused.code == 3 && refused.err.contains("1 metablock would be out of reach"), "{}", refused.err);
    cluster.kill(cluster.pid("block", &host));
    wait_for("a status with data out of reach", Duration::from_secs(30), || {
        cluster.json(&["cluster", "status"])["unreadable"]["out_of_reach_by_failure"] == 1
    });
    let (fsck, status, of_fsck, of_status) = verdicts(&cluster);
    assert_eq!((fsck, status), (5, 5), "{of_fsck}{of_status}");
    for printed in [&of_fsck, &of_status] {
        assert!(printed.contains("1 metablock out of reach by failure"), "{printed}");
    }
    assert!(of_fsck.contains("/single/f, bytes 0 to 100000: "), "{of_fsck}");
    cluster.ok(&["cluster", "up"]);
    cluster.healthy();
    wait_for("a good status", Duration::from_secs(30), || cluster.ebb(&["cluster", "status"]).code == 0);
}

/// Goal: data on nodes that a forced plan keeps off are out of reach by plan, not healthy.
#[test]
fn data_on_nodes_that_a_plan_keeps_off_are_out_of_reach_by_plan() {
    let cluster = Cluster::none();
    cluster.ok(&["cluster", "up", "--nodes", "4", "--policy", "always-on", "--interval", "2s"]);
    cluster.ok(&["dataset", "create", "/single", "--replicas", "1"]);
    (0..8).for_each(|number| put(&cluster, &format!("/single/f{number}"), 50_000));
    cluster.ok(&["power", "policy", "activation", "--force"]);
    cluster.ok(&["power", "set", "--fraction", "0.25"]);
    wait_for("data out of reach by plan", Duration::from_secs(60), || {
        cluster.json(&["cluster", "status"])["unreadable"]["out_of_reach_by_plan"].as_u64() > Some(0)
    });
    let (fsck, status, of_fsck, of_status) = verdicts(&cluster);
    assert_eq!((fsck, status), (4, 4), "{of_fsck}{of_status}");
    for printed in [&of_fsck, &of_status] {
        assert!(printed.contains(" out of reach by plan: the power plan"), "{printed}");
    }
    assert!(of_fsck.contains("/single/f"), "{of_fsck}");
    assert!(!of_fsck.contains("--repair"), "nothing is to be decided about files that only sleep: {of_fsck}");
    cluster.ok(&["power", "set", "--fraction", "1"]);
    wait_for("everything in reach", Duration::from_secs(60), || cluster.ebb(&["cluster", "status"]).code == 0);
    cluster.healthy();
}
