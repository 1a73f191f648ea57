//! The trash of datasets: what is in it expires.
//!
//! The layout is in [`ebb_types::trash`]. A removal's time is the creation time of its directory, which the leader's clock
//! gave. So a client with a wrong clock keeps nothing too short.

use std::collections::BTreeSet;

use ebb_types::trash::{DIRECTORY, FORMER_PATH};
use ebb_types::{InodeId, Result, bail};
use ebb_wire::pb;

use crate::inode::Inode;
use crate::machine::{Call, Machine};
use crate::ops::create::new_directory;

/// Everybody may make entries, and change only its own.
const MODE: u32 = 0o1777;
const NS_PER_S: i64 = 1_000_000_000;

/// A name whose time is over.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ExpiredName {
    /// Directory that it is in.
    pub parent: InodeId,
    /// The name.
    pub name: Vec<u8>,
    /// Where it leads.
    pub inode: InodeId,
}

impl Machine {
    /// Makes the trash in the root directory of a dataset, if it is not there.
    pub(crate) fn make_trash(&mut self, call: &mut Call<'_>, root: InodeId) -> Result<()> {
        if let Some(entry) = self.entries.get(root, DIRECTORY) {
            if self.inodes.get(&entry.inode).is_some_and(|inode| inode.is_directory()) {
                return Ok(());
            }
            bail!(Exists, "the dataset has a file .trash: a trash needs the name for its directory");
        }
        self.check_may_add(call, root)?;
        self.make(call, root, DIRECTORY, new_directory(root, MODE, 0)).map(drop)
    }

    /// Names whose time is over: those below directories that were removed as a whole, and those that have been in the trash
    /// for their time. At most `max` of them. A directory comes after everything below it.
    #[must_use]
    pub fn expired_names(&self, now_ns: i64, max: usize) -> Vec<ExpiredName> {
        let mut found = Vec::new();
        self.list_felled(&mut found, max);
        for dataset in self.datasets.iter().filter(|dataset| dataset.trash_seconds > 0) {
            let kept_ns = i64::from(dataset.trash_seconds) * NS_PER_S;
            let Some(trash) = self.entries.get(InodeId::new(dataset.root_inode), DIRECTORY) else { continue };
            for (_, _, user) in self.entries.after(trash.inode, 0) {
                for (_, name, removal) in self.entries.after(user, 0) {
                    let is_over = |inode: &Inode| is_removal(inode) && inode.btime.saturating_add(kept_ns) <= now_ns;
                    if self.inodes.get(&removal).is_some_and(|inode| is_over(inode))
                        && !self.has_snapshots_below(removal)
                    {
                        let top = ExpiredName { parent: user, name: name.to_vec(), inode: removal };
                        self.list_whole(top, &mut found, max);
                    }
                    if found.len() >= max {
                        return found;
                    }
                }
            }
        }
        found
    }

    /// Adds a name, after all below it. Without recursion: a tree may be deeper than a stack.
    pub(crate) fn list_whole(&self, top: ExpiredName, found: &mut Vec<ExpiredName>, max: usize) {
        let mut pending = vec![(top, 0)];
        while let Some((at, cookie)) = pending.last_mut() {
            if found.len() >= max {
                return;
            }
            match self.entries.after(at.inode, *cookie).next() {
                Some((next, name, inode)) => {
                    *cookie = next;
                    let below = ExpiredName { parent: at.inode, name: name.to_vec(), inode };
                    pending.push((below, 0));
                }
                None => found.extend(pending.pop().map(|(name, _)| name)),
            }
        }
    }

    /// Removes names whose time is over. Only those that the command names: sessions have forgotten them.
    /// What was taken out of the trash meanwhile stays.
    pub(crate) fn remove_expired(&mut self, call: &mut Call<'_>, op: &pb::ExpireTrash) {
        let name = |one: &pb::expire_trash::Name| ExpiredName {
            parent: InodeId::new(one.parent),
            name: one.name.clone(),
            inode: InodeId::new(one.inode),
        };
        let named: BTreeSet<ExpiredName> = op.names.iter().map(name).collect();
        for ExpiredName { parent, name, inode } in self.expired_names(call.now, op.names.len()) {
            let is_named = named.contains(&ExpiredName { parent, name: name.clone(), inode });
            let directory = self.inodes.get(&inode).and_then(|inode| inode.directory()).map(|body| body.count);
            if !is_named || directory.is_some_and(|entries| entries > 0) {
                continue;
            }
            self.remove_entry(call, parent, &name);
            if directory.is_some() {
                self.lose_subdirectory(parent);
            }
            self.lose_name(call, inode);
        }
    }
}

fn is_removal(inode: &Inode) -> bool {
    inode.is_directory() && inode.xattrs.as_ref().is_some_and(|xattrs| xattrs.get(FORMER_PATH).is_some())
}
