//! Predicted watts at times of the wall clock, from a CSV file that another program writes.

use std::time::Duration;

use ebb_types::Result;

use super::forecast::Forecast;
use super::trace::{End, Quantity, Trace};

/// Predicted watts.
#[derive(Clone, PartialEq, Debug)]
pub struct Prediction {
    began_s: f64,
    watts: Trace,
}

impl Prediction {
    /// Reads CSV with a header `unix_seconds,watts`, under the rules of [`Trace::parse`]. `Invalid` with name and line.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let (began_s, watts) = Trace::parse_timed(name, text, "unix_seconds")?;
        Ok(Self { began_s, watts: watts.expect(name, &[Quantity::Watts])? })
    }

    /// The power from `now`, a time since the Unix epoch, on for a span. Before its first line and after its last one
    /// `held_watts` are assumed, as by persistence. The last line holds as long as the one before it. No step is above
    /// `most_watts`.
    #[must_use]
    pub fn forecast(&self, now: Duration, held_watts: f64, span: Duration, most_watts: f64) -> Forecast {
        let seconds = |span: f64| Duration::try_from_secs_f64(span).ok();
        Forecast::of(span, most_watts, |after| {
            let at_s = now.saturating_add(after).as_secs_f64() - self.began_s;
            let end_s = self.watts.length_s();
            if at_s < 0.0 {
                return (held_watts, seconds(-at_s));
            }
            if at_s >= end_s {
                return (held_watts, None);
            }
            let left_s = self.watts.holds_for(at_s, End::Hold).unwrap_or(end_s - at_s);
            (self.watts.at(at_s, End::Hold).value, seconds(left_s))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const CSV: &str = "# tomorrow\nunix_seconds,watts\n1700000000,100\n1700000060,40\n";

    #[test]
    fn the_last_reading_holds_where_nothing_is_predicted() {
        let prediction = Prediction::parse("p.csv", CSV).unwrap();
        let minutes =
            |now_s: u32| prediction.forecast(SECOND * now_s, 70.0, SECOND * 3_600, 90.0).watts_per_step(SECOND * 60, 4);
        assert_eq!(minutes(1_700_000_000), [90.0, 40.0, 70.0, 70.0], "at most 90 W");
        assert_eq!(minutes(1_699_999_940), [70.0, 90.0, 40.0, 70.0]);
        assert_eq!(minutes(1_700_000_030), [65.0, 55.0, 70.0, 70.0]);
        assert_eq!(minutes(1_800_000_000), [70.0; 4], "a file that nobody writes any more");
        assert_eq!(minutes(0), [70.0; 4]);
    }

    #[test]
    fn another_file_is_refused_with_its_line() {
        let refused = |text: &str| Prediction::parse("p.csv", text).unwrap_err().to_string();
        assert!(refused("seconds,watts\n0,5\n").contains("line 1: the first line must be unix_seconds,watts"));
        assert!(refused("unix_seconds,price\n0,5\n").contains("p.csv: columns"));
        assert!(refused("unix_seconds,watts\n5,5\n4,5\n").contains("line 3"));
        assert!(
            refused("unix_seconds,watts\n1700000000000,5\n").contains("line 2: unix_seconds of 1700000000000: at most")
        );
    }

    proptest! {
        #[test]
        fn a_prediction_is_never_above_the_most(
            now_s in 1_699_999_000_u64..1_700_001_000, held in proptest::num::f64::ANY, most in 0.0_f64..200.0,
        ) {
            let prediction = Prediction::parse("p.csv", CSV).unwrap();
            let forecast = prediction.forecast(Duration::from_secs(now_s), held, SECOND * 3_600, most);
            prop_assert!(forecast.steps().iter().all(|step| (0.0..=most).contains(&step.watts)));
        }
    }
}
