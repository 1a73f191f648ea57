//! A mass of CO2 an hour at changing carbon intensities of the grid, and the answers of services that publish them.
//!
//! The answers have the shapes of the UK Carbon Intensity API (`data[0].intensity.actual` and `.forecast`) and of
//! Electricity Maps (`carbonIntensity`). Another service is read by other JSON pointers (RFC 6901).

use ebb_types::{Result, bail};
use serde_json::Value;

use super::budget::Budget;
use super::iso8601;
use super::trace::{End, Quantity, Trace};

/// A budget of grams of CO2 an hour, and the carbon intensities of the grid.
#[derive(Clone, PartialEq, Debug)]
pub struct CarbonBudget {
    budget: Budget,
    intensities: Trace,
}

impl CarbonBudget {
    /// `intensities` are in grams of CO2 for each kilowatt-hour. No more than `cap_watts` are allowed, which is the
    /// highest draw of the whole cluster.
    pub fn new(grams_per_hour: f64, intensities: Trace, cap_watts: f64) -> Result<Self> {
        let budget = Budget::new(grams_per_hour, cap_watts)?;
        Ok(Self { budget, intensities: intensities.expect("the carbon trace", &[Quantity::Carbon])? })
    }

    /// The carbon intensities.
    #[must_use]
    pub const fn intensities(&self) -> &Trace {
        &self.intensities
    }

    /// Watts that the budget allows at a time.
    #[must_use]
    pub fn watts_at(&self, seconds: f64, end: End) -> f64 {
        self.budget.watts_for(self.intensities.at(seconds, end).value)
    }
}

/// Highest carbon intensity that is believed, in grams for each kilowatt-hour. Coal gives about a tenth of it.
const INTENSITY_MAX: f64 = 10_000.0;
/// Most pointers of one kind, and the longest of them.
const POINTERS_MAX: usize = 16;
const POINTER_BYTES_MAX: usize = 256;

/// Places of the value and of its time stamp in an answer, as JSON pointers. The first place that has something counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pointers {
    /// Places of the intensity.
    pub values: Vec<String>,
    /// Places of the time stamp. None: the answers have no time stamp.
    pub stamps: Vec<String>,
}

impl Default for Pointers {
    /// Those of the UK Carbon Intensity API and of Electricity Maps.
    fn default() -> Self {
        let all = |places: &[&str]| places.iter().map(|place| (*place).to_owned()).collect();
        Self {
            values: all(&["/data/0/intensity/actual", "/data/0/intensity/forecast", "/carbonIntensity"]),
            stamps: all(&["/data/0/from", "/datetime"]),
        }
    }
}

/// A carbon intensity that a service gives.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Intensity {
    /// Grams of CO2 for each kilowatt-hour.
    pub grams_per_kwh: f64,
    /// The service's own time of it, in milliseconds since the Unix epoch.
    pub stamp_ms: Option<i64>,
}

/// Farthest that a service's time stamp may be ahead of this machine's clock, in milliseconds.
const AHEAD_MAX_MS: i64 = 600_000;

impl Intensity {
    /// Refuses a value whose time stamp cannot be, or is older than `age_max_ms`. `newest_ms` is the latest time stamp
    /// that was accepted. Both clocks are checked by it: a jump of either refuses the value.
    pub fn check_stamp(&self, now_ms: i64, newest_ms: Option<i64>, age_max_ms: i64) -> Result<()> {
        let Some(stamp_ms) = self.stamp_ms else { return Ok(()) };
        if newest_ms.is_some_and(|newest_ms| stamp_ms < newest_ms) {
            bail!(Protocol, "the time stamp of the carbon intensity went back");
        }
        let age_ms = now_ms.saturating_sub(stamp_ms);
        if age_ms > age_max_ms {
            bail!(Protocol, "the carbon intensity is {} s old, more than {} s", age_ms / 1000, age_max_ms / 1000);
        }
        if age_ms < -AHEAD_MAX_MS {
            bail!(Protocol, "the carbon intensity is of a time {} s ahead: check both clocks", -(age_ms / 1000));
        }
        Ok(())
    }
}

impl Pointers {
    /// `Invalid` for a place that is no JSON pointer, or for no place of the value.
    pub fn check(&self) -> Result<()> {
        if self.values.is_empty() {
            bail!(Invalid, "no place of the carbon intensity is named: give a JSON pointer, such as /carbonIntensity");
        }
        for places in [&self.values, &self.stamps] {
            if places.len() > POINTERS_MAX {
                bail!(Invalid, "{} places in an answer: at most {POINTERS_MAX}", places.len());
            }
            if let Some(wrong) = places.iter().find(|one| !one.starts_with('/') || one.len() > POINTER_BYTES_MAX) {
                bail!(Invalid, "{wrong:?} is no JSON pointer: it begins with '/', as in /data/0/intensity/actual");
            }
        }
        Ok(())
    }

    /// Reads an answer. `Protocol` if the value or a wanted time stamp is missing or cannot be.
    pub fn read(&self, answer: &Value) -> Result<Intensity> {
        let Some((place, found)) = first(&self.values, answer) else {
            bail!(Protocol, "the answer has no carbon intensity at {}", self.values.join(" or "));
        };
        let Some(grams_per_kwh) = found.as_f64().filter(|grams| (0.0..=INTENSITY_MAX).contains(grams)) else {
            bail!(Protocol, "a carbon intensity of {} at {place}: from 0 to {INTENSITY_MAX} g/kWh", short(found));
        };
        let stamp_ms = match first(&self.stamps, answer) {
            Some((place, found)) => Some(stamp_ms(found).map_err(|error| error.context(place))?),
            None if self.stamps.is_empty() => None,
            None => bail!(Protocol, "the answer has no time stamp at {}", self.stamps.join(" or ")),
        };
        Ok(Intensity { grams_per_kwh, stamp_ms })
    }
}

