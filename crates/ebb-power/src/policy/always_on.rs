//! Every node on, whatever the supply, and whether or not it answers.

use super::activation::{Active, on_for_good};
use super::{Ask, Schedule};

pub(super) fn schedule(ask: &Ask<'_>) -> Schedule {
    let why = format!("all {} nodes on, whatever the supply", ask.circle.len());
    on_for_good(ask, Active { on: ask.circle.iter().copied().collect(), stalled: Vec::new() }, why)
}
