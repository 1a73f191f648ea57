//! All nodes together, for the part of each interval that the supply pays for.

use super::fit::{even_share, largest};
use super::{Ask, Schedule};
use crate::plan::Duty;

pub(super) fn schedule(ask: &Ask<'_>) -> Schedule {
    let nodes = ask.turns();
    let share = even_share(ask);
    largest(ask, "synchronous", share, &[], |scale, interval_ms| {
        let active = (interval_ms as f64 * share * scale) as u64;
        nodes.iter().map(|node| (*node, Duty::blink(0, active, interval_ms))).collect()
    })
}
