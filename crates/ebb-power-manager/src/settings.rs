//! The operator's decisions, and the hardware's figures: a file that survives the manager.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ebb_power::manager::Settings as CoreSettings;
use ebb_power::signal::source::Trust;
use ebb_power::signal::{ForecastKind, check_supply};
use ebb_power::{Battery, NodePower, PolicyKind, Rotational, Supply, Timing};
use ebb_runtime::Runtime;
use ebb_types::{Error, ErrorKind, Result, bail, err};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::feed::Feed;

/// Version of the file. Version 1, which knew no source but a trace, is read; others are refused by their number.
const FORMAT: u32 = 2;
/// How long before it begins a plan is published.
const LEAD_MS: u64 = 300;
/// A source is silent when nothing new has come for so long.
const SILENCE: Duration = Duration::from_secs(30);
/// If a plant claims more than this many times the power that the cluster can draw, the claim is false.
const PLANT_MOST: f64 = 10.0;

/// Contents of `settings.json` in the manager's directory.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    format: u32,
    /// Name of the policy.
    pub policy: String,
    /// Blink interval, in milliseconds.
    pub interval_ms: u64,
    /// Whether the policy stands although it was refused once.
    pub force: bool,
    /// The operator's override of the supply.
    pub forced: Option<Override>,
    /// Where the supply is read from; none: from nowhere, there is all that the nodes can draw.
    pub feed: Option<Feed>,
    /// What the coming supply is computed from: see [`ForecastKind`]. Left out while it is the usual one, so that an
    /// earlier release can read the file.
    #[serde(default = "usual_forecast", skip_serializing_if = "is_usual_forecast")]
    pub forecast: String,
    /// Assumed when the source is silent or lies, for the whole cluster; none: half of the nodes' draw.
    pub fallback_watts: Option<f64>,
    /// Power that switches and always-on nodes draw.
    pub base_watts: f64,
    /// Each node's draw at work, and asleep.
    pub active_watts: f64,
    /// See `active_watts`.
    pub asleep_watts: f64,
    /// Draw at work of a localized storage node without its disks; none: as of any node. Left out while it is not set, so that an
    /// earlier release can read the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lsn_watts: Option<f64>,
    /// Draw at work of each of its disks; none: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_watts: Option<f64>,
    /// Time that a node takes to wake, and to fall asleep, in milliseconds.
    pub transition_ms: u64,
    /// How long the battery carries all nodes, in seconds.
    pub battery_s: f64,
}

/// A supply that an operator set in place of the source's.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Override {
    /// For the whole cluster.
    Watts(f64),
    /// Of the block servers' maximum.
    Fraction(f64),
}

impl From<Override> for Supply {
    fn from(forced: Override) -> Self {
        match forced {
            Override::Watts(watts) => Self::Watts(watts),
            Override::Fraction(share) => Self::Fraction(share),
        }
    }
}

impl Settings {
    /// For a cluster whose nodes are frozen: the reference figures, except for transitions, which take less than a
    /// second.
    pub fn new(policy: PolicyKind, interval: Duration) -> Self {
        let reference = NodePower::REFERENCE;
        Self {
            format: FORMAT,
            policy: policy.name().to_owned(),
            interval_ms: u64::try_from(interval.as_millis()).unwrap_or(u64::MAX),
            force: false,
            forced: None,
            feed: None,
            forecast: usual_forecast(),
            fallback_watts: None,
            base_watts: 40.0,
            active_watts: reference.active_watts,
            asleep_watts: reference.asleep_watts,
            lsn_watts: None,
            disk_watts: None,
            transition_ms: 50,
            battery_s: 300.0,
        }
    }

