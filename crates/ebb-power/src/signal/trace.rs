//! A quantity over time, from a CSV file.

use ebb_types::{Result, bail, err};

use crate::hardware::Supply;

/// The quantity of a trace, from its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quantity {
    /// Watts for the whole cluster.
    Watts,
    /// Share of the block servers' maximum.
    Fraction,
    /// Price of a kilowatt-hour.
    Price,
    /// Grams of CO2 for each kilowatt-hour.
    Carbon,
}

impl Quantity {
    const ALL: [Self; 4] = [Self::Watts, Self::Fraction, Self::Price, Self::Carbon];

    /// Name of its column.
    #[must_use]
    pub const fn column(self) -> &'static str {
        match self {
            Self::Watts => "watts",
            Self::Fraction => "fraction",
            Self::Price => "price",
            Self::Carbon => "carbon",
        }
    }
}

/// Values after the last line of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The trace begins again.
    Repeat,
    /// The last value stays.
    Hold,
}

/// One line of a trace, which holds from `at_s` on until the next line.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Seconds since the first line.
    pub at_s: f64,
    /// Watts, share, price or carbon intensity.
    pub value: f64,
    /// Price of a kilowatt-hour, in traces of watts or shares that have a third column `price`.
    pub price: Option<f64>,
}

/// A checked trace: times rise without gaps, and the last line holds as long as the one before it.
#[derive(Clone, PartialEq, Debug)]
pub struct Trace {
    quantity: Quantity,
    points: Vec<Point>,
    length_s: f64,
}

/// Limit of the lines of a trace.
const LINES_MAX: usize = 4_000_000;
/// Limit of times and values, so that their sums stay finite.
const NUMBER_MAX: f64 = 1e12;
/// Least time between two lines.
const STEP_MIN_S: f64 = 1e-3;
/// Limit of the factor by which a trace can be sped up or slowed down.
const FACTOR_MAX: f64 = 1e6;
/// Length of a trace with a single line.
const LONE_LINE_S: f64 = 300.0;
/// Largest share in a trace. A larger number was probably meant as a percentage.
const FRACTION_MAX: f64 = 10.0;

