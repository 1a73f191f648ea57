//! Times of RFC 3339 and durations of ISO 8601, as OpenADR and carbon services write them.

use ebb_types::{Result, bail, err};

/// Latest time that is read, in seconds since the Unix epoch: the end of the year 9999.
pub const SECONDS_MAX: f64 = 253_402_300_799.0;
/// Longest text that is read.
const TEXT_MAX: usize = 64;
/// A duration of so many years or more has no end: OpenADR writes `P9999Y`.
const ENDLESS_YEARS: f64 = 1_000.0;

/// Milliseconds since the Unix epoch of a time such as `2026-01-20T12:00:00.5+01:00`. Seconds may be missing.
///
/// `Protocol` for anything else, and for a time without its distance from UTC.
pub fn parse_time(text: &str) -> Result<i64> {
    time_ms(text).ok_or_else(|| {
        let shown: String = text.chars().take(TEXT_MAX).collect();
        err!(Protocol, "{shown:?} is no time by RFC 3339, such as 2026-01-20T12:00:00Z")
    })
}

fn time_ms(text: &str) -> Option<i64> {
    if text.len() > TEXT_MAX || !text.is_ascii() {
        return None;
    }
    let (date, rest) = text.split_at_checked(10)?;
    let [year, month, day] = numbers(date, '-', &[4, 2, 2])?;
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let zone_at = rest.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = rest.split_at(zone_at);
    let (clock, fraction_ms) = match clock.split_once('.') {
        Some((clock, digits)) => (clock, fraction_ms(digits)?),
        None => (clock, 0),
    };
    let [hour, minute, second] = match clock.len() {
        5 => {
            let [hour, minute] = numbers(clock, ':', &[2, 2])?;
            [hour, minute, 0]
        }
        _ => numbers(clock, ':', &[2, 2, 2])?,
    };
    let is_date = (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    // A leap second is the last second of its minute once more.
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days_since_epoch(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second.min(59);
    Some((seconds - zone_seconds(zone)?) * 1000 + fraction_ms)
}

/// Seconds by which a zone is ahead of UTC.
fn zone_seconds(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let [hours, minutes] = numbers(zone.get(1..)?, ':', &[2, 2])?;
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3_600 + minutes * 60))
}

/// Digits after a decimal point as milliseconds; further digits are cut off.
fn fraction_ms(digits: &str) -> Option<i64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| format!("{digits:0<3}")[..3].parse().ok())?
}

/// Numbers of these widths, with a separator between them.
fn numbers<const N: usize>(text: &str, separator: char, widths: &[usize; N]) -> Option<[i64; N]> {
    let mut found = [0; N];
    let mut fields = text.split(separator);
    for (number, width) in found.iter_mut().zip(widths) {
        let field = fields.next().filter(|field| field.len() == *width)?;
        *number = field.bytes().all(|byte| byte.is_ascii_digit()).then(|| field.parse().ok())??;
    }
    fields.next().is_none().then_some(found)
}

const fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1 January 1970 in the Gregorian calendar (Hinnant, "chrono-Compatible Low-Level Date Algorithms").
const fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Milliseconds of a duration such as `PT1H30M` or `P7D`; none if it has no end (`P9999Y`). A year counts as 365 days.
///
/// `Protocol` for anything else, and for months, which have no fixed length.
pub fn parse_duration(text: &str) -> Result<Option<u64>> {
    let shown = || text.chars().take(TEXT_MAX).collect::<String>();
    let Some(seconds) = duration_s(text) else {
        bail!(
            Protocol,
            "{:?} is no duration by ISO 8601, such as PT1H30M or P7D (months have no fixed length)",
            shown()
        );
    };
    let is_endless = seconds >= ENDLESS_YEARS * YEAR_S;
    Ok((!is_endless).then_some((seconds * 1000.0).round() as u64))
}

const YEAR_S: f64 = 365.0 * 86_400.0;

