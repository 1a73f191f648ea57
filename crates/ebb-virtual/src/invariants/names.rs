//! A rename leaves a file under its old name or its new one: never under both, never under none.
//!
//! Source: rename(2) and the promise of `docs/semantics.md` that names are as POSIX says.

use std::collections::BTreeMap;

use super::Violation;

/// Compares a listing at rest with the inodes that were made and never removed.
#[must_use]
pub fn check(made: &[u64], listing: &[(String, u64)]) -> Vec<Violation> {
    let mut names: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for (name, inode) in listing {
        names.entry(*inode).or_default().push(name);
    }
    let check_inode = |inode: &u64| match names.get(inode).map_or(&[][..], Vec::as_slice) {
        [_] => None,
        [] => Some(Violation::new("names", format!("inode {inode} has no name any more"))),
        several => Some(Violation::new("names", format!("inode {inode} has the names {several:?}"))),
    };
    made.iter().filter_map(check_inode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_and_doubled_files_are_found() {
        let listing = [("a".to_owned(), 2), ("b".to_owned(), 3), ("c".to_owned(), 3)];
        assert!(check(&[2], &listing).is_empty());
        assert!(check(&[3], &listing)[0].detail.contains("[\"b\", \"c\"]"));
        assert!(check(&[4], &listing)[0].detail.contains("no name"));
    }
}
