//! The part of a power distribution unit's capacity that a foreground load leaves (BlinkFS, Sec. 1).

use ebb_types::{Result, bail};

use super::trace::{End, Quantity, Trace};

/// A capacity, and the draw of other loads.
#[derive(Clone, PartialEq, Debug)]
pub struct Headroom {
    capacity_watts: f64,
    foreground: Trace,
}

impl Headroom {
    /// `foreground` is in watts.
    pub fn new(capacity_watts: f64, foreground: Trace) -> Result<Self> {
        if !(capacity_watts.is_finite() && capacity_watts > 0.0) {
            bail!(Invalid, "a capacity of {capacity_watts} W leaves nothing; give one above 0");
        }
        Ok(Self { capacity_watts, foreground: foreground.expect("the foreground trace", &[Quantity::Watts])? })
    }

    /// The draw of the other loads.
    #[must_use]
    pub const fn foreground(&self) -> &Trace {
        &self.foreground
    }

    /// Watts left at a time.
    #[must_use]
    pub fn watts_at(&self, seconds: f64, end: End) -> f64 {
        headroom_watts(self.capacity_watts, self.foreground.at(seconds, end).value)
    }
}

/// Watts that a measured foreground draw leaves; never below 0.
#[must_use]
pub fn headroom_watts(capacity_watts: f64, foreground_watts: f64) -> f64 {
    (capacity_watts - foreground_watts).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_background_gets_the_rest() {
        let foreground = Trace::parse("f", "seconds,watts\n0,100\n60,990\n120,1200\n").unwrap();
        let headroom = Headroom::new(1_000.0, foreground).unwrap();
        assert_eq!([0.0, 60.0, 120.0].map(|at| headroom.watts_at(at, End::Hold)), [900.0, 10.0, 0.0]);
        let shares = Trace::parse("f", "seconds,fraction\n0,1\n").unwrap();
        assert!(Headroom::new(1.0, shares.clone()).is_err() && Headroom::new(f64::NAN, shares).is_err());
    }
}
