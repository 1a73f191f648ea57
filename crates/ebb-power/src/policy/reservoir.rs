//! The mean draw for now: the battery as a reservoir over many intervals.
//!
//! A policy plans for a steady supply. It gets the *level*: the watts that may be drawn as a mean until the next
//! interval. The battery gives the difference to the supply of the moment, or takes it.
//!
//! - With a forecast the level is the first slope of the tightest string through the forecast. The charge must stay
//!   between the reserve and the capacity. The tightest string keeps the draw as even as these bounds allow, so it is
//!   best for every measure with a falling use of more watts.
//! - Without a forecast a lull may end at any time. Below the cover a fixed part of the charge is spent per second, so
//!   that some is always left. Above the cover surplus fills the battery until it can carry the cover through a usual
//!   lull, and charge beyond that is spent.
//!
//! A reserve is never planned with. It lets all nodes go to sleep in order when the supply ends at once. Without a
//! battery the level is the supply.

use std::time::Duration;

use ebb_types::NodeId;

use super::Ask;
use crate::battery::Battery;
use crate::hardware::{Hardware, Supply, millis};

/// Longest time of each value of a forecast.
const STEP_MAX: Duration = Duration::from_secs(60);
/// Shortest time of each value: plans do not follow a supply that changes sooner.
const STEP_MIN: Duration = Duration::from_millis(100);
/// Steps in the time for which the battery carries all nodes: within a step it neither overflows nor runs dry.
const STEPS_OF_BATTERY: f64 = 5.0;
/// Steps of a forecast.
pub const STEPS: usize = 60;
/// Length of a lull that the charge should last for, if there is no forecast.
const LULL_S: f64 = 900.0;
/// Time in which a charge that is too low or too high is made good, if there is no forecast.
const REPAY_S: f64 = 300.0;
/// Longest time from a change of the supply to the reading that shows it.
const READING_MS: u64 = 100;

/// Time of each value of a forecast: a fifth of the time for which the battery carries all nodes, and a minute for a
/// battery of five minutes or more. A small battery has no use for what comes later.
#[must_use]
pub fn forecast_step(hardware: &Hardware, battery: &Battery) -> Duration {
    let carries_s = battery.capacity_joules / hardware.full_watts().max(f64::MIN_POSITIVE);
    let step_s = (carries_s / STEPS_OF_BATTERY).clamp(STEP_MIN.as_secs_f64(), STEP_MAX.as_secs_f64());
    Duration::from_secs_f64(step_s)
}

/// The forecast of a supply that stays.
#[must_use]
pub fn steady(nodes_watts: f64) -> Vec<f64> {
    vec![nodes_watts; STEPS]
}

/// Joules that let all nodes go to sleep in order without any supply: the time to notice and to publish, and twice the
/// time to fall asleep, for nodes that another plan has just woken. At most half of the battery.
#[must_use]
pub fn reserve_joules(hardware: &Hardware, battery: &Battery, lead_ms: u64) -> f64 {
    let suspend_ms = hardware.nodes().values().map(|node| millis(node.suspend)).max().unwrap_or(0);
    let seconds = (READING_MS + lead_ms + 2 * suspend_ms) as f64 / 1000.0;
    (hardware.full_watts() * seconds).min(battery.capacity_joules / 2.0)
}

/// Watts that the nodes may draw as a mean until the next interval.
#[must_use]
pub fn level_watts(ask: &Ask<'_>) -> f64 {
    at_level(ask, &ask.cover()).nodes_watts()
}

