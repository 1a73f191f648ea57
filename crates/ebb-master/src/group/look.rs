//! The applied state, lent for a short look.
//!
//! The lock of the state lets a writer that waits go before new readers. So a thread that reads it twice at a time waits for that
//! writer, which waits for the thread's first look: nothing is answered any more. Whether a writer comes in between is chance, and
//! in the virtual cluster it never does. So a second look is refused always.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Deref;

use ebb_meta::Machine;
use parking_lot::{RwLock, RwLockReadGuard};

thread_local! {
    static IS_LOOKING: Cell<bool> = const { Cell::new(false) };
}

/// A look at the applied state. Not to be kept across an await: threads change there.
pub struct Look<'a> {
    machine: RwLockReadGuard<'a, Machine>,
    /// It ends on the thread on which it began.
    _thread: PhantomData<*const ()>,
}

impl<'a> Look<'a> {
    /// Waits for changes that are being made.
    ///
    /// # Panics
    /// If this thread looks already.
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
