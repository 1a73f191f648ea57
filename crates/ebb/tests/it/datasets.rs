//! Datasets on expansion chains.

use std::time::Duration;

use serde_json::Value;

use crate::harness::{Cluster, wait_for};

fn numbers(shown: &Value, key: &str) -> Vec<u64> {
    shown[key].as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
}

/// Longest time in which sets of a small file are changed.
const SETTLED: Duration = Duration::from_secs(10);

#[test]
fn the_number_of_copies_is_changed_for_existing_files() {
    let cluster = Cluster::up(4);
    cluster.ok(&["dataset", "create", "/d", "--replicas", "1", "--block", "64KiB", "--metablock", "64KiB"]);
    let bytes = crate::harness::pattern(1 << 20, 3);
    cluster.put("/d/f", &bytes);
    let copies = || -> usize {
        let shown = cluster.json(&["fs", "locations", "/d/f"]);
        let of = |metablock: &Value| metablock["replicas"].as_array().unwrap().len();
        shown["metablocks"].as_array().unwrap().iter().map(of).sum()
    };
    assert_eq!(copies(), 16);
    for replicas in [3, 2] {
        let set = cluster.json(&["dataset", "set", "/d", "--replicas", &replicas.to_string()]);
        assert_eq!(set["replicas"], replicas);
        if replicas == 2 {
            // A set counts as short for the moment in which its record changes.
            let short = || cluster.json(&["cluster", "status"])["repair"]["under_replicated"].clone();
            wait_for("an end of the changes: copies that are too many lack nothing", SETTLED, || short() == 0);
        }
        wait_for("the new number of copies", Duration::from_secs(60), || copies() == 16 * replicas);
        let found = cluster.healthy();
        assert_eq!((&found["over_replicated"], &found["orphaned"]), (&0.into(), &0.into()), "{found}");
    }
    let files =
        crate::harness::shell(&format!("find {}/nodes -path '*replicas/*' -type f | wc -l", cluster.dir().display()));
    assert_eq!(files, "32", "what is too much is gone from the disks");
    assert_eq!(cluster.get("/d/f"), bytes);
    let refused = cluster.ebb(&["dataset", "set", "/d", "--replicas", "5"]);
    assert!(refused.err.contains("/d: 5 copies need as many nodes, and there are 4"), "{}", refused.err);
}

/// An empty dataset gets another layout, and the master that runs already follows it.
#[test]
fn files_lie_where_a_layout_says_that_was_set_after_the_master_started() {
    let cluster = Cluster::up(7);
    for layout in ["power-balanced", "equal-work --primaries 2"] {
        cluster.ok(&format!("dataset set / --layout {layout}").split(' ').collect::<Vec<_>>());
    }
    for name in 0..24 {
        cluster.put(&format!("/{name}"), b"text");
    }
    let shown = cluster.json(&["dataset", "show", "/"]);
    let (target, actual) = (numbers(&shown, "target"), numbers(&shown, "actual"));
    assert_eq!((actual.iter().sum::<u64>(), actual[0] + actual[1]), (72, 24), "one copy of each on a primary: {shown}");
    assert!(target.iter().zip(&actual).all(|(target, actual)| target.abs_diff(*actual) <= 2), "{shown}");
}

#[test]
fn a_chained_dataset_comes_to_its_targets_with_two_writers() {
    let cluster = Cluster::up(7);
    let create = "dataset create /eq --layout equal-work --primaries 2 --replicas 2 --block 64KiB --metablock 64KiB";
    cluster.ok(&create.split(' ').collect::<Vec<_>>());
    let local = cluster.path("data");
    std::fs::write(&local, crate::harness::pattern(5 << 20, 3)).unwrap();
    let local = local.to_str().unwrap();
    std::thread::scope(|scope| {
        for name in ["/eq/a", "/eq/b"] {
            let cluster = &cluster;
            scope.spawn(move || cluster.ok(&["fs", "put", local, name]));
        }
    });
    let shown = cluster.json(&["dataset", "show", "/eq"]);
    assert_eq!((&shown["spread"], &shown["min_active"], &shown["metablocks"]), (&7.into(), &2.into(), &160.into()));
    assert_eq!(shown["chain"].as_array().unwrap().len(), 7);
    let (target, actual) = (numbers(&shown, "target"), numbers(&shown, "actual"));
    assert_eq!(actual.iter().sum::<u64>(), 320);
    for (target, actual) in target.iter().zip(&actual) {
        assert!(target.abs_diff(*actual) <= 2, "{shown}");
    }
    let second =
        cluster.json(&"dataset create /two --layout simple --primaries 2 --replicas 2".split(' ').collect::<Vec<_>>());
    assert_eq!(second["layout"], "simple");
    let other = cluster.json(&["dataset", "show", "/two"]);
    let primaries = |shown: &Value| shown["chain"].as_array().unwrap()[..2].to_vec();
    assert!(primaries(&other).iter().all(|node| !primaries(&shown).contains(node)), "{other} {shown}");

    assert_eq!(cluster.ebb(&["dataset", "set-active", "/eq", "5"]).code, 0);
    assert_eq!(cluster.json(&["dataset", "show", "/eq"])["active"], 5);
    assert!(cluster.ok(&["dataset", "show", "/eq"]).contains("5 active nodes set by an operator"));
    let answer = cluster.ok(&["dataset", "set", "/eq", "--prefetch", "spare"]);
    assert!(answer.contains("prefetch spare; read rule balanced; writes need 2 of 2 copies"), "{answer}");
    let refused = cluster.ebb(&["dataset", "set-active", "/eq", "1"]);
    assert!(
        refused.code == 2 && refused.err.contains("/eq: 2 to 7 nodes can be active; 1 is too few"),
        "{}",
        refused.err
    );
    cluster.ok(&["fs", "rm", "/eq/a"]);
    // Files without a name are freed in the background.
    wait_for("the removed file to be taken off the tally", Duration::from_secs(30), || {
        numbers(&cluster.json(&["dataset", "show", "/eq"]), "actual").iter().sum::<u64>() == 160
    });
}

#[test]
fn impossible_chains_are_explained() {
    let cluster = Cluster::up(4);
    for (arguments, sentence) in [
        ("--layout equal-work --primaries 5 --replicas 1", "the nearest possible number of primaries is 4"),
        ("--layout equal-work --primaries 2 --replicas 3", "need at least 6 nodes"),
        ("--layout geared --primaries 2 --gear-size 3 --replicas 2", "nearest possible gear size"),
        ("--layout power-balanced --replicas 5", "between 1 and the number of nodes (4)"),
        ("--layout simple --replicas 2", "needs --primaries"),
        ("--layout random --primaries 2", "has no primaries"),
    ] {
        let mut all = vec!["dataset", "create", "/no"];
        all.extend(arguments.split(' '));
        let refused = cluster.ebb(&all);
        assert_eq!(refused.code, 2, "{arguments}: {}", refused.err);
        assert!(refused.err.contains(sentence), "{arguments}: {}", refused.err);
    }
    assert_eq!(cluster.json(&["dataset", "list"]).as_array().unwrap().len(), 1);
}