fn duration_s(text: &str) -> Option<f64> {
    if text.len() > TEXT_MAX {
        return None;
    }
    let (days, clock) = match text.strip_prefix('P')?.split_once('T') {
        Some((days, clock)) => (days, Some(clock)),
        None => (text.strip_prefix('P')?, None),
    };
    if clock.is_some_and(str::is_empty) || (days.is_empty() && clock.is_none()) {
        return None;
    }
    let of_days = parts_s(days, &[('Y', YEAR_S), ('W', 7.0 * 86_400.0), ('D', 86_400.0)])?;
    let of_clock = parts_s(clock.unwrap_or(""), &[('H', 3_600.0), ('M', 60.0), ('S', 1.0)])?;
    Some(of_days + of_clock)
}

/// Seconds of numbers that are followed by these letters, in this order.
fn parts_s(mut text: &str, units: &[(char, f64)]) -> Option<f64> {
    let mut seconds = 0.0;
    for (letter, worth) in units {
        let Some((number, rest)) = text.split_once(*letter) else { continue };
        let is_number = number.starts_with(|first: char| first.is_ascii_digit())
            && number.ends_with(|last: char| last.is_ascii_digit())
            && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        seconds += is_number.then(|| number.parse::<f64>().ok())?? * worth;
        text = rest;
    }
    text.is_empty().then_some(seconds)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_read_in_their_usual_forms() {
        let times = [
            ("1970-01-01T00:00:00Z", 0),
            ("2018-01-20T12:00Z", 1_516_449_600_000),
            ("2018-04-25T18:07:00.350Z", 1_524_679_620_350),
            ("2000-02-29t23:59:60.5z", 951_868_799_500),
            ("2024-06-01T02:00:00+02:00", 1_717_200_000_000),
            ("2024-05-31 17:00:00.123456-07:00", 1_717_200_000_123),
            ("0001-01-01T00:00:00Z", -62_135_596_800_000),
        ];
        for (text, ms) in times {
            assert_eq!(parse_time(text).unwrap(), ms, "{text}");
        }
        for text in [
            "",
            "2018-01-20",
            "2018-01-20T12:00",
            "2018-02-29T00:00Z",
            "2018-13-01T00:00Z",
            "2018-01-20T24:00Z",
            "x",
            "2018-01-20T12:00:00.Z",
            "2018-01-20T12:00+2:00",
            "２018-01-20T12:00Z",
            "2018-01-20T12:00Zz",
            "+018-01-20T12:00Z",
        ] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_read_in_their_usual_forms() {
        let durations = [
            ("PT1H", Some(3_600_000)),
            ("PT1H30M", Some(5_400_000)),
            ("P7D", Some(604_800_000)),
            ("P1DT12H", Some(129_600_000)),
            ("PT0S", Some(0)),
            ("P0D", Some(0)),
            ("PT0.5S", Some(500)),
            ("P2W", Some(1_209_600_000)),
            ("P9999Y", None),
        ];
        for (text, ms) in durations {
            assert_eq!(parse_duration(text).unwrap(), ms, "{text}");
        }
        for text in
            ["", "P", "PT", "P1M", "1H", "PT1M1H", "PT-1H", "-PT1H", "PTH", "PT1e3S", "P1H", "PT1D", "PT.S", "PT1.S"]
        {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9TZP:.+\\-HMSDYWtz ]{0,40}|\\PC{0,80}") {
            let _ = (parse_time(&text), parse_duration(&text));
        }

        #[test]
        fn every_second_comes_back(seconds in 0_i64..253_402_300_800) {
            let (days, clock) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
            // The inverse by a search for the year and the month: slow, and another algorithm.
            let mut year = 1970;
            let mut left = days;
            let length = |year: i64| if days_of(year, 2) == 29 { 366 } else { 365 };
            while left >= length(year) {
                left -= length(year);
                year += 1;
            }
            let mut month = 1;
            while left >= days_of(year, month) {
                left -= days_of(year, month);
                month += 1;
            }
            let (hour, minute, second) = (clock / 3_600, clock / 60 % 60, clock % 60);
            let text = format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", left + 1);
            prop_assert_eq!(parse_time(&text).unwrap(), seconds * 1000);
        }
    }
}
