//! Network bytes of tasks that share one client.

use ebb_rpc::{Counters, Traffic};
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
    reported: Carried,
}

/// Bytes that connections have carried, both ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// Between different hosts.
    pub network_bytes: u64,
    /// Of these, between hosts of one sub-rack.
    pub sub_rack_bytes: u64,
}

impl Carried {
    /// What has come since an earlier reading. A host that has come into the sub-rack brings what it has carried.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            network_bytes: self.network_bytes.saturating_sub(earlier.network_bytes),
            sub_rack_bytes: self.sub_rack_bytes.saturating_sub(earlier.sub_rack_bytes),
        }
    }
}

impl From<Traffic> for Carried {
    fn from(traffic: Traffic) -> Self {
        Self { network_bytes: traffic.network_bytes(), sub_rack_bytes: traffic.sub_rack_bytes() }
    }
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
            state.reported = self.counters.read().into();
        }
        state.tasks += 1;
        Metered(self)
    }
}

impl Metered<'_> {
    /// What was carried since the last reading by any task.
    pub fn read(&self) -> Carried {
        let mut state = self.0.state.lock();
        // Read under the lock: no other task can report the same bytes.
        let now = Carried::from(self.0.counters.read());
        now.since(std::mem::replace(&mut state.reported, now))
    }
}

impl Drop for Metered<'_> {
    fn drop(&mut self) {
        self.0.state.lock().tasks -= 1;
    }
}
