//! The registry of layouts.

use std::fmt;
use std::str::FromStr;

use ebb_types::{Error, NodeClass, err};

use crate::field::Field;
use crate::{Ask, Plan};

mod balanced;
mod chained;
mod lsn;
mod random;
mod striped;

macro_rules! layouts {
    ($($(#[$doc:meta])* $kind:ident = $name:literal, $place:path;)*) => {
        /// A pure rule that places replicas. Parsed from and printed as its name in a dataset's settings.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
        pub enum LayoutKind { $($(#[$doc])* $kind,)* }

        impl LayoutKind {
            /// Every layout.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// Its name in settings and on the command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// Whether it goes by a chain (or a circle) of nodes that was chosen with the dataset.
            #[must_use]
            pub const fn has_chain(self) -> bool {
                !matches!(self, Self::Random | Self::Striped)
            }

            /// Whether some nodes of its chain are primaries.
            #[must_use]
            pub const fn has_primaries(self) -> bool {
                matches!(self, Self::Simple | Self::EqualWork | Self::Geared)
            }

            /// The nodes that a dataset's data lie on unless it names others.
            #[must_use]
            pub const fn usual_nodes(self) -> NodeClass {
                if matches!(self, Self::Lsn) { NodeClass::Lsn } else { NodeClass::Any }
            }

            /// Runs the rule on a field that was found to have enough candidates.
            pub(crate) fn place(self, field: &Field<'_>, ask: &Ask) -> Plan {
                match self { $(Self::$kind => $place(field, ask),)* }
            }
        }
    };
}

// The registry: one line for each layout, with its name and its function.
layouts! {
    /// HDFS's default rule: the writer's host, another rack, that rack again, then anywhere.
    Random = "random", random::place;
    /// Round-robin over all disks, file by file.
    Striped = "striped", striped::place;
    /// On an expansion chain: one copy on the primaries, the others even over the rest.
    Simple = "simple", chained::place;
    /// On an expansion chain: node `i` behind the primaries takes `1 / i`.
    EqualWork = "equal-work", chained::place;
    /// Equal work in gears and recovery groups.
    Geared = "geared", chained::place;
    /// Copies far apart on the circle of nodes.
    PowerBalanced = "power-balanced", balanced::place;
    /// On localized storage nodes: the writer's, disk by disk, and one in the other half.
    Lsn = "lsn", lsn::place;
}

impl fmt::Display for LayoutKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for LayoutKind {
    type Err = Error;

    /// `Invalid`, with the names that there are, for any other name.
    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|kind| kind.name()).collect();
            err!(Invalid, "there is no layout {name:?}; choose one of {}", known.join(", "))
        })
    }
}
