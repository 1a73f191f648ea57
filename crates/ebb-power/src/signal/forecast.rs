//! The available power from now on, as far as it is known.
//!
//! A forecast is made of the last reading (persistence), of a signal that is known ahead, or of predicted watts in a
//! file ([`super::Prediction`]). A policy reads it as mean watts over equal steps.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ebb_types::{Error, Result, bail};

use super::Signal;
use crate::hardware::Supply;

/// Most steps of a forecast. A signal that changes more often is known less far ahead.
pub const STEPS_MAX: usize = 4_096;
/// Least time between two changes that a forecast shows. A change that comes sooner is shown that much later.
const STEP_MIN: Duration = Duration::from_millis(1);
/// Watts above which no plant is, so that sums stay finite.
const WATTS_MAX: f64 = 1e12;

/// Watts for the whole cluster, step by step from now on.
#[derive(Clone, PartialEq, Debug)]
pub struct Forecast {
    /// Never empty. The last step holds for ever.
    steps: Vec<Step>,
}

/// A time of constant power.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Step {
    /// How long it lasts.
    pub lasts: Duration,
    /// Watts in it, 0 or more.
    pub watts: f64,
}

impl Forecast {
    /// These watts for ever. No number, and less than 0, count as 0.
    #[must_use]
    pub fn persistence(watts: f64) -> Self {
        Self { steps: vec![Step { lasts: Duration::ZERO, watts: possible(watts, WATTS_MAX) }] }
    }

    /// These steps; the last one holds for ever. `Invalid` without a step, and for watts that are no number or below 0.
    pub fn from_steps(steps: Vec<Step>) -> Result<Self> {
        if steps.is_empty() || steps.len() > STEPS_MAX {
            bail!(Invalid, "a forecast of {} steps: from 1 to {STEPS_MAX}", steps.len());
        }
        if let Some(step) = steps.iter().find(|step| !(0.0..=WATTS_MAX).contains(&step.watts)) {
            bail!(Invalid, "a forecast of {} W: from 0 to {WATTS_MAX} W", step.watts);
        }
        Ok(Self { steps })
    }

    /// A signal that is known ahead, from `elapsed` after its beginning on, for a span. `watts_of` turns its supply into
    /// watts for the whole cluster. No step is above `most_watts`.
    #[must_use]
    pub fn of_signal(
        signal: &Signal,
        elapsed: Duration,
        span: Duration,
        most_watts: f64,
        watts_of: impl Fn(Supply) -> f64,
    ) -> Self {
        Self::of(span, most_watts, |after| {
            let at = elapsed.saturating_add(after);
            (watts_of(signal.at(at)), signal.holds_for(at))
        })
    }

    /// Watts, and the time for which they hold (none: for ever), as a function of the time from now on. At the end of
    /// the span, and after [`STEPS_MAX`] changes, the last watts hold.
    #[must_use]
    pub fn of(span: Duration, most_watts: f64, mut at: impl FnMut(Duration) -> (f64, Option<Duration>)) -> Self {
        let mut steps: Vec<Step> = Vec::new();
        let mut after = Duration::ZERO;
        for _ in 0..STEPS_MAX {
            let (watts, holds) = at(after);
            let watts = possible(watts, most_watts);
            let lasts = holds.unwrap_or(Duration::MAX).max(STEP_MIN).min(span.saturating_sub(after));
            match steps.last_mut() {
                Some(last) if last.watts == watts => last.lasts += lasts,
                _ => steps.push(Step { lasts, watts }),
            }
            after += lasts;
            if after >= span {
                break;
            }
        }
        Self { steps }
    }

    /// The steps. The last one holds for ever, whatever its length.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The same forecast, from so much later on.
    #[must_use]
    pub fn after(&self, span: Duration) -> Self {
        let mut left = span;
        let last = self.steps.len() - 1;
        let passed = self.steps[..last].iter().take_while(|step| {
            let is_over = step.lasts <= left;
            left = if is_over { left - step.lasts } else { left };
            is_over
        });
        let mut steps = self.steps[passed.count()..].to_vec();
        steps[0].lasts = steps[0].lasts.saturating_sub(left);
        Self { steps }
    }

