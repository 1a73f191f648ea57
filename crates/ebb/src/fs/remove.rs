//! `ebb fs rm`.

use ebb_cli::path::EbbPath;
use ebb_types::{FileKind, InodeId, Result, bail};

use super::{Session, walk};

impl Session {
    pub(super) async fn rm(&self, paths: &[EbbPath], recursive: bool) -> Result<()> {
        for path in paths {
            let attr = self.resolve_link(path).await?;
            let (parent, name) = self.parent(path).await?;
            if attr.kind != FileKind::Directory {
                self.client.unlink(&self.credentials, parent, name).await.map_err(|error| error.context(path))?;
                continue;
            }
            if !recursive {
                bail!(IsDirectory, "{path} is a directory: give -r to remove it with all below");
            }
            self.empty(attr.inode).await.map_err(|error| error.context(path))?;
            self.client.remove_dir(&self.credentials, parent, name).await.map_err(|error| error.context(path))?;
        }
        Ok(())
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
