//! What commands that change something answer: one JSON value each, and sentences with paths.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Cluster, Run};

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn run(cluster: &Cluster, line: &str) -> Run {
    cluster.ebb(&words(line))
}

/// The answer of a command, whose keys are those of the page on JSON.
fn json_of(cluster: &Cluster, line: &str) -> Value {
    let value = cluster.json(&words(line));
    let documented = documented(line);
    let first = value.as_array().map_or(Some(&value), |list| list.first());
    let keys = first.and_then(Value::as_object).into_iter().flat_map(|object| object.keys());
    for key in keys {
        assert!(documented.contains(&format!("`{key}`")), "{line}: {key} is not in docs/json.md: {documented}");
    }
    for key in promised(&documented).filter(|_| first.is_some()) {
        assert!(first.is_some_and(|object| object.get(&key).is_some()), "{line}: {key} is missing: {value}");
    }
    value
}

/// Keys that every answer of a row has: those before a semicolon or a colon, and not in brackets.
fn promised(documented: &str) -> impl Iterator<Item = String> {
    let keys = documented.split('|').nth(2).unwrap_or_default().trim().trim_start_matches("a list of ");
    let plain = keys.split([';', ':']).next().unwrap_or_default().to_owned();
    let mut depth = 0_i32;
    let outside: String = plain
        .chars()
        .filter(|letter| {
            depth += i32::from(*letter == '(') - i32::from(*letter == ')');
            depth == 0
        })
        .collect();
    // "`words` or `lines`": one of them.
    let words: Vec<String> = outside.split(',').filter(|word| !word.contains(" or ")).map(str::to_owned).collect();
    words.into_iter().filter_map(|word| word.trim().strip_prefix('`')?.strip_suffix('`').map(str::to_owned))
}

/// The row of a command in the page on JSON, with the row that it refers to.
fn documented(line: &str) -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
    let page = fs::read_to_string(page).unwrap();
    let row_of = |line: &str| {
        let is_of = |name: &str| !name.is_empty() && (line == name || line.starts_with(&format!("{name} ")));
        let row = page.lines().find(|row| row.split('|').nth(1).is_some_and(|cell| cell.split('`').any(is_of)));
        row.unwrap_or_else(|| panic!("{line} is not in docs/json.md")).to_owned()
    };
    let mut row = row_of(line);
    for (words, other) in [
        ("the same for one path", "fs ls"),
        ("the same of one", "dataset list"),
        ("as in `dataset list`", "dataset list"),
        ("as `power status`", "power status"),
    ] {
        if row.contains(words) {
            row += &row_of(other);
        }
    }
    row
}

/// The sentence of a refusal.
fn refusal(cluster: &Cluster, line: &str) -> String {
    let run = run(cluster, line);
    assert_ne!(run.code, 0, "ebb {line}: {}", run.out);
    run.err.trim().to_owned()
}

#[test]
fn every_change_answers_with_one_json_value() {
    let cluster = Cluster::none();
    let up = json_of(&cluster, "cluster up --nodes 3 --policy always-on");
    assert_eq!((&up["nodes"], &up["started"][0]), (&json!(3), &json!("master")), "{up}");
    let local = cluster.path("local");
    fs::write(&local, "12345").unwrap();
    let local = local.to_str().unwrap();
    for (line, wanted) in [
        ("fs mkdir -p /a/b", json!({"made": ["/a/b"]})),
        ("fs touch /a/f", json!({"touched": ["/a/f"], "made": ["/a/f"]})),
        (&format!("fs append {local} /a/f"), json!({"path": "/a/f", "bytes": 5})),
        ("fs ln -s f /a/s", json!({"made": ["/a/s"], "symbolic": true})),
        ("fs chmod -R 700 /a", json!({"changed": 3, "failed": []})),
        ("fs chgrp 0 /a/f", json!({"changed": 1, "failed": []})),
        ("fs setfacl -m u:7:r /a/f", json!({"changed": 1, "failed": []})),
        ("fs mv /a/f /a/g", json!({"moved": [{"from": "/a/f", "to": "/a/g", "copied": false}]})),
        ("fs rm -r /a", json!({"files": 2, "directories": 2, "moved_to_trash": 0, "failed": []})),
        ("fs trash empty", json!({"files": 0, "directories": 0})),
    ] {
        assert_eq!(json_of(&cluster, line), wanted, "{line}");
    }
    assert_eq!(json_of(&cluster, "dataset create /s --replicas 2")["path"], "/s");
    assert_eq!(json_of(&cluster, "dataset rm /s"), json!({"removed": "/s", "files": 0, "directories": 1}));
    let mountpoint = cluster.path("mnt");
    fs::create_dir(&mountpoint).unwrap();
    let mountpoint = mountpoint.to_str().unwrap();
    assert_eq!(json_of(&cluster, &format!("mount {mountpoint}"))["mountpoint"], mountpoint);
    assert_eq!(json_of(&cluster, &format!("umount {mountpoint}")), json!({ "unmounted": mountpoint }));
    cluster.ok(&["fs", "put", local, "/f"]);
    for line in [
        "cluster status",
        "fsck",
        "fs ls /",
        "fs stat /f",
        "fs find /",
        "fs du /",
        "fs count /",
        "fs df",
        "fs locations --why /f",
        "fs checksum /f",
        "fs getfacl /f",
        "dataset list",
        "dataset show /",
        "dataset set / --inodes 1000",
        "node list --why",
        "job count /f",
        "job grep 23 /f",
        "power status",
        "power set --fraction 1",
        "power policy always-on",
    ] {
        assert!(!json_of(&cluster, line).is_null(), "{line}");
    }
    assert_eq!(json_of(&cluster, "node stop n3")["node"], "n3");
    assert_eq!(json_of(&cluster, "node start n3"), json!({"node": "n3", "host": "h3"}));
    // A master, three block servers, three workers, two of power.
    assert_eq!(json_of(&cluster, "cluster down"), json!({"ended": 9}));
}

