//! Java's memory as slices.
//!
//! A direct buffer does not move, and lives as long as a reference to it: a method's argument until the method returns, a global
//! reference until it is dropped. Java may write to it meanwhile. So may another thread of a program with shared memory; what
//! such a program then reads is its own affair, and the bytes are plain numbers for which every value is valid.

use ebb_types::{Error, Result, err};
use jni::Env;
use jni::objects::{JByteArray, JByteBuffer};
use jni::refs::Global;

use crate::call::Failure;

/// A range of `len` bytes from `at` in `whole` of them.
pub(crate) fn check_range(at: i32, len: i32, whole: usize) -> Result<(usize, usize)> {
    let range = usize::try_from(at).ok().zip(usize::try_from(len).ok());
    let range = range.filter(|(at, len)| at.checked_add(*len).is_some_and(|end| end <= whole));
    range.ok_or_else(|| err!(Invalid, "{len} bytes from {at} are not within {whole} bytes"))
}

/// The bytes of an array.
pub(crate) fn copied(env: &Env<'_>, array: &JByteArray<'_>, at: i32, len: i32) -> Result<Vec<u8>, Failure> {
    let (_, len) = check_range(at, len, array.len(env)?)?;
    let mut bytes = vec![0_i8; len];
    array.get_region(env, at, &mut bytes)?;
    Ok(unsigned(bytes))
}

/// Puts bytes into an array.
pub(crate) fn put(env: &Env<'_>, array: &JByteArray<'_>, at: i32, bytes: &[u8]) -> Result<(), Failure> {
    // SAFETY: an i8 has the layout of a u8, and every value of either is valid.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<i8>(), bytes.len()) };
    Ok(array.set_region(env, at, bytes)?)
}

fn unsigned(bytes: Vec<i8>) -> Vec<u8> {
    let mut bytes = std::mem::ManuallyDrop::new(bytes);
    // SAFETY: an i8 has the layout of a u8; pointer, length and capacity are those of the vector, which is not used again.
    unsafe { Vec::from_raw_parts(bytes.as_mut_ptr().cast::<u8>(), bytes.len(), bytes.capacity()) }
}

/// A range of a direct buffer, for the length of a native method.
pub(crate) fn direct<'a>(
    env: &Env<'_>,
    buffer: &'a mut JByteBuffer<'_>,
    at: i32,
    len: i32,
) -> Result<&'a mut [u8], Failure> {
    let (start, len) = direct_range(env, buffer, at, len)?;
    // SAFETY: the range is within the buffer, which the caller's argument keeps alive for the borrow; see the module.
    Ok(unsafe { std::slice::from_raw_parts_mut(start, len) })
}

fn direct_range(env: &Env<'_>, buffer: &JByteBuffer<'_>, at: i32, len: i32) -> Result<(*mut u8, usize), Failure> {
    let whole = env.get_direct_buffer_capacity(buffer)?;
    let (at, len) = check_range(at, len, whole)?;
    let start = env.get_direct_buffer_address(buffer)?;
    // SAFETY: `at` is at most the buffer's capacity.
    Ok((unsafe { start.add(at) }, len))
}

/// A range of a direct buffer, which stays alive with it.
pub(crate) struct Kept {
    start: *mut u8,
    len: usize,
    buffer: Global<JByteBuffer<'static>>,
}

// SAFETY: the memory does not belong to a thread, and a global reference may be used by any.
unsafe impl Send for Kept {}

impl Kept {
    pub(crate) fn new(env: &Env<'_>, buffer: &JByteBuffer<'_>, at: i32, len: i32) -> Result<Self, Failure> {
        let (start, len) = direct_range(env, buffer, at, len)?;
        Ok(Self { start, len, buffer: env.new_global_ref(buffer)? })
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the range is within the buffer, which the global reference keeps alive; see the module.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }

    /// The reference, to be dropped by a thread of Java's: others would have to be attached for it.
    pub(crate) fn into_buffer(self) -> Global<JByteBuffer<'static>> {
        self.buffer
    }
}

/// A text.
pub(crate) fn text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| Error::new(ebb_types::ErrorKind::Invalid, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_outside_of_a_buffer_are_refused() {
        assert_eq!(check_range(3, 5, 8).unwrap(), (3, 5));
        for (at, len) in [(-1, 1), (1, -1), (4, 5), (9, 0), (i32::MAX, i32::MAX)] {
            assert!(check_range(at, len, 8).is_err(), "{at} {len}");
        }
    }

    #[test]
    fn bytes_keep_their_bits() {
        assert_eq!(unsigned(vec![0, -1, 127, -128]), [0, 255, 127, 128]);
    }
}
