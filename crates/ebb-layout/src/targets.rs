//! How much each node of an expansion chain should store: the targets of the power-proportional layouts.
//!
//! A chain is a dataset's nodes in the order in which they are switched on (Amur et al., *Robust and Flexible
//! Power-Proportional Storage*, CMU-PDL-10-106, Sec. 3.1). Its first nodes, the primaries, share one copy of
//! everything; every further copy fills the next run of nodes, so that copies lie on disjoint runs but for the node
//! where one ends and the next begins. The layouts differ only in how much each of the further nodes takes:
//!
//! | layout | node `i > p` takes |
//! |---|---|
//! | [`simple`] | `B (r - 1) / (N - p)` |
//! | [`equal_work`] | `B / i`, until `r` copies are stored |
//! | [`geared`] | `B / (p + g k)` in the `k`-th gear of `g` nodes |
//!
//! [`ring`] is the power-balanced layout, which has no chain: all nodes take the same, at distances that keep copies
//! of one block awake at different times.

use ebb_types::{Result, bail};

pub mod equal_work;
pub mod geared;
pub mod ring;
pub mod simple;
#[cfg(test)]
mod tests;

/// Most copies that a chain can be asked for: the spread grows with `e^(r-1)`, so more never fill any chain.
pub const MAX_REPLICAS: u32 = 16;

/// The shape of a chain: how many nodes, how many of them primaries, how many copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chain {
    nodes: u32,
    primaries: u32,
    replicas: u32,
}

impl Chain {
    /// A chain that can hold its copies.
    ///
    /// `Invalid`, with the nearest value that is possible, if there is no copy or no primary, or if `replicas` copies do
    /// not fit on the nodes without some later node storing more than a primary.
    pub fn new(nodes: u32, primaries: u32, replicas: u32) -> Result<Self> {
        check_replicas(nodes, replicas)?;
        if primaries == 0 {
            bail!(Invalid, "0 primaries store nothing; the nearest possible number of primaries is 1");
        }
        let most = nodes / replicas;
        if primaries > most {
            bail!(
                Invalid,
                "{primaries} primaries with {replicas} copies need at least {} nodes, or later nodes would store more than \
                 primaries, and there are {nodes}; the nearest possible number of primaries is {most}",
                u64::from(primaries) * u64::from(replicas)
            );
        }
        Ok(Self { nodes, primaries, replicas })
    }

    /// Nodes in the chain.
    #[must_use]
    pub const fn nodes(self) -> u32 {
        self.nodes
    }

    /// Nodes that hold one copy of everything and are on whenever the dataset is.
    #[must_use]
    pub const fn primaries(self) -> u32 {
        self.primaries
    }

    /// Copies of each block, the primaries' included.
    #[must_use]
    pub const fn replicas(self) -> u32 {
        self.replicas
    }
}

/// Refuses a number of copies that `nodes` nodes cannot hold on distinct nodes.
pub fn check_replicas(nodes: u32, replicas: u32) -> Result<()> {
    if replicas == 0 {
        bail!(Invalid, "0 copies store nothing; the nearest possible number of copies is 1");
    }
    if nodes == 0 {
        bail!(Invalid, "0 nodes store nothing; the nearest possible number of nodes is {replicas}");
    }
    let most = nodes.min(MAX_REPLICAS);
    if replicas > most {
        let why = if nodes < replicas { "no node may hold a block twice" } else { "more copies fill no chain" };
        bail!(Invalid, "{replicas} copies on {nodes} nodes: {why}; the nearest possible number of copies is {most}");
    }
    Ok(())
}

/// Blocks of each copy on each node of a chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Targets {
    copies: Vec<Vec<u64>>,
}

impl Targets {
    /// Blocks of copy `copy` (0 is the primaries') on each node, in the order of the chain.
    ///
    /// # Panics
    /// If there are not so many copies.
    #[must_use]
    pub fn copy(&self, copy: usize) -> &[u64] {
        &self.copies[copy]
    }

    /// Number of copies.
    #[must_use]
    pub fn copies(&self) -> usize {
        self.copies.len()
    }

