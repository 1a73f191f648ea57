//! Names, attributes, links and extended attributes through system calls.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use ebb_types::{Credentials, FileKind, InodeId};
use rustix::fs::{AtFlags, CWD, RenameFlags, Timespec, Timestamps, XattrFlags, renameat_with, utimensat};
use rustix::io::Errno;

use super::fixture::Mounted;
use crate::MountOptions;

#[test]
fn files_are_made_found_moved_and_removed() {
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("d")).unwrap();
    fs::write(mounted.path("d/a"), b"alpha").unwrap();
    fs::hard_link(mounted.path("d/a"), mounted.path("d/b")).unwrap();
    symlink("a", mounted.path("d/l")).unwrap();
    assert_eq!(fs::read(mounted.path("d/l")).unwrap(), b"alpha");
    assert_eq!(fs::read_link(mounted.path("d/l")).unwrap(), Path::new("a"));
    assert_eq!(fs::metadata(mounted.path("d/b")).unwrap().nlink(), 2);

    fs::rename(mounted.path("d/a"), mounted.path("a")).unwrap();
    assert_eq!(fs::read(mounted.path("a")).unwrap(), b"alpha");
    assert_eq!(fs::metadata(mounted.path("d/a")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fs::remove_dir(mounted.path("d")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    fs::remove_file(mounted.path("d/b")).unwrap();
    fs::remove_file(mounted.path("d/l")).unwrap();
    fs::remove_dir(mounted.path("d")).unwrap();
    assert_eq!(fs::read_dir(mounted.root()).unwrap().count(), 1);
    assert_eq!(fs::metadata(mounted.path(&"n".repeat(256))).unwrap_err().raw_os_error(), Some(libc::ENAMETOOLONG));
}

#[test]
fn rename_knows_its_flags() {
    let mounted = Mounted::new();
    let rename = |from: &str, to: &str, flags| renameat_with(CWD, mounted.path(from), CWD, mounted.path(to), flags);
    fs::write(mounted.path("a"), b"a").unwrap();
    fs::write(mounted.path("b"), b"b").unwrap();

    assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("a", "c", RenameFlags::NOREPLACE).unwrap();
    rename("c", "b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(mounted.path("b")).unwrap(), b"a");
    assert_eq!(fs::read(mounted.path("c")).unwrap(), b"b");
    assert_eq!(rename("c", "d", RenameFlags::EXCHANGE), Err(Errno::NOENT));
    assert_eq!(rename("c", "d", RenameFlags::WHITEOUT), Err(Errno::INVAL));
    rename("c", "b", RenameFlags::empty()).unwrap();
    assert_eq!(fs::read(mounted.path("b")).unwrap(), b"b");
}

/// Goal: after a rename the kernel does not cache a name of whose changes it gets no notification.
///
/// Method: of two directories, only one has names that may be cached. A file is moved from it to
/// the other one, or exchanged. Then another client puts another file there.
#[test]
fn a_name_is_not_believed_because_of_the_name_it_had_before() {
    let mounted = Mounted::new();
    for directory in ["believed", "asked"] {
        fs::create_dir(mounted.path(directory)).unwrap();
    }
    let believed = mounted.inode("believed");
    mounted.vfs.state().kept.insert(believed);
    let elsewhere = |directory: &str, name: &str| {
        let directory = InodeId::new(mounted.inode(directory));
        let mut state = mounted.vfs.state();
        // The old file stays without a name: the kernel looks up a file again if it is gone.
        state.leave(directory, name.as_bytes());
        let new = state.make(&Credentials::root(), FileKind::File, 0o644, 0);
        state.enter(directory, name.as_bytes(), new);
        new
    };
    for (name, flags) in [("a", RenameFlags::empty()), ("b", RenameFlags::EXCHANGE)] {
        let (from, to) = (mounted.path("believed").join(name), mounted.path("asked").join(name));
        fs::write(&from, b"moved").unwrap();
        fs::write(&to, b"replaced").unwrap();
        renameat_with(CWD, &from, CWD, &to, flags).unwrap();
        let new = elsewhere("asked", name);
        assert_eq!(mounted.inode(&format!("asked/{name}")), new, "{flags:?}");
    }
    // Where names may be cached, the kernel uses them until it is notified.
    fs::write(mounted.path("believed/c"), b"moved").unwrap();
    fs::rename(mounted.path("believed/c"), mounted.path("believed/d")).unwrap();
    let old = mounted.inode("believed/d");
    let new = elsewhere("believed", "d");
    if mounted.caches.keeps_names() {
        assert_eq!(mounted.inode("believed/d"), old);
    }
    mounted.caches.forget_names();
    assert_eq!(mounted.inode("believed/d"), new);
}

#[test]
fn attributes_are_set_and_returned() {
    let mounted = Mounted::new();
    let path = mounted.path("f");
    fs::write(&path, b"x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
    std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
    let times = Timestamps {
        last_access: Timespec { tv_sec: -5, tv_nsec: 7 },
        last_modification: Timespec { tv_sec: 1 << 32, tv_nsec: 999_999_999 },
    };
    utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
    let found = fs::metadata(&path).unwrap();
    // The kernel takes set-user-id away when the owner changes; the fixture leaves that to the kernel's request.
    assert_eq!((found.mode() & 0o777, found.uid(), found.gid()), (0o751, 12, 34));
    assert_eq!((found.atime(), found.atime_nsec()), (-5, 7));
    assert_eq!((found.mtime(), found.mtime_nsec()), (1 << 32, 999_999_999));
    assert!(found.created().unwrap() > std::time::UNIX_EPOCH, "statx brings the time of birth");
    assert!(found.size() == 1 && found.blocks() == 8 && found.blksize() == 1 << 20);
}

#[test]
fn every_kind_of_node_is_made() {
    let mounted = Mounted::with(MountOptions { allow_devices: true, ..MountOptions::default() });
    let kinds = mounted.shell("mkfifo p; mknod c c 1 3; mknod b b 7 300; chmod 644 c; cat c; stat -c '%F %t %T' p c b");
    assert_eq!(kinds, "fifo 0 0\ncharacter special file 1 3\nblock special file 7 12c\n");
    let socket = std::os::unix::net::UnixListener::bind(mounted.path("s")).unwrap();
    std::os::unix::net::UnixStream::connect(mounted.path("s")).unwrap();
    drop(socket);
}

#[test]
fn extended_attributes_come_back_as_they_went() {
    let mounted = Mounted::new();
    let path = mounted.path("f");
    fs::write(&path, b"").unwrap();
    let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
    let get = |name: &str, room: usize| {
        let mut value = vec![0; room];
        rustix::fs::getxattr(&path, name, &mut value[..]).map(|len| value[..len].to_vec())
    };
    set("user.a", b"1", XattrFlags::CREATE).unwrap();
    assert_eq!(set("user.a", b"2", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(set("user.b", b"2", XattrFlags::REPLACE), Err(Errno::NODATA));
    set("user.b", &[7; 60_000], XattrFlags::empty()).unwrap();
    set("trusted.t", b"", XattrFlags::empty()).unwrap();
    assert_eq!(get("user.b", 65_536).unwrap(), [7; 60_000]);
    assert_eq!(get("user.b", 59_999), Err(Errno::RANGE));
    assert_eq!(get("trusted.t", 10).unwrap(), b"");
    let mut names = [0_u8; 100];
    let len = rustix::fs::listxattr(&path, &mut names[..]).unwrap();
    assert_eq!(&names[..len], b"trusted.t\0user.a\0user.b\0");
    assert_eq!(rustix::fs::listxattr(&path, &mut names[..5]), Err(Errno::RANGE));
    rustix::fs::removexattr(&path, "user.a").unwrap();
    assert_eq!(get("user.a", 10), Err(Errno::NODATA));
    // The root has the id of the process that serves the mount. Other inodes do not.
    assert_eq!(get(crate::PID_XATTR, 20), Err(Errno::NODATA));
    let mut pid = [0; 20];
    let len = rustix::fs::getxattr(mounted.root(), crate::PID_XATTR, &mut pid[..]).unwrap();
    assert_eq!(pid[..len], *std::process::id().to_string().as_bytes());
}

#[test]
fn space_is_counted_in_blocks() {
    let mounted = Mounted::new();
    let stat = rustix::fs::statvfs(mounted.root()).unwrap();
    let bytes = [stat.f_blocks, stat.f_bfree, stat.f_bavail].map(|blocks| blocks * stat.f_frsize);
    assert_eq!(bytes, [1 << 40, 1 << 39, 1 << 38], "all, free, free for new data");
    assert_eq!(stat.f_namemax, 255);
    assert_eq!(
        mounted.shell("df --output=source,fstype . | tail -1").split_whitespace().collect::<Vec<_>>(),
        ["ebb", "fuse.ebb"]
    );
}
