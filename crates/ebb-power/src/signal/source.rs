//! A power source: its readings count while they come and are possible.

use std::fmt;
use std::time::Duration;

use ebb_types::{Result, bail};

use super::check_supply;
use crate::hardware::Supply;

/// Limits of the trust in a source, and the fallback.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Trust {
    /// Watts for the whole cluster, assumed when the source is silent or gives an impossible reading.
    pub fallback_watts: f64,
    /// Time without a new reading after which the source counts as silent.
    pub silence: Duration,
    /// Highest output of the plant. A reading above it is impossible.
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

/// A reading of a source.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reading {
    /// Available power.
    pub supply: Supply,
    /// The source's own time of the measurement, in milliseconds of any clock, if it gives one. A repeated time is no
    /// new reading, and an earlier one is an error.
    pub stamp_ms: Option<u64>,
}

/// The reason not to trust a source.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Doubt {
    /// It has given no reading yet.
    Unheard,
    /// It has given no new reading for so long.
    Silent(Duration),
    /// Its reading is no number, or below 0.
    NoSupply,
    /// Its reading is above the output of the plant.
    TooMuch(f64),
    /// Its reading is older than its last one.
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

/// Origin of a sample.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Origin {
    /// The operator's override.
    Override,
    /// A reading of the source.
    Source,
    /// `fallback_watts`, because of a doubt.
    Fallback(Doubt),
}

/// The supply for a policy, and its origin.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// Available power.
    pub supply: Supply,
    /// Its origin.
    pub origin: Origin,
}

/// A source and the operator above it, as a state machine: readings in, samples out. Times are those of a monotonic
/// clock.
#[derive(Clone, PartialEq, Debug)]
pub struct Source {
    trust: Trust,
    full_nodes_watts: f64,
    forced: Option<Supply>,
    heard: Option<(Duration, Reading)>,
    lie: Option<Doubt>,
}

impl Source {
    /// A source without a reading. `full_nodes_watts` is the draw of all block servers, for readings in shares.
    pub fn new(trust: Trust, full_nodes_watts: f64) -> Result<Self> {
        trust.check()?;
        Ok(Self { trust, full_nodes_watts, forced: None, heard: None, lie: None })
    }

    /// Sets the operator's override, which has precedence over the source. `None` ends it.
    pub fn force(&mut self, supply: Option<Supply>) -> Result<()> {
        supply.map_or(Ok(()), check_supply)?;
        self.forced = supply;
        Ok(())
    }

    /// Takes a reading. Returns a doubt if it is impossible. The source is then not trusted until its next possible
    /// reading.
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

    /// The supply that counts now.
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

    /// Time at which the source counts as silent if no new reading comes. `None` if it is not trusted now, or
    /// overridden.
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

    fn reading(watts: f64) -> Reading {
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
        assert_eq!(source.on_reading(SECOND, reading(200.0)), None);
        assert_eq!((watts(&source, 30), watts(&source, 31)), ((200.0, false), (60.0, true)));
        assert_eq!(source.silent_at(), Some(SECOND * 31));
        source.on_reading(SECOND * 50, reading(100.0));
        assert_eq!(watts(&source, 51), (100.0, false));
    }

    #[test]
    fn lies_fall_back_at_once() {
        let mut source = Source::new(TRUST, 225.0).unwrap();
        for (lie, doubt) in [(f64::NAN, Doubt::NoSupply), (-1.0, Doubt::NoSupply), (301.0, Doubt::TooMuch(301.0))] {
            source.on_reading(SECOND, reading(200.0));
            assert_eq!(
                source.on_reading(SECOND * 2, reading(lie)).map(|doubt| doubt.to_string()),
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
        let stamped = |stamp_ms| Reading { stamp_ms: Some(stamp_ms), ..reading(200.0) };
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
        source.on_reading(SECOND, reading(200.0));
        assert_eq!(source.sample(SECOND), Sample { supply: Supply::Fraction(0.5), origin: Origin::Override });
        source.force(None).unwrap();
        assert_eq!(watts(&source, 1), (200.0, false));
        assert!(source.force(Some(Supply::Watts(-2.0))).is_err());
        assert!(Source::new(Trust { fallback_watts: 400.0, ..TRUST }, 225.0).is_err());
    }
}
