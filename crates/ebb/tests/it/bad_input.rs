//! Bad input gets a clear error, and nothing is lost.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::harness::{Cluster, pattern};

#[test]
fn usage_errors_end_with_exit_code_2() {
    let cluster = Cluster::none();
    for arguments in [
        vec!["cluster", "up"],
        vec!["cluster", "up", "--nodes", "0"],
        vec!["cluster", "up", "--nodes", "three"],
        vec!["frobnicate"],
        vec!["fs", "ls", "relative"],
    ] {
        let run = cluster.ebb(&arguments);
        assert!(!run.err.trim().is_empty() && run.code == 2, "{arguments:?}: {} {}", run.code, run.err);
    }
    let run = cluster.ebb(&["cluster", "status"]);
    assert_eq!(run.code, 1);
    assert!(run.err.contains("`ebb cluster up --dir"), "{}", run.err);
}

#[test]
fn a_directory_with_other_things_in_it_is_left_alone() {
    let cluster = Cluster::none();
    std::fs::create_dir_all(cluster.dir()).unwrap();
    std::fs::write(cluster.dir().join("precious"), "x").unwrap();
    let run = cluster.ebb(&["cluster", "up", "--nodes", "1"]);
    assert_eq!(run.code, 3, "{}", run.err);
    assert!(run.err.contains("no cluster.toml"), "{}", run.err);
    assert_eq!(std::fs::read_dir(cluster.dir()).unwrap().count(), 1);
}

#[test]
fn an_unreadable_config_is_named() {
    let cluster = Cluster::none();
    std::fs::create_dir_all(cluster.dir()).unwrap();
    std::fs::write(cluster.dir().join("cluster.toml"), "cluster = 'x'\nmasters = []\nflavour = 'sweet'\n").unwrap();
    let run = cluster.ebb(&["cluster", "status"]);
    assert!(run.code != 0 && run.err.contains("cluster.toml") && run.err.contains("flavour"), "{}", run.err);
}

#[test]
fn strangers_and_garbage_on_the_ports_do_no_harm() {
    let cluster = Cluster::up(3);
    let local = cluster.path("f");
    std::fs::write(&local, pattern(1 << 20, 1)).unwrap();
    cluster.ok(&["fs", "put", local.to_str().unwrap(), "/f"]);
    let status = cluster.json(&["cluster", "status"]);
    for process in status["processes"].as_array().unwrap() {
        let Some(port) = process["port"].as_u64() else { continue };
        for garbage in
            [pattern(100_000, port), b"GET / HTTP/1.1\r\n\r\n".to_vec(), b"EBB1".repeat(1000), vec![0xff; 64]]
        {
            let mut stream = TcpStream::connect(("127.0.0.1", u16::try_from(port).unwrap())).unwrap();
            // The peer may close while we still talk.
            let _ = stream.write_all(&garbage);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            assert!(answer.len() < 4096, "{} bytes for a stranger", answer.len());
        }
    }
    let back = cluster.path("back");
    cluster.ok(&["fs", "get", "/f", back.to_str().unwrap()]);
    assert_eq!(std::fs::read(back).unwrap(), pattern(1 << 20, 1));
    let after = cluster.json(&["cluster", "status"]);
    assert!(after["processes"].as_array().unwrap().iter().all(|process| process["state"] == "running"));
}

#[test]
fn a_second_daemon_on_one_directory_is_refused() {
    let cluster = Cluster::up(2);
    let block = cluster.ebb(&["block", "--host", "h1", "--rack", "r1", "--volumes", "1"]);
    assert_ne!(block.code, 0);
    assert!(block.err.contains("is in use by process"), "{}", block.err);
    let master = cluster.ebb(&["master"]);
    assert_ne!(master.code, 0);
    cluster.healthy();
}

#[test]
fn names_with_odd_bytes_and_long_names_work_or_are_refused_by_name() {
    use std::os::unix::ffi::OsStrExt;
    let cluster = Cluster::up(2);
    let mount = cluster.mount("mnt");
    let odd = std::ffi::OsStr::from_bytes(b"odd \xff\x01\n name");
    std::fs::write(mount.join(odd), b"x").unwrap();
    assert_eq!(std::fs::read(mount.join(odd)).unwrap(), b"x");
    assert_eq!(std::fs::read_dir(&mount).unwrap().next().unwrap().unwrap().file_name(), odd);
    std::fs::write(mount.join("n".repeat(255)), b"x").unwrap();
    let error = std::fs::write(mount.join("n".repeat(256)), b"x").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(36), "{error}");
    let copy = cluster.path("copy");
    cluster.ok(&["fs", "get", "-r", "/", copy.to_str().unwrap()]);
    assert_eq!(std::fs::read(copy.join(odd)).unwrap(), b"x", "the command line keeps bytes that are no text");
    cluster.ok(&["fs", "put", "-r", copy.to_str().unwrap(), "/again"]);
    assert_eq!(std::fs::read(mount.join("again").join(odd)).unwrap(), b"x");
    let deep = format!("/{}", "d/".repeat(3000));
    assert_eq!(cluster.ebb(&["fs", "ls", &deep]).code, 2);
    let nothing = cluster.ebb(&["fs", "ls", "/nothing"]);
    assert_eq!((nothing.code, nothing.err.trim()), (1, "ebb: /nothing does not exist"));
    let second = cluster.ebb(&["mount", mount.to_str().unwrap()]);
    assert_eq!(second.code, 3, "a second mount on one directory: {}", second.err);
}
