//! The source that the supply is read from. An operator names it, and it is kept with the settings.

use std::time::Duration;

use ebb_power::signal::headroom::Headroom;
use ebb_power::signal::ups::UpsRule;
use ebb_power::signal::{CarbonBudget, End, Quantity, Signal, Tariff, Trace};
use ebb_power_drivers::nut::Nut;
use ebb_runtime::Runtime;
use ebb_types::{Result, bail, err};
use ebb_wire::pb;
use pb::follow_source::Source as SourceMessage;
use serde::{Deserialize, Serialize};

use reader::{UPS_EVERY, UpsReader};
use web::{CarbonWeb, OpenAdrWeb};

mod poller;
mod reader;
#[cfg(test)]
mod tests;
pub mod web;

pub use reader::Reader;

/// Largest trace that is kept, in bytes.
pub const TRACE_BYTES_MAX: usize = 8 << 20;
/// Longest blackout that can be bridged.
const BRIDGE_MOST: Duration = Duration::from_secs(7 * 86_400);

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
    /// The power that a mass of CO2 an hour allows.
    Carbon {
        /// Grams of CO2 for each kilowatt-hour, over time.
        intensities: Played,
        /// Grams an hour.
        grams_per_hour: f64,
    },
    /// The same at the carbon intensity that a service publishes.
    CarbonService(CarbonWeb),
    /// Events of a grid operator.
    OpenAdr(OpenAdrWeb),
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
                match (given.per_hour, given.capacity_watts, given.grams_per_hour) {
                    (None, None, None) => Source::Trace(played),
                    (Some(per_hour), None, None) => Source::Price { prices: played, per_hour },
                    (None, Some(capacity_watts), None) => Source::Headroom { foreground: played, capacity_watts },
                    (None, None, Some(grams_per_hour)) => Source::Carbon { intensities: played, grams_per_hour },
                    _ => bail!(Invalid, "a trace of prices, of the power of others or of carbon intensities, not both"),
                }
            }
            SourceMessage::Oscillating(given) => Source::Oscillating { level: given.level, period_ms: given.period_ms },
            SourceMessage::Carbon(given) => Source::CarbonService(CarbonWeb::from_call(given)?),
            SourceMessage::Openadr(given) => Source::OpenAdr(OpenAdrWeb::from_call(given)?),
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
            Source::Carbon { intensities, grams_per_hour } => {
                format!("{}, {grams_per_hour} g CO2 an hour", intensities.name)
            }
            Source::CarbonService(web) => web.name(),
            Source::OpenAdr(web) => web.name(),
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
            Source::Carbon { intensities, grams_per_hour } => {
                let budget = CarbonBudget::new(*grams_per_hour, intensities.trace(&[Quantity::Carbon])?, no_cap)?;
                signal(Signal::Carbon(budget, End::Repeat))
            }
            Source::CarbonService(web) => web.open(runtime),
            Source::OpenAdr(web) => web.open(runtime),
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
                let rule = UpsRule {
                    mains_watts: mains_watts.unwrap_or(f64::MAX),
                    bridge,
                    capacity_joules: *capacity_joules,
                    reserve: *reserve,
                };
                let nut = Nut::new(runtime.clone(), address, ups, UPS_EVERY)?;
                Ok(Reader::Ups(Box::new(UpsReader::new(nut, rule))))
            }
        }
    }
}
