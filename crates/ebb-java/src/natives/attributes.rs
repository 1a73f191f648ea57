//! Attributes, extended attributes and access control lists.

use ebb_api::acl::AclLists;
use ebb_api::users;
use ebb_client::{SetAttr, SetTime, XattrMode};
use ebb_types::{FileKind, Result, WallTime, err};
use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass};

use super::{PathCall, answer_on_path, on_path, on_path_with, text, unsigned, whole};
use crate::call::{answer, run};

/// Nanoseconds of a millisecond.
const MS: i64 = 1_000_000;

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_setMode<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
    mode: i32,
) {
    on_path(env, caller, &path, async |call| {
        let set = SetAttr { mode: Some(mode.unsigned_abs() & 0o7777), ..SetAttr::default() };
        call.by.caller.set_attr(&call.path, set).await.map(drop)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_setOwner<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
    user: JByteArray<'local>,
    group: JByteArray<'local>,
) {
    run(env, |env| {
        let call = PathCall::new(env, caller, &path)?;
        let user = if user.is_null() { None } else { Some(text(env, &user)?) };
        let group = if group.is_null() { None } else { Some(text(env, &group)?) };
        let set = async {
            let uid = match user {
                Some(name) => Some(number_of(&call, &name).await?),
                None => None,
            };
            let gid = group.map(|name| users::gid_of(&name).map_err(|why| err!(Invalid, "{why}"))).transpose()?;
            call.by.caller.set_attr(&call.path, SetAttr { uid, gid, ..SetAttr::default() }).await
        };
        call.library.wait(set)?;
        Ok(())
    })
}

/// The number of a user: the system's, else the cluster's.
async fn number_of(call: &PathCall, name: &str) -> Result<u32> {
    match users::uid_of(name) {
        Ok(uid) => Ok(uid),
        Err(_) => Ok(ebb_api::Caller::named(&call.by.caller.client, name).await?.credentials.uid),
    }
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_setTimes<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
    modified: i64,
    accessed: i64,
) {
    on_path(env, caller, &path, async |call| {
        let time = |ms: i64| (ms >= 0).then(|| SetTime::At(WallTime(ms.saturating_mul(MS))));
        call.by.caller.set_times(&call.path, time(modified), time(accessed)).await.map(drop)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_truncate<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
    size: i64,
) {
    on_path(env, caller, &path, async |call| {
        let set = SetAttr { size: Some(unsigned(size, "size")?), ..SetAttr::default() };
        call.by.caller.set_attr(&call.path, set).await.map(drop)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_access<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
    permissions: i32,
) {
    on_path(env, caller, &path, async |call| {
        call.by.caller.access(&call.path, permissions.unsigned_abs() & 7).await.map(drop)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_getXattr<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
    name: JByteArray<'local>,
) -> JByteArray<'local> {
    answer(env, |env| {
        let call = PathCall::new(env, caller, &path)?;
        let name = whole(env, &name)?;
        Ok(call.library.wait(call.by.caller.get_xattr(&call.path, &name))?)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_listXattrs<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
) -> JByteArray<'local> {
    answer_on_path(env, caller, &path, async |call| {
        let names = call.by.caller.list_xattrs(&call.path).await?;
        Ok(names.into_iter().flat_map(|name| [name, vec![0]].concat()).collect())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_setXattr<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
    name: JByteArray<'local>,
    value: JByteArray<'local>,
    create: bool,
    replace: bool,
) {
    run(env, |env| {
        let call = PathCall::new(env, caller, &path)?;
        let (name, value) = (whole(env, &name)?, whole(env, &value)?);
        let mode = match (create, replace) {
            (true, false) => XattrMode::Create,
            (false, true) => XattrMode::Replace,
            _ => XattrMode::Any,
        };
        Ok(call.library.wait(call.by.caller.set_xattr(&call.path, &name, value.into(), mode))?)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_removeXattr<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
    name: JByteArray<'local>,
) {
    on_path_with(env, caller, &path, &name, async |call, name| call.by.caller.remove_xattr(&call.path, name).await)
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_getAcl<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
) -> JByteArray<'local> {
    answer_on_path(env, caller, &path, async |call| {
        let by = &call.by.caller;
        let attr = by.resolve(&call.path).await?;
        let lists = by.acl(&attr).await.map_err(|error| by.explain(error, &call.path))?;
        Ok(lists.text().into_bytes())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_setAcl<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
    entries: JByteArray<'local>,
) {
    run(env, |env| {
        let call = PathCall::new(env, caller, &path)?;
        let lists = AclLists::parse(&text(env, &entries)?)?;
        let by = &call.by.caller;
        let set = async {
            let attr = by.resolve(&call.path).await?;
            if attr.kind != FileKind::Directory && lists.default.is_some() {
                return Err(err!(Invalid, "only a directory has default entries"));
            }
            by.set_access_acl(&attr, &lists.access).await?;
            if attr.kind == FileKind::Directory {
                by.set_default_acl(&attr, lists.default.as_ref()).await
            } else {
                Ok(())
            }
        };
        Ok(call.library.wait(set).map_err(|error| by.explain(error, &call.path))?)
    })
}
