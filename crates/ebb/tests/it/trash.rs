//! The trash: what `ebb fs rm` removes can come back, until its time is over.

use std::time::Duration;

use serde_json::Value;

use crate::harness::{Cluster, pattern, wait_for};

fn put(cluster: &Cluster, path: &str, seed: u64) -> Vec<u8> {
    let bytes = pattern(300_000, seed);
    cluster.put(path, &bytes);
    bytes
}

fn exists(cluster: &Cluster, path: &str) -> bool {
    cluster.ebb(&["fs", "test", "-e", path]).code == 0
}

fn listed(cluster: &Cluster) -> Vec<String> {
    let listed = cluster.json(&["fs", "trash", "list"]);
    listed.as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn removed_files_and_trees_come_back() {
    let cluster = Cluster::up(2);
    cluster.ok(&["dataset", "create", "/d", "--replicas", "2", "--trash", "1h"]);
    cluster.ok(&["dataset", "create", "/plain", "--replicas", "2"]);
    cluster.ok(&["fs", "mkdir", "-p", "/d/tree/deep"]);
    let (first, deep) = (put(&cluster, "/d/f", 1), put(&cluster, "/d/tree/deep/g", 2));
    put(&cluster, "/plain/h", 3);
    let removed = cluster.json(&["fs", "rm", "-r", "/d/f", "/d/tree", "/plain/h"]);
    assert_eq!((&removed["moved_to_trash"], &removed["files"]), (&2.into(), &1.into()), "{removed}");
    for path in ["/d/f", "/d/tree", "/plain/h"] {
        assert!(!exists(&cluster, path), "{path}");
    }
    assert_eq!(listed(&cluster), ["/d/tree", "/d/f"]);
    // Another file gets the name, and goes, too. The newest comes back first.
    let second = put(&cluster, "/d/f", 4);
    let said = cluster.ok(&["fs", "rm", "/d/f"]);
    assert!(said.contains("1 path moved to the trash"), "{said}");
    cluster.ok(&["fs", "trash", "restore", "/d/f", "/d/tree"]);
    assert!(cluster.get("/d/f") == second && cluster.get("/d/tree/deep/g") == deep);
    let refused = cluster.ebb(&["fs", "trash", "restore", "/d/f"]);
    assert!(refused.code != 0 && refused.err.contains("/d/f exists again"), "{}", refused.err);
    cluster.ok(&["fs", "rm", "--skip-trash", "/d/f"]);
    cluster.ok(&["fs", "trash", "restore", "/d/f"]);
    assert!(cluster.get("/d/f") == first);
    let none = cluster.ebb(&["fs", "trash", "restore", "/d/f"]);
    assert!(none.code == 1 && none.err.contains("the trash has no /d/f"), "{}", none.err);
    // What is removed in the trash is removed for good.
    cluster.ok(&["fs", "rm", "-r", "/d/tree"]);
    let shown = cluster.json(&["fs", "trash", "list"]);
    cluster.ok(&["fs", "rm", "-r", shown[0]["in_trash"].as_str().unwrap()]);
    assert!(!cluster.json(&["fs", "find", "/d"]).to_string().contains("tree"));
    cluster.ok(&["fs", "rm", "/d/f"]);
    let emptied = cluster.json(&["fs", "trash", "empty", "/d"]);
    assert_eq!((&emptied["files"], &emptied["directories"]), (&1.into(), &0.into()));
    assert_eq!(cluster.ok(&["fs", "trash", "list"]).trim(), "the trash is empty");
    cluster.healthy();
}

#[test]
fn the_time_of_a_removal_ends() {
    let cluster = Cluster::up(2);
    cluster.ok(&["dataset", "set", "/", "--trash", "2s"]);
    cluster.ok(&["fs", "mkdir", "/t"]);
    put(&cluster, "/t/f", 1);
    cluster.ok(&["fs", "rm", "-r", "/t"]);
    // A restart, and a mount that has it in its cache, keep nothing.
    let mount = cluster.mount("mnt");
    let kept = || std::fs::read_dir(mount.join(".trash/0")).map_or(0, Iterator::count);
    assert_eq!(kept(), 1);
    let master = cluster.pid("master", "");
    cluster.kill(master);
    cluster.ok(&["cluster", "up"]);
    wait_for("the end of its time", Duration::from_secs(60), || listed(&cluster).is_empty());
    wait_for("the same on the mount", Duration::from_secs(10), || kept() == 0);
    wait_for("its space", Duration::from_secs(60), || cluster.json(&["fsck"])["metablocks"] == 0);
    cluster.ok(&["dataset", "set", "/", "--trash", "off"]);
    put(&cluster, "/f", 1);
    assert_eq!(cluster.json(&["fs", "rm", "/f"])["moved_to_trash"], 0);
}

#[test]
fn refusals_name_what_to_do() {
    let cluster = Cluster::up(2);
    cluster.ok(&["dataset", "set", "/", "--trash", "1d"]);
    cluster.ok(&["fs", "mkdir", "/a"]);
    cluster.ok(&["dataset", "create", "/a/inner", "--replicas", "2"]);
    for (path, sentence) in [
        ("/a", "/a/inner is a dataset, which does not go to the trash: `ebb dataset rm /a/inner` removes it"),
        ("/", "/ is a dataset, which does not go to the trash"),
    ] {
        let refused = cluster.ebb(&["fs", "rm", "-r", path]);
        assert!(refused.code != 0 && refused.err.contains(sentence), "{path}: {}", refused.err);
    }
    put(&cluster, "/a/f", 1);
    cluster.ok(&["fs", "rm", "-r", "/.trash"]);
    let refused = cluster.ebb(&["fs", "rm", "/a/f"]);
    assert!(
        refused.code == 1 && refused.err.contains("/.trash does not exist: `ebb dataset set / --trash`"),
        "{}",
        refused.err
    );
    assert!(exists(&cluster, "/a/f"));
    cluster.ok(&["dataset", "set", "/", "--trash", "1d"]);
    cluster.ok(&["fs", "rm", "/a/f"]);
    let wrong = cluster.ebb(&["dataset", "set", "/", "--trash", "7"]);
    assert!(wrong.code == 2 && wrong.err.contains("no unit"), "{}", wrong.err);
    assert_eq!(cluster.json(&["dataset", "list"])[0]["trash_s"], 86_400);
}

#[test]
fn users_have_their_own_part_of_it() {
    let cluster = Cluster::up(2);
    cluster.ok(&["dataset", "set", "/", "--trash", "1d"]);
    put(&cluster, "/f", 1);
    cluster.ok(&["fs", "rm", "/f"]);
    let user = cluster.json(&["fs", "stat", "/"])["uid"].to_string();
    let mode = |path: &str| cluster.json(&["fs", "stat", path])["mode"].clone();
    assert_eq!((mode("/.trash"), mode(&format!("/.trash/{user}"))), ("1777".into(), "0700".into()));
    let all: Value = cluster.json(&["fs", "trash", "list", "--all-users"]);
    assert_eq!((&all[0]["user"], &all[0]["path"]), (&user.into(), &"/f".into()));
}
