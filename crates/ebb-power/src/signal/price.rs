//! A sum of money an hour at changing prices (BlinkFS, Sec. 1 and 5).

use ebb_types::Result;

use super::budget::Budget;
use super::trace::{End, Quantity, Trace};

/// A budget, and the prices of power.
#[derive(Clone, PartialEq, Debug)]
pub struct Tariff {
    budget: Budget,
    prices: Trace,
}

impl Tariff {
    /// A budget of `per_hour` in the unit of the prices, which are per kilowatt-hour. No more than `cap_watts` are
    /// bought, which is the highest draw of the whole cluster.
    pub fn new(per_hour: f64, prices: Trace, cap_watts: f64) -> Result<Self> {
        let budget = Budget::new(per_hour, cap_watts)?;
        Ok(Self { budget, prices: prices.expect("the price trace", &[Quantity::Price])? })
    }

    /// The prices.
    #[must_use]
    pub const fn prices(&self) -> &Trace {
        &self.prices
    }

    /// Watts that the budget buys at a price.
    #[must_use]
    pub fn watts_for(&self, price: f64) -> f64 {
        self.budget.watts_for(price)
    }

    /// Watts that it buys at a time.
    #[must_use]
    pub fn watts_at(&self, seconds: f64, end: End) -> f64 {
        self.watts_for(self.prices.at(seconds, end).value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cent_an_hour_buys_what_the_page_says() {
        let prices = Trace::parse("p", "seconds,price\n0,4.5\n300,5.2\n600,3.5\n").unwrap();
        let tariff = Tariff::new(1.0, prices, 265.0).unwrap();
        let watts = [0.0, 300.0, 600.0].map(|at| tariff.watts_at(at, End::Hold).round());
        assert_eq!(watts, [222.0, 192.0, 265.0]);
    }

    #[test]
    fn nothing_cannot_be_spent() {
        let prices = || Trace::parse("p", "seconds,price\n0,4.5\n").unwrap();
        assert!(Tariff::new(0.0, prices(), 1.0).is_err() && Tariff::new(1.0, prices(), 0.0).is_err());
        let watts = Trace::parse("p", "seconds,watts\n0,4.5\n").unwrap();
        assert!(Tariff::new(1.0, watts, 1.0).unwrap_err().to_string().contains("seconds,price"));
    }
}
