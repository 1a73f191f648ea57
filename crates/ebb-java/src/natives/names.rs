//! Names: status, listings, places, and what makes, renames and removes them.

use ebb_api::EbbPath;
use ebb_api::caller::{Depth, Detail, NewMode};
use ebb_client::RenameMode;
use ebb_types::ErrorKind;
use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass};

use super::{PathCall, answer_on_path, on_path, unsigned, whole};
use crate::answer::Answer;
use crate::call::run;

/// Directories above a new link are made with these permission bits, less the mask that Hadoop's programs have.
const ABOVE_A_LINK: NewMode = NewMode { mode: 0o777, umask: 0o022 };

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_status<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
    follow: bool,
) -> JByteArray<'local> {
    answer_on_path(env, caller, &path, async |call| {
        let by = &call.by.caller;
        let attr = if follow { by.resolve(&call.path).await? } else { by.resolve_link(&call.path).await? };
        Ok(call.status(Answer::default(), &attr).await?.finish())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_list<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
    after: i64,
    limit: i32,
    located: bool,
) -> JByteArray<'local> {
    answer_on_path(env, caller, &path, async |call| {
        let after = Some(unsigned(after, "place in a listing")?).filter(|after| *after != 0);
        let limit = u32::try_from(limit).unwrap_or(0);
        let detail = if located { Detail::Places } else { Detail::Attributes };
        let page = call.by.caller.list(&call.path, after, limit, detail).await?;
        let mut answer = Answer::default().size(page.next.unwrap_or(0)).int(page.entries.len());
        for entry in &page.entries {
            answer = call.status(answer.bytes(&entry.name), &entry.attr).await?;
            answer = match &entry.places {
                Some(places) => answer.places(places),
                None => answer.no_places(),
            };
        }
        Ok(answer.finish())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_locations<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
    offset: i64,
    length: i64,
) -> JByteArray<'local> {
    answer_on_path(env, caller, &path, async |call| {
        let (offset, length) = (unsigned(offset, "offset")?, unsigned(length, "length")?);
        let end = offset.saturating_add(length);
        let mut places = call.by.caller.places(&call.path).await?;
        places.retain(|place| place.offset < end && place.offset + place.length > offset);
        Ok(Answer::default().places(&places).finish())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_makeDirectory<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
    mode: i32,
    umask: i32,
    parents: bool,
) -> bool {
    on_path(env, caller, &path, async |call| {
        let new = NewMode { mode: mode.unsigned_abs(), umask: umask.unsigned_abs() };
        if parents {
            return call.by.caller.make_dirs(&call.path, new).await;
        }
        match call.by.caller.make_dir(&call.path, new).await {
            Err(error) if error.kind() == ErrorKind::Exists => Ok(false),
            made => made.map(|_| true),
        }
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_rename<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    source: JByteArray<'local>,
    target: JByteArray<'local>,
    replace: bool,
) {
    run(env, |env| {
        let call = PathCall::new(env, caller, &source)?;
        let target = EbbPath::new(whole(env, &target)?)?;
        let mode = if replace { RenameMode::Replace } else { RenameMode::NoReplace };
        Ok(call.library.wait(call.by.caller.rename(&call.path, &target, mode))?)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_remove<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
    recursive: bool,
) -> bool {
    on_path(env, caller, &path, async |call| {
        call.by.caller.remove(&call.path, if recursive { Depth::Tree } else { Depth::Name }).await
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_link<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    target: JByteArray<'local>,
    link: JByteArray<'local>,
    parents: bool,
) {
    run(env, |env| {
        let call = PathCall::new(env, caller, &link)?;
        let target = whole(env, &target)?;
        let make = async {
            if parents {
                call.by.caller.make_dirs(&call.path.split()?.0, ABOVE_A_LINK).await?;
            }
            call.by.caller.symlink(&target, &call.path).await.map(drop)
        };
        Ok(call.library.wait(make)?)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_readLink<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
) -> JByteArray<'local> {
    answer_on_path(env, caller, &path, async |call| call.by.caller.read_link(&call.path).await)
}
