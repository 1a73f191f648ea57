//! Up, status, down.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ebb_power_drivers::Process;
use serde_json::Value;

use crate::harness::{Cluster, pattern, shell, wait_for, write_synced};

/// A proxy opens a session when it starts, and a master that has nodes in its log opens none before it has heard from them.
#[test]
fn a_cluster_with_proxies_of_their_own_comes_up_again() {
    let cluster = Cluster::none();
    cluster.ok(&["cluster", "up", "--nodes", "3", "--proxies", "2"]);
    cluster.ok(&["cluster", "down"]);
    cluster.ok(&["cluster", "up", "--nodes", "3"]);
    let status = cluster.json(&["cluster", "status"]);
    let proxies = status["processes"].as_array().unwrap().iter().filter(|process| process["role"] == "proxy");
    assert!(proxies.clone().all(|proxy| proxy["state"] == "running"));
    assert_eq!(proxies.count(), 2);
}

#[test]
fn a_cluster_comes_up_tells_its_state_and_leaves_nothing() {
    let cluster = Cluster::up(3);
    let again = cluster.ebb(&["cluster", "up", "--nodes", "3"]);
    assert_eq!(again.code, 3);
    let master = cluster.pid("master", "");
    assert!(again.err.contains(&format!("already serving (pid {master})")), "{}", again.err);

    wait_for("reports of all nodes", Duration::from_secs(30), || {
        cluster.json(&["cluster", "status"])["safe_start"] == true
    });
    let printed = cluster.ok(&["cluster", "status"]);
    assert!(printed.lines().next().unwrap().ends_with(" serves, metadata: one copy"), "{printed}");
    let status = cluster.json(&["cluster", "status"]);
    assert_eq!(status["serving"], true);
    assert_eq!(status["metadata"], "one copy");
    assert_eq!(status["cluster_id"].as_str().unwrap().len(), 16);
    let processes = status["processes"].as_array().unwrap();
    let blocks: Vec<_> = processes.iter().filter(|process| process["role"] == "block").collect();
    assert_eq!(blocks.len(), 3);
    for block in blocks {
        assert_eq!(block["state"], "running");
        assert!(block["port"].as_u64().unwrap() > 0);
        assert!(std::path::Path::new(block["log"].as_str().unwrap()).exists());
    }

    let nodes = cluster.json(&["node", "list"]);
    let nodes = nodes.as_array().unwrap();
    assert_eq!(nodes.iter().map(|node| node["host"].as_str().unwrap()).collect::<Vec<_>>(), ["h1", "h2", "h3"]);
    assert_eq!(nodes.iter().map(|node| node["id"].as_str().unwrap()).collect::<Vec<_>>(), ["n1", "n2", "n3"]);
    assert!(nodes.iter().all(|node| node["state"] == "live"));
    let racks: std::collections::BTreeSet<_> = nodes.iter().map(|node| node["rack"].as_str().unwrap()).collect();
    assert_eq!(racks.len(), 2);

    let mount = cluster.mount("mnt");
    let pids: Vec<u64> = cluster.json(&["cluster", "status"])["processes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|process| process["pid"].as_u64().unwrap())
        .collect();
    cluster.ok(&["cluster", "down"]);
    for pid in pids {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "process {pid} is left: {state}");
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(mount.to_str().unwrap()), "the mount is left");
}

#[test]
fn repair_settings_of_up_stay_until_the_next_ones() {
    let cluster = Cluster::none();
    let rate = || cluster.json(&["cluster", "status"])["repair"]["rate_bytes_per_sec"].as_u64().unwrap();
    cluster.ok(&["cluster", "up", "--nodes", "1"]);
    assert_eq!(rate(), 200_000_000);
    for (more, wanted) in [(&["--repair-mb-per-s", "7"][..], 7_000_000), (&[], 7_000_000)] {
        cluster.ok(&["cluster", "down"]);
        cluster.ok(&[&["cluster", "up", "--nodes", "1"], more].concat());
        assert_eq!(rate(), wanted);
    }
}

#[test]
fn up_starts_the_missing_processes_and_nothing_else() {
    let cluster = Cluster::up(3);
    let mount = cluster.mount("mnt");
    std::fs::write(mount.join("f"), b"before").unwrap();
    let (master, first, second) = (cluster.pid("master", ""), cluster.pid("block", "h1"), cluster.pid("block", "h2"));
    cluster.kill(master);
    cluster.kill(second);
    let printed = cluster.ok(&["cluster", "up", "--nodes", "3"]);
    assert!(printed.contains("starting the missing processes: master, block-h2\n"), "{printed}");
    assert_ne!(cluster.pid("master", ""), master);
    assert_eq!(cluster.pid("block", "h1"), first);
    assert_eq!(std::fs::read(mount.join("f")).unwrap(), b"before");
    std::fs::write(mount.join("g"), b"after").unwrap();
    assert_eq!(
        cluster.ebb(&["cluster", "up", "--nodes", "1"]).code,
        3,
        "a call that asks for fewer gets the running ones"
    );
}