#[test]
fn errors_are_sentences_with_paths() {
    let cluster = Cluster::up(2);
    for line in ["fs mkdir /data", "fs touch /data/f", "fs ln -s nowhere /soft", "dataset create /s --replicas 2"] {
        assert_eq!(run(&cluster, line).code, 0, "{line}");
    }
    for (line, sentence) in [
        ("fs mkdir /data", "/data exists already"),
        ("fs mkdir /no/d", "/no does not exist"),
        ("fs cat /soft", "/soft points to nowhere, which does not exist"),
        ("fs cat /data/f/g", "/data/f is not a directory"),
        ("fs cat /data", "/data is a directory"),
        ("fs rm /data", "/data is a directory: give -r to remove it with all below"),
        ("fs mv /data/f /data/no/f", "/data/no does not exist"),
        ("fs ln /data/f /s/f", "is in dataset /, and its new name would be in another one: copy it"),
        ("dataset create /s --replicas 2", "/s is a dataset already"),
        ("dataset create /data --replicas 2", "/data is not empty: a dataset begins empty"),
        ("dataset rm /data", "/data is in the default dataset, which stays"),
        ("job count /no", "/no does not exist"),
        ("fsck /no", "/no does not exist"),
    ] {
        let refusal = refusal(&cluster, line);
        assert!(refusal.starts_with("ebb: ") && refusal.contains(sentence), "{line}: {refusal}");
        assert!(!refusal.contains(" i1") && !refusal.contains("ds"), "{line}: {refusal}");
    }
}

