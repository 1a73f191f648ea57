//! The promises of docs/semantics.md beside the great ones, kept, weakened or refused, word for word, by way of two
//! mounts.

use std::io::Write;

use crate::harness::{Cluster, Signal, shell, signal};

/// Shared by the parts: two mounts, and a dataset of its own on the first.
const HEAD: &str = r#"
import ctypes, errno, fcntl, os, signal, subprocess, sys
one, two, other_dataset = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)

def refused(with_errno, work):
    try:
        work()
    except OSError as error:
        assert error.errno == with_errno, (with_errno, error)
    else:
        raise AssertionError(f"not refused with {errno.errorcode[with_errno]}")

def call(function, *arguments):
    if function(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

def fallocate(fd, mode, offset, length):
    call(libc.fallocate, fd, mode, ctypes.c_long(offset), ctypes.c_long(length))

def renameat2(source, target, flags):
    call(libc.renameat2, -100, os.fsencode(source), -100, os.fsencode(target), flags)
"#;

/// Runs the script on a cluster with two mounts.
fn prove(script: &str) {
    let cluster = Cluster::up(3);
    cluster.ok(&["dataset", "create", "/other"]);
    let (one, two) = (cluster.mount("one"), cluster.mount_as("two", "h1"));
    let file = cluster.path("script.py");
    std::fs::write(&file, format!("{HEAD}{script}\nprint(\"good\")\n")).unwrap();
    let (one, two) = (one.display(), two.display());
    assert_eq!(shell(&format!("python3 {} {one} {two} {one}/other", file.display())), "good");
}

/// Reserving, punching and zeroing are kept, with holes where they were made; operations that would shift placement are
/// refused, and so is FIEMAP; the space of a metablock is counted to its last byte.
#[test]
fn ranges_are_reserved_and_punched_and_nothing_that_would_shift_is_done() {
    prove(
        r#"
fd = os.open(f"{one}/ranges", os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b"a" * (1 << 20), 0)
KEEP, PUNCH, COLLAPSE, ZERO, INSERT, UNSHARE = 1, 2, 8, 16, 32, 64
for mode in (COLLAPSE, INSERT, UNSHARE):
    refused(errno.EOPNOTSUPP, lambda: fallocate(fd, mode, 0, 1 << 16))
assert os.pread(fd, 1 << 20, 0) == b"a" * (1 << 20) and os.fstat(fd).st_size == 1 << 20
fallocate(fd, KEEP, 1 << 20, 1 << 20)
assert os.fstat(fd).st_size == 1 << 20
fallocate(fd, PUNCH | KEEP, 1 << 18, 1 << 18)
fallocate(fd, ZERO, 4096, 4096)
assert os.pread(fd, 1 << 18, 1 << 18) == b"\0" * (1 << 18) and os.pread(fd, 4096, 4096) == b"\0" * 4096
# What is punched in the middle is counted all the same; where data is, is told.
assert os.fstat(fd).st_blocks * 512 >= 1 << 20
hole = os.lseek(fd, 0, os.SEEK_HOLE)
assert hole == 1 << 18 and os.lseek(fd, hole, os.SEEK_DATA) == 1 << 19, hole
# FIEMAP: the kernel asks no FUSE file system.
refused(errno.EOPNOTSUPP, lambda: fcntl.ioctl(fd, 0xC020660B, bytearray(32 + 56 * 4)))
"#,
    );
}

/// RENAME_NOREPLACE and RENAME_EXCHANGE are kept, RENAME_WHITEOUT and links to directories refused; names are any bytes, up
/// to 255.
#[test]
fn renames_names_and_links_are_as_on_linux_without_whiteouts() {
    prove(
        r#"
open(f"{one}/a", "w").close()
os.mkdir(f"{one}/directory")
refused(errno.EINVAL, lambda: renameat2(f"{one}/a", f"{one}/b", 4))
assert os.path.exists(f"{one}/a") and not os.path.exists(f"{one}/b")
open(f"{one}/b", "w").close()
refused(errno.EEXIST, lambda: renameat2(f"{one}/a", f"{one}/b", 1))
first, second = os.stat(f"{one}/a").st_ino, os.stat(f"{one}/b").st_ino
renameat2(f"{one}/a", f"{one}/b", 2)
assert (os.stat(f"{two}/a").st_ino, os.stat(f"{two}/b").st_ino) == (second, first)
refused(errno.EPERM, lambda: os.link(f"{one}/directory", f"{one}/linked"))
open(f"{one}/" + "n" * 255, "w").close()
refused(errno.ENAMETOOLONG, lambda: open(f"{one}/" + "n" * 256, "w"))
every = bytes(byte for byte in range(1, 256) if byte != ord("/"))
open(os.fsencode(one) + b"/" + every, "w").close()
assert every in os.listdir(os.fsencode(two))
"#,
    );
}

/// Rename and link between datasets are refused with EXDEV; `mv` copies.
#[test]
fn names_do_not_go_from_one_dataset_to_another() {
    prove(
        r#"
open(f"{one}/here", "w").close()
refused(errno.EXDEV, lambda: os.rename(f"{one}/here", f"{other_dataset}/there"))
refused(errno.EXDEV, lambda: os.link(f"{one}/here", f"{other_dataset}/there"))
subprocess.run(["mv", f"{one}/here", f"{other_dataset}/there"], check=True)
assert os.path.exists(f"{other_dataset}/there") and not os.path.exists(f"{one}/here")
"#,
    );
}

/// atime has the value that was set; reading does not move it.
#[test]
fn reading_moves_no_time() {
    prove(
        r#"
with open(f"{one}/read", "w") as file:
    file.write("x" * 5000)
os.utime(f"{one}/read", ns=(10**18 + 7, 10**18 + 9))
with open(f"{one}/read") as file:
    file.read()
for mount in (one, two):
    status = os.stat(f"{mount}/read")
    assert (status.st_atime_ns, status.st_mtime_ns) == (10**18 + 7, 10**18 + 9), status
"#,
    );
}

/// Names to 255 bytes, values to 64 KiB, 128 KiB together, in three name spaces.
#[test]
fn extended_attributes_have_their_limits() {
    prove(
        r#"
path = f"{one}/attributed"
open(path, "w").close()
long = "user." + "n" * 250
os.setxattr(path, long, b"v")
refused(errno.ERANGE, lambda: os.setxattr(path, long + "n", b"v"))
os.setxattr(path, "user.large", b"w" * 65536)
refused(errno.E2BIG, lambda: os.setxattr(path, "user.larger", b"w" * 65537))
refused(errno.ENOSPC, lambda: [os.setxattr(path, f"user.l{index}", b"w" * 65000) for index in range(3)])
os.setxattr(path, "trusted.t", b"t")
os.setxattr(path, "security.s", b"s")
assert os.getxattr(f"{two}/attributed", long) == b"v"
assert os.getxattr(f"{two}/attributed", "user.large") == b"w" * 65536
"#,
    );
}

/// The kernel gives F_SETLEASE itself, and breaks it for programs of the same mount alone.
#[test]
fn leases_of_programs_are_the_kernel_s_of_one_mount() {
    prove(
        r#"
fd = os.open(f"{one}/leased", os.O_RDONLY | os.O_CREAT)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
signal.signal(signal.SIGIO, signal.SIG_IGN)
# Another mount breaks nothing; a program of the same one does.
os.close(os.open(f"{two}/leased", os.O_WRONLY | os.O_NONBLOCK))
assert fcntl.fcntl(fd, fcntl.F_GETLEASE) == fcntl.F_RDLCK
refused(errno.EAGAIN, lambda: os.open(f"{one}/leased", os.O_WRONLY | os.O_NONBLOCK))
os.close(fd)
"#,
    );
}

/// Locks exclude each other between mounts, and stop no reads or writes.
#[test]
fn locks_keep_no_program_from_writing() {
    prove(
        r#"
with open(f"{one}/locked", "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    with open(f"{two}/locked", "r+") as other:
        refused(errno.EAGAIN, lambda: fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB))
        # Nobody is kept from reading and writing by it.
        other.write("written all the same")
    assert open(f"{one}/locked").read() == "written all the same"
"#,
    );
}

/// Changes through another mount are not reported.
#[test]
fn inotify_hears_of_its_own_mount() {
    prove(
        r#"
fd = libc.inotify_init1(os.O_NONBLOCK)
assert fd >= 0 and libc.inotify_add_watch(fd, os.fsencode(one), 0x100) >= 0
open(f"{two}/by-two", "w").close()
assert os.path.exists(f"{one}/by-two")
refused(errno.EAGAIN, lambda: os.read(fd, 4096))
open(f"{one}/by-one", "w").close()
assert b"by-one" in os.read(fd, 4096)
"#,
    );
}

/// Goal: syncfs(2) promises nothing here. Method: it comes back while no block server could have synced anything.
#[test]
fn sync_of_everything_waits_for_nothing_here() {
    let cluster = Cluster::up(3);
    let mount = cluster.mount("mnt");
    let mut file = std::fs::File::create(mount.join("f")).unwrap();
    file.write_all(b"synced").unwrap();
    file.sync_all().unwrap();
    let servers = ["h1", "h2", "h3"].map(|host| cluster.pid("block", host));
    servers.iter().for_each(|server| signal(*server, Signal::STOP));
    file.write_all(b"not synced").unwrap();
    let answer = rustix::fs::syncfs(&file);
    servers.iter().for_each(|server| signal(*server, Signal::CONT));
    answer.unwrap();
    file.sync_all().unwrap();
}
