//! Performance of a layout at every number of active nodes.
//!
//! Two ways of counting, side by side: [`fluid`] takes each node's share of the dataset as a quantity that can be split
//! at will, as the papers' formulas do; [`placement`] lays real blocks on nodes and [`balance`] assigns every block of
//! a full read to one of its active holders, greedily or optimally.

pub mod balance;
pub mod fluid;
pub mod placement;
pub mod sweep;

use std::fmt;
use std::str::FromStr;

pub use ebb_layout::targets::check_replicas;
use ebb_layout::targets::geared::Grid;
use ebb_layout::targets::{self, Chain, equal_work, ring, simple};
use ebb_types::{Error, Result, bail, err};

/// A layout that can be planned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Layout {
    /// Primaries, and the other copies even over the rest.
    Simple,
    /// `B / i` on the `i`-th node.
    EqualWork,
    /// Equal work in gears and recovery groups.
    Geared,
    /// HDFS's rule: copies anywhere.
    Random,
    /// BlinkFS's circle.
    PowerBalanced,
}

impl Layout {
    /// Every layout.
    pub const ALL: [Self; 5] = [Self::Simple, Self::EqualWork, Self::Geared, Self::Random, Self::PowerBalanced];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::EqualWork => "equal-work",
            Self::Geared => "geared",
            Self::Random => "random",
            Self::PowerBalanced => "power-balanced",
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Layout {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|layout| layout.name() == name).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|layout| layout.name()).collect();
            err!(Invalid, "there is no layout {name:?} to plan; choose one of {}", known.join(", "))
        })
    }
}

/// A layout with its numbers, found to be possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    layout: Layout,
    nodes: u32,
    primaries: u32,
    replicas: u32,
    blocks: u64,
    grid: Option<Grid>,
}

/// Numbers of a layout before the check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The layout.
    pub layout: Layout,
    /// Nodes.
    pub nodes: u32,
    /// Nodes with the first copy. It has no effect on random and power-balanced placement.
    pub primaries: u32,
    /// Copies of each block.
    pub replicas: u32,
    /// Blocks of the dataset.
    pub blocks: u64,
    /// Servers in a gear, for the geared layout.
    pub gear_size: u32,
}

/// Most nodes that are planned for.
pub const MAX_NODES: u32 = 10_000;

impl Setting {
    /// Checks the numbers. `Invalid`, with the nearest possible value, for an impossible layout.
    pub fn new(ask: Ask) -> Result<Self> {
        if ask.nodes > MAX_NODES {
            bail!(
                Invalid,
                "{} nodes are more than are planned for; the nearest possible number is {MAX_NODES}",
                ask.nodes
            );
        }
        let setting = |primaries, grid| Self {
            layout: ask.layout,
            nodes: ask.nodes,
            primaries,
            replicas: ask.replicas,
            blocks: ask.blocks,
            grid,
        };
        targets::even(ask.nodes, ask.replicas, ask.blocks)?;
        match ask.layout {
            Layout::Random | Layout::PowerBalanced => Ok(setting(0, None)),
            Layout::Simple | Layout::EqualWork => {
                Ok(setting(Chain::new(ask.nodes, ask.primaries, ask.replicas)?.primaries(), None))
            }
            Layout::Geared => {
                let chain = Chain::new(ask.nodes, ask.primaries, ask.replicas)?;
                Ok(setting(chain.primaries(), Some(Grid::new(chain, ask.gear_size)?)))
            }
        }
    }

    /// The layout.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// Nodes.
    #[must_use]
    pub const fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Primaries; 0 if the layout has none.
    #[must_use]
    pub const fn primaries(&self) -> u32 {
        self.primaries
    }

    /// Copies of each block.
    #[must_use]
    pub const fn replicas(&self) -> u32 {
        self.replicas
    }

    /// Blocks of the dataset.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The grid of the geared layout.
    #[must_use]
    pub const fn grid(&self) -> Option<Grid> {
        self.grid
    }

    /// The chain, if the layout has one.
    pub(crate) fn chain(&self) -> Option<Chain> {
        (self.primaries > 0).then(|| {
            Chain::new(self.nodes, self.primaries, self.replicas).expect("the setting was found to be possible")
        })
    }

    /// Nodes over which the dataset reaches when the chain is long enough.
    #[must_use]
    pub fn spread(&self) -> u64 {
        match (self.layout, self.grid) {
            (Layout::EqualWork, _) => equal_work::spread(self.primaries, self.replicas),
            (Layout::Geared, Some(grid)) => geared_spread(grid),
            _ => u64::from(self.nodes),
        }
    }

    /// Fewest active nodes with which every block is certainly readable.
    #[must_use]
    pub fn min_active(&self) -> u32 {
        match self.layout {
            Layout::Simple | Layout::EqualWork | Layout::Geared => self.primaries,
            Layout::Random => self.nodes - self.replicas + 1,
            Layout::PowerBalanced => ring::widest_gap(self.nodes, &ring::evenly(self.nodes, self.replicas, 0)),
        }
    }

    /// Fewest active nodes after one primary has failed: without gears all nodes of the second copy must be on, with
    /// gears one recovery group. `None` if no copy but those of the failed node exists.
    #[must_use]
    pub fn min_active_after_failure(&self) -> Option<u32> {
        if self.replicas < 2 {
            return None;
        }
        let targets = match (self.grid, self.chain()) {
            (Some(grid), _) => return Some(self.primaries - 1 + grid.recovery_group()),
            (None, Some(chain)) if self.layout == Layout::Simple => simple::targets(chain, self.blocks),
            (None, Some(chain)) => equal_work::targets(chain, self.blocks),
            (None, None) => return Some(self.min_active()),
        };
        let second =
            targets.expect("the setting was found to be possible").copy(1).iter().filter(|held| **held > 0).count();
        Some(self.primaries - 1 + u32::try_from(second).expect("not more than the nodes"))
    }

    /// Blocks on each node, in the order of the chain or circle.
    #[must_use]
    pub fn blocks_per_node(&self) -> Vec<u64> {
        let made = match (self.grid, self.chain()) {
            (Some(grid), _) => grid.targets(self.blocks).map(|targets| targets.blocks_per_node()),
            (None, Some(chain)) if self.layout == Layout::Simple => {
                simple::targets(chain, self.blocks).map(|targets| targets.blocks_per_node())
            }
            (None, Some(chain)) => equal_work::targets(chain, self.blocks).map(|targets| targets.blocks_per_node()),
            (None, None) => targets::even(self.nodes, self.replicas, self.blocks),
        };
        made.expect("the setting was found to be possible")
    }
}

fn geared_spread(grid: Grid) -> u64 {
    let (primaries, size) = (f64::from(grid.chain().primaries()), f64::from(grid.gear_size()));
    let wanted = f64::from(grid.chain().replicas() - 1);
    let (mut stored, mut gears) = (0.0, 0_u64);
    while stored < wanted - 1e-9 && gears < u64::from(MAX_NODES) {
        gears += 1;
        stored += size / (primaries + size * gears as f64);
    }
    u64::from(grid.chain().primaries()) + gears * u64::from(grid.gear_size())
}

#[cfg(test)]
mod tests;
