//! Hosts with two roles that die as a whole: a mount, and the block server that serves it by descriptors and reports
//! its end.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::harness::{Cluster, pattern, wait_for, write_synced};

/// Goal: no process is left to report that the mount has ended, for its witness died with it. Others have its files all
/// the same after its session, with all synced data, and the copies on its node are made good. Method: a mount reads
/// and writes beside its block server, both are killed at once, another mount writes the same files, and the host comes
/// back.
#[test]
fn a_host_that_dies_with_its_mount_and_its_block_server_takes_nothing_with_it() {
    let cluster = Cluster::up(4);
    let own = cluster.mount_as("own", "h1");
    let other = cluster.mount_as("other", "h2");
    let files: Vec<u64> = (0..12).collect();
    let name = |number: u64| format!("f{number}");
    let mut open = Vec::new();
    for number in &files {
        write_synced(&own.join(name(*number)), &pattern(300_000, *number)).unwrap();
        // Read by descriptors where a copy is on this host.
        assert!(std::fs::read(own.join(name(*number))).unwrap() == pattern(300_000, *number));
        let file = OpenOptions::new().read(true).write(true).open(own.join(name(*number))).unwrap();
        file.write_all_at(b"not synced, and lost or not", 0).unwrap();
        open.push(file);
    }
    cluster.kill_all(&[cluster.pid("mount", "h1"), cluster.pid("block", "h1")]);
    drop(open);
    for number in &files {
        let file = OpenOptions::new().read(true).write(true).open(other.join(name(*number))).unwrap();
        let mut found = vec![0; 300_000];
        file.read_exact_at(&mut found, 0).unwrap();
        let wanted = pattern(300_000, *number);
        assert!(found[4096..] == wanted[4096..], "{}: its synced content", name(*number));
        file.write_all_at(b"by the other", 0).unwrap();
        file.sync_all().unwrap();
    }
    cluster.ok(&["node", "start", "h1"]);
    cluster.ok(&["mount", "--host", "h1", own.to_str().unwrap()]);
    wait_for("all copies", Duration::from_secs(90), || cluster.json(&["fsck"])["healthy"] == true);
    for number in &files {
        let found = std::fs::read(own.join(name(*number))).unwrap();
        assert!(found.starts_with(b"by the other") && found[4096..] == pattern(300_000, *number)[4096..]);
    }
}
