//! Mounts that are killed, and files that end with them.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, OFlags, linkat, statvfs};
use rustix::io::Errno;

use crate::harness::{Cluster, pattern, wait_for};

/// The session would live for ten minutes, and an operation fails after half of one.
#[test]
fn a_mount_killed_beside_a_block_server_keeps_no_other_waiting() {
    let cluster = Cluster::none();
    cluster.ok(&["cluster", "up", "--nodes", "3", "--session-ttl-ms", "600000"]);
    let killed = cluster.mount_as("killed", "h1");
    let pid = cluster.pid("mount", "h1");
    let other = cluster.mount_as("other", "h2");
    let file = File::create(killed.join("f")).unwrap();
    file.write_all_at(b"synced", 0).unwrap();
    file.sync_all().unwrap();
    // The block server of its host knows of its session when it has been asked by it.
    std::fs::write(killed.join("big"), pattern(1 << 20, 1)).unwrap();
    assert_eq!(std::fs::read(killed.join("big")).unwrap().len(), 1 << 20);
    cluster.kill(pid);
    drop(file);
    let file = OpenOptions::new().read(true).write(true).open(other.join("f")).unwrap();
    file.write_all_at(b" and more", 6).unwrap();
    assert_eq!(std::fs::read(other.join("f")).unwrap(), b"synced and more");
}

fn unnamed(directory: &Path, flags: OFlags) -> File {
    let flags = OFlags::TMPFILE.union(flags).bits().cast_signed();
    OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(flags).open(directory).unwrap()
}

fn link(file: &File, path: &Path) -> Result<(), Errno> {
    let descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file));
    linkat(CWD, descriptor, CWD, path, AtFlags::SYMLINK_FOLLOW)
}

/// Inodes in use.
fn inodes(mount: &Path) -> u64 {
    let space = statvfs(mount).unwrap();
    space.f_files - space.f_ffree
}

#[test]
fn files_without_a_name_get_one_or_vanish() {
    let cluster = Cluster::up(3);
    let (mount, other) = (cluster.mount_as("a", "h1"), cluster.mount_as("b", "h2"));
    let before = inodes(&other);
    let (named, private, open) =
        (unnamed(&mount, OFlags::empty()), unnamed(&mount, OFlags::EXCL), unnamed(&mount, OFlags::empty()));
    for file in [&named, &private, &open] {
        file.write_all_at(&pattern(200_000, 1), 0).unwrap();
    }
    assert_eq!(std::fs::read_dir(&other).unwrap().count(), 0, "no mount sees them");
    named.sync_all().unwrap();
    link(&named, &mount.join("named")).unwrap();
    assert_eq!(std::fs::read(other.join("named")).unwrap(), pattern(200_000, 1));
    assert_eq!(link(&private, &mount.join("private")), Err(Errno::NOENT));
    drop(private);
    wait_for("end of a file that was closed", Duration::from_secs(60), || inodes(&other) == before + 2);

    // It survives the master.
    cluster.kill(cluster.pid("master", ""));
    cluster.ok(&["cluster", "up", "--nodes", "3"]);
    open.write_all_at(b"still here", 200_000).unwrap();
    open.sync_all().unwrap();
    let mut read = [0; 10];
    open.read_exact_at(&mut read, 200_000).unwrap();
    assert_eq!(&read, b"still here");

    // But not the mount.
    cluster.kill(cluster.pid("mount", "h1"));
    drop(open);
    wait_for("end of a file whose mount was killed", Duration::from_secs(60), || inodes(&other) == before + 1);
    assert_eq!(std::fs::read(other.join("named")).unwrap(), pattern(200_000, 1));
    cluster.healthy();
}