#[test]
fn a_move_into_another_dataset_keeps_all_and_is_whole() {
    let cluster = Cluster::up(3);
    let mountpoint = cluster.mount("mnt");
    cluster.ok(&["dataset", "create", "/other", "--replicas", "2"]);
    let tree = mountpoint.join("tree");
    fs::create_dir_all(tree.join("d/e")).unwrap();
    let bytes = crate::harness::pattern(3 << 20, 7);
    fs::write(tree.join("d/f"), &bytes).unwrap();
    fs::write(tree.join("empty"), "").unwrap();
    symlink("d/f", tree.join("link")).unwrap();
    fs::set_permissions(tree.join("d/f"), fs::Permissions::from_mode(0o4711)).unwrap();
    fs::set_permissions(tree.join("d/e"), fs::Permissions::from_mode(0o1700)).unwrap();
    rustix::fs::setxattr(tree.join("d/f"), "user.colour", b"blue", rustix::fs::XattrFlags::empty()).unwrap();
    cluster.ok(&["fs", "setfacl", "-m", "u:7:rw", "/tree/empty"]);
    cluster.ok(&["fs", "setfacl", "-m", "d:g:8:rX", "/tree/d"]);
    let facls = |top: &str| cluster.json(&["fs", "getfacl", "-R", top]);
    let lists = |value: &Value| -> Vec<Value> {
        value.as_array().unwrap().iter().map(|one| json!([one["access"], one["default"]])).collect()
    };
    let (before, times) = (facls("/tree"), |path: &str| fs::metadata(mountpoint.join(path)).unwrap().mtime_nsec());
    let wanted = [times("tree/d/f"), times("tree/d"), times("tree")];

    let moved = json_of(&cluster, "fs mv /tree /other/new");
    assert_eq!(moved, json!({"moved": [{"from": "/tree", "to": "/other/new", "copied": true}]}));
    assert!(!tree.exists());
    let new = mountpoint.join("other/new");
    assert_eq!(fs::read(new.join("d/f")).unwrap(), bytes);
    assert_eq!(fs::read_link(new.join("link")).unwrap().to_str(), Some("d/f"));
    let mode = |path: &str| fs::metadata(new.join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("d/f"), mode("d/e")), (0o4711, 0o1700));
    let mut colour = [0; 4];
    rustix::fs::getxattr(new.join("d/f"), "user.colour", &mut colour[..]).unwrap();
    assert_eq!(&colour, b"blue");
    assert_eq!([times("other/new/d/f"), times("other/new/d"), times("other/new")], wanted);
    assert_eq!(lists(&facls("/other/new")), lists(&before));
    assert_eq!(
        [&json_of(&cluster, "fs stat /other/new/d/f")["dataset"], &json_of(&cluster, "fs ls /")[0]["dataset"]],
        ["/other", "/other"]
    );
    // Nothing but the tree is there: no copy under another name.
    assert_eq!(fs::read_dir(mountpoint.join("other")).unwrap().count(), 1);

    // One file over another, and what cannot be moved stays.
    fs::write(mountpoint.join("one"), "new").unwrap();
    fs::write(mountpoint.join("other/one"), "old").unwrap();
    cluster.ok(&["fs", "mv", "/one", "/other"]);
    assert_eq!(fs::read_to_string(mountpoint.join("other/one")).unwrap(), "new");
    fs::create_dir(mountpoint.join("stays")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        mountpoint.join("stays/fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let refused = refusal(&cluster, "fs mv /stays /other/stays");
    assert!(refused.contains("/stays stays where it is: 1 special file cannot be copied"), "{refused}");
    assert!(mountpoint.join("stays/fifo").exists());
    assert_eq!(fs::read_dir(mountpoint.join("other")).unwrap().count(), 2);
}

#[test]
fn lists_are_those_that_getfacl_shows() {
    let cluster = Cluster::up(2);
    let mountpoint = cluster.mount("mnt");
    fs::create_dir(mountpoint.join("d")).unwrap();
    fs::write(mountpoint.join("d/f"), "x").unwrap();
    let shown = |path: &str| {
        let output = Command::new("getfacl").args(["-p", "-n", "-E"]).arg(mountpoint.join(path)).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let ours = |path: &str| {
        let value = &cluster.json(&["fs", "getfacl", path])[0];
        let texts = |key: &str| value[key].as_array().unwrap().clone();
        let line = |text: &Value| text.as_str().unwrap().split('\t').next().unwrap().to_owned();
        let access: Vec<String> = texts("access").iter().map(line).collect();
        let default = texts("default").iter().map(|text| format!("default:{}", line(text))).collect::<Vec<_>>();
        [access, default].concat()
    };
    cluster.ok(&["fs", "setfacl", "-m", "u:70001:rw,g:70002:r,d:u:70001:rwX", "/d"]);
    assert_eq!(ours("/d"), shown("d"));
    assert!(shown("d").contains(&"default:user:70001:rwx".to_owned()), "{:?}", shown("d"));
    cluster.ok(&["fs", "setfacl", "-R", "-m", "u:70003:rX", "/d"]);
    assert_eq!(ours("/d/f"), shown("d/f"));
    assert!(shown("d/f").contains(&"user:70003:r--".to_owned()), "{:?}", shown("d/f"));
    let set = Command::new("setfacl").args(["-m", "g:70004:x"]).arg(mountpoint.join("d/f")).status().unwrap();
    assert!(set.success());
    assert_eq!(ours("/d/f"), shown("d/f"));
    cluster.ok(&["fs", "setfacl", "-x", "u:70003,g:70004", "/d/f"]);
    assert_eq!(ours("/d/f"), ["user::rw-", "group::r--", "other::r--"]);
    cluster.ok(&["fs", "setfacl", "-b", "/d"]);
    assert_eq!((ours("/d").len(), shown("d").len()), (3, 3));
    let refused = refusal(&cluster, "fs setfacl -m u:no-such-user:r /d");
    assert!(refused.contains("no user is called \"no-such-user\""), "{refused}");
}

#[test]
fn files_are_merged_in_order_and_a_dataset_goes_with_its_files() {
    let cluster = Cluster::up(2);
    cluster.ok(&["dataset", "create", "/s", "--replicas", "2"]);
    let local = cluster.path("part");
    for name in ["b", "a", "c"] {
        fs::write(&local, name.repeat(3)).unwrap();
        cluster.ok(&["fs", "put", local.to_str().unwrap(), &format!("/s/{name}")]);
    }
    let merged = cluster.path("merged");
    let target = merged.to_str().unwrap();
    cluster.ok(&["fs", "getmerge", "--nl", "/s", target]);
    assert_eq!(fs::read_to_string(&merged).unwrap(), "aaa\nbbb\nccc\n");
    let refused = refusal(&cluster, &format!("fs getmerge /s/a {target}"));
    assert!(refused.contains("exists"), "{refused}");
    cluster.ok(&["fs", "getmerge", "-f", "/s/c", "/s/a", target]);
    assert_eq!(fs::read_to_string(&merged).unwrap(), "cccaaa");

    assert!(refusal(&cluster, "dataset rm /s").contains("/s has 3 entries: give -r"));
    assert!(refusal(&cluster, "dataset rm /s/a").contains("is a part of dataset /s"));
    assert_eq!(run(&cluster, "dataset rm -r /s").out.trim(), "/s is removed, with 3 files");
    crate::harness::wait_for("the dataset to end with its files", std::time::Duration::from_secs(30), || {
        json_of(&cluster, "dataset list").as_array().unwrap().len() == 1
    });
}
