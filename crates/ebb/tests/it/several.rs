//! A cluster on several hosts: each has a directory of its own, joins with a token, and runs its daemons by themselves.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::harness::{Cluster, Run, Signal, pattern, signal, wait_for};

/// The cluster's first host, with the master.
struct Several {
    first: Cluster,
    daemons: Vec<Child>,
}

impl Several {
    /// A cluster without nodes.
    fn new() -> Self {
        let first = Cluster::none();
        let address = free_address();
        first.ok(&["cluster", "init", "--master", &address, "--replicas", "2"]);
        let mut several = Self { first, daemons: Vec::new() };
        let dir = several.first.dir();
        several.daemon(&dir, &["master"]);
        wait_for("the master", Duration::from_secs(30), || {
            several.first.json(&["cluster", "status"])["serving"] == true
        });
        several
    }

    /// Runs a daemon with a host's directory.
    fn daemon(&mut self, dir: &Path, arguments: &[&str]) {
        let log = std::fs::File::create(dir.join(format!("{}.out", arguments[0]))).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_ebb"))
            .args(arguments)
            .args(["--dir".as_ref(), dir])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.daemons.push(child);
    }

    fn token(&self, arguments: &[&str]) -> String {
        let token = self.first.json(&[&["node", "token"], arguments].concat());
        token["token"].as_str().unwrap_or_else(|| panic!("{token}")).to_owned()
    }

    /// A directory for another host.
    fn host(&self, name: &str) -> PathBuf {
        self.first.path(name)
    }

    /// Runs `ebb` on another host.
    fn on(&self, dir: &Path, arguments: &[&str]) -> Run {
        self.first.ebb(&[&["--dir", dir.to_str().unwrap()], arguments].concat())
    }

    fn join(&self, dir: &Path, token: &str, arguments: &[&str]) -> Run {
        let file = dir.with_extension("token");
        std::fs::write(&file, token).unwrap();
        self.on(dir, &[&["node", "join", "--token", file.to_str().unwrap()], arguments].concat())
    }

    /// A node on a host of its own.
    fn node(&mut self, name: &str) -> PathBuf {
        let dir = self.host(name);
        let joined = self.join(&dir, &self.token(&[]), &["--host", name, "--listen", &free_address()]);
        assert_eq!(joined.code, 0, "{}{}", joined.out, joined.err);
        assert!(joined.out.contains("the master reaches this host"), "{}", joined.out);
        self.daemon(&dir, &["block"]);
        self.daemon(&dir, &["worker"]);
        dir
    }

    fn wait_nodes(&self, count: usize) {
        wait_for("nodes", Duration::from_secs(30), || {
            let nodes = self.first.json(&["node", "list"]);
            let live = |node: &&serde_json::Value| node["state"] == "live";
            nodes.as_array().is_some_and(|nodes| nodes.iter().filter(live).count() == count)
        });
    }
}

impl Drop for Several {
    fn drop(&mut self) {
        // The master last: the others say good-bye to it.
        for child in self.daemons.iter_mut().rev() {
            if child.try_wait().is_ok_and(|ended| ended.is_none()) {
                signal(child.id(), Signal::TERM);
                let _ = child.wait();
            }
        }
    }
}

/// An address of this machine that nobody uses, with the next port free, too.
fn free_address() -> String {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        if port < u16::MAX && TcpListener::bind(("127.0.0.1", port + 1)).is_ok() {
            return format!("127.0.0.1:{port}");
        }
    }
}

#[test]
fn hosts_join_with_tokens_and_serve_as_one_cluster() {
    let mut several = Several::new();
    let (h1, _h2) = (several.node("h1"), several.node("h2"));
    several.wait_nodes(2);
    // A client's host: it may mount, and nothing else.
    let client = several.host("c1");
    let joined = several.join(&client, &several.token(&["--role", "mount", "--host", "c1"]), &[]);
    assert_eq!(joined.code, 0, "{}", joined.err);
    let mountpoint = several.first.path("mnt");
    std::fs::create_dir(&mountpoint).unwrap();
    let mounted = several.on(&client, &["mount", mountpoint.to_str().unwrap()]);
    assert_eq!(mounted.code, 0, "{}", mounted.err);
    let bytes = pattern(3_000_000, 1);
    std::fs::write(mountpoint.join("f"), &bytes).unwrap();
    assert!(several.first.get("/f") == bytes);
    for refused in [several.on(&client, &["fs", "ls", "/"]), several.on(&h1, &["node", "drain", "h1"])] {
        assert!(refused.code != 0 && refused.err.contains("no certificate for the operator"), "{}", refused.err);
    }
    let refused = several.on(&h1, &["cluster", "up", "--nodes", "3"]);
    assert!(refused.code != 0 && refused.err.contains("systemctl start"), "{}", refused.err);
    // Work is shipped to the workers of all hosts, which told the master where they are.
    std::fs::write(mountpoint.join("words"), "a b c\n".repeat(1000)).unwrap();
    let unmounted = several.on(&client, &["umount", mountpoint.to_str().unwrap()]);
    assert_eq!(unmounted.code, 0, "{}", unmounted.err);
    let counted = several.first.json(&["job", "count", "/words"]);
    assert_eq!(counted["words"], 3000, "{counted}");
    several.first.healthy();
}

