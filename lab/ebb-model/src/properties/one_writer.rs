//! No two holders in one epoch can both get writes acknowledged.

use crate::{Protocol, State};

/// Its name in reports.
pub const NAME: &str = "one writer for each epoch";

/// Acknowledged writes of one epoch are all by one client.
pub fn holds(_protocol: &Protocol, state: &State) -> bool {
    state.history.acknowledged_records().all(|left| {
        state.history.acknowledged_records().all(|right| left.epoch != right.epoch || left.client == right.client)
    })
}
