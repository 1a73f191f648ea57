//! `ebb fs mkdir`, `ln`, `touch`, `chmod`, `chown`, `chgrp` and `test`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use ebb_cli::path::EbbPath;
use ebb_client::{Access, NewFile, NewName, SetAttr, SetTime};
use ebb_types::{Attr, Error, ErrorKind, FileKind, Result, bail};
use serde_json::json;

use super::command::Condition;
use super::mode::ModeChange;
use super::owner::OwnerChange;
use super::{Session, shown, umask, walk};

impl Session {
    pub(super) async fn mkdir(&self, paths: &[EbbPath], parents: bool) -> Result<()> {
        for path in paths {
            if parents {
                self.make_dirs(path).await?;
            } else {
                self.make_dir(path).await?;
            }
        }
        self.answer(|| json!({ "made": shown(paths) }));
        Ok(())
    }

    async fn make_dirs(&self, path: &EbbPath) -> Result<()> {
        let mut at = EbbPath::new("/")?;
        for part in path.as_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            at = at.join(part);
            match self.find(&at).await? {
                Some(attr) if attr.kind == FileKind::Directory => {}
                Some(_) => bail!(NotDirectory, "{at} is not a directory"),
                None => match self.make_dir(&at).await {
                    // Another command made it meanwhile.
                    Err(error) if error.kind() == ErrorKind::Exists => {}
                    made => made?,
                },
            }
        }
        Ok(())
    }

    async fn make_dir(&self, path: &EbbPath) -> Result<()> {
        let (parent, name) = self.parent(path).await?;
        self.client
            .make_dir(&self.credentials, NewName { parent, name, mode: 0o777, umask: umask() })
            .await
            .map(drop)
            .map_err(|error| self.explain(error, path))
    }

    pub(super) async fn ln(&self, target: &OsStr, link: &EbbPath, symbolic: bool) -> Result<()> {
        let (parent, name) = self.parent(link).await?;
        let done = if symbolic {
            self.client.symlink(&self.credentials, parent, name, target.as_bytes()).await
        } else {
            let target = EbbPath::new(target.as_bytes())?;
            let inode = self.resolve_link(&target).await?.inode;
            self.client.link(&self.credentials, inode, parent, name).await
        };
        done.map_err(|error| self.explain(error, link))?;
        self.answer(|| json!({ "made": [link.to_string()], "symbolic": symbolic }));
        Ok(())
    }

    pub(super) async fn touch(&self, paths: &[EbbPath], no_create: bool) -> Result<()> {
        let mut made = Vec::new();
        for path in paths {
            match self.find(path).await? {
                Some(attr) => {
                    let now = Some(SetTime::Now);
                    self.set(path, &attr, SetAttr { atime: now, mtime: now, ..SetAttr::default() }).await?;
                }
                None if no_create => {}
                None => {
                    let (parent, name) = self.parent(path).await?;
                    let name = NewName { parent, name, mode: 0o666, umask: umask() };
                    let new = NewFile { name, ..NewFile::or_existing(parent, name.name, Access::Write) };
                    let created =
                        self.client.create(&self.credentials, new).await.map_err(|error| self.explain(error, path))?;
                    self.client.close(created.handle).await;
                    made.push(path.clone());
                }
            }
        }
        self.answer(|| json!({ "touched": shown(paths), "made": shown(&made) }));
        Ok(())
    }

    pub(super) async fn chmod(&self, mode: &ModeChange, paths: &[EbbPath], recursive: bool) -> Result<bool> {
        let umask = umask();
        let change = |attr: &Attr| {
            // A symbolic link has no mode of its own.
            let set = SetAttr { mode: Some(mode.apply(attr.mode, attr.kind, umask)), ..SetAttr::default() };
            (attr.kind != FileKind::Symlink && set.mode != Some(attr.mode)).then_some(set)
        };
        self.change_all(paths, recursive, change).await
    }

    pub(super) async fn chown(&self, owner: OwnerChange, paths: &[EbbPath], recursive: bool) -> Result<bool> {
        let change = |_: &Attr| Some(SetAttr { uid: owner.uid, gid: owner.gid, ..SetAttr::default() });
        self.change_all(paths, recursive, change).await
    }

    /// Changes attributes of paths, and of everything below them if `recursive`. Every failure is reported, and the rest
    /// goes on. False: something failed.
    async fn change_all(
        &self,
        paths: &[EbbPath],
        recursive: bool,
        change: impl Fn(&Attr) -> Option<SetAttr>,
    ) -> Result<bool> {
        let mut changes = Changes::default();
        if let ([path], false) = (paths, recursive) {
            let attr = self.resolve(path).await?;
            if let Some(set) = change(&attr) {
                self.set(path, &attr, set).await?;
                changes.changed += 1;
            }
            return Ok(changes.report(self));
        }
        for top in paths {
            let mut found = Vec::new();
            let listed = if recursive {
                walk::walk(self, top, |path, attr| found.push((path.clone(), *attr))).await
            } else {
                self.resolve(top).await.map(|attr| found.push((top.clone(), attr)))
            };
            // What is below comes first: a directory may lose the permission to go there.
            for (path, attr) in found.iter().rev() {
                let Some(set) = change(attr) else { continue };
                match self.set(path, attr, set).await {
                    Ok(()) => changes.changed += 1,
                    Err(error) => changes.fail(self, path, &error),
                }
            }
            if let Err(error) = listed {
                changes.fail(self, top, &error);
            }
        }
        Ok(changes.report(self))
    }

    async fn set(&self, path: &EbbPath, attr: &Attr, set: SetAttr) -> Result<()> {
        self.client
            .set_attr(&self.credentials, attr.inode, set)
            .await
            .map(drop)
            .map_err(|error| self.explain(error, path))
    }

    /// Whether a condition holds.
    pub(super) async fn test(&self, path: &EbbPath, condition: Condition) -> Result<bool> {
        if condition.link {
            return Ok(self.exists(path).await? && self.resolve_link(path).await?.kind == FileKind::Symlink);
        }
        let found = match self.find(path).await {
            // A part of the path is a file.
            Err(error) if error.kind() == ErrorKind::NotDirectory => None,
            found => found?,
        };
        let Some(attr) = found else { return Ok(false) };
        Ok(match attr.kind {
            _ if condition.exists => true,
            kind if condition.file => kind == FileKind::File,
            kind if condition.directory => kind == FileKind::Directory,
            FileKind::Directory => walk::entries(self, attr.inode).await?.is_empty() == condition.zero,
            FileKind::File => (attr.size == 0) == condition.zero,
            _ => false,
        })
    }
}

/// What a command changed, counted.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) changed: u64,
    failed: Vec<serde_json::Value>,
}

impl Changes {
    /// Reports a failure at once, and keeps it for the end.
    pub(super) fn fail(&mut self, session: &Session, path: &EbbPath, error: &Error) {
        session.output.warn(&error.to_string());
        self.failed.push(json!({ "path": path.to_string(), "error": error.detail() }));
    }

    /// False: something was not changed.
    pub(super) fn report(self, session: &Session) -> bool {
        let is_whole = self.failed.is_empty();
        session.answer(|| json!({ "changed": self.changed, "failed": self.failed }));
        is_whole
    }
}
