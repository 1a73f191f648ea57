//! A source that is listened to: believed while it speaks and makes sense.

use std::fmt;
use std::time::Duration;

use ebb_types::{Result, bail};

use super::check_supply;
use crate::hardware::Supply;

/// When a source is not believed, and what then.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Trust {
    /// Assumed when the source is silent or lies, for the whole cluster.
    pub fallback_watts: f64,
    /// It is silent when nothing new has come for so long.
    pub silence: Duration,
    /// More than the plant can give: whoever says so lies.
    pub most_watts: f64,
}

impl Trust {
    /// `Invalid` if the fallback is no supply, or itself more than the plant can give.
    pub fn check(&self) -> Result<()> {
        check_supply(Supply::Watts(self.fallback_watts)).map_err(|error| error.context("fallback_watts"))?;
        if self.most_watts.is_nan() || self.most_watts < self.fallback_watts {
            bail!(
                Invalid,
                "a fallback of {} W from a plant that gives {} W at most",
                self.fallback_watts,
                self.most_watts
            );
        }
        Ok(())
    }
}

/// What a source said.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reading {
    /// Power that there is.
    pub supply: Supply,
    /// The source's own time of the measurement, in milliseconds of any clock, if it gives one: the same one twice is
    /// no news, an earlier one is a lie.
    pub stamp_ms: Option<u64>,
}

/// Why a source is not believed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Doubt {
    /// It never spoke.
    Unheard,
    /// Nothing new for so long.
    Silent(Duration),
    /// No number, or below 0.
    NoSupply,
    /// More than the plant can give.
    TooMuch(f64),
    /// Measured before what it said last.
    Backwards,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unheard => f.write_str("the power source has said nothing yet"),
            Self::Silent(span) => write!(f, "the power source has been silent for {} s", span.as_secs()),
            Self::NoSupply => f.write_str("the power source gave no number, or one below 0"),
            Self::TooMuch(watts) => write!(f, "the power source claims {watts:.0} W, more than the plant can give"),
            Self::Backwards => f.write_str("the power source's clock went back"),
        }
    }
}

/// Whose word a sample is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Origin {
    /// The operator's.
    Override,
    /// The source's.
    Source,
    /// Nobody's: `fallback_watts`.
    Fallback(Doubt),
}

/// The supply that a policy goes by, and whose word it is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// Power that there is.
    pub supply: Supply,
    /// Whose word it is.
    pub origin: Origin,
}

/// A source and the operator above it, as a state machine: readings in, samples out. Times are those of a clock that
/// never goes back.
#[derive(Clone, PartialEq, Debug)]
pub struct Source {
    trust: Trust,
    full_nodes_watts: f64,
    forced: Option<Supply>,
    heard: Option<(Duration, Reading)>,
    lie: Option<Doubt>,
}

impl Source {
    /// A source that has not spoken yet. `full_nodes_watts` is what all block servers draw, to judge shares by.
    pub fn new(trust: Trust, full_nodes_watts: f64) -> Result<Self> {
        trust.check()?;
        Ok(Self { trust, full_nodes_watts, forced: None, heard: None, lie: None })
    }

    /// The operator's override, which comes before the source; none ends it.
    pub fn force(&mut self, supply: Option<Supply>) -> Result<()> {
        supply.map_or(Ok(()), check_supply)?;
        self.forced = supply;
        Ok(())
    }

    /// Takes a reading in. What is wrong with it, if anything; then the source is not believed until it says something
    /// that can be.
    pub fn on_reading(&mut self, now: Duration, reading: Reading) -> Option<Doubt> {
        let before = self.heard.and_then(|(_, last)| last.stamp_ms);
        self.lie = self.doubt(&reading, before);
        let is_news = before.is_none() || reading.stamp_ms != before;
        if self.lie.is_none() && is_news {
            self.heard = Some((now, reading));
        }
        self.lie
    }

    fn doubt(&self, reading: &Reading, before: Option<u64>) -> Option<Doubt> {
        let (amount, watts) = match reading.supply {
            Supply::Watts(watts) => (watts, watts),
            Supply::Fraction(share) => (share, share * self.full_nodes_watts),
        };
        if !(amount.is_finite() && amount >= 0.0) {
            return Some(Doubt::NoSupply);
        }
        if watts > self.trust.most_watts {
            return Some(Doubt::TooMuch(watts));
        }
        let back = before.zip(reading.stamp_ms).is_some_and(|(before, stamp)| stamp < before);
        back.then_some(Doubt::Backwards)
    }

