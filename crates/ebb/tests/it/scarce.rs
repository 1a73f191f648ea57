//! Processes that run out of file descriptors: an operation that they cannot do fails with a sentence, or another
//! process does it; nothing that was acknowledged is lost; and when there are some again, all goes on without a
//! restart.

use std::io::Result;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::harness::{Cluster, pattern, wait_for, write_synced};

const LENGTH: usize = 200_000;

/// Descriptors that a process has.
fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// A limit of a process's descriptors; it keeps those that it has above the limit. The hard limit stays.
struct Limit {
    pid: u32,
    before: String,
}

impl Limit {
    fn of(pid: u32, most: usize) -> Self {
        let output = Command::new("prlimit")
            .args([&format!("--pid={pid}"), "--nofile", "--output=SOFT", "--noheadings", "--raw"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let before = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        set(pid, &most.to_string());
        Self { pid, before }
    }

    fn lift(self) {
        set(self.pid, &self.before);
    }
}

fn set(pid: u32, soft: &str) {
    let status =
        Command::new("prlimit").args([&format!("--pid={pid}"), &format!("--nofile={soft}:")]).status().unwrap();
    assert!(status.success(), "prlimit of {pid} to {soft}");
}

/// Files that were written, by number; acknowledged data must be there.
struct Files {
    mount: PathBuf,
    acknowledged: Vec<u64>,
    tried: u64,
}

impl Files {
    fn new(mount: PathBuf) -> Self {
        Self { mount, acknowledged: Vec::new(), tried: 0 }
    }

    fn write(&mut self, count: u64) -> Vec<std::io::Error> {
        let mut failed = Vec::new();
        for _ in 0..count {
            let number = self.tried;
            self.tried += 1;
            match write_synced(&self.mount.join(format!("f{number}")), &pattern(LENGTH, number)) {
                Ok(()) => self.acknowledged.push(number),
                Err(error) => failed.push(error),
            }
        }
        failed
    }

    fn check(&self, mount: &Path) -> Result<()> {
        for number in &self.acknowledged {
            let found = std::fs::read(mount.join(format!("f{number}")))?;
            assert!(found == pattern(LENGTH, *number), "f{number}");
        }
        Ok(())
    }
}

fn log(cluster: &Cluster, name: &str) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(cluster.dir().join("log")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with(name) {
            all += &std::fs::read_to_string(path).unwrap();
        }
    }
    all
}

/// Goal: a block server without a descriptor for one more file goes on with those that it has, poisons no volume, and
/// takes new connections when there is room again. Method: three nodes with three copies, so that no other can take its
/// place; one is limited to its present number.
#[test]
fn a_block_server_without_descriptors_loses_nothing_and_recovers() {
    let cluster = Cluster::up(3);
    let mut files = Files::new(cluster.mount("a"));
    assert!(files.write(60).is_empty());
    let pid = cluster.pid("block", "h1");
    let limit = Limit::of(pid, descriptors(pid));
    let failed = files.write(60);
    files.check(&files.mount).expect("existing data can be read");
    // A new client wants a new connection, which the node has no descriptor for; the others have the bytes.
    let second = cluster.mount_as("b", "client-2");
    files.check(&second).expect("two other nodes have the bytes");
    let log = log(&cluster, "block-h1");
    assert!(log.contains("os error 24") && log.contains("raise the limit"), "{log}");
    limit.lift();
    let volumes = cluster.json(&["node", "list"]);
    assert!(!volumes.to_string().to_lowercase().contains("poisoned"), "{volumes}");
    assert!(failed.is_empty(), "two of three nodes are well, and the third can close files: {failed:?}");
    assert!(files.write(20).is_empty());
    cluster.healthy();
    files.check(&second).unwrap();
    cluster.ok(&["cluster", "down"]);
    cluster.ok(&["cluster", "up", "--nodes", "3"]);
    files.check(&cluster.mount("c")).unwrap();
}

/// Goal: a mount that can open no connection gives its programs an error within its time, and goes on by itself when it
/// can. Method: its block servers are killed and started while it has no descriptor for new connections.
#[test]
fn a_mount_without_descriptors_fails_calls_and_goes_on_when_it_has_some() {
    let cluster = Cluster::up(3);
    let mut files = Files::new(cluster.mount("a"));
    assert!(files.write(10).is_empty());
    let pid = cluster.pid("mount", "client");
    // Below all that it has: nothing that it closes makes room.
    let limit = Limit::of(pid, 3);
    for host in ["h1", "h2", "h3"] {
        cluster.kill(cluster.pid("block", host));
        cluster.ok(&["node", "start", host]);
    }
    let failed = files.write(1);
    assert_eq!(failed.len(), 1, "no connection can be opened");
    limit.lift();
    wait_for("writes that succeed again", Duration::from_secs(60), || files.write(1).is_empty());
    assert!(files.write(10).is_empty());
    let log = log(&cluster, "mount");
    assert!(log.contains("os error 24") && log.contains("raise the limit"), "{log}");
    files.check(&cluster.mount_as("b", "client-2")).unwrap();
    cluster.healthy();
}
