//! Snapshots of datasets.

use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass};

use super::{PathCall, on_path_with, whole};
use crate::call::run;

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_takeSnapshot<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
    name: JByteArray<'local>,
) {
    on_path_with(env, caller, &path, &name, async |call, name| call.by.caller.take_snapshot(&call.path, name).await)
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_removeSnapshot<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
    name: JByteArray<'local>,
) {
    on_path_with(env, caller, &path, &name, async |call, name| call.by.caller.remove_snapshot(&call.path, name).await)
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_renameSnapshot<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
    name: JByteArray<'local>,
    new_name: JByteArray<'local>,
) {
    run(env, |env| {
        let call = PathCall::new(env, caller, &path)?;
        let (name, new_name) = (whole(env, &name)?, whole(env, &new_name)?);
        Ok(call.library.wait(call.by.caller.rename_snapshot(&call.path, &name, &new_name))?)
    })
}