/// A process as it is after a kill in the middle of disk work: its first thread has ended, another has not.
const HALF_ENDED: &str = "
import ctypes, os, platform, threading
threading.Thread(target=lambda: os.read(0, 1) or os._exit(0)).start()
# The system call itself, that of one thread.
ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[platform.machine()], 0)
";

/// Goal: a process that was killed and has not ended yet does not count as running.
#[test]
fn up_waits_for_killed_processes_that_still_end() {
    let cluster = Cluster::up(1);
    cluster.kill(cluster.pid("worker", "h1"));
    let mut child = Command::new("python3").args(["-c", HALF_ENDED]).stdin(Stdio::piped()).spawn().unwrap();
    let half = Process::find(child.id()).unwrap();
    wait_for("half an end", Duration::from_secs(30), || half.is_ending());
    assert!(half.is_running(), "it may still hold locks and files");
    // It stands in the worker's place.
    let file = cluster.dir().join("run/worker-h1.json");
    let mut record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    record["pid"] = child.id().into();
    record["started"] = half.started().into();
    std::fs::write(&file, record.to_string()).unwrap();
    let printed = std::thread::scope(|scope| {
        let up = scope.spawn(|| cluster.ok(&["cluster", "up", "--nodes", "1"]));
        std::thread::sleep(Duration::from_millis(300));
        drop(child.stdin.take());
        up.join().unwrap()
    });
    assert!(printed.contains("starting the missing processes: worker-h1\n"), "{printed}");
    assert_ne!(cluster.pid("worker", "h1"), child.id());
    child.wait().unwrap();
}

#[test]
fn everything_is_there_after_down_and_up() {
    let cluster = Cluster::up(3);
    let mount = cluster.mount("mnt");
    shell(&format!(
        "cd {} && mkdir -p a/b && echo one > a/b/one && ln -s one a/b/link && ln a/b/one a/two",
        mount.display()
    ));
    std::fs::write(mount.join("large"), crate::harness::pattern(5 << 20, 1)).unwrap();
    let before = shell(&format!("cd {} && find . -printf '%p %s %n %m %T@\\n' | sort && cat a/two", mount.display()));
    cluster.ok(&["cluster", "down"]);
    cluster.ok(&["cluster", "up", "--nodes", "3"]);
    cluster.ok(&["mount", mount.to_str().unwrap()]);
    let after = shell(&format!("cd {} && find . -printf '%p %s %n %m %T@\\n' | sort && cat a/two", mount.display()));
    assert_eq!(before, after);
    assert_eq!(std::fs::read(mount.join("large")).unwrap(), crate::harness::pattern(5 << 20, 1));
    let fsck = cluster.healthy();
    assert_eq!(fsck["missing"], 0);
}

#[test]
fn datasets_keep_their_settings() {
    let cluster = Cluster::up(3);
    cluster.ok(&[
        "dataset",
        "create",
        "/s",
        "--block",
        "512KiB",
        "--metablock",
        "512KiB",
        "--replicas",
        "2",
        "--layout",
        "striped",
        "--replication",
        "single-source",
    ]);
    let shown = cluster.json(&["dataset", "show", "/s"]);
    for (key, value) in [
        ("block", "512KiB"),
        ("metablock", "512KiB"),
        ("layout", "striped"),
        ("replication", "single-source"),
        ("path", "/s"),
    ] {
        assert_eq!(shown[key], value, "{key}");
    }
    assert_eq!(shown["replicas"], 2);
    let local = cluster.path("data");
    std::fs::write(&local, crate::harness::pattern((3 << 20) + 5, 2)).unwrap();
    cluster.ok(&["fs", "put", local.to_str().unwrap(), "/s/data"]);
    let locations = cluster.json(&["fs", "locations", "/s/data"]);
    let metablocks = locations["metablocks"].as_array().unwrap();
    assert_eq!(locations["metablock_size"], 512 << 10);
    assert_eq!(metablocks.len(), 7);
    assert!(metablocks.iter().all(|metablock| metablock["replicas"].as_array().unwrap().len() == 2));
    let sum = shell(&format!("sha256sum {} | cut -d' ' -f1", local.display()));
    assert_eq!(cluster.ok(&["fs", "checksum", "/s/data"]).trim(), sum);
}

