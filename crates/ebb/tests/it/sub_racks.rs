//! Sub-racks of real processes: localized storage nodes with the disks of their hosts.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Cluster, pattern, wait_for, write_synced};

const MIB: usize = 1 << 20;

fn up() -> Cluster {
    let cluster = Cluster::none();
    let sub_racks = ["cluster", "up", "--sub-racks", "2x3", "--lsn-volumes", "4"];
    cluster.ok(&[&sub_racks[..], &["--dead-after-ms", "2000", "--session-ttl-ms", "4000"]].concat());
    cluster
}

/// Hosts of the replicas of each metablock, the first copy's first.
fn hosts(cluster: &Cluster, path: &str) -> Vec<Vec<String>> {
    let shown = cluster.json(&["fs", "locations", path]);
    let of = |metablock: &Value| -> Vec<String> {
        let replicas = metablock["replicas"].as_array().unwrap();
        replicas.iter().map(|replica| replica["host"].as_str().unwrap().to_owned()).collect()
    };
    shown["metablocks"].as_array().unwrap().iter().map(of).collect()
}

fn shown_nodes(cluster: &Cluster) -> Vec<(String, usize, usize)> {
    let nodes = cluster.json(&["node", "list"]);
    let count = |list: &Value| list.as_array().unwrap().len();
    let of = |node: &Value| {
        (node["host"].as_str().unwrap().to_owned(), count(&node["volumes"]), count(&node["serves_hosts"]))
    };
    nodes.as_array().unwrap().iter().map(of).collect()
}

#[test]
fn a_cluster_of_sub_racks_keeps_data_beside_its_hosts() {
    let cluster = up();
    let wanted = |host: &str, volumes, serves| (host.to_owned(), volumes, serves);
    let lsns = ["lsn1", "lsn2"].map(|host| wanted(host, 4, 3));
    let computes = (1..=6).map(|number| wanted(&format!("h{number}"), 0, 0));
    let all: Vec<_> = lsns.into_iter().chain(computes).collect();
    assert_eq!(shown_nodes(&cluster), all);

    cluster.ok(&["dataset", "create", "/data", "--layout", "lsn", "--metablock", "1MiB"]);
    let mount = cluster.mount_as("mnt", "h5");
    let text = "words of a sub-rack ".repeat(16 * MIB / 20);
    write_synced(&mount.join("data/f"), text.as_bytes()).unwrap();
    let places = hosts(&cluster, "/data/f");
    assert!(places.len() >= 15 && places.iter().all(|hosts| hosts[..] == ["lsn2", "lsn1"]), "{places:?}");
    // Nodes tell how many replicas they have with their heartbeats.
    wait_for("a stream that lies on all disks", Duration::from_secs(20), || {
        let volumes = cluster.json(&["node", "list"])[1]["volumes"].clone();
        let replicas = |volume: &Value| volume["replicas"].as_u64().unwrap();
        volumes.as_array().unwrap().iter().all(|volume| replicas(volume).abs_diff(4) <= 1)
    });

    // Each sub-rack has a copy of everything. A few reads go to the other one, where less waits.
    let near = cluster.json(&["job", "count", "/data"]);
    assert_eq!((&near["sub_rack_splits"], &near["local_splits"]), (&near["splits"], &0.into()), "{near}");
    let (all_bytes, within) = (near["network_bytes"].as_u64().unwrap(), near["sub_rack_bytes"].as_u64().unwrap());
    assert!(within > 12 << 20 && all_bytes - within < all_bytes / 4, "{near}");

    // Everything is there, and in the same places, after a restart without a word about sub-racks.
    cluster.ok(&["umount", mount.to_str().unwrap()]);
    cluster.ok(&["cluster", "down"]);
    cluster.ok(&["cluster", "up"]);
    assert_eq!(shown_nodes(&cluster), all);
    assert_eq!(cluster.get("/data/f"), text.as_bytes());
    cluster.healthy();
}

