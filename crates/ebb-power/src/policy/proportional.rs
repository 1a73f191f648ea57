//! Load-proportional blinking: each node is powered in proportion to the popularity of its data, but no longer than the
//! interval, and long enough to serve. The energy of all nodes together is that of even blinking (Blink's policy, as
//! BlinkFS compares with it, Sec. 5). Starts are spread as in the staggered policy.

use std::collections::BTreeMap;

use ebb_types::NodeId;

use super::fit::{even_share, largest};
use super::{Ask, Schedule, stagger_start};
use crate::plan::Duty;

pub(super) fn schedule(ask: &Ask<'_>) -> Schedule {
    let nodes = ask.turns();
    let share = even_share(ask);
    let count = nodes.len() as u64;
    largest(ask, "load-proportional", share, &[], |scale, interval_ms| {
        let shares = shares(ask, &nodes, share * scale, interval_ms);
        let duty = |index: usize, share: f64| {
            let active = (interval_ms as f64 * share) as u64;
            Duty::blink(stagger_start(index as u64, count, active, interval_ms), active, interval_ms)
        };
        nodes.iter().zip(shares).enumerate().map(|(index, (node, share))| (*node, duty(index, share))).collect()
    })
}

/// Each node's part of the interval, with the energy of all of them at `even`.
fn shares(ask: &Ask<'_>, nodes: &[NodeId], even: f64, interval_ms: u64) -> Vec<f64> {
    let least = (ask.least_active_of(nodes) as f64 + 1.0) / interval_ms as f64;
    let least = least.min(even);
    let load =
        |node: &NodeId| ask.popularity.get(node).copied().filter(|load| load.is_finite()).unwrap_or(0.0).max(0.0);
    let loads: Vec<f64> = nodes.iter().map(load).collect();
    let most = loads.iter().copied().fold(0.0, f64::max);
    if most <= 0.0 {
        return vec![even; nodes.len()];
    }
    let extras: BTreeMap<usize, f64> = nodes.iter().enumerate().map(|(at, node)| (at, ask.extra(*node))).collect();
    let wanted: f64 = even * extras.values().sum::<f64>();
    let at = |factor: f64| -> Vec<f64> { loads.iter().map(|load| (load / most * factor).clamp(least, 1.0)).collect() };
    let energy = |shares: &[f64]| shares.iter().enumerate().map(|(at, share)| share * extras[&at]).sum::<f64>();
    // Nodes without load get the least time at every factor, so the other nodes may not use up the energy.
    let (mut low, mut high) = (0.0, 1.0 / even.max(1e-9) * nodes.len() as f64);
    while energy(&at(high)) < wanted && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if energy(&at(middle)) > wanted {
            high = middle;
        } else {
            low = middle;
        }
    }
    let mut shares = at(low);
    let spare = wanted - energy(&shares);
    let idle: f64 = extras.iter().filter(|(at, _)| shares[**at] < 1.0).map(|(_, extra)| extra).sum();
    if spare > 0.0 && idle > 0.0 {
        shares.iter_mut().filter(|share| **share < 1.0).for_each(|share| *share = (*share + spare / idle).min(1.0));
    }
    shares
}