    /// Mean watts over each of `count` steps of equal length, the first of which begins now. With a length of 0 it is
    /// `count` times the watts of now.
    #[must_use]
    pub fn watts_per_step(&self, step: Duration, count: usize) -> Vec<f64> {
        let last = self.steps.len() - 1;
        let (mut index, mut used) = (0, Duration::ZERO);
        let mut mean = || {
            if step.is_zero() {
                return self.steps[0].watts;
            }
            let (mut missing, mut joules) = (step, 0.0);
            while !missing.is_zero() {
                let Step { lasts, watts } = self.steps[index];
                let part = if index == last { missing } else { lasts.saturating_sub(used).min(missing) };
                joules += watts * part.as_secs_f64();
                missing -= part;
                used += part;
                if index < last && used >= lasts {
                    (index, used) = (index + 1, Duration::ZERO);
                }
            }
            joules / step.as_secs_f64()
        };
        (0..count).map(|_| mean()).collect()
    }
}

/// A number of watts that can be.
fn possible(watts: f64, most_watts: f64) -> f64 {
    let most = if most_watts.is_nan() { 0.0 } else { most_watts.clamp(0.0, WATTS_MAX) };
    if watts.is_nan() { 0.0 } else { watts.clamp(0.0, most) }
}

/// What a forecast is made of, as an operator names it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ForecastKind {
    /// The last reading holds, for all that is known.
    Persistence,
    /// The source itself where it is known ahead, else the last reading.
    #[default]
    Signal,
    /// Predicted watts in a CSV file with this path.
    File(String),
}

/// Longest path of a file.
const PATH_BYTES_MAX: usize = 4_096;

impl FromStr for ForecastKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "" => bail!(Invalid, "a forecast is persistence, signal or the path of a file"),
            "persistence" => Ok(Self::Persistence),
            "signal" => Ok(Self::Signal),
            path if path.len() > PATH_BYTES_MAX || path.contains('\0') => bail!(Invalid, "no path of a file"),
            path => Ok(Self::File(path.to_owned())),
        }
    }
}

