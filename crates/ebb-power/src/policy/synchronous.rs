//! All nodes together, for the part of each interval that the supply pays for.

use super::fit::{even_share, largest};
use super::{Ask, Schedule};
use crate::plan::Duty;

pub(super) fn schedule(ask: &Ask<'_>) -> Schedule {
    let nodes = ask.living();
    let share = even_share(ask);
    if share >= 1.0 {
        return ask.all_on(format!("power for all of {} nodes", nodes.len()));
    }
    largest(ask, "synchronous", share, &[], |scale, interval_ms| {
        let active = (interval_ms as f64 * share * scale) as u64;
        nodes.iter().map(|node| (*node, Duty::blink(0, active, interval_ms))).collect()
    })
}
