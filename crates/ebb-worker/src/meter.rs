//! Network bytes of tasks that share one client.

use ebb_rpc::Counters;
use parking_lot::Mutex;

/// Shares out the traffic of a client's connections among the tasks that use it: each reading goes to exactly one task,
/// so the sum over tasks is the traffic while any of them ran. Traffic while no task runs (the client keeps its session
/// alive) is charged to none.
#[derive(Debug)]
pub(crate) struct Meter {
    counters: Counters,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tasks: usize,
    reported: u64,
}

/// A task under way.
#[derive(Debug)]
pub(crate) struct Metered<'a>(&'a Meter);

impl Meter {
    pub fn new(counters: Counters) -> Self {
        Self { counters, state: Mutex::default() }
    }

    /// Begins a task.
    pub fn start_task(&self) -> Metered<'_> {
        let mut state = self.state.lock();
        if state.tasks == 0 {
            state.reported = self.counters.read().network_bytes();
        }
        state.tasks += 1;
        Metered(self)
    }
}

impl Metered<'_> {
    /// Network bytes since the last reading by any task.
    pub fn read(&self) -> u64 {
        let mut state = self.0.state.lock();
        // Read under the lock: no other task can report the same bytes.
        let now = self.0.counters.read().network_bytes();
        now - std::mem::replace(&mut state.reported, now)
    }
}

impl Drop for Metered<'_> {
    fn drop(&mut self) {
        self.0.state.lock().tasks -= 1;
    }
}
