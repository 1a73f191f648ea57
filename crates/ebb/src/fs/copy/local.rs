//! A new file on this machine, which gets its name when it is complete.
//!
//! The file has no name until then (O_TMPFILE), so the kernel frees it if this process ends. A file system that does
//! not know such files gets one under a temporary name.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{ErrorKind as IoKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ebb_types::{Error, FileKind, Result, WallTime};
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use tempfile::NamedTempFile;

use super::landing::{Verdict, exists, judge_target};
use super::{Attributes, Copied, Existing, Kept, Rules};
use crate::fs::umask;

/// Where a copy to this machine goes.
pub(super) enum Target {
    /// A device, FIFO or socket: bytes are written to it as they come.
    InPlace(File),
    /// A name that nothing has, or a file that is replaced.
    Name(PathBuf),
    /// A file that exists and stays.
    Kept,
}

/// Judges a target on this machine.
///
/// # Errors
/// `Exists` if it may not be replaced, `IsDirectory` if it is a directory, or the system's error.
pub(super) fn judge_path(path: &Path, existing: Existing) -> Result<Target> {
    let failed = |error: std::io::Error| Error::from_io(&error, path.display());
    let own = match fs::symlink_metadata(path) {
        Ok(own) => own,
        Err(error) if error.kind() == IoKind::NotFound => return Ok(Target::Name(path.to_owned())),
        Err(error) => return Err(failed(error)),
    };
    // A link to a device stands for the device (/dev/stdout), and one to a file for the file.
    let behind = fs::metadata(path).ok();
    if behind.as_ref().is_some_and(is_special) {
        return fs::OpenOptions::new().write(true).open(path).map(Target::InPlace).map_err(failed);
    }
    let kind = if behind.as_ref().unwrap_or(&own).is_dir() { FileKind::Directory } else { FileKind::File };
    match judge_target(Some(kind), existing)? {
        Verdict::Skip => Ok(Target::Kept),
        Verdict::Copy if own.is_symlink() && behind.is_some() => path.canonicalize().map(Target::Name).map_err(failed),
        Verdict::Copy => Ok(Target::Name(path.to_owned())),
    }
}

fn is_special(metadata: &Metadata) -> bool {
    let kind = metadata.file_type();
    kind.is_char_device() || kind.is_block_device() || kind.is_fifo() || kind.is_socket()
}

/// A file that is being written and has no name yet, or a temporary one.
pub(super) enum LocalLanding {
    Unnamed(File),
    Temporary(NamedTempFile),
}

impl LocalLanding {
    /// A new file for this path, with these permission bits.
    pub fn create(path: &Path, mode: u32) -> Result<Self> {
        let directory = directory_of(path);
        let unnamed = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        if let Ok(file) = rustix::fs::open(directory, unnamed, Mode::from_raw_mode(mode & 0o777)) {
            return Ok(Self::Unnamed(file.into()));
        }
        let file = tempfile::Builder::new()
            .prefix(".ebb-copy-")
            .permissions(Permissions::from_mode(mode & 0o777 & !umask()))
            .tempfile_in(directory);
        file.map(Self::Temporary).map_err(|error| Error::from_io(&error, directory.display()))
    }

    /// The file, for writing.
    pub fn file(&mut self) -> &mut File {
        match self {
            Self::Unnamed(file) => file,
            Self::Temporary(file) => file.as_file_mut(),
        }
    }

