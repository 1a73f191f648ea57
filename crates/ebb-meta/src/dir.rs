//! Names: the entries of all directories.
//!
//! Two ordered maps for the whole namespace rather than two for each directory: a small directory then costs nothing
//! beyond its entries. One is ordered by name, for lookups; the other by cookie, for listings that go on where they
//! stopped however the directory has changed meanwhile.

use std::cmp::Ordering;
use std::sync::Arc;

use ebb_types::{InodeId, Result, bail, check_name_len};
use equivalent::{Comparable, Equivalent};
use imbl::OrdMap;

/// A name; shared by both maps.
pub(crate) type Name = Arc<[u8]>;

/// Checks what may be the name of an entry; `.` and `..` are the callers' to refuse, each in its own way.
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

/// A name for an error's sentence.
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

/// A key to look with, without making a [`Name`] of it.
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
    /// Place in the listing; never given twice within a directory.
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

    /// Adds a name that is not there yet.
    pub(crate) fn insert(&mut self, parent: InodeId, name: &[u8], inode: InodeId, cookie: u64) {
        let name: Name = name.into();
        self.by_cookie.insert((parent, cookie), (Arc::clone(&name), inode));
        self.by_name.insert(EntryKey { parent, name }, Entry { inode, cookie });
    }

    /// Leads a name that is there to another inode. It keeps its place in listings.
    pub(crate) fn redirect(&mut self, parent: InodeId, name: &[u8], inode: InodeId) {
        let Some(entry) = self.by_name.get_mut(&Probe { parent, name }) else { return };
        entry.inode = inode;
        if let Some(place) = self.by_cookie.get_mut(&(parent, entry.cookie)) {
            place.1 = inode;
        }
    }

    pub(crate) fn remove(&mut self, parent: InodeId, name: &[u8]) -> Option<Entry> {
        let entry = self.by_name.remove(&Probe { parent, name })?;
        self.by_cookie.remove(&(parent, entry.cookie));
        Some(entry)
    }

    /// Entries of a directory with a cookie above `cookie`, in the order of their cookies.
    pub(crate) fn after(&self, parent: InodeId, cookie: u64) -> impl Iterator<Item = (u64, &Name, InodeId)> {
        let start = std::ops::Bound::Excluded((parent, cookie));
        let end = std::ops::Bound::Included((parent, u64::MAX));
        self.by_cookie
            .range::<_, (InodeId, u64)>((start, end))
            .map(|((_, cookie), (name, inode))| (*cookie, name, *inode))
    }

    /// Every entry, by directory and name.
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
