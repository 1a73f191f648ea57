//! The methods of `ebb.hadoop.Native`.

mod attributes;
mod files;
mod names;
mod sessions;
mod trees;

use std::sync::Arc;

use ebb_api::{EbbPath, File};
use ebb_types::{Attr, FileKind, Result};
use jni::Env;
use jni::objects::JByteArray;

use crate::answer::Answer;
use crate::call::Failure;
use crate::library::{Library, SessionCaller, library};
use crate::memory;

/// What a call about a path needs.
struct PathCall {
    library: &'static Library,
    by: Arc<SessionCaller>,
    path: EbbPath,
}

impl PathCall {
    fn new(env: &Env<'_>, caller: i64, path: &JByteArray<'_>) -> Result<Self, Failure> {
        let library = library()?;
        let by = library.callers.get(caller)?;
        Ok(Self { library, by, path: EbbPath::new(whole(env, path)?)? })
    }

    /// A status, with the names of the owners.
    async fn status(&self, answer: Answer, attr: &Attr, path: Option<&EbbPath>) -> Result<Answer> {
        let owners = self.by.session.owners(attr.uid, attr.gid).await;
        let target = match path {
            Some(path) if attr.kind == FileKind::Symlink => self.by.caller.read_link(path).await?,
            _ => Vec::new(),
        };
        Ok(answer.status(attr, &owners, &target))
    }
}

/// The bytes of an array.
fn whole(env: &Env<'_>, array: &JByteArray<'_>) -> Result<Vec<u8>, Failure> {
    let len = i32::try_from(array.len(env)?).unwrap_or(i32::MAX);
    memory::copied(env, array, 0, len)
}

/// A text.
fn text(env: &Env<'_>, array: &JByteArray<'_>) -> Result<String, Failure> {
    Ok(memory::text(whole(env, array)?)?)
}

/// An open file.
fn open_file(number: i64) -> Result<(&'static Library, Arc<File>), Failure> {
    let library = library()?;
    Ok((library, library.files.get(number)?))
}

/// A number of Java's that is no offset, length or count if it is negative.
fn unsigned(value: i64, what: &str) -> Result<u64> {
    u64::try_from(value).map_err(|_| ebb_types::err!(Invalid, "{value} is no {what}"))
}
