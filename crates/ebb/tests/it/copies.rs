//! Copies by the command line: a file appears whole or not at all, and an existing file stays unless the user says
//! otherwise.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Cluster, pattern, signal, wait_for};

const SIZE: usize = 3 << 20;

fn names(cluster: &Cluster, directory: &str) -> Vec<String> {
    cluster.ok(&["fs", "ls", directory]).lines().map(str::to_owned).collect()
}

#[test]
fn a_file_that_exists_is_kept_replaced_or_skipped_as_the_user_says() {
    let cluster = Cluster::up(3);
    let (local, back) = (cluster.path("local"), cluster.path("back"));
    let (local_name, back_name) = (local.to_str().unwrap(), back.to_str().unwrap());
    fs::write(&local, pattern(SIZE, 1)).unwrap();
    fs::set_permissions(&local, fs::Permissions::from_mode(0o4750)).unwrap();
    let copies: [&[&str]; 3] =
        [&["fs", "put", local_name, "/f"], &["fs", "get", "/f", back_name], &["fs", "cp", "/f", "/g"]];
    for copy in copies {
        cluster.ok(copy);
        let refused = cluster.ebb(copy);
        assert_eq!(refused.code, 3, "{copy:?}: {}", refused.err);
        assert!(refused.err.contains("exists already; give -f"), "{}", refused.err);
        let skipped = cluster.json(&[copy, &["-n"]].concat());
        assert_eq!((&skipped["files"], &skipped["skipped"]), (&json!(0), &json!(1)), "{copy:?}");
        let replaced = cluster.json(&[copy, &["-f", "-p"]].concat());
        assert_eq!((&replaced["files"], &replaced["bytes"]), (&json!(1), &json!(SIZE)), "{copy:?}");
    }
    assert_eq!(fs::read(&back).unwrap(), pattern(SIZE, 1));
    let (from, to) = (fs::metadata(&local).unwrap(), fs::metadata(&back).unwrap());
    assert_eq!((to.mtime(), to.mtime_nsec(), to.mode()), (from.mtime(), from.mtime_nsec(), from.mode()));
    assert_eq!(names(&cluster, "/"), ["f", "g"], "no temporary name is left");
    cluster.ok(&["fs", "get", "/f", "/dev/null"]);
    assert_eq!(cluster.ebb(&["fs", "cp", "/f", "/f"]).code, 2);
    let many = cluster.ebb(&["fs", "get", "/f", "/g", back_name]);
    assert!(many.err.contains("several files go only into one"), "{}", many.err);
    cluster.healthy();
}

#[test]
fn a_tree_goes_on_past_files_that_it_cannot_copy_and_counts_them() {
    let cluster = Cluster::up(2);
    let tree = cluster.path("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    for (name, content) in [("a/one", "1"), ("a/b/two", "2"), ("three", "3")] {
        fs::write(tree.join(name), content).unwrap();
    }
    std::os::unix::fs::symlink("one", tree.join("a/link")).unwrap();
    let local = tree.to_str().unwrap();
    let first = cluster.json(&["fs", "put", "-r", local, "/"]);
    assert_eq!((&first["files"], &first["directories"], &first["links"]), (&json!(3), &json!(3), &json!(1)));
    fs::write(tree.join("four"), "4").unwrap();
    let again = cluster.ebb(&["fs", "put", "-r", local, "/"]);
    assert_eq!(again.code, 1, "{}", again.err);
    assert!(again.out.contains("1 file copied (1 B), 4 not copied"), "{}", again.out);
    for name in ["a/one", "a/b/two", "three", "a/link"] {
        assert!(again.err.contains(&format!("tree/{name}: exists already")), "{name}: {}", again.err);
    }
    assert_eq!(cluster.ok(&["fs", "cat", "/tree/four"]), "4");
    fs::write(tree.join("three"), "5").unwrap();
    let replaced = cluster.json(&["fs", "put", "-rf", local, "/"]);
    assert_eq!((&replaced["files"], &replaced["links"], &replaced["failed"]), (&json!(4), &json!(1), &json!([])));
    assert_eq!(cluster.ok(&["fs", "cat", "/tree/three"]), "5");
    // A file where a directory has to go costs the files below, and no more.
    cluster.ok(&["fs", "put", tree.join("four").to_str().unwrap(), "/x"]);
    cluster.ok(&["fs", "mkdir", "-p", "/copy/tree"]);
    cluster.ok(&["fs", "cp", "/x", "/copy/tree/a"]);
    let partly = cluster.ebb(&["fs", "cp", "-r", "/tree", "/copy"]);
    assert_eq!(partly.code, 1, "{}", partly.err);
    assert_eq!(names(&cluster, "/copy/tree"), ["a", "four", "three"]);
    let out = cluster.path("out");
    fs::create_dir(&out).unwrap();
    cluster.ok(&["fs", "get", "-r", "/tree", "/x", out.to_str().unwrap()]);
    assert_eq!(fs::read(out.join("tree/a/link")).unwrap(), b"1");
    assert_eq!(fs::read(out.join("x")).unwrap(), b"4");
}

