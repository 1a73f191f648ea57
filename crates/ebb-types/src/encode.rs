//! When a dataset's metablocks go into RAID sets.

use std::fmt;
use std::str::FromStr;

/// A dataset's setting for encoding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub enum Encode {
    /// When they are as old as the dataset's delay, and seldom read: until then the copies serve as a cache.
    #[default]
    Background,
    /// As soon as they are written.
    Immediate,
    /// Not at all. What is encoded stays so.
    Off,
}

impl Encode {
    /// Every setting.
    pub const ALL: [Self; 3] = [Self::Background, Self::Immediate, Self::Off];

    /// Its name in a dataset's settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Background => "background",
            Self::Immediate => "immediate",
            Self::Off => "off",
        }
    }

    /// As messages and settings have it; never 0, which stands for a setting that was not made.
    #[must_use]
    pub const fn to_raw(self) -> u32 {
        match self {
            Self::Background => 1,
            Self::Immediate => 2,
            Self::Off => 3,
        }
    }

    /// From a message: the default for 0, nothing for a number that this build does not know.
    #[must_use]
    pub fn from_raw(raw: u32) -> Option<Self> {
        if raw == 0 { Some(Self::default()) } else { Self::ALL.into_iter().find(|encode| encode.to_raw() == raw) }
    }
}

impl fmt::Display for Encode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Encode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|encode| encode.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name);
            format!("encoding cannot be {name:?}; choose one of {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_names_and_numbers() {
        for encode in Encode::ALL {
            assert_eq!((encode.to_string().parse(), Encode::from_raw(encode.to_raw())), (Ok(encode), Some(encode)));
        }
        assert!("on".parse::<Encode>().unwrap_err().contains("immediate"));
        assert_eq!((Encode::from_raw(0), Encode::from_raw(4)), (Some(Encode::Background), None));
    }
}
