//! Every recorded set can rebuild everything acknowledged, from any one of its members.

use crate::{Protocol, State};

/// Its name in reports.
pub const NAME: &str = "every member of the recorded set has what was acknowledged";

/// Each member has them on stable storage at all times.
pub fn holds(_protocol: &Protocol, state: &State) -> bool {
    if state.master.freed {
        return true;
    }
    let acknowledged = state.history.acknowledged;
    state.master.set.iter().all(|node| state.replica(node).synced.writes.includes(acknowledged))
}