    /// The supply to go by now.
    #[must_use]
    pub fn sample(&self, now: Duration) -> Sample {
        if let Some(supply) = self.forced {
            return Sample { supply, origin: Origin::Override };
        }
        let doubt = match (self.lie, self.heard) {
            (Some(lie), _) => lie,
            (None, None) => Doubt::Unheard,
            (None, Some((heard, reading))) => {
                let quiet = now.saturating_sub(heard);
                if quiet < self.trust.silence {
                    return Sample { supply: reading.supply, origin: Origin::Source };
                }
                Doubt::Silent(quiet)
            }
        };
        Sample { supply: Supply::Watts(self.trust.fallback_watts), origin: Origin::Fallback(doubt) }
    }

    /// When the source counts as silent if nothing new comes; none if it does already, or the operator has spoken.
    #[must_use]
    pub fn silent_at(&self) -> Option<Duration> {
        let (heard, _) = self.heard.filter(|_| self.lie.is_none() && self.forced.is_none())?;
        Some(heard + self.trust.silence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const TRUST: Trust = Trust { fallback_watts: 60.0, silence: Duration::from_secs(30), most_watts: 300.0 };

    fn said(watts: f64) -> Reading {
        Reading { supply: Supply::Watts(watts), stamp_ms: None }
    }

    fn watts(source: &Source, at_s: u32) -> (f64, bool) {
        let sample = source.sample(SECOND * at_s);
        let Supply::Watts(watts) = sample.supply else { panic!("watts went in") };
        (watts, matches!(sample.origin, Origin::Fallback(_)))
    }

    #[test]
    fn silence_falls_back_and_speech_comes_back() {
        let mut source = Source::new(TRUST, 225.0).unwrap();
        assert_eq!(source.sample(SECOND).origin, Origin::Fallback(Doubt::Unheard));
        assert_eq!(source.on_reading(SECOND, said(200.0)), None);
        assert_eq!((watts(&source, 30), watts(&source, 31)), ((200.0, false), (60.0, true)));
        assert_eq!(source.silent_at(), Some(SECOND * 31));
        source.on_reading(SECOND * 50, said(100.0));
        assert_eq!(watts(&source, 51), (100.0, false));
    }

    #[test]
    fn lies_fall_back_at_once() {
        let mut source = Source::new(TRUST, 225.0).unwrap();
        for (lie, doubt) in [(f64::NAN, Doubt::NoSupply), (-1.0, Doubt::NoSupply), (301.0, Doubt::TooMuch(301.0))] {
            source.on_reading(SECOND, said(200.0));
            assert_eq!(
                source.on_reading(SECOND * 2, said(lie)).map(|doubt| doubt.to_string()),
                Some(doubt.to_string())
            );
            assert_eq!(watts(&source, 2), (60.0, true));
        }
        let share = Reading { supply: Supply::Fraction(1.5), stamp_ms: None };
        assert_eq!(source.on_reading(SECOND, share), Some(Doubt::TooMuch(337.5)));
    }

    #[test]
    fn a_stuck_source_is_a_silent_one_and_a_clock_that_goes_back_is_a_lie() {
        let mut source = Source::new(TRUST, 225.0).unwrap();
        let stamped = |stamp_ms| Reading { stamp_ms: Some(stamp_ms), ..said(200.0) };
        source.on_reading(SECOND, stamped(5));
        (2..40).for_each(|at| assert_eq!(source.on_reading(SECOND * at, stamped(5)), None));
        assert_eq!(source.sample(SECOND * 40).origin, Origin::Fallback(Doubt::Silent(SECOND * 39)));
        assert_eq!(source.on_reading(SECOND * 41, stamped(4)), Some(Doubt::Backwards));
        assert_eq!(source.on_reading(SECOND * 42, stamped(6)), None);
        assert_eq!(watts(&source, 42), (200.0, false));
    }

    #[test]
    fn the_operator_comes_first() {
        let mut source = Source::new(TRUST, 225.0).unwrap();
        source.force(Some(Supply::Fraction(0.5))).unwrap();
        source.on_reading(SECOND, said(200.0));
        assert_eq!(source.sample(SECOND), Sample { supply: Supply::Fraction(0.5), origin: Origin::Override });
        source.force(None).unwrap();
        assert_eq!(watts(&source, 1), (200.0, false));
        assert!(source.force(Some(Supply::Watts(-2.0))).is_err());
        assert!(Source::new(Trust { fallback_watts: 400.0, ..TRUST }, 225.0).is_err());
    }
}
