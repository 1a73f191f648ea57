//! A rename leaves a file under its old name or its new one: never under both, never under none.
//!
//! Source: rename(2) and the promise of `docs/semantics.md` that names are as POSIX says.

use std::collections::BTreeMap;

use super::Violation;
use crate::history::{History, OwnFile, Whereabouts};

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

/// Compares the link counts of inodes with their names in a listing at rest.
#[must_use]
pub fn check_links(links: &BTreeMap<u64, u32>, listing: &[(String, u64)]) -> Vec<Violation> {
    let wrong = links.iter().filter_map(|(inode, links)| {
        let names: Vec<&str> = listing.iter().filter(|(_, at)| at == inode).map(|(name, _)| name.as_str()).collect();
        let detail = format!("inode {inode} has {links} links, and the names {names:?}");
        (names.len() != *links as usize).then(|| Violation::new("names", detail))
    });
    wrong.collect()
}

/// Compares a listing at rest with the knowledge of each file's only user.
#[must_use]
pub fn check_own(history: &History, listing: &[(String, u64)]) -> Vec<Violation> {
    let inodes: BTreeMap<&str, u64> = listing.iter().map(|(name, inode)| (name.as_str(), *inode)).collect();
    let is_listed = |inode: Option<u64>| inode.is_some_and(|inode| listing.iter().any(|(_, at)| *at == inode));
    let check = |own: &OwnFile| {
        let is_it =
            |name: &String| inodes.get(name.as_str()).is_some_and(|at| own.inode.is_none_or(|inode| inode == *at));
        let good = match &own.place {
            Whereabouts::At(name) => is_it(name),
            Whereabouts::Either(one, other) => is_it(one) != is_it(other),
            Whereabouts::Perhaps(name) => is_it(name) || !inodes.contains_key(name.as_str()),
            Whereabouts::Gone(name) => !inodes.contains_key(name.as_str()),
            Whereabouts::Both(certain, perhaps) => {
                is_it(certain) && (is_it(perhaps) || !inodes.contains_key(perhaps.as_str()))
            }
            Whereabouts::Open(_) => !is_listed(own.inode),
            Whereabouts::Displaced(name) => is_it(name) || !is_listed(own.inode),
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
        let found = |place: Whereabouts, inode: Option<u64>| {
            let mut history = History::default();
            let file = history.begin_own("x");
            history.settle_own(file, place, inode);
            check_own(&history, &listing).len()
        };
        let name = |name: &str| name.to_owned();
        assert_eq!(found(Whereabouts::At(name("a")), Some(2)), 0);
        assert_eq!(found(Whereabouts::At(name("a")), Some(3)), 1, "another file");
        assert_eq!(found(Whereabouts::At(name("c")), Some(2)), 1);
        assert_eq!(found(Whereabouts::Gone(name("a")), Some(2)), 1);
        assert_eq!(found(Whereabouts::Gone(name("c")), Some(2)), 0);
        assert_eq!(found(Whereabouts::Perhaps(name("c")), None), 0);
        assert_eq!(found(Whereabouts::Either(name("c"), name("d0/b")), Some(3)), 0);
        assert_eq!(found(Whereabouts::Either(name("c"), name("e")), Some(3)), 1);
        assert_eq!(found(Whereabouts::Both(name("a"), name("c")), Some(2)), 0);
        assert_eq!(found(Whereabouts::Both(name("c"), name("a")), Some(2)), 1, "the first one is certain");
        assert_eq!(found(Whereabouts::Both(name("a"), name("d0/b")), Some(2)), 1, "another file's");
        assert_eq!(found(Whereabouts::Open(name("x")), Some(4)), 0);
        assert_eq!(found(Whereabouts::Open(name("x")), Some(3)), 1, "it has a name again");
        assert_eq!(found(Whereabouts::Displaced(name("a")), Some(4)), 0, "the name is another file's");
        assert_eq!(found(Whereabouts::Displaced(name("c")), Some(2)), 1, "it went elsewhere");
    }

    #[test]
    fn links_are_counted() {
        let listing = [("a".to_owned(), 2), ("b".to_owned(), 3), ("c".to_owned(), 3)];
        assert!(check_links(&BTreeMap::from([(2, 1), (3, 2)]), &listing).is_empty());
        assert_eq!(check_links(&BTreeMap::from([(2, 2), (3, 1)]), &listing).len(), 2);
    }

    #[test]
    fn lost_and_doubled_files_are_found() {
        let listing = [("a".to_owned(), 2), ("b".to_owned(), 3), ("c".to_owned(), 3)];
        assert!(check(&[2], &listing).is_empty());
        assert!(check(&[3], &listing)[0].detail.contains("[\"b\", \"c\"]"));
        assert!(check(&[4], &listing)[0].detail.contains("no name"));
    }
}
