//! Renaming: `rename(2)` and `renameat2(2)` with `RENAME_NOREPLACE` and `RENAME_EXCHANGE`.

use ebb_types::{InodeId, Result, bail};
use ebb_wire::pb;
use ebb_wire::pb::meta_op;

use crate::dir;
use crate::inode::Inode;
use crate::machine::{Call, Machine};
use crate::permission::{self, WRITE};

/// Both ends of a rename.
#[derive(Clone, Copy)]
struct Ends<'a> {
    source_parent: InodeId,
    source_name: &'a [u8],
    source: InodeId,
    target_parent: InodeId,
    target_name: &'a [u8],
    target: Option<InodeId>,
}

/// The inode that had the target's name.
#[derive(Clone, Copy)]
struct Displaced {
    inode: InodeId,
    /// It has no name left.
    is_gone: bool,
}

impl Machine {
    /// Renames, with errors in the order of Linux `do_renameat2` and `vfs_rename`. If both names lead to one inode,
    /// nothing happens and nothing is checked (POSIX).
    pub(crate) fn rename(&mut self, call: &mut Call<'_>, op: &meta_op::Rename) -> Result<pb::MetaReply> {
        let ends = self.find_ends(call, op)?;
        if ends.target == Some(ends.source) {
            return self.attr_reply(ends.source);
        }
        if op.exchange {
            self.check_exchange(call, ends)?
        } else {
            self.check_move(call, ends)?
        }
        self.check_datasets(ends)?;
        let displaced = if op.exchange {
            self.exchange(call, ends);
            None
        } else {
            self.move_over(call, ends)
        };
        self.refresh_dataset_paths(ends.source);
        Ok(pb::MetaReply {
            displaced_inode: displaced.map_or(0, |displaced| displaced.inode.raw()),
            displaced_gone: displaced.is_some_and(|displaced| displaced.is_gone),
            ..self.attr_reply(ends.source)?
        })
    }

    fn find_ends<'a>(&self, call: &Call<'_>, op: &'a meta_op::Rename) -> Result<Ends<'a>> {
        if op.no_replace && op.exchange {
            bail!(Invalid, "a rename cannot both exchange and not replace");
        }
        let (source_parent, target_parent) = (InodeId::new(op.source_parent), InodeId::new(op.target_parent));
        self.directory(source_parent)?;
        self.directory(target_parent)?;
        if dir::is_dots(&op.source_name) {
            bail!(Busy, "{} cannot be renamed", dir::show(&op.source_name));
        }
        if dir::is_dots(&op.target_name) {
            if op.no_replace {
                bail!(Exists, "{} exists", dir::show(&op.target_name));
            }
            bail!(Busy, "{} cannot be replaced", dir::show(&op.target_name));
        }
        let (source, inode) = self.find_entry(source_parent, &op.source_name, &call.credentials)?;
        let target = self.find(target_parent, &op.target_name, &call.credentials)?.map(|entry| entry.inode);
        if op.no_replace && target.is_some() {
            bail!(Exists, "{target_parent} has an entry {}", dir::show(&op.target_name));
        }
        if op.exchange && self.directory(source_parent)?.nlink == 0 {
            bail!(NotFound, "{source_parent} has been removed");
        }
        if op.exchange && target.is_none() {
            bail!(
                NotFound,
                "there is no {} in the directory {target_parent} to exchange with",
                dir::show(&op.target_name)
            );
        }
        // Ordering: before the walk upwards, as the parent of a removed directory means nothing.
        if self.directory(target_parent)?.nlink == 0 {
            bail!(NotFound, "{target_parent} has been removed");
        }
        if inode.is_directory() && self.is_within(target_parent, source) {
            bail!(Invalid, "{source} cannot be moved into itself");
        }
        if let Some(target) = target
            && self.inode(target)?.is_directory()
            && self.is_within(source_parent, target)
        {
            if op.exchange {
                bail!(Invalid, "{target} cannot be moved into itself");
            }
            bail!(NotEmpty, "{target} has the source below it");
        }
        Ok(Ends {
            source_parent,
            source_name: &op.source_name,
            source,
            target_parent,
            target_name: &op.target_name,
            target,
        })
    }

    fn check_move(&self, call: &Call<'_>, ends: Ends<'_>) -> Result<()> {
        let source = self.inode(ends.source)?;
        self.check_may_remove(call, ends.source_parent, source)?;
        match ends.target {
            None => {
                self.check_may_add(call, ends.target_parent)?;
                self.check_not_of_snapshots(ends.target_parent, ends.target_name)?;
            }
            Some(id) => {
                let target = self.inode(id)?;
                self.check_may_remove(call, ends.target_parent, target)?;
                self.check_has_no_snapshots(id)?;
                match (source.is_directory(), target.directory()) {
                    (true, None) => bail!(NotDirectory, "{id} is not a directory, {} is", ends.source),
                    (false, Some(_)) => bail!(IsDirectory, "{id} is a directory, {} is not", ends.source),
                    _ => {}
                }
            }
        }
        self.check_parent_change(call, ends, ends.source, source)?;
        if let Some(body) = ends.target.and_then(|id| self.inodes.get(&id)).and_then(|inode| inode.directory())
            && body.count != 0
        {
            bail!(NotEmpty, "{} has {} entries", dir::show(ends.target_name), body.count);
        }
        Ok(())
    }

