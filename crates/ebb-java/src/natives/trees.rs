//! Whole trees, datasets, checksums and leases.

use ebb_client::Advice;
use ebb_types::{FileKind, bail};
use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass, JLongArray};

use super::{PathCall, unsigned};
use crate::answer::Answer;
use crate::call::{answer, run};

fn numbers<'local, const N: usize>(
    env: &mut jni::Env<'local>,
    numbers: [u64; N],
) -> jni::errors::Result<JLongArray<'local>> {
    let numbers = numbers.map(|number| i64::try_from(number).unwrap_or(i64::MAX));
    let array = JLongArray::new(env, N)?;
    array.set_region(env, 0, &numbers)?;
    Ok(array)
}

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
        Ok(numbers(env, [sums.bytes, sums.files, sums.directories, sums.stored_bytes])?)
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
        Ok(numbers(env, [space.capacity_bytes, space.used_bytes, space.free_bytes])?)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_dataset<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
) -> JByteArray<'local> {
    answer(env, |env| {
        let call = PathCall::new(env, caller, &path)?;
        let by = &call.by.caller;
        let found = async { by.dataset(&by.resolve(&call.path).await?).await };
        let dataset = call.library.wait(found)?;
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
    run(env, |env| {
        let call = PathCall::new(env, caller, &path)?;
        let end = unsigned(length, "length")?;
        let sum = async {
            let file = call.by.caller.open(&call.path, Advice::Sequential).await?;
            let summed = file.checksum(end).await;
            file.close(ebb_api::file::Closing::Received).await.and(summed)
        };
        Ok(call.library.wait(sum)?.cast_signed())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_recoverLease<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
) -> bool {
    run(env, |env| {
        let call = PathCall::new(env, caller, &path)?;
        // A read lease is granted once the holder has given the write lease back, or its recovery has ended.
        let taken = async {
            let file = call.by.caller.open(&call.path, Advice::Normal).await?;
            file.close(ebb_api::file::Closing::Received).await
        };
        call.library.wait(taken)?;
        Ok(true)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_isClosed<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
) -> bool {
    run(env, |env| {
        let call = PathCall::new(env, caller, &path)?;
        let found = async {
            let attr = call.by.caller.resolve(&call.path).await?;
            if attr.kind != FileKind::File {
                bail!(Invalid, "{} is not a regular file", call.path);
            }
            Ok(!attr.size_unknown)
        };
        Ok(call.library.wait(found)?)
    })
}
