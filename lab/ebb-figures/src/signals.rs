//! The power that the paper's cluster was given, as far as the text describes it: its traces are not published.

use std::time::Duration;

use ebb_power::signal::{End, Quantity, Signal, Tariff, Trace};
use ebb_types::Result;

use crate::hardware::MACHINES;

/// Both traces take so long.
pub const SPAN: Duration = Duration::from_secs(3 * 3600);
/// Step of both: five minutes of the market; two hours of weather, compressed 24 times.
pub const STEP: Duration = Duration::from_secs(300);
/// All block servers at work.
const NODES_WATTS: f64 = 225.0;

/// Three days of wind and sun in three hours: half of the nodes' power as a mean, never below the power of switch and
/// always-on node (Sec. 5). The sun is a sine from six to six o'clock, the wind a slow swing that is out of step with
/// it.
pub fn renewable() -> Result<Signal> {
    let steps = SPAN.as_secs() / STEP.as_secs();
    let shape: Vec<f64> = (0..steps).map(|step| weather((step as f64 + 0.5) / steps as f64 * 3.0)).collect();
    let mean = shape.iter().sum::<f64>() / shape.len() as f64;
    let watts = |one: &f64| {
        let nodes = one / mean * NODES_WATTS / 2.0;
        (STEP.as_secs_f64(), (MACHINES.base_watts + nodes).min(MACHINES.base_watts + NODES_WATTS))
    };
    let stretches: Vec<(f64, f64)> = shape.iter().map(watts).collect();
    Ok(Signal::Trace(Trace::of_stretches(Quantity::Watts, &stretches)?, End::Hold))
}

/// Power at a time, in days; in any unit.
fn weather(days: f64) -> f64 {
    use std::f64::consts::TAU;
    let sun = ((days - 0.25) * TAU).sin().max(0.0);
    let wind = 0.35 + 0.25 * (days * TAU / 1.7 + 1.0).sin() + 0.08 * (days * TAU * 3.3).sin();
    sun + wind.max(0.0) * 0.8
}

/// Three hours of the New England market at one cent an hour: prices between 3.5 and 5.2 cents, 4.5 as a mean (Sec. 5).
pub fn price() -> Result<Signal> {
    let steps = SPAN.as_secs() / STEP.as_secs();
    let cents = |step: u64| {
        let phase = step as f64 / steps as f64;
        let swing = (phase * std::f64::consts::TAU * 1.5).sin() + 0.45 * (step as f64 * 2.4).sin();
        (STEP.as_secs_f64(), (4.5 + swing * if swing > 0.0 { 0.5 } else { 0.75 }).clamp(3.5, 5.2))
    };
    let prices = Trace::of_stretches(Quantity::Price, &(0..steps).map(cents).collect::<Vec<_>>())?;
    let tariff = Tariff::new(1.0, prices, MACHINES.base_watts + NODES_WATTS)?;
    Ok(Signal::Price(tariff, End::Hold))
}

#[cfg(test)]
mod tests {
    use ebb_power::Supply;

    use super::*;

    fn watts(signal: &Signal) -> Vec<f64> {
        let steps = SPAN.as_secs() / STEP.as_secs();
        let at = |step: u64| match signal.at(STEP * step as u32) {
            Supply::Watts(watts) => watts,
            Supply::Fraction(_) => f64::NAN,
        };
        (0..steps).map(at).collect()
    }

    #[test]
    fn the_traces_have_the_paper_s_means_and_bounds() {
        let renewable = watts(&renewable().unwrap());
        let nodes = renewable.iter().map(|one| one - 40.0).sum::<f64>() / renewable.len() as f64;
        assert!((nodes / 112.5 - 1.0).abs() < 0.06, "{nodes}");
        assert!(renewable.iter().all(|one| *one >= 40.0), "{renewable:?}");
        let price = watts(&price().unwrap());
        let low = price.iter().copied().fold(f64::INFINITY, f64::min);
        let mean = price.iter().sum::<f64>() / price.len() as f64;
        assert!((192.0..205.0).contains(&low) && (210.0..240.0).contains(&mean), "{low} {mean}");
    }
}
