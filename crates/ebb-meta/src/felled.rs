//! Directories that are removed with everything below them.
//!
//! The name goes with one command. The directory is *felled* from then on: without a name, and with entries, which the leader
//! removes in the background, the deepest first. It takes no new entries. With its last entry it becomes an orphan.

use ebb_types::{InodeId, Result, bail};
use ebb_wire::pb;

use crate::machine::{Call, Machine};
use crate::permission::{self, EXECUTE, READ, WRITE};
use crate::trash::ExpiredName;

/// Most entries that one command looks at for permission. The state stands still meanwhile.
pub const LOOKED_AT_MAX: usize = 100_000;

impl Machine {
    /// Refuses a removal of everything below a directory if the caller could not do it name by name.
    ///
    /// # Errors
    /// `Unsupported` if a dataset has its root below the directory, `TooBig` if there is more than one command looks at. Both
    /// can be removed name by name.
    pub(crate) fn check_may_fell(&self, call: &Call<'_>, top: InodeId) -> Result<()> {
        // One without a path has lost its root directory.
        let lies_below = |dataset: &&pb::Dataset| {
            let root = InodeId::new(dataset.root_inode);
            !dataset.path.is_empty() && ![top, InodeId::ROOT].contains(&root) && self.is_within(root, top)
        };
        if let Some(dataset) = self.datasets.iter().find(lies_below) {
            bail!(Unsupported, "the dataset {} lies below it: it cannot go in one step", dataset.path);
        }
        if call.credentials.is_root() {
            return Ok(());
        }
        let (mut looked_at, mut pending) = (0, vec![top]);
        while let Some(id) = pending.pop() {
            let directory = self.directory(id)?;
            if directory.directory().is_some_and(|body| body.count > 0) {
                permission::check(id, directory, &call.credentials, READ | WRITE | EXECUTE)?;
            }
            for (_, _, inode) in self.entries.after(id, 0) {
                looked_at += 1;
                if looked_at > LOOKED_AT_MAX {
                    bail!(TooBig, "more than {LOOKED_AT_MAX} names lie below {top}: too many to go in one step");
                }
                let victim = self.inode(inode)?;
                permission::check_sticky(id, directory, victim, &call.credentials)?;
                if victim.is_directory() {
                    pending.push(inode);
                }
            }
        }
        Ok(())
    }

    /// Adds names below felled directories, at most `max` in all. A directory comes after everything below it.
    pub(crate) fn list_felled(&self, found: &mut Vec<ExpiredName>, max: usize) {
        for top in &self.felled {
            for (_, name, inode) in self.entries.after(*top, 0) {
                if found.len() >= max {
                    return;
                }
                self.list_whole(ExpiredName { parent: *top, name: name.to_vec(), inode }, found, max);
            }
        }
    }

    /// Whether a felled directory is above it, or is itself the inode.
    pub(crate) fn is_felled(&self, id: InodeId) -> bool {
        self.felled.iter().any(|top| self.is_within(id, *top))
    }
}
