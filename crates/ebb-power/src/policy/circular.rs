//! As many nodes as the power allows, taking turns around the circle: never above the budget.
//!
//! Node `i` of `N` starts at `t i / N` and is powered for `t k / N`, so that at every instant `k` neighbours are. With
//! different nodes `k` is the largest number of neighbours that fit anywhere on the circle. If not even one node fits,
//! the nodes take turns alone, each for the part of its turn that the supply pays for. A battery carries the excess
//! during that part. Without a battery all nodes sleep.

use std::collections::BTreeMap;

use ebb_types::NodeId;

use super::fit::carried;
use super::{Ask, Schedule};
use crate::plan::Duty;

pub(super) fn schedule(ask: &Ask<'_>) -> Schedule {
    blink(ask, &ask.turns())
}

/// Powered time of node `index` of `count`, with `at_once` of them at any instant: (start, length) in milliseconds.
/// Ends meet starts exactly, in spite of rounding.
#[must_use]
pub fn around(index: u64, count: u64, at_once: u64, interval_ms: u64) -> (u64, u64) {
    let edge = |place: u64| u64::try_from(u128::from(interval_ms) * u128::from(place) / u128::from(count));
    let edge = |place| edge(place).expect("less than a few intervals");
    (edge(index), edge(index + at_once) - edge(index))
}

/// Makes these nodes blink, with all others off.
pub(super) fn blink(ask: &Ask<'_>, nodes: &[NodeId]) -> Schedule {
    let at_once = most_at_once(ask, nodes);
    if nodes.is_empty() {
        return ask.all_off("no node is alive");
    }
    if at_once == nodes.len() {
        let duties: BTreeMap<_, _> = nodes.iter().map(|node| (*node, Duty::On)).collect();
        let why = format!("power for all of {} nodes", duties.len());
        return Schedule { duties, interval_ms: ask.timing.interval_ms, stalled: Vec::new(), why };
    }
    if at_once == 0 {
        return one_at_a_time(ask, nodes);
    }
    let share = at_once as f64 / nodes.len() as f64;
    let Some(interval_ms) = ask.stretched(share, ask.least_active_of(nodes)) else {
        return ask.all_off(format!(
            "power for {at_once} nodes at a time, but {} of them taking turns could not serve between waking and sleeping",
            nodes.len()
        ));
    };
    let duty = |(index, node): (usize, &NodeId)| {
        let (start, active) = around(index as u64, nodes.len() as u64, at_once as u64, interval_ms);
        (*node, Duty::blink(start, active, interval_ms))
    };
    let why =
        format!("{at_once} of {} nodes at a time around the circle{}", nodes.len(), ask.stretch_note(interval_ms));
    Schedule { duties: nodes.iter().enumerate().map(duty).collect(), interval_ms, stalled: Vec::new(), why }
}

/// Largest number of neighbours that can be powered together anywhere on the circle.
pub(super) fn most_at_once(ask: &Ask<'_>, nodes: &[NodeId]) -> usize {
    // Sums up to each place, twice around.
    let mut sums = vec![0.0];
    for node in nodes.iter().chain(nodes) {
        sums.push(sums[sums.len() - 1] + ask.extra(*node));
    }
    let fits = |at_once: &usize| (0..nodes.len()).all(|first| ask.affords(sums[first + at_once] - sums[first]));
    // If a number fits, every smaller one fits.
    let (mut fit, mut beyond) = (0, nodes.len() + 1);
    while beyond - fit > 1 {
        let middle = usize::midpoint(fit, beyond);
        if fits(&middle) {
            fit = middle;
        } else {
            beyond = middle;
        }
    }
    fit
}

fn one_at_a_time(ask: &Ask<'_>, nodes: &[NodeId]) -> Schedule {
    let headroom = ask.headroom_watts();
    let dark = |why: &str| ask.all_off(format!("too little power for one node{why}"));
    let paid = |node: &NodeId| (headroom / ask.extra(*node)).min(1.0);
    let least_paid = nodes.iter().map(paid).fold(f64::INFINITY, f64::min);
    if ask.battery.charge_joules <= 0.0 {
        return dark(", and no battery for one at a time");
    }
    let share = least_paid / nodes.len() as f64;
    let Some(interval_ms) = ask.stretched(share, ask.least_active_of(nodes)) else {
        return dark(" for long enough to serve");
    };
    let duty = |(index, node): (usize, &NodeId)| {
        let (start, turn) = around(index as u64, nodes.len() as u64, 1, interval_ms);
        (*node, Duty::blink(start, (turn as f64 * paid(node)) as u64, interval_ms))
    };
    let duties: BTreeMap<_, _> = nodes.iter().enumerate().map(duty).collect();
    if !carried(ask, &duties, interval_ms) {
        return dark(", and the battery is too weak for one at a time");
    }
    let why = format!(
        "power for {:.0} % of one node: one of {} at a time, from the battery{}",
        least_paid * 100.0,
        nodes.len(),
        ask.stretch_note(interval_ms)
    );
    Schedule { duties, interval_ms, stalled: Vec::new(), why }
}
