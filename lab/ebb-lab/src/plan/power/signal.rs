//! The power signal of a month, from the command line.

use std::path::{Path, PathBuf};

use clap::Args;
use ebb_cli::units::ByteSize;
use ebb_plan::power::signal::{Scale, Signal};
use ebb_power::signal::Trace;
use ebb_types::{Result, bail, err};

use super::super::number::real;

#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct SignalArgs {
    /// Power signal: constant:PERCENT, oscillation:PERCENT, trace:FILE, or budget:PER_HOUR (with --prices). A trace is
    /// CSV with a header `seconds,watts`, `seconds,fraction`, or one of them and `price`. Its seconds count from the
    /// beginning.
    #[arg(long, value_name = "SIGNAL")]
    signal: Option<String>,
    /// Prices of a kWh over time: CSV with a header `seconds,price`.
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Price of a kWh where the signal has none.
    #[arg(long, default_value_t = 0.0, value_parser = real(0.0, 1e6))]
    price: f64,
    /// Number of days that are counted.
    #[arg(long, default_value_t = 30.0, value_parser = real(0.001, 3_660.0))]
    days: f64,
    /// Watts that are always drawn: switches, masters, proxies.
    #[arg(long, default_value_t = 40.0, value_parser = real(0.0, 1e9))]
    fixed_watts: f64,
    /// Bytes per second at which migration moves data, for all nodes together (10 Gb/s by default).
    #[arg(long, default_value = "1250MB")]
    migration_rate: ByteSize,
    /// Seconds that a node needs to wake or to fall asleep.
    #[arg(long, default_value_t = 1.0, value_parser = real(0.0, 86_400.0))]
    transition: f64,
}

impl SignalArgs {
    /// Refuses transitions that leave a node no time between them.
    pub fn check(&self, interval_s: f64) -> Result<()> {
        if self.signal.is_some() && 2.0 * self.transition >= interval_s {
            bail!(
                Invalid,
                "--transition {}: a node wakes and falls asleep once in {interval_s} s; the nearest possible value is \
                 anything below {}",
                self.transition,
                interval_s / 2.0
            );
        }
        Ok(())
    }

    /// The signal, if one was given. Shares are of `nodes_watts`, the draw of the nodes that may sleep.
    pub fn read(&self, nodes_watts: f64) -> Result<Option<Signal>> {
        let Some(wish) = &self.signal else { return Ok(None) };
        if self.migration_rate.0 == 0 {
            bail!(Invalid, "--migration-rate 0: migration would never end; the nearest possible value is 1 B");
        }
        let (kind, value) = wish.split_once(':').unwrap_or((wish, ""));
        let number = || {
            value.trim_end_matches('%').parse::<f64>().map_err(|_| err!(Invalid, "{wish:?}: {value:?} is no number"))
        };
        let scale = Scale { nodes_watts, fixed_watts: self.fixed_watts };
        let signal = match kind {
            "constant" => Signal::constant(number()? / 100.0, scale),
            "oscillation" => Signal::oscillation(number()? / 100.0, scale),
            "trace" => Signal::parse(value, &text(Path::new(value))?, scale),
            "budget" => {
                let path = self.prices.as_ref().ok_or_else(|| err!(Invalid, "a budget needs --prices FILE"))?;
                let prices = Trace::parse(&path.display().to_string(), &text(path)?)?;
                Signal::budget(number()?, prices, nodes_watts + self.fixed_watts)
            }
            _ => bail!(Invalid, "{wish:?} is no signal: give constant:50, oscillation:40, trace:FILE or budget:55"),
        };
        signal.map(Some)
    }

    /// Watts that are always drawn.
    pub const fn fixed_watts(&self) -> f64 {
        self.fixed_watts
    }

    /// Speed of migration.
    pub fn link_bytes_per_s(&self) -> f64 {
        self.migration_rate.0 as f64
    }

    /// Seconds of a transition.
    pub const fn transition_s(&self) -> f64 {
        self.transition
    }

    /// Price for signals without one.
    pub const fn price(&self) -> f64 {
        self.price
    }

    /// Days.
    pub const fn days(&self) -> f64 {
        self.days
    }
}

fn text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| err!(Invalid, "reading {}: {error}", path.display()))
}
