//! `ebb fs` beside what users know from coreutils and `hdfs dfs`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{Cluster, Run};

fn run(cluster: &Cluster, line: &str) -> Run {
    cluster.ebb(&[&["fs"], &line.split(' ').collect::<Vec<_>>()[..]].concat())
}

fn ok(cluster: &Cluster, line: &str) -> String {
    let run = run(cluster, line);
    assert_eq!(run.code, 0, "ebb fs {line}: {}{}", run.out, run.err);
    run.out
}

fn lines(cluster: &Cluster, line: &str) -> Vec<String> {
    ok(cluster, line).lines().map(str::to_owned).collect()
}

fn json_of(cluster: &Cluster, line: &str) -> Value {
    serde_json::from_str(&ok(cluster, &format!("{line} --json"))).unwrap()
}

/// A tree of known files: `/t/a.csv` (3 lines), `/t/b.txt` (2 MiB and a line), `/t/d/c.csv` (empty), `/t/.hidden`.
fn tree() -> Cluster {
    let cluster = Cluster::up(2);
    let local = cluster.path("t");
    fs::create_dir_all(local.join("d")).unwrap();
    fs::write(local.join("a.csv"), "one\ntwo\nthree\n").unwrap();
    fs::write(local.join("b.txt"), [vec![b'x'; 2 << 20], b"\nlast".to_vec()].concat()).unwrap();
    fs::write(local.join("d/c.csv"), "").unwrap();
    fs::write(local.join(".hidden"), "h").unwrap();
    cluster.ok(&["fs", "put", "-r", local.to_str().unwrap(), "/"]);
    cluster
}

#[test]
fn listings_are_sorted_recursive_and_for_people() {
    let cluster = tree();
    assert_eq!(lines(&cluster, "ls /t"), [".hidden", "a.csv", "b.txt", "d"]);
    assert_eq!(lines(&cluster, "ls -S /t")[0], "b.txt");
    assert_eq!(lines(&cluster, "ls -rS /t").last().unwrap(), "b.txt");
    assert_eq!(lines(&cluster, "ls -d /t"), ["/t"]);
    assert_eq!(lines(&cluster, "ls -R /t")[..2], ["/t:", ".hidden"]);
    assert_eq!(lines(&cluster, "ls -R /t").last().unwrap(), "c.csv");
    assert!(ok(&cluster, "ls -lh /t").contains("2.0 MiB"), "{}", ok(&cluster, "ls -lh /t"));
    assert!(ok(&cluster, "ls --help").contains("--human"));
    ok(&cluster, "touch /t/a.csv");
    assert_eq!(lines(&cluster, "ls -t /t")[0], "a.csv");
    // Patterns match existing names; a name with a star can be given literally.
    assert_eq!(lines(&cluster, "ls /t/*.csv"), ["/t/a.csv"]);
    assert_eq!(lines(&cluster, "ls /*/*/c*"), ["/t/d/c.csv"]);
    assert_eq!(lines(&cluster, "ls /t/a.csv"), ["a.csv"]);
    let nothing = run(&cluster, "ls /t/*.none");
    assert_eq!((nothing.code, nothing.err.trim()), (1, "ebb: no path fits /t/*.none"));
    ok(&cluster, "touch /t/*.none");
    assert_eq!(lines(&cluster, "ls /t/*.none"), ["*.none"]);
    let found = json_of(&cluster, "ls -R /t");
    assert!(found.as_array().unwrap().iter().any(|entry| entry["path"] == "/t/d/c.csv"), "{found}");
}

#[test]
fn parts_of_files_are_printed_and_appended_to() {
    let cluster = tree();
    assert_eq!(ok(&cluster, "head -n 2 /t/a.csv"), "one\ntwo\n");
    assert_eq!(ok(&cluster, "head -c 5 /t/a.csv"), "one\nt");
    assert_eq!(ok(&cluster, "head -c 3000000 /t/b.txt").len(), (2 << 20) + 5);
    assert!(ok(&cluster, "head -n 1 /t/a.csv /t/d/c.csv").starts_with("==> /t/a.csv <==\none\n"));
    assert_eq!(ok(&cluster, "tail -n 2 /t/a.csv"), "two\nthree\n");
    assert_eq!(ok(&cluster, "tail -n 1 /t/b.txt"), "last");
    assert_eq!(ok(&cluster, "tail -n 99 /t/a.csv"), "one\ntwo\nthree\n");
    assert_eq!(ok(&cluster, "tail -n 0 /t/a.csv"), "");
    assert_eq!(ok(&cluster, "tail -c 4 /t/b.txt"), "last");
    assert_eq!(run(&cluster, "head /t").code, 1);
    let more = cluster.path("more");
    fs::write(&more, "four\n").unwrap();
    let more = more.to_str().unwrap();
    ok(&cluster, &format!("append {more} {more} /t/a.csv"));
    ok(&cluster, &format!("append {more} /t/new"));
    assert_eq!(ok(&cluster, "cat /t/a.csv /t/new"), "one\ntwo\nthree\nfour\nfour\nfour\n");
    assert_eq!(run(&cluster, "append /no/such/file /t/other").code, 1);
    assert_eq!(run(&cluster, "test -e /t/other").code, 1, "a wrong source makes no file");
}

