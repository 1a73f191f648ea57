//! A cluster of real processes that follows its power: nodes are frozen while they sleep.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Cluster, Signal, pattern, signal, wait_for};
use crate::watch::StopAtEnd;

const INTERVAL: &str = "2s";

/// Nine nodes under a policy, with an interval of 2 s.
pub fn up(policy: &str) -> Cluster {
    let cluster = Cluster::none();
    cluster.ok(&["cluster", "up", "--nodes", "9", "--policy", policy, "--interval", INTERVAL]);
    cluster
}

fn status(cluster: &Cluster) -> Value {
    cluster.json(&["power", "status"])
}

/// State letter of a process.
fn state_of(pid: u64) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('?')
}

/// Nodes of which every process is frozen now.
pub fn frozen(status: &Value) -> usize {
    let is_frozen = |node: &&Value| {
        let pids = node["pids"].as_array().unwrap();
        !pids.is_empty() && pids.iter().all(|pid| state_of(pid.as_u64().unwrap()) == 'T')
    };
    status["nodes"].as_array().unwrap().iter().filter(is_frozen).count()
}

/// Waits until the power manager's status is as wished.
pub fn wait_plan(cluster: &Cluster, event: &str, is: impl Fn(&Value) -> bool) {
    wait_for(event, Duration::from_secs(60), || {
        let shown = cluster.ebb(&["power", "status", "--json"]);
        serde_json::from_str::<Value>(&shown.out).is_ok_and(|status| is(&status))
    });
}

