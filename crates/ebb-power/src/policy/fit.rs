//! Blinking that meets its budget only as a mean, cut down to the excess that the battery carries.

use std::collections::BTreeMap;

use ebb_types::NodeId;

use super::activation::{Active, on_for_good};
use super::{Ask, Schedule};
use crate::plan::Duty;
use crate::plan::profile::Profile;

/// Draw of all nodes with these duties. A node without a duty is off.
pub(super) fn profile(ask: &Ask<'_>, duties: &BTreeMap<NodeId, Duty>, interval_ms: u64) -> Profile {
    let all = ask.hardware.nodes().iter();
    let all = all.map(|(id, power)| (power, duties.get(id).copied().unwrap_or(Duty::Off)));
    Profile::new(all, interval_ms)
}

/// Whether supply and battery carry these duties.
pub(super) fn carried(ask: &Ask<'_>, duties: &BTreeMap<NodeId, Duty>, interval_ms: u64) -> bool {
    profile(ask, duties, interval_ms).is_carried_by(&ask.battery, ask.nodes_watts(), ask.timing.start_ms)
}

/// Steps of the scale between nothing and the whole supply.
const STEPS: u32 = 200;

/// Duties for the largest possible scale, from 0 to 1, of the powered time that the supply pays for. The battery must
/// carry it, and every node must still serve. All nodes are on if there is power for them. `further` are scales worth
/// trying beside even steps. `interval_ms` and `least_ms`: see [`Ask::stretched`]; `share` is the part of the interval
/// that the least powered node has at scale 1.
pub(super) fn largest(
    ask: &Ask<'_>,
    name: &str,
    share: f64,
    further: &[f64],
    duties: impl Fn(f64, u64) -> BTreeMap<NodeId, Duty>,
) -> Schedule {
    let nodes = ask.turns();
    if share >= 1.0 {
        let why = format!("power for all of {} nodes", nodes.len());
        return on_for_good(ask, Active { on: nodes.into_iter().collect(), ..Active::default() }, why);
    }
    if ask.headroom_watts() <= 0.0 || nodes.is_empty() {
        return ask.all_off("too little power to wake any node");
    }
    let mut scales: Vec<f64> = (1..=STEPS).map(|step| f64::from(step) / f64::from(STEPS)).collect();
    scales.extend(further.iter().copied().filter(|scale| *scale > 0.0 && *scale < 1.0));
    scales.sort_by(|one, other| other.total_cmp(one));
    for scale in scales {
        let Some(interval_ms) = ask.stretched(share * scale, ask.least_active_of(&nodes)) else { continue };
        let duties = duties(scale, interval_ms);
        if carried(ask, &duties, interval_ms) {
            let cut = if scale < 1.0 {
                format!(
                    "; cut to {:.0} % of the time that the supply pays for, because the battery carries no more",
                    scale * 100.0
                )
            } else {
                String::new()
            };
            let why = format!(
                "{name}: {} nodes for {:.1} % of the interval{cut}{}",
                nodes.len(),
                share * scale * 100.0,
                ask.stretch_note(interval_ms)
            );
            return Schedule { duties, interval_ms, stalled: Vec::new(), why };
        }
    }
    ask.all_off(format!("{name}: supply and battery carry no blink that is long enough to serve"))
}

/// Share of the interval for which every node can be powered: `(p - p_inactive) / (p_total - p_inactive)`, between 0
/// and 1 (BlinkFS, Sec. 4.2).
pub(super) fn even_share(ask: &Ask<'_>) -> f64 {
    let all = ask.extra_of(&ask.turns());
    if all <= 0.0 { 0.0 } else { (ask.headroom_watts() / all).clamp(0.0, 1.0) }
}
