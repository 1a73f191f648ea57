//! A block server that is slow beyond its peers: named, done without, and used again.
//!
//! It is stopped for most of the time, again and again. A bad disk or a sick host looks like that from outside. The
//! test waits for each event; how long the stops last is the fault, and no measure.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Cluster, Signal, signal, wait_for};
use crate::watch::StopAtEnd;

const NODES: &str = "6";
/// Few, for writers must wait for the slow node, and not for each other or for the tests that run beside this one.
const FILES: u64 = 4;
/// Far from the times of the others on a busy machine, and from the time after which a node counts as late.
const STOPPED: Duration = Duration::from_millis(1000);
/// Short, for by the mean of its rounds it is slow: many quick ones between two stops would hide them.
const RUNS: Duration = Duration::from_millis(20);
const BOUND: Duration = Duration::from_secs(180);

/// A process that is stopped for most of the time, until this is dropped.
struct Slowed {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Slowed {
    fn start(pid: u32) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                signal(pid, Signal::STOP);
                std::thread::sleep(STOPPED);
                signal(pid, Signal::CONT);
                std::thread::sleep(RUNS);
            }
        });
        Self { over, thread: Some(thread) }
    }
}

impl Drop for Slowed {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It ended with the process continued, or with the test.
            let _ = thread.join();
        }
    }
}

fn hosts(cluster: &Cluster, name: &str) -> Vec<String> {
    let locations = cluster.json(&["fs", "locations", name]);
    let replicas = locations["metablocks"][0]["replicas"].as_array().cloned().unwrap_or_default();
    replicas.iter().map(|replica| replica["host"].as_str().unwrap_or_default().to_owned()).collect()
}

fn node(cluster: &Cluster, host: &str) -> Value {
    let nodes = cluster.json(&["node", "list"]);
    let found = nodes.as_array().unwrap().iter().find(|node| node["host"] == host).cloned();
    found.unwrap_or_else(|| panic!("no node on {host}: {nodes}"))
}

fn write(mount: &Path, file: u64, stop: &AtomicBool, written: &AtomicU64) -> std::io::Result<()> {
    let open = File::options().write(true).open(mount.join(format!("f{file}")))?;
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) {
        open.write_all_at(&[u8::try_from(turn % 251).unwrap_or(0); 4096], turn % 4 * 4096)?;
        open.sync_data()?;
        written.fetch_add(1, Ordering::Relaxed);
        turn += 1;
    }
    Ok(())
}

#[test]
fn a_slow_block_server_is_named_and_done_without_and_used_again() {
    let cluster = Cluster::none();
    // With the time-outs that a cluster has by itself.
    cluster.ok(&["cluster", "up", "--nodes", NODES]);
    let mount = cluster.mount_as("mnt", "client");
    for file in 0..FILES {
        let made = File::create_new(mount.join(format!("f{file}"))).unwrap();
        made.write_all_at(&[1; 16 << 10], 0).unwrap();
        made.sync_all().unwrap();
    }
    let host = hosts(&cluster, "/f0")[0].clone();
    let pid = cluster.pid("block", &host);
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let end = StopAtEnd(&stop);
        let (mount, stop, written) = (&mount, &stop, &written);
        let writers: Vec<_> = (0..FILES).map(|file| scope.spawn(move || write(mount, file, stop, written))).collect();
        wait_for("some writes", BOUND, || written.load(Ordering::Relaxed) > 100);
        let slowed = Slowed::start(pid);
        wait_for("the slow node to be called gray", BOUND, || !node(&cluster, &host)["gray"].is_null());
        let status = cluster.json(&["cluster", "status"]);
        assert!(status["notices"][0].as_str().unwrap().contains(&format!("({host}) is gray")), "{status}");
        assert!(cluster.ok(&["node", "list"]).contains(&format!("({host}) is gray")));
        let is_free = |file: u64| {
            let hosts = hosts(&cluster, &format!("/f{file}"));
            hosts.len() == 3 && !hosts.contains(&host)
        };
        wait_for("every file to do without it", BOUND, || (0..FILES).all(is_free));
        let before = written.load(Ordering::Relaxed);
        wait_for("more writes", BOUND, || written.load(Ordering::Relaxed) > before + 100);
        drop(slowed);
        wait_for("the node to be well again", BOUND, || node(&cluster, &host)["gray"].is_null());
        let mut made = 0;
        wait_for("a new file there", BOUND, || {
            made += 1;
            std::fs::write(mount.join(format!("new{made}")), b"new").unwrap();
            hosts(&cluster, &format!("/new{made}")).contains(&host)
        });
        drop(end);
        for writer in writers {
            writer.join().unwrap().expect("no write fails for a slow node");
        }
    });
    let log = std::fs::read_to_string(cluster.dir().join("log/master.log")).unwrap();
    let lines_with = |sentence: &str| log.lines().filter(|line| line.contains(sentence)).count();
    assert!(
        lines_with("node is gray: slow beyond its peers") >= 1 && lines_with("node is not gray any more") >= 1,
        "{log}"
    );
    cluster.healthy();
}
