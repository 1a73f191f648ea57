//! Open files.

use bytes::Bytes;
use ebb_api::File;
use ebb_api::caller::NewMode;
use ebb_api::file::{Closing, CreateFile};
use ebb_api::first::FirstCopies;
use ebb_client::{Advice, IfExists};
use ebb_types::{ErrorKind, HostName, Result, bail};
use jni::EnvUnowned;
use jni::objects::{JByteArray, JByteBuffer, JClass, JLongArray};

use super::{PathCall, answer_on_path, open_file, signed_longs, text, unsigned};
use crate::answer::Answer;
use crate::call::{answer, run};
use crate::library::library;
use crate::memory::{self, Kept};

/// Directories above a new file are made with these permission bits.
const ABOVE: u32 = 0o777;

fn advice(number: i32) -> Result<Advice> {
    Ok(match number {
        0 => Advice::Normal,
        1 => Advice::Sequential,
        2 => Advice::Random,
        _ => bail!(Invalid, "{number} is no advice for reads"),
    })
}

fn if_exists(number: i32) -> Result<IfExists> {
    Ok(match number {
        0 => IfExists::Fail,
        1 => IfExists::Replace,
        2 => IfExists::Open,
        _ => bail!(Invalid, "{number} does not say what to do with a file that exists"),
    })
}

fn first_copies(number: i32) -> Result<FirstCopies> {
    Ok(match number {
        0 => FirstCopies::Layout,
        1 => FirstCopies::Elsewhere,
        2 => FirstCopies::Anywhere,
        _ => bail!(Invalid, "{number} does not say where first copies go"),
    })
}

/// Keeps an open file for Java.
async fn opened(call: &PathCall, file: File) -> Result<Vec<u8>> {
    let attr = *file.attr();
    let number = call.library.files.put(file);
    Ok(call.status(Answer::default().long(number), &attr).await?.finish())
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_open<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
    advised: i32,
    end: i64,
) -> JByteArray<'local> {
    answer_on_path(env, caller, &path, async |call| {
        let advice = advice(advised)?;
        let file = call.by.caller.open(&call.path, advice).await?;
        file.expect_end(unsigned(end, "end of reads")?)?;
        opened(call, file).await
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_create<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
    mode: i32,
    umask: i32,
    exists: i32,
    parents: bool,
    first: i32,
    hosts: JByteArray<'local>,
) -> JByteArray<'local> {
    answer(env, |env| {
        let call = PathCall::new(env, caller, &path)?;
        let mode = NewMode { mode: mode.unsigned_abs() & 0o7777, umask: umask.unsigned_abs() & 0o777 };
        let hosts = text(env, &hosts)?;
        let hosts: Vec<_> = hosts.split(',').filter(|host| !host.is_empty()).map(HostName::new).collect();
        let first = if hosts.is_empty() { first_copies(first)? } else { FirstCopies::On(hosts) };
        let new = CreateFile { mode, if_exists: if_exists(exists)?, first };
        let create = async {
            let by = &call.by.caller;
            let made = match by.create(&call.path, new.clone()).await {
                Err(error) if error.kind() == ErrorKind::NotFound && parents => {
                    by.make_dirs(&call.path.split()?.0, NewMode { mode: ABOVE, ..mode }).await?;
                    by.create(&call.path, new).await
                }
                made => made,
            };
            opened(&call, made?).await
        };
        Ok(call.library.wait(create)?)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_append<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
    path: JByteArray<'local>,
) -> JByteArray<'local> {
    answer_on_path(env, caller, &path, async |call| {
        opened(call, call.by.caller.open_for_writing(&call.path).await?).await
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_advise<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    file: i64,
    advised: i32,
) {
    run(env, |_| Ok(open_file(file)?.1.advise(advice(advised)?)?))
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_length<'local>(env: EnvUnowned<'local>, _: JClass<'local>, file: i64) -> i64 {
    run(env, |_| {
        let (library, file) = open_file(file)?;
        let size = library.wait(file.size())?;
        Ok(i64::try_from(size).unwrap_or(i64::MAX))
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_read<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    file: i64,
    offset: i64,
    out: JByteArray<'local>,
    at: i32,
    length: i32,
) -> i32 {
    run(env, |env| {
        let (library, file) = open_file(file)?;
        let (_, wanted) = memory::check_range(at, length, out.len(env)?)?;
        let data = library.wait(file.read(unsigned(offset, "offset")?, wanted as u32))?;
        memory::put(env, &out, at, &data)?;
        Ok(count(data.len(), wanted))
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_readDirect<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    file: i64,
    offset: i64,
    mut out: JByteBuffer<'local>,
    at: i32,
    length: i32,
) -> i32 {
    run(env, |env| {
        let (library, file) = open_file(file)?;
        let out = memory::direct(env, &mut out, at, length)?;
        let wanted = out.len();
        let read = library.wait(file.read_into(unsigned(offset, "offset")?, out))?;
        Ok(count(read, wanted))
    })
}

/// The number of bytes that were read, or -1 at the end of the file.
fn count(read: usize, wanted: usize) -> i32 {
    if read == 0 && wanted > 0 { -1 } else { i32::try_from(read).unwrap_or(i32::MAX) }
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_beginRead<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    file: i64,
    offset: i64,
    out: JByteBuffer<'local>,
    at: i32,
    length: i32,
    ticket: i64,
) {
    run(env, |env| {
        let (library, file) = open_file(file)?;
        let offset = unsigned(offset, "offset")?;
        let into = Kept::new(env, &out, at, length)?;
        library.start(library.reads.carry_out(ticket, file, offset, into));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_nextReads<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
) -> JLongArray<'local> {
    run(env, |env| {
        let pairs = library()?.reads.next();
        signed_longs(env, &pairs)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_readFailure<'local>(env: EnvUnowned<'local>, _: JClass<'local>, ticket: i64) {
    run(env, |_| Err(library()?.reads.failure(ticket).into()))
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_write<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    file: i64,
    data: JByteArray<'local>,
    at: i32,
    length: i32,
) {
    run(env, |env| {
        let (library, file) = open_file(file)?;
        let data = Bytes::from(memory::copied(env, &data, at, length)?);
        library.wait(file.append(data))?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_writeDirect<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    file: i64,
    mut data: JByteBuffer<'local>,
    at: i32,
    length: i32,
) {
    run(env, |env| {
        let (library, file) = open_file(file)?;
        let data = Bytes::copy_from_slice(memory::direct(env, &mut data, at, length)?);
        library.wait(file.append(data))?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_push<'local>(env: EnvUnowned<'local>, _: JClass<'local>, file: i64) {
    run(env, |_| {
        let (library, file) = open_file(file)?;
        Ok(library.wait(file.push())?)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_sync<'local>(env: EnvUnowned<'local>, _: JClass<'local>, file: i64) {
    run(env, |_| {
        let (library, file) = open_file(file)?;
        Ok(library.wait(file.sync())?)
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_close<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    file: i64,
    synced: bool,
) {
    run(env, |_| {
        let library = library()?;
        let Some(file) = library.files.remove(file) else { return Ok(()) };
        let closing = if synced { Closing::Synced } else { Closing::Received };
        Ok(library.wait(file.finish(closing))?)
    })
}
