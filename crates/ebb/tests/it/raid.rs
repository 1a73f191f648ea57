//! RAID sets as an operator meets them: made by a command, read without two of their nodes, whole again on those that are left.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use crate::harness::{Cluster, pattern, wait_for};

const FILES: u64 = 6;
const FILE_BYTES: usize = 8 << 20;
const WHOLE_WITHIN: Duration = Duration::from_secs(150);

fn content(file: u64) -> Vec<u8> {
    pattern(FILE_BYTES - 1000 * file as usize, 70 + file)
}

/// A cluster of seven with files of a dataset, all of them encoded.
fn encoded() -> Cluster {
    let cluster = Cluster::up(7);
    let create = ["dataset", "create", "/cold", "--redundancy", "4+2", "--delay", "2s", "--metablock", "4MiB"];
    let said = cluster.ok(&create);
    assert!(said.contains("1.50 bytes for each byte") && !said.contains("warning"), "{said}");
    for file in 0..FILES {
        cluster.put(&format!("/cold/f{file}"), &content(file));
    }
    let done = cluster.ok(&["raid", "encode", "/cold"]);
    assert!(done.contains("encoded"), "{done}");
    cluster
}

fn status(cluster: &Cluster) -> serde_json::Value {
    cluster.json(&["raid", "status"])["datasets"][0].clone()
}

fn check_all(cluster: &Cluster) {
    for file in 0..FILES {
        assert!(cluster.get(&format!("/cold/f{file}")) == content(file), "f{file}");
    }
}

/// Bytes that files below a directory take on its disk.
fn taken(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let of = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => taken(&entry.path()),
        Ok(found) => found.blocks() * 512,
        // A journal that has just gone.
        Err(_) => 0,
    };
    entries.map(of).sum()
}

#[test]
fn cold_files_take_little_room_and_survive_two_nodes() {
    let cluster = encoded();
    let user: u64 = (0..FILES).map(|file| content(file).len() as u64).sum();
    assert_eq!(status(&cluster)["encoded_bytes"], user, "{}", cluster.ok(&["raid", "status"]));
    let replicas = || {
        let nodes = std::fs::read_dir(cluster.dir().join("nodes")).unwrap();
        nodes.map(|node| taken_by_replicas(&node.unwrap().path())).sum::<u64>()
    };
    wait_for("copies to be gone from the disks", Duration::from_secs(60), || replicas() as f64 <= 1.6 * user as f64);
    assert!(replicas() as f64 >= 1.5 * user as f64, "{} of {user} bytes", replicas());
    let parity = cluster.json(&["fsck", "--parity"]);
    assert!(parity["rows_compared"].as_u64().unwrap() >= 2 && parity["wrong_rows"] == 0, "{parity}");

    // Whatever two nodes die, everything reads. The first file is overwritten below, and what it had dies: its RAID sets change.
    let inode = &cluster.json(&["fs", "stat", "/cold/f0"])["inode"];
    let sets = cluster.json(&["raid", "list"]);
    let has_first =
        |set: &serde_json::Value| set["slots"].as_array().unwrap().iter().any(|slot| slot["inode"] == *inode);
    let set = sets.as_array().unwrap().iter().find(|set| !has_first(set)).unwrap();
    let node = |part: &serde_json::Value| -> String {
        part["replicas"].as_str().unwrap().split(' ').next().unwrap().replace('n', "h")
    };
    let lost = [node(&set["slots"][0]), node(&set["rows"][1])];
    for host in &lost {
        cluster.kill(cluster.pid("block", host));
    }
    check_all(&cluster);
    // A write to what is encoded needs none of them either.
    let mount = cluster.mount("mnt");
    let file = std::fs::OpenOptions::new().write(true).open(mount.join("cold/f0")).unwrap();
    file.write_all_at(b"changed", 100).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let mut changed = content(0);
    changed[100..107].copy_from_slice(b"changed");
    assert!(cluster.get("/cold/f0") == changed);
    cluster.put("/cold/f0", &content(0));

    // It can bear no further loss, so one part is made again at once, on the node that has none.
    wait_for("both nodes to count as dead", Duration::from_secs(60), || {
        let nodes = cluster.json(&["node", "list"]);
        nodes.as_array().unwrap().iter().filter(|node| node["state"] == "dead").count() == 2
    });
    wait_for("a part to be made again", WHOLE_WITHIN, || {
        let sets = cluster.json(&["raid", "list"]);
        sets.as_array().unwrap().iter().any(|one| one["id"] == set["id"] && one["lost"] == 1)
    });
    check_all(&cluster);

    // For the other part it waits ten minutes, as most nodes come back. These do.
    lost.iter().for_each(|host| drop(cluster.ok(&["node", "start", host])));
    wait_for("everything to be whole", WHOLE_WITHIN, || {
        let now = status(&cluster);
        now["lost_some"] == 0 && now["lost_too_many"] == 0 && now["whole"].as_u64() > Some(0)
    });
    check_all(&cluster);
}

/// Bytes in replicas, without logs and indexes.
fn taken_by_replicas(node: &Path) -> u64 {
    let volumes = std::fs::read_dir(node).unwrap().map(|entry| entry.unwrap().path().join("replicas"));
    volumes.filter(|replicas| replicas.is_dir()).map(|replicas| taken(&replicas)).sum()
}

#[test]
fn impossible_redundancies_are_refused_with_the_nearest_one() {
    let cluster = Cluster::up(4);
    for (scheme, words) in [
        ("8+2", "the nearest possible redundancy is 2+2"),
        ("1+2", "2 to 32 slots"),
        ("8+9", "8+4"),
        ("raid7", "raid7"),
    ] {
        let run = cluster.ebb(&["dataset", "create", "/cold", "--redundancy", scheme]);
        assert!(run.code != 0 && run.err.contains(words), "{scheme}: {}", run.err);
    }
    let run = cluster.ebb(&["dataset", "create", "/cold", "--redundancy", "2+1", "--survive", "rack"]);
    assert!(run.code != 0 && run.err.contains("rack"), "{}", run.err);
    // It fits, and nobody could heal it.
    let run = cluster.ebb(&["dataset", "create", "/cold", "--redundancy", "2+2"]);
    assert!(run.code == 0 && run.err.contains("warning: 2+2 needs 5 hosts"), "{}", run.err);
    let run = cluster.ebb(&["raid", "show", "rs77"]);
    assert!(run.code != 0 && run.err.contains("there is no RAID set rs77"), "{}", run.err);
    let run = cluster.ebb(&["raid", "encode", "/"]);
    assert!(run.code != 0 && run.err.contains("--redundancy"), "{}", run.err);
}
