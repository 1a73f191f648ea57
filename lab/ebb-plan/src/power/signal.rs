//! Available power and its price over time: the live system's signals as a list of stretches.

use ebb_power::signal::{OSCILLATION_PERIOD, Quantity, Tariff, Trace, check_share, swing};
use ebb_types::Result;

/// One stretch of a signal.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Step {
    /// Length in seconds.
    pub seconds: f64,
    /// Power that the whole cluster may draw.
    pub watts: f64,
    /// Price of a kilowatt-hour, if there is one.
    pub price: Option<f64>,
}

/// A power signal, repeated for the length of the study.
#[derive(Clone, PartialEq, Debug)]
pub struct Signal {
    /// Its name.
    pub name: String,
    /// The stretches in order.
    pub steps: Vec<Step>,
}

/// The power that shares refer to.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scale {
    /// Draw of the nodes that may sleep, with all of them active.
    pub nodes_watts: f64,
    /// Base draw beside them, which is not part of a share.
    pub fixed_watts: f64,
}

impl Scale {
    fn watts(self, share: f64) -> f64 {
        self.fixed_watts + share * self.nodes_watts
    }
}

impl Signal {
    /// A constant share of the nodes' full power.
    pub fn constant(share: f64, scale: Scale) -> Result<Self> {
        check_share(share)?;
        let step = Step { seconds: OSCILLATION_PERIOD.as_secs_f64(), watts: scale.watts(share), price: None };
        Ok(Self { name: format!("constant {:.0} %", share * 100.0), steps: vec![step] })
    }

    /// `level` % oscillation: between `(45 + 0.45 level) %` and `(45 - 0.45 level) %` of the nodes' full power every five
    /// minutes; 0 holds it at 45 % (BlinkFS, Sec. 5).
    pub fn oscillation(level: f64, scale: Scale) -> Result<Self> {
        check_share(level)?;
        let seconds = OSCILLATION_PERIOD.as_secs_f64();
        let step = |is_high| Step { seconds, watts: scale.watts(swing(level, is_high)), price: None };
        Ok(Self { name: format!("oscillation {:.0} %", level * 100.0), steps: vec![step(true), step(false)] })
    }

    /// The power that a fixed budget per hour buys at changing prices, up to `cap_watts`.
    pub fn budget(per_hour: f64, prices: Trace, cap_watts: f64) -> Result<Self> {
        let tariff = Tariff::new(per_hour, prices, cap_watts)?;
        let step = |(seconds, point): (f64, ebb_power::signal::trace::Point)| Step {
            seconds,
            watts: tariff.watts_for(point.value),
            price: Some(point.value),
        };
        let steps = tariff.prices().stretches().map(step).collect();
        Ok(Self { name: format!("budget of {per_hour} an hour"), steps })
    }

    /// A trace of watts or of shares, with prices or without; see [`Trace::parse`].
    pub fn parse(name: &str, text: &str, scale: Scale) -> Result<Self> {
        let trace = Trace::parse(name, text)?.expect(name, &[Quantity::Watts, Quantity::Fraction])?;
        let watts = |value| if trace.quantity() == Quantity::Fraction { scale.watts(value) } else { value };
        let step = |(seconds, point): (f64, ebb_power::signal::trace::Point)| Step {
            seconds,
            watts: watts(point.value),
            price: point.price,
        };
        Ok(Self { name: name.to_owned(), steps: trace.stretches().map(step).collect() })
    }

    /// Time-weighted mean power.
    #[must_use]
    pub fn mean_watts(&self) -> f64 {
        let seconds: f64 = self.steps.iter().map(|step| step.seconds).sum();
        self.steps.iter().map(|step| step.watts * step.seconds).sum::<f64>() / seconds
    }
}
