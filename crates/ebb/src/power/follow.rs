//! `ebb power follow`: where the supply is read from.

use std::path::{Path, PathBuf};

use clap::Args;
use ebb_cli::units::Span;
use ebb_power::signal::{ForecastKind, nut};
use ebb_types::{Error, Result, bail, err};
use ebb_wire::pb;
use pb::follow_source::Source;

use web::{CarbonArgs, OpenAdrArgs, PollArgs};

mod web;

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct FollowArgs {
    /// Trace in CSV with the columns seconds,watts or seconds,fraction (seconds,price with --per-hour, seconds,carbon
    /// with --grams-per-hour). It starts now, and repeats when it ends.
    #[arg(
        groups = ["priced", "rated"],
        required_unless_present_any = ["oscillating", "ups", "carbon", "openadr"],
        conflicts_with_all = ["oscillating", "ups", "carbon", "openadr"]
    )]
    file: Option<PathBuf>,
    /// Factor by which the trace is played faster than real time.
    #[arg(long, default_value_t = 1.0, requires = "file")]
    compress: f64,
    /// Budget for one hour. A trace then holds prices of a kilowatt-hour, in the same currency. With --openadr, PRICE
    /// events count.
    #[arg(long, value_name = "MONEY", requires = "priced", conflicts_with = "capacity")]
    per_hour: Option<f64>,
    /// Grams of CO2 for one hour. A trace then holds carbon intensities in g/kWh. With --openadr, GHG events count.
    #[arg(long, value_name = "GRAMS", requires = "rated", conflicts_with = "capacity")]
    grams_per_hour: Option<f64>,
    /// Capacity in watts that the cluster shares with other loads. The trace then holds the watts of these loads, and
    /// the supply is the rest.
    #[arg(long, value_name = "WATTS", requires = "file")]
    capacity: Option<f64>,
    #[command(flatten)]
    poll: PollArgs,
    #[command(flatten)]
    carbon: CarbonArgs,
    #[command(flatten)]
    openadr: OpenAdrArgs,
    /// Forecast of the supply for the next hour: `persistence` (the last reading holds), `signal` (the source itself,
    /// where it is known ahead) or a CSV file with the columns unix_seconds,watts, which is read again when it changes
    /// [default: as before].
    #[arg(long, value_name = "FORECAST", value_parser = parse_forecast)]
    forecast: Option<String>,
    /// Supply that alternates between (45 + 45 LEVEL) % and (45 - 45 LEVEL) % of the nodes' power; LEVEL is from 0 to
    /// 1.
    #[arg(long, value_name = "LEVEL", conflicts_with_all = ["ups", "carbon", "openadr"])]
    oscillating: Option<f64>,
    /// Time between two changes of the oscillation.
    #[arg(long, default_value = "300s", requires = "oscillating")]
    period: Span,
    /// UPS behind an upsd (Network UPS Tools), as NAME@HOST or NAME@HOST:PORT.
    #[arg(long, value_name = "UPS", conflicts_with_all = ["carbon", "openadr"])]
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
        let forecast = self.forecast.clone().unwrap_or_default();
        Ok(pb::FollowSource { source: Some(self.source()?), forecast })
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
        let (money, grams) = (self.per_hour, self.grams_per_hour);
        if let Some(carbon) = self.carbon.source(&self.poll, grams)? {
            return Ok(Source::Carbon(carbon));
        }
        if let Some(openadr) = self.openadr.source(&self.poll, money, grams)? {
            return Ok(Source::Openadr(openadr));
        }
        let file = self.file.as_ref().ok_or_else(|| err!(Invalid, "which trace is to be followed?"))?;
        let name = file.display().to_string();
        let csv = std::fs::read_to_string(file).map_err(|error| Error::from_io(&error, &name))?;
        Ok(Source::Trace(pb::TraceSource {
            name,
            csv,
            compress: self.compress,
            per_hour: money,
            capacity_watts: self.capacity,
            grams_per_hour: grams,
        }))
    }
}

/// A forecast as the power manager takes it. The path of a file is made absolute: the manager has another working
/// directory.
pub fn parse_forecast(text: &str) -> Result<String> {
    match text.parse()? {
        ForecastKind::File(path) => absolute(Path::new(&path)),
        kind => Ok(kind.to_string()),
    }
}

