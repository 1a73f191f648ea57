//! The mount table `/proc/self/mountinfo` (proc_pid_mountinfo(5)), and the state of a mount point.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ebb_types::{Error, Result, err};
use rustix::buffer::spare_capacity;

use crate::server::PID_XATTR;

/// File system type that distinguishes mounts of Ebb from others.
pub const FS_TYPE: &str = "fuse.ebb";

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// Path of the mount point.
    pub path: PathBuf,
    /// Type of the file system.
    pub fs_type: String,
    /// `major:minor`, which also names its entry below `/sys/class/bdi`.
    pub device: String,
}

/// The topmost mount at exactly `path`, which is absolute and free of links.
pub fn find(path: &Path) -> Result<Option<MountEntry>> {
    let table = fs::read("/proc/self/mountinfo").map_err(|error| Error::from_io(&error, "reading the mount table"))?;
    Ok(parse(&table).filter(|entry| entry.path == path).last())
}

fn parse(table: &[u8]) -> impl Iterator<Item = MountEntry> {
    table.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let device = String::from_utf8_lossy(fields.nth(2)?).into_owned();
        let path = PathBuf::from(OsString::from_vec(unescape(fields.nth(1)?)));
        // Optional fields end with a dash; type and source follow.
        let fs_type = fields.skip_while(|field| *field != b"-").nth(1)?;
        Some(MountEntry { path, device, fs_type: String::from_utf8_lossy(fs_type).into_owned() })
    })
}

/// Blanks and backslashes are written as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let digits =
            field.get(at + 1..at + 4).filter(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        match digits {
            Some(digits) if field[at] == b'\\' => {
                out.push(digits.iter().fold(0_u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')));
                at += 4;
            }
            _ => {
                out.push(field[at]);
                at += 1;
            }
        }
    }
    out
}

/// State of a mount point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointState {
    /// A directory on which something may be mounted.
    Free,
    /// A mount of Ebb that process `pid` serves.
    Serving {
        /// Process id, as the process itself sees it.
        pid: u32,
    },
    /// A mount whose process is gone: "Transport endpoint is not connected".
    Stale,
}

/// The absolute path without links.
///
/// This makes no request to a file system that is mounted there. Its process may be dead, or may
/// wait for a dead cluster.
pub fn resolve(path: &Path) -> Result<PathBuf> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            err!(NotFound, "mount point {0} does not exist: make it with `mkdir {0}`", path.display())
        }
        _ => Error::from_io(&error, format!("mount point {}", path.display())),
    };
    match (fs::read_link(path), path.file_name()) {
        // EINVAL: the path exists, and is no link.
        (Err(error), Some(name)) if error.kind() == io::ErrorKind::InvalidInput => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            fs::canonicalize(parent).map(|parent| parent.join(name)).map_err(failed)
        }
        _ => fs::canonicalize(path).map_err(failed),
    }
}

/// Reads the state of a resolved mount point.
pub fn read_state(path: &Path) -> Result<PointState> {
    let mut value = Vec::with_capacity(32);
    match rustix::fs::getxattr(path, PID_XATTR, spare_capacity(&mut value)) {
        Ok(_) => {
            let pid = std::str::from_utf8(&value).ok().and_then(|number| number.parse().ok());
            return pid
                .map(|pid| PointState::Serving { pid })
                .ok_or_else(|| err!(Protocol, "the mount at {} does not tell a process number", path.display()));
        }
        Err(error) if is_disconnected(&error.into()) => return Ok(PointState::Stale),
        // The attribute does not exist: the mount is not ours.
        Err(_) => {}
    }
    match fs::metadata(path) {
        Err(error) if is_disconnected(&error) => Ok(PointState::Stale),
        Err(error) => Err(Error::from_io(&error, format!("mount point {}", path.display()))),
        Ok(metadata) if metadata.is_dir() => Ok(PointState::Free),
        Ok(_) => Err(err!(NotDirectory, "mount point {} is not a directory", path.display())),
    }
}

/// ENOTCONN: the process behind a FUSE mount is gone. ECONNABORTED: its connection was cut.
fn is_disconnected(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED))
}

/// Names and ids of some processes that keep a mount busy, for messages. The search takes `span`
/// at most.
///
/// The kernel locks a starting process until its copies of its parent's files are flushed and
/// closed. If such a file is on a mount that does not answer, a look at the process waits as long.
#[must_use]
pub fn users_of(path: &Path, span: Duration) -> String {
    const SHOWN_MAX: usize = 4;
    let (sender, found) = mpsc::channel();
    let path = path.to_owned();
    let look = move || find_users(&path, &mut |user| sender.send(user).is_ok());
    if let Err(error) = thread::Builder::new().name("ebb-users".into()).spawn(look) {
        tracing::debug!(%error, "nobody looks for who keeps the mount busy");
    }
    let end = Instant::now() + span;
    let next = || found.recv_timeout(end.saturating_duration_since(Instant::now())).ok();
    std::iter::from_fn(next).take(SHOWN_MAX).collect::<Vec<_>>().join(", ")
}

/// Calls `visit` with each process, until `visit` ends the search.
fn find_users(path: &Path, visit: &mut dyn FnMut(String) -> bool) {
    let Ok(processes) = fs::read_dir("/proc") else { return };
    for process in processes.flatten() {
        let numbered = process.file_name().as_bytes().iter().all(u8::is_ascii_digit);
        if numbered && uses(&process.path(), path) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            if !visit(format!("{} (pid {})", name.trim(), process.file_name().to_string_lossy())) {
                return;
            }
        }
    }
}

fn uses(process: &Path, path: &Path) -> bool {
    let below = |link: PathBuf| fs::read_link(link).is_ok_and(|target| target.starts_with(path));
    below(process.join("cwd"))
        || below(process.join("root"))
        || fs::read_dir(process.join("fd"))
            .is_ok_and(|descriptors| descriptors.flatten().any(|descriptor| below(descriptor.path())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_with_and_without_optional_fields() {
        let table = b"36 35 98:0 /mnt1 /mnt\\040two rw,noatime master:1 - ext4 /dev/root rw\n\
                      40 35 0:47 / /mnt/ebb rw,nosuid - fuse.ebb ebb rw,user_id=0\nbroken\n";
        let entries: Vec<_> = parse(table).collect();
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0].path, Path::new("/mnt two"));
        assert_eq!(entries[1].fs_type, FS_TYPE);
        assert_eq!(entries[1].device, "0:47");
    }

    #[test]
    fn odd_escapes_do_no_harm() {
        assert_eq!(unescape(b"a\\134b\\"), b"a\\b\\");
        assert_eq!(unescape(b"\\9\\777"), b"\\9\xff");
    }

    #[test]
    fn unusable_mount_points_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing");
        let message = resolve(&missing).unwrap_err().to_string();
        assert!(message.contains("does not exist") && message.contains("missing"), "{message}");

        let file = directory.path().join("file");
        fs::write(&file, b"").unwrap();
        let message = read_state(&resolve(&file).unwrap()).unwrap_err().to_string();
        assert!(message.contains("not a directory"), "{message}");
        assert_eq!(read_state(directory.path()).unwrap(), PointState::Free);
    }

    #[test]
    fn users_of_a_directory_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let span = Duration::from_secs(60);
        assert_eq!(users_of(directory.path(), span), "");
        let open = fs::File::create(directory.path().join("file")).unwrap();
        let users = users_of(directory.path(), span);
        assert!(users.contains(&format!("(pid {})", std::process::id())), "{users}");
        drop(open);
    }
}
