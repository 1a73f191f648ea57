//! Gear size against recovery-group size (Rabbit, Sec. 3.5 and Table 1).
//!
//! With `p` primaries and gear groups of `g` servers, every server of the `i`-th gear group stores `B / (p + g i)`, and
//! the second replica of a primary lies inside one recovery group, a column of that grid. Small gears scale finely and
//! need a long column to hold a whole replica. A failed primary wakes this column.

use std::f64::consts::E;

use ebb_types::{Result, bail};

/// The costs of one gear size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GearChoice {
    /// Primaries: nodes that are always on.
    pub primaries: u32,
    /// Servers that are switched on together.
    pub gear_size: u32,
}

impl GearChoice {
    /// `Invalid` if some server would have no primary to serve: a gear has at most as many servers as there are
    /// primaries.
    pub fn new(primaries: u32, gear_size: u32) -> Result<Self> {
        if primaries == 0 {
            bail!(Invalid, "a layout needs at least one primary; the nearest possible value of primaries is 1");
        }
        if gear_size == 0 {
            bail!(Invalid, "a gear needs at least one server; the nearest possible gear size is 1");
        }
        if gear_size > primaries {
            bail!(
                Invalid,
                "each primary maps to one column of the grid, so {primaries} primaries leave {} of {gear_size} columns \
                 without any; the nearest possible gear size is {primaries}",
                gear_size - primaries
            );
        }
        Ok(Self { primaries, gear_size })
    }

    /// Servers in a recovery group by the paper's formula, `(e (p + g) - p) / g`. (The text prints `e^(p-g)`; only this
    /// reading gives its Table 1, up to e cut to about 2.71.)
    #[must_use]
    pub fn recovery_group_formula(self) -> f64 {
        let (p, g) = (f64::from(self.primaries), f64::from(self.gear_size));
        (E * (p + g) - p) / g
    }

    /// Whole gear groups until one full replica is stored: the smallest `m` with `sum_{i=1..m} g / (p + g i) >= 1`.
    /// This is the real number of gear groups in a recovery group.
    #[must_use]
    pub fn gear_groups(self) -> u32 {
        let (p, g) = (f64::from(self.primaries), f64::from(self.gear_size));
        let mut stored = 0.0;
        let mut groups = 0;
        while stored < 1.0 {
            groups += 1;
            stored += g / (p + g * f64::from(groups));
        }
        groups
    }

    /// Fewest nodes that hold all data after one primary has failed: the others and its recovery group.
    #[must_use]
    pub fn min_active_after_failure(self) -> u32 {
        self.primaries - 1 + self.gear_groups()
    }

    /// Fewest nodes after a failure without gears: a failed primary's data lies on every server of the second replica,
    /// `e p - 1` nodes in all.
    #[must_use]
    pub fn min_active_ungeared(self) -> f64 {
        E * f64::from(self.primaries) - 1.0
    }
}
