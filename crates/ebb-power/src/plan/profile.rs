//! Draw of a plan over an interval, and the check whether a battery carries it.

use super::{Duty, PowerPlan};
use crate::battery::Battery;
use crate::hardware::Hardware;

/// Draw of the nodes over one interval, as stretches of constant watts.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// Beginning of each stretch within the interval, ascending from 0, and its watts.
    steps: Vec<(u64, f64)>,
    interval_ms: u64,
}

impl Profile {
    /// Draw of these duties. Every powered node counts with its active watts, in transitions too.
    #[must_use]
    pub fn new<'a>(duties: impl Iterator<Item = (&'a crate::hardware::NodePower, Duty)>, interval_ms: u64) -> Self {
        let mut watts = 0.0;
        let mut changes: Vec<(u64, f64)> = vec![(0, 0.0)];
        for (power, duty) in duties {
            watts += power.asleep_watts;
            match duty {
                Duty::Off => {}
                Duty::On => watts += power.extra_watts(),
                Duty::Blink { start_ms, active_ms } => {
                    if duty.is_powered_at(0, interval_ms) {
                        watts += power.extra_watts();
                    }
                    if start_ms > 0 {
                        changes.push((start_ms, power.extra_watts()));
                    }
                    let end = (start_ms + active_ms) % interval_ms;
                    if end > 0 {
                        changes.push((end, -power.extra_watts()));
                    }
                }
            }
        }
        changes.sort_by_key(|change| change.0);
        let mut steps: Vec<(u64, f64)> = Vec::new();
        for (at, change) in changes {
            watts += change;
            match steps.last_mut() {
                Some(last) if last.0 == at => last.1 = watts,
                _ => steps.push((at, watts)),
            }
        }
        Self { steps, interval_ms }
    }

    /// Stretches as (beginning, length, watts), in milliseconds from the interval's beginning.
    pub fn stretches(&self) -> impl Iterator<Item = (u64, u64, f64)> + '_ {
        let ends = self.steps.iter().skip(1).map(|step| step.0).chain([self.interval_ms]);
        self.steps.iter().zip(ends).map(|(step, end)| (step.0, end - step.0, step.1))
    }

    /// Highest draw at any instant.
    #[must_use]
    pub fn peak_watts(&self) -> f64 {
        self.steps.iter().map(|step| step.1).fold(0.0, f64::max)
    }

    /// Mean draw.
    #[must_use]
    pub fn mean_watts(&self) -> f64 {
        self.stretches().map(|(_, ms, watts)| watts * ms as f64).sum::<f64>() / self.interval_ms as f64
    }

    /// Draw at a phase of the interval.
    #[must_use]
    pub fn watts_at(&self, phase_ms: u64) -> f64 {
        let after = self.steps.partition_point(|step| step.0 <= phase_ms % self.interval_ms);
        self.steps[after - 1].1
    }

    /// Whether the battery, with its charge at `phase_ms`, carries every excess over `supply_watts`, and has no less
    /// charge after the second interval than after the first.
    #[must_use]
    pub fn is_carried_by(&self, battery: &Battery, supply_watts: f64, phase_ms: u64) -> bool {
        if self.peak_watts() <= supply_watts + SLACK_WATTS {
            return true;
        }
        // The slack below is energy, for a battery that fits exactly: without one, it would let a short peak pass.
        if battery.capacity_joules <= 0.0 {
            return false;
        }
        let mut battery = *battery;
        let phase = phase_ms % self.interval_ms;
        let mut after = [0.0; 2];
        for charge in &mut after {
            let tail = self.stretches().filter(|(at, ms, _)| at + ms > phase);
            let tail = tail.map(|(at, ms, watts)| if at < phase { (at + ms - phase, watts) } else { (ms, watts) });
            let head = self.stretches().filter(|(at, ..)| *at < phase);
            let head = head.map(|(at, ms, watts)| (ms.min(phase - at), watts));
            for (ms, watts) in tail.chain(head) {
                let flow = battery.pass(supply_watts, watts, ms);
                // Relative to the length of the interval, so that rounding errors of many stretches do not refuse an
                // exact fit.
                if flow.missing_joules > SLACK_WATTS * (1.0 + self.interval_ms as f64 / 1000.0) {
                    return false;
                }
            }
            *charge = battery.charge_joules;
        }
        after[1] + SLACK_WATTS * (1.0 + self.interval_ms as f64 / 1000.0) >= after[0]
    }
}

/// Watts that count as a rounding error.
pub(crate) const SLACK_WATTS: f64 = 1e-6;

impl PowerPlan {
    /// Draw of the plan's nodes on this hardware; nodes without one are left out.
    #[must_use]
    pub fn profile(&self, hardware: &Hardware) -> Profile {
        let known = self.nodes.iter().filter_map(|(id, node)| Some((hardware.node(*id)?, node.duty)));
        Profile::new(known, self.interval_ms)
    }

    /// Watts of the nodes at a moment, by the plan.
    #[must_use]
    pub fn nodes_watts_at(&self, hardware: &Hardware, at_ms: u64) -> f64 {
        let known = self.nodes.keys().filter_map(|id| Some((*id, hardware.node(*id)?)));
        known
            .map(|(id, power)| if self.state(id, at_ms).is_powered() { power.active_watts } else { power.asleep_watts })
            .sum()
    }
}
