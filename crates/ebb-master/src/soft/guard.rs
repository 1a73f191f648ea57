//! Short access to the soft state.
//!
//! A thread that locks the soft state twice would wait for itself for ever. With real processes that shows only as a
//! master that answers nothing. So the second lock panics at its line, in tests and in service alike.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::Location;

use ebb_runtime::Moment;
use parking_lot::{Mutex, MutexGuard};

use super::Soft;

thread_local! {
    static HELD: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
}

/// Exclusive access to the soft state, as of a moment. It must not be held across an await: others would wait, and the
/// thread may change there.
pub(crate) struct SoftGuard<'a> {
    soft: MutexGuard<'a, Soft>,
    /// Keeps the guard on the thread on which it was made.
    _thread: PhantomData<*const ()>,
}

impl<'a> SoftGuard<'a> {
    /// Locks the soft state.
    ///
    /// # Panics
    /// If this thread has locked it already.
    #[track_caller]
    pub(crate) fn lock(soft: &'a Mutex<Soft>, now: Moment) -> Self {
        if let Some(held) = HELD.get() {
            panic!("this thread has had the soft state of the master since {held}: it would wait for itself");
        }
        let mut soft = soft.lock();
        HELD.set(Some(Location::caller()));
        soft.room.on_time(now);
        Self { soft, _thread: PhantomData }
    }
}

impl Deref for SoftGuard<'_> {
    type Target = Soft;

    fn deref(&self) -> &Soft {
        &self.soft
    }
}

impl DerefMut for SoftGuard<'_> {
    fn deref_mut(&mut self) -> &mut Soft {
        &mut self.soft
    }
}

impl Drop for SoftGuard<'_> {
    fn drop(&mut self) {
        HELD.set(None);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use ebb_meta::Machine;
    use ebb_runtime::Runtime;

    use super::*;
    use crate::tests::harness::options;

    #[test]
    fn a_thread_that_has_it_is_refused_a_second_time() {
        let runtime = Runtime::real();
        let soft = Mutex::new(Soft::rebuild(&Machine::new(), &runtime, &options()));
        let first = SoftGuard::lock(&soft, runtime.now());
        let second = catch_unwind(AssertUnwindSafe(|| drop(SoftGuard::lock(&soft, runtime.now()))));
        let why = second.unwrap_err().downcast::<String>().unwrap();
        assert!(why.contains("guard.rs"), "{why}");
        drop(first);
        drop(SoftGuard::lock(&soft, runtime.now()));
    }
}