impl Trace {
    /// Reads CSV with a header `seconds,watts`, `seconds,fraction`, `seconds,price` or `seconds,carbon`, and, after
    /// watts or shares, a third column `price` if there are prices. `seconds` is the time since any beginning, rising from line to line;
    /// lines that begin with `#` are comments.
    ///
    /// `Invalid`, with name and line, for a field that is no number, below 0 or empty, for times out of order, and for
    /// a missing line among lines at equal distances.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        Self::parse_timed(name, text, "seconds").map(|(_, trace)| trace)
    }

    /// The same with another name of the first column, for times on a clock. Returns the first of them too, in seconds.
    pub(super) fn parse_timed(name: &str, text: &str, clock: &'static str) -> Result<(f64, Self)> {
        let mut quantity = None;
        let mut lines: Vec<(usize, Point)> = Vec::new();
        let text = text.trim_start_matches('\u{feff}');
        let has_content = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        for (number, line) in text.lines().enumerate().filter(|(_, line)| has_content(line)) {
            let at = At { name, line: number + 1, clock };
            let fields: Vec<&str> = line.split(',').map(str::trim).collect();
            let Some((quantity, columns)) = quantity else {
                quantity = Some(at.header(&fields)?);
                continue;
            };
            if lines.len() >= LINES_MAX {
                bail!(Invalid, "{at}: a trace has at most {LINES_MAX} lines");
            }
            lines.push((number + 1, at.point(&fields, columns, quantity)?));
        }
        let Some((quantity, _)) = quantity.filter(|_| !lines.is_empty()) else {
            bail!(Invalid, "{name} is no trace: it needs a header such as {clock},watts and at least one line");
        };
        check_times(name, &lines)?;
        let first = lines[0].1.at_s;
        let points = lines.into_iter().map(|(_, point)| Point { at_s: point.at_s - first, ..point });
        Ok((first, Self::close(quantity, points.collect())))
    }

    /// Makes a trace of stretches: (seconds, value).
    pub fn of_stretches(quantity: Quantity, stretches: &[(f64, f64)]) -> Result<Self> {
        let mut at_s = 0.0;
        let mut points = Vec::new();
        for (seconds, value) in stretches {
            if !(seconds.is_finite() && *seconds > 0.0 && value.is_finite() && *value >= 0.0) {
                bail!(Invalid, "{value} for {seconds} s is no stretch of a trace: seconds above 0, values from 0");
            }
            points.push(Point { at_s, value: *value, price: None });
            at_s += seconds;
        }
        if points.is_empty() {
            bail!(Invalid, "a trace needs at least one stretch");
        }
        Ok(Self { quantity, points, length_s: at_s })
    }

    fn close(quantity: Quantity, points: Vec<Point>) -> Self {
        let length_s = match points.as_slice() {
            [.., before, last] => 2.0 * last.at_s - before.at_s,
            _ => LONE_LINE_S,
        };
        Self { quantity, points, length_s }
    }

    /// The trace, sped up by `factor`.
    pub fn compressed(mut self, factor: f64) -> Result<Self> {
        if !(1.0 / FACTOR_MAX..=FACTOR_MAX).contains(&factor) {
            bail!(
                Invalid,
                "a trace cannot be played {factor} times as fast; give a number above 0, between {} and {FACTOR_MAX}",
                1.0 / FACTOR_MAX
            );
        }
        self.points.iter_mut().for_each(|point| point.at_s /= factor);
        self.length_s /= factor;
        Ok(self)
    }

    /// Its quantity.
    #[must_use]
    pub const fn quantity(&self) -> Quantity {
        self.quantity
    }

    /// Length, in seconds.
    #[must_use]
    pub const fn length_s(&self) -> f64 {
        self.length_s
    }

    /// Its lines, with the seconds for which each holds.
    pub fn stretches(&self) -> impl Iterator<Item = (f64, Point)> + '_ {
        let ends = self.points.iter().skip(1).map(|point| point.at_s).chain([self.length_s]);
        self.points.iter().zip(ends).map(|(point, end)| (end - point.at_s, *point))
    }

    /// Time-weighted mean of its values.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.stretches().map(|(seconds, point)| seconds * point.value).sum::<f64>() / self.length_s
    }

    /// The line that holds at a time.
    #[must_use]
    pub fn at(&self, seconds: f64, end: End) -> Point {
        let after = self.points.partition_point(|point| point.at_s <= self.phase(seconds, end));
        self.points[after.max(1) - 1]
    }

    fn phase(&self, seconds: f64, end: End) -> f64 {
        match end {
            End::Repeat => seconds.rem_euclid(self.length_s),
            End::Hold => seconds,
        }
    }

    /// Seconds for which the value stays the same. `None` if it never changes again.
    #[must_use]
    pub fn holds_for(&self, seconds: f64, end: End) -> Option<f64> {
        let phase = self.phase(seconds, end);
        let after = self.points.partition_point(|point| point.at_s <= phase);
        match (self.points.get(after), end) {
            (Some(next), _) => Some(next.at_s - phase),
            (None, End::Repeat) => Some(self.length_s - phase),
            (None, End::Hold) => None,
        }
    }

    /// The line that holds at a time as a supply. A trace of prices has none: it gives 0 W.
    #[must_use]
    pub fn supply_at(&self, seconds: f64, end: End) -> Supply {
        let value = self.at(seconds, end).value;
        match self.quantity {
            Quantity::Watts => Supply::Watts(value),
            Quantity::Fraction => Supply::Fraction(value),
            Quantity::Price | Quantity::Carbon => Supply::Watts(0.0),
        }
    }

    /// Refuses a trace of a quantity that is not in `allowed`.
    pub fn expect(self, name: &str, allowed: &[Quantity]) -> Result<Self> {
        if !allowed.contains(&self.quantity) {
            let names: Vec<_> = allowed.iter().map(|quantity| format!("seconds,{}", quantity.column())).collect();
            bail!(
                Invalid,
                "{name}: columns {} are needed, it has seconds,{}",
                names.join(" or "),
                self.quantity.column()
            );
        }
        Ok(self)
    }
}

/// A line of a file, for messages.
#[derive(Clone, Copy)]
struct At<'a> {
    name: &'a str,
    line: usize,
    /// Name of the first column.
    clock: &'static str,
}

impl std::fmt::Display for At<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, line {}", self.name, self.line)
    }
}

