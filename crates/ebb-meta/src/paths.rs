//! Paths of files: entries lead from names to inodes only, so a path is found by looking at entries.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::InodeId;

use crate::Machine;

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    parent: InodeId,
    name: &'a [u8],
    /// What it names.
    pub inode: InodeId,
}

impl Machine {
    /// Every name that there is, by directory.
    pub fn names(&self) -> impl Iterator<Item = Named<'_>> + '_ {
        self.entries.iter().map(|(key, entry)| Named { parent: key.parent, name: &key.name, inode: entry.inode })
    }

    /// The path of a name. Looks through the entries of each directory above it.
    #[must_use]
    pub fn path(&self, named: Named<'_>) -> String {
        let (parent, name) = (self.path_of(named.parent), String::from_utf8_lossy(named.name));
        if parent == "/" { format!("/{name}") } else { format!("{parent}/{name}") }
    }

    /// Paths of files, as far as they have names; of several names the first. Looks at every entry once.
    #[must_use]
    pub fn paths_of(&self, files: &BTreeSet<InodeId>) -> BTreeMap<InodeId, String> {
        let mut paths = BTreeMap::new();
        for named in self.names().filter(|named| files.contains(&named.inode)) {
            paths.entry(named.inode).or_insert_with(|| self.path(named));
        }
        paths
    }
}
