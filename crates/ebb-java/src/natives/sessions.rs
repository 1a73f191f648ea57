//! Sessions and users.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use ebb_api::Caller;
use ebb_types::{Credentials, HostName};
use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass, JLongArray};

use super::{longs, text, unsigned, whole};
use crate::answer::Answer;
use crate::call::{answer, run};
use crate::library::{SessionCaller, library};
use crate::sessions::Key;

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_version<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
) -> JByteArray<'local> {
    answer(env, |_| Ok(env!("CARGO_PKG_VERSION").into()))
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_connect<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    settings: JByteArray<'local>,
    host: JByteArray<'local>,
    read_cache_bytes: i64,
    dirty_bytes: i64,
) -> i64 {
    run(env, |env| {
        let settings = OsString::from_vec(whole(env, &settings)?).into();
        let key = Key { settings, host: text(env, &host)? };
        let sizes = [unsigned(read_cache_bytes, "size of a cache")?, unsigned(dirty_bytes, "size of a cache")?];
        let [cache, dirty] = sizes.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
        let library = library()?;
        let used = library.wait(library.sessions.join(key, cache, dirty))?;
        Ok(library.uses.put(used))
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_disconnect<'local>(env: EnvUnowned<'local>, _: JClass<'local>, session: i64) {
    run(env, |_| {
        let library = library()?;
        match library.uses.remove(session) {
            Some(used) => Ok(library.wait(library.sessions.end(&used))?),
            None => Ok(()),
        }
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_caller<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: i64,
    user: JByteArray<'local>,
    is_superuser: bool,
) -> i64 {
    run(env, |env| {
        let name = text(env, &user)?;
        let library = library()?;
        let session = library.uses.get(session)?.session.clone();
        let caller = if is_superuser {
            Caller { client: session.client().clone(), credentials: Credentials::root() }
        } else {
            library.wait(Caller::named(session.client(), &name))?
        };
        Ok(library.callers.put(SessionCaller { caller, session }))
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_releaseCaller<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    caller: i64,
) {
    run(env, |_| {
        library()?.callers.remove(caller);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_hosts<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: i64,
) -> JByteArray<'local> {
    answer(env, |_| {
        let sub_racks = library()?.uses.get(session)?.session.client().sub_racks();
        let put = |answer: Answer, host: &HostName| {
            let rack = sub_racks.path_of(host.as_str()).unwrap_or_default();
            answer.bytes(host.as_str().as_bytes()).bytes(rack.as_bytes())
        };
        Ok(sub_racks.hosts().fold(Answer::default().int(sub_racks.hosts().count()), put).finish())
    })
}

#[unsafe(no_mangle)]
extern "system" fn Java_ebb_hadoop_Native_traffic<'local>(
    env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: i64,
) -> JLongArray<'local> {
    run(env, |env| {
        let used = library()?.uses.get(session)?;
        let (traffic, metrics) = (used.session.client().counters().read(), used.session.client().metrics());
        let network = [traffic.network_sent_bytes, traffic.network_received_bytes];
        let sub_rack = [traffic.sub_rack_sent_bytes, traffic.sub_rack_received_bytes];
        longs(env, &[network[0], network[1], metrics.short_circuit_bytes, sub_rack[0], sub_rack[1]])
    })
}
