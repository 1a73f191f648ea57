//! Directories of data are for their owner alone.
//!
//! A replica, a journal and the master's log hold users' bytes and names, past all permissions that the files have in
//! Ebb. So files are made with mode 0600 in directories with mode 0700. A directory that an earlier release made with a
//! wider mode is narrowed: others can then reach nothing below it, in spite of the modes there.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ebb_types::{Error, Result, err};
use rustix::fs::Mode;

/// Files.
pub(super) const FILE: Mode = Mode::from_raw_mode(0o600);
/// Directories.
pub(super) const DIRECTORY: Mode = Mode::from_raw_mode(0o700);
/// The bits of a mode that let others in.
const OTHERS: u32 = 0o077;

/// Removes other users' access to a directory of data, and says so in the log.
///
/// Errors: `NotPermitted` if the directory belongs to another user, so that this process cannot narrow it.
pub(super) fn narrow(directory: &Path) -> Result<()> {
    let found = std::fs::metadata(directory).map_err(|error| Error::from_io(&error, directory.display()))?;
    let mode = found.mode() & 0o7777;
    if mode & OTHERS == 0 {
        return Ok(());
    }
    let narrower = mode & !OTHERS;
    rustix::fs::chmod(directory, Mode::from_raw_mode(narrower)).map_err(|errno| {
        err!(
            NotPermitted,
            "{0} has mode {mode:04o}: other users of this machine could read data past all permissions, and this process \
             cannot narrow it ({errno}). As user {1}: `chmod go-rwx {0}`",
            directory.display(),
            found.uid()
        )
    })?;
    tracing::warn!(
        directory = %directory.display(),
        "narrowed a directory of data from mode {mode:04o} to {narrower:04o}: other users of this machine could enter it"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::{OpenMode, Runtime};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[tokio::test]
    async fn a_made_file_is_for_its_owner_alone() {
        let temp = tempfile::tempdir().unwrap();
        let disk = Runtime::real().disk();
        let directory = temp.path().join("above/data");
        disk.create_dir_all(&directory).await.unwrap();
        disk.open(&directory.join("replica"), OpenMode::CreateNew).await.unwrap();
        disk.replace(&directory.join("label"), bytes::Bytes::from_static(b"x")).await.unwrap();
        let _lock = disk.lock_dir(&directory).await.unwrap();
        assert_eq!((mode(&temp.path().join("above")), mode(&directory)), (0o700, 0o700));
        for name in ["replica", "label", ".lock"] {
            assert_eq!(mode(&directory.join(name)), 0o600, "{name}");
        }
    }

    #[tokio::test]
    async fn a_wider_directory_is_narrowed_and_those_above_it_stay() {
        let temp = tempfile::tempdir().unwrap();
        let disk = Runtime::real().disk();
        let (above, directory) = (temp.path().join("above"), temp.path().join("above/data"));
        fs::create_dir_all(&directory).unwrap();
        for wide in [0o755, 0o2770, 0o701] {
            for path in [&above, &directory] {
                fs::set_permissions(path, fs::Permissions::from_mode(wide)).unwrap();
            }
            disk.create_dir_all(&directory).await.unwrap();
            assert_eq!((mode(&above), mode(&directory)), (wide, wide & !0o077));
            fs::set_permissions(&directory, fs::Permissions::from_mode(wide)).unwrap();
            drop(disk.lock_dir(&directory).await.unwrap());
            assert_eq!((mode(&above), mode(&directory)), (wide, wide & !0o077));
        }
    }
}