    fn check_exchange(&self, call: &Call<'_>, ends: Ends<'_>) -> Result<()> {
        let source = self.inode(ends.source)?;
        self.check_may_remove(call, ends.source_parent, source)?;
        if let Some(id) = ends.target {
            let target = self.inode(id)?;
            self.check_may_remove(call, ends.target_parent, target)?;
            self.check_parent_change(call, ends, id, target)?;
        }
        self.check_parent_change(call, ends, ends.source, source)
    }

    /// A directory that gets another parent has its `..` written. This needs write permission on the directory.
    fn check_parent_change(&self, call: &Call<'_>, ends: Ends<'_>, id: InodeId, inode: &Inode) -> Result<()> {
        if ends.source_parent != ends.target_parent && inode.is_directory() {
            permission::check(id, inode, &call.credentials, WRITE)?;
        }
        Ok(())
    }

    /// Refuses a move between datasets. The root of a dataset counts as part of the surrounding one.
    fn check_datasets(&self, ends: Ends<'_>) -> Result<()> {
        if ends.source_parent == ends.target_parent {
            return Ok(());
        }
        let (from, to) = (self.directory(ends.source_parent)?.dataset, self.directory(ends.target_parent)?.dataset);
        if from != to {
            let [from, to] = [from, to].map(|id| self.datasets.settings(id).path.as_str());
            bail!(CrossDevice, "{from} and {to} are different datasets: copy, then remove");
        }
        Ok(())
    }

    /// Moves the source to the target's name, and returns the inode that loses this name.
    fn move_over(&mut self, call: &mut Call<'_>, ends: Ends<'_>) -> Option<Displaced> {
        assert!(ends.target != Some(ends.source), "{} is moved over itself: it would lose its name", ends.source);
        let source_is_directory = self.is_directory(ends.source);
        // I-30: the old name goes before the new one comes, so the file never has both.
        self.remove_entry(call, ends.source_parent, ends.source_name);
        let displaced = match ends.target {
            None => {
                self.add_entry(call, ends.target_parent, ends.target_name, ends.source);
                None
            }
            Some(target) => {
                // I-80: the name is never free in between, so no lookup finds it missing.
                self.redirect(ends.target_parent, ends.target_name, ends.source);
                self.touch_directory(call, ends.target_parent);
                Some(Displaced { inode: target, is_gone: self.lose_name(call, target) })
            }
        };
        if source_is_directory {
            // A target was a directory, too. Its `..` goes and the source's comes, so the count there stays.
            self.lose_subdirectory(ends.source_parent);
            if displaced.is_none() {
                self.edit(ends.target_parent).nlink += 1;
            }
            self.set_parent(ends.source, ends.target_parent);
        }
        self.touch_renamed(call, ends.source);
        displaced
    }

    /// Exchanges what the two names lead to.
    fn exchange(&mut self, call: &mut Call<'_>, ends: Ends<'_>) {
        let Some(target) = ends.target else { return };
        self.redirect(ends.source_parent, ends.source_name, target);
        self.redirect(ends.target_parent, ends.target_name, ends.source);
        for (moved, from, to) in
            [(ends.source, ends.source_parent, ends.target_parent), (target, ends.target_parent, ends.source_parent)]
        {
            if self.is_directory(moved) {
                self.lose_subdirectory(from);
                self.edit(to).nlink += 1;
                self.set_parent(moved, to);
            }
            self.touch_renamed(call, moved);
            self.touch_directory(call, from);
        }
        self.refresh_dataset_paths(target);
    }

    pub(crate) fn redirect(&mut self, parent: InodeId, name: &[u8], inode: InodeId) {
        self.preserve_name(parent, name);
        let is_there = self.entries.redirect(parent, name, inode);
        assert!(is_there, "{parent} has no entry {}: {inode} would lose its name", dir::show(name));
    }

    fn set_parent(&mut self, id: InodeId, parent: InodeId) {
        if let Some(body) = self.edit(id).directory_mut() {
            body.parent = parent;
        }
    }

    pub(crate) fn touch_directory(&mut self, call: &mut Call<'_>, id: InodeId) {
        self.edit(id).modified(call.now);
        call.changed(id);
    }

    fn touch_renamed(&mut self, call: &mut Call<'_>, id: InodeId) {
        self.edit(id).changed(call.now);
        call.changed(id);
    }
}
