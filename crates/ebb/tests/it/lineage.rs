//! Going back in time: of the master, and of a node. Refused with a sentence, and with a command that goes on.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{Cluster, Run, shell, wait_for, write_synced};

fn up(cluster: &Cluster) -> Run {
    cluster.ebb(&["cluster", "up", "--nodes", "3", "--dead-after-ms", "2000", "--session-ttl-ms", "4000"])
}

fn copy(from: &Path, to: &Path) {
    shell(&format!("rm -rf {0} && cp -a {1} {0}", to.display(), from.display()));
}

/// Overwrites the content in place, and syncs it. A cut would give the bytes to another metablock.
fn overwrite(path: &Path, data: &[u8]) {
    let mut file = File::options().write(true).open(path).unwrap();
    file.write_all(data).unwrap();
    file.sync_all().unwrap();
}

fn logs(cluster: &Cluster, part: &str) -> String {
    let files = std::fs::read_dir(cluster.dir().join("log")).unwrap().flatten();
    let named = files.filter(|entry| entry.file_name().to_string_lossy().contains(part));
    named.map(|entry| std::fs::read_to_string(entry.path()).unwrap_or_default()).collect()
}

/// Goal: a master's directory that is put back from a copy loses nothing in silence. Method: a file is overwritten
/// after the copy; the copy is put in place; it is refused, also the second time; the loss is accepted. Then all mounts
/// read the nodes' data alike, and later writes as well.
#[test]
fn a_master_that_went_back_serves_nothing_until_the_loss_is_accepted() {
    let cluster = Cluster::up(3);
    let (master, saved) = (cluster.dir().join("master"), cluster.path("saved"));
    let mount = cluster.mount("first");
    write_synced(&mount.join("f"), b"one").unwrap();
    cluster.ok(&["cluster", "down"]);
    copy(&master, &saved);
    assert_eq!(up(&cluster).code, 0);
    let mount = cluster.mount("second");
    overwrite(&mount.join("f"), b"two");
    cluster.ok(&["cluster", "down"]);

    copy(&saved, &master);
    for _ in 0..2 {
        let refused = up(&cluster);
        assert_eq!(refused.code, 1, "{}{}", refused.out, refused.err);
        for part in ["went back in time", "has seen entry", "run 2", "ebb master accept-loss"] {
            assert!(refused.err.contains(part), "{part}: {}", refused.err);
        }
        assert!(logs(&cluster, "master").contains("the master serves nothing any more"));
    }

    let unknown = cluster.ebb(&["master", "accept-loss", "--without", "h1"]);
    assert!(unknown.code != 0 && unknown.err.contains("as n3"), "{}", unknown.err);
    assert!(cluster.ok(&["master", "accept-loss"]).contains("Until `ebb fsck` has come to its end"));
    let accepted = up(&cluster);
    assert_eq!(accepted.code, 0, "{}{}", accepted.out, accepted.err);
    let status = cluster.ebb(&["cluster", "status"]).out;
    assert!(status.contains("no replica is deleted until `ebb fsck`"), "{status}");
    let running = cluster.ebb(&["master", "accept-loss"]);
    assert!(running.code != 0 && running.err.contains("the master runs"), "{}", running.err);

    let mount = cluster.mount("third");
    assert_eq!(std::fs::read(mount.join("f")).unwrap(), b"two", "the nodes have the write after the copy");
    overwrite(&mount.join("f"), b"three");
    let other = cluster.mount("fourth");
    for mount in [&mount, &other] {
        assert_eq!(std::fs::read(mount.join("f")).unwrap(), b"three");
    }
    cluster.healthy();
    wait_for("deletions that go on", Duration::from_secs(30), || {
        !cluster.ebb(&["cluster", "status"]).out.contains("no replica is deleted")
    });
    cluster.ok(&["cluster", "down"]);
    assert_eq!(up(&cluster).code, 0, "the new lineage is known to all");
}

