//! Paths of the file system: bytes from the root, which need not be text.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use ebb_types::{Result, bail};

/// Longest path, as Linux has it (PATH_MAX less the final zero).
const PATH_MAX: usize = 4095;

/// An absolute path. Names in it are any bytes but `/` and NUL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EbbPath(Vec<u8>);

impl EbbPath {
    /// The path with these bytes; refuses bytes that cannot be one.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self> {
        let path = Self(bytes.into());
        if !path.0.starts_with(b"/") {
            bail!(Invalid, "{path} is not a path from the root: begin it with /");
        }
        if path.0.len() > PATH_MAX {
            bail!(NameTooLong, "a path of {} bytes is longer than {PATH_MAX}", path.0.len());
        }
        Ok(path)
    }

    /// Its bytes, as the client takes them.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Without slashes at its end; the root is empty.
    fn trimmed(&self) -> &[u8] {
        let end = self.0.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        &self.0[..end]
    }

    /// The path for a sentence, without slashes at its end.
    pub fn shown(&self) -> String {
        if self.trimmed().is_empty() { "/".to_owned() } else { text(self.trimmed()) }
    }

    /// The last name; empty for the root.
    pub fn last(&self) -> &[u8] {
        self.trimmed().rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    /// The directory part and the last name.
    pub fn split(&self) -> Result<(Self, &[u8])> {
        let last = self.last();
        if last.is_empty() {
            bail!(Invalid, "{self} names the root: give a name below it");
        }
        if last == b"." || last == b".." {
            bail!(Invalid, "{self} ends in {}: give a name", text(last));
        }
        let parent = &self.trimmed()[..self.trimmed().len() - last.len()];
        Ok((Self(parent.to_vec()), last))
    }

    /// A name, or several with slashes between them, in this directory.
    pub fn join(&self, below: &[u8]) -> Self {
        Self([self.trimmed(), below].join(&b'/'))
    }

    /// The part of this path behind `directory`, without a slash at its begin: empty if they are the same, none if this
    /// path is elsewhere.
    pub fn below(&self, directory: &Self) -> Option<&[u8]> {
        let rest = self.trimmed().strip_prefix(directory.trimmed())?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix(b"/") }
    }
}

impl fmt::Display for EbbPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text(&self.0))
    }
}

#[cfg(feature = "clap")]
impl clap::builder::ValueParserFactory for EbbPath {
    type Parser =
        clap::builder::TryMapValueParser<clap::builder::OsStringValueParser, fn(std::ffi::OsString) -> Result<Self>>;

    fn value_parser() -> Self::Parser {
        use clap::builder::TypedValueParser;
        use std::os::unix::ffi::OsStringExt;
        clap::builder::OsStringValueParser::new().try_map(|given| Self::new(given.into_vec()))
    }
}

/// A name as a person may see it: bytes that are not UTF-8, characters that would move the cursor, and backslashes are
/// escaped. Different names look different.
#[must_use]
pub fn text(name: &[u8]) -> String {
    let mut shown = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter.is_control() || letter == '\\' {
                shown.extend(letter.escape_default())
            } else {
                shown.push(letter)
            }
        }
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    shown
}

/// A name of ours as the local system takes it.
pub fn os(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: &str) -> EbbPath {
        EbbPath::new(text).unwrap()
    }

    #[test]
    fn names_that_differ_look_different() {
        let names = [&b"a\nb"[..], b"a\\nb", b"a\x1b[2J", b"a\xff", b"a\\xff"];
        let shown: std::collections::BTreeSet<String> = names.iter().map(|name| text(name)).collect();
        assert_eq!(shown.len(), names.len(), "{shown:?}");
        assert!(shown.iter().all(|shown| !shown.chars().any(char::is_control)), "{shown:?}");
    }

    #[test]
    fn paths_split_in_directory_and_name() {
        assert_eq!(path("/a/b/").split().unwrap(), (path("/a/"), &b"b"[..]));
        assert_eq!(path("/a").split().unwrap(), (path("/"), &b"a"[..]));
        assert!(path("/").split().is_err());
        assert!(path("/a/..").split().is_err());
        assert!(EbbPath::new("a/b").is_err());
        assert!(EbbPath::new(vec![b'/'; PATH_MAX + 1]).is_err());
    }

    #[test]
    fn below_is_what_follows_a_directory_and_not_a_longer_name() {
        assert_eq!(path("/a/b/c").below(&path("/a/")), Some(&b"b/c"[..]));
        assert_eq!(path("/a").below(&path("/a/")), Some(&b""[..]));
        assert_eq!(path("/ab").below(&path("/a")), None);
        assert_eq!(path("/x").below(&path("/")), Some(&b"x"[..]));
    }

    #[test]
    fn names_that_are_not_text_are_shown_and_kept() {
        assert_eq!(text(b"od\xffd\n\xc3\xa4"), "od\\xffd\\nä");
        assert_eq!(EbbPath(b"/\xff".to_vec()).as_bytes(), b"/\xff");
    }

    proptest! {
        #[test]
        fn joining_undoes_splitting(directory in "/([a-c]{1,3}/){0,3}", name in proptest::collection::vec(1_u8..=255, 1..9)) {
            prop_assume!(!name.contains(&b'/') && name != b"." && name != b"..");
            let whole = path(&directory).join(&name);
            let (parent, last) = whole.split().unwrap();
            prop_assert_eq!(last, &name[..]);
            prop_assert_eq!(parent.join(last), whole.clone());
            prop_assert_eq!(whole.below(&path(&directory)), Some(&name[..]));
        }
    }
}
