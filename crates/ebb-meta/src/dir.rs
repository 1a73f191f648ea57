//! Names: the entries of all directories.
//!
//! Two ordered maps serve the whole namespace, rather than two for each directory. A small directory then costs nothing
//! beyond its entries. One map is ordered by name, for lookups. The other is ordered by cookie: a listing can go on
//! where it stopped, however the directory has changed.

use std::cmp::Ordering;
use std::sync::Arc;

use ebb_types::{InodeId, Result, bail, check_name_len};
use equivalent::{Comparable, Equivalent};
use imbl::OrdMap;

/// A name. Both maps share its bytes.
pub(crate) type Name = Arc<[u8]>;

/// Refuses what cannot be the name of an entry. The callers refuse `.` and `..`, each with its own error.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() {
        bail!(NotFound, "an empty name names nothing");
    }
    check_name_len(name)?;
    if name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        bail!(Invalid, "a name must not contain '/' or NUL: {}", show(name));
    }
    Ok(())
}

/// A name in quotes, for the sentence of an error.
pub(crate) fn show(name: &[u8]) -> String {
    format!("\"{}\"", name.escape_ascii())
}

/// Whether this is `.` or `..`.
pub(crate) fn is_dots(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct EntryKey {
    pub(crate) parent: InodeId,
    pub(crate) name: Name,
}

/// A key for lookups. It borrows the name, so a lookup allocates nothing.
struct Probe<'a> {
    parent: InodeId,
    name: &'a [u8],
}

impl Equivalent<EntryKey> for Probe<'_> {
    fn equivalent(&self, key: &EntryKey) -> bool {
        self.compare(key) == Ordering::Equal
    }
}

impl Comparable<EntryKey> for Probe<'_> {
    fn compare(&self, key: &EntryKey) -> Ordering {
        self.parent.cmp(&key.parent).then_with(|| self.name.cmp(&key.name))
    }
}

/// Where a name leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) inode: InodeId,
    /// Place in the listing. A directory never assigns a cookie twice.
    pub(crate) cookie: u64,
}

/// The entries of all directories.
///
/// Invariant: `by_name` and `by_cookie` hold the same entries.
#[derive(Clone, Default)]
pub(crate) struct Entries {
    by_name: OrdMap<EntryKey, Entry>,
    by_cookie: OrdMap<(InodeId, u64), (Name, InodeId)>,
}

impl Entries {
    pub(crate) fn get(&self, parent: InodeId, name: &[u8]) -> Option<Entry> {
        self.by_name.get(&Probe { parent, name }).copied()
    }

    /// Adds a name. False if the directory had it: the older entry is lost.
    pub(crate) fn insert(&mut self, parent: InodeId, name: &[u8], inode: InodeId, cookie: u64) -> bool {
        let name: Name = name.into();
        self.by_cookie.insert((parent, cookie), (Arc::clone(&name), inode));
        self.by_name.insert(EntryKey { parent, name }, Entry { inode, cookie }).is_none()
    }

    /// Makes a name lead to another inode. It keeps its place in listings. False if there is no such name.
    pub(crate) fn redirect(&mut self, parent: InodeId, name: &[u8], inode: InodeId) -> bool {
        let Some(entry) = self.by_name.get_mut(&Probe { parent, name }) else { return false };
        entry.inode = inode;
        if let Some(place) = self.by_cookie.get_mut(&(parent, entry.cookie)) {
            place.1 = inode;
        }
        true
    }

    pub(crate) fn remove(&mut self, parent: InodeId, name: &[u8]) -> Option<Entry> {
        let entry = self.by_name.remove(&Probe { parent, name })?;
        self.by_cookie.remove(&(parent, entry.cookie));
        Some(entry)
    }

    /// Entries of a directory with a cookie above `cookie`, in order of cookie.
    pub(crate) fn after(&self, parent: InodeId, cookie: u64) -> impl Iterator<Item = (u64, &Name, InodeId)> {
        let start = std::ops::Bound::Excluded((parent, cookie));
        let end = std::ops::Bound::Included((parent, u64::MAX));
        self.by_cookie
            .range::<_, (InodeId, u64)>((start, end))
            .map(|((_, cookie), (name, inode))| (*cookie, name, *inode))
    }

    /// Every entry, in order of directory and name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&EntryKey, &Entry)> {
        self.by_name.iter()
    }

    /// Whether both maps hold the same entries.
    pub(crate) fn agree(&self) -> bool {
        self.by_name.len() == self.by_cookie.len()
            && self.by_name.iter().all(|(key, entry)| {
                self.by_cookie
                    .get(&(key.parent, entry.cookie))
                    .is_some_and(|(name, inode)| *name == key.name && *inode == entry.inode)
            })
    }
}
