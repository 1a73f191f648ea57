//! Reads never go back: every later read, by any client, shows all that one read showed.

use crate::{Protocol, State};

/// Its name in reports.
pub const NAME: &str = "reads never go back";

/// Every read that could be made now includes all that was seen before.
pub fn holds(protocol: &Protocol, state: &State) -> bool {
    state.reads(protocol).all(|copy| copy.writes.includes(state.history.seen))
}
