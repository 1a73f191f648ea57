//! `ebb fs rm`.

use ebb_cli::path::EbbPath;
use ebb_types::{ErrorKind, FileKind, InodeId, Result, bail};

use super::{Session, walk};

impl Session {
    /// Removes paths. Of several, each stands for itself: a failure is reported, and the others are removed. False:
    /// something was not removed.
    pub(super) async fn rm(&self, paths: &[EbbPath], recursive: bool, force: bool) -> Result<bool> {
        if let [path] = paths {
            return self.rm_one(path, recursive, force).await.map(|()| true);
        }
        let mut is_whole = true;
        for path in paths {
            if let Err(error) = self.rm_one(path, recursive, force).await {
                self.output.warn(&error.to_string());
                is_whole = false;
            }
        }
        Ok(is_whole)
    }

    async fn rm_one(&self, path: &EbbPath, recursive: bool, force: bool) -> Result<()> {
        let attr = match self.resolve_link(path).await {
            Err(error) if force && error.kind() == ErrorKind::NotFound => return Ok(()),
            attr => attr?,
        };
        let (parent, name) = self.parent(path).await?;
        if attr.kind != FileKind::Directory {
            return self
                .client
                .unlink(&self.credentials, parent, name)
                .await
                .map_err(|error| self.explain(error, path));
        }
        if !recursive {
            bail!(IsDirectory, "{path} is a directory: give -r to remove it with all below");
        }
        self.empty(attr.inode).await.map_err(|error| self.explain(error, path))?;
        self.client.remove_dir(&self.credentials, parent, name).await.map_err(|error| self.explain(error, path))
    }

    /// Removes all below a directory, deepest first, without recursion: a tree may be deeper than a stack.
    async fn empty(&self, top: InodeId) -> Result<()> {
        let mut stack = vec![(top, walk::entries(self, top).await?)];
        while let Some((directory, left)) = stack.last_mut() {
            let directory = *directory;
            let Some(entry) = left.pop() else {
                stack.pop();
                // Its own name stands in the listing of the directory above, whose turn comes again.
                continue;
            };
            if entry.kind != FileKind::Directory {
                self.client.unlink(&self.credentials, directory, &entry.name).await?;
                continue;
            }
            let inside = walk::entries(self, entry.inode).await?;
            if inside.is_empty() {
                self.client.remove_dir(&self.credentials, directory, &entry.name).await?;
            } else {
                let inode = entry.inode;
                left.push(entry);
                stack.push((inode, inside));
            }
        }
        Ok(())
    }
}