impl At<'_> {
    /// The quantity of the trace, and its number of columns.
    fn header(self, fields: &[&str]) -> Result<(Quantity, usize)> {
        let known = |column: &str| Quantity::ALL.into_iter().find(|quantity| quantity.column() == column);
        let quantity = match fields {
            [clock, column] if *clock == self.clock => known(column),
            [clock, column @ ("watts" | "fraction"), "price"] if *clock == self.clock => known(column),
            _ => None,
        };
        let quantity = quantity.ok_or_else(|| {
            err!(
                Invalid,
                "{self}: the first line must be {0},watts or {0},fraction or {0},price or {0},carbon, and is {1:?}",
                self.clock,
                fields.join(",")
            )
        })?;
        Ok((quantity, fields.len()))
    }

    fn point(self, fields: &[&str], columns: usize, quantity: Quantity) -> Result<Point> {
        if fields.len() != columns {
            bail!(Invalid, "{self}: {} fields where the header has {columns}", fields.len());
        }
        let at_s = self.number(fields[0], self.clock)?;
        let value = self.number(fields[1], quantity.column())?;
        if quantity == Quantity::Fraction && value > FRACTION_MAX {
            bail!(Invalid, "{self}: a fraction of {value}: 1 is all nodes active, so write 0.5 for 50 %");
        }
        let price = fields.get(2).map(|field| self.number(field, "price")).transpose()?;
        if quantity == Quantity::Price && value == 0.0 || price == Some(0.0) {
            bail!(Invalid, "{self}: a price must be above 0");
        }
        Ok(Point { at_s, value, price })
    }

    fn number(self, text: &str, name: &str) -> Result<f64> {
        if text.is_empty() {
            bail!(Invalid, "{self}: a gap: no {name}");
        }
        let value: f64 = text.parse().map_err(|_| err!(Invalid, "{self}: {name} {text:?} is no number"))?;
        if !value.is_finite() || value < 0.0 {
            bail!(Invalid, "{self}: {name} of {text}: it must be 0 or more");
        }
        if value > NUMBER_MAX {
            bail!(Invalid, "{self}: {name} of {text}: at most {NUMBER_MAX}");
        }
        Ok(value)
    }
}

