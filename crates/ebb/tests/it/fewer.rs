//! Three nodes, three copies, and one node missing: programs go on, and missing copies are made good when the node is
//! back.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Cluster, Signal, pattern, signal, wait_for, write_synced};

/// Within this a write goes on without a silent node. The machine is busy, so twice of it is allowed here.
const PROMISED: Duration = Duration::from_secs(10);

/// A program works while a node is missing: overwrites a file that it holds open, and makes new ones. The longest step.
fn work(mount: &Path, held: &std::fs::File, round: u64) -> Duration {
    let mut longest = Duration::ZERO;
    for number in 0..10 {
        let started = Instant::now();
        held.write_all_at(&pattern(100_000, round * 100 + number), 0).expect("a held file is written");
        held.sync_data().expect("a held file is synced");
        longest = longest.max(started.elapsed());
        let started = Instant::now();
        write_synced(&mount.join(format!("r{round}-{number}")), &pattern(30_000, number)).expect("a file is made");
        longest = longest.max(started.elapsed());
    }
    longest
}

fn check(mount: &Path, round: u64) {
    assert!(std::fs::read(mount.join("held")).unwrap() == pattern(100_000, round * 100 + 9), "the held file");
    for number in 0..10 {
        let name = format!("r{round}-{number}");
        assert!(std::fs::read(mount.join(&name)).unwrap() == pattern(30_000, number), "{name}");
    }
}

fn short(status: &Value) -> Vec<String> {
    let all = status["repair"]["short"].as_array().cloned().unwrap_or_default();
    all.iter().map(|short| short["why"].as_str().unwrap().to_owned()).collect()
}

fn until_whole(cluster: &Cluster) {
    wait_for("all copies", Duration::from_secs(120), || {
        let status = cluster.json(&["cluster", "status"]);
        status["safe_start"] == true && status["repair"]["under_replicated"] == 0 && status["repair"]["running"] == 0
    });
    let checked = cluster.healthy();
    assert_eq!(checked["short"].as_array().map(Vec::len), Some(0), "{checked}");
}

#[test]
fn with_one_of_three_nodes_missing_programs_go_on_and_the_copies_come_back() {
    let cluster = Cluster::up(3);
    let mount = cluster.mount("one");
    let held = OpenOptions::new().create(true).truncate(false).write(true).open(mount.join("held")).unwrap();
    held.write_all_at(&pattern(100_000, 7), 0).unwrap();
    held.sync_data().unwrap();

    // Frozen: its connections stay, and nothing is answered.
    let frozen = cluster.pid("block", "h3");
    signal(frozen, Signal::STOP);
    let longest = work(&mount, &held, 1);
    let status = cluster.json(&["cluster", "status"]);
    signal(frozen, Signal::CONT);
    eprintln!("a frozen node: the longest step took {longest:.1?}");
    assert!(longest < PROMISED, "{longest:?}");
    let why = short(&status);
    assert!(
        why.iter().any(|why| why.contains("sets go on with 2 of 3 copies") && why.contains("is not there")),
        "{status}"
    );
    until_whole(&cluster);
    check(&mount, 1);

    // Killed: no process is there.
    cluster.kill(cluster.pid("block", "h2"));
    let longest = work(&mount, &held, 2);
    eprintln!("a killed node: the longest step took {longest:.1?}");
    assert!(longest < PROMISED, "{longest:?}");
    let checked = cluster.ebb(&["--json", "fsck"]);
    assert_eq!(checked.code, 1, "it is not healthy");
    cluster.ok(&["node", "start", "h2"]);
    until_whole(&cluster);
    check(&mount, 2);

    // Whichever node goes now, nothing that was acknowledged goes with it.
    cluster.kill(cluster.pid("block", "h1"));
    let other = cluster.mount("two");
    check(&other, 2);
}

#[test]
fn a_dataset_says_how_many_copies_a_write_needs() {
    let cluster = Cluster::up(3);
    let shown = cluster.json(&["dataset", "show", "/"]);
    assert_eq!((shown["replicas"].as_u64(), shown["min_copies"].as_u64()), (Some(3), Some(2)));
    let made = cluster.json(&["dataset", "create", "/d", "--replicas", "2", "--min-copies", "1"]);
    assert_eq!(made["min_copies"], 1);
    let run = cluster.ebb(&["dataset", "set", "/d", "--min-copies", "1"]);
    assert!(run.code == 0 && run.err.contains("a single failure then loses"), "{}", run.err);
    assert_eq!(cluster.json(&["dataset", "set", "/d", "--min-copies", "2"])["min_copies"], 2);
    let all = cluster.ok(&["dataset", "show", "/d"]);
    assert!(all.contains("writes wait until all 2 copies have them"), "{all}");
    for (arguments, sentence) in [
        (["dataset", "create", "/e", "--replicas", "2", "--min-copies", "3"], "between 1 and 2"),
        (["dataset", "create", "/e", "--replicas", "3", "--min-copies", "0"], "between 1 and 3"),
    ] {
        let run = cluster.ebb(&arguments);
        assert!(run.code != 0 && run.err.contains(sentence), "{} {}", run.code, run.err);
    }
    let run = cluster.ebb(&["dataset", "set", "/d", "--min-copies", "3"]);
    assert!(run.code != 0 && run.err.contains("between 1 and 2"), "{}", run.err);
    assert_eq!(cluster.json(&["dataset", "create", "/one", "--replicas", "1"])["min_copies"], 1);
}