fn first<'a>(places: &'a [String], answer: &'a Value) -> Option<(&'a str, &'a Value)> {
    let found = |place: &'a String| Some((place.as_str(), answer.pointer(place).filter(|found| !found.is_null())?));
    places.iter().find_map(found)
}

/// Milliseconds since the Unix epoch: a text by RFC 3339, or a number of seconds.
fn stamp_ms(found: &Value) -> Result<i64> {
    match (found.as_str(), found.as_f64()) {
        (Some(text), _) => iso8601::parse_time(text),
        (None, Some(seconds)) if (0.0..=iso8601::SECONDS_MAX).contains(&seconds) => Ok((seconds * 1000.0) as i64),
        _ => bail!(Protocol, "{} is no time: a text such as 2026-01-20T12:00Z, or Unix seconds", short(found)),
    }
}

/// The beginning of a value, for messages.
fn short(value: &Value) -> String {
    value.to_string().chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn grams_buy_more_watts_from_a_cleaner_grid() {
        let trace = Trace::parse("c", "seconds,carbon\n0,250\n300,500\n600,0\n").unwrap();
        let budget = CarbonBudget::new(50.0, trace, 265.0).unwrap();
        let watts = [0.0, 300.0, 600.0].map(|at| budget.watts_at(at, End::Hold));
        // 50 g an hour at 250 g/kWh are 0.2 kWh an hour.
        assert_eq!(watts, [200.0, 100.0, 265.0]);
        let prices = Trace::parse("p", "seconds,price\n0,4.5\n").unwrap();
        assert!(CarbonBudget::new(1.0, prices, 1.0).unwrap_err().to_string().contains("seconds,carbon"));
    }

    #[test]
    fn both_services_are_read_without_a_setting() {
        let pointers = Pointers::default();
        pointers.check().unwrap();
        let uk = |actual: Value| {
            json!({ "data": [{ "from": "2018-01-20T12:00Z", "to": "2018-01-20T12:30Z",
                "intensity": { "forecast": 266, "actual": actual, "index": "moderate" } }] })
        };
        let read = pointers.read(&uk(json!(263))).unwrap();
        assert_eq!(read, Intensity { grams_per_kwh: 263.0, stamp_ms: Some(1_516_449_600_000) });
        assert_eq!(pointers.read(&uk(Value::Null)).unwrap().grams_per_kwh, 266.0);
        let maps = json!({ "zone": "DE", "carbonIntensity": 302, "datetime": "2018-04-25T18:07:00.350Z" });
        let read = pointers.read(&maps).unwrap();
        assert_eq!(read, Intensity { grams_per_kwh: 302.0, stamp_ms: Some(1_524_679_620_350) });
    }

    #[test]
    fn an_answer_that_cannot_be_is_refused() {
        let pointers = Pointers { values: vec!["/v".into()], stamps: vec!["/t".into()] };
        let refused = |answer: Value| pointers.read(&answer).unwrap_err().to_string();
        assert!(refused(json!({})).contains("no carbon intensity at /v"));
        assert!(refused(json!({ "v": -1, "t": 0 })).contains("-1 at /v"));
        assert!(refused(json!({ "v": 1e9, "t": 0 })).contains("at /v"));
        assert!(refused(json!({ "v": "12", "t": 0 })).contains("\"12\" at /v"));
        assert!(refused(json!({ "v": 12 })).contains("no time stamp at /t"));
        assert!(refused(json!({ "v": 12, "t": true })).contains("true is no time"));
        let unstamped = Pointers { stamps: Vec::new(), ..pointers.clone() };
        assert_eq!(unstamped.read(&json!({ "v": 12 })).unwrap().stamp_ms, None);
        let wrong =
            |values: &[&str]| Pointers { values: values.iter().map(|one| (*one).into()).collect(), stamps: vec![] };
        assert!(wrong(&[]).check().is_err() && wrong(&["carbonIntensity"]).check().is_err());
    }

    #[test]
    fn a_clock_that_jumps_refuses_the_value() {
        let at = |stamp_ms| Intensity { grams_per_kwh: 1.0, stamp_ms };
        let said = |stamp_ms, now_ms, newest_ms| match at(Some(stamp_ms)).check_stamp(now_ms, newest_ms, 3_600_000) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        };
        let now = 1_800_000_000_000;
        assert_eq!(
            (said(now, now, None), said(now - 3_600_000, now, Some(now - 3_600_000))),
            (String::new(), String::new())
        );
        assert!(said(now - 5, now, Some(now)).contains("went back"));
        assert!(said(now, now + 3_600_001, None).contains("3600 s old"));
        assert!(said(now, now - 600_001, None).contains("ahead"));
        assert!(said(i64::MIN, i64::MAX, None).contains("old") && said(i64::MAX, i64::MIN, None).contains("ahead"));
        assert!(at(None).check_stamp(0, Some(now), 0).is_ok(), "without a time stamp nothing can be said");
    }

    proptest! {
        #[test]
        fn any_number_is_read_within_bounds_or_refused(value in proptest::num::f64::ANY, stamp in any::<i64>()) {
            let answer = json!({ "carbonIntensity": value, "datetime": stamp });
            if let Ok(read) = Pointers::default().read(&answer) {
                prop_assert!((0.0..=INTENSITY_MAX).contains(&read.grams_per_kwh));
            }
        }
    }
}
