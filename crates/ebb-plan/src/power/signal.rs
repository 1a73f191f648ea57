//! How much power there is, and what it costs, over time.

use ebb_types::{Result, bail, err};

/// One stretch of a signal.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Step {
    /// Length in seconds.
    pub seconds: f64,
    /// Power that may be drawn.
    pub watts: f64,
    /// Price of a kilowatt-hour, where there is one.
    pub price: Option<f64>,
}

/// A power signal, repeated as often as the time that is looked at needs.
#[derive(Clone, PartialEq, Debug)]
pub struct Signal {
    /// What it is.
    pub name: String,
    /// The stretches in order.
    pub steps: Vec<Step>,
}

/// Time between two changes of an oscillation, as in the paper.
const FIVE_MINUTES: f64 = 300.0;

impl Signal {
    /// The same share of the full power all the time.
    pub fn constant(share: f64, full_watts: f64) -> Result<Self> {
        check_share(share)?;
        let step = Step { seconds: FIVE_MINUTES, watts: share * full_watts, price: None };
        Ok(Self { name: format!("constant {:.0} %", share * 100.0), steps: vec![step] })
    }

    /// `level` % oscillation: between `(45 + 0.45 level) %` and `(45 - 0.45 level) %` of the full power every five
    /// minutes; 0 holds it at 45 % (BlinkFS, Sec. 5).
    pub fn oscillation(level: f64, full_watts: f64) -> Result<Self> {
        check_share(level)?;
        let step = |share: f64| Step { seconds: FIVE_MINUTES, watts: share * full_watts, price: None };
        let steps = vec![step(0.45 + 0.45 * level), step(0.45 - 0.45 * level)];
        Ok(Self { name: format!("oscillation {:.0} %", level * 100.0), steps })
    }

    /// What a fixed budget per hour buys at changing prices, up to what can be used.
    pub fn budget(per_hour: f64, prices: &[(f64, f64)], cap_watts: f64) -> Result<Self> {
        if !per_hour.is_finite() || per_hour <= 0.0 {
            bail!(Invalid, "a budget of {per_hour} an hour buys nothing; give one above 0");
        }
        let step = |(seconds, price): &(f64, f64)| Step {
            seconds: *seconds,
            watts: (per_hour / price * 1000.0).min(cap_watts),
            price: Some(*price),
        };
        let signal = Self { name: format!("budget of {per_hour} an hour"), steps: prices.iter().map(step).collect() };
        signal.check()
    }

    /// Reads lines `seconds,watts` or `seconds,watts,price` (price of a kWh); `seconds` is how long the line holds. A
    /// first line of words is skipped.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let mut steps = Vec::new();
        for (number, fields) in records(text)? {
            let [seconds, watts, price @ ..] = fields.as_slice() else {
                bail!(Invalid, "{name}, line {number}: seconds,watts or seconds,watts,price is needed");
            };
            steps.push(Step { seconds: *seconds, watts: *watts, price: price.first().copied() });
        }
        Self { name: name.to_owned(), steps }.check().map_err(|error| error.context(name))
    }

    /// Reads lines `seconds,price`.
    pub fn parse_prices(name: &str, text: &str) -> Result<Vec<(f64, f64)>> {
        let mut prices = Vec::new();
        for (number, fields) in records(text)? {
            match fields.as_slice() {
                [seconds, price] if *seconds > 0.0 && *price > 0.0 => prices.push((*seconds, *price)),
                _ => bail!(Invalid, "{name}, line {number}: seconds,price is needed, both above 0"),
            }
        }
        if prices.is_empty() { Err(err!(Invalid, "{name} has no prices")) } else { Ok(prices) }
    }

    /// Time-weighted mean power.
    #[must_use]
    pub fn mean_watts(&self) -> f64 {
        let seconds: f64 = self.steps.iter().map(|step| step.seconds).sum();
        self.steps.iter().map(|step| step.watts * step.seconds).sum::<f64>() / seconds
    }

    fn check(self) -> Result<Self> {
        if self.steps.is_empty() {
            bail!(Invalid, "a power signal needs at least one line of seconds,watts");
        }
        let bad = |step: &Step| {
            !(step.seconds.is_finite() && step.seconds > 0.0 && step.watts.is_finite() && step.watts >= 0.0)
        };
        if let Some(step) = self.steps.iter().find(|step| bad(step)) {
            bail!(
                Invalid,
                "{} W for {} s is no stretch of power: seconds above 0, watts from 0",
                step.watts,
                step.seconds
            );
        }
        Ok(self)
    }
}

fn check_share(share: f64) -> Result<()> {
    if !(0.0..=1.0).contains(&share) {
        let nearest = if share > 1.0 { 100 } else { 0 };
        bail!(
            Invalid,
            "{:.0} % is no share of the full power; the nearest possible value is {nearest} %",
            share * 100.0
        );
    }
    Ok(())
}

/// Numbered lines of numbers.
fn records(text: &str) -> Result<Vec<(usize, Vec<f64>)>> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .comment(Some(b'#'))
        .from_reader(text.as_bytes());
    let mut out = Vec::new();
    for (index, record) in reader.records().enumerate() {
        let record = record.map_err(|error| err!(Invalid, "line {}: {error}", index + 1))?;
        let numbers: Result<Vec<f64>, _> = record.iter().map(str::parse).collect();
        match numbers {
            Ok(numbers) => out.push((index + 1, numbers)),
            Err(_) if index == 0 => {}
            Err(error) => bail!(Invalid, "line {}: {error}", index + 1),
        }
    }
    Ok(out)
}
