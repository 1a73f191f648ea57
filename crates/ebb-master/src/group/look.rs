//! Short access to the applied state.
//!
//! The state's lock lets a waiting writer go before new readers. A thread that reads twice at a time would wait for
//! that writer, which waits for the thread's first access, and the master would stop for ever. It is chance whether a
//! writer comes in between, and in the virtual cluster none ever does. So a second access on one thread is always
//! refused.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;

use ebb_meta::Machine;
use parking_lot::{RwLock, RwLockReadGuard};

thread_local! {
    static IS_LOOKING: Cell<bool> = const { Cell::new(false) };
}

/// Read access to the applied state. It must not be held across an await, where the thread may change.
pub struct Look<'a> {
    machine: RwLockReadGuard<'a, Machine>,
    /// Keeps the value on the thread on which it was made.
    _thread: PhantomData<*const ()>,
}

impl<'a> Look<'a> {
    /// Waits for changes in progress, and locks the state for reading.
    ///
    /// # Panics
    /// If this thread has access already.
    #[track_caller]
    pub(super) fn at(machine: &'a RwLock<Machine>) -> Self {
        assert!(
            !IS_LOOKING.get(),
            "this thread looks at the state of the master already: a change that waits would stop both"
        );
        let machine = machine.read();
        IS_LOOKING.set(true);
        Self { machine, _thread: PhantomData }
    }
}

impl Deref for Look<'_> {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        &self.machine
    }
}

impl Drop for Look<'_> {
    fn drop(&mut self) {
        IS_LOOKING.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_look_at_a_time() {
        let machine = RwLock::new(Machine::new());
        drop(Look::at(&machine));
        let look = Look::at(&machine);
        let second = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(Look::at(&machine))));
        assert!(second.is_err());
        drop(look);
        drop(Look::at(&machine));
    }
}