/// Nodes blink, a reader never fails, and neither the manager's death nor less power changes that.
#[test]
fn nine_nodes_blink_and_a_reader_never_fails() {
    let cluster = up("blink-circular");
    let local = cluster.path("data");
    std::fs::write(&local, pattern(3 << 20, 9)).unwrap();
    cluster.ok(&["fs", "put", local.to_str().unwrap(), "/data"]);
    wait_plan(&cluster, "the first status", |status| status["policy"] == "blink-circular");

    cluster.ok(&["power", "set", "--fraction", "0.5"]);
    wait_plan(&cluster, "nodes that blink", |status| {
        let nodes = status["nodes"].as_array().unwrap();
        nodes.iter().all(|node| node["active_s"].as_f64().unwrap() < 2.0 && node["starts"].as_u64() > Some(0))
    });
    let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let manager = cluster.pid("power-manager", "");
    std::thread::scope(|scope| {
        let end = StopAtEnd(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let read = cluster.ebb(&["fs", "checksum", "/data"]);
                assert_eq!(read.code, 0, "a read failed: {}{}", read.out, read.err);
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
        let more = |event: &str, count: u64| {
            let before = reads.load(Ordering::Relaxed);
            wait_for(event, Duration::from_secs(60), || reads.load(Ordering::Relaxed) >= before + count);
        };
        more("reads at half the power", 5);
        // The sleeping nodes of the status can be checked: at some moment it shows as many frozen nodes as the budget
        // leaves dark.
        wait_plan(&cluster, "frozen nodes at half the power", |status| frozen(status) >= 4);

        // A blinking node does not need the manager.
        cluster.kill(manager);
        more("reads without a manager", 3);
        cluster.ok(&["cluster", "up", "--nodes", "9"]);
        wait_plan(&cluster, "the plan of before", |status| status["policy"] == "blink-circular");
        assert_ne!(cluster.pid("power-manager", ""), manager);

        cluster.ok(&["power", "set", "--fraction", "0.2"]);
        wait_plan(&cluster, "one node at a time", |status| {
            let mut awake = status["nodes"].as_array().unwrap().iter().map(|node| node["active_s"].as_f64().unwrap());
            awake.all(|active_s| active_s < 0.5) && frozen(status) >= 7
        });
        more("reads at a fifth of the power", 3);
        let dark = status(&cluster);
        assert_eq!((&dark["budget_watts"], &dark["modelled"]), (&85.0.into(), &true.into()), "{dark}");
        let nodes = cluster.json(&["node", "list"]).to_string();
        assert!(nodes.contains("asleep"), "a sleeping node is shown asleep: {nodes}");

        cluster.ok(&["power", "set", "--fraction", "1.0"]);
        wait_plan(&cluster, "all awake", |status| {
            status["nodes"].as_array().unwrap().iter().all(|node| node["state"] == "awake") && frozen(status) == 0
        });
        more("reads at full power", 1);
        drop(end);
    });
    let nodes = cluster.json(&["node", "list"]).to_string();
    assert!(!nodes.contains("dead"), "a sleeping node is not dead: {nodes}");
    cluster.healthy();
}

/// Goal: every word counts once while the workers sleep and wake, and a scheduler is told what will be awake. Method: jobs
/// at half the power, and at a fifth, where one node at a time is awake; splits that do not fit into one turn.
#[test]
fn a_job_counts_every_word_once_while_nodes_blink() {
    let cluster = up("blink-circular");
    let local = cluster.path("words");
    std::fs::create_dir_all(&local).unwrap();
    for file in 0..60 {
        std::fs::write(local.join(format!("f{file}")), "words of a file ".repeat(10_000 + file)).unwrap();
    }
    cluster.ok(&["dataset", "create", "/d", "--block", "256KiB", "--metablock", "1MiB"]);
    cluster.ok(&["fs", "put", "-r", local.to_str().unwrap(), "/d"]);
    let expected: u64 = (0..60).map(|file| 4 * (10_000 + file)).sum();
    wait_plan(&cluster, "the first status", |status| status["policy"] == "blink-circular");
    let replicas = || {
        let shown = cluster.json(&["fs", "locations", "/d/words/f0"]);
        shown["metablocks"][0]["replicas"].as_array().unwrap().clone()
    };
    assert!(replicas().iter().all(|one| one["awake_for_s"].is_null() && one["wakes_in_s"] == 0.0), "{:?}", replicas());

    for fraction in ["0.5", "0.2"] {
        cluster.ok(&["power", "set", "--fraction", fraction]);
        wait_plan(&cluster, "nodes that blink", |status| {
            let budget = fraction.parse::<f64>().unwrap();
            let nodes = status["nodes"].as_array().unwrap();
            nodes.iter().all(|node| node["active_s"].as_f64().unwrap() < 4.0 * budget)
        });
        for replica in replicas() {
            let (left, wakes) = (replica["awake_for_s"].as_f64().unwrap(), replica["wakes_in_s"].as_f64().unwrap());
            assert!((left > 0.0) == (wakes == 0.0) && left.max(wakes) <= 2.0, "{replica}");
        }
        for _ in 0..3 {
            let job = cluster.json(&["job", "count", "/d"]);
            assert_eq!((&job["words"], &job["failed"]), (&expected.into(), &0.into()), "{job}");
            assert_eq!(job["files"], 60, "{job}");
        }
    }
    cluster.ok(&["power", "set", "--fraction", "1.0"]);
    cluster.healthy();
}

/// Goal: data written while half of a chain is off lie with nodes that are on, are shown so, and come home.
/// Method: a new file and an overwritten one under half the power, the master dies; then full power.
#[test]
fn bytes_written_under_low_power_come_home() {
    let cluster = up("activation");
    wait_plan(&cluster, "the first status", |_| true);
    let create = "dataset create /eq --layout equal-work --primaries 2 --replicas 2 --block 64KiB --metablock 64KiB";
    cluster.ok(&create.split(' ').collect::<Vec<_>>());
    let mount = cluster.mount("mnt");
    // Existing content is overwritten where it lies.
    let put = |name: &str, seed: u64| {
        let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(mount.join(name)).unwrap();
        file.write_all_at(&pattern(2 << 20, seed), 0).unwrap();
        file.sync_all().unwrap();
        let local = cluster.path("data");
        std::fs::write(&local, pattern(2 << 20, seed)).unwrap();
        crate::harness::shell(&format!("sha256sum {} | cut -d' ' -f1", local.display()))
    };
    put("eq/old", 1);
    // There are no further writes to it: its copies on nodes that are off stay there.
    let still = put("eq/still", 4);
    cluster.ok(&["power", "set", "--fraction", "0.5"]);
    wait_plan(&cluster, "nodes that are off", |status| frozen(status) >= 5);
    let sums = [("/eq/old", put("eq/old", 2)), ("/eq/new", put("eq/new", 3)), ("/eq/still", still)];
    let show = || cluster.json(&["dataset", "show", "/eq"]);
    let numbers = |shown: &Value, key: &str| -> Vec<u64> {
        shown[key].as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
    };
    let away = |shown: &Value| -> u64 {
        shown["away"].as_array().unwrap().iter().map(|away| away["metablocks"].as_u64().unwrap()).sum()
    };
    // The status has it when it is committed: within a second.
    wait_for("copies away from home in the status", Duration::from_secs(30), || away(&show()) > 20);
    let low = show();
    assert!(numbers(&low, "guests").iter().sum::<u64>() == away(&low), "{low}");
    let printed = cluster.ok(&["dataset", "show", "/eq"]);
    assert!(printed.contains("metablocks away from home: "), "{printed}");
    wait_plan(&cluster, "copies away from home", |status| away(status) == away(&show()));
    // A master that starts now does not wait for nodes that are off.
    cluster.kill(cluster.pid("master", ""));
    cluster.ok(&["cluster", "up", "--nodes", "9"]);
    wait_for("safe start", Duration::from_secs(60), || cluster.json(&["cluster", "status"])["safe_start"] == true);
    assert!(frozen(&status(&cluster)) >= 5 && away(&show()) == away(&low));
    let checked = cluster.json(&["fsck"]);
    assert!(checked["healthy"] == true && checked["unseen"].as_u64() > Some(0), "{checked:#}");
    let shown = cluster.json(&["cluster", "status"]);
    let asleep = shown["processes"].as_array().unwrap().iter().filter(|process| process["state"] == "asleep").count();
    assert!(asleep >= 10, "block servers and workers of five nodes: {shown}");
    for (name, sum) in &sums {
        assert_eq!(cluster.ok(&["fs", "checksum", name]).trim(), sum);
    }
    cluster.ok(&["power", "set", "--fraction", "1.0"]);
    wait_for("everything to come home", Duration::from_secs(120), || away(&show()) == 0);
    let full = show();
    for (target, actual) in numbers(&full, "target").iter().zip(numbers(&full, "actual")) {
        assert!(target.abs_diff(actual) <= 2, "{full}");
    }
    assert_eq!((numbers(&full, "guests").iter().sum::<u64>(), full["elsewhere"].as_u64()), (0, Some(0)), "{full}");
    for (name, sum) in &sums {
        assert_eq!(cluster.ok(&["fs", "checksum", name]).trim(), sum);
    }
    cluster.healthy();
}

#[test]
fn a_write_waits_for_the_plan() {
    let cluster = up("blink-circular");
    wait_plan(&cluster, "the first status", |_| true);
    cluster.ok(&["power", "set", "--fraction", "0.4"]);
    wait_plan(&cluster, "nodes that blink", |status| frozen(status) >= 5);
    let local = cluster.path("data");
    std::fs::write(&local, pattern(2 << 20, 4)).unwrap();
    cluster.ok(&["fs", "put", local.to_str().unwrap(), "/data"]);
    let sum = crate::harness::shell(&format!("sha256sum {} | cut -d' ' -f1", local.display()));
    assert_eq!(cluster.ok(&["fs", "checksum", "/data"]).trim(), sum);
    let located = cluster.json(&["fs", "locations", "/data"]);
    let replicas = located["metablocks"][0]["replicas"].as_array().unwrap().len();
    assert_eq!(replicas, 3, "on as many nodes as with all of them awake: {located}");
}

/// Goal: data that fsync acknowledged while members slept outlive their writer. Method: the mount is killed right after
/// fsync of an overwrite; the writes that the sleepers lack are in the handoff logs alone then.
#[test]
fn a_synced_write_outlives_its_mount_while_members_sleep() {
    let cluster = up("blink-circular");
    let mount = cluster.mount("mnt");
    let file = mount.join("data");
    std::fs::write(&file, pattern(512 << 10, 1)).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
    file.sync_all().unwrap();
    wait_plan(&cluster, "the first status", |_| true);
    cluster.ok(&["power", "set", "--fraction", "0.3"]);
    wait_plan(&cluster, "nodes that blink", |status| frozen(status) >= 5);
    // Programs can see it: two of nine nodes are awake, and the file lies on three.
    let shown = crate::harness::shell(&format!("getfattr --only-values -n user.ebb.power {}/data", mount.display()));
    assert!(shown.starts_with("0 h") && shown.matches(':').count() >= 3 && shown.contains("asleep:"), "{shown}");
    let placed = cluster.json(&["fs", "locations", "/data"]);
    let powers =
        placed["metablocks"][0]["replicas"].as_array().unwrap().iter().map(|replica| replica["power"].to_string());
    assert!(powers.into_iter().any(|power| power.contains("asleep")), "{placed}");
    assert!(placed["metablocks"][0]["readable_in_s"].as_f64() < Some(2.5), "{placed}");
    let local = cluster.path("new");
    std::fs::write(&local, pattern(512 << 10, 2)).unwrap();
    file.write_all_at(&pattern(512 << 10, 2), 0).unwrap();
    file.sync_all().unwrap();
    cluster.kill(cluster.pid("mount", ""));
    let sum = crate::harness::shell(&format!("sha256sum {} | cut -d' ' -f1", local.display()));
    assert_eq!(cluster.ok(&["fs", "checksum", "/data"]).trim(), sum);
}

/// How far they agree is for a quiet machine to say; that both serve something at every level is not.
#[test]
fn a_cluster_is_held_against_a_virtual_one() {
    let cluster = Cluster::none();
    cluster.ok(&["cluster", "up", "--nodes", "4", "--policy", "blink-circular", "--interval", "1s"]);
    wait_plan(&cluster, "the first status", |_| true);
    let shown = cluster.ebb(&["lab", "power", "--runs", "1", "--json"]);
    let agreement: Value = serde_json::from_str(&shown.out).unwrap_or_else(|_| panic!("{}{}", shown.out, shown.err));
    let rows = agreement["rows"].as_array().unwrap();
    let power: Vec<f64> = rows.iter().map(|row| row["power"].as_f64().unwrap()).collect();
    assert_eq!(power, [20.0, 50.0, 80.0, 20.0, 50.0, 80.0], "reads, and writes");
    let is_served = |row: &Value| row["real"].as_f64() > Some(0.0) && row["virtual"].as_f64() > Some(0.0);
    assert!(rows.iter().all(is_served), "{agreement}");
    assert!(cluster.ebb(&["fs", "ls", "/lab-power"]).code != 0, "the files that it read are gone");
    wait_plan(&cluster, "full power again", |status| status["budget_watts"] == 140.0);
    // A source ends the operator's override.
    cluster.ok(&["power", "follow", "--oscillating", "0", "--period", "10s"]);
    wait_plan(&cluster, "the oscillation", |status| {
        status["budget_watts"] == 85.0 && status["source"].as_str().unwrap().contains("oscillation")
    });
    cluster.ok(&["power", "set", "--watts", "90"]);
    wait_plan(&cluster, "the operator's override", |status| status["source"] == "operator");
}

#[test]
fn bad_words_about_power_are_explained() {
    let cluster = Cluster::up(3);
    let refused = cluster.ebb(&["power", "set", "--fraction", "0.5"]);
    assert!(refused.code != 0 && refused.err.contains("no power manager runs"), "{}", refused.err);
    cluster.ok(&["cluster", "up", "--nodes", "3", "--policy", "always-on", "--interval", INTERVAL]);
    let local = cluster.path("data");
    std::fs::write(&local, pattern(1 << 20, 4)).unwrap();
    cluster.ok(&["dataset", "create", "/one", "--replicas", "1"]);
    cluster.ok(&["fs", "put", local.to_str().unwrap(), "/one/data"]);
    wait_plan(&cluster, "the first status", |_| true);

    let trace = cluster.path("trace.csv");
    std::fs::write(&trace, "seconds,watts\n0,100\n10,-5\n").unwrap();
    let refused = cluster.ebb(&["power", "follow", trace.to_str().unwrap(), "--compress", "60"]);
    assert!(refused.code == 2 && refused.err.contains("trace.csv, line 3"), "{}", refused.err);
    assert_eq!(cluster.ebb(&["power", "set", "--fraction", "1.5"]).code, 2);
    let refused = cluster.ebb(&["power", "set", "--watts", "-4"]);
    assert!(refused.code == 2 && refused.err.contains("-4"), "{}", refused.err);
    assert!(!refused.err.contains("unexpected argument"), "{}", refused.err);
    assert_eq!(cluster.ebb(&["power", "policy", "moonlight"]).code, 2);
    let no_ups = cluster.ebb(&["power", "follow", "--ups", "rack1@127.0.0.1:1"]);
    assert!(no_ups.code == 1 && no_ups.err.contains("asking upsd at 127.0.0.1:1"), "{}", no_ups.err);
    assert_eq!(cluster.ebb(&["power", "follow", "--ups", "rack1"]).code, 2);
    assert_eq!(cluster.ebb(&["power", "follow", trace.to_str().unwrap(), "--oscillating", "1"]).code, 2);

    // One copy: each node that is switched off takes data with it.
    cluster.ok(&["power", "set", "--watts", "66"]);
    let refused = cluster.ebb(&["power", "policy", "migration"]);
    if refused.code != 0 {
        assert!(refused.code == 3 && refused.err.contains("/one/data"), "{}", refused.err);
    } else {
        let held = status(&cluster);
        panic!("a plan that puts data out of reach was taken: {held}");
    }
    std::fs::write(&trace, "seconds,watts\n0,115\n600,115\n").unwrap();
    cluster.ok(&["power", "follow", trace.to_str().unwrap(), "--compress", "60"]);
    wait_plan(&cluster, "the trace's word", |status| status["budget_watts"] == 115.0);
    signal(cluster.pid("power-client", ""), Signal::TERM);
}
