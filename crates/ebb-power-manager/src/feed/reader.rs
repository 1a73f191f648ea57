//! A source that is read.

use std::time::Duration;

use ebb_power::signal::carbon::Intensity;
use ebb_power::signal::openadr::{Calendar, Rule};
use ebb_power::signal::source::Reading;
use ebb_power::signal::ups::{UpsReading, UpsRule};
use ebb_power::signal::{Budget, Forecast, Signal};
use ebb_power::{Hardware, Supply, wall_ms};
use ebb_power_drivers::carbon::CarbonService;
use ebb_power_drivers::nut::Nut;
use ebb_power_drivers::openadr::Vtn;
use ebb_runtime::{Moment, Runtime};
use ebb_types::Result;

use super::poller::Poller;

/// A UPS is asked so often, and has so long to answer.
pub(super) const UPS_EVERY: Duration = Duration::from_secs(2);

/// A feed that is read.
#[derive(Debug)]
pub enum Reader {
    /// A function of time.
    Signal {
        /// See [`super::Feed::began_ms`].
        began_ms: u64,
        /// The function.
        signal: Signal,
    },
    /// A UPS, which is asked.
    Ups(Box<UpsReader>),
    /// A carbon service, which is polled.
    Carbon(Box<CarbonReader>),
    /// A grid operator's events, which are polled.
    OpenAdr(Box<OpenAdrReader>),
}

impl Reader {
    /// Asks a server for the first time, and waits for its answer. An operator who names a source wants an error at once
    /// if no server answers there.
    pub async fn try_once(&mut self, runtime: &Runtime) -> Result<()> {
        match self {
            Self::Signal { .. } => Ok(()),
            Self::Ups(reader) => reader.ask(runtime).await.map(drop),
            Self::Carbon(reader) => reader.poller.ask_now(runtime).await,
            Self::OpenAdr(reader) => reader.poller.ask_now(runtime).await,
        }
    }

    /// The next reading, if there is one now. A supply is at most `most_watts`, the greatest power that the cluster can
    /// draw, unless a trace says more.
    pub async fn read(&mut self, runtime: &Runtime, most_watts: f64) -> Result<Option<Reading>> {
        let now_ms = wall_ms(runtime.wall());
        let mut stamp_ms = Some(now_ms);
        let supply = match self {
            Self::Signal { began_ms, signal } => {
                Some(signal.at(Duration::from_millis(now_ms.saturating_sub(*began_ms))))
            }
            Self::Ups(reader) => reader.ask(runtime).await?,
            Self::Carbon(reader) => {
                // The answer counts by the monotonic clock: a jump of the other one is no doubt about it.
                stamp_ms = None;
                let intensity = reader.poller.poll(runtime);
                intensity.map(|intensity| Supply::Watts(reader.budget.watts_for(intensity.grams_per_kwh)))
            }
            Self::OpenAdr(reader) => {
                let rule = reader.rule;
                reader.poller.poll(runtime).map(|calendar| rule.supply_at(calendar, now_ms, most_watts))
            }
        };
        Ok(supply.map(|supply| Reading { supply: self.capped(supply, most_watts), stamp_ms }))
    }

    /// More than can be drawn is no lie of a market, a grid, a switchboard or a socket. Of a trace it may be one.
    fn capped(&self, supply: Supply, most_watts: f64) -> Supply {
        let is_capped = match self {
            Self::Signal { signal, .. } => {
                matches!(signal, Signal::Price(..) | Signal::Headroom(..) | Signal::Carbon(..))
            }
            Self::Ups(_) | Self::Carbon(_) | Self::OpenAdr(_) => true,
        };
        match supply {
            Supply::Watts(watts) if is_capped => Supply::Watts(watts.min(most_watts)),
            supply => supply,
        }
    }

    /// Whether its readings hold for the charge of a battery of its own, which they spend evenly.
    #[must_use]
    pub const fn is_even(&self) -> bool {
        matches!(self, Self::Ups(_))
    }

    /// The supply from `now_ms` on for a span, where it is known ahead; none where the last reading is all there is.
    /// `plausible_watts`: a reading above it would not be believed, and no step is above it.
    #[must_use]
    pub fn look_ahead(
        &self,
        now_ms: u64,
        span: Duration,
        hardware: &Hardware,
        plausible_watts: f64,
    ) -> Option<Forecast> {
        let most_watts = hardware.cluster_watts(Supply::Fraction(1.0));
        match self {
            Self::Signal { began_ms, signal } => {
                let elapsed = Duration::from_millis(now_ms.saturating_sub(*began_ms));
                let watts_of = |supply| hardware.cluster_watts(self.capped(supply, most_watts));
                Some(Forecast::of_signal(signal, elapsed, span, plausible_watts, watts_of))
            }
            Self::OpenAdr(reader) => {
                let calendar = reader.poller.last()?;
                Some(Forecast::of(span, most_watts, |after| {
                    let at_ms = now_ms.saturating_add(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
                    let supply = reader.rule.supply_at(calendar, at_ms, most_watts);
                    (hardware.cluster_watts(supply), calendar.holds_for(at_ms))
                }))
            }
            Self::Ups(_) | Self::Carbon(_) => None,
        }
    }
}

/// A carbon service, and the budget.
#[derive(Debug)]
pub struct CarbonReader {
    pub(super) poller: Poller<CarbonService, Intensity>,
    pub(super) budget: Budget,
}

/// A server of events, and the rule for them.
#[derive(Debug)]
pub struct OpenAdrReader {
    pub(super) poller: Poller<Vtn, Calendar>,
    pub(super) rule: Rule,
}

/// A UPS, and since when the mains are gone.
#[derive(Debug)]
pub struct UpsReader {
    nut: Nut,
    rule: UpsRule,
    asked: Option<Moment>,
    on_battery_since: Option<Moment>,
}

impl UpsReader {
    pub(super) const fn new(nut: Nut, rule: UpsRule) -> Self {
        Self { nut, rule, asked: None, on_battery_since: None }
    }

    async fn ask(&mut self, runtime: &Runtime) -> Result<Option<Supply>> {
        let now = runtime.now();
        if self.asked.is_some_and(|asked| now.since(asked) < UPS_EVERY) {
            return Ok(None);
        }
        self.asked = Some(now);
        let reading = self.nut.read().await?;
        self.on_reading(&reading, now).map(Some)
    }

    pub(super) fn on_reading(&mut self, reading: &UpsReading, now: Moment) -> Result<Supply> {
        self.on_battery_since = reading.on_battery.then(|| self.on_battery_since.unwrap_or(now));
        let on_battery = self.on_battery_since.map_or(Duration::ZERO, |since| now.since(since));
        self.rule.supply(reading, on_battery)
    }
}