/// A process that is ended with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Goal: two block servers on one directory and its copy do not take turns: the second one is refused, every status
/// shows it, and writes go on.
#[test]
fn a_copied_nodes_directory_is_refused_and_writes_go_on() {
    let cluster = Cluster::up(3);
    let mount = cluster.mount("first");
    write_synced(&mount.join("f"), b"one").unwrap();
    cluster.ok(&["cluster", "down"]);
    let copied = cluster.path("copied");
    copy(&cluster.dir(), &copied);
    assert_eq!(up(&cluster).code, 0);
    // Where the master is now.
    std::fs::copy(cluster.dir().join("cluster.toml"), copied.join("cluster.toml")).unwrap();
    let log = File::create(cluster.path("twin.log")).unwrap();
    let twin = Command::new(env!("CARGO_BIN_EXE_ebb"))
        .args(["block", "--host", "h3", "--rack", "r1", "--volumes", "1", "--dir", copied.to_str().unwrap()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let twin = Ended(twin);
    let sentence = "two processes say that they are n";
    wait_for("a twin that is reported", Duration::from_secs(30), || {
        cluster.ebb(&["node", "list"]).out.contains(sentence)
    });
    let printed = cluster.ebb(&["cluster", "status"]);
    assert!(printed.code != 0 && printed.out.contains(sentence) && printed.out.contains("End it"), "{}", printed.out);
    assert!(logs(&cluster, "master").contains(sentence));
    wait_for("a refusal in its own log", Duration::from_secs(10), || {
        std::fs::read_to_string(cluster.path("twin.log")).unwrap_or_default().contains(sentence)
    });
    let mount = cluster.mount("second");
    let begun = Instant::now();
    for number in 0..20 {
        write_synced(&mount.join(format!("g{number}")), b"two").unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let nodes = cluster.json(&["node", "list"]);
    assert!(nodes.as_array().unwrap().iter().all(|node| node["state"] == "live"), "{nodes}");
    drop(twin);
    cluster.healthy();
}

/// Goal: a node whose directory was put back is refused, until it is taken in as an empty one. Method: the directory is
/// copied while its process is down, a file is overwritten, and the copy is put in place.
#[test]
fn a_node_that_went_back_is_refused_until_it_begins_anew() {
    let cluster = Cluster::up(3);
    let mount = cluster.mount("mount");
    write_synced(&mount.join("f"), b"one").unwrap();
    let (node, saved) = (cluster.dir().join("nodes/h2"), cluster.path("saved"));
    cluster.kill(cluster.pid("block", "h2"));
    copy(&node, &saved);
    cluster.ok(&["node", "start", "h2"]);
    cluster.healthy();
    overwrite(&mount.join("f"), b"two");
    cluster.kill(cluster.pid("block", "h2"));
    copy(&saved, &node);
    cluster.ok(&["node", "start", "h2"]);
    let sentence = "went back in time";
    wait_for("a node that is refused", Duration::from_secs(30), || {
        cluster.ebb(&["node", "list"]).out.contains(sentence)
    });
    let printed = cluster.ebb(&["cluster", "status"]);
    assert!(printed.code != 0 && printed.out.contains("ebb node readmit"), "{}", printed.out);
    assert_eq!(std::fs::read(mount.join("f")).unwrap(), b"two");

    let runs = cluster.ebb(&["node", "readmit", "h2"]);
    assert!(runs.code != 0 && runs.err.contains("end it first"), "{}", runs.err);
    cluster.kill(cluster.pid("block", "h2"));
    assert!(cluster.ok(&["node", "readmit", "h2"]).contains("is kept as"));
    assert!(node.join("volume-1.aside-1").is_dir());
    wait_for("a node that is taken in", Duration::from_secs(60), || {
        !cluster.ebb(&["node", "list"]).out.contains(sentence)
    });
    cluster.healthy();
    let other = cluster.mount("other");
    assert_eq!(std::fs::read(other.join("f")).unwrap(), b"two");
}
