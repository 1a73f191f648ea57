//! The source that the supply is read from. An operator names it, and it is kept with the settings.

use std::time::Duration;

use ebb_power::signal::headroom::Headroom;
use ebb_power::signal::source::Reading;
use ebb_power::signal::ups::{UpsReading, UpsRule};
use ebb_power::signal::{End, Quantity, Signal, Tariff, Trace};
use ebb_power::{Supply, wall_ms};
use ebb_power_drivers::nut::Nut;
use ebb_runtime::{Moment, Runtime};
use ebb_types::{Result, bail, err};
use ebb_wire::pb;
use pb::follow_source::Source as SourceMessage;
use serde::{Deserialize, Serialize};

/// Largest trace that is kept, in bytes.
pub const TRACE_BYTES_MAX: usize = 8 << 20;
/// Longest blackout that can be bridged.
const BRIDGE_MOST: Duration = Duration::from_secs(7 * 86_400);
/// A UPS is asked so often, and has so long to answer.
const UPS_EVERY: Duration = Duration::from_secs(2);

/// A source, and since when it is followed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Feed {
    /// In milliseconds since the Unix epoch: a signal begins then.
    pub began_ms: u64,
    /// The source.
    pub source: Source,
}

/// The kinds of source.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Source {
    /// Watts or shares over time.
    Trace(Played),
    /// The power that a sum of money an hour buys.
    Price {
        /// Prices of a kilowatt-hour over time.
        prices: Played,
        /// The sum, in the prices' unit.
        per_hour: f64,
    },
    /// The part of a capacity that others leave.
    Headroom {
        /// The power that others draw, in watts over time.
        foreground: Played,
        /// In watts.
        capacity_watts: f64,
    },
    /// Between two shares of the full power (BlinkFS, Sec. 5).
    Oscillating {
        /// From 0 (steady) to 1.
        level: f64,
        /// Time between two changes.
        period_ms: u64,
    },
    /// A UPS behind an upsd, stretched through blackouts.
    Ups {
        /// Its name.
        ups: String,
        /// `host:port` of upsd.
        address: String,
        /// While the mains are there; none: all that the cluster can draw.
        mains_watts: Option<f64>,
        /// Length of a blackout that is to be got through, in seconds.
        bridge_s: f64,
        /// Energy of the full battery; none: derived from the runtime and load that the UPS reports.
        capacity_joules: Option<f64>,
        /// Share of the charge that is left for the end.
        reserve: f64,
    },
}

/// A trace that is played.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Played {
    /// For people, and in errors.
    pub name: String,
    /// How many times faster than real time.
    pub compress: f64,
    /// As it was given.
    pub csv: String,
}

impl Played {
    /// `Invalid`, with name and line, if it is none of these quantities.
    fn trace(&self, allowed: &[Quantity]) -> Result<Trace> {
        if self.csv.len() > TRACE_BYTES_MAX {
            bail!(Invalid, "{}: {} bytes; a trace may have {TRACE_BYTES_MAX}", self.name, self.csv.len());
        }
        Trace::parse(&self.name, &self.csv)?.expect(&self.name, allowed)?.compressed(self.compress)
    }
}

impl Feed {
    /// The source that a call names, from now on.
    pub fn from_call(call: pb::FollowSource, began_ms: u64) -> Result<Self> {
        let source = match call.source.ok_or_else(|| err!(Invalid, "no source is named"))? {
            SourceMessage::Trace(given) => {
                let played = Played { name: given.name, compress: given.compress, csv: given.csv };
                match (given.per_hour, given.capacity_watts) {
                    (None, None) => Source::Trace(played),
                    (Some(per_hour), None) => Source::Price { prices: played, per_hour },
                    (None, Some(capacity_watts)) => Source::Headroom { foreground: played, capacity_watts },
                    (Some(_), Some(_)) => bail!(Invalid, "a trace of prices or of the power of others, not both"),
                }
            }
            SourceMessage::Oscillating(given) => Source::Oscillating { level: given.level, period_ms: given.period_ms },
            SourceMessage::Ups(given) => Source::Ups {
                ups: given.ups,
                address: given.address,
                mains_watts: given.mains_watts,
                bridge_s: given.bridge_s,
                capacity_joules: given.capacity_joules,
                reserve: given.reserve,
            },
        };
        Ok(Self { began_ms, source })
    }

