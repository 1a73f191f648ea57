//! Every node on, whatever the supply, and whether or not it answers.

use super::{Ask, Schedule};
use crate::plan::Duty;

pub(super) fn schedule(ask: &Ask<'_>) -> Schedule {
    Schedule {
        duties: ask.circle.iter().map(|node| (*node, Duty::On)).collect(),
        interval_ms: ask.timing.interval_ms,
        stalled: Vec::new(),
        why: format!("all {} nodes on, whatever the supply", ask.circle.len()),
    }
}