/// Times must rise. If more than half of at least three distances are equal, none may be half as long again.
fn check_times(name: &str, lines: &[(usize, Point)]) -> Result<()> {
    let mut steps = Vec::with_capacity(lines.len());
    for pair in lines.windows(2) {
        let ((_, before), (line, point)) = (pair[0], pair[1]);
        if point.at_s <= before.at_s {
            bail!(
                Invalid,
                "{name}, line {line}: {} s after {} s; the first column is a time and must rise from line to line",
                point.at_s,
                before.at_s
            );
        }
        if point.at_s - before.at_s < STEP_MIN_S {
            bail!(Invalid, "{name}, line {line}: {} s after {} s: too close together", point.at_s, before.at_s);
        }
        steps.push(point.at_s - before.at_s);
    }
    if steps.len() < 3 {
        return Ok(());
    }
    let mut sorted = steps.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    let usual = sorted[sorted.len() / 2];
    let alike = steps.iter().filter(|step| (*step / usual - 1.0).abs() < 0.01).count();
    let gap = steps.iter().position(|step| *step > 1.5 * usual);
    match gap {
        Some(at) if alike * 2 > steps.len() => bail!(
            Invalid,
            "{name}, line {}: a gap of {} s after {} s, where lines stand {usual} s apart; fill it",
            lines[at + 1].0,
            steps[at],
            lines[at].1.at_s
        ),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refusal(text: &str) -> String {
        Trace::parse("t.csv", text).unwrap_err().to_string()
    }

    #[test]
    fn a_trace_holds_from_line_to_line() {
        let trace = Trace::parse("t", "# sun\nseconds,watts\n100, 50\n160, 80\n220,20\n").unwrap();
        let watts = |seconds, end| trace.at(seconds, end).value;
        assert_eq!((watts(0.0, End::Hold), watts(59.9, End::Hold), watts(60.0, End::Hold)), (50.0, 50.0, 80.0));
        assert_eq!((watts(1e6, End::Hold), watts(179.0, End::Repeat), watts(180.0, End::Repeat)), (20.0, 20.0, 50.0));
        assert_eq!((trace.mean(), trace.length_s()), (50.0, 180.0));
        assert_eq!((trace.holds_for(70.0, End::Hold), trace.holds_for(130.0, End::Hold)), (Some(50.0), None));
        assert_eq!(trace.holds_for(130.0, End::Repeat), Some(50.0));
        let fast = trace.compressed(60.0).unwrap();
        assert_eq!((fast.at(1.5, End::Hold).value, fast.length_s()), (80.0, 3.0));
    }

    #[test]
    fn an_error_is_refused_with_its_line() {
        assert!(refusal("seconds,watts\n0,5\n1,-3\n").contains("t.csv, line 3: watts of -3"));
        assert!(refusal("seconds,watts\n0,5\n# note\n1,x\n").contains("line 4: watts \"x\""));
        assert!(refusal("seconds,watts\n0,5\n1,NaN\n").contains("line 3"));
        assert!(refusal("seconds,watts\n0,5\n0,6\n").contains("line 3: 0 s after 0 s"));
        assert!(refusal("seconds,watts\n5,5\n3,6\n").contains("must rise"));
        assert!(refusal("seconds,watts\n0,5\n1e308,6\n").contains("line 3: seconds of 1e308: at most"));
        assert!(refusal("seconds,watts\n0,1e308\n").contains("line 2: watts of 1e308: at most"));
        assert!(refusal("seconds,watts\n0,5\n1e-320,6\n").contains("too close together"));
        assert!(refusal("seconds,watts\n-1,5\n").contains("line 2: seconds of -1"));
        assert!(refusal("seconds,watts\n0,5\n60,\n").contains("line 3: a gap: no watts"));
        assert!(
            refusal("seconds,watts\n0,5\n60,5\n120,5\n240,5\n300,5\n").contains("line 5: a gap of 120 s after 120 s")
        );
        assert!(refusal("seconds,fraction\n0,50\n").contains("0.5 for 50 %"));
        assert!(refusal("0,5\n60,5\n").contains("line 1: the first line must be seconds,watts"));
        assert!(refusal("seconds,watts\n0,5,6\n").contains("3 fields"));
        assert!(refusal("seconds,price\n0,0\n").contains("above 0"));
        assert!(refusal("").contains("is no trace") && refusal("seconds,watts\n").contains("is no trace"));
        let trace = Trace::parse("t", "seconds,price\n0,4\n").unwrap();
        let refused = [0.0, 1e-9, 1e9, -1.0, f64::NAN, f64::INFINITY].map(|factor| trace.clone().compressed(factor));
        assert!(refused.iter().all(Result::is_err), "its times would be too large, or equal");
        assert!(trace.expect("t", &[Quantity::Watts]).unwrap_err().to_string().contains("seconds,watts are needed"));
    }

    #[test]
    fn the_solar_days_are_a_trace_of_a_clear_a_mixed_and_an_overcast_day() {
        let trace = Trace::parse("solar-days.csv", include_str!("../../../../scripts/solar-days.csv")).unwrap();
        assert_eq!((trace.quantity(), trace.length_s()), (Quantity::Fraction, 3.0 * 86_400.0));
        let lines: Vec<f64> = trace.stretches().map(|(_, point)| point.value).collect();
        let mean = |day: usize| lines[day * 288..][..288].iter().sum::<f64>() / 288.0;
        assert!(mean(0) > mean(1) && mean(1) > mean(2) && mean(2) > 0.0, "{} {} {}", mean(0), mean(1), mean(2));
        assert!(lines.iter().all(|share| (0.0..=1.0).contains(share)) && lines[0] == 0.0);
    }

    #[test]
    fn lines_at_any_distance_are_no_gaps_where_none_is_usual() {
        assert!(Trace::parse("t", "seconds,fraction\n0,0.5\n30,0.2\n100,1\n105,0\n").is_ok());
        assert!(
            Trace::parse("t", "seconds,watts,price\n0,5,0.1\n900,6,0.2\n").unwrap().at(0.0, End::Hold).price
                == Some(0.1)
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(seconds,(watts|fraction|price|carbon)\n)?([0-9a,.\\-\n \"]{0,60})") {
            if let Ok(trace) = Trace::parse("t", &text) {
                prop_assert!(trace.length_s() > 0.0);
                prop_assert!((0..50).all(|at| trace.at(f64::from(at) * 7.3, End::Repeat).value >= 0.0));
            }
        }

        #[test]
        fn stretches_make_up_the_whole(steps in proptest::collection::vec((0.1_f64..90.0, 0.0_f64..500.0), 1..40)) {
            let trace = Trace::of_stretches(Quantity::Watts, &steps).unwrap();
            let seconds: f64 = trace.stretches().map(|(seconds, _)| seconds).sum();
            prop_assert!((seconds - trace.length_s()).abs() < 1e-6);
            let mut at = 0.0;
            for (seconds, value) in steps {
                prop_assert_eq!(trace.at(at + seconds / 2.0, End::Repeat).value, value);
                at += seconds;
            }
        }
    }
}
