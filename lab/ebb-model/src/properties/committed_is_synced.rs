//! Nothing is committed that is not synced by the whole set.

use crate::{Protocol, State};

/// Its name in reports.
pub const NAME: &str = "what is committed is synced by the whole set";

/// Each recorded member has the committed version on stable storage: a reader that finds one member finds its data.
pub fn holds(_protocol: &Protocol, state: &State) -> bool {
    if state.master.freed {
        return true;
    }
    state.master.set.iter().all(|node| state.replica(node).synced.version >= state.master.committed)
}
