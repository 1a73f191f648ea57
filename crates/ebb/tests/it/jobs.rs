//! Work shipped to the data.

use std::fmt::Write as _;

use crate::harness::{Cluster, shell};

/// Text with words of many lengths, and characters of more than one byte.
fn text(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 64);
    let mut number = 1_u64;
    while text.len() < bytes {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let _ =
            write!(text, "w{:x}{}", number >> (number % 40), if number.is_multiple_of(13) { "\n— é\t" } else { " " });
    }
    text
}

#[test]
fn words_are_counted_where_they_lie() {
    let cluster = Cluster::up(4);
    let local = cluster.path("t");
    std::fs::create_dir_all(local.join("sub")).unwrap();
    for index in 0..40 {
        std::fs::write(local.join(format!("sub/f{index}")), text(20_000 + index * 777)).unwrap();
    }
    std::fs::write(local.join("large"), text(9 << 20)).unwrap();
    cluster.ok(&["dataset", "create", "/d", "--block", "256KiB", "--metablock", "1MiB"]);
    cluster.ok(&["fs", "put", "-r", local.to_str().unwrap(), "/d"]);
    let expected: u64 =
        shell(&format!("find {} -type f | xargs cat | LC_ALL=C.UTF-8 wc -w", local.display())).parse().unwrap();
    let input: u64 =
        shell(&format!("find {} -type f -printf '%s\\n' | awk '{{s+=$1}} END {{print s}}'", local.display()))
            .parse()
            .unwrap();

    let near = cluster.json(&["job", "count", "/d"]);
    assert_eq!(near["words"], expected);
    assert!(near["splits"].as_u64().unwrap() >= 49);
    assert_eq!(near["local_splits"], near["splits"]);
    let bytes = near["network_bytes"].as_u64().unwrap();
    assert!(bytes * 20 < input, "{bytes} network bytes for {input} bytes of input by location");

    let far = cluster.json(&["job", "count", "/d", "--no-locations"]);
    assert_eq!(far["words"], expected);
    let bytes = far["network_bytes"].as_u64().unwrap();
    assert!(bytes * 2 > input, "{bytes} network bytes for {input} bytes of input without locations");
}

#[test]
fn words_written_a_moment_ago_are_counted() {
    let cluster = Cluster::up(3);
    let mount = cluster.mount("mnt");
    std::fs::create_dir(mount.join("t")).unwrap();
    let mut expected = 0;
    for round in 0..3_usize {
        // Nothing is synced or committed yet when the count begins: new files first, then other bytes of one length.
        for index in 0..30 {
            let words = if (index + round).is_multiple_of(2) { "a b c d e " } else { "words long " };
            std::fs::write(mount.join(format!("t/f{index}")), words.repeat(100)).unwrap();
        }
        expected = (0..30).map(|index| if (index + round).is_multiple_of(2) { 500 } else { 200 }).sum();
        assert_eq!(cluster.json(&["job", "count", "/t"])["words"], expected, "round {round}");
    }
    assert_eq!(expected, 15 * 700);
}

/// Goal: the experiment runs through on a small file, finds its text, and leaves nothing behind. Method: the assertions
/// follow from where bytes go, not from how fast.
#[test]
fn the_metablocks_experiment_runs_and_leaves_nothing_behind() {
    let cluster = Cluster::up(4);
    let small = cluster.ebb(&["lab", "metablocks", "--size", "1MiB"]);
    assert!(small.code == 2 && small.err.contains("at least 32MiB"), "{}", small.err);
    let out = cluster.path("figures");
    let report =
        cluster.json(&["lab", "metablocks", "--size", "32MiB", "--rounds", "1", "--out", out.to_str().unwrap()]);
    let rows = report["rows"].as_array().unwrap();
    let ours = |part: &str| {
        let found = rows.iter().find(|row| row["point"].as_str().unwrap().contains(part));
        found.unwrap_or_else(|| panic!("no row {part:?}: {report:#}"))["ours"].clone()
    };
    let located = ours("network bytes of a search on HDFS's setting").as_f64().unwrap();
    let blind = ours("the same on small blocks with prefetch").as_f64().unwrap();
    assert!(located < 0.1 && blind > 0.9, "{located} {blind}");
    for kind in ["random", "sequential"] {
        for setting in ["large blocks", "metablocks"] {
            let ratio = ours(&format!("{kind} reads on {setting}, of small blocks: own reader")).as_f64().unwrap();
            assert!(ratio > 0.0, "{kind} {setting}");
        }
    }
    let tables = report["tables"].as_array().unwrap();
    assert_eq!(tables.iter().map(|table| table["rows"].as_array().unwrap().len()).collect::<Vec<_>>(), [7, 15, 5]);
    let unused = |prefetch: &str, reader: &str| {
        let rows = tables[1]["rows"].as_array().unwrap();
        let found = rows.iter().find(|row| row["prefetch"] == prefetch && row["reader"] == reader);
        found.unwrap()["unused_bytes"].as_f64().unwrap()
    };
    assert_eq!((unused("0%", "random"), unused("0%", "sequential")), (0.0, 0.0), "nothing is fetched ahead");
    assert_eq!(unused("100%", "sequential"), 0.0, "all that a whole stream fetches ahead is asked for");
    let mut files: Vec<String> =
        std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    assert_eq!(files, ["01-1.svg", "02-sec3.svg", "03-table2.svg", "index.html", "numbers.json"]);
    assert_eq!(cluster.ok(&["fs", "ls", "/"]), "");
    assert!(!cluster.dir().join("lab-metablocks").exists());
    assert_eq!(cluster.json(&["dataset", "list"]).as_array().unwrap().len(), 1);
}

