//! Files that only the owner of a cluster's directory may read.
//!
//! A user that can read the keys is root in the cluster, and logs and process files name users' files. The directory
//! itself keeps all of that out of others' reach.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ebb_api::secret::OTHERS;
use ebb_types::{Error, Result};

/// Makes a directory, and those above it, with mode 0700.
pub fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// How a private file is opened: 0600 from its first moment.
pub fn file() -> OpenOptions {
    let mut options = File::options();
    options.mode(0o600);
    options
}

/// Writes a whole private file.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    io::Write::write_all(&mut file().write(true).create(true).truncate(true).open(path)?, bytes)
}

/// Puts a private file in the place of another one of its name, in one step. Its directory is made if it is missing.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    make_dir(path.parent().unwrap_or(Path::new("")))
        .and_then(|()| write(&new, bytes))
        .and_then(|()| fs::rename(&new, path))
        .map_err(|error| Error::from_io(&error, path.display()))
}

/// As [`replace`]; contents and name are durable when it returns.
pub fn replace_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let (new, parent) = (path.with_extension("new"), path.parent().unwrap_or(Path::new("")));
    // Ordering: contents before the name, the name before return.
    make_dir(parent)
        .and_then(|()| file().write(true).create(true).truncate(true).open(&new))
        .and_then(|mut out| io::Write::write_all(&mut out, bytes).and_then(|()| out.sync_all()))
        .and_then(|()| fs::rename(&new, path))
        .and_then(|()| File::open(parent)?.sync_all())
        .map_err(|error| Error::from_io(&error, path.display()))
}

/// Writes a whole private file that must not exist: one that is there would keep its mode, and processes that have it open.
pub fn create(path: &Path, bytes: &[u8]) -> Result<()> {
    file()
        .write(true)
        .create_new(true)
        .open(path)
        .and_then(|mut out| io::Write::write_all(&mut out, bytes).and_then(|()| out.sync_all()))
        .map_err(|error| Error::from_io(&error, path.display()))
}

/// The paths of the files in a directory whose names end in `.json`; none if there is no such directory.
pub fn json_files(directory: &Path) -> Result<Vec<PathBuf>> {
    files(directory, "json")
}

/// The same for names that end in a dot and `extension`.
pub fn files(directory: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::from_io(&error, directory.display())),
    };
    let paths = entries.flatten().map(|entry| entry.path());
    Ok(paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect())
}

/// Removes other users' access to a directory; returns the mode that it had, if that was too wide.
pub fn narrow(directory: &Path) -> Result<Option<u32>> {
    let failed = |error: io::Error| Error::from_io(&error, directory.display());
    let mode = fs::metadata(directory).map_err(failed)?.mode() & 0o7777;
    if mode & OTHERS == 0 {
        return Ok(None);
    }
    fs::set_permissions(directory, fs::Permissions::from_mode(mode & !OTHERS)).map_err(failed)?;
    Ok(Some(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_directory_is_narrowed_and_its_mode_reported() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a/b");
        make_dir(&path).unwrap();
        assert_eq!(narrow(&path).unwrap(), None);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(narrow(&path).unwrap(), Some(0o755));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
    }
}
