//! Paths of files. Entries lead from names to inodes only, so finding a path means walking entries.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::InodeId;

use crate::Machine;

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// The directory.
    pub parent: InodeId,
    name: &'a [u8],
    /// The inode that it leads to.
    pub inode: InodeId,
}

impl Machine {
    /// Every name, in order of directory.
    pub fn names(&self) -> impl Iterator<Item = Named<'_>> + '_ {
        self.entries.iter().map(|(key, entry)| Named { parent: key.parent, name: &key.name, inode: entry.inode })
    }

    /// A directory of each of these files. It walks all names.
    #[must_use]
    pub fn directories_of(&self, files: &BTreeSet<InodeId>) -> BTreeMap<InodeId, InodeId> {
        let names = self.names().filter(|named| files.contains(&named.inode));
        names.map(|named| (named.inode, named.parent)).collect()
    }

    /// The inode, and with a directory all inodes below it.
    #[must_use]
    pub fn below(&self, root: InodeId) -> BTreeSet<InodeId> {
        let (mut found, mut open) = (BTreeSet::from([root]), vec![root]);
        while let Some(directory) = open.pop() {
            let new = self.entries.after(directory, 0).map(|(_, _, inode)| inode).filter(|inode| found.insert(*inode));
            open.extend(new);
        }
        found
    }

    /// The path of a name. It walks the entries of each directory above it.
    #[must_use]
    pub fn path(&self, named: Named<'_>) -> String {
        let (parent, name) = (self.path_of(named.parent), String::from_utf8_lossy(named.name));
        if parent == "/" { format!("/{name}") } else { format!("{parent}/{name}") }
    }

    /// Paths of the files that have names. A file with several names gets the first path. It walks all entries once.
    #[must_use]
    pub fn paths_of(&self, files: &BTreeSet<InodeId>) -> BTreeMap<InodeId, String> {
        let mut paths = BTreeMap::new();
        for named in self.names().filter(|named| files.contains(&named.inode)) {
            paths.entry(named.inode).or_insert_with(|| self.path(named));
        }
        paths
    }
}
