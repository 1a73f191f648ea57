//! Whole trees, datasets, checksums and leases.

use ebb_api::file::Closing;
use ebb_client::Advice;
use ebb_types::{FileKind, bail};
use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass, JLongArray};

use super::{PathCall, answer_on_path, longs, on_path, unsigned};
use crate::answer::Answer;
use crate::call::run;

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_summary<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
) -> JLongArray<'local> {
    run(env, |env| {
        let call = PathCall::new(env, caller, &path)?;
        let sums = call.library.wait(call.by.caller.summarize(&call.path))?;
        longs(env, &[sums.bytes, sums.files, sums.directories, sums.stored_bytes])
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_space<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
) -> JLongArray<'local> {
    run(env, |env| {
        let call = PathCall::new(env, caller, &path)?;
        let space = call.library.wait(call.by.caller.space(&call.path))?;
        longs(env, &[space.capacity_bytes, space.used_bytes, space.free_bytes])
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_dataset<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
) -> JByteArray<'local> {
    answer_on_path(env, caller, &path, async |call| {
        let by = &call.by.caller;
        let dataset = by.dataset(&by.resolve(&call.path).await?).await?;
        let answer = Answer::default()
            .bytes(dataset.path.as_bytes())
            .size(dataset.quota_bytes)
            .size(dataset.quota_inodes)
            .size(dataset.used_bytes)
            .size(dataset.used_inodes)
            .int(dataset.trash_seconds as usize)
            .int(dataset.replicas as usize)
            .size(dataset.metablock_size)
            .size(dataset.block_size);
        Ok(answer.finish())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_checksum<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
    length: i64,
) -> i32 {
    on_path(env, caller, &path, async |call| {
        let end = unsigned(length, "length")?;
        let file = call.by.caller.open(&call.path, Advice::Sequential).await?;
        let summed = file.checksum(end).await;
        file.close(Closing::Received).await.and(summed).map(u32::cast_signed)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_recoverLease<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
) -> bool {
    on_path(env, caller, &path, async |call| {
        let file = call.by.caller.open_for_writing(&call.path).await?;
        let taken = file.take_over().await;
        file.close(Closing::Received).await.and(taken).map(|()| true)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_isClosed<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
) -> bool {
    on_path(env, caller, &path, async |call| {
        let attr = call.by.caller.resolve(&call.path).await?;
        if attr.kind != FileKind::File {
            bail!(Invalid, "{} is not a regular file", call.path);
        }
        Ok(!attr.size_unknown)
    })
}
