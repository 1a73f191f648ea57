//! Mount, unmount, and the state after the death of the process.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use ebb_runtime::Runtime;
use ebb_types::ErrorKind;

use super::fixture::{Mounted, eventually};
use super::locks::{Other, role, say, wait_to_go_on};
use super::memory::MemoryVfs;
use crate::kernel::{self, Flags, Unmount};
use crate::mountinfo::{self, PointState};
use crate::session::handshake;
use crate::vfs::EntryDetail;
use crate::{MountOptions, mount_vfs, unmount, unmount_lazily};

fn state_of(path: &Path) -> PointState {
    mountinfo::read_state(&mountinfo::resolve(path).unwrap()).unwrap()
}

#[test]
fn a_mount_ends_when_anybody_unmounts_it() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), b"x").unwrap();
    assert!(matches!(state_of(mounted.root()), PointState::Serving { .. }));
    let status = Command::new("fusermount3").arg("-u").arg(mounted.root()).status().unwrap();
    assert!(status.success());
    let mount = mounted.mount();
    mounted.block_on(async { mount.wait().await.unwrap() });
    assert_eq!(state_of(mounted.root()), PointState::Free);
    // A second unmount is no error: the mount is unmounted as requested.
    mounted.block_on(async { mount.unmount().await.unwrap() });
}

#[test]
fn a_mount_in_use_is_not_unmounted_and_the_user_is_named() {
    let mounted = Mounted::new();
    let file = fs::File::create(mounted.path("f")).unwrap();
    let mount = mounted.mount();
    let error = mounted.block_on(async { mount.unmount().await.unwrap_err() });
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.to_string().contains(&format!("pid {}", std::process::id())), "{error}");
    assert!(matches!(state_of(mounted.root()), PointState::Serving { .. }));
    drop(file);
    // A process that another test starts also has the file open until its exec.
    eventually("the mount is not in use", || mounted.block_on(async { mount.unmount().await }).is_ok());
}

#[test]
fn stopping_cuts_users_off_but_keeps_what_they_wrote() {
    let mounted = Mounted::new();
    let mut file = fs::File::create(mounted.path("f")).unwrap();
    std::io::Write::write_all(&mut file, b"kept").unwrap();
    let inode = mounted.inode("f");
    let mount = mounted.mount();
    mounted.block_on(async { mount.stop().await.unwrap() });
    assert!(std::io::Write::write_all(&mut file, b"more").is_err());
    assert_eq!(mounted.vfs.state().node(inode).data.read(0, 10), b"kept");
    assert_eq!(state_of(mounted.root()), PointState::Free);
}

#[test]
fn files_open_at_a_lazy_unmount_go_on() {
    let mounted = Mounted::new();
    let mut file = fs::File::create(mounted.path("f")).unwrap();
    unmount_lazily(mounted.root()).unwrap();
    assert_eq!(state_of(mounted.root()), PointState::Free);
    std::io::Write::write_all(&mut file, b"late").unwrap();
    drop(file);
    let mount = mounted.mount();
    mounted.block_on(async { mount.wait().await.unwrap() });
    assert_eq!(mounted.vfs.state().nodes.values_mut().filter(|node| node.data.read(0, 9) == b"late").count(), 1);
}