    /// For people.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.source {
            Source::Trace(played) => played.name.clone(),
            Source::Price { prices, per_hour } => format!("{}, {per_hour} an hour", prices.name),
            Source::Headroom { foreground, capacity_watts } => format!("{capacity_watts} W less {}", foreground.name),
            Source::Oscillating { level, period_ms } => format!(
                "{:.0} % oscillation every {} s",
                level * 100.0,
                Duration::from_millis(*period_ms).as_secs_f64()
            ),
            Source::Ups { ups, address, .. } => format!("UPS {ups} at {address}"),
        }
    }

    /// Opens the source. `Invalid` if its description cannot be true.
    pub fn open(&self, runtime: &Runtime) -> Result<Reader> {
        let signal = |signal| Ok(Reader::Signal { began_ms: self.began_ms, signal });
        // The cluster's greatest power is not known here. It is applied to each reading.
        let no_cap = f64::MAX;
        match &self.source {
            Source::Trace(played) => {
                signal(Signal::Trace(played.trace(&[Quantity::Watts, Quantity::Fraction])?, End::Repeat))
            }
            Source::Price { prices, per_hour } => {
                let tariff = Tariff::new(*per_hour, prices.trace(&[Quantity::Price])?, no_cap)?;
                signal(Signal::Price(tariff, End::Repeat))
            }
            Source::Headroom { foreground, capacity_watts } => {
                let headroom = Headroom::new(*capacity_watts, foreground.trace(&[Quantity::Watts])?)?;
                signal(Signal::Headroom(headroom, End::Repeat))
            }
            Source::Oscillating { level, period_ms } => {
                signal(Signal::oscillating(*level, Duration::from_millis(*period_ms))?)
            }
            Source::Ups { ups, address, mains_watts, bridge_s, capacity_joules, reserve } => {
                let bridge = Duration::try_from_secs_f64(*bridge_s).unwrap_or(Duration::MAX);
                if bridge > BRIDGE_MOST || bridge.is_zero() {
                    bail!(Invalid, "a blackout of {bridge_s} s cannot be bridged: more than 0, and a week at most");
                }
                let is_amount = |watts: &f64| watts.is_finite() && *watts > 0.0;
                if !mains_watts.iter().chain(capacity_joules).all(is_amount) || !(0.0..1.0).contains(reserve) {
                    bail!(Invalid, "the watts of the mains and the battery's joules are above 0, the reserve below 1");
                }
                Ok(Reader::Ups(Box::new(UpsReader {
                    nut: Nut::new(runtime.clone(), address, ups, UPS_EVERY)?,
                    rule: UpsRule {
                        mains_watts: mains_watts.unwrap_or(f64::MAX),
                        bridge,
                        capacity_joules: *capacity_joules,
                        reserve: *reserve,
                    },
                    asked: None,
                    on_battery_since: None,
                })))
            }
        }
    }
}

/// A feed that is read.
#[derive(Debug)]
pub enum Reader {
    /// A function of time.
    Signal {
        /// See [`Feed::began_ms`].
        began_ms: u64,
        /// The function.
        signal: Signal,
    },
    /// Has to be asked.
    Ups(Box<UpsReader>),
}

/// A UPS, and since when the mains are gone.
#[derive(Debug)]
pub struct UpsReader {
    nut: Nut,
    rule: UpsRule,
    asked: Option<Moment>,
    on_battery_since: Option<Moment>,
}

impl Reader {
    /// The next reading, if there is one now. A supply is at most `most_watts`, the greatest power that the cluster can
    /// draw.
    pub async fn read(&mut self, runtime: &Runtime, most_watts: f64) -> Result<Option<Reading>> {
        let now_ms = wall_ms(runtime.wall());
        let supply = match self {
            Self::Signal { began_ms, signal } => {
                Some(signal.at(Duration::from_millis(now_ms.saturating_sub(*began_ms))))
            }
            Self::Ups(reader) => reader.ask(runtime).await?,
        };
        let capped = supply.map(|supply| match (supply, &*self) {
            // More than can be drawn is no lie of a market, a switchboard or a socket.
            (
                Supply::Watts(watts),
                Self::Ups(_) | Self::Signal { signal: Signal::Price(..) | Signal::Headroom(..), .. },
            ) => Supply::Watts(watts.min(most_watts)),
            (supply, _) => supply,
        });
        Ok(capped.map(|supply| Reading { supply, stamp_ms: Some(now_ms) }))
    }
}

impl UpsReader {
    async fn ask(&mut self, runtime: &Runtime) -> Result<Option<Supply>> {
        let now = runtime.now();
        if self.asked.is_some_and(|asked| now.since(asked) < UPS_EVERY) {
            return Ok(None);
        }
        self.asked = Some(now);
        let reading = self.nut.read().await?;
        self.on_reading(&reading, now).map(Some)
    }

