//! An expansion chain and the copies on it: the layouts on chains use both beside the view.
//!
//! Placement is online: one metablock at a time, in any order, for several writers. The [`Tally`] keeps it on course to
//! the targets: it says how much each node has of its share so far.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebb_types::{NodeId, Result, bail};

use crate::LayoutKind;
use crate::targets::geared::Grid;
use crate::targets::{Chain, Targets, check_replicas, equal_work, simple};

pub(crate) mod circle;
pub mod halves;

use circle::Circle;

/// Blocks that shares are computed for: enough that rounding leaves no node of a run empty.
const SHARE_BLOCKS: u64 = 1 << 32;

/// A dataset's chain, its shape, and the copies on it.
#[derive(Clone, PartialEq, Debug)]
pub struct ChainView {
    layout: LayoutKind,
    nodes: Arc<[NodeId]>,
    replicas: u32,
    primaries: u32,
    columns: usize,
    places: Arc<BTreeMap<NodeId, usize>>,
    shares: Arc<Shares>,
    /// Copies that are there, and copies that were promised.
    pub tally: Tally,
}

/// The share of each place of a chain.
#[derive(PartialEq, Debug)]
struct Shares {
    /// By copy, then by column of the primary: where such a copy may lie, in order, and how much of the column's
    /// blocks each place should have of it. Empty on the circle.
    runs: Vec<Vec<Vec<(usize, f64)>>>,
    /// By column of the primary: of how much of its blocks each place should have a further copy.
    of_column: Vec<Vec<f64>>,
    /// Of how much of all blocks each place should have a copy.
    of_all: Vec<f64>,
    /// Of the power-balanced layout: which places go together.
    circle: Option<Circle>,
}

impl Shares {
    fn of_chain(targets: &Targets, grid: Option<Grid>) -> Self {
        let columns = grid.map_or(1, |grid| grid.gear_size() as usize);
        let run = |copy: usize, column: usize| {
            let stored = targets.copy(copy);
            let is_in = |place: &usize| match grid {
                Some(grid) if copy > 0 => {
                    let primaries = grid.chain().primaries() as usize;
                    *place >= primaries && (*place - primaries) % columns == (column + copy - 1) % columns
                }
                _ => true,
            };
            let run: Vec<usize> = (0..stored.len()).filter(|place| stored[*place] > 0).filter(is_in).collect();
            let whole: u64 = run.iter().map(|place| stored[*place]).sum();
            run.into_iter().map(|place| (place, stored[place] as f64 / whole.max(1) as f64)).collect::<Vec<_>>()
        };
        let runs: Vec<Vec<_>> =
            (0..targets.copies()).map(|copy| (0..columns).map(|column| run(copy, column)).collect()).collect();
        let nodes = targets.copy(0).len();
        let of_column = |column: usize| {
            let mut shares = vec![0.0; nodes];
            runs[1..].iter().flat_map(|copy| &copy[column]).for_each(|(place, share)| shares[*place] += share);
            shares
        };
        let of_column = (0..columns).map(of_column).collect();
        let of_all = targets.blocks_per_node().into_iter().map(|blocks| blocks as f64 / SHARE_BLOCKS as f64).collect();
        Self { runs, of_column, of_all, circle: None }
    }

    /// Shares that are equal for all nodes.
    fn even(nodes: usize, replicas: u32, circle: Option<Circle>) -> Self {
        let share = f64::from(replicas) / nodes.max(1) as f64;
        Self { runs: Vec::new(), of_column: Vec::new(), of_all: vec![share; nodes], circle }
    }
}

