//! The results, for people and for programs.

use std::fmt;

use super::cpu::Cpu;
use super::load::Sample;

/// What was wanted of a figure before it was measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Aim {
    /// Of the value.
    ValueAtLeast(f64),
    /// Of the value.
    ValueAtMost(f64),
    /// Of the value in relation to its reference.
    RatioAtLeast(f64),
    /// Of the value in relation to its reference.
    RatioAtMost(f64),
}

impl Aim {
    fn is_met(self, value: f64, ratio: Option<f64>) -> Option<bool> {
        match self {
            Self::ValueAtLeast(limit) => Some(value >= limit),
            Self::ValueAtMost(limit) => Some(value <= limit),
            Self::RatioAtLeast(limit) => ratio.map(|ratio| ratio >= limit),
            Self::RatioAtMost(limit) => ratio.map(|ratio| ratio <= limit),
        }
    }
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ValueAtLeast(limit) => write!(f, ">= {limit}"),
            Self::ValueAtMost(limit) => write!(f, "<= {limit}"),
            Self::RatioAtLeast(limit) => write!(f, ">= {limit} of it"),
            Self::RatioAtMost(limit) => write!(f, "<= {limit} of it"),
        }
    }
}

/// One line of the table.
pub struct Line {
    /// The figure's name.
    pub name: String,
    /// Its unit.
    pub unit: &'static str,
    /// The measurements.
    pub values: Vec<f64>,
    /// The reference: its name and its measurements.
    pub reference: Option<(&'static str, Vec<f64>)>,
    /// Whether it is on stable storage by then.
    pub durable: Option<bool>,
    /// What was wanted.
    pub aim: Option<Aim>,
    /// Processor seconds for each GiB ("MB/s") or operation, by role: the medians of the runs.
    pub cpu: Cpu,
}

impl Line {
    fn reference_median(&self) -> Option<f64> {
        self.reference.as_ref().filter(|(_, values)| !values.is_empty()).map(|(_, values)| median(values))
    }

    /// The median of the rounds' ratios. If a round lacks a reference, it is the ratio of the medians.
    fn ratio(&self) -> Option<f64> {
        let (_, references) = self.reference.as_ref()?;
        if references.len() == self.values.len() && references.iter().all(|reference| *reference > 0.0) {
            let ratios: Vec<f64> =
                self.values.iter().zip(references).map(|(value, reference)| value / reference).collect();
            return (!ratios.is_empty()).then(|| median(&ratios));
        }
        self.reference_median().filter(|reference| *reference > 0.0).map(|reference| median(&self.values) / reference)
    }

    fn is_met(&self) -> Option<bool> {
        self.aim?.is_met(median(&self.values), self.ratio())
    }

    /// The aim, and whether it is met.
    fn aim_words(&self) -> String {
        let met = match self.is_met() {
            Some(true) => ": met",
            Some(false) => ": missed",
            None => "",
        };
        self.aim.map_or_else(|| "-".to_owned(), |aim| format!("{aim}{met}"))
    }

    /// Processor time in the unit that people read: seconds for a GiB, microseconds for an operation.
    fn cpu_scale(&self) -> (f64, &'static str) {
        if self.unit == "MB/s" { (1.0, "s/GiB") } else { (1e6, "us") }
    }
}

/// The median.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// The median over the runs, for each role.
pub fn median_cpu(samples: &[Sample]) -> Cpu {
    median_cpus(samples.iter().map(|sample| &sample.cpu))
}

/// The same of what was measured by itself.
pub fn median_cpus<'a>(cpus: impl Iterator<Item = &'a Cpu> + Clone) -> Cpu {
    let of = |role: &String| {
        let each: Vec<f64> = cpus.clone().map(|cpu| cpu.get(role).copied().unwrap_or(0.0)).collect();
        (role.clone(), median(&each))
    };
    cpus.clone().flat_map(Cpu::keys).map(of).collect()
}

/// For people.
pub fn print_table(lines: &[Line]) {
    println!(
        "{:<56} {:>10} {:>10} {:>10} {:<6} {:>28} {:>6}  {:<7} {:<20} processor time",
        "figure", "median", "least", "most", "unit", "reference", "ratio", "durable", "aim"
    );
    for line in lines {
        let least = line.values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = line.values.iter().copied().fold(0.0, f64::max);
        let reference = match (&line.reference, line.reference_median()) {
            (Some((name, _)), Some(value)) => format!("{name} {}", short(value)),
            _ => "-".to_owned(),
        };
        let ratio = line.ratio().map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        let durable = line.durable.map_or("-", |durable| if durable { "yes" } else { "no" });
        let (scale, unit) = line.cpu_scale();
        let cpu: Vec<String> = line.cpu.iter().map(|(role, used)| format!("{role} {}", short(used * scale))).collect();
        let cpu = if cpu.is_empty() { String::new() } else { format!("{} {unit}", cpu.join(", ")) };
        println!(
            "{:<56} {:>10} {:>10} {:>10} {:<6} {reference:>28} {ratio:>6}  {durable:<7} {:<20} {cpu}",
            line.name,
            short(median(&line.values)),
            short(least),
            short(most),
            line.unit,
            line.aim_words()
        );
    }
}

