//! A command that waits says for what within two seconds, and ends after its time limit.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Cluster, Signal, signal};

/// The first line that the command prints on stderr, and when. The command is ended then.
fn first_word(cluster: &Cluster, arguments: &[&str]) -> (String, Duration) {
    let began = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_ebb"))
        .args(arguments)
        .env("EBB_DIR", cluster.dir())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the ebb program runs");
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let took = began.elapsed();
    child.kill().unwrap();
    child.wait().unwrap();
    (line, took)
}

/// Goal: with a dead or stopped master, a command says so with the way on, on time and not only at its end.
#[test]
fn a_command_names_the_dead_process_that_it_waits_for() {
    let cluster = Cluster::up(1);
    let master = cluster.pid("master", "");
    signal(master, Signal::STOP);
    let (line, took) = first_word(&cluster, &["fs", "ls", "/"]);
    assert!(line.starts_with("waiting for ") && line.contains(&format!("kill -CONT {master}")), "{line}");
    assert!(took < Duration::from_secs(3), "{took:?}: {line}");
    signal(master, Signal::CONT);
    cluster.kill(master);
    let (line, took) = first_word(&cluster, &["fs", "ls", "/"]);
    assert!(line.contains(&format!("(pid {master}) has ended: `ebb cluster up --dir ")), "{line}");
    assert!(took < Duration::from_secs(3), "{took:?}: {line}");
    let (line, _) = first_word(&cluster, &["fs", "ls", "/", "--json"]);
    let word: Value = serde_json::from_str(&line).unwrap();
    assert!(word["waiting_for"].as_str().unwrap().contains("has ended"), "{line}");
    // The time limit counts for any command, and the error says the same.
    let began = Instant::now();
    let run = cluster.ebb(&["fs", "ls", "/", "--timeout", "2s"]);
    assert!(run.code == 1 && run.err.contains("not done within 2s; it waited for "), "{} {}", run.code, run.err);
    assert!(began.elapsed() < Duration::from_secs(5));
    // A command that gives up at once explains itself, too.
    let run = cluster.ebb(&["node", "list"]);
    assert!(run.code == 1 && run.err.contains("has ended: `ebb cluster up"), "{} {}", run.code, run.err);
    let run = cluster.ebb(&["node", "list", "--json"]);
    let error: Value = serde_json::from_str(&run.err).unwrap();
    assert_eq!((&error["error"]["kind"], &error["error"]["exit_code"]), (&"Unreachable".into(), &1.into()));
}

/// Goal: a read of data on a node that is frozen names the node.
#[test]
fn a_read_names_the_node_that_it_waits_for() {
    let cluster = Cluster::up(2);
    cluster.ok(&["dataset", "create", "/single", "--replicas", "1"]);
    let local = cluster.path("local");
    std::fs::write(&local, vec![7; 100_000]).unwrap();
    cluster.ok(&["fs", "put", local.to_str().unwrap(), "/single/f"]);
    let replica = cluster.json(&["fs", "locations", "/single/f"])["metablocks"][0]["replicas"][0].clone();
    let server = cluster.pid("block", replica["host"].as_str().unwrap());
    signal(server, Signal::STOP);
    let run = cluster.ebb(&["fs", "checksum", "/single/f", "--timeout", "8s"]);
    let lines: Vec<&str> = run.err.lines().collect();
    assert!(run.code == 1 && lines[0].starts_with("waiting for a replica that can be read"), "{}", run.err);
    assert!(run.err.contains("answers nothing: it is frozen, or cut off from here"), "{}", run.err);
    // Workers wait for the node here, and the command that sent them says so.
    let run = cluster.ebb(&["job", "count", "/single/f", "--timeout", "8s"]);
    assert!(run.code == 1 && run.err.starts_with("waiting for a replica that can be read"), "{}", run.err);
    signal(server, Signal::CONT);
    assert_eq!(cluster.ebb(&["fs", "checksum", "/single/f"]).code, 0);
}
