//! Sizes and times as people write them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes: `4096`, `512KiB`, `64MiB`, `1G` (powers of 1024), `10MB` (powers of 1000).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(split);
        let number: u64 = digits.parse().map_err(|_| format!("{text:?} does not begin with a whole number"))?;
        let factor: u64 = match unit.trim() {
            "" | "B" => 1,
            "K" | "KiB" => 1 << 10,
            "M" | "MiB" => 1 << 20,
            "G" | "GiB" => 1 << 30,
            "T" | "TiB" => 1 << 40,
            "P" | "PiB" => 1 << 50,
            "kB" | "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "TB" => 1_000_000_000_000,
            "PB" => 1_000_000_000_000_000,
            other => return Err(format!("unknown unit {other:?}: use KiB, MiB, GiB, TiB, PiB or kB, MB, GB, TB, PB")),
        };
        number.checked_mul(factor).map(Self).ok_or_else(|| format!("{text:?} is too large"))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, factor) in [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if self.0 >= factor && self.0.is_multiple_of(factor) {
                return write!(f, "{}{unit}", self.0 / factor);
            }
        }
        write!(f, "{}", self.0)
    }
}

/// A span of time: `2s`, `500ms`, `1min`, `7d`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (digits, unit) = text.split_at(split);
        let number: f64 = digits.parse().map_err(|_| format!("{text:?} does not begin with a number"))?;
        let seconds = match unit.trim() {
            "ms" => number / 1000.0,
            "s" => number,
            "min" => number * 60.0,
            "h" => number * 3600.0,
            "d" => number * 86_400.0,
            "" => return Err(format!("{text:?} has no unit: use ms, s, min, h or d")),
            other => return Err(format!("unknown unit {other:?}: use ms, s, min, h or d")),
        };
        Duration::try_from_secs_f64(seconds).map(Self).map_err(|_| format!("{text:?} is too long"))
    }
}

/// A share of something in whole percent: `25%`, `25`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Percent(pub u32);

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_suffix('%').unwrap_or(text);
        match digits.parse() {
            Ok(percent) if percent <= 100 => Ok(Self(percent)),
            Ok(_) => Err(format!("{text:?} is more than all of it")),
            Err(_) => Err(format!("{text:?} is no share in whole percent, as 25%")),
        }
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_units() {
        assert_eq!("2s".parse(), Ok(Span(Duration::from_secs(2))));
        assert_eq!("1.5min".parse(), Ok(Span(Duration::from_secs(90))));
        assert_eq!("7d".parse(), Ok(Span(Duration::from_secs(604_800))));
        assert!("2".parse::<Span>().unwrap_err().contains("no unit"));
        assert!("2 parsecs".parse::<Span>().is_err() && "s".parse::<Span>().is_err());
    }

    #[test]
    fn shares_are_whole_percent() {
        assert_eq!(("25%".parse(), "0".parse()), (Ok(Percent(25)), Ok(Percent(0))));
        assert!("101%".parse::<Percent>().unwrap_err().contains("more than all"));
        for wrong in ["", "%", "2.5%", "-1", "half"] {
            assert!(wrong.parse::<Percent>().unwrap_err().contains("whole percent"), "{wrong}");
        }
    }

    #[test]
    fn sizes_read_back_as_they_print() {
        for text in ["512KiB", "64MiB", "1GiB", "1000"] {
            assert_eq!(text.parse::<ByteSize>().unwrap().to_string(), text);
        }
        assert_eq!("10MB".parse(), Ok(ByteSize(10_000_000)));
        assert!("64 Mb".parse::<ByteSize>().unwrap_err().contains("unknown unit"));
        assert!("x".parse::<ByteSize>().is_err());
        assert!("99999999999TiB".parse::<ByteSize>().is_err());
    }
}
