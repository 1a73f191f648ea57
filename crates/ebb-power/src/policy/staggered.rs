//! The paper's blinking (BlinkFS, Sec. 4.2): all nodes for the same time, with starts spread over the rest of the
//! interval.
//!
//! `t_active = t (p - p_inactive) / (p_total - p_inactive)`, start of node `i` of `N`: `(t - t_active) i / (N - 1)`.
//! The draw swings around the budget (N = 9, 25 and 1 W, 112.5 W: 1 to 8 nodes at once), so a battery must carry it.
//! With a smaller battery the time is cut as far as needed.

use super::fit::{even_share, largest};
use super::{Ask, Schedule};
use crate::plan::Duty;

/// Start of node `index` of `count`, if each is powered for `active_ms`. A single node starts at 0.
#[must_use]
pub fn stagger_start(index: u64, count: u64, active_ms: u64, interval_ms: u64) -> u64 {
    let rest = interval_ms.saturating_sub(active_ms);
    u64::try_from(u128::from(rest) * u128::from(index) / u128::from((count - 1).max(1))).expect("less than the rest")
}

pub(super) fn schedule(ask: &Ask<'_>) -> Schedule {
    let nodes = ask.turns();
    let share = even_share(ask);
    let count = nodes.len() as u64;
    // Scales at which one node more overlaps. Just below such a scale the peak is one node lower.
    let rest = count.saturating_sub(1) as f64;
    let edges: Vec<f64> = (1..count).map(|at_once| at_once as f64 / (rest + at_once as f64) / share - 1e-6).collect();
    largest(ask, "staggered", share, &edges, |scale, interval_ms| {
        let active = (interval_ms as f64 * share * scale) as u64;
        let duty = |index: usize| stagger_start(index as u64, count, active, interval_ms);
        let duty = |index| Duty::blink(duty(index), active, interval_ms);
        nodes.iter().enumerate().map(|(index, node)| (*node, duty(index))).collect()
    })
}
