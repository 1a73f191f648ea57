//! The part of a sequential reader's next data that is fetched before it asks (metablocks paper, Sec. 3 and G5).

use std::fmt;
use std::str::FromStr;

/// Number of [`Prefetch::Spare`] in messages; one below it is 100 %.
const SPARE: u32 = 102;

/// A dataset's, or a client's, setting for prefetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prefetch {
    /// So many per cent of the full window, up to 100; 0: a block is fetched when a byte of it is asked for.
    Percent(u8),
    /// As much as leaves other traffic alone: nothing while reads take longer than they could.
    Spare,
}

impl Default for Prefetch {
    fn default() -> Self {
        Self::Percent(100)
    }
}

impl Prefetch {
    /// As messages and settings have it; never 0, which stands for a setting that was not made.
    #[must_use]
    pub fn to_raw(self) -> u32 {
        match self {
            Self::Percent(percent) => u32::from(percent.min(100)) + 1,
            Self::Spare => SPARE,
        }
    }

    /// From a message: the default for 0, nothing for a number that this build does not know.
    #[must_use]
    pub fn from_raw(raw: u32) -> Option<Self> {
        match raw {
            0 => Some(Self::default()),
            SPARE => Some(Self::Spare),
            percent => u8::try_from(percent - 1).ok().filter(|percent| *percent <= 100).map(Self::Percent),
        }
    }
}

impl FromStr for Prefetch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent = text.strip_suffix('%').unwrap_or(text).parse().ok().filter(|percent| *percent <= 100);
        match (text, percent) {
            ("spare", _) => Ok(Self::Spare),
            (_, Some(percent)) => Ok(Self::Percent(percent)),
            _ => Err(format!("{text:?} is neither a whole percentage up to 100 nor spare")),
        }
    }
}

impl fmt::Display for Prefetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Spare => f.write_str("spare"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_comes_back_from_its_number_and_from_its_words() {
        for setting in (0..=100).map(Prefetch::Percent).chain([Prefetch::Spare]) {
            assert_ne!(setting.to_raw(), 0, "0 stands for no setting");
            assert_eq!(Prefetch::from_raw(setting.to_raw()), Some(setting));
            assert_eq!(setting.to_string().parse(), Ok(setting));
        }
        assert_eq!(Prefetch::from_raw(0), Some(Prefetch::Percent(100)), "as before there was a setting");
        assert_eq!((Prefetch::from_raw(103), Prefetch::from_raw(u32::MAX)), (None, None));
        assert_eq!("25".parse(), Ok(Prefetch::Percent(25)));
        for wrong in ["", "101", "-1", "2.5", "all", "%"] {
            assert!(wrong.parse::<Prefetch>().is_err(), "{wrong}");
        }
    }
}