    /// Sets the attributes that the file keeps, and gives it its name.
    ///
    /// # Errors
    /// `Exists` if a file has got the name meanwhile and may not be replaced, or the system's error.
    pub fn finish(mut self, path: &Path, rules: Rules, kept: &Kept, bytes: u64) -> Result<Copied> {
        let failed = |error: std::io::Error| Error::from_io(&error, path.display());
        self.file().flush().map_err(failed)?;
        if rules.attributes == Attributes::All {
            keep(self.file(), kept).map_err(|error| failed(error.into()))?;
        }
        let named = match self {
            Self::Unnamed(file) => name_unnamed(&file, path, rules.existing),
            Self::Temporary(file) if rules.existing == Existing::Replace => {
                file.persist(path).map(drop).map_err(|error| error.error)
            }
            Self::Temporary(file) => file.persist_noclobber(path).map(drop).map_err(|error| error.error),
        };
        match named {
            Err(error) if error.kind() == IoKind::AlreadyExists && rules.existing == Existing::Skip => {
                Ok(Copied::Skipped)
            }
            Err(error) if error.kind() == IoKind::AlreadyExists => Err(exists()),
            named => named.map(|()| Copied::File(bytes)).map_err(failed),
        }
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Gives an open file without a name its name. A file in its place is replaced in one step.
fn name_unnamed(file: &File, path: &Path, existing: Existing) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    // Every user may link by this way; AT_EMPTY_PATH needs a capability.
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    let link = |to: &Path| rustix::fs::linkat(CWD, &open, CWD, to, AtFlags::SYMLINK_FOLLOW);
    if existing != Existing::Replace {
        return Ok(link(path)?);
    }
    let temporary = tempfile::Builder::new().prefix(".ebb-copy-").make_in(directory_of(path), |at| Ok(link(at)?))?;
    temporary.into_temp_path().persist(path).map_err(|error| error.error)
}

fn keep(file: &File, kept: &Kept) -> rustix::io::Result<()> {
    let mut mode = kept.mode;
    if rustix::process::geteuid().is_root() {
        rustix::fs::fchown(file.as_fd(), Some(Uid::from_raw(kept.uid)), Some(Gid::from_raw(kept.gid)))?;
    } else {
        mode &= 0o1777;
    }
    rustix::fs::fchmod(file.as_fd(), Mode::from_raw_mode(mode))?;
    let times = Timestamps { last_access: timespec(kept.atime), last_modification: timespec(kept.mtime) };
    rustix::fs::futimens(file.as_fd(), &times)
}

fn timespec(time: WallTime) -> Timespec {
    Timespec { tv_sec: time.0.div_euclid(1_000_000_000), tv_nsec: time.0.rem_euclid(1_000_000_000) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: Kept = Kept { mode: 0o640, uid: 0, gid: 0, atime: WallTime(1), mtime: WallTime(1_000_000_002) };

    fn copy(path: &Path, existing: Existing, attributes: Attributes, content: &[u8]) -> Result<Copied> {
        let Target::Name(path) = judge_path(path, existing)? else { return Ok(Copied::Skipped) };
        let mut landing = LocalLanding::create(&path, 0o644)?;
        landing.file().write_all(content).unwrap();
        landing.finish(&path, Rules { existing, attributes }, &KEPT, content.len() as u64)
    }

    #[test]
    fn a_file_appears_whole_and_is_replaced_only_if_the_rules_say_so() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let mut landing = LocalLanding::create(&path, 0o644).unwrap();
        landing.file().write_all(b"half").unwrap();
        drop(landing);
        assert!(!path.exists(), "a copy that was given up leaves nothing");
        copy(&path, Existing::Refuse, Attributes::Mode, b"one").unwrap();
        assert!(copy(&path, Existing::Refuse, Attributes::Mode, b"two").is_err());
        assert_eq!(copy(&path, Existing::Skip, Attributes::Mode, b"two").unwrap(), Copied::Skipped);
        assert_eq!(fs::read(&path).unwrap(), b"one");
        copy(&path, Existing::Replace, Attributes::All, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.permissions().mode() & 0o777, Kept::from(&metadata).mtime), (0o640, KEPT.mtime));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary name is left");
    }

    #[test]
    fn links_lead_to_their_files_and_devices_are_written_in_place() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("f"), directory.path().join("link"));
        fs::write(&file, b"old").unwrap();
        std::os::unix::fs::symlink("f", &link).unwrap();
        copy(&link, Existing::Replace, Attributes::Mode, b"new").unwrap();
        assert!(link.is_symlink() && fs::read(&file).unwrap() == b"new");
        assert!(matches!(judge_path(Path::new("/dev/null"), Existing::Refuse), Ok(Target::InPlace(_))));
        assert!(judge_path(directory.path(), Existing::Replace).is_err());
    }
}