/// The ask with the level as its supply, and the part of the battery that may carry an excess within an interval.
pub(super) fn at_level<'a>(ask: &Ask<'a>, cover: &[NodeId]) -> Ask<'a> {
    let battery = ask.battery;
    let supply = ask.nodes_watts();
    if battery.capacity_joules <= 0.0 {
        return *ask;
    }
    let reserve = reserve_joules(ask.hardware, &battery, ask.lead_ms);
    let usable = (battery.charge_joules - reserve).max(0.0);
    let wanted = match ask.forecast {
        [] => without_forecast(ask, ask.extra_of(cover), reserve),
        forecast => {
            let bounds = Bounds::of(ask, reserve);
            let step = forecast_step(ask.hardware, &battery);
            without_loss(tightest(&battery, bounds, forecast, step), supply, &battery)
        }
    };
    // Until the next plan can begin, the battery gives what the level has above the supply.
    let until_next_s = (ask.timing.interval_ms + ask.lead_ms + READING_MS) as f64 / 1000.0;
    let most = supply + (usable / until_next_s).min(battery.output_watts);
    // A reserve that was used is filled again within an interval.
    let refill = ((reserve - battery.charge_joules) / until_next_s).max(0.0);
    let level = wanted.clamp(0.0, ask.hardware.full_watts().max(supply)).min(most - refill).max(0.0);
    let lent = (level - supply).max(0.0);
    let charge_joules = (usable - lent * until_next_s).max(0.0);
    let left = Battery { charge_joules, output_watts: battery.output_watts - lent, ..battery };
    Ask { supply: Supply::Watts(ask.hardware.base_watts() + level), battery: left, ..*ask }
}

/// Bounds of the charge and of the draw over a forecast.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Least charge, in joules.
    reserve: f64,
    /// Charge after the last step: no less than now, and at least half of the battery.
    end: f64,
    /// Draw of all nodes at work.
    full: f64,
}

impl Bounds {
    fn of(ask: &Ask<'_>, reserve: f64) -> Self {
        let Battery { capacity_joules, charge_joules, .. } = ask.battery;
        Self { reserve, end: charge_joules.max(capacity_joules / 2.0), full: ask.hardware.full_watts() }
    }
}

/// The first slope of the shortest path between "no more than there is" and "nothing is spilled". `forecast` has the
/// watts of each step from now on.
fn tightest(battery: &Battery, bounds: Bounds, forecast: &[f64], step: Duration) -> f64 {
    let Bounds { reserve, end, full } = bounds;
    let (mut low, mut high) = (f64::NEG_INFINITY, f64::INFINITY);
    let mut energy = battery.charge_joules;
    let mut seconds = 0.0;
    for watts in forecast {
        energy += watts * step.as_secs_f64();
        seconds += step.as_secs_f64();
        let most = (energy - reserve) / seconds;
        let least = ((energy - battery.capacity_joules) / seconds).min(full);
        // A lull binds: all energy until its end is spread evenly.
        if least > high {
            return high;
        }
        // A full battery binds.
        if most < low {
            return low;
        }
        (low, high) = (low.max(least), high.min(most));
    }
    ((energy - end) / seconds).clamp(low, high.max(low))
}

/// Energy comes back from the battery with a loss. It is stored only where it buys more than it would at once: an even
/// draw is worth the loss if the supply swings by more than that.
fn without_loss(level: f64, supply: f64, battery: &Battery) -> f64 {
    let least = level / battery.efficiency.sqrt();
    if level < supply && supply < least { supply } else { level }
}

fn without_forecast(ask: &Ask<'_>, cover_watts: f64, reserve: f64) -> f64 {
    let (battery, asleep) = (ask.battery, ask.hardware.asleep_watts());
    let headroom = ask.headroom_watts();
    let usable = (battery.charge_joules - reserve).max(0.0);
    if headroom < cover_watts {
        return asleep + (headroom + usable / LULL_S).min(cover_watts);
    }
    let wanted = (reserve + LULL_S * (asleep + cover_watts)).min(0.95 * battery.capacity_joules);
    let all = ask.hardware.full_watts() - asleep;
    asleep + (headroom - (wanted - battery.charge_joules) / REPAY_S).clamp(cover_watts, all.max(cover_watts))
}

#[cfg(test)]
mod tests;