    fn on_reading(&mut self, reading: &UpsReading, now: Moment) -> Result<Supply> {
        self.on_battery_since = reading.on_battery.then(|| self.on_battery_since.unwrap_or(now));
        let on_battery = self.on_battery_since.map_or(Duration::ZERO, |since| now.since(since));
        self.rule.supply(reading, on_battery)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(csv: &str) -> pb::TraceSource {
        pb::TraceSource { name: "t.csv".into(), csv: csv.into(), compress: 60.0, ..Default::default() }
    }

    fn feed(source: SourceMessage) -> Feed {
        Feed::from_call(pb::FollowSource { source: Some(source) }, 0).unwrap()
    }

    fn refused(source: SourceMessage) -> String {
        let runtime = Runtime::real();
        let opened = Feed::from_call(pb::FollowSource { source: Some(source) }, 0).and_then(|feed| feed.open(&runtime));
        opened.unwrap_err().to_string()
    }

    async fn read(source: SourceMessage, most_watts: f64) -> Supply {
        let runtime = Runtime::real();
        let mut reader = feed(source).open(&runtime).unwrap();
        reader.read(&runtime, most_watts).await.unwrap().unwrap().supply
    }

    #[tokio::test]
    async fn sources_say_what_they_are_said_to_say() {
        assert_eq!(read(SourceMessage::Trace(played("seconds,watts\n0,1000\n")), 265.0).await, Supply::Watts(1000.0));
        let prices = pb::TraceSource { per_hour: Some(1.0), ..played("seconds,price\n0,4.5\n") };
        let Supply::Watts(bought) = read(SourceMessage::Trace(prices.clone()), 265.0).await else {
            panic!("money buys watts")
        };
        assert_eq!(bought.round(), 222.0);
        // More than can be drawn is not bought.
        assert_eq!(read(SourceMessage::Trace(prices), 100.0).await, Supply::Watts(100.0));
        let others = pb::TraceSource { capacity_watts: Some(500.0), ..played("seconds,watts\n0,380\n") };
        assert_eq!(read(SourceMessage::Trace(others), 265.0).await, Supply::Watts(120.0));
        let steady = pb::OscillatingSource { level: 0.0, period_ms: 1_000 };
        assert_eq!(read(SourceMessage::Oscillating(steady), 265.0).await, Supply::Fraction(0.45));
    }

    #[test]
    fn sources_that_cannot_be_are_refused() {
        assert!(refused(SourceMessage::Trace(played("seconds,price\n0,4\n"))).contains("t.csv"));
        assert!(refused(SourceMessage::Trace(played("seconds,watts\n0,-4\n"))).contains("line 2"));
        let both = pb::TraceSource { per_hour: Some(1.0), capacity_watts: Some(1.0), ..played("") };
        assert!(refused(SourceMessage::Trace(both)).contains("not both"));
        assert!(
            refused(SourceMessage::Oscillating(pb::OscillatingSource { level: 2.0, period_ms: 5 })).contains("200 %")
        );
        let ups = pb::UpsSource { ups: "rack 1".into(), address: "h:1".into(), bridge_s: 60.0, ..Default::default() };
        assert!(refused(SourceMessage::Ups(ups.clone())).contains("rack 1"));
        let ups = pb::UpsSource { ups: "rack1".into(), bridge_s: f64::NAN, ..ups };
        assert!(refused(SourceMessage::Ups(ups)).contains("bridged"));
    }

    /// The time on battery goes on from one reading to the next, and begins anew after the mains were back.
    #[tokio::test]
    async fn a_blackout_is_as_long_as_it_is() {
        let runtime = Runtime::real();
        let source = pb::UpsSource {
            ups: "rack1".into(),
            address: "127.0.0.1:1".into(),
            bridge_s: 1_000.0,
            capacity_joules: Some(100_000.0),
            ..Default::default()
        };
        let Reader::Ups(mut reader) = feed(SourceMessage::Ups(source)).open(&runtime).unwrap() else { panic!("a UPS") };
        let reading = |on_battery| UpsReading { on_battery, charge: Some(0.9), ..UpsReading::default() };
        let (first, second) = (runtime.now(), Duration::from_secs(100));
        assert_eq!(reader.on_reading(&reading(true), first).unwrap(), Supply::Watts(90.0));
        assert_eq!(reader.on_reading(&reading(true), first.after(second)).unwrap(), Supply::Watts(100.0));
        assert_eq!(reader.on_reading(&reading(false), first.after(second)).unwrap(), Supply::Watts(f64::MAX));
        assert_eq!(reader.on_reading(&reading(true), first.after(second * 2)).unwrap(), Supply::Watts(90.0));
    }
}
