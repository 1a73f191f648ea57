//! Nodes that leave the cluster for good, and what a restart makes of the directories of the others.

use std::time::Duration;

use serde_json::Value;

use crate::harness::{Cluster, pattern, wait_for};

const LENGTH: usize = 6 << 20;

fn put(cluster: &Cluster, path: &str, seed: u64) -> Vec<u8> {
    let bytes = pattern(LENGTH, seed);
    cluster.put(path, &bytes);
    bytes
}

fn nodes(cluster: &Cluster) -> Vec<String> {
    let nodes = cluster.json(&["node", "list"]);
    nodes.as_array().unwrap().iter().map(|node| node["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_node_leaves_with_all_its_data_on_others() {
    let cluster = Cluster::up(5);
    cluster.ok(&["dataset", "create", "/eq", "--layout", "equal-work", "--primaries", "1", "--replicas", "2"]);
    cluster.ok(&["dataset", "create", "/r", "--replicas", "2", "--metablock", "1MiB", "--block", "1MiB"]);
    let (first, second) = (put(&cluster, "/eq/f", 1), put(&cluster, "/r/f", 2));
    let left = cluster.json(&["node", "remove", "n4"]);
    let kept = cluster.dir().canonicalize().unwrap().join("removed/h4");
    assert_eq!((&left["node"], &left["host"], &left["kept"]), (&"n4".into(), &"h4".into(), &kept.to_str().into()));
    assert!(kept.is_dir());
    assert_eq!(nodes(&cluster), ["n1", "n2", "n3", "n5"]);
    let status = cluster.json(&["cluster", "status"]);
    let is_alive = |process: &&Value| process["host"] == "h4" && process["state"] == "running";
    let alive: Vec<&Value> = status["processes"].as_array().unwrap().iter().filter(is_alive).collect();
    assert!(alive.is_empty(), "its processes have ended: {alive:?}");
    let chain = cluster.json(&["dataset", "show", "/eq"])["chain"].to_string();
    assert!(!chain.contains("n4"), "{chain}");
    cluster.healthy();
    assert!(cluster.get("/eq/f") == first && cluster.get("/r/f") == second);
    let again = cluster.ebb(&["node", "remove", "n4"]);
    assert!(again.code != 0 && again.err.contains("no node \"n4\"; there are n1 (h1)"), "{}", again.err);
    // A restart brings the others, and a new node is another one.
    cluster.ok(&["cluster", "down"]);
    cluster.ok(&["cluster", "up"]);
    assert_eq!(nodes(&cluster), ["n1", "n2", "n3", "n5"]);
    let added = cluster.json(&["node", "add"]);
    assert_eq!((&added["added"][0]["node"], &added["added"][0]["host"]), (&"n6".into(), &"h6".into()));
    // The old directory in its former place is refused.
    std::fs::rename(kept, cluster.dir().join("nodes/h4")).unwrap();
    cluster.ebb(&["cluster", "up", "--timeout", "10s"]);
    assert_eq!(nodes(&cluster), ["n1", "n2", "n3", "n5", "n6"]);
    let log = std::fs::read_to_string(cluster.dir().join("log/block-h4.log")).unwrap();
    assert!(log.contains("n4 (h4) was removed from this cluster"), "{log}");
    assert!(cluster.get("/eq/f") == first && cluster.get("/r/f") == second);
}

#[test]
fn a_lost_node_leaves_when_no_file_needs_it() {
    let cluster = Cluster::up(4);
    cluster.ok(&[
        "dataset",
        "create",
        "/one",
        "--replicas",
        "1",
        "--min-copies",
        "1",
        "--block",
        "1MiB",
        "--metablock",
        "1MiB",
    ]);
    let whole = put(&cluster, "/whole", 1);
    put(&cluster, "/one/f", 2);
    let shown = cluster.json(&["fs", "locations", "/one/f"]);
    let has = |host: &str| shown["metablocks"].to_string().contains(&format!("\"{host}\""));
    let host = ["h2", "h3", "h4"].into_iter().find(|host| has(host)).expect("several nodes have a part");
    cluster.kill_all(&[cluster.pid("worker", host), cluster.pid("block", host)]);
    std::fs::remove_dir_all(cluster.dir().join("nodes").join(host)).unwrap();
    wait_for("notice of the death", Duration::from_secs(20), || {
        let nodes = cluster.json(&["node", "list"]);
        nodes.as_array().unwrap().iter().any(|node| node["host"] == host && node["state"] == "dead")
    });
    let refused = cluster.ebb(&["node", "remove", host]);
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(refused.err.contains("(/one/f)") && refused.err.contains("ebb fsck --repair"), "{}", refused.err);
    cluster.ebb(&["fsck", "--repair", "--yes"]);
    let left: Value = cluster.json(&["node", "remove", host]);
    assert!(left["kept"].is_null(), "nothing of it is left: {left}");
    assert_eq!(nodes(&cluster).len(), 3);
    cluster.healthy();
    assert!(cluster.get("/whole") == whole);
    // Hosts keep their names, though one is missing in the row.
    cluster.ok(&["cluster", "down"]);
    cluster.ok(&["cluster", "up"]);
    let hosts = cluster.json(&["node", "list"]);
    let hosts: Vec<&str> = hosts.as_array().unwrap().iter().map(|node| node["host"].as_str().unwrap()).collect();
    assert!(hosts.len() == 3 && !hosts.contains(&host), "{hosts:?}");
    assert!(cluster.get("/whole") == whole);
}

#[test]
fn a_node_that_a_chain_needs_stays() {
    let cluster = Cluster::up(3);
    cluster.ok(&["dataset", "create", "/eq", "--layout", "equal-work", "--primaries", "1", "--replicas", "3"]);
    let refused = cluster.ebb(&["node", "remove", "n2"]);
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("/eq cannot do without n2; `ebb node add` adds another one"), "{}", refused.err);
    assert_eq!(cluster.json(&["node", "list"])[1]["state"], "live", "nothing was begun");
    cluster.ok(&["node", "add"]);
    cluster.ok(&["node", "remove", "n2"]);
    assert_eq!(nodes(&cluster), ["n1", "n3", "n4"]);
    assert!(cluster.json(&["dataset", "show", "/eq"])["chain"].to_string().contains("n4"), "it has the place of n2");
}

#[test]
fn a_restart_keeps_volumes_and_racks() {
    let cluster = Cluster::none();
    cluster.ok(&["cluster", "up", "--nodes", "3", "--volumes", "3", "--racks", "3"]);
    let bytes = put(&cluster, "/f", 1);
    let shape = || {
        let nodes = cluster.json(&["node", "list"]);
        let of = |node: &Value| (node["rack"].to_string(), node["volumes"].as_array().unwrap().len());
        nodes.as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    let before = shape();
    assert_eq!(before[2], ("\"r3\"".to_owned(), 3));
    cluster.ok(&["cluster", "down"]);
    cluster.ok(&["cluster", "up"]);
    assert_eq!(shape(), before);
    cluster.healthy();
    assert!(cluster.get("/f") == bytes);
}