    /// Refuses settings that are not valid.
    pub fn check(&self) -> Result<()> {
        self.policy()?;
        self.forecast()?;
        if !(100..=86_400_000).contains(&self.interval_ms) {
            bail!(Invalid, "a blink interval of {} ms: between 100 ms and a day", self.interval_ms);
        }
        if let Some(forced) = self.forced {
            check_supply(forced.into())?;
        }
        let lsn_watts = self.lsn_watts.unwrap_or(self.active_watts);
        let draws = [
            ("base_watts", self.base_watts),
            ("active_watts", self.active_watts),
            ("asleep_watts", self.asleep_watts),
            ("lsn_watts", lsn_watts),
            ("disk_watts", self.disk_watts.unwrap_or(0.0)),
        ];
        for (name, watts) in draws {
            check_supply(Supply::Watts(watts)).map_err(|error| error.context(name))?;
        }
        for watts in [self.active_watts, lsn_watts] {
            if self.asleep_watts >= watts {
                bail!(Invalid, "{} W asleep of {watts} W at work: nothing would be saved", self.asleep_watts);
            }
        }
        if !(0.0..=1e9).contains(&self.battery_s) {
            bail!(Invalid, "a battery for {} s: 0 or more", self.battery_s);
        }
        if let Some(watts) = self.fallback_watts {
            check_supply(Supply::Watts(watts)).map_err(|error| error.context("fallback_watts"))?;
        }
        Ok(())
    }

    /// The policy.
    pub fn policy(&self) -> Result<PolicyKind> {
        self.policy.parse()
    }

    /// What the coming supply is computed from.
    pub fn forecast(&self) -> Result<ForecastKind> {
        self.forecast.parse()
    }

    /// Each node.
    #[must_use]
    pub fn node(&self) -> NodePower {
        let transition = Duration::from_millis(self.transition_ms);
        NodePower {
            active_watts: self.active_watts,
            idle_watts: self.active_watts,
            asleep_watts: self.asleep_watts,
            wake: transition,
            suspend: transition,
            rotational_disks: 0,
        }
    }

    /// A localized storage node with so many disks.
    #[must_use]
    pub fn lsn(&self, disks: usize) -> NodePower {
        let base_watts = self.lsn_watts.unwrap_or(self.active_watts);
        let active_watts = base_watts + self.disk_watts.unwrap_or(0.0) * disks as f64;
        NodePower { active_watts, idle_watts: active_watts, ..self.node() }
    }

    /// Settings of the core.
    pub fn core(&self) -> Result<CoreSettings> {
        let rotational = if self.force { Rotational::Blink } else { Rotational::Spare };
        let timing = Timing::every(self.interval_ms, 0);
        Ok(CoreSettings { policy: self.policy()?, timing, lead_ms: LEAD_MS, rotational })
    }

    /// When the source is believed. `full_watts`: of all nodes.
    #[must_use]
    pub fn trust(&self, full_watts: f64) -> Trust {
        let fallback_watts = self.fallback_watts.unwrap_or(self.base_watts + full_watts / 2.0);
        let most_watts = PLANT_MOST * (self.base_watts + full_watts).max(fallback_watts);
        Trust { fallback_watts, silence: SILENCE, most_watts }
    }

    /// The battery, full.
    #[must_use]
    pub fn battery(&self, full_watts: f64) -> Battery {
        if self.battery_s > 0.0 { Battery::full(full_watts, self.battery_s) } else { Battery::NONE }
    }

    fn path(dir: &Path) -> PathBuf {
        dir.join("settings.json")
    }

    /// Reads them. `NotFound` if there are none.
    pub async fn read(runtime: &Runtime, dir: &Path) -> Result<Self> {
        let path = Self::path(dir);
        let bytes = runtime.disk().read_replaced(&path).await?;
        Self::decode(&bytes).map_err(|error| error.context(path.display()))
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let corrupt = |error: serde_json::Error| err!(Corrupt, "{error}");
        let mut value: Value = serde_json::from_slice(bytes).map_err(corrupt)?;
        match value["format"].as_u64() {
            Some(1) => upgrade(&mut value),
            Some(format) if format != u64::from(FORMAT) => {
                bail!(
                    Unsupported,
                    "format {format} of the power manager's settings; this release reads 1 to {FORMAT}: use the release that \
                     wrote it, or move the file away and give the settings anew"
                )
            }
            _ => {}
        }
        let settings: Self = serde_json::from_value(value).map_err(corrupt)?;
        settings.check()?;
        Ok(settings)
    }

