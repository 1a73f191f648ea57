//! A mount never shows cached state once another mount has changed it: data, attributes, names that are there and names
//! that are not.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use crate::harness::{Cluster, Signal, signal, wait_for};

/// How often the test below turns; more with this variable.
const TURNS: &str = "EBB_TEST_TURNS";

#[test]
fn alternating_writes_and_reads_of_two_mounts_are_never_stale() {
    let turns: u64 = std::env::var(TURNS).map_or(400, |text| text.parse().expect("a number of turns"));
    let cluster = Cluster::up(3);
    let mounts = [cluster.mount("one"), cluster.mount_as("two", "h1")];
    let open = |mount: &Path| {
        fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(mount.join("shared"))
    };
    let files = [open(&mounts[0]).unwrap(), open(&mounts[1]).unwrap()];
    for turn in 1..=turns {
        // Sides change now and then, so that each mount has pages of its own and of the other's writes.
        let writer = usize::from(turn % 16 >= 8);
        files[writer].write_all_at(&turn.to_le_bytes(), 0).unwrap();
        for _ in 0..2 {
            for (side, file) in files.iter().enumerate() {
                let mut bytes = [0; 8];
                file.read_exact_at(&mut bytes, 0).unwrap();
                assert_eq!(u64::from_le_bytes(bytes), turn, "mount {side} after a write by mount {writer}");
            }
        }
        if turn % 32 == 0 {
            files[writer].set_len(8 + turn % 64).unwrap();
            let seen = fs::metadata(mounts[1 - writer].join("shared")).unwrap().len();
            assert_eq!(seen, 8 + turn % 64);
        }
    }
}

#[test]
fn names_and_attributes_change_for_all_at_once() {
    let cluster = Cluster::up(1);
    let mounts = [cluster.mount("one"), cluster.mount_as("two", "h1")];
    fs::create_dir_all(mounts[0].join("d/sub")).unwrap();
    for turn in 0..60 {
        let (here, there) = (mounts[turn % 2].join("d"), mounts[(turn + 1) % 2].join("d"));
        let name = format!("f{turn}");
        // Both know, from a look a moment ago, that it is not there.
        assert!(!here.join(&name).exists() && !there.join(&name).exists());
        fs::write(here.join(&name), b"x").unwrap();
        assert_eq!(fs::metadata(there.join(&name)).unwrap().len(), 1);
        fs::set_permissions(here.join(&name), fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(fs::metadata(there.join(&name)).unwrap().permissions().mode() & 0o777, 0o640);
        let moved = format!("sub/g{turn}");
        assert!(!there.join(&moved).exists());
        fs::rename(there.join(&name), there.join(&moved)).unwrap();
        assert!(!here.join(&name).exists() && here.join(&moved).exists());
        fs::hard_link(here.join(&moved), here.join(&name)).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::nlink(&fs::metadata(there.join(&moved)).unwrap()), 2);
        fs::remove_file(there.join(&name)).unwrap();
        fs::remove_file(here.join(&moved)).unwrap();
        assert!(!there.join(&moved).exists() && !here.join(&name).exists());
        // The directory itself moves away under the other's feet, and another takes its name.
        fs::rename(here.join("sub"), here.join("old")).unwrap();
        fs::create_dir(here.join("sub")).unwrap();
        assert_eq!(fs::read_dir(there.join("sub")).unwrap().count(), 0);
        assert!(there.join("old").exists());
        fs::remove_dir(there.join("old")).unwrap();
    }
}

#[test]
fn both_make_names_in_one_directory_at_once() {
    let cluster = Cluster::up(1);
    let mounts = [cluster.mount("one"), cluster.mount_as("two", "h1")];
    fs::create_dir(mounts[0].join("d")).unwrap();
    std::thread::scope(|scope| {
        for (side, mount) in mounts.iter().enumerate() {
            scope.spawn(move || {
                for turn in 0..100 {
                    fs::create_dir(mount.join(format!("d/{side}-{turn}"))).unwrap();
                    assert!(mount.join(format!("d/{side}-{turn}")).exists());
                }
            });
        }
    });
    for mount in &mounts {
        assert_eq!(fs::read_dir(mount.join("d")).unwrap().count(), 200);
    }
}

#[test]
fn a_frozen_mount_holds_others_up_for_its_time_and_wakes_up_to_the_truth() {
    let cluster = Cluster::up(1);
    let mounts = [cluster.mount("one"), cluster.mount_as("two", "h1")];
    fs::create_dir(mounts[0].join("d")).unwrap();
    fs::write(mounts[0].join("d/f"), b"old").unwrap();
    // Now mount two keeps the names, the attributes and the bytes.
    assert_eq!(fs::read(mounts[1].join("d/f")).unwrap(), b"old");
    assert!(!mounts[1].join("d/new").exists());
    let frozen = cluster.pid("mount", "h1");
    signal(frozen, Signal::STOP);
    let done = (fs::write(mounts[0].join("d/new"), b"made"), fs::remove_file(mounts[0].join("d/f")));
    signal(frozen, Signal::CONT);
    done.0.unwrap();
    done.1.unwrap();
    assert_eq!(fs::read(mounts[1].join("d/new")).unwrap(), b"made");
    assert!(!mounts[1].join("d/f").exists());
}

#[test]
fn a_restart_of_the_master_leaves_nothing_stale_in_a_mount() {
    let cluster = Cluster::up(1);
    let mounts = [cluster.mount("one"), cluster.mount_as("two", "h1")];
    fs::create_dir(mounts[0].join("d")).unwrap();
    for round in 0..3 {
        let name = format!("d/f{round}");
        assert!(!mounts[1].join(&name).exists());
        cluster.kill(cluster.pid("master", ""));
        cluster.ok(&["cluster", "up", "--nodes", "1"]);
        fs::write(mounts[0].join(&name), b"x").unwrap();
        assert!(mounts[1].join(&name).exists(), "round {round}");
        fs::set_permissions(mounts[1].join(&name), fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(fs::metadata(mounts[0].join(&name)).unwrap().permissions().mode() & 0o777, 0o600);
    }
    wait_for("files on both sides", Duration::from_secs(30), || {
        mounts.iter().all(|mount| fs::read_dir(mount.join("d")).unwrap().count() == 3)
    });
}

#[test]
fn a_shell_stays_in_its_directory_while_others_change_names() {
    let cluster = Cluster::up(1);
    let mounts = [cluster.mount("one"), cluster.mount_as("two", "h1")];
    fs::create_dir_all(mounts[0].join("a/b")).unwrap();
    let script = "cd a/b; for i in 1 2 3 4 5 6 7 8 9 10; do pwd -P; ls .. >/dev/null; read line; done";
    let mut shell = std::process::Command::new("sh")
        .args(["-ec", script])
        .current_dir(&mounts[1])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut feed = shell.stdin.take().unwrap();
    for turn in 0..10 {
        fs::create_dir(mounts[0].join(format!("a/n{turn}"))).unwrap();
        // The path is walked by another process, which finds every name void.
        assert!(mounts[1].join("a/b").exists() && mounts[1].join(format!("a/n{turn}")).exists());
        std::io::Write::write_all(&mut feed, b"go\n").unwrap();
    }
    let output = shell.wait_with_output().unwrap();
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.lines().count() == 10 && printed.lines().all(|line| line.ends_with("/a/b")), "{printed}");
}
