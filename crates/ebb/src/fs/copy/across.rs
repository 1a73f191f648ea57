//! `ebb fs mv` between datasets, whose files lie on other nodes or in other layouts.
//!
//! The copy is made under a name beside the target, with all attributes, and compared byte by byte. Then it gets its
//! name, and the source goes. A command that ends before leaves the source as it is.

use ebb_api::path::EbbPath;
use ebb_client::{Access, RenameMode, SetAttr, SetTime, XattrMode};
use ebb_types::{Attr, ErrorKind, FileKind, Result, bail, err};

use super::CopyArgs;
use super::tally::Tally;
use crate::fs::{STEP, Session, walk};

/// Begin of the name of a copy that is not complete.
const TEMPORARY: &str = ".ebb-move-";

impl Session {
    /// Moves a file or a tree into another dataset.
    pub(in crate::fs) async fn move_across(&self, source: &EbbPath, target: &EbbPath) -> Result<()> {
        if target.below(source).is_some() {
            bail!(Invalid, "{target} is within {source}: a tree cannot be moved into itself");
        }
        let (directory, _) = target.split()?;
        let aside = directory.join(format!("{TEMPORARY}{:016x}", ebb_runtime::Runtime::real().random_u64()).as_bytes());
        let moved = match self.copy_beside(source, &aside).await {
            Ok(()) => self.caller.rename(&aside, target, RenameMode::Replace).await,
            Err(error) => Err(error),
        };
        if let Err(error) = moved {
            // What is left of a copy is no file of anybody; the first error matters more than one of this.
            let _ = self.remove(&aside).await;
            return Err(error.context(format_args!("{source} stays where it is")));
        }
        self.remove(source)
            .await
            .map(drop)
            .map_err(|error| error.context(format_args!("{target} is complete, {source} not removed")))
    }

    async fn copy_beside(&self, source: &EbbPath, aside: &EbbPath) -> Result<()> {
        let top = self.caller.resolve_link(source).await?;
        if top.kind == FileKind::Symlink {
            let (parent, name) = self.caller.parent(aside).await?;
            let link = self.caller.client.read_link(&self.caller.credentials, top.inode).await?;
            return self.caller.client.symlink(&self.caller.credentials, parent, name, &link).await.map(drop);
        }
        // All attributes are set when the contents were compared.
        let args = CopyArgs { recursive: true, force: false, no_clobber: false, preserve: false };
        let mut tally = Tally::default();
        self.cp_tree(source, aside, args, &mut tally).await?;
        if let Some(trouble) = tally.trouble() {
            bail!(Invalid, "{trouble}");
        }
        // Listed anew: what was made meanwhile has no copy, and ends the move.
        let mut found = Vec::new();
        walk::walk(self, source, |path, attr| found.push((path.clone(), *attr))).await?;
        // Directories last, the deepest first: each file that is changed in one changes its times.
        for (path, attr) in found.iter().rev() {
            let below = path.below(source).unwrap_or_default();
            let copy = if below.is_empty() { aside.clone() } else { aside.join(below) };
            self.complete(attr, &copy).await.map_err(|error| error.context(path))?;
        }
        Ok(())
    }

    /// Compares a copy with its source, and gives it the attributes that a copy of contents leaves out.
    async fn complete(&self, attr: &Attr, copy: &EbbPath) -> Result<()> {
        let copied = self.caller.resolve_link(copy).await?;
        if attr.kind == FileKind::Symlink {
            return Ok(());
        }
        if attr.kind == FileKind::File {
            self.compare(attr, &copied).await?;
        }
        let (client, credentials) = (&self.caller.client, &self.caller.credentials);
        let names = client.list_xattr(credentials, attr.inode).await?;
        if !names.is_empty() && !credentials.is_root() {
            // Without the right to write, an owner sets no attributes. The mode of the source comes last.
            let writable = SetAttr { mode: Some(attr.mode & 0o777 | 0o600), ..SetAttr::default() };
            client.set_attr(credentials, copied.inode, writable).await?;
        }
        for name in names {
            match client.get_xattr(credentials, attr.inode, &name).await {
                Ok(value) => {
                    client.set_xattr(credentials, copied.inode, &name, value.into(), XattrMode::Any).await?;
                }
                // It has been removed meanwhile, or is one that the file system answers itself.
                Err(error) if error.kind() == ErrorKind::NoAttribute => {}
                Err(error) => return Err(error),
            }
        }
        let is_root = credentials.is_root();
        let owner =
            SetAttr { uid: is_root.then_some(attr.uid), gid: is_root.then_some(attr.gid), ..SetAttr::default() };
        client.set_attr(credentials, copied.inode, owner).await?;
        let (atime, mtime) = (Some(SetTime::At(attr.atime)), Some(SetTime::At(attr.mtime)));
        let rest = SetAttr { mode: Some(attr.mode & 0o7777), atime, mtime, ..SetAttr::default() };
        client.set_attr(credentials, copied.inode, rest).await.map(drop)
    }

    /// Reads both files side by side.
    async fn compare(&self, source: &Attr, copy: &Attr) -> Result<()> {
        let client = &self.caller.client;
        let (left, _) = client.open(&self.caller.credentials, source.inode, Access::Read).await?;
        let opened = client.open(&self.caller.credentials, copy.inode, Access::Read).await;
        let done = match opened {
            Ok((right, _)) => {
                let done = self.compare_open(left, right).await;
                client.close(right).await;
                done
            }
            Err(error) => Err(error),
        };
        client.close(left).await;
        done
    }

    async fn compare_open(&self, left: ebb_client::Handle, right: ebb_client::Handle) -> Result<()> {
        let mut offset = 0;
        loop {
            let (one, other) = tokio::try_join!(
                self.caller.client.read(left, offset, STEP),
                self.caller.client.read(right, offset, STEP)
            )?;
            if one != other {
                return Err(err!(Stale, "the copy differs: the file has been written meanwhile"));
            }
            if one.is_empty() {
                return Ok(());
            }
            offset += one.len() as u64;
        }
    }
}
