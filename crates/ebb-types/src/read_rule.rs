//! Which of the awake replica nodes is asked first for a read.

use std::fmt;
use std::str::FromStr;

/// A read of fewer bytes counts as one of so many, where waiting reads are added up: a disk has work with each.
pub const READ_COST_MIN: u64 = 64 << 10;

/// The rule by which a dataset's reads are spread over the nodes that have the data and stay awake for long enough.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum ReadRule {
    /// The own host; then, of the two nodes that are furthest below their hit ratios, the one where less waits to be
    /// read.
    #[default]
    Balanced,
    /// The own host, then the own rack, then anybody.
    Nearest,
    /// The node where least waits to be read, as far as the reader knows, wherever it is.
    LeastLoaded,
    /// The node that stays awake longest (BlinkFS, Sec. 4.1).
    LongestAwake,
    /// The node that is furthest below the part of its reads that it should serve, so that each of `n` active nodes
    /// serves `B / n` (Rabbit, Sec. 3.2).
    HitRatio,
}

impl ReadRule {
    /// Every rule.
    pub const ALL: [Self; 5] = [Self::Balanced, Self::Nearest, Self::LeastLoaded, Self::LongestAwake, Self::HitRatio];

    /// Its name in a dataset's settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Balanced => "balanced",
            Self::Nearest => "nearest",
            Self::LeastLoaded => "least-loaded",
            Self::LongestAwake => "longest-awake",
            Self::HitRatio => "hit-ratio",
        }
    }

    /// As messages and settings have it; never 0, which stands for a setting that was not made.
    #[must_use]
    pub const fn to_raw(self) -> u32 {
        match self {
            Self::Balanced => 1,
            Self::Nearest => 2,
            Self::LeastLoaded => 3,
            Self::LongestAwake => 4,
            Self::HitRatio => 5,
        }
    }

    /// From a message: the default for 0, nothing for a number that this build does not know.
    #[must_use]
    pub fn from_raw(raw: u32) -> Option<Self> {
        if raw == 0 { Some(Self::default()) } else { Self::ALL.into_iter().find(|rule| rule.to_raw() == raw) }
    }
}

impl fmt::Display for ReadRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ReadRule {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|rule| rule.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name);
            format!("there is no read rule {name:?}; choose one of {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_have_names_and_numbers() {
        for rule in ReadRule::ALL {
            assert_eq!((rule.to_string().parse(), ReadRule::from_raw(rule.to_raw())), (Ok(rule), Some(rule)));
        }
        assert!("random".parse::<ReadRule>().unwrap_err().contains("least-loaded"));
        assert_eq!((ReadRule::from_raw(0), ReadRule::from_raw(6)), (Some(ReadRule::Balanced), None));
    }
}