impl ChainView {
    /// A chain with nothing on it. `primaries` and `gear_size` mean nothing to layouts that have none.
    ///
    /// `Invalid`, with the nearest possible value, for a shape that so many nodes cannot have.
    pub fn new(layout: LayoutKind, nodes: Vec<NodeId>, primaries: u32, gear_size: u32, replicas: u32) -> Result<Self> {
        let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        let chain = || Chain::new(count, primaries, replicas);
        let mut grid = None;
        let targets = match layout {
            LayoutKind::Simple => Some(simple::targets(chain()?, SHARE_BLOCKS)?),
            LayoutKind::EqualWork => Some(equal_work::targets(chain()?, SHARE_BLOCKS)?),
            LayoutKind::Geared => Some(grid.insert(Grid::new(chain()?, gear_size)?).targets(SHARE_BLOCKS)?),
            LayoutKind::PowerBalanced | LayoutKind::Lsn | LayoutKind::Random | LayoutKind::Striped => {
                check_replicas(count, replicas)?;
                None
            }
        };
        let circle = (layout == LayoutKind::PowerBalanced).then(|| Circle::new(count, replicas));
        let shares = match &targets {
            Some(targets) => Shares::of_chain(targets, grid),
            None => Shares::even(nodes.len(), replicas, circle),
        };
        let places: BTreeMap<NodeId, usize> = nodes.iter().enumerate().map(|(place, node)| (*node, place)).collect();
        if places.len() != nodes.len() {
            bail!(Invalid, "an expansion chain names a node twice");
        }
        Ok(Self {
            layout,
            nodes: nodes.into(),
            places: Arc::new(places),
            replicas,
            primaries: if targets.is_some() { primaries } else { 0 },
            columns: grid.map_or(1, |grid| grid.gear_size() as usize),
            shares: Arc::new(shares),
            tally: Tally::default(),
        })
    }

    /// No chain: of a layout that places anywhere. It only counts.
    #[must_use]
    pub fn uncharted(layout: LayoutKind, replicas: u32) -> Self {
        Self {
            layout,
            nodes: Arc::default(),
            replicas,
            primaries: 0,
            columns: 1,
            places: Arc::default(),
            shares: Arc::new(Shares::even(0, replicas, None)),
            tally: Tally::default(),
        }
    }

    /// The layout that it is of.
    #[must_use]
    pub const fn layout(&self) -> LayoutKind {
        self.layout
    }

    /// Its nodes, in the order in which they are switched on.
    #[must_use]
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// How many of them are primaries.
    #[must_use]
    pub const fn primaries(&self) -> u32 {
        self.primaries
    }

    /// Copies of each block.
    #[must_use]
    pub const fn replicas(&self) -> u32 {
        self.replicas
    }

    /// Recovery groups; one without gears. The primary at place `i` belongs to column `i mod columns`.
    pub(crate) const fn columns(&self) -> usize {
        self.columns
    }

    /// A node's place in it.
    #[must_use]
    pub fn place_of(&self, node: NodeId) -> Option<usize> {
        self.places.get(&node).copied()
    }

    /// The same chain with `by` in the place of `gone`, and nothing counted, because the count depends on which nodes
    /// are primaries. `Invalid` if `gone` is not on it, or `by` is.
    pub fn replaced(&self, gone: NodeId, by: NodeId) -> Result<Self> {
        let Some(place) = self.place_of(gone).filter(|_| self.place_of(by).is_none()) else {
            bail!(Invalid, "{by} cannot take the place of {gone} on an expansion chain");
        };
        let mut nodes = self.nodes.to_vec();
        nodes[place] = by;
        let places = nodes.iter().enumerate().map(|(place, node)| (*node, place)).collect();
        Ok(Self { nodes: nodes.into(), places: Arc::new(places), tally: Tally::default(), ..self.clone() })
    }

    /// Whether both want copies in the same places, however many each has counted.
    #[must_use]
    pub fn is_shaped_like(&self, other: &Self) -> bool {
        let shape = |chain: &Self| (chain.layout, chain.replicas, chain.primaries, chain.columns);
        shape(self) == shape(other) && self.nodes == other.nodes
    }

    /// Counts a block that is held by these, in the order of its record.
    pub fn add(&mut self, members: &[NodeId]) {
        let (primary, spacing) = (self.primary(members), self.aim(members));
        self.tally.count(primary, spacing, members, 1);
    }

    /// Counts a block that was held by these, and is not any more.
    pub fn remove(&mut self, members: &[NodeId]) {
        let (primary, spacing) = (self.primary(members), self.aim(members));
        self.tally.count(primary, spacing, members, -1);
    }

    /// On the circle, which places go together; none on a chain.
    pub(crate) fn circle(&self) -> Option<&Circle> {
        self.shares.circle.as_ref()
    }

