//! A rename leaves a file under its old name or its new one: never under both, never under none.
//!
//! Source: rename(2) and the promise of `docs/semantics.md` that names are as POSIX says.

use std::collections::BTreeMap;

use super::Violation;
use crate::history::{History, OwnFile, Place};

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

/// Compares a listing at rest with what each file's only user knows.
#[must_use]
pub fn check_own(history: &History, listing: &[(String, u64)]) -> Vec<Violation> {
    let inodes: BTreeMap<&str, u64> = listing.iter().map(|(name, inode)| (name.as_str(), *inode)).collect();
    let check = |own: &OwnFile| {
        let is_it =
            |name: &String| inodes.get(name.as_str()).is_some_and(|at| own.inode.is_none_or(|inode| inode == *at));
        let good = match &own.place {
            Place::At(name) => is_it(name),
            Place::Either(one, other) => is_it(one) != is_it(other),
            Place::Perhaps(name) => is_it(name) || !inodes.contains_key(name.as_str()),
            Place::Gone(name) => !inodes.contains_key(name.as_str()),
        };
        (!good).then(|| Violation::new("names", format!("inode {:?} should be {:?}, and is not", own.inode, own.place)))
    };
    history.own_files().values().filter_map(check).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_files_are_where_their_user_left_them() {
        let listing = [("a".to_owned(), 2), ("d0/b".to_owned(), 3)];
        let found = |place: Place, inode: Option<u64>| {
            let mut history = History::default();
            let file = history.begin_own("x");
            history.settle_own(file, place, inode);
            check_own(&history, &listing).len()
        };
        let name = |name: &str| name.to_owned();
        assert_eq!(found(Place::At(name("a")), Some(2)), 0);
        assert_eq!(found(Place::At(name("a")), Some(3)), 1, "another file");
        assert_eq!(found(Place::At(name("c")), Some(2)), 1);
        assert_eq!(found(Place::Gone(name("a")), Some(2)), 1);
        assert_eq!(found(Place::Gone(name("c")), Some(2)), 0);
        assert_eq!(found(Place::Perhaps(name("c")), None), 0);
        assert_eq!(found(Place::Either(name("c"), name("d0/b")), Some(3)), 0);
        assert_eq!(found(Place::Either(name("c"), name("e")), Some(3)), 1);
    }

    #[test]
    fn lost_and_doubled_files_are_found() {
        let listing = [("a".to_owned(), 2), ("b".to_owned(), 3), ("c".to_owned(), 3)];
        assert!(check(&[2], &listing).is_empty());
        assert!(check(&[3], &listing)[0].detail.contains("[\"b\", \"c\"]"));
        assert!(check(&[4], &listing)[0].detail.contains("no name"));
    }
}
