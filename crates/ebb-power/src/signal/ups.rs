//! Stretching an uninterruptible power supply through a blackout (BlinkFS, Sec. 1).

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_types::{Result, bail, err};

use crate::hardware::Supply;

/// The variables of a UPS that matter here. Names are those of the NUT project.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct UpsReading {
    /// `ups.status` says `OB`: the mains are gone.
    pub on_battery: bool,
    /// `ups.status` says `LB` or `FSD`: it is about to switch off.
    pub is_low: bool,
    /// `battery.charge`, as a share.
    pub charge: Option<f64>,
    /// `battery.runtime` at the present load.
    pub runtime: Option<Duration>,
    /// `ups.realpower`, or `ups.load` of `ups.realpower.nominal`.
    pub load_watts: Option<f64>,
}

/// Rule for the use of a UPS.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct UpsRule {
    /// Power while the mains are there.
    pub mains_watts: f64,
    /// Length of the blackout to bridge.
    pub bridge: Duration,
    /// Energy of the full battery. `None`: its runtime and load are used instead.
    pub capacity_joules: Option<f64>,
    /// Share of the charge that is kept for an orderly shutdown.
    pub reserve: f64,
}

impl UpsReading {
    /// Reads the variables of a UPS. `Invalid` for an impossible value.
    pub fn from_variables(variables: &BTreeMap<String, String>) -> Result<Self> {
        let number = |name: &str, most: f64| -> Result<Option<f64>> {
            let Some(text) = variables.get(name) else { return Ok(None) };
            let value: f64 = text.trim().parse().map_err(|_| err!(Invalid, "the UPS says {name} is {text:?}"))?;
            if !(0.0..=most).contains(&value) {
                bail!(Invalid, "the UPS says {name} is {text}, which cannot be");
            }
            Ok(Some(value))
        };
        let status = variables.get("ups.status").ok_or_else(|| err!(Invalid, "the UPS reports no status"))?;
        let flags: Vec<&str> = status.split_whitespace().collect();
        let has = |flag: &str| flags.contains(&flag);
        if has("OL") == has("OB") {
            bail!(Invalid, "the UPS says its status is {status:?}: neither on line nor on battery, or both");
        }
        let of_nominal = number("ups.load", 1_000.0)?.zip(number("ups.realpower.nominal", 1e9)?);
        let load_watts = match number("ups.realpower", 1e9)? {
            Some(watts) => Some(watts),
            None => of_nominal.map(|(percent, nominal)| percent / 100.0 * nominal),
        };
        Ok(Self {
            on_battery: has("OB"),
            is_low: has("LB") || has("FSD"),
            charge: number("battery.charge", 100.0)?.map(|percent| percent / 100.0),
            runtime: number("battery.runtime", 1e9)?.map(Duration::from_secs_f64),
            load_watts,
        })
    }
}

impl UpsRule {
    /// The supply with this reading, `on_battery_for` after the mains failed. It is the charge beyond the reserve,
    /// spread over the rest of the time to bridge, and over at least a tenth of that time.
    ///
    /// `Invalid` on battery if the readings do not give the charge.
    pub fn supply(&self, reading: &UpsReading, on_battery_for: Duration) -> Result<Supply> {
        if !reading.on_battery {
            return Ok(Supply::Watts(self.mains_watts));
        }
        if reading.is_low {
            return Ok(Supply::Watts(0.0));
        }
        let reserve = self.reserve.clamp(0.0, 1.0);
        let joules = match (self.capacity_joules, reading) {
            (Some(capacity), UpsReading { charge: Some(charge), .. }) => capacity * (charge - reserve).max(0.0),
            (_, UpsReading { runtime: Some(runtime), load_watts: Some(load), .. }) => {
                runtime.as_secs_f64() * load * (1.0 - reserve)
            }
            _ => bail!(Invalid, "the UPS reports neither charge (of a known size) nor runtime and load"),
        };
        let left = self.bridge.saturating_sub(on_battery_for).max(self.bridge / 10).max(Duration::from_secs(1));
        Ok(Supply::Watts((joules / left.as_secs_f64()).min(self.mains_watts)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: UpsRule = UpsRule {
        mains_watts: 265.0,
        bridge: Duration::from_secs(3_600),
        capacity_joules: Some(400_000.0),
        reserve: 0.1,
    };

    fn reading(pairs: &[(&str, &str)]) -> Result<UpsReading> {
        let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        UpsReading::from_variables(&pairs.collect())
    }

    #[test]
    fn a_charge_is_spread_over_the_blackout() {
        let on_line = reading(&[("ups.status", "OL CHRG")]).unwrap();
        assert_eq!(RULE.supply(&on_line, Duration::ZERO).unwrap(), Supply::Watts(265.0));
        let full = reading(&[("ups.status", "OB"), ("battery.charge", "100")]).unwrap();
        assert_eq!(RULE.supply(&full, Duration::ZERO).unwrap(), Supply::Watts(100.0));
        let half = reading(&[("ups.status", "OB DISCHRG"), ("battery.charge", "60")]).unwrap();
        assert_eq!(RULE.supply(&half, Duration::from_secs(1_600)).unwrap(), Supply::Watts(100.0));
        // The blackout lasts longer than expected: the charge is spread over the next six minutes, again and again.
        assert_eq!(RULE.supply(&half, Duration::from_secs(9_000)).unwrap(), Supply::Watts(265.0));
        let low = reading(&[("ups.status", "OB LB"), ("battery.charge", "5")]).unwrap();
        assert_eq!(RULE.supply(&low, Duration::ZERO).unwrap(), Supply::Watts(0.0));
    }

    #[test]
    fn runtime_and_load_do_where_the_size_is_unknown() {
        let rule = UpsRule { capacity_joules: None, reserve: 0.0, ..RULE };
        let variables =
            [("ups.status", "OB"), ("battery.runtime", "1200"), ("ups.load", "50"), ("ups.realpower.nominal", "300")];
        let found = reading(&variables).unwrap();
        assert_eq!(rule.supply(&found, Duration::ZERO).unwrap(), Supply::Watts(50.0));
        assert!(rule.supply(&reading(&variables[..2]).unwrap(), Duration::ZERO).is_err());
    }

    #[test]
    fn a_ups_that_lies_is_refused() {
        assert!(reading(&[]).is_err());
        assert!(reading(&[("ups.status", "OL OB")]).is_err());
        assert!(reading(&[("ups.status", "OL"), ("battery.charge", "140")]).is_err());
        assert!(reading(&[("ups.status", "OB"), ("battery.runtime", "soon")]).is_err());
        assert!(reading(&[("ups.status", "OB"), ("battery.runtime", "NaN")]).is_err());
    }
}