    /// Blocks on each node, all copies together.
    #[must_use]
    pub fn blocks_per_node(&self) -> Vec<u64> {
        let nodes = self.copies.first().map_or(0, Vec::len);
        (0..nodes).map(|node| self.copies.iter().map(|copy| copy[node]).sum()).collect()
    }

    /// Cuts the totals of the nodes after the primaries into runs of `blocks` each.
    fn from_totals(chain: Chain, blocks: u64, totals: &[u64]) -> Self {
        let primaries = index(chain.primaries);
        let nodes = index(chain.nodes);
        let mut first = vec![0; nodes];
        first[..primaries].copy_from_slice(&whole_shares(blocks, &vec![1.0; primaries]));
        let mut copies = vec![first];
        let mut run = vec![0; nodes];
        let mut stored = 0;
        for (offset, total) in totals.iter().enumerate() {
            let mut left = *total;
            while left > 0 {
                let part = left.min(blocks - stored);
                run[primaries + offset] += part;
                stored += part;
                left -= part;
                if stored == blocks {
                    copies.push(std::mem::replace(&mut run, vec![0; nodes]));
                    stored = 0;
                }
            }
        }
        copies.resize(index(chain.replicas), vec![0; nodes]);
        Self { copies }
    }
}

/// `total` in whole parts that are proportional to `weights`, each less than one off. The first parts get one more each
/// from the remainder of the rounding, so that shares that never grow along the chain still do not.
pub(crate) fn whole_shares(total: u64, weights: &[f64]) -> Vec<u64> {
    let sum: f64 = weights.iter().sum();
    let ideal = weights.iter().map(|weight| weight / sum * total as f64);
    let mut shares: Vec<u64> = ideal.map(|share| (share + 1e-9).floor() as u64).collect();
    let stored: u64 = shares.iter().sum();
    let used = weights.iter().filter(|weight| **weight > 0.0).count() as u64;
    let missing = total.saturating_sub(stored);
    assert!(missing <= used, "rounding takes less than one from each");
    shares.iter_mut().take(usize::try_from(missing).expect("not more than there are")).for_each(|share| *share += 1);
    let excess = usize::try_from(stored.saturating_sub(total)).expect("not more than there are");
    shares.iter_mut().rev().filter(|share| **share > 0).take(excess).for_each(|share| *share -= 1);
    shares
}

/// Raises all weights below some level to it, so that their sum becomes `sum`; they must not sum to more.
///
/// A chain that is cut before its spread cannot store all copies at `B / i`; the remaining copies go to the nodes that
/// hold least, which keeps every inequality that the layout needs (`b_i >= B / n` for `i <= n`).
pub(crate) fn raise_to(weights: &mut [f64], sum: f64) {
    // The level is found on the ends of ever longer tails: weights never grow.
    let mut tail = 0.0;
    for start in (0..weights.len()).rev() {
        tail += weights[start];
        let missing = sum - weights.iter().sum::<f64>();
        let level = (tail + missing) / (weights.len() - start) as f64;
        if start == 0 || level <= weights[start - 1] {
            weights[start..].fill(level);
            return;
        }
    }
}

pub(crate) fn index(count: u32) -> usize {
    usize::try_from(count).expect("32 bits fit in a usize")
}

/// The same number of blocks on every node, as random placement has on average.
pub fn even(nodes: u32, replicas: u32, blocks: u64) -> Result<Vec<u64>> {
    check_replicas(nodes, replicas)?;
    check_blocks(blocks)?;
    Ok(whole_shares(blocks * u64::from(replicas), &vec![1.0; index(nodes)]))
}

/// Most blocks of one dataset that targets are computed for: shares stay exact to less than a block.
pub const MAX_BLOCKS: u64 = 1 << 40;

pub(crate) fn check_blocks(blocks: u64) -> Result<()> {
    if !(1..=MAX_BLOCKS).contains(&blocks) {
        let nearest = blocks.clamp(1, MAX_BLOCKS);
        bail!(
            Invalid,
            "a dataset has 1 to {MAX_BLOCKS} blocks, not {blocks}; the nearest possible number is {nearest}"
        );
    }
    Ok(())
}