/// An absolute path, for a process with another working directory.
fn absolute(path: &Path) -> Result<String> {
    let absolute = std::path::absolute(path).map_err(|error| Error::from_io(&error, path.display()))?;
    match absolute.into_os_string().into_string() {
        Ok(path) => Ok(path),
        Err(path) => bail!(Invalid, "{}: a path must be UTF-8", path.display()),
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

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: FollowArgs,
    }

    fn parsed(line: &str) -> std::result::Result<FollowArgs, clap::Error> {
        use clap::Parser;
        Line::try_parse_from(["follow"].into_iter().chain(line.split_whitespace())).map(|line| line.args)
    }

    fn source(line: &str) -> Source {
        parsed(line).unwrap().call().unwrap().source.unwrap()
    }

    #[test]
    fn a_carbon_service_is_asked_as_the_options_say() {
        let Source::Carbon(carbon) = source("--carbon https://c.org/x --grams-per-hour 40") else { panic!("carbon") };
        let service = carbon.service.unwrap();
        assert_eq!((service.every_ms, service.keep_ms, carbon.grams_per_hour), (300_000, 3_600_000, 40.0));
        assert!(carbon.values.is_empty() && !carbon.unstamped && service.ca_file.is_empty());
        let line = "--carbon https://c.org/x --grams-per-hour 40 --value /a,/b/0 --no-stamp --token-file t --poll 1min";
        let Source::Carbon(carbon) = source(line) else { panic!("carbon") };
        assert_eq!((carbon.values, carbon.unstamped), (vec!["/a".to_owned(), "/b/0".to_owned()], true));
        assert!(carbon.token_file.starts_with('/') && carbon.token_file.ends_with("/t"), "{}", carbon.token_file);
    }

    #[test]
    fn an_openadr_server_is_asked_as_the_options_say() {
        let Source::Openadr(openadr) = source("--openadr https://vtn/openadr3/3.1.0") else { panic!("OpenADR") };
        assert_eq!(openadr.level_shares, [1.0, 0.75, 0.5, 0.25]);
        assert_eq!(openadr.service.unwrap().every_ms, 30_000);
        let line = "--openadr https://vtn --program 44 --target a --target b --client-id v --client-secret-file s \
                    --levels 1,0.5,0.5,0 --per-hour 2 --grams-per-hour 3 --normal-watts 200";
        let Source::Openadr(openadr) = source(line) else { panic!("OpenADR") };
        assert_eq!((openadr.program.as_str(), openadr.targets.len(), openadr.level_shares[3]), ("44", 2, 0.0));
        assert_eq!((openadr.money_per_hour, openadr.grams_per_hour), (Some(2.0), Some(3.0)));
        assert!(openadr.client_secret_file.starts_with('/'));
    }

    #[test]
    fn options_that_do_not_go_together_are_refused() {
        for line in [
            "",
            "t.csv --carbon https://c.org/ --grams-per-hour 1",
            "--carbon https://c.org/",
            "--carbon https://c.org/ --grams-per-hour 1 --per-hour 1",
            "--carbon https://c.org/ --grams-per-hour 1 --openadr https://vtn/",
            "--openadr https://vtn --client-id v",
            "--ups u@h --grams-per-hour 1",
            "--ups u@h --poll 5s",
            "--oscillating 1 --forecast",
            "t.csv --value /a",
            "t.csv --capacity 5 --grams-per-hour 1",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_forecast_is_a_kind_or_an_absolute_path() {
        assert_eq!(parse_forecast("signal").unwrap(), "signal");
        assert!(parse_forecast("a/b.csv").unwrap().starts_with('/'));
        assert!(parse_forecast("").is_err());
        let call = parsed("--oscillating 1 --forecast persistence").unwrap().call().unwrap();
        assert_eq!(call.forecast, "persistence");
    }

    #[test]
    fn a_ups_is_named_as_upsc_names_it() {
        assert_eq!(split("rack1@10.0.0.1").unwrap(), ("rack1".to_owned(), "10.0.0.1:3493".to_owned()));
        assert_eq!(split("rack1@10.0.0.1:99").unwrap().1, "10.0.0.1:99");
        assert!(split("rack1").is_err() && split("@h").is_err() && split("u@").is_err());
    }
}