/// A number with three significant digits.
fn short(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// For programs: an array of objects with `name`, `median`, `unit`, `reference`, `ratio`, `runs`, `durable`, and beside these
/// `least`, `most`, `reference_median`, `aim`, `met` and `cpu_seconds`.
pub fn to_json(lines: &[Line]) -> String {
    let objects: Vec<String> = lines.iter().map(object).collect();
    format!("[\n  {}\n]", objects.join(",\n  "))
}

fn object(line: &Line) -> String {
    let number = |value: Option<f64>| value.map_or_else(|| "null".to_owned(), |value| format!("{value}"));
    let reference = match &line.reference {
        Some((name, values)) if !values.is_empty() => format!("\"{name}\""),
        _ => "null".to_owned(),
    };
    let cpu: Vec<String> = line.cpu.iter().map(|(role, used)| format!("\"{role}\": {used}")).collect();
    let least = line.values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = line.values.iter().copied().fold(0.0, f64::max);
    format!(
        "{{\"name\": \"{}\", \"median\": {}, \"unit\": \"{}\", \"reference\": {reference}, \"ratio\": {}, \"runs\": {}, \
         \"durable\": {}, \"least\": {least}, \"most\": {most}, \"reference_median\": {}, \"aim\": {}, \"met\": {}, \
         \"cpu_seconds\": {{{}}}}}",
        line.name,
        median(&line.values),
        line.unit,
        number(line.ratio()),
        line.values.len(),
        truth(line.durable),
        number(line.reference_median()),
        line.aim.map_or_else(|| "null".to_owned(), |aim| format!("\"{aim}\"")),
        truth(line.is_met()),
        cpu.join(", ")
    )
}

fn truth(value: Option<bool>) -> &'static str {
    value.map_or("null", |value| if value { "true" } else { "false" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line {
        Line {
            name: "read".to_owned(),
            unit: "per s",
            values: vec![30.0, 10.0, 20.0],
            reference: Some(("disk", vec![40.0])),
            durable: None,
            aim: None,
            cpu: Cpu::from([("mount".to_owned(), 0.002)]),
        }
    }

    #[test]
    fn the_ratio_is_the_median_of_the_rounds() {
        let paired = Line { reference: Some(("disk", vec![60.0, 10.0, 10.0])), ..line() };
        assert_eq!(paired.ratio(), Some(1.0));
        let aims = [Aim::RatioAtLeast(1.0), Aim::RatioAtMost(0.9), Aim::ValueAtLeast(21.0), Aim::ValueAtMost(20.0)];
        let met = aims.map(|aim| Line { aim: Some(aim), reference: paired.reference.clone(), ..line() }.is_met());
        assert_eq!(met, [Some(true), Some(false), Some(false), Some(true)]);
    }

    #[test]
    fn without_a_reference_in_each_round_the_ratio_is_that_of_the_medians() {
        assert_eq!((median(&line().values), line().ratio()), (20.0, Some(0.5)));
        assert_eq!(Line { reference: Some(("disk", Vec::new())), ..line() }.ratio(), None, "it was not measured");
    }

    #[test]
    fn programs_get_every_field() {
        let json = to_json(&[line()]);
        for field in
            ["\"median\": 20,", "\"reference\": \"disk\"", "\"ratio\": 0.5", "\"runs\": 3", "\"durable\": null"]
        {
            assert!(json.contains(field), "{field} in {json}");
        }
        assert!(json.contains("\"cpu_seconds\": {\"mount\": 0.002}"), "{json}");
    }

    #[test]
    fn processor_time_is_the_median_of_the_runs() {
        let sample = |used| Sample { value: 1.0, cpu: Cpu::from([("mount".to_owned(), used)]) };
        let samples = [sample(3.0), sample(1.0), Sample { value: 1.0, cpu: Cpu::new() }];
        assert_eq!(median_cpu(&samples), Cpu::from([("mount".to_owned(), 1.0)]));
    }
}
