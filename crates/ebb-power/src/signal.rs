//! Available power over time: signals that can be computed ahead, sources that give readings, and forecasts.
//!
//! A [`Signal`] is a function of time. An [`openadr::Calendar`] has the events of a grid operator, which end and begin at
//! known times. A [`Forecast`] is the power from now on, as far as it is known. A [`source::Source`] stands between a signal or a meter and the policy: an
//! operator's override has precedence, and silence or an impossible reading leads to `fallback_watts`.

use std::time::Duration;

use ebb_types::{Result, bail};

use crate::hardware::Supply;

pub mod budget;
pub mod carbon;
pub mod forecast;
pub mod headroom;
pub mod iso8601;
pub mod nut;
pub mod openadr;
pub mod prediction;
pub mod price;
pub mod source;
pub mod trace;
pub mod ups;

pub use budget::Budget;
pub use carbon::CarbonBudget;
pub use forecast::{Forecast, ForecastKind};
pub use prediction::Prediction;
pub use price::Tariff;
pub use source::{Doubt, Origin, Sample, Source};
pub use trace::{End, Quantity, Trace};

/// Time between two changes of an oscillation (BlinkFS, Sec. 5).
pub const OSCILLATION_PERIOD: Duration = Duration::from_secs(300);

/// A supply as a function of time.
#[derive(Clone, PartialEq, Debug)]
pub enum Signal {
    /// A constant supply.
    Constant(Supply),
    /// Between `(45 + 45 level) %` and `(45 - 45 level) %` of the full power, changing every period, high first.
    Oscillating {
        /// From 0 (steady at 45 %) to 1.
        level: f64,
        /// Time between two changes.
        period: Duration,
    },
    /// A trace of watts or shares.
    Trace(Trace, End),
    /// The power that a sum of money per hour buys at changing prices.
    Price(Tariff, End),
    /// The part of a capacity that a foreground load leaves.
    Headroom(headroom::Headroom, End),
    /// The power that a mass of CO2 per hour allows at changing carbon intensities.
    Carbon(CarbonBudget, End),
}

impl Signal {
    /// A constant supply. `Invalid` below 0 or for a share above 1.
    pub fn constant(supply: Supply) -> Result<Self> {
        check_supply(supply)?;
        Ok(Self::Constant(supply))
    }

    /// The paper's oscillation at a level from 0 to 1.
    pub fn oscillating(level: f64, period: Duration) -> Result<Self> {
        check_share(level)?;
        if period.is_zero() {
            bail!(Invalid, "an oscillation needs a time between its changes");
        }
        Ok(Self::Oscillating { level, period })
    }

    /// Supply after so much time since the signal began.
    #[must_use]
    pub fn at(&self, elapsed: Duration) -> Supply {
        let seconds = elapsed.as_secs_f64();
        match self {
            Self::Constant(supply) => *supply,
            Self::Oscillating { level, period } => {
                let is_high = (elapsed.as_nanos() / period.as_nanos()).is_multiple_of(2);
                Supply::Fraction(swing(*level, is_high))
            }
            Self::Trace(trace, end) => trace.supply_at(seconds, *end),
            Self::Price(tariff, end) => Supply::Watts(tariff.watts_at(seconds, *end)),
            Self::Headroom(headroom, end) => Supply::Watts(headroom.watts_at(seconds, *end)),
            Self::Carbon(budget, end) => Supply::Watts(budget.watts_at(seconds, *end)),
        }
    }

    /// Time from `elapsed` on for which the supply stays the same. `None` if it never changes.
    #[must_use]
    pub fn holds_for(&self, elapsed: Duration) -> Option<Duration> {
        let of_trace = |trace: &Trace, end| {
            let left = trace.holds_for(elapsed.as_secs_f64(), end)?;
            Duration::try_from_secs_f64(left).ok()
        };
        match self {
            Self::Constant(_) => None,
            Self::Oscillating { period, .. } => {
                let into = elapsed.as_nanos() % period.as_nanos();
                Some(*period - Duration::from_nanos_u128(into))
            }
            Self::Trace(trace, end) => of_trace(trace, *end),
            Self::Price(tariff, end) => of_trace(tariff.prices(), *end),
            Self::Headroom(headroom, end) => of_trace(headroom.foreground(), *end),
            Self::Carbon(budget, end) => of_trace(budget.intensities(), *end),
        }
    }
}

/// Share of the full power of an oscillation at a level, in its high or its low half (BlinkFS, Sec. 5).
#[must_use]
pub fn swing(level: f64, is_high: bool) -> f64 {
    if is_high { 0.45 + 0.45 * level } else { 0.45 - 0.45 * level }
}

/// Refuses a number that is no share, and names the nearest one.
pub fn check_share(share: f64) -> Result<()> {
    if !(0.0..=1.0).contains(&share) {
        let nearest = if share > 1.0 { 100 } else { 0 };
        bail!(
            Invalid,
            "{:.0} % is no share of the full power; the nearest possible value is {nearest} %",
            share * 100.0
        );
    }
    Ok(())
}

/// Refuses an impossible supply.
pub fn check_supply(supply: Supply) -> Result<()> {
    match supply {
        Supply::Fraction(share) => check_share(share),
        Supply::Watts(watts) if watts.is_finite() && watts >= 0.0 => Ok(()),
        Supply::Watts(watts) => bail!(Invalid, "{watts} W is no supply; the nearest possible value is 0 W"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_oscillation_swings_every_five_minutes() {
        let signal = Signal::oscillating(1.0, OSCILLATION_PERIOD).unwrap();
        assert_eq!(signal.at(SECOND * 299), Supply::Fraction(0.9));
        assert_eq!(signal.at(SECOND * 300), Supply::Fraction(0.0));
        assert_eq!(signal.at(SECOND * 600), Supply::Fraction(0.9));
        assert_eq!(signal.holds_for(SECOND * 310), Some(SECOND * 290));
        assert_eq!(Signal::oscillating(0.0, SECOND).unwrap().at(SECOND), Supply::Fraction(0.45));
        assert!(Signal::oscillating(0.5, Duration::ZERO).is_err() && Signal::oscillating(1.5, SECOND).is_err());
    }

    #[test]
    fn a_constant_never_changes_and_must_be_a_supply() {
        let signal = Signal::constant(Supply::Watts(80.0)).unwrap();
        assert_eq!((signal.at(SECOND), signal.holds_for(SECOND)), (Supply::Watts(80.0), None));
        assert!(Signal::constant(Supply::Watts(-1.0)).is_err());
        let refusal = Signal::constant(Supply::Fraction(1.2)).unwrap_err().to_string();
        assert!(refusal.ends_with("the nearest possible value is 100 %"), "{refusal}");
    }
}
