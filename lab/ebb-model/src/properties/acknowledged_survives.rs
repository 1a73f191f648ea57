//! Nothing acknowledged by fsync is lost, from any reader's point of view.

use crate::{Protocol, State};

/// Its name in reports.
pub const NAME: &str = "an acknowledged write is in every read";

/// Every client that may read gets all acknowledged writes, from every node that answers; and a freed metablock had
/// none.
pub fn holds(protocol: &Protocol, state: &State) -> bool {
    let acknowledged = state.history.acknowledged;
    if state.master.freed {
        return acknowledged.0 == 0;
    }
    state.reads(protocol).all(|copy| copy.writes.includes(acknowledged))
}
