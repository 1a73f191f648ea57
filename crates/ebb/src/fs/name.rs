//! Paths on the command line.

use ebb_types::{Result, bail};

/// Longest path, as Linux has it (PATH_MAX less the final zero).
const PATH_MAX: usize = 4095;

/// Refuses what cannot be a path of the file system.
pub fn check(path: &str) -> Result<()> {
    if !path.starts_with('/') {
        bail!(Invalid, "{path:?} is not a path from the root: begin it with /");
    }
    if path.len() > PATH_MAX {
        bail!(NameTooLong, "a path of {} bytes is longer than {PATH_MAX}", path.len());
    }
    Ok(())
}

/// The directory part and the last name.
pub fn split(path: &str) -> Result<(&str, &str)> {
    check(path)?;
    let trimmed = path.trim_end_matches('/');
    let Some((parent, last)) = trimmed.rsplit_once('/') else {
        bail!(Invalid, "{path:?} names the root: give a name below it");
    };
    if last == "." || last == ".." {
        bail!(Invalid, "{path:?} ends in {last:?}: give a name");
    }
    Ok((if parent.is_empty() { "/" } else { parent }, last))
}

/// A name in a directory.
pub fn join(directory: &str, name: &str) -> String {
    format!("{}/{name}", directory.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_split_target_in_directory_and_name() {
        assert_eq!(split("/a/b/").unwrap(), ("/a", "b"));
        assert_eq!(split("/a").unwrap(), ("/", "a"));
        assert!(split("/").is_err());
        assert!(split("a/b").is_err());
        assert!(split("/a/..").is_err());
        assert_eq!(join("/", "x"), "/x");
    }
}
