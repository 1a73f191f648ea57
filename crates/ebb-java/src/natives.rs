//! The methods of `ebb.hadoop.Native`.

mod attributes;
mod files;
mod names;
mod sessions;
mod snapshots;
mod trees;

use std::sync::Arc;

use ebb_api::{Caller, EbbPath, File};
use ebb_types::{Attr, FileKind, Result};
use jni::objects::{JByteArray, JLongArray};
use jni::{Env, EnvUnowned};

use crate::answer::Answer;
use crate::call::{self, Failure};
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
    async fn status(&self, answer: Answer, attr: &Attr) -> Result<Answer> {
        let owners = self.by.session.owners(attr.uid, attr.gid).await;
        let Caller { client, credentials } = &self.by.caller;
        let target = match attr.kind {
            FileKind::Symlink => client.read_link(credentials, attr.inode).await?,
            _ => Vec::new(),
        };
        Ok(answer.status(attr, &owners, &target))
    }
}

/// Runs a method about a path, which needs nothing else of Java's memory.
fn on_path<'local, T: Default>(
    env: EnvUnowned<'local>,
    caller: i64,
    path: &JByteArray<'local>,
    work: impl AsyncFnOnce(&PathCall) -> Result<T>,
) -> T {
    call::run(env, |env| {
        let call = PathCall::new(env, caller, path)?;
        Ok(call.library.wait(work(&call))?)
    })
}

/// The same for a method that needs the bytes of one more array, such as a name.
fn on_path_with<'local, T: Default>(
    env: EnvUnowned<'local>,
    caller: i64,
    path: &JByteArray<'local>,
    bytes: &JByteArray<'local>,
    work: impl AsyncFnOnce(&PathCall, &[u8]) -> Result<T>,
) -> T {
    call::run(env, |env| {
        let (call, bytes) = (PathCall::new(env, caller, path)?, whole(env, bytes)?);
        Ok(call.library.wait(work(&call, &bytes))?)
    })
}

/// The same for an answer in bytes.
fn answer_on_path<'local>(
    env: EnvUnowned<'local>,
    caller: i64,
    path: &JByteArray<'local>,
    work: impl AsyncFnOnce(&PathCall) -> Result<Vec<u8>>,
) -> JByteArray<'local> {
    call::answer(env, |env| {
        let call = PathCall::new(env, caller, path)?;
        Ok(call.library.wait(work(&call))?)
    })
}

/// Numbers, as Java has them. None of ours passes 2^63.
fn longs<'local>(env: &mut Env<'local>, numbers: &[u64]) -> Result<JLongArray<'local>, Failure> {
    let numbers: Vec<i64> = numbers.iter().map(|number| i64::try_from(*number).unwrap_or(i64::MAX)).collect();
    signed_longs(env, &numbers)
}

/// The same for numbers that may be negative.
fn signed_longs<'local>(env: &mut Env<'local>, numbers: &[i64]) -> Result<JLongArray<'local>, Failure> {
    let array = JLongArray::new(env, numbers.len())?;
    array.set_region(env, 0, numbers)?;
    Ok(array)
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
