//! The process whose task runs now, for logs: a line of a virtual world has its time and its process.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

thread_local! {
    static CURRENT: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

/// A process of a virtual world that runs on this thread now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turn {
    /// Virtual time since the start of its world.
    pub now: Duration,
    /// Its name.
    pub process: Arc<str>,
}

impl Turn {
    /// Of this thread; `None`: it runs no virtual world.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.with_borrow(Clone::clone)
    }

    pub(super) fn set_current(now_ns: u64, process: &Arc<str>) {
        let turn = Self { now: Duration::from_nanos(now_ns), process: Arc::clone(process) };
        CURRENT.set(Some(turn));
    }

    /// The world has come to its end.
    pub(super) fn end() {
        CURRENT.set(None);
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:12.6} {:10}", self.now.as_secs_f64(), self.process)
    }
}
