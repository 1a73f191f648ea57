//! Small things that an operator meets in the first hour.

use std::fs;
use std::process::{Command, Stdio};

use crate::harness::Cluster;

#[test]
fn a_cluster_that_exists_comes_up_as_it_was() {
    let cluster = Cluster::none();
    let new = cluster.ebb(&["cluster", "up"]);
    assert_eq!(new.code, 2);
    assert!(new.err.contains("has no cluster yet: give --nodes N"), "{}", new.err);
    // A new file system has a directory of its own.
    fs::create_dir_all(cluster.dir().join("lost+found")).unwrap();
    cluster.ok(&["cluster", "up", "--nodes", "2"]);
    cluster.ok(&["fs", "mkdir", "/kept"]);
    cluster.ok(&["cluster", "down"]);
    let again = cluster.ok(&["cluster", "up"]);
    assert!(again.contains("2 block servers"), "{again}");
    assert_eq!(cluster.ok(&["fs", "ls", "/"]), "kept\n");
    assert_eq!(cluster.ebb(&["cluster", "up", "--nodes", "1"]).code, 3, "it serves already");
}

#[test]
fn a_mount_that_hides_files_and_one_that_is_pulled_away_are_announced() {
    let cluster = Cluster::up(1);
    let point = cluster.path("point");
    fs::create_dir(&point).unwrap();
    let mount = |expected: &str| {
        let run = cluster.ebb(&["mount", point.to_str().unwrap()]);
        assert_eq!(run.code, 0, "{}", run.err);
        assert!(if expected.is_empty() { run.err.is_empty() } else { run.err.contains(expected) }, "{}", run.err);
    };
    mount("");
    cluster.ok(&["umount", point.to_str().unwrap()]);
    fs::write(point.join("own"), "x").unwrap();
    mount("was not empty: its one entry is hidden");
    assert!(!point.join("own").exists());
    let mut user = Command::new("sleep").arg("100").current_dir(&point).stdin(Stdio::null()).spawn().unwrap();
    let down = cluster.ebb(&["cluster", "down"]);
    assert_eq!(down.code, 0, "{}", down.err);
    let user_name = format!("sleep (pid {})", user.id());
    assert!(down.err.contains(&user_name) && down.err.contains("open files are cut off"), "{}", down.err);
    user.kill().unwrap();
    user.wait().unwrap();
    assert_eq!(fs::read(point.join("own")).unwrap(), b"x", "it is there again");
}
