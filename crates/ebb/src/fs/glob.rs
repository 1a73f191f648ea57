//! Paths with `*`, `?` and `[...]`, which stand for the names that are there.
//!
//! A shell expands them only against its own directories, so the command line does it for paths of the file system. A
//! path that exists as it is written stands for itself.

use ebb_api::path::EbbPath;
use ebb_types::{ErrorKind, FileKind, Result, bail, err};
use globset::{GlobBuilder, GlobMatcher};

use super::Session;

impl Session {
    /// The paths that are meant, in order of their names.
    ///
    /// # Errors
    /// `NotFound` if no path fits a pattern.
    pub(super) async fn expand(&self, paths: Vec<EbbPath>) -> Result<Vec<EbbPath>> {
        let mut all = Vec::new();
        for path in paths {
            if !has_pattern(path.as_bytes()) || self.exists(&path).await? {
                all.push(path);
                continue;
            }
            let found = self.expand_one(&path).await?;
            if found.is_empty() {
                bail!(NotFound, "no path fits {path}");
            }
            all.extend(found);
        }
        Ok(all)
    }

    /// The same; with `force`, a pattern that fits nothing stands for nothing.
    pub(super) async fn expand_if(&self, paths: Vec<EbbPath>, force: bool) -> Result<Vec<EbbPath>> {
        let mut all = Vec::new();
        for path in paths {
            match self.expand(vec![path]).await {
                Err(error) if force && error.kind() == ErrorKind::NotFound => {}
                found => all.extend(found?),
            }
        }
        Ok(all)
    }

    /// Whether something of this name is there; a symbolic link may lead nowhere.
    pub(super) async fn exists(&self, path: &EbbPath) -> Result<bool> {
        match self.caller.client.resolve_link(&self.caller.credentials, path.as_bytes()).await {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotDirectory) => Ok(false),
            Err(error) => Err(self.caller.explain(error, path)),
        }
    }

    async fn expand_one(&self, path: &EbbPath) -> Result<Vec<EbbPath>> {
        let mut found = vec![EbbPath::new("/")?];
        for part in path.as_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            let mut next = Vec::new();
            for directory in found {
                if has_pattern(part) {
                    next.extend(self.matching(&directory, part).await?);
                } else if self.exists(&directory.join(part)).await? {
                    next.push(directory.join(part));
                }
            }
            found = next;
        }
        Ok(found)
    }

    /// Entries of a directory that fit, in order. Names that begin with a dot fit only a pattern that does.
    async fn matching(&self, directory: &EbbPath, part: &[u8]) -> Result<Vec<EbbPath>> {
        let Some(attr) = self.caller.find(directory).await?.filter(|attr| attr.kind == FileKind::Directory) else {
            return Ok(Vec::new());
        };
        let matcher = matcher(part, Case::Sensitive)?;
        let shows_hidden = part.starts_with(b".");
        let mut names: Vec<Vec<u8>> =
            self.caller.entries(attr.inode).await?.into_iter().map(|entry| entry.name).collect();
        names.retain(|name| (shows_hidden || !name.starts_with(b".")) && fits(&matcher, name));
        names.sort();
        Ok(names.iter().map(|name| directory.join(name)).collect())
    }
}

/// Whether letters of both cases are one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Case {
    Sensitive,
    Insensitive,
}

/// The matcher of a pattern for one name.
///
/// # Errors
/// `Invalid` if it is none.
pub(super) fn matcher(pattern: &[u8], case: Case) -> Result<GlobMatcher> {
    let text = std::str::from_utf8(pattern).map_err(|_| err!(Invalid, "a pattern has to be UTF-8"))?;
    let glob = GlobBuilder::new(text).literal_separator(true).case_insensitive(case == Case::Insensitive).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|error| err!(Invalid, "{}: {}", error.kind(), text))
}

/// Whether a name fits.
pub(super) fn fits(matcher: &GlobMatcher, name: &[u8]) -> bool {
    matcher.is_match(ebb_api::path::os(name))
}

fn has_pattern(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| b"*?[{".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_names_of_any_bytes() {
        let fit = |pattern: &str, name: &[u8]| fits(&matcher(pattern.as_bytes(), Case::Sensitive).unwrap(), name);
        assert!(fit("*.txt", b"a.txt") && !fit("*.txt", b"a.txt2") && fit("a?c", b"abc") && fit("[a-c]x", b"bx"));
        assert!(fit("part-{0,1}*", b"part-00017") && fit("*", b"odd \xff name") && !fit("*", b"a/b"));
        assert!(fits(&matcher(b"*.TXT", Case::Insensitive).unwrap(), b"a.txt"));
        assert!(matcher(b"[", Case::Sensitive).is_err());
        assert!(has_pattern(b"/a/*/b") && !has_pattern(b"/a/b"));
    }
}
