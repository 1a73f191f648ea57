//! Shares of nodes for datasets that are read at once, with real processes.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Cluster, pattern, wait_for};

const NODES: u32 = 6;
const BYTES: u64 = 4 << 20;
/// Bound for a hung program.
const BOUND: Duration = Duration::from_secs(60);

fn serving(cluster: &Cluster, path: &str) -> BTreeSet<String> {
    let shown = cluster.json(&["dataset", "show", path]);
    shown["serving"].as_array().unwrap().iter().map(|node| node.as_str().unwrap().to_owned()).collect()
}

/// Bytes that the block server and the worker of a host have read, from files and connections.
fn bytes_read(cluster: &Cluster, host: &str) -> u64 {
    let of = |role: &str| {
        let io = std::fs::read_to_string(format!("/proc/{}/io", cluster.pid(role, host))).unwrap();
        let line = io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
        line.parse::<u64>().unwrap()
    };
    of("block") + of("worker")
}

/// Goal: while two datasets are read, each has nodes of its own by its share, a share that is changed is followed, and
/// reads keep to these nodes. Method: jobs read both without a pause; what the processes of each host read is the
/// kernel's count.
#[test]
fn datasets_that_are_read_at_once_have_nodes_by_their_shares() {
    let cluster = Cluster::up(NODES);
    for path in ["/a", "/b"] {
        let create = "--layout equal-work --primaries 2 --replicas 2 --block 64KiB --metablock 64KiB --extra-share 0 \
                      --share 1";
        let all: Vec<&str> = ["dataset", "create", path].into_iter().chain(create.split_whitespace()).collect();
        cluster.ok(&all);
        cluster.put(&format!("{path}/f"), &pattern(BYTES as usize, 3));
    }
    let listed = cluster.ok(&["dataset", "list"]);
    assert!(listed.contains("/a: share 1; no nodes of its own now"), "{listed}");
    let refused = cluster.ebb(&["dataset", "set", "/a", "--share", "0", "--priority", "1"]);
    assert!(refused.err.contains("/a: a priority orders the claims of datasets with a share"), "{}", refused.err);

    let (is_over, pauses_b, b_pauses) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for (path, pauses) in [("/a", None), ("/b", Some(&pauses_b))] {
            let (cluster, is_over, b_pauses) = (&cluster, &is_over, &b_pauses);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    if pauses.is_some_and(|pauses| pauses.load(Ordering::Relaxed)) {
                        b_pauses.store(true, Ordering::Relaxed);
                        std::thread::yield_now();
                    } else {
                        assert_eq!(cluster.json(&["job", "count", path])["failed"], 0);
                    }
                }
            });
        }
        // The threads above go on for as long as this one does not say so, also if it fails.
        let _end = End(&is_over);
        let counts = || (serving(&cluster, "/a").len(), serving(&cluster, "/b").len());
        wait_for("nodes for both, alike", BOUND, || counts() == (3, 3));
        let said = cluster.ok(&["dataset", "show", "/a"]);
        assert!(said.contains("it is read, and has nodes of its own: 3 of 3"), "{said}");
        let set = cluster.json(&["dataset", "set", "/a", "--share", "3"]);
        assert_eq!((&set["share"], &set["priority"]), (&3.into(), &0.into()));
        wait_for("nodes by the new share", BOUND, || counts() == (4, 2));

        let (own, others) = (serving(&cluster, "/a"), serving(&cluster, "/b"));
        assert!(own.is_disjoint(&others), "{own:?} {others:?}");
        let located = cluster.json(&["fs", "locations", "/a/f"]);
        let copies =
            located["metablocks"].as_array().unwrap().iter().flat_map(|one| one["replicas"].as_array().unwrap());
        for copy in copies {
            let expected = if own.contains(copy["node"].as_str().unwrap()) { "this" } else { "other" };
            assert_eq!(copy["serves"], expected, "{copy}");
        }
        pauses_b.store(true, Ordering::Relaxed);
        wait_for("the end of the other job", BOUND, || b_pauses.load(Ordering::Relaxed));
        let hosts: Vec<String> = (1..=NODES).map(|node| format!("h{node}")).collect();
        let before: Vec<u64> = hosts.iter().map(|host| bytes_read(&cluster, host)).collect();
        for _ in 0..5 {
            cluster.json(&["job", "count", "/a"]);
        }
        let read: Vec<u64> =
            hosts.iter().zip(before).map(|(host, before)| bytes_read(&cluster, host) - before).collect();
        pauses_b.store(false, Ordering::Relaxed);
        let of = |nodes: &BTreeSet<String>| {
            let is_meant = |place: &usize| nodes.contains(&format!("n{}", place + 1));
            (0..read.len()).filter(is_meant).map(|place| read[place]).sum::<u64>()
        };
        println!("bytes read by host: {read:?}; {own:?} serve /a, {others:?} serve /b");
        assert!(of(&own) > BYTES, "it was read: {read:?}");
        assert!(of(&others) * 20 < of(&own), "from its own nodes alone: {read:?}, {others:?} serve the other");
    });
    wait_for("nodes that are free again", BOUND, || serving(&cluster, "/a").is_empty());
    assert_eq!(cluster.json(&["dataset", "show", "/a"])["live"], Value::Bool(false));
}

/// Ends the threads of a scope.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
