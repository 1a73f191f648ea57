//! Files with keys: whoever reads one is its owner to the cluster.
#![allow(clippy::disallowed_methods, reason = "a rim of the program: the file is this machine's")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ebb_types::{Error, Result, bail};

/// The bits of a mode that let others in.
pub const OTHERS: u32 = 0o077;

/// Reads the text of a file with a key.
///
/// # Errors
/// `NotPermitted` if others may read the file: they may know it already, so narrowing it in silence would not do.
pub fn read(path: &Path) -> Result<String> {
    let failed = |error: std::io::Error| Error::from_io(&error, path.display());
    let mode = fs::metadata(path).map_err(failed)?.mode() & 0o7777;
    if mode & OTHERS != 0 {
        bail!(
            NotPermitted,
            "{0} has mode {mode:04o}: other users of this machine can read the key in it, and whoever has the key has its \
             owner's rights in the cluster. If nobody has read it: `chmod 600 {0}`",
            path.display()
        );
    }
    fs::read_to_string(path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use ebb_types::ErrorKind;

    use super::*;

    #[test]
    fn a_key_that_others_can_read_is_refused_with_the_way_on() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("operator.pem");
        fs::write(&path, "key").unwrap();
        for wide in [0o640, 0o604, 0o644, 0o601] {
            fs::set_permissions(&path, fs::Permissions::from_mode(wide)).unwrap();
            let error = read(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotPermitted);
            assert!(
                error.detail().contains(&format!("mode {wide:04o}")) && error.detail().contains("chmod 600"),
                "{error}"
            );
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read(&path).unwrap(), "key");
    }
}