#[test]
fn a_text_is_found_where_it_lies_in_as_many_lines_as_grep_says() {
    let cluster = Cluster::up(4);
    let local = cluster.path("large");
    std::fs::write(&local, text(5 << 20)).unwrap();
    cluster.ok(&["dataset", "create", "/d", "--block", "256KiB", "--metablock", "1MiB", "--replicas", "1"]);
    cluster.ok(&["fs", "put", local.to_str().unwrap(), "/d/large"]);
    for (round, wanted) in ["wf", "\u{2014}", "no such text"].into_iter().enumerate() {
        let expected: u64 = shell(&format!("grep -a -c -F -e '{wanted}' {} || true", local.display())).parse().unwrap();
        let near = cluster.json(&["job", "grep", wanted, "/d"]);
        assert_eq!((&near["lines"], &near["local_splits"]), (&expected.into(), &near["splits"]), "{wanted}");
        assert_eq!(near.get("words"), None);
        let bytes = near["network_bytes"].as_u64().unwrap();
        // Four edges between metablocks cost a chunk each.
        assert!(bytes < 100_000, "{bytes} network bytes by location");
        let far = cluster.json(&["job", "grep", wanted, "/d", "--no-locations"]);
        assert_eq!(far["lines"], expected, "{wanted}");
        // Later ones find some of it in the workers' memory.
        assert!(round > 0 || far["network_bytes"].as_u64().unwrap() > 5 << 20, "{far}");
    }
    let refused = cluster.ebb(&["job", "grep", "", "/d"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
}

#[test]
fn first_copies_lie_on_the_hosts_that_were_named() {
    let cluster = Cluster::up(4);
    cluster.ok(&["dataset", "create", "/d", "--block", "64KiB", "--metablock", "256KiB", "--replicas", "1"]);
    let local = cluster.path("large");
    std::fs::write(&local, text(4 << 20)).unwrap();
    let local = local.to_str().unwrap();
    cluster.ok(&["fs", "put", local, "/d/named", "--hosts", "h2,h3"]);
    let lies = cluster.json(&["fs", "locations", "/d/named"]);
    let metablocks = lies["metablocks"].as_array().unwrap();
    assert!(metablocks.len() >= 16, "{lies}");
    let hosts: Vec<&str> = metablocks.iter().map(|one| one["replicas"][0]["host"].as_str().unwrap()).collect();
    assert!(hosts.iter().all(|host| ["h2", "h3"].contains(host)), "{hosts:?}");
    assert!(hosts.contains(&"h2") && hosts.contains(&"h3"), "in turn: {hosts:?}");
    let refused = cluster.ebb(&["fs", "put", local, "/d/other", "--hosts", "h2,h9"]);
    assert!(refused.code == 2 && refused.err.contains("h1, h2, h3, h4"), "{}", refused.err);
}

#[test]
fn a_dataset_and_a_mount_say_how_much_is_fetched_ahead() {
    let cluster = Cluster::up(3);
    cluster.ok(&["dataset", "create", "/d", "--prefetch", "25"]);
    assert_eq!(cluster.json(&["dataset", "show", "/d"])["prefetch"], "25%");
    assert_eq!(cluster.json(&["dataset", "set", "/d", "--prefetch", "spare"])["prefetch"], "spare");
    let refused = cluster.ebb(&["dataset", "set", "/d", "--prefetch", "101"]);
    assert!(refused.code == 2 && refused.err.contains("up to 100"), "{}", refused.err);
    assert_eq!(cluster.json(&["dataset", "set", "/d", "--read-rule", "nearest"])["read_rule"], "nearest");
    cluster.ok(&["dataset", "create", "/e", "--read-rule", "longest-awake"]);
    assert_eq!(cluster.json(&["dataset", "show", "/e"])["read_rule"], "longest-awake");
    let refused = cluster.ebb(&["dataset", "set", "/d", "--read-rule", "random"]);
    assert!(refused.code == 2 && refused.err.contains("least-loaded"), "{}", refused.err);
    // A mount's arguments reach the process in the background, and files are as they were written.
    let mount = cluster.path("mnt");
    std::fs::create_dir(&mount).unwrap();
    let options = ["--prefetch", "0", "--read-cache", "16MiB", "--whole-blocks"];
    cluster.ok(&[&["mount"][..], &options, &[mount.to_str().unwrap()]].concat());
    let process = cluster.pid("mount", "client");
    let arguments = std::fs::read(format!("/proc/{process}/cmdline")).unwrap();
    let arguments = String::from_utf8(arguments).unwrap().replace('\0', " ");
    assert!(options.iter().all(|option| arguments.contains(option)), "{arguments}");
    let data = crate::harness::pattern(9 << 20, 5);
    std::fs::write(mount.join("d/f"), &data).unwrap();
    cluster.ok(&["umount", mount.to_str().unwrap()]);
    cluster.ok(&[&["mount"][..], &options, &[mount.to_str().unwrap()]].concat());
    assert!(std::fs::read(mount.join("d/f")).unwrap() == data, "read back with another setting");
}