#[test]
fn completions_and_manual_pages_come_out() {
    let cluster = Cluster::none();
    let pages = cluster.path("man1");
    std::fs::create_dir(&pages).unwrap();
    cluster.ok(&["man", pages.to_str().unwrap()]);
    let put = std::fs::read_to_string(pages.join("ebb-fs-put.1")).unwrap();
    assert!(put.contains("Copy files from this machine into the file system"), "{put}");
    for shell in ["bash", "zsh", "fish"] {
        assert!(cluster.ok(&["completions", shell]).contains("locations"));
    }
}

/// Everything below a directory that another user could use, with its mode; mounts are not entered.
fn open_to_others(dir: &Path, found: &mut Vec<String>) {
    for path in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        let about = std::fs::symlink_metadata(&path).unwrap();
        if about.mode() & 0o077 != 0 && !about.is_symlink() {
            found.push(format!("{} {:o}", path.display(), about.mode()));
        }
        if about.is_dir() {
            open_to_others(&path, found);
        }
    }
}

#[test]
fn everything_of_a_cluster_is_for_its_owner_alone() {
    let cluster = Cluster::none();
    cluster.ok(&["cluster", "up", "--nodes", "3", "--policy", "always-on"]);
    let mount = cluster.mount("mnt");
    for index in 0..20 {
        write_synced(&mount.join(format!("f{index}")), &pattern(3000, index)).unwrap();
    }
    let check = |when: &str| {
        let (dir, mut found) = (cluster.dir(), Vec::new());
        assert_eq!(std::fs::metadata(&dir).unwrap().mode() & 0o7777, 0o700, "{when}");
        open_to_others(&dir, &mut found);
        assert_eq!(found, Vec::<String>::new(), "{when}");
    };
    check("while it serves");
    cluster.ok(&["cluster", "down"]);
    check("when it is down");

    // As an earlier release made it.
    let widen = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    for directory in ["", "master", "nodes/h1", "nodes/h1/volume-1"] {
        widen(&cluster.dir().join(directory), 0o755);
    }
    for key in ["authority.pem", "identities/operator.pem"].map(|name| cluster.dir().join(name)) {
        widen(&key, 0o640);
        let refused = cluster.ebb(&["cluster", "up", "--nodes", "3"]);
        assert_eq!(refused.code, 3, "{}", refused.err);
        assert!(refused.err.contains("has mode 0640") && refused.err.contains("chmod 600"), "{}", refused.err);
        widen(&key, 0o600);
    }
    let printed = cluster.ok(&["cluster", "up", "--nodes", "3"]);
    assert!(printed.contains("had mode 0755, now 0700"), "{printed}");
    check("when it has been narrowed");
    let log = std::fs::read_to_string(cluster.dir().join("log/block-h1.log")).unwrap();
    assert_eq!(log.matches("narrowed a directory of data").count(), 2, "{log}");
    cluster.ok(&["cluster", "down"]);
}

#[test]
fn an_ordinary_user_has_a_cluster_and_its_root_directory() {
    let own = rustix::process::geteuid().as_raw();
    // Nobody's number: no process of this machine has files of it.
    let user = if own == 0 { 65_534 } else { own };
    let temp = tempfile::tempdir().unwrap();
    let home = temp.path().join("home");
    fs::create_dir(&home).unwrap();
    // The build may lie where only its own user can go.
    let program = home.join("ebb");
    fs::copy(env!("CARGO_BIN_EXE_ebb"), &program).unwrap();
    if own == 0 {
        fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(&home, Some(user), Some(user)).unwrap();
    }
    let dir = home.join("c");
    let run = |line: &str, uid: u32| {
        let mut command = Command::new(&program);
        command.args(line.split(' ')).env("EBB_DIR", &dir).current_dir("/");
        if own == 0 {
            command.uid(uid).gid(uid);
        }
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
    };
    let up = run("cluster up --nodes 2", user);
    let made = run("fs mkdir /a", user);
    let listed = run("fs stat / --json", user);
    let other = run("fs ls /", user - 1);
    let down = run("cluster down", user);
    assert_eq!((up.0, made.0, down.0), (0, 0, 0), "{up:?} {made:?} {down:?}");
    let stat: Value = serde_json::from_str(&listed.1).unwrap();
    assert_eq!((&stat["uid"], &stat["gid"]), (&user.into(), &user.into()));
    if own == 0 {
        assert!(other.0 == 3 && other.2.contains("this cluster is "), "{other:?}");
    }
}