/// `ebb fs put -f - /f`, with its input held open.
fn begin_put(cluster: &Cluster) -> Child {
    let mut put = Command::new(env!("CARGO_BIN_EXE_ebb"))
        .args(["--dir", cluster.dir().to_str().unwrap(), "fs", "put", "-f", "-", "/f"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    put.stdin.as_mut().unwrap().write_all(&pattern(5 << 20, 9)).unwrap();
    put
}

#[test]
fn a_copy_that_is_interrupted_leaves_the_old_file_and_nothing_else() {
    let cluster = Cluster::up(2);
    let local = cluster.path("local");
    fs::write(&local, pattern(SIZE, 1)).unwrap();
    cluster.ok(&["fs", "put", local.to_str().unwrap(), "/f"]);
    for (sent, code) in [(Signal::INT, Some(130)), (Signal::TERM, Some(143)), (Signal::KILL, None)] {
        let mut put = begin_put(&cluster);
        signal(put.id(), sent);
        let mut ended = None;
        wait_for("the copy to end", Duration::from_secs(20), || {
            ended = put.try_wait().unwrap();
            ended.is_some()
        });
        assert_eq!(ended.unwrap().code(), code, "{sent:?}");
        assert_eq!(names(&cluster, "/"), ["f"], "{sent:?}");
    }
    let back = cluster.path("back");
    cluster.ok(&["fs", "get", "/f", back.to_str().unwrap()]);
    assert_eq!(fs::read(back).unwrap(), pattern(SIZE, 1));
    // The parts that were written are freed: the killed session's when it is over.
    wait_for("the parts to be freed", Duration::from_secs(40), || {
        cluster.json(&["fs", "df"])["inodes"].as_u64() == Some(2)
    });
    cluster.healthy();
}

#[test]
fn a_copy_that_exceeds_a_quota_leaves_no_part_and_the_old_file() {
    let cluster = Cluster::up(2);
    cluster.ok(&["dataset", "create", "/q", "--replicas", "2", "--quota", "8MiB"]);
    let (small, large) = (cluster.path("small"), cluster.path("large"));
    fs::write(&small, pattern(SIZE, 1)).unwrap();
    fs::write(&large, pattern(12 << 20, 2)).unwrap();
    cluster.ok(&["fs", "put", small.to_str().unwrap(), "/q/f"]);
    for target in ["/q/f", "/q/g"] {
        let failed = cluster.ebb(&["fs", "put", "-f", large.to_str().unwrap(), target]);
        assert_eq!(failed.code, 1, "{}", failed.err);
        assert!(failed.err.contains(target), "{}", failed.err);
    }
    assert_eq!(names(&cluster, "/q"), ["f"]);
    let back = cluster.path("back");
    cluster.ok(&["fs", "get", "/q/f", back.to_str().unwrap()]);
    assert_eq!(fs::read(back).unwrap(), pattern(SIZE, 1));
}
