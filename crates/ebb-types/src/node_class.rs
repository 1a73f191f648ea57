//! Which nodes a dataset's data may lie on.

use std::fmt;
use std::str::FromStr;

/// Nodes by what they declare.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub enum NodeClass {
    /// All.
    #[default]
    Any,
    /// Localized storage nodes: those that serve the hosts of a sub-rack.
    Lsn,
    /// All others, with disks of their own.
    Compute,
}

impl NodeClass {
    /// Every class.
    pub const ALL: [Self; 3] = [Self::Any, Self::Lsn, Self::Compute];

    /// Its name in a dataset's settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "any",
            Self::Lsn => "lsn",
            Self::Compute => "compute",
        }
    }

    /// Whether it has a node that is a localized storage node, or is not.
    #[must_use]
    pub const fn has(self, is_lsn: bool) -> bool {
        match self {
            Self::Any => true,
            Self::Lsn => is_lsn,
            Self::Compute => !is_lsn,
        }
    }

    /// As messages and settings have it; never 0, which stands for a setting that was not made.
    #[must_use]
    pub const fn to_raw(self) -> u32 {
        match self {
            Self::Any => 1,
            Self::Lsn => 2,
            Self::Compute => 3,
        }
    }

    /// From a message: the default for 0, nothing for a number that this build does not know.
    #[must_use]
    pub fn from_raw(raw: u32) -> Option<Self> {
        if raw == 0 { Some(Self::default()) } else { Self::ALL.into_iter().find(|class| class.to_raw() == raw) }
    }
}

impl fmt::Display for NodeClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for NodeClass {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|class| class.name() == name).ok_or_else(|| {
            let known = Self::ALL.map(Self::name);
            format!("there are no nodes {name:?}; choose one of {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_names_numbers_and_nodes() {
        for class in NodeClass::ALL {
            assert_eq!((class.to_string().parse(), NodeClass::from_raw(class.to_raw())), (Ok(class), Some(class)));
        }
        assert!("disk".parse::<NodeClass>().unwrap_err().contains("compute"));
        assert_eq!((NodeClass::from_raw(0), NodeClass::from_raw(4)), (Some(NodeClass::Any), None));
        let has = NodeClass::ALL.map(|class| (class.has(true), class.has(false)));
        assert_eq!(has, [(true, true), (true, false), (false, true)]);
    }
}