    /// Those that there are, or `new` ones, which are written first.
    pub async fn read_or(runtime: &Runtime, dir: &Path, new: Self) -> Result<Self> {
        match Self::read(runtime, dir).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                new.check()?;
                runtime.disk().create_dir_all(dir).await?;
                new.write(runtime, dir).await?;
                Ok(new)
            }
            settings => settings,
        }
    }

    /// Replaces the file in one step; durable when it returns.
    pub async fn write(&self, runtime: &Runtime, dir: &Path) -> Result<()> {
        let path = Self::path(dir);
        let bytes = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::new(ErrorKind::Internal, format!("{}: {error}", path.display())))?;
        runtime.disk().replace(&path, bytes.into()).await
    }
}

fn usual_forecast() -> String {
    ForecastKind::default().to_string()
}

fn is_usual_forecast(forecast: &str) -> bool {
    forecast == usual_forecast()
}

/// Makes version 2 of version 1.
fn upgrade(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else { return };
    let feed = match fields.remove("trace") {
        Some(Value::Object(mut trace)) => {
            let began_ms = trace.remove("began_ms");
            json!({ "began_ms": began_ms, "source": { "trace": trace } })
        }
        _ => Value::Null,
    };
    fields.insert("feed".to_owned(), feed);
    fields.insert("format".to_owned(), FORMAT.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> Settings {
        Settings::new(PolicyKind::Tide, Duration::from_secs(2))
    }

    #[test]
    fn settings_are_read_as_written() {
        let mut settings = fresh();
        settings.forced = Some(Override::Watts(80.0));
        assert!(!serde_json::to_string(&settings).unwrap().contains("forecast"), "an earlier release reads it");
        settings.forecast = "/etc/ebb/tomorrow.csv".to_owned();
        let bytes = serde_json::to_vec(&settings).unwrap();
        assert_eq!(Settings::decode(&bytes).unwrap(), settings);
    }

    #[test]
    fn the_first_version_is_read_and_later_ones_are_refused_by_number() {
        let mut old = serde_json::to_value(fresh()).unwrap();
        let fields = old.as_object_mut().unwrap();
        fields.remove("feed");
        fields.insert("format".to_owned(), 1.into());
        let trace = json!({ "name": "t.csv", "compress": 60.0, "began_ms": 7, "csv": "seconds,watts\n0,100\n" });
        fields.insert("trace".to_owned(), trace);
        let read = Settings::decode(old.to_string().as_bytes()).unwrap();
        assert_eq!(read.feed.map(|feed| (feed.name(), feed.began_ms)), Some(("t.csv".to_owned(), 7)));
        old["trace"] = Value::Null;
        assert_eq!(Settings::decode(old.to_string().as_bytes()).unwrap(), fresh());
        old["format"] = 3.into();
        let refused = Settings::decode(old.to_string().as_bytes()).unwrap_err();
        assert!(refused.kind() == ErrorKind::Unsupported && refused.to_string().contains("format 3"), "{refused}");
    }

    #[test]
    fn nonsense_is_refused() {
        let wrong = |name: &str, value: Value| {
            let mut stored = serde_json::to_value(fresh()).unwrap();
            stored[name] = value;
            Settings::decode(stored.to_string().as_bytes()).unwrap_err()
        };
        assert!(wrong("policy", "moonlight".into()).to_string().contains("moonlight"));
        assert!(wrong("interval_ms", 5.into()).to_string().contains("5 ms"));
        assert!(wrong("forced", json!({ "fraction": 1.5 })).to_string().contains("150 %"));
        assert!(wrong("asleep_watts", 30.0.into()).to_string().contains("nothing would be saved"));
        assert!(wrong("base_watts", (-2.0).into()).to_string().contains("base_watts"));
        assert!(wrong("battery_s", (-2.0).into()).to_string().contains("battery"));
        assert!(wrong("fallback_watts", (-1.0).into()).to_string().contains("fallback_watts"));
        assert!(wrong("forecast", "".into()).to_string().contains("persistence, signal"));
        assert_eq!(wrong("unheard_of", 1.into()).kind(), ErrorKind::Corrupt);
    }
}
