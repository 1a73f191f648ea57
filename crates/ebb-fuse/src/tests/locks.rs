//! Locks of fcntl and flock between processes.
//!
//! A lock belongs to a process, so each test runs itself again as a second process: `again` starts the same test with
//! a role in its environment, and the test begins with asking for its role.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::fixture::{Mounted, eventually};

const ROLE: &str = "EBB_FUSE_TEST_ROLE";
const FILE: &str = "EBB_FUSE_TEST_FILE";

/// Another process of this test.
pub struct Other {
    pub child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Other {
    pub fn start(test: &str, role: &str, file: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(FILE, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Waits until the other process prints `word`.
    pub fn hear(&mut self, word: &str) {
        let mut line = String::new();
        while self.lines.read_line(&mut line).unwrap() > 0 {
            if line.trim().ends_with(word) {
                return;
            }
            line.clear();
        }
        panic!("the other process never said {word}");
    }

    /// Lets it go on.
    pub fn go_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The role of this process, if it is the second one, and the file that it is about.
pub fn role() -> Option<(String, std::path::PathBuf)> {
    Some((std::env::var(ROLE).ok()?, std::env::var_os(FILE)?.into()))
}

pub fn say(word: &str) {
    println!("\n{word}");
    std::io::stdout().flush().unwrap();
}

pub fn wait_to_go_on() {
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// fcntl: F_SETLK, F_SETLKW or F_GETLK on a range; what the kernel left in the structure.
fn record_lock(file: &File, command: i32, kind: i32, start: i64, len: i64) -> Result<libc::flock, Errno> {
    // SAFETY: all zero is a valid value of a structure of integers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    (lock.l_start, lock.l_len) = (start, len);
    // SAFETY: the structure outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &mut lock) } {
        0 => Ok(lock),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap()),
    }
}

fn open(path: &Path) -> File {
    fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

#[test]
fn record_locks_hold_between_processes_and_go_with_a_close() {
    if let Some((_, path)) = role() {
        let file = open(&path);
        record_lock(&file, libc::F_SETLK, libc::F_WRLCK, 10, 10).unwrap();
        say("locked");
        wait_to_go_on();
        // Closing any descriptor of the file gives up all locks of the process (fcntl(2)).
        drop(open(&path));
        say("closed");
        wait_to_go_on();
        return drop(file);
    }
    let mounted = Mounted::new();
    let path = mounted.path("f");
    let file = open(&path);
    let mut other =
        Other::start("tests::locks::record_locks_hold_between_processes_and_go_with_a_close", "holder", &path);
    other.hear("locked");
    assert_eq!(record_lock(&file, libc::F_SETLK, libc::F_RDLCK, 0, 0).unwrap_err(), Errno::AGAIN);
    record_lock(&file, libc::F_SETLK, libc::F_WRLCK, 0, 10).unwrap();
    let found = record_lock(&file, libc::F_GETLK, libc::F_WRLCK, 0, 0).unwrap();
    assert_eq!((found.l_type, found.l_start, found.l_len), (libc::F_WRLCK as i16, 10, 10));
    assert_eq!(found.l_pid, other.child.id() as i32);
    other.go_on();
    other.hear("closed");
    record_lock(&file, libc::F_SETLK, libc::F_WRLCK, 0, 0).unwrap();
    assert_eq!(record_lock(&file, libc::F_GETLK, libc::F_WRLCK, 0, 0).unwrap().l_type, libc::F_UNLCK as i16);
    other.go_on();
    drop(file);
    eventually("locks go", || mounted.vfs.state().lock_count() == 0);
}

#[test]
fn flock_and_record_locks_do_not_see_each_other() {
    if let Some((_, path)) = role() {
        let file = open(&path);
        flock(&file, FlockOperation::LockExclusive).unwrap();
        say("locked");
        wait_to_go_on();
        drop(file);
        say("closed");
        return wait_to_go_on();
    }
    let mounted = Mounted::new();
    let path = mounted.path("f");
    let file = open(&path);
    let mut other = Other::start("tests::locks::flock_and_record_locks_do_not_see_each_other", "holder", &path);
    other.hear("locked");
    assert_eq!(flock(&file, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK));
    record_lock(&file, libc::F_SETLK, libc::F_WRLCK, 0, 0).unwrap();
    // A close releases locks of flock. The release of a file comes after its close returned.
    other.go_on();
    other.hear("closed");
    eventually("the lock is free", || flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok());
    // One process, two open files: locks of flock belong to the open file.
    let second = open(&path);
    assert_eq!(flock(&second, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK));
    flock(&file, FlockOperation::Unlock).unwrap();
    flock(&second, FlockOperation::NonBlockingLockShared).unwrap();
}

#[test]
fn a_wait_for_a_lock_ends_with_the_lock_or_with_a_signal() {
    if let Some((role, path)) = role() {
        let file = open(&path);
        say("waiting");
        if role == "flock" {
            flock(&file, FlockOperation::LockExclusive).unwrap();
        } else {
            record_lock(&file, libc::F_SETLKW, libc::F_WRLCK, 0, 0).unwrap();
        }
        return say("granted");
    }
    let test = "tests::locks::a_wait_for_a_lock_ends_with_the_lock_or_with_a_signal";
    let mounted = Mounted::new();
    let path = mounted.path("f");
    let file = open(&path);
    let waiting = |count: usize| mounted.waiting() == count;

    // The lock is granted when the holder releases it.
    record_lock(&file, libc::F_SETLK, libc::F_WRLCK, 5, 1).unwrap();
    let mut other = Other::start(test, "record", &path);
    other.hear("waiting");
    eventually("it waits", || waiting(1));
    record_lock(&file, libc::F_SETLK, libc::F_UNLCK, 5, 1).unwrap();
    other.hear("granted");
    assert!(other.child.wait().unwrap().success());

    // Killed while it waits: the process goes at once and leaves nothing behind.
    flock(&file, FlockOperation::LockExclusive).unwrap();
    record_lock(&file, libc::F_SETLK, libc::F_WRLCK, 5, 1).unwrap();
    for role in ["flock", "record"] {
        let mut other = Other::start(test, role, &path);
        other.hear("waiting");
        eventually("it waits", || waiting(1));
        other.child.kill().unwrap();
        eventually("it is gone", || other.child.try_wait().unwrap().is_some());
        eventually("nobody waits", || waiting(0));
    }
    assert_eq!(mounted.vfs.state().lock_count(), 2);
}
