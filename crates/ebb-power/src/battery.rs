//! A battery as a short buffer between a supply and a draw.

use ebb_types::{Result, bail};

/// A battery of a set size, and its charge.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Battery {
    /// Energy that it can hold, in joules; 0 is no battery.
    pub capacity_joules: f64,
    /// Energy in it, in joules.
    pub charge_joules: f64,
    /// Share of the energy put in that comes out again.
    pub efficiency: f64,
    /// Most watts that it gives.
    pub output_watts: f64,
}

/// Energy flows in a stretch of time.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Flow {
    /// Joules that came out of the battery.
    pub drained_joules: f64,
    /// Joules that went into it, before its losses.
    pub charged_joules: f64,
    /// Joules drawn beyond supply and battery.
    pub missing_joules: f64,
}

impl Battery {
    /// No battery.
    pub const NONE: Self = Self { capacity_joules: 0.0, charge_joules: 0.0, efficiency: 1.0, output_watts: 0.0 };

    /// A full, lossless battery that holds `watts` for `seconds` and gives at most `watts`: the paper's is five minutes
    /// (BlinkFS, Sec. 5).
    #[must_use]
    pub fn full(watts: f64, seconds: f64) -> Self {
        let joules = watts * seconds;
        Self { capacity_joules: joules, charge_joules: joules, efficiency: 1.0, output_watts: watts }
    }

    /// `Invalid` if a number is impossible for a battery.
    pub fn check(&self) -> Result<()> {
        let Self { capacity_joules, charge_joules, efficiency, output_watts } = *self;
        let sizes = capacity_joules.is_finite() && capacity_joules >= 0.0 && output_watts >= 0.0;
        if !(sizes && (0.0..=capacity_joules).contains(&charge_joules) && efficiency > 0.0 && efficiency <= 1.0) {
            bail!(
                Invalid,
                "a battery with {charge_joules} of {capacity_joules} J that gives {output_watts} W and returns {efficiency} \
                 of the energy put in: the charge must lie within the size, and the last be above 0 and at most 1"
            );
        }
        Ok(())
    }

    /// Draws `watts` from a supply of `supplied_watts` for `ms`. An excess charges the battery. A deficit comes out of
    /// the battery, as far as it can give.
    pub fn pass(&mut self, supplied_watts: f64, watts: f64, ms: u64) -> Flow {
        let seconds = ms as f64 / 1000.0;
        let spare = supplied_watts - watts;
        if spare >= 0.0 {
            let room = (self.capacity_joules - self.charge_joules) / self.efficiency;
            let charged = (spare * seconds).min(room.max(0.0));
            self.charge_joules = (self.charge_joules + charged * self.efficiency).min(self.capacity_joules);
            return Flow { charged_joules: charged, ..Flow::default() };
        }
        let lacking = -spare * seconds;
        let drained = (-spare).min(self.output_watts) * seconds;
        let drained = drained.min(self.charge_joules);
        self.charge_joules -= drained;
        Flow { drained_joules: drained, missing_joules: lacking - drained, ..Flow::default() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_gives_no_more_than_its_charge() {
        let mut battery = Battery { charge_joules: 100.0, ..Battery::full(50.0, 10.0) };
        assert_eq!(battery.pass(20.0, 50.0, 2_000).drained_joules, 60.0);
        let flow = battery.pass(20.0, 50.0, 2_000);
        assert_eq!((flow.drained_joules, flow.missing_joules, battery.charge_joules), (40.0, 20.0, 0.0));
        assert_eq!(battery.pass(50.0, 0.0, 20_000).charged_joules, 500.0);
        assert_eq!(battery.pass(0.0, 80.0, 1_000).missing_joules, 30.0, "it gives at most 50 W");
        let mut none = Battery::NONE;
        assert_eq!(none.pass(1.0, 2.0, 1_000).missing_joules, 1.0);
    }

    #[test]
    fn impossible_batteries_are_refused() {
        assert!(Battery::NONE.check().is_ok() && Battery::full(10.0, 300.0).check().is_ok());
        assert!(Battery { charge_joules: 2.0, ..Battery::full(1.0, 1.0) }.check().is_err());
        assert!(Battery { efficiency: 0.0, ..Battery::NONE }.check().is_err());
        assert!(Battery { capacity_joules: f64::NAN, ..Battery::NONE }.check().is_err());
    }

    proptest! {
        #[test]
        fn energy_is_conserved(capacity in 0.0_f64..1e4, share in 0.0_f64..1.0, efficiency in 0.1_f64..1.0,
            steps in proptest::collection::vec((0.0_f64..300.0, 0.0_f64..300.0, 0_u64..9_000), 0..30)) {
            let charge_joules = capacity * share;
            let mut battery = Battery { capacity_joules: capacity, charge_joules, efficiency, output_watts: 100.0 };
            let mut stored = charge_joules;
            for (supplied, drawn, ms) in steps {
                let flow = battery.pass(supplied, drawn, ms);
                stored += flow.charged_joules * efficiency - flow.drained_joules;
                let wanted = ((drawn - supplied) * ms as f64 / 1000.0).max(0.0);
                prop_assert!((flow.drained_joules + flow.missing_joules - wanted).abs() < 1e-6);
                prop_assert!((battery.charge_joules - stored).abs() < 1e-6);
                prop_assert!((0.0..=capacity).contains(&battery.charge_joules));
            }
        }
    }
}