#[test]
fn a_second_mount_at_the_same_place_is_refused_in_words() {
    let mounted = Mounted::new();
    let error = mounted
        .block_on(async {
            let vfs = Arc::new(MemoryVfs::new());
            mount_vfs(&Runtime::real(), vfs, MountOptions::default(), mounted.root(), drop).await
        })
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.to_string().contains("ebb umount"), "{error}");
    let elsewhere = tempfile::tempdir().unwrap();
    let error = unmount(elsewhere.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn a_mount_that_has_lost_its_cluster_is_not_taken_for_dead() {
    let mounted = Mounted::new();
    mounted.vfs.state().lost = true;
    assert_eq!(fs::metadata(mounted.root()).unwrap_err().raw_os_error(), Some(libc::EIO));
    assert_eq!(state_of(mounted.root()), PointState::Serving { pid: std::process::id() });
    unmount(mounted.root()).unwrap();
    assert_eq!(state_of(mounted.root()), PointState::Free);
    // An unmount by our own process does not wait for the end of the mount.
    let mount = mounted.mount();
    mounted.block_on(async { mount.wait().await.unwrap() });
}

/// Serves a mount at `path` until it is unmounted.
fn serve(path: &Path) {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    tokio.block_on(async {
        let vfs = Arc::new(MemoryVfs::new());
        let mount = mount_vfs(&Runtime::real(), vfs, MountOptions::default(), path, drop).await.unwrap();
        say("serving");
        mount.wait().await.unwrap();
        say("ended");
    });
}

#[test]
fn a_mount_whose_process_was_killed_is_cleared() {
    if let Some((_, path)) = role() {
        return serve(&path);
    }
    let test = "tests::life::a_mount_whose_process_was_killed_is_cleared";
    let directory = tempfile::tempdir().unwrap();
    for clear in ["by unmount", "by the next mount"] {
        let mut other = Other::start(test, "server", directory.path());
        other.hear("serving");
        fs::write(directory.path().join("f"), b"x").unwrap();
        other.child.kill().unwrap();
        other.child.wait().unwrap();
        eventually("the mount is dead", || fs::read_dir(directory.path()).is_err());
        assert_eq!(state_of(directory.path()), PointState::Stale);
        if clear == "by unmount" {
            unmount(directory.path()).unwrap();
            assert_eq!(state_of(directory.path()), PointState::Free);
        }
    }
    let mounted = Mounted::at(directory, MountOptions::default());
    fs::write(mounted.path("g"), b"y").unwrap();
    assert_eq!(fs::read_dir(mounted.root()).unwrap().count(), 1);
}

#[test]
fn unmounting_from_another_process_waits_for_the_server() {
    if let Some((_, path)) = role() {
        serve(&path);
        return wait_to_go_on();
    }
    let directory = tempfile::tempdir().unwrap();
    let test = "tests::life::unmounting_from_another_process_waits_for_the_server";
    let mut other = Other::start(test, "server", directory.path());
    other.hear("serving");
    let path = directory.path().to_owned();
    let unmounting = std::thread::spawn(move || unmount(&path));
    other.hear("ended");
    assert!(!unmounting.is_finished(), "the process of the mount is still there");
    other.go_on();
    unmounting.join().unwrap().unwrap();
    assert!(other.child.wait().unwrap().success());
    assert_eq!(state_of(directory.path()), PointState::Free);
}

#[test]
fn the_helper_mounts_what_root_mounts_itself() {
    let directory = tempfile::tempdir().unwrap();
    let flags = Flags { read_only: true, allow_other: true, allow_suid: false, allow_devices: false };
    let device = kernel::mount_by_helper(directory.path(), flags).unwrap();
    let agreement = handshake(&device, 1 << 20, EntryDetail::Names).unwrap();
    assert_eq!(agreement.max_write, 1 << 20);
    assert_eq!(mountinfo::find(directory.path()).unwrap().unwrap().fs_type, mountinfo::FS_TYPE);
    kernel::unmount(directory.path(), Unmount::IfUnused).unwrap();
    let message = kernel::mount_by_helper(Path::new("/nonexistent/ebb"), flags).unwrap_err().to_string();
    assert!(message.contains("/nonexistent/ebb"), "{message}");
}

#[test]
fn a_wait_for_a_lock_does_not_hold_the_end_up() {
    let mounted = Mounted::new();
    fs::write(mounted.path("f"), b"").unwrap();
    let first = fs::File::open(mounted.path("f")).unwrap();
    rustix::fs::flock(&first, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let path = mounted.path("f");
    let waiter = std::thread::spawn(move || {
        let second = fs::File::open(path).unwrap();
        rustix::fs::flock(&second, rustix::fs::FlockOperation::LockExclusive)
    });
    eventually("it waits", || mounted.waiting() == 1);
    let mount = mounted.mount();
    mounted.block_on(async { mount.stop().await.unwrap() });
    assert!(waiter.join().unwrap().is_err());
}