#[test]
fn a_file_is_followed_as_it_grows() {
    let cluster = tree();
    let mut tail = Command::new(env!("CARGO_BIN_EXE_ebb"))
        .args(["--dir", cluster.dir().to_str().unwrap(), "fs", "tail", "-f", "-n", "1", "/t/a.csv"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(tail.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "three\n");
    let more = cluster.path("more");
    for text in ["four\n", "five\n"] {
        fs::write(&more, text).unwrap();
        ok(&cluster, &format!("append {} /t/a.csv", more.display()));
        line.clear();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, text);
    }
    crate::harness::signal(tail.id(), rustix::process::Signal::INT);
    assert_eq!(tail.wait().unwrap().code(), Some(130));
}

#[test]
fn space_is_counted_once_for_each_file() {
    let cluster = tree();
    ok(&cluster, "ln /t/b.txt /t/d/b2.txt");
    let usage = json_of(&cluster, "du /t");
    let bytes = 14 + (2 << 20) + 5 + 1;
    assert_eq!((&usage["bytes"], &usage["files"], &usage["directories"]), (&json!(bytes), &json!(5), &json!(2)));
    assert_eq!(usage["stored_bytes"].as_u64().unwrap(), usage["allocated_bytes"].as_u64().unwrap() * 2);
    let children: Vec<&str> =
        usage["children"].as_array().unwrap().iter().map(|child| child["path"].as_str().unwrap()).collect();
    assert_eq!(children, ["/t/.hidden", "/t/a.csv", "/t/b.txt", "/t/d"]);
    assert_eq!(lines(&cluster, "du -s /t").len(), 2);
    assert_eq!(lines(&cluster, "du /t").len(), 6);
    assert!(ok(&cluster, "du -sh /t").contains("2.0 MiB"));
    let count = json_of(&cluster, "count /t");
    assert_eq!((&count["files"], &count["directories"], &count["bytes"]), (&json!(5), &json!(2), &json!(bytes)));
}

#[test]
fn modes_and_owners_of_trees_are_set() {
    let cluster = tree();
    let attr = |path: &str| json_of(&cluster, &format!("stat {path}"));
    ok(&cluster, "chmod -R u=rwX,go= /t");
    assert_eq!((&attr("/t/d")["mode"], &attr("/t/a.csv")["mode"]), (&json!("0700"), &json!("0600")));
    ok(&cluster, "chmod 4751 /t/a.csv /t/b.txt");
    assert_eq!(attr("/t/b.txt")["mode"], "4751");
    ok(&cluster, "chown -R 12:34 /t");
    ok(&cluster, "chgrp 56 /t/a.csv");
    assert_eq!((&attr("/t/d/c.csv")["uid"], &attr("/t/d/c.csv")["gid"]), (&json!(12), &json!(34)));
    assert_eq!((&attr("/t/a.csv")["gid"], &attr("/t/a.csv")["mode"]), (&json!(56), &json!("0751")));
    for wrong in ["chmod 9 /t", "chmod u+q /t", "chown : /t", "chown nosuchuser /t", "chgrp nosuchgroup /t"] {
        let run = run(&cluster, wrong);
        assert_eq!(run.code, 2, "{wrong}: {}", run.err);
    }
    let partly = run(&cluster, "chmod 644 /t/a.csv /nothing");
    assert_eq!(partly.code, 1);
    assert_eq!(attr("/t/a.csv")["mode"], "0644", "the rest is done");
}

#[test]
fn paths_are_tested_found_moved_and_removed() {
    let cluster = tree();
    for (condition, code) in [
        ("-e /t", 0),
        ("-e /nothing", 1),
        ("-e /t/a.csv/below", 1),
        ("-f /t/a.csv", 0),
        ("-f /t", 1),
        ("-d /t", 0),
        ("-s /t/a.csv", 0),
        ("-s /t/d/c.csv", 1),
        ("-z /t/d/c.csv", 0),
        ("-z /t", 1),
        ("-L /t", 1),
    ] {
        assert_eq!(run(&cluster, &format!("test {condition}")).code, code, "{condition}");
    }
    assert_eq!(run(&cluster, "test /t").code, 2, "a condition is needed");
    assert_eq!(lines(&cluster, "find /t --name *.csv --type file"), ["/t/a.csv", "/t/d/c.csv"]);
    assert_eq!(lines(&cluster, "find /t --min-size 1MiB"), ["/t/b.txt"]);
    assert_eq!(lines(&cluster, "find /t --type d --newer 1h"), ["/t", "/t/d"]);
    assert!(lines(&cluster, "find /t --older 1h").is_empty());
    ok(&cluster, "mkdir -p /m/n /m/o");
    ok(&cluster, "mv /t/a.csv /t/b.txt /m/n");
    assert_eq!(lines(&cluster, "ls /m/n"), ["a.csv", "b.txt"]);
    assert_eq!(run(&cluster, "rm /nothing").code, 1);
    assert_eq!(run(&cluster, "rm -f /nothing /t/*.none").code, 0);
    let partly = run(&cluster, "rm /nothing /m/n/a.csv");
    assert!(partly.code == 1 && partly.err.contains("/nothing does not exist"), "{}", partly.err);
    ok(&cluster, "rm -r /m/*");
    assert!(lines(&cluster, "ls /m").is_empty());
}
