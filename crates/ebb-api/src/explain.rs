//! Errors in the words of a user, who knows paths and no inode numbers.

use ebb_types::{Error, ErrorKind, InodeId};

use crate::path::EbbPath;

/// The error of a command about `path`. `paths` says where an inode is, as far as that is known.
pub fn explain(error: Error, path: &EbbPath, paths: impl Fn(InodeId) -> Option<String>) -> Error {
    let path = path.shown();
    let sentence = match error.kind() {
        ErrorKind::NotFound => format!("{path} does not exist"),
        ErrorKind::Exists => format!("{path} exists already"),
        ErrorKind::NotEmpty => format!("{path} is not empty"),
        ErrorKind::IsDirectory => format!("{path} is a directory"),
        kind => {
            let detail = with_paths(error.detail(), &paths);
            match detail.starts_with('/') && kind == ErrorKind::NotDirectory {
                true => detail,
                false => format!("{path}: {detail}"),
            }
        }
    };
    Error::new(error.kind(), sentence)
}

/// The sentence with paths in place of inode numbers (`i12`); an inode without a known path is "inode 12".
pub fn with_paths(sentence: &str, paths: &impl Fn(InodeId) -> Option<String>) -> String {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut shown = String::with_capacity(sentence.len());
    let mut rest = sentence;
    while !rest.is_empty() {
        let word = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        let number = rest[..word].strip_prefix('i').and_then(|digits| digits.parse().ok()).map(InodeId::new);
        match number {
            Some(inode) => shown.push_str(&paths(inode).unwrap_or_else(|| format!("inode {}", inode.raw()))),
            None => shown.push_str(&rest[..word]),
        }
        rest = &rest[word..];
        let gap = rest.find(is_part).unwrap_or(rest.len());
        shown.push_str(&rest[..gap]);
        rest = &rest[gap..];
    }
    shown
}

#[cfg(test)]
mod tests {
    use ebb_types::err;

    use super::*;

    fn told(error: Error, path: &str) -> String {
        let paths = |inode: InodeId| (inode.raw() == 7).then(|| "/a".to_owned());
        explain(error, &EbbPath::new(path).unwrap(), paths).to_string()
    }

    #[test]
    fn usual_errors_are_told_by_the_path_alone() {
        assert_eq!(told(err!(Exists, "i1 has an entry \"data\""), "/data/"), "/data exists already");
        assert_eq!(told(err!(NotFound, "there is no x in the directory i7"), "/a/x"), "/a/x does not exist");
        assert_eq!(told(err!(NotEmpty, "i7 has entries"), "/a"), "/a is not empty");
        assert_eq!(told(err!(IsDirectory, "i1 is a directory"), "/"), "/ is a directory");
    }

    #[test]
    fn others_keep_their_sentence_with_paths_for_numbers() {
        assert_eq!(told(err!(NotDirectory, "i7 is not a directory"), "/a/b"), "/a is not a directory");
        let refused = err!(AccessDenied, "uid 5 may not write i7 (mode 0644, uid 0), nor i9 or xi7 or i7x");
        let wanted = "/a/b: uid 5 may not write /a (mode 0644, uid 0), nor inode 9 or xi7 or i7x";
        assert_eq!(told(refused, "/a/b"), wanted);
    }
}
