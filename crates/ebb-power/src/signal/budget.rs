//! A budget for each hour, in money or in grams of CO2, and the power that it allows at a rate for each kilowatt-hour.

use ebb_types::{Result, bail};

/// A budget, and the highest power that is ever taken from it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Budget {
    per_hour: f64,
    cap_watts: f64,
}

impl Budget {
    /// `per_hour` is in the unit of the rates: money for prices, grams for carbon intensities. No more than `cap_watts`
    /// are allowed, which is the highest draw of the whole cluster. `Invalid` unless both are above 0.
    pub fn new(per_hour: f64, cap_watts: f64) -> Result<Self> {
        if !(per_hour.is_finite() && per_hour > 0.0) {
            bail!(Invalid, "a budget of {per_hour} an hour buys nothing; give one above 0");
        }
        if !(cap_watts.is_finite() && cap_watts > 0.0) {
            bail!(Invalid, "a cluster that draws {cap_watts} W at most has nothing to buy");
        }
        Ok(Self { per_hour, cap_watts })
    }

    /// Watts that the budget allows at a rate for each kilowatt-hour. At a rate of 0 or below that is the cap; at no
    /// number it is nothing.
    #[must_use]
    pub fn watts_for(&self, rate: f64) -> f64 {
        if rate.is_nan() {
            return 0.0;
        }
        // A price can be below 0: then power costs nothing.
        if rate <= 0.0 { self.cap_watts } else { (self.per_hour / rate * 1000.0).min(self.cap_watts) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn free_power_is_capped_and_no_rate_buys_nothing() {
        let budget = Budget::new(1.0, 265.0).unwrap();
        let watts = [0.0, -3.0, f64::NEG_INFINITY, f64::NAN, f64::INFINITY].map(|rate| budget.watts_for(rate));
        assert_eq!(watts, [265.0, 265.0, 265.0, 0.0, 0.0]);
    }

    #[test]
    fn a_budget_must_buy_something() {
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Budget::new(wrong, 1.0).is_err() && Budget::new(1.0, wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn power_falls_as_the_rate_rises_and_is_never_above_the_cap(
            per_hour in 1e-6_f64..1e6, cap in 1.0_f64..1e6, rate in proptest::num::f64::ANY, more in 0.0_f64..1e6,
        ) {
            let budget = Budget::new(per_hour, cap).unwrap();
            let watts = budget.watts_for(rate);
            prop_assert!((0.0..=cap).contains(&watts), "{watts}");
            prop_assert!(rate.is_nan() || budget.watts_for(rate + more) <= watts);
        }
    }
}
