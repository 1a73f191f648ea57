//! mount(2) and umount(2). Root calls them directly. Other users need the set-user-id helper
//! `fusermount3`.

use std::ffi::CString;
use std::fs;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use ebb_types::{Error, Result, err};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg, socketpair,
};

use crate::device::Device;
use crate::mountinfo;

const HELPER: &str = "fusermount3";

/// Flags of a mount for the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Flags {
    /// The mount refuses every change.
    pub read_only: bool,
    /// Other users may use it.
    pub allow_other: bool,
    /// Programs with set-user-id or set-group-id bits, or with capabilities, run with these rights.
    pub allow_suid: bool,
    /// Device files on the mount open devices of this host.
    pub allow_devices: bool,
}

impl Flags {
    /// The flags in the form of mount(2).
    fn bits(self) -> MountFlags {
        let mut bits = MountFlags::empty();
        bits.set(MountFlags::RDONLY, self.read_only);
        bits.set(MountFlags::NOSUID, !self.allow_suid);
        bits.set(MountFlags::NODEV, !self.allow_devices);
        bits
    }

    /// The flags as options of the helper. It allows `suid` and `dev` only for root.
    fn words(self) -> String {
        let words = [(self.read_only, "ro"), (self.allow_suid, "suid"), (self.allow_devices, "dev")];
        words.iter().filter(|(is_set, _)| *is_set).map(|(_, word)| format!(",{word}")).collect()
    }
}

/// Mounts at `path`. Returns the connection, on which INIT is the first request.
pub fn mount(path: &Path, flags: Flags) -> Result<Device> {
    if rustix::process::geteuid().is_root() { mount_directly(path, flags) } else { mount_by_helper(path, flags) }
}

fn options(flags: Flags) -> String {
    // The kernel checks permission bits and ACL itself, from attributes that it requests.
    let mut options = String::from("default_permissions");
    if flags.allow_other {
        options.push_str(",allow_other");
    }
    options
}

fn mount_directly(path: &Path, flags: Flags) -> Result<Device> {
    let device = Device::open()?;
    let mode = fs::metadata(path).map_err(|error| Error::from_io(&error, path.display()))?.permissions().mode();
    let data = format!(
        "fd={},rootmode={:o},user_id={},group_id={},{}",
        std::os::fd::AsFd::as_fd(&device).as_raw_fd(),
        mode & libc::S_IFMT,
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
        options(flags)
    );
    let data = CString::new(data).expect("options are made of numbers and words");
    rustix::mount::mount("ebb", path, mountinfo::FS_TYPE, flags.bits(), data.as_c_str()).map_err(
        |error| match error {
            Errno::NODEV => err!(Unavailable, "the kernel does not know FUSE: load its module with `modprobe fuse`"),
            Errno::PERM => err!(NotPermitted, "mounting at {} is not permitted here (CAP_SYS_ADMIN)", path.display()),
            _ => Error::from_io(&error.into(), format!("mounting at {}", path.display())),
        },
    )?;
    Ok(device)
}

/// The helper opens the device, mounts it, and sends the descriptor through a socket (fusermount3(1)).
pub(crate) fn mount_by_helper(path: &Path, flags: Flags) -> Result<Device> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|error| Error::from_io(&error.into(), "making a socket for the mount helper"))?;
    let options = format!("{},fsname=ebb,subtype=ebb{}", options(flags), flags.words());
    let child = Command::new(HELPER)
        .args(["-o", &options, "--"])
        .arg(path)
        // Standard input is the one descriptor that a child gets without losing close-on-exec elsewhere.
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| err!(Unavailable, "{HELPER} cannot be run ({error}): install the package fuse3"))?;
    let device = receive_descriptor(&ours);
    let output = child.wait_with_output().map_err(|error| Error::from_io(&error, HELPER))?;
    match device {
        Some(fd) if output.status.success() => Ok(Device::from_fd(fd)),
        _ => {
            let words = words_of(&output);
            let advice = advice(&words).map(|advice| format!("; {advice}")).unwrap_or_default();
            Err(err!(NotPermitted, "mounting at {}: {words}{advice}", path.display()))
        }
    }
}

/// The next step after a refusal of the helper.
fn advice(words: &str) -> Option<&'static str> {
    let known = [
        ("/dev/fuse: Permission denied", "an administrator lets users mount with `chmod 666 /dev/fuse`"),
        ("/dev/fuse: No such", "the kernel's module is missing: `modprobe fuse`, as root"),
        ("no write access to mountpoint", "mount on a directory that is yours"),
        ("user_allow_other", "an administrator allows it with the line user_allow_other in /etc/fuse.conf"),
        ("too many FUSE", "an administrator raises mount_max in /etc/fuse.conf"),
    ];
    known.iter().find(|(mark, _)| words.contains(mark)).map(|(_, advice)| *advice)
}

fn receive_descriptor(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    })
}

fn words_of(output: &Output) -> String {
    let words = String::from_utf8_lossy(&output.stderr);
    match words.trim() {
        "" => format!("{HELPER} ended with {}", output.status),
        words => words.to_owned(),
    }
}

/// Way to end a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Only if it is not in use. Otherwise: error `Busy`, which names some of the users.
    IfUnused,
    /// Detaches the mount at once. Open files still work while the process serves them.
    Lazily,
    /// Detaches the mount at once. Open files get errors.
    Forcibly,
}

/// Ends the mount at `path`.
pub fn unmount(path: &Path, how: Unmount) -> Result<()> {
    let flags = match how {
        Unmount::IfUnused => UnmountFlags::NOFOLLOW,
        Unmount::Lazily => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
        Unmount::Forcibly => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH | UnmountFlags::FORCE,
    };
    match rustix::mount::unmount(path, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(busy(path)),
        Err(Errno::INVAL) => Err(err!(Invalid, "nothing is mounted at {}", path.display())),
        Err(Errno::PERM) => unmount_by_helper(path, how),
        Err(error) => Err(Error::from_io(&error.into(), format!("unmounting {}", path.display()))),
    }
}

/// Maximum time of the search for processes that keep a mount busy.
const LOOK: Duration = Duration::from_secs(2);

fn busy(path: &Path) -> Error {
    let users = match mountinfo::users_of(path, LOOK) {
        users if users.is_empty() => "a process that cannot be seen from here".to_owned(),
        users => users,
    };
    err!(Busy, "{} is in use by {users}: end that first", path.display())
}

fn unmount_by_helper(path: &Path, how: Unmount) -> Result<()> {
    let lazily: &[&str] = if how == Unmount::IfUnused { &["-u"] } else { &["-u", "-z"] };
    let output = Command::new(HELPER)
        .args(lazily)
        .arg("--")
        .arg(path)
        .output()
        .map_err(|error| err!(Unavailable, "{HELPER} cannot be run ({error}): install the package fuse3"))?;
    match words_of(&output) {
        _ if output.status.success() => Ok(()),
        words if words.contains("busy") => Err(busy(path)),
        words => Err(err!(NotPermitted, "unmounting {}: {words}", path.display())),
    }
}

/// Sets the kernel's read-ahead, whose default is 128 KiB. Only root may do so. If it fails, reads
/// are slower.
pub fn set_readahead(path: &Path, bytes: u64) {
    if let Ok(Some(entry)) = mountinfo::find(path) {
        let file = format!("/sys/class/bdi/{}/read_ahead_kb", entry.device);
        if let Err(error) = fs::write(&file, (bytes >> 10).to_string()) {
            tracing::debug!(file, %error, "keep the kernel's read-ahead");
        }
    }
}
