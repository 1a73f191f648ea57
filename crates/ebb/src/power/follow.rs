//! `ebb power follow`: where the supply is read from.

use std::path::PathBuf;

use clap::Args;
use ebb_cli::units::Span;
use ebb_power::signal::nut;
use ebb_types::{Error, Result, bail, err};
use ebb_wire::pb;
use pb::follow_source::Source;

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct FollowArgs {
    /// Trace in CSV with the columns seconds,watts or seconds,fraction (seconds,price with --per-hour). It starts now,
    /// and repeats when it ends.
    #[arg(required_unless_present_any = ["oscillating", "ups"], conflicts_with_all = ["oscillating", "ups"])]
    file: Option<PathBuf>,
    /// Factor by which the trace is played faster than real time.
    #[arg(long, default_value_t = 1.0, requires = "file")]
    compress: f64,
    /// Budget for one hour. The trace then holds prices of a kilowatt-hour, in the same currency.
    #[arg(long, value_name = "MONEY", requires = "file", conflicts_with = "capacity")]
    per_hour: Option<f64>,
    /// Capacity in watts that the cluster shares with other loads. The trace then holds the watts of these loads, and
    /// the supply is the rest.
    #[arg(long, value_name = "WATTS", requires = "file")]
    capacity: Option<f64>,
    /// Supply that alternates between (45 + 45 LEVEL) % and (45 - 45 LEVEL) % of the nodes' power; LEVEL is from 0 to
    /// 1.
    #[arg(long, value_name = "LEVEL", conflicts_with = "ups")]
    oscillating: Option<f64>,
    /// Time between two changes of the oscillation.
    #[arg(long, default_value = "300s", requires = "oscillating")]
    period: Span,
    /// UPS behind an upsd (Network UPS Tools), as NAME@HOST or NAME@HOST:PORT.
    #[arg(long, value_name = "UPS")]
    ups: Option<String>,
    /// Length of a blackout that the UPS must bridge.
    #[arg(long, default_value = "3600s", requires = "ups")]
    bridge: Span,
    /// Supply in watts while mains power is present [default: all that the cluster can draw].
    #[arg(long, value_name = "WATTS", requires = "ups")]
    mains_watts: Option<f64>,
    /// Energy of the full battery in joules [default: computed from the load and the runtime that the UPS reports].
    #[arg(long, value_name = "JOULES", requires = "ups")]
    ups_joules: Option<f64>,
    /// Fraction of the battery charge that is kept for an orderly shutdown.
    #[arg(long, default_value_t = 0.1, requires = "ups")]
    reserve: f64,
}

impl FollowArgs {
    /// The call that asks for it.
    pub fn call(&self) -> Result<pb::FollowSource> {
        Ok(pb::FollowSource { source: Some(self.source()?) })
    }

    fn source(&self) -> Result<Source> {
        if let Some(level) = self.oscillating {
            let period_ms = u64::try_from(self.period.0.as_millis()).unwrap_or(u64::MAX);
            return Ok(Source::Oscillating(pb::OscillatingSource { level, period_ms }));
        }
        if let Some(ups) = &self.ups {
            let (ups, address) = split(ups)?;
            return Ok(Source::Ups(pb::UpsSource {
                ups,
                address,
                mains_watts: self.mains_watts,
                bridge_s: self.bridge.0.as_secs_f64(),
                capacity_joules: self.ups_joules,
                reserve: self.reserve,
            }));
        }
        let file = self.file.as_ref().ok_or_else(|| err!(Invalid, "which trace is to be followed?"))?;
        let name = file.display().to_string();
        let csv = std::fs::read_to_string(file).map_err(|error| Error::from_io(&error, &name))?;
        let (per_hour, capacity_watts) = (self.per_hour, self.capacity);
        Ok(Source::Trace(pb::TraceSource { name, csv, compress: self.compress, per_hour, capacity_watts }))
    }
}

/// Name and address of a UPS, as `upsc` takes them.
fn split(text: &str) -> Result<(String, String)> {
    match text.split_once('@') {
        Some((name, host)) if !name.is_empty() && !host.is_empty() => {
            let address = if host.contains(':') { host.to_owned() } else { format!("{host}:{}", nut::PORT) };
            Ok((name.to_owned(), address))
        }
        _ => bail!(Invalid, "--ups {text}: NAME@HOST or NAME@HOST:PORT"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ups_is_named_as_upsc_names_it() {
        assert_eq!(split("rack1@10.0.0.1").unwrap(), ("rack1".to_owned(), "10.0.0.1:3493".to_owned()));
        assert_eq!(split("rack1@10.0.0.1:99").unwrap().1, "10.0.0.1:99");
        assert!(split("rack1").is_err() && split("@h").is_err() && split("u@").is_err());
    }
}
