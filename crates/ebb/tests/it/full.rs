//! Full disks: refused when it is asked for, nothing is lost, and service goes on when there is space again.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::harness::{Cluster, pattern, wait_for, write_synced};

const MIB: usize = 1 << 20;

/// A small file system of its own in the place of a directory.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// With the contents of the directory.
    fn under(dir: &Path, away: &Path, mib: usize) -> Self {
        std::fs::rename(dir, away).unwrap();
        std::fs::create_dir(dir).unwrap();
        as_root(&["mount", "-t", "tmpfs", "-o", &format!("size={mib}m,mode=0777"), "tmpfs", dir.to_str().unwrap()]);
        let copied = Command::new("cp").arg("-a").arg(away.join(".")).arg(dir).status().unwrap();
        assert!(copied.success());
        Self(dir.to_owned())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        as_root(&["umount", "--lazy", self.0.to_str().unwrap()]);
    }
}

fn as_root(command: &[&str]) {
    let root = rustix::process::geteuid().is_root();
    let sudo: &[&str] = if root { &[] } else { &["sudo", "-n"] };
    let all = [sudo, command].concat();
    let output = Command::new(all[0]).args(&all[1..]).output().unwrap();
    assert!(output.status.success(), "{all:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_full_node_refuses_writes_loses_nothing_and_goes_on_with_space() {
    let cluster = Cluster::up(3);
    cluster.ok(&["cluster", "down"]);
    let disk = SmallDisk::under(&cluster.dir().join("nodes/h1"), &cluster.path("away"), 128);
    cluster.ok(&["cluster", "up", "--nodes", "3"]);
    let mount = cluster.mount("mnt");
    let room = cluster.json(&["fs", "df"])["available_bytes"].as_u64().unwrap();
    assert!((32 << 20..128 << 20).contains(&room), "the smallest of three nodes is the limit: {room}");
    // Every name that was acknowledged, until there is no room.
    let mut written = 0;
    let refused = loop {
        match write_synced(&mount.join(format!("f{written}")), &pattern(MIB, written)) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 128, "the disk is not that large");
    };
    assert_eq!(refused.kind(), ErrorKind::StorageFull, "{refused}");
    assert!(written > 10, "only {written} MiB found room");
    for index in 0..written {
        assert_eq!(std::fs::read(mount.join(format!("f{index}"))).unwrap(), pattern(MIB, index));
    }
    assert_eq!(cluster.json(&["fsck"])["missing"], 0);
    for index in 0..written / 2 {
        std::fs::remove_file(mount.join(format!("f{index}"))).unwrap();
    }
    wait_for("space to be used again", Duration::from_secs(60), || {
        write_synced(&mount.join("again"), &pattern(4 * MIB, 7)).is_ok()
    });
    assert_eq!(std::fs::read(mount.join("again")).unwrap(), pattern(4 * MIB, 7));
    for index in written / 2..written {
        assert_eq!(std::fs::read(mount.join(format!("f{index}"))).unwrap(), pattern(MIB, index));
    }
    cluster.healthy();
    cluster.ok(&["cluster", "down"]);
    drop(disk);
}

#[test]
fn a_master_without_space_takes_removals_and_goes_on_with_space() {
    let cluster = Cluster::up(3);
    cluster.ok(&["cluster", "down"]);
    let dir = cluster.dir().join("master");
    let disk = SmallDisk::under(&dir, &cluster.path("away"), 64);
    cluster.ok(&["cluster", "up", "--nodes", "3"]);
    let mount = cluster.mount("mnt");
    std::fs::write(mount.join("before"), pattern(5000, 1)).unwrap();
    // Other data fill the disk to the last byte.
    let mut ballast = File::create(dir.join("ballast")).unwrap();
    while ballast.write_all(&[1; 4096]).is_ok() {}
    let mut made = 0;
    let refused = loop {
        let directory = mount.join(format!("d{made}"));
        let flags = rustix::fs::XattrFlags::CREATE;
        let made_one = std::fs::create_dir(&directory)
            .and_then(|()| Ok(rustix::fs::setxattr(&directory, "user.large", &[7; 30_000], flags)?));
        match made_one {
            Ok(()) => made += 1,
            Err(error) => break error,
        }
        assert!(made < 10_000, "the log is not that long");
    };
    let made = std::fs::read_dir(&mount).unwrap().count();
    assert_eq!(refused.kind(), ErrorKind::StorageFull, "{refused}");
    assert_eq!(std::fs::read(mount.join("before")).unwrap(), pattern(5000, 1));
    for command in [["cluster", "status"], ["fsck", "--repair"]] {
        let run = cluster.ebb(&command);
        assert!(
            run.code == 1 && run.out.contains("the master's disk is full: "),
            "{command:?}: {}{}",
            run.out,
            run.err
        );
    }
    let log = std::fs::read_to_string(cluster.dir().join("log/master.log")).unwrap();
    assert_eq!(log.matches("changes that grow something are refused").count(), 1, "{log}");
    std::fs::remove_dir(mount.join("d0")).expect("an operation that makes the state smaller is accepted");
    drop(ballast);
    std::fs::remove_file(dir.join("ballast")).unwrap();
    wait_for("room in the log", Duration::from_secs(60), || std::fs::create_dir(mount.join("after")).is_ok());
    cluster.ok(&["cluster", "down"]);
    cluster.ok(&["cluster", "up", "--nodes", "3"]);
    let mount = cluster.mount("mnt2");
    assert_eq!(std::fs::read_dir(&mount).unwrap().count(), made - 1 + 1, "one less, one more");
    cluster.ok(&["cluster", "down"]);
    drop(disk);
}
