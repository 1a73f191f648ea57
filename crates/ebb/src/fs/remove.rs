//! `ebb fs rm`.

use ebb_api::EbbPath;
use ebb_api::caller::TreeRemoval;
use ebb_types::{ErrorKind, FileKind, InodeId, Result, bail, counted};
use indicatif::ProgressBar;
use serde_json::json;

use super::Session;
use super::trash::Bins;

/// How `ebb fs rm` removes.
#[derive(Clone, Copy, Debug)]
pub struct Removing {
    /// Directories, too, with everything below them.
    pub recursive: bool,
    /// It is no error if there is nothing.
    pub force: bool,
    /// At once, also where a dataset has a trash.
    pub skip_trash: bool,
}

/// Number of removed names.
#[derive(Debug)]
pub struct Removed {
    /// Files, links and special files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Paths that were moved to the trash.
    pub kept: u64,
    bar: ProgressBar,
}

impl Removed {
    fn file(&mut self) {
        self.files += 1;
        self.bar.inc(1);
    }

    fn directory(&mut self) {
        self.directories += 1;
        self.bar.inc(1);
    }

    /// Ends the progress.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Session {
    /// Removes paths. Of several, each stands for itself: a failure is reported, and the others are removed. False:
    /// something was not removed.
    pub(super) async fn rm(&self, paths: &[EbbPath], how: Removing) -> Result<bool> {
        let mut bins = if how.skip_trash { Bins::default() } else { self.bins().await? };
        let mut removed = self.counted_removal();
        let mut failed = Vec::new();
        for path in paths {
            match self.rm_one(path, how, &mut bins, &mut removed).await {
                Err(error) if paths.len() == 1 => {
                    removed.finish();
                    return Err(error);
                }
                Err(error) => {
                    removed.bar.suspend(|| self.output.warn(&error.to_string()));
                    failed.push(json!({ "path": path.to_string(), "error": error.detail() }));
                }
                Ok(()) => {}
            }
        }
        removed.finish();
        let is_whole = failed.is_empty();
        if removed.kept > 0 {
            let kept = counted(removed.kept, "path");
            self.output.say(&format!("{kept} moved to the trash; `ebb fs trash list` shows it"));
        }
        self.answer(|| {
            json!({
                "files": removed.files, "directories": removed.directories, "moved_to_trash": removed.kept,
                "failed": failed,
            })
        });
        Ok(is_whole)
    }

    /// Removes a path with all below.
    pub async fn remove(&self, path: &EbbPath) -> Result<Removed> {
        let mut removed = self.counted_removal();
        let how = Removing { recursive: true, force: true, skip_trash: true };
        let done = self.rm_one(path, how, &mut Bins::default(), &mut removed).await;
        removed.finish();
        done.map(|()| removed)
    }

    pub(super) fn counted_removal(&self) -> Removed {
        Removed { files: 0, directories: 0, kept: 0, bar: self.output.count_bar("removed") }
    }

    async fn rm_one(&self, path: &EbbPath, how: Removing, bins: &mut Bins, removed: &mut Removed) -> Result<()> {
        let attr = match self.caller.resolve_link(path).await {
            Err(error) if how.force && error.kind() == ErrorKind::NotFound => return Ok(()),
            attr => attr?,
        };
        if attr.kind == FileKind::Directory && !how.recursive {
            bail!(IsDirectory, "{path} is a directory: give -r to remove it with all below");
        }
        if let Some(bin) = bins.of(path, &attr)? {
            self.throw(bin, path).await?;
            removed.kept += 1;
            return Ok(());
        }
        let (parent, name) = self.caller.parent(path).await?;
        let explain = |error| self.caller.explain(error, path);
        if attr.kind != FileKind::Directory {
            self.caller.client.unlink(&self.caller.credentials, parent, name).await.map_err(explain)?;
            removed.file();
            return Ok(());
        }
        self.remove_directory(parent, name, attr.inode, removed).await.map_err(explain)
    }

    /// Removes a directory with everything below it: in one step, or name by name where that cannot be.
    pub(super) async fn remove_directory(
        &self,
        parent: InodeId,
        name: &[u8],
        directory: InodeId,
        removed: &mut Removed,
    ) -> Result<()> {
        let sums = self.caller.client.summarize(&self.caller.credentials, directory).await;
        let mut count = |kind| if kind == FileKind::Directory { removed.directory() } else { removed.file() };
        // Who may not list all of it may remove none of it in one step.
        let Ok(sums) = sums else { return self.caller.remove_by_names(parent, name, directory, count).await };
        if self.caller.remove_tree(parent, name, directory, &mut count).await? == TreeRemoval::InOneStep {
            removed.files += sums.files;
            removed.directories += sums.directories;
        }
        Ok(())
    }
}