#[test]
fn a_token_admits_one_host_and_says_why_it_does_not() {
    let several = Several::new();
    let token = several.token(&["--role", "mount"]);
    let (first, second) = (several.host("c1"), several.host("c2"));
    let joined = several.join(&first, &token, &["--host", "c1"]);
    assert_eq!(joined.code, 0, "{}", joined.err);
    let again = several.join(&first, &token, &["--host", "c1"]);
    assert!(again.code != 0 && again.err.contains("this host is in cluster"), "{}", again.err);
    let refused = |run: Run, words: &str| assert!(run.code != 0 && run.err.contains(words), "{words}: {}", run.err);
    refused(several.join(&second, &token, &["--host", "c2"]), "used already, by host c1");
    refused(several.join(&second, "ebb1.AAAA", &[]), "cut off");
    refused(several.join(&second, "secret", &[]), "no token");
    refused(several.join(&second, &several.token(&["--host", "c3"]), &["--host", "c2"]), "is of host c3");
    let withdrawn = several.token(&[]);
    several.first.ok(&["identity", "revoke", "--role", "joiner"]);
    refused(several.join(&second, &withdrawn, &["--host", "c2", "--listen", "127.0.0.1:7"]), "revoked");
    let trust = several.first.json(&["identity", "list", "--trust"]);
    // One was used, one is for c3, one was withdrawn; they come in the order of their numbers.
    let tokens = trust["tokens"].as_array().unwrap();
    let used: Vec<&str> =
        tokens.iter().filter(|token| token["used"] == true).filter_map(|token| token["host"].as_str()).collect();
    assert_eq!((tokens.len(), used), (3, vec!["c1"]), "{trust}");
    assert_eq!(trust["revocations"][0]["role"], "joiner", "{trust}");
    for (arguments, words) in [
        (vec!["--role", "master"], "no host joins as master"),
        (vec!["--role", "cli"], "the roles are"),
        (vec!["--lifetime", "30d"], "at most 7 days"),
    ] {
        refused(several.first.ebb(&[&["node", "token"][..], &arguments].concat()), words);
    }
}

/// Goal: a join that fails after the master has used up its token is repeated with the same token. Method: a directory is in
/// the place of the settings, which a join writes last.
#[test]
fn a_join_that_was_interrupted_is_repeated_with_its_token() {
    let several = Several::new();
    let (host, token) = (several.host("c1"), several.token(&["--role", "mount,operator"]));
    let blocked = host.join("cluster.new");
    std::fs::create_dir_all(&blocked).unwrap();
    let failed = several.join(&host, &token, &["--host", "c1"]);
    assert!(failed.code != 0 && failed.err.contains("cluster.toml"), "{}{}", failed.out, failed.err);
    std::fs::remove_dir(&blocked).unwrap();
    let other_name = several.join(&host, &token, &["--host", "c2"]);
    assert!(other_name.code != 0 && other_name.err.contains("began to join"), "{}", other_name.err);
    let elsewhere = several.join(&several.host("c3"), &token, &["--host", "c1"]);
    assert!(elsewhere.code != 0 && elsewhere.err.contains("used already"), "{}", elsewhere.err);
    let joined = several.join(&host, &token, &["--host", "c1"]);
    assert_eq!(joined.code, 0, "{}", joined.err);
    assert!(!host.join("joining.json").exists(), "the keys are in their places alone");
    let listed = several.on(&host, &["fs", "ls", "/"]);
    assert_eq!(listed.code, 0, "{}", listed.err);
}

#[test]
fn an_address_that_others_cannot_reach_is_found_at_the_join() {
    let several = Several::new();
    let host = several.host("h1");
    let (listen, other) = (free_address(), free_address());
    let joined =
        several.join(&host, &several.token(&[]), &["--host", "h1", "--listen", &listen, "--advertise", &other]);
    assert!(joined.code != 0 && joined.err.contains("does not reach it at"), "{}", joined.err);
    let file = host.join("host.toml");
    let settings = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, settings.replace(&format!("advertise = \"{other}\"\n"), "")).unwrap();
    let checked = several.on(&host, &["node", "check"]);
    assert_eq!(checked.code, 0, "{}", checked.err);
    std::fs::write(&file, settings.replace("[block]", "[blok]")).unwrap();
    let refused = several.on(&host, &["block"]);
    assert!(refused.code != 0 && refused.err.contains("host.toml") && refused.err.contains("blok"), "{}", refused.err);
    // All networks, and no word of how others get there.
    let everywhere =
        several.join(&several.host("h2"), &several.token(&[]), &["--host", "h2", "--listen", "0.0.0.0:7001"]);
    assert!(everywhere.code != 0 && everywhere.err.contains("advertise"), "{}", everywhere.err);
}

#[test]
fn what_is_revoked_is_served_no_more() {
    let mut several = Several::new();
    several.node("h1");
    several.node("h2");
    several.wait_nodes(2);
    let client = several.host("c1");
    let joined = several.join(&client, &several.token(&["--role", "operator"]), &["--host", "c1"]);
    assert_eq!(joined.code, 0, "{}", joined.err);
    several.first.put("/f", &pattern(100_000, 1));
    let read = || several.on(&client, &["fs", "cat", "/f"]);
    assert_eq!(read().code, 0);
    let shown =
        several.on(&client, &["--json", "identity", "show", client.join("identities/operator.pem").to_str().unwrap()]);
    let serial: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
    several.first.ok(&["identity", "revoke", "--serial", serial["serial"].as_str().unwrap()]);
    let refused = read();
    assert!(refused.code != 0 && refused.err.contains("revoked"), "{}", refused.err);
    // A node's host: the others hear of it, and its own block server is heard no more.
    several.first.ok(&["identity", "revoke", "--host", "h2", "--role", "block"]);
    wait_for("end of trust", Duration::from_secs(40), || {
        let nodes = several.first.json(&["node", "list"]);
        nodes.as_array().unwrap().iter().any(|node| node["host"] == "h2" && node["state"] != "live")
    });
}