impl fmt::Display for ForecastKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Persistence => f.write_str("persistence"),
            Self::Signal => f.write_str("signal"),
            Self::File(path) => f.write_str(path),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::signal::{End, OSCILLATION_PERIOD, Quantity, Trace};

    const MINUTE: Duration = Duration::from_secs(60);
    const HOUR: Duration = Duration::from_secs(3_600);

    /// Of a cluster of 100 W.
    fn watts_of(supply: Supply) -> f64 {
        match supply {
            Supply::Watts(watts) => watts,
            Supply::Fraction(share) => share * 100.0,
        }
    }

    #[test]
    fn persistence_and_a_constant_hold() {
        assert_eq!(Forecast::persistence(80.0).watts_per_step(MINUTE, 3), [80.0, 80.0, 80.0]);
        assert_eq!(Forecast::persistence(f64::NAN).watts_per_step(MINUTE, 1), [0.0]);
        let constant = Signal::constant(Supply::Fraction(0.5)).unwrap();
        let forecast = Forecast::of_signal(&constant, HOUR, HOUR, 265.0, watts_of);
        assert_eq!(forecast.steps(), [Step { lasts: HOUR, watts: 50.0 }]);
    }

    #[test]
    fn an_oscillation_is_known_ahead() {
        let signal = Signal::oscillating(1.0, OSCILLATION_PERIOD).unwrap();
        let forecast = Forecast::of_signal(&signal, 4 * MINUTE, HOUR, 265.0, watts_of);
        let watts = forecast.watts_per_step(MINUTE, 12);
        assert_eq!(watts, [90.0, 0.0, 0.0, 0.0, 0.0, 0.0, 90.0, 90.0, 90.0, 90.0, 90.0, 0.0]);
        assert_eq!(forecast.watts_per_step(Duration::ZERO, 2), [90.0, 90.0]);
    }

    #[test]
    fn a_forecast_is_never_above_the_most_and_its_steps_are_bounded() {
        let trace = Trace::of_stretches(Quantity::Watts, &[(0.001, 1e9), (0.001, 50.0)]).unwrap();
        let forecast = Forecast::of_signal(&Signal::Trace(trace, End::Repeat), HOUR, HOUR, 265.0, watts_of);
        assert!(forecast.steps().len() <= STEPS_MAX && forecast.steps().iter().all(|step| step.watts <= 265.0));
        let step = |watts| Step { lasts: MINUTE, watts };
        assert!(Forecast::from_steps(vec![]).is_err() && Forecast::from_steps(vec![step(f64::NAN)]).is_err());
        assert!(Forecast::from_steps(vec![step(0.0); STEPS_MAX + 1]).is_err());
    }

    #[test]
    fn a_kind_is_written_as_it_is_read() {
        for text in ["persistence", "signal", "/etc/ebb/tomorrow.csv"] {
            assert_eq!(text.parse::<ForecastKind>().unwrap().to_string(), text);
        }
        assert!("".parse::<ForecastKind>().is_err() && "a\0b".parse::<ForecastKind>().is_err());
    }

    fn steps() -> impl Strategy<Value = Vec<(u32, f64)>> {
        proptest::collection::vec((0_u32..200_000, 0.0_f64..1e4), 1..40)
    }

    proptest! {
        /// The energy of the means is the energy of the steps, counted millisecond by millisecond.
        #[test]
        fn means_have_the_energy_of_the_steps(steps in steps(), step_ms in 1_u64..90_000, count in 0_usize..50) {
            let spans: Vec<Step> = steps
                .iter()
                .map(|(ms, watts)| Step { lasts: Duration::from_millis(u64::from(*ms)), watts: *watts })
                .collect();
            let forecast = Forecast::from_steps(spans).unwrap();
            let step = Duration::from_millis(step_ms);
            let means = forecast.watts_per_step(step, count);
            prop_assert_eq!(means.len(), count);
            let joules: f64 = means.iter().map(|mean| mean * step.as_secs_f64()).sum();
            let (mut left_ms, mut wanted) = (step_ms * count as u64, 0.0);
            for (index, (ms, watts)) in steps.iter().enumerate() {
                let part = if index + 1 == steps.len() { left_ms } else { u64::from(*ms).min(left_ms) };
                wanted += watts * part as f64 / 1000.0;
                left_ms -= part;
            }
            prop_assert!((joules - wanted).abs() <= 1e-6 * wanted.max(1.0), "{joules} J of {wanted} J");
            let highest = steps.iter().map(|(_, watts)| *watts).fold(0.0, f64::max);
            prop_assert!(means.iter().all(|mean| (0.0..=highest * 1.000_001).contains(mean)));
        }

        /// Seconds of a later forecast are the later seconds of the forecast.
        #[test]
        fn a_later_forecast_is_the_rest(steps in steps(), later in 0_usize..300) {
            let lasts = |ms: u32| Duration::from_millis(u64::from(ms));
            let steps = steps.iter().map(|(ms, watts)| Step { lasts: lasts(*ms), watts: *watts }).collect();
            let (forecast, second) = (Forecast::from_steps(steps).unwrap(), Duration::from_secs(1));
            let all = forecast.watts_per_step(second, later + 50);
            let rest = forecast.after(second * later as u32).watts_per_step(second, 50);
            prop_assert!(all[later..].iter().zip(&rest).all(|(one, other)| (one - other).abs() < 1e-6), "{all:?} {rest:?}");
        }

        /// A forecast of a trace has the trace's energy, from any moment of it on.
        #[test]
        fn a_trace_is_forecast_with_its_energy(
            stretches in proptest::collection::vec((1_u32..500, 0.0_f64..500.0), 1..20), from_s in 0_u32..5_000,
        ) {
            let stretches: Vec<(f64, f64)> = stretches.iter().map(|(s, watts)| (f64::from(*s), *watts)).collect();
            let trace = Trace::of_stretches(Quantity::Watts, &stretches).unwrap();
            let signal = Signal::Trace(trace.clone(), End::Repeat);
            let from = Duration::from_secs(u64::from(from_s));
            let forecast = Forecast::of_signal(&signal, from, HOUR, 1e6, watts_of);
            let means = forecast.watts_per_step(MINUTE, 60);
            for (index, mean) in means.iter().enumerate() {
                // The trace is whole seconds: the middle of each second has its watts.
                let second = |s: usize| f64::from(from_s) + (index * 60 + s) as f64 + 0.5;
                let wanted = (0..60).map(|s| trace.at(second(s), End::Repeat).value).sum::<f64>() / 60.0;
                prop_assert!((mean - wanted).abs() < 0.05, "minute {index}: {mean} W of {wanted} W");
            }
        }

        #[test]
        fn any_function_gives_a_forecast_within_bounds(
            values in proptest::collection::vec((proptest::num::f64::ANY, proptest::option::of(0_u64..10_000_000)), 1..30),
            most in proptest::num::f64::ANY,
        ) {
            let mut next = values.iter().cycle();
            let forecast = Forecast::of(HOUR, most, |_| {
                let (watts, holds) = next.next().expect("a cycle");
                (*watts, holds.map(Duration::from_nanos))
            });
            let limit = if most.is_nan() { 0.0 } else { most.max(0.0) };
            prop_assert!(forecast.steps().len() <= STEPS_MAX);
            prop_assert!(forecast.steps().iter().all(|step| step.watts >= 0.0 && step.watts <= limit));
        }
    }
}