#[test]
fn a_killed_lsn_is_borne_by_the_other_and_a_new_one_joins() {
    let cluster = up();
    let bytes = pattern(8 * MIB, 5);
    // With two nodes for two copies, writes wait for a node that is away, unless one copy is enough.
    cluster.ok(&["dataset", "set", "/", "--min-copies", "1"]);
    let mount = cluster.mount_as("mnt", "h1");
    write_synced(&mount.join("f"), &bytes).unwrap();
    let old = cluster.pid("block", "lsn1");
    cluster.kill(old);
    assert_eq!(std::fs::read(mount.join("f")).unwrap(), bytes, "a reader goes on with the other copy");
    write_synced(&mount.join("while-away"), &bytes).unwrap();
    cluster.ok(&["cluster", "up"]);
    cluster.healthy();

    // lsn3 serves h7 and h8; what these write goes there, and second copies to both others in turn.
    let added = cluster.json(&["node", "add", "--serving", "2", "--volumes", "2", "--rack", "r3"]);
    let names: Vec<&str> =
        added["added"].as_array().unwrap().iter().map(|node| node["host"].as_str().unwrap()).collect();
    assert_eq!(names, ["lsn3", "h7", "h8"]);
    cluster.ok(&["dataset", "create", "/small", "--layout", "lsn", "--metablock", "1MiB"]);
    let near = cluster.mount_as("near", "h8");
    write_synced(&near.join("small/f"), &bytes).unwrap();
    let places = hosts(&cluster, "/small/f");
    assert!(places.iter().all(|hosts| hosts[0] == "lsn3"), "{places:?}");
    // The default dataset is older than the new node.
    write_synced(&near.join("g"), &bytes).unwrap();
    assert_eq!(hosts(&cluster, "/g")[0][0], "lsn3");
    wait_for("both halves with a copy", Duration::from_secs(60), || {
        cluster.json(&["fsck"])["ok"] != Value::Bool(false)
    });
    assert_eq!(cluster.get("/f"), bytes);
    assert_eq!(cluster.get("/g"), bytes);
}

#[test]
fn contradictions_and_impossible_settings_are_refused_by_name() {
    let cluster = up();
    let refused = |arguments: &[&str], parts: &[&str]| {
        let run = cluster.ebb(arguments);
        assert!(run.code != 0, "ebb {arguments:?} succeeded: {}", run.out);
        parts.iter().for_each(|part| assert!(run.err.contains(part), "{part:?} is not in: {}", run.err));
    };
    let block = |host: &'static str, rack: &'static str, serves: &'static str| {
        let arguments = ["block", "--host", host, "--rack", rack, "--volumes", "1", "--timeout", "20s"];
        if serves.is_empty() { arguments.to_vec() } else { [&arguments[..], &["--serves-hosts", serves]].concat() }
    };
    refused(&block("lsn9", "r1", "h2,h9"), &["h2 is served by n1 on lsn1", "without it first"]);
    refused(&block("lsn8", "r1", "lsn2"), &["n2 on lsn2 serves hosts"]);
    refused(&block("lsn7", "r1", "lsn7"), &["its own host"]);
    refused(&["dataset", "create", "/a", "--layout", "lsn", "--on", "compute"], &["--on compute"]);
    refused(&["dataset", "create", "/a", "--on", "compute", "--replicas", "1"], &["compute (0)"]);
    refused(&["dataset", "create", "/a", "--layout", "lsn", "--replicas", "3"], &["lsn (2)"]);
    refused(&["cluster", "up", "--nodes", "4", "--sub-racks", "2x3"], &["--sub-racks"]);
    refused(&["cluster", "up", "--nodes", "4", "--lsn-volumes", "2"], &["--lsn-volumes"]);
    let left = ["lsn7", "lsn8", "lsn9"].map(|host| cluster.dir().join("nodes").join(host).exists());
    assert_eq!(left, [false; 3], "a refused node leaves nothing behind");
    cluster.ok(&["cluster", "down"]);
    refused(&["cluster", "up", "--sub-racks", "1x3"], &["further hosts", "lsn2"]);
    let plain = Cluster::up(2);
    let run = plain.ebb(&["dataset", "create", "/a", "--layout", "lsn"]);
    assert!(run.code != 0 && run.err.contains("lsn (0)"), "{}", run.err);
    let known: BTreeSet<String> = shown_nodes(&plain).into_iter().map(|node| node.0).collect();
    assert_eq!(known.len(), 2);
}
