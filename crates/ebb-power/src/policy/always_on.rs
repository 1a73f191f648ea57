//! Every node on, whatever the supply.

use super::{Ask, Schedule};

pub(super) fn schedule(ask: &Ask<'_>) -> Schedule {
    ask.all_on(format!("all {} nodes on, whatever the supply", ask.living().len()))
}
