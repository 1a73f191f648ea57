//! `ebb fs mkdir`, `ln`, `touch`, `chmod`, `chown`, `chgrp` and `test`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use ebb_api::EbbPath;
use ebb_api::caller::NewMode;
use ebb_api::file::{Closing, CreateFile};
use ebb_api::first::FirstCopies;
use ebb_client::{IfExists, SetAttr, SetTime};
use ebb_types::{Attr, ErrorKind, FileKind, Result};
use serde_json::json;

use super::command::Condition;
use super::each::Change;
use super::mode::ModeChange;
use super::owner::OwnerChange;
use super::{Session, shown, umask};

impl Session {
    pub(super) async fn mkdir(&self, paths: &[EbbPath], parents: bool) -> Result<()> {
        let new = NewMode { mode: 0o777, umask: umask() };
        for path in paths {
            if parents {
                self.caller.make_dirs(path, new).await?;
            } else {
                self.caller.make_dir(path, new).await?;
            }
        }
        self.answer(|| json!({ "made": shown(paths) }));
        Ok(())
    }

    pub(super) async fn ln(&self, target: &OsStr, link: &EbbPath, symbolic: bool) -> Result<()> {
        if symbolic {
            self.caller.symlink(target.as_bytes(), link).await?;
        } else {
            self.caller.link(&EbbPath::new(target.as_bytes())?, link).await?;
        }
        self.answer(|| json!({ "made": [link.to_string()], "symbolic": symbolic }));
        Ok(())
    }

    pub(super) async fn touch(&self, paths: &[EbbPath], no_create: bool) -> Result<()> {
        let mut made = Vec::new();
        for path in paths {
            match self.caller.find(path).await? {
                Some(attr) => {
                    let now = Some(SetTime::Now);
                    self.set(path, &attr, SetAttr { atime: now, mtime: now, ..SetAttr::default() }).await?;
                }
                None if no_create => {}
                None => {
                    let mode = NewMode { mode: 0o666, umask: umask() };
                    let new = CreateFile { mode, if_exists: IfExists::Open, first: FirstCopies::Layout };
                    self.caller.create(path, new).await?.close(Closing::Received).await?;
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
        self.change_each(paths, recursive, &Attributes(change)).await
    }

    pub(super) async fn chown(&self, owner: OwnerChange, paths: &[EbbPath], recursive: bool) -> Result<bool> {
        let change = |_: &Attr| Some(SetAttr { uid: owner.uid, gid: owner.gid, ..SetAttr::default() });
        self.change_each(paths, recursive, &Attributes(change)).await
    }

    async fn set(&self, path: &EbbPath, attr: &Attr, set: SetAttr) -> Result<()> {
        self.caller
            .client
            .set_attr(&self.caller.credentials, attr.inode, set)
            .await
            .map(drop)
            .map_err(|error| self.caller.explain(error, path))
    }

    /// Whether a condition holds.
    pub(super) async fn test(&self, path: &EbbPath, condition: Condition) -> Result<bool> {
        if condition.link {
            return Ok(self.exists(path).await? && self.caller.resolve_link(path).await?.kind == FileKind::Symlink);
        }
        let found = match self.caller.find(path).await {
            // A part of the path is a file.
            Err(error) if error.kind() == ErrorKind::NotDirectory => None,
            found => found?,
        };
        let Some(attr) = found else { return Ok(false) };
        Ok(match attr.kind {
            _ if condition.exists => true,
            kind if condition.file => kind == FileKind::File,
            kind if condition.directory => kind == FileKind::Directory,
            FileKind::Directory => self.caller.entries(attr.inode).await?.is_empty() == condition.zero,
            FileKind::File => (attr.size == 0) == condition.zero,
            _ => false,
        })
    }
}

/// A change of attributes, chosen by those that are there.
struct Attributes<F>(F);

impl<F: Fn(&Attr) -> Option<SetAttr> + Sync> Change for Attributes<F> {
    async fn apply(&self, session: &Session, path: &EbbPath, attr: &Attr) -> Result<bool> {
        match self.0(attr) {
            Some(set) => session.set(path, attr, set).await.map(|()| true),
            None => Ok(false),
        }
    }
}
