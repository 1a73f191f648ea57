//! Round numbers for the marks of an axis.

use std::ops::Range;

use crate::table::human_bytes;

/// Limits and marks of a linear axis that holds `low..=high`, at 1, 2 or 5 times a power of ten. The upper end is a
/// mark, unless `max` fixes it.
pub fn linear(low: f64, max: Option<f64>, high: f64) -> (Range<f64>, Vec<f64>) {
    let high = max.unwrap_or(high);
    let span = if high > low { high - low } else { low.abs().max(1.0) };
    let raw = span / 6.0;
    let power = 10_f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].iter().map(|round| round * power).find(|step| *step >= raw * 0.999);
    let step = step.unwrap_or(power * 10.0);
    let start = if max.is_some() || low == 0.0 { low } else { (low / step).floor() * step };
    let end = max.unwrap_or_else(|| ((low + span) / step - 1e-9).ceil() * step);
    let first = (start / step - 1e-9).ceil() as i64;
    let last = (end / step + 1e-9).floor() as i64;
    (start..end, (first..=last).map(|index| index as f64 * step).collect())
}

/// Limits and marks of a logarithmic axis, as logarithms: powers of ten, and 2 and 5 times those if there are few.
pub fn log(low: f64, high: f64) -> (Range<f64>, Vec<f64>) {
    let (mut start, mut end) = (low.log10(), high.log10());
    if end - start < 0.3 {
        (start, end) = (start.min(end).floor(), end.max(start + 0.3).ceil());
    }
    let decades = end - start;
    let factors: &[f64] = if decades <= 3.2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let stride = (decades / 9.0).ceil().max(1.0) as i32;
    let (first, last) = (start.floor() as i32, end.ceil() as i32);
    let places = (first..=last).filter(|power| power.rem_euclid(stride) == 0);
    let marks = places.flat_map(|power| factors.iter().map(move |factor| f64::from(power) + factor.log10()));
    (start..end, marks.filter(|mark| *mark >= start - 1e-9 && *mark <= end + 1e-9).collect())
}

/// A number as short as it can be, thousands apart.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size < 1e-12 {
        return "0".to_owned();
    }
    if !(1e-3..1e7).contains(&size) {
        let power = (size.log10() + 1e-9).floor();
        let factor = value / 10_f64.powf(power);
        let power = superscript(power as i32);
        return if (factor - 1.0).abs() < 1e-6 {
            format!("10{power}")
        } else {
            format!("{}·10{power}", plain(factor))
        };
    }
    plain(value)
}

/// Bytes with their unit, without needless decimals.
pub fn bytes(value: f64) -> String {
    if value > 0.0 && value < 1.0 {
        return format!("{} B", number(value));
    }
    let shown = human_bytes(value);
    match shown.split_once(' ') {
        Some((digits, unit)) if digits.contains('.') && !digits.contains('e') => {
            format!("{} {unit}", digits.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => shown,
    }
}

fn plain(value: f64) -> String {
    let rounded = format!("{value:.4}");
    let short = rounded.trim_end_matches('0').trim_end_matches('.');
    let (sign, digits) = short.strip_prefix('-').map_or(("", short), |digits| ("\u{2212}", digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let grouped = if whole.len() > 4 { group(whole) } else { whole.to_owned() };
    if fraction.is_empty() { format!("{sign}{grouped}") } else { format!("{sign}{grouped}.{fraction}") }
}

fn group(digits: &str) -> String {
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push('\u{2009}');
        }
        out.push(digit);
    }
    out
}

fn superscript(power: i32) -> String {
    let raise = |c: char| match c {
        '-' => '\u{207b}',
        '1' => '\u{b9}',
        '2' => '\u{b2}',
        '3' => '\u{b3}',
        digit => char::from_u32(0x2070 + digit as u32 - '0' as u32).unwrap_or(digit),
    };
    power.to_string().chars().map(raise).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_the_end_is_one() {
        assert_eq!(linear(0.0, None, 112.3), (0.0..120.0, vec![0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0]));
        assert_eq!(linear(0.0, Some(1.0), 0.7), (0.0..1.0, vec![0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]));
    }

    #[test]
    fn a_log_axis_has_decades_or_their_halves() {
        let (range, marks) = log(80e12, 10e15);
        assert!((range.start - 13.903).abs() < 1e-3 && range.end == 16.0);
        assert_eq!(
            marks.iter().map(|mark| bytes(10_f64.powf(*mark))).collect::<Vec<_>>(),
            ["100 TB", "200 TB", "500 TB", "1 PB", "2 PB", "5 PB", "10 PB"]
        );
        assert_eq!(log(1.0, 1e6).1.len(), 7);
        assert!(log(5.0, 5.0).1.len() > 1);
    }

    #[test]
    fn numbers_are_short() {
        let shown: Vec<String> = [0.0, 0.25, 1.0, 1500.0, 20_000.0, 1e8, 2e-5, -3.5].map(number).to_vec();
        assert_eq!((bytes(0.01), bytes(2e-5), bytes(1e12)), ("0.01 B".into(), "2·10⁻⁵ B".into(), "1 TB".into()));
        assert_eq!(shown, ["0", "0.25", "1", "1500", "20\u{2009}000", "10⁸", "2·10⁻⁵", "−3.5"]);
    }
}
