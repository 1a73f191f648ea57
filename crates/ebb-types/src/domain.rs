//! What of a RAID set's members must lie apart.

use std::fmt;
use std::str::FromStr;

/// What may be lost with one failure that a RAID set bears.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub enum Domain {
    /// A host: no two members are on one.
    #[default]
    Host,
    /// A volume of one node. All members are on this node, so they are out of reach while it is, and lost with it.
    Volume,
}

impl Domain {
    /// Every domain.
    pub const ALL: [Self; 2] = [Self::Host, Self::Volume];

    /// Its name in a dataset's settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Volume => "volume",
        }
    }

    /// As messages have it. Hosts are 0, as before there was a choice.
    #[must_use]
    pub const fn to_raw(self) -> u32 {
        match self {
            Self::Host => 0,
            Self::Volume => 1,
        }
    }

    /// From a message: nothing for a number that this build does not know.
    #[must_use]
    pub fn from_raw(raw: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|domain| domain.to_raw() == raw)
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Domain {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|domain| domain.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name);
            format!("there is no domain {name:?}; choose one of {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_have_names_and_numbers() {
        for domain in Domain::ALL {
            assert_eq!((domain.to_string().parse(), Domain::from_raw(domain.to_raw())), (Ok(domain), Some(domain)));
        }
        assert!("disk".parse::<Domain>().unwrap_err().contains("volume"));
        assert_eq!((Domain::from_raw(0), Domain::from_raw(2)), (Some(Domain::Host), None));
    }
}
