//! The equal-work layout in gears, for power-proportional fault tolerance (Rabbit, Sec. 3.5).
//!
//! The nodes after the primaries stand in a grid: rows are gears, switched on whole; columns are recovery groups. Each
//! primary belongs to one column, and its data's second copy lies in that column alone, spread evenly over the gears:
//! when a primary fails, its column holds all that it had. Further copies move on by one column each, so that a primary
//! and its column do not hold all copies.

use ebb_types::{Result, bail};

use super::{Chain, Targets, check_blocks, index, raise_to, whole_shares};

/// A chain whose nodes after the primaries form gears of equal size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grid {
    chain: Chain,
    gear_size: u32,
}

impl Grid {
    /// `Invalid`, with the nearest gear size or number of nodes that is possible, if the primaries cannot be dealt
    /// evenly to the columns, or the last gear would not be whole.
    pub fn new(chain: Chain, gear_size: u32) -> Result<Self> {
        let primaries = chain.primaries;
        if gear_size == 0 || !primaries.is_multiple_of(gear_size) {
            let divides = (1..=primaries).filter(|size| primaries.is_multiple_of(*size));
            let nearest = divides.min_by_key(|size| size.abs_diff(gear_size)).unwrap_or(1);
            bail!(
                Invalid,
                "gears of {gear_size} nodes: {primaries} primaries cannot be dealt evenly to {gear_size} columns; the \
                 nearest possible gear size is {nearest}"
            );
        }
        let others = chain.nodes - primaries;
        let rest = others % gear_size;
        if rest != 0 {
            let lower = chain.nodes - rest;
            let fits = lower >= primaries * chain.replicas && rest * 2 <= gear_size;
            let nearest = if fits { lower } else { lower + gear_size };
            bail!(
                Invalid,
                "{} nodes leave a gear of {rest} where gears have {gear_size}; the nearest possible number of nodes is \
                 {nearest}",
                chain.nodes
            );
        }
        Ok(Self { chain, gear_size })
    }

    /// The chain.
    #[must_use]
    pub const fn chain(self) -> Chain {
        self.chain
    }

    /// Nodes in a gear; columns of the grid.
    #[must_use]
    pub const fn gear_size(self) -> u32 {
        self.gear_size
    }

    /// Gears in the chain.
    #[must_use]
    pub const fn gears(self) -> u32 {
        (self.chain.nodes - self.chain.primaries) / self.gear_size
    }

    /// Gears that hold the second copy: the length of a recovery group.
    #[must_use]
    pub fn recovery_group(self) -> u32 {
        let mut stored = 0.0;
        let shares = self.gear_shares();
        let full = shares.iter().position(|share| {
            stored += share * f64::from(self.gear_size);
            stored >= 1.0 - 1e-9
        });
        full.map_or(0, |gear| u32::try_from(gear + 1).expect("a gear has a number"))
    }

    /// Column of a primary.
    #[must_use]
    pub const fn column(self, primary: u32) -> u32 {
        primary % self.gear_size
    }

    /// Place in the chain of the node in this gear and column, both from 0.
    #[must_use]
    pub fn node(self, gear: u32, column: u32) -> usize {
        index(self.chain.primaries + gear * self.gear_size + column)
    }

    /// The store of each node of each gear, as a share of the dataset.
    fn gear_shares(self) -> Vec<f64> {
        let (primaries, size) = (f64::from(self.chain.primaries), f64::from(self.gear_size));
        let wanted = f64::from(self.chain.replicas - 1) / size;
        let mut stored = 0.0_f64;
        let share = |gear: u32| {
            let share = (1.0 / (primaries + size * f64::from(gear + 1))).min(wanted - stored).max(0.0);
            stored += share;
            share
        };
        let mut shares: Vec<f64> = (0..self.gears()).map(share).collect();
        if stored < wanted - 1e-9 {
            raise_to(&mut shares, wanted);
        }
        shares
    }

    /// The store of each node, as a share of the dataset.
    #[must_use]
    pub fn shares(self) -> Vec<f64> {
        let primary = 1.0 / f64::from(self.chain.primaries);
        let gears = self.gear_shares().into_iter().flat_map(|share| vec![share; index(self.gear_size)]);
        vec![primary; index(self.chain.primaries)].into_iter().chain(gears).collect()
    }

    /// Blocks of each copy on each node.
    pub fn targets(self, blocks: u64) -> Result<Targets> {
        check_blocks(blocks)?;
        let nodes = index(self.chain.nodes);
        let mut copies = vec![vec![0; nodes]; index(self.chain.replicas)];
        copies[0][..index(self.chain.primaries)]
            .copy_from_slice(&whole_shares(blocks, &vec![1.0; index(self.chain.primaries)]));
        let shares = self.gear_shares();
        for column in 0..self.gear_size {
            self.fill_column(&mut copies, column, &shares);
        }
        Ok(Targets { copies })
    }

    /// Copies 1, 2, ... one after the other down the column, each of the primaries whose turn it is there.
    fn fill_column(self, copies: &mut [Vec<u64>], column: u32, shares: &[f64]) {
        let due: Vec<u64> = (1..self.chain.replicas).map(|copy| self.due(&copies[0], column, copy)).collect();
        let total: u64 = due.iter().sum();
        if total == 0 {
            return;
        }
        let mut room = whole_shares(total, shares).into_iter().enumerate();
        let (mut gear, mut left) = (0, 0);
        for (copy, mut blocks) in due.into_iter().enumerate() {
            while blocks > 0 {
                if left == 0 {
                    (gear, left) = room.next().expect("the rooms make up the total");
                    continue;
                }
                let part = blocks.min(left);
                let gear = u32::try_from(gear).expect("a gear has a number");
                copies[copy + 1][self.node(gear, column)] += part;
                blocks -= part;
                left -= part;
            }
        }
    }

    /// Blocks of copy `copy` that belong into a column: those of its primaries, the columns moved on by one for each
    /// copy after the second.
    fn due(self, first: &[u64], column: u32, copy: u32) -> u64 {
        let source = self.source_column(column, copy);
        (0..self.chain.primaries)
            .filter(|primary| self.column(*primary) == source)
            .map(|primary| first[index(primary)])
            .sum()
    }

    /// The column whose primaries' copy `copy` (1 is the second) lies in `column`.
    #[must_use]
    pub const fn source_column(self, column: u32, copy: u32) -> u32 {
        (column + self.gear_size - (copy - 1) % self.gear_size) % self.gear_size
    }
}