    /// The spacing of the circle that a block is for which is held by these; none on a chain, or off the circle.
    pub(crate) fn aim(&self, members: &[NodeId]) -> Option<usize> {
        self.circle()?.aim(&self.places_of(members))
    }

    /// Whether a node is at a place on the circle that a block is for which is held by `homes`. On a chain: whether it
    /// has a place at all.
    #[must_use]
    pub fn is_due(&self, homes: &[NodeId], node: NodeId) -> bool {
        let Some(place) = self.place_of(node) else { return false };
        let Some(circle) = self.circle() else { return true };
        self.aim(homes).is_none_or(|spacing| circle.has(spacing, place))
    }

    /// Places of those that have one, in the order of the record.
    pub(crate) fn places_of(&self, members: &[NodeId]) -> Vec<usize> {
        members.iter().filter_map(|node| self.place_of(*node)).collect()
    }

    /// The primary that a block belongs to; none if it has lost its copy there.
    fn primary(&self, members: &[NodeId]) -> Option<NodeId> {
        members.iter().copied().find(|node| self.place_of(*node).is_some_and(|place| place < self.primaries as usize))
    }

    /// Share of a primary's blocks of which a place should have a further copy.
    pub(crate) fn share_of_primary(&self, place: usize, primary: usize) -> f64 {
        self.shares.of_column.get(primary % self.columns).map_or(0.0, |shares| shares[place])
    }

    /// Places where copy `copy` of a block may lie whose first copy is on `primary`, in order, and the share of that
    /// primary's blocks that each should have of this copy.
    pub(crate) fn run(&self, copy: usize, primary: usize) -> &[(usize, f64)] {
        self.shares.runs.get(copy).map_or(&[], |columns| &columns[primary % self.columns])
    }

    /// Share of all blocks that a place should have, all copies together.
    pub(crate) fn share(&self, place: usize) -> f64 {
        self.shares.of_all[place]
    }
}

/// How many blocks lie on each node of a chain.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    blocks: u64,
    on: BTreeMap<NodeId, u64>,
    /// Of a primary's blocks, how many have a copy on another node; with the primary itself: all of its own.
    pairs: BTreeMap<(NodeId, NodeId), u64>,
    /// Blocks that are for each spacing of the circle.
    spacings: BTreeMap<usize, u64>,
}

impl Tally {
    /// Blocks that have at least one copy.
    #[must_use]
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Copies of all blocks.
    #[must_use]
    pub fn copies(&self) -> u64 {
        self.on.values().sum()
    }

    /// Copies on a node.
    #[must_use]
    pub fn on(&self, node: NodeId) -> u64 {
        self.on.get(&node).copied().unwrap_or(0)
    }

    /// Blocks of a primary that have a copy on a node.
    #[must_use]
    pub fn pair(&self, primary: NodeId, node: NodeId) -> u64 {
        self.pairs.get(&(primary, node)).copied().unwrap_or(0)
    }

    /// Blocks that are for a spacing of the circle.
    pub(crate) fn for_spacing(&self, spacing: usize) -> u64 {
        self.spacings.get(&spacing).copied().unwrap_or(0)
    }

    fn count(&mut self, primary: Option<NodeId>, spacing: Option<usize>, members: &[NodeId], change: i64) {
        if members.is_empty() {
            return;
        }
        self.blocks = self.blocks.saturating_add_signed(change);
        if let Some(spacing) = spacing {
            add(&mut self.spacings, spacing, change);
        }
        for node in members {
            add(&mut self.on, *node, change);
            if let Some(primary) = primary {
                add(&mut self.pairs, (primary, *node), change);
            }
        }
    }
}

/// Entries that fall to nothing go: a tally is as large as the things that it counts.
fn add<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K, change: i64) {
    let count = counts.entry(key);
    let now = match &count {
        std::collections::btree_map::Entry::Occupied(old) => *old.get(),
        std::collections::btree_map::Entry::Vacant(_) => 0,
    };
    let next = now.saturating_add_signed(change);
    match count {
        std::collections::btree_map::Entry::Occupied(old) if next == 0 => drop(old.remove()),
        entry => *entry.or_insert(0) = next,
    }
}

#[cfg(test)]
mod tests;
