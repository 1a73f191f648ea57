//! Every node is on, at any supply, also nodes that do not answer.

use super::activation::{Active, on_for_good};
use super::{Ask, Schedule};

pub(super) fn schedule(ask: &Ask<'_>) -> Schedule {
    let why = format!("all {} nodes on, at any supply", ask.circle.len());
    on_for_good(ask, Active { on: ask.circle.iter().copied().collect(), ..Active::default() }, why)
}
