//! Names: made, renamed, removed.

use ebb_client::{NewName, Rename, RenameMode};
use ebb_types::{Attr, Error, ErrorKind, FileKind, InodeId, Result, bail};

use super::Caller;
use crate::path::EbbPath;

/// Permission bits of something new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewMode {
    /// As the program asked for them.
    pub mode: u32,
    /// The program's mask; a default ACL of the directory replaces it.
    pub umask: u32,
}

/// How much a removal takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Depth {
    /// A file, or a directory that is empty.
    Name,
    /// A directory with everything below it, too.
    Tree,
}

/// How a tree was removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeRemoval {
    /// Its name went, and what is below it goes in the background.
    InOneStep,
    /// Each name for itself.
    NameByName,
}

impl Caller {
    /// Makes a directory.
    pub async fn make_dir(&self, path: &EbbPath, new: NewMode) -> Result<Attr> {
        let (parent, name) = self.parent(path).await?;
        let NewMode { mode, umask } = new;
        let made = self.client.make_dir(&self.credentials, NewName { parent, name, mode, umask }).await;
        made.map_err(|error| self.explain(error, path))
    }

    /// Makes a directory, and those above it that are missing, which its maker may then change. False: it was there.
    pub async fn make_dirs(&self, path: &EbbPath, new: NewMode) -> Result<bool> {
        let mut missing = Vec::new();
        let mut at = path.clone();
        loop {
            match self.find(&at).await? {
                Some(attr) if attr.kind == FileKind::Directory => break,
                Some(_) => bail!(NotDirectory, "{} is not a directory", at.shown()),
                None => {
                    let above = at.split()?.0;
                    missing.push(std::mem::replace(&mut at, above));
                }
            }
        }
        let is_new = !missing.is_empty();
        while let Some(at) = missing.pop() {
            let mode = if missing.is_empty() { new.mode } else { new.mode | 0o300 };
            match self.make_dir(&at, NewMode { mode, ..new }).await {
                // Another program made it meanwhile. If it is no directory, the next step or the caller's use finds out.
                Err(error) if error.kind() == ErrorKind::Exists => {}
                made => drop(made?),
            }
        }
        Ok(is_new)
    }

    /// Renames in one step.
    ///
    /// # Errors
    /// `CrossDevice` names both datasets if the target is in another one.
    pub async fn rename(&self, source: &EbbPath, target: &EbbPath, mode: RenameMode) -> Result<()> {
        let (source_parent, source_name) = self.parent(source).await?;
        let (target_parent, target_name) = self.parent(target).await?;
        let rename = Rename { source_parent, source_name, target_parent, target_name, mode };
        let renamed = self.client.rename(&self.credentials, rename).await;
        renamed.map_err(|error| match error.kind() {
            // These are about the new name.
            ErrorKind::NotEmpty | ErrorKind::IsDirectory | ErrorKind::Exists => self.explain(error, target),
            ErrorKind::CrossDevice => {
                Error::new(error.kind(), format!("{source} cannot be renamed to {target}: {}", error.detail()))
            }
            _ => self.explain(error, source),
        })
    }

    /// Removes what is at a path; a tree as [`Caller::remove_tree`] does. False: there was nothing.
    pub async fn remove(&self, path: &EbbPath, depth: Depth) -> Result<bool> {
        let attr = match self.resolve_link(path).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            attr => attr?,
        };
        let (parent, name) = self.parent(path).await?;
        let (client, credentials) = (&self.client, &self.credentials);
        let removed = match (attr.kind, depth) {
            (FileKind::Directory, Depth::Name) => client.remove_dir(credentials, parent, name).await,
            (FileKind::Directory, Depth::Tree) => {
                self.remove_tree(parent, name, attr.inode, |_| {}).await.map(|_: TreeRemoval| ())
            }
            _ => client.unlink(credentials, parent, name).await,
        };
        match removed {
            Ok(()) => Ok(true),
            // Another program was faster.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.explain(error, path)),
        }
    }

    /// Removes a directory with everything below it: the name in one step, and the rest in the background. A tree that cannot go so (a
    /// dataset lies in it, or it has very many names for a user that is not root) goes name by name. `removed` hears of each name then.
    pub async fn remove_tree(
        &self,
        parent: InodeId,
        name: &[u8],
        directory: InodeId,
        removed: impl FnMut(FileKind),
    ) -> Result<TreeRemoval> {
        match self.client.remove_tree(&self.credentials, parent, name).await {
            Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::TooBig) => {
                self.remove_by_names(parent, name, directory, removed).await.map(|()| TreeRemoval::NameByName)
            }
            done => done.map(|()| TreeRemoval::InOneStep),
        }
    }

    /// Removes a directory with everything below it, name by name, deepest first; without recursion, for a tree may be deeper than
    /// a stack. `removed` hears of each name.
    pub async fn remove_by_names(
        &self,
        parent: InodeId,
        name: &[u8],
        directory: InodeId,
        mut removed: impl FnMut(FileKind),
    ) -> Result<()> {
        let (client, credentials) = (&self.client, &self.credentials);
        let mut stack = vec![(directory, self.entries(directory).await?)];
        while let Some((directory, left)) = stack.last_mut() {
            let directory = *directory;
            let Some(entry) = left.pop() else {
                stack.pop();
                // Its own name stands in the listing of the directory above, whose turn comes again.
                continue;
            };
            if entry.kind != FileKind::Directory {
                if_there(client.unlink(credentials, directory, &entry.name).await)?;
                removed(entry.kind);
                continue;
            }
            let Some(inside) = if_there(self.entries(entry.inode).await)? else { continue };
            if inside.is_empty() {
                if_there(client.remove_dir(credentials, directory, &entry.name).await)?;
                removed(entry.kind);
            } else {
                let inode = entry.inode;
                left.push(entry);
                stack.push((inode, inside));
            }
        }
        client.remove_dir(credentials, parent, name).await?;
        removed(FileKind::Directory);
        Ok(())
    }

    /// Makes a symbolic link. The target is kept as it is given.
    pub async fn symlink(&self, target: &[u8], link: &EbbPath) -> Result<Attr> {
        let (parent, name) = self.parent(link).await?;
        let made = self.client.symlink(&self.credentials, parent, name, target).await;
        made.map_err(|error| self.explain(error, link))
    }

    /// Makes another name for a file. A symbolic link at the end of `source` is not followed.
    pub async fn link(&self, source: &EbbPath, link: &EbbPath) -> Result<Attr> {
        let inode = self.resolve_link(source).await?.inode;
        let (parent, name) = self.parent(link).await?;
        let made = self.client.link(&self.credentials, inode, parent, name).await;
        made.map_err(|error| self.explain(error, link))
    }

    /// The target of a symbolic link, as it was given.
    pub async fn read_link(&self, path: &EbbPath) -> Result<Vec<u8>> {
        let attr = self.resolve_link(path).await?;
        if attr.kind != FileKind::Symlink {
            bail!(Invalid, "{path} is not a symbolic link");
        }
        self.client.read_link(&self.credentials, attr.inode).await.map_err(|error| self.explain(error, path))
    }
}

/// What another program has removed meanwhile needs no removal.
fn if_there<T>(done: Result<T>) -> Result<Option<T>> {
    match done {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale) => Ok(None),
        done => done.map(Some),
    }
}
