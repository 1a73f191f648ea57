//! From a native method to its result or an exception.

use std::any::Any;

use ebb_types::{Error, ErrorKind};
use jni::errors::ErrorPolicy;
use jni::objects::{JByteArray, JThrowable, JValue};
use jni::{Env, EnvUnowned, jni_sig, jni_str};

use crate::memory;

/// Why a method has no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The call failed.
    Ebb(Error),
    /// Java failed, or has an exception pending.
    Jni(jni::errors::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Ebb(error)
    }
}

impl From<jni::errors::Error> for Failure {
    fn from(error: jni::errors::Error) -> Self {
        Self::Jni(error)
    }
}

/// Runs a method. Its failure, or a panic, becomes the exception that `Failures.of` makes.
pub(crate) fn run<'local, T: Default>(
    mut env: EnvUnowned<'local>,
    method: impl FnOnce(&mut Env<'local>) -> Result<T, Failure>,
) -> T {
    env.with_env(method).resolve::<Throw>()
}

/// The same for an answer in bytes.
pub(crate) fn answer<'local>(
    env: EnvUnowned<'local>,
    method: impl FnOnce(&mut Env<'local>) -> Result<Vec<u8>, Failure>,
) -> JByteArray<'local> {
    run(env, |env| {
        let bytes = method(env)?;
        let array = JByteArray::new(env, bytes.len())?;
        memory::put(env, &array, 0, &bytes)?;
        Ok(array)
    })
}

struct Throw;

impl<T: Default> ErrorPolicy<T, Failure> for Throw {
    type Captures<'unowned_env_local: 'native_method, 'native_method> = ();

    fn on_error<'unowned_env_local: 'native_method, 'native_method>(
        env: &mut Env<'unowned_env_local>,
        _: &mut (),
        failure: Failure,
    ) -> jni::errors::Result<T> {
        if !env.exception_check() {
            let error = match failure {
                Failure::Ebb(error) => error,
                Failure::Jni(error) => Error::new(ErrorKind::Internal, format!("a call of Java failed: {error}")),
            };
            throw(env, &error);
        }
        Ok(T::default())
    }

    fn on_panic<'unowned_env_local: 'native_method, 'native_method>(
        env: &mut Env<'unowned_env_local>,
        _: &mut (),
        payload: Box<dyn Any + Send + 'static>,
    ) -> jni::errors::Result<T> {
        let said = payload.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("it left no message");
        throw(env, &Error::new(ErrorKind::Internal, format!("a mistake in Ebb ended this call: {said}")));
        Ok(T::default())
    }
}

fn throw(env: &mut Env<'_>, error: &Error) {
    // A failure here leaves Java's own exception pending, which is an answer as well.
    let _ = try_throw(env, error);
}

fn try_throw(env: &mut Env<'_>, error: &Error) -> jni::errors::Result<()> {
    let kind = env.new_string(format!("{:?}", error.kind()))?;
    let message = env.new_string(error.detail())?;
    let class = env.find_class(jni_str!("ebb/hadoop/Failures"))?;
    let made = env.call_static_method(
        class,
        jni_str!("of"),
        jni_sig!("(Ljava/lang/String;Ljava/lang/String;)Ljava/io/IOException;"),
        &[JValue::Object(&kind), JValue::Object(&message)],
    )?;
    let exception = env.cast_local::<JThrowable<'_>>(made.l()?)?;
    env.throw(exception)
}
