//! Datasets on expansion chains: the nodes that must be on, and the order of the others.
//!
//! A dataset's nodes are switched on in the order of its chain (Rabbit, Sec. 3.1). The amount on each node is in
//! `ebb_layout::targets`. This module has the consequences for power: the nodes that together hold everything (the
//! *cover*), the stages in which further ones come, and the chain that a new dataset gets.

use std::collections::{BTreeMap, BTreeSet};

use ebb_layout::LayoutKind;
use ebb_layout::chain::halves::Half;
use ebb_layout::targets::geared::Grid;
use ebb_layout::targets::{Chain, Targets, check_replicas, equal_work, simple};
use ebb_types::{DatasetId, NodeId, Result, bail};

pub mod coded;
mod holders;
mod ring;
mod strays;
#[cfg(test)]
mod tests;

use coded::Coded;
use strays::Stray;
pub use strays::set_strays;

/// Placement of a dataset's copies on its chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChainShape {
    /// On any distinct nodes (`random`, `striped`).
    Anywhere,
    /// One copy on the primaries, the others even over the rest.
    Simple,
    /// Node `i` behind the primaries stores `B / i`.
    EqualWork,
    /// Equal work, by gears of so many nodes. A gear is switched on as a whole.
    Geared {
        /// Nodes of a gear.
        gear_size: u32,
    },
    /// At equal distances on the circle of nodes (`power-balanced`).
    Ring,
    /// A copy in each half of the localized storage nodes (`lsn`).
    Halves,
}

impl ChainShape {
    /// The shape for a layout. `gear_size` has no effect on layouts without gears.
    #[must_use]
    pub const fn of(layout: LayoutKind, gear_size: u32) -> Self {
        match layout {
            LayoutKind::Random | LayoutKind::Striped => Self::Anywhere,
            LayoutKind::Simple => Self::Simple,
            LayoutKind::EqualWork => Self::EqualWork,
            LayoutKind::Geared => Self::Geared { gear_size },
            LayoutKind::PowerBalanced => Self::Ring,
            LayoutKind::Lsn => Self::Halves,
        }
    }
}

/// A dataset as the power manager sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct DatasetChain {
    /// The dataset.
    pub dataset: DatasetId,
    /// Weight of its claim to nodes that several datasets could use.
    pub weight: f64,
    /// Wanted number of active nodes. `None`: as many as the power allows.
    pub wanted_active: Option<u32>,
    nodes: Vec<NodeId>,
    shape: ChainShape,
    primaries: u32,
    replicas: u32,
    /// Blocks that lie elsewhere than the shape says; see [`set_strays`].
    strays: Vec<Stray>,
    /// RAID sets on its nodes; see [`set_strays`].
    coded: Vec<Coded>,
}

impl DatasetChain {
    /// A dataset over these nodes, in the order in which they are switched on. `primaries` has no effect on `Anywhere`
    /// and `Ring`.
    ///
    /// `Invalid`, with the nearest possible value, for a shape that the nodes cannot have.
    pub fn new(
        dataset: DatasetId,
        nodes: Vec<NodeId>,
        shape: ChainShape,
        primaries: u32,
        replicas: u32,
    ) -> Result<Self> {
        let distinct: BTreeSet<NodeId> = nodes.iter().copied().collect();
        if distinct.len() != nodes.len() {
            bail!(Invalid, "{dataset}: its expansion chain names a node twice");
        }
        let (wanted_active, strays, coded) = (None, Vec::new(), Vec::new());
        let chain = Self { dataset, weight: 1.0, wanted_active, nodes, shape, primaries, replicas, strays, coded };
        match shape {
            ChainShape::Anywhere | ChainShape::Ring | ChainShape::Halves => check_replicas(chain.count(), replicas)?,
            ChainShape::Simple | ChainShape::EqualWork => drop(chain.chain()?),
            ChainShape::Geared { gear_size } => drop(Grid::new(chain.chain()?, gear_size)?),
        }
        Ok(chain)
    }

    fn chain(&self) -> Result<Chain> {
        Chain::new(self.count(), self.primaries, self.replicas)
    }

    fn count(&self) -> u32 {
        u32::try_from(self.nodes.len()).expect("a cluster has fewer than 2^32 nodes")
    }

    /// RAID sets on its nodes.
    #[must_use]
    pub fn coded(&self) -> &[Coded] {
        &self.coded
    }

    /// Its nodes in order.
    #[must_use]
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Copies of each block.
    #[must_use]
    pub const fn replicas(&self) -> u32 {
        self.replicas
    }

    /// First nodes of the chain, which share one copy of everything. Without effect on `Anywhere` and `Ring`.
    #[must_use]
    pub const fn primaries(&self) -> u32 {
        self.primaries
    }

    /// Placement of its copies.
    #[must_use]
    pub const fn shape(&self) -> ChainShape {
        self.shape
    }

    /// Least number of active nodes with which all data can be read, without failures (Rabbit's floor).
    #[must_use]
    pub fn min_active(&self) -> u32 {
        u32::try_from(self.cover(&BTreeSet::new()).len()).expect("not more than the nodes")
    }

    /// Number of nodes with copies.
    #[must_use]
    pub fn spread(&self) -> u32 {
        match self.shape {
            ChainShape::EqualWork => {
                let spread = equal_work::spread(self.primaries, self.replicas);
                u32::try_from(spread).unwrap_or(u32::MAX).min(self.count())
            }
            _ => self.count(),
        }
    }

    /// Blocks that each node should store, out of `blocks`, counting all copies; in the order of the chain.
    pub fn target(&self, blocks: u64) -> Result<Vec<u64>> {
        match self.targets(blocks)? {
            Some(targets) => Ok(targets.blocks_per_node()),
            None => ebb_layout::targets::even(self.count(), self.replicas, blocks),
        }
    }

    fn targets(&self, blocks: u64) -> Result<Option<Targets>> {
        Ok(Some(match self.shape {
            ChainShape::Anywhere | ChainShape::Ring | ChainShape::Halves => return Ok(None),
            ChainShape::Simple => simple::targets(self.chain()?, blocks)?,
            ChainShape::EqualWork => equal_work::targets(self.chain()?, blocks)?,
            ChainShape::Geared { gear_size } => Grid::new(self.chain()?, gear_size)?.targets(blocks)?,
        }))
    }

    /// Nodes that must be on so that all data can be read, given these dead nodes; in the order of the chain.
    ///
    /// For a chain these are the primaries, and for each dead primary the nodes with its second copies. With gears that
    /// is its recovery group, without gears all nodes with second copies (Rabbit, Sec. 3.5). If one of those is dead
    /// too, the nodes with the third copies are added, and so on. Data without a living copy adds no node.
    ///
    /// On the circle these are neighbours: `ceil(N / r)` of `N` nodes for `r` copies, if all live. Of localized storage nodes it is
    /// one half.
    ///
    /// Blocks that lie elsewhere, and RAID sets, add nodes ([`set_strays`]).
    #[must_use]
    pub fn cover(&self, dead: &BTreeSet<NodeId>) -> Vec<NodeId> {
        let places: BTreeSet<usize> = match self.shape {
            ChainShape::Anywhere => self.cover_anywhere(dead),
            ChainShape::Ring => self.cover_ring(dead),
            ChainShape::Halves => self.cover_halves(dead),
            ChainShape::Simple | ChainShape::EqualWork => self.cover_runs(dead),
            ChainShape::Geared { gear_size } => self.cover_gears(dead, gear_size),
        };
        let mut cover: BTreeSet<NodeId> =
            places.into_iter().map(|place| self.nodes[place]).filter(|node| !dead.contains(node)).collect();
        strays::add_for(self, dead, &mut cover);
        self.nodes.iter().copied().filter(|node| cover.contains(node)).collect()
    }

    /// Share of the time in which a block has an awake copy, if `at_once` of `turns` are awake at any instant,
    /// neighbours, one after the other. `at_once` is the mean number, which need not be whole. `turns` names all nodes
    /// that blink, in blink order, dead ones left out.
    ///
    /// Exact for the circle. For other shapes as if copies lay anywhere: `1 - C(n - k, r) / C(n, r)`.
    #[must_use]
    pub fn awake_share(&self, turns: &[NodeId], at_once: f64) -> f64 {
        if self.shape == ChainShape::Ring {
            return ring::awake_share(&ring::spacings(self.count(), self.replicas), &self.nodes, turns, at_once);
        }
        let count = turns.len() as f64;
        let asleep = |copy: u32| {
            let copy = f64::from(copy);
            (count - at_once - copy).max(0.0) / (count - copy).max(1.0)
        };
        1.0 - (0..self.replicas).map(asleep).product::<f64>()
    }

    /// The nodes other than the largest set that can be off, with the dead ones, and still leave a copy of every block.
    fn cover_anywhere(&self, dead: &BTreeSet<NodeId>) -> BTreeSet<usize> {
        let alive: Vec<usize> = (0..self.nodes.len()).filter(|place| !dead.contains(&self.nodes[*place])).collect();
        let gone = self.nodes.len() - alive.len();
        let spare = (self.replicas as usize - 1).saturating_sub(gone);
        let on = alive.len() - spare.min(alive.len());
        alive.into_iter().take(on).collect()
    }

    fn cover_ring(&self, dead: &BTreeSet<NodeId>) -> BTreeSet<usize> {
        let spacings = ring::spacings(self.count(), self.replicas);
        ring::cover(self.nodes.len(), &spacings, |place| !dead.contains(&self.nodes[place]))
    }

    /// The first half without a dead node. If both have one, all nodes: a block may have its other copy on any of them.
    fn cover_halves(&self, dead: &BTreeSet<NodeId>) -> BTreeSet<usize> {
        let count = self.nodes.len();
        let places = |half: Half| (0..count).filter(move |place| half.has(*place, count));
        let is_whole = |half: &Half| places(*half).all(|place| !dead.contains(&self.nodes[place]));
        match Half::ALL.into_iter().find(is_whole).filter(|_| self.replicas > 1) {
            Some(half) => places(half).collect(),
            None => (0..count).collect(),
        }
    }

    fn cover_runs(&self, dead: &BTreeSet<NodeId>) -> BTreeSet<usize> {
        let targets = self.shares();
        let mut cover = BTreeSet::new();
        for copy in 0..targets.copies() {
            let run: Vec<usize> = holding(&targets, copy).collect();
            let lost = run.iter().any(|place| dead.contains(&self.nodes[*place]));
            cover.extend(run);
            if !lost {
                return cover;
            }
        }
        cover
    }

    fn cover_gears(&self, dead: &BTreeSet<NodeId>, gear_size: u32) -> BTreeSet<usize> {
        let chain = self.chain().expect("checked when it was made");
        let grid = Grid::new(chain, gear_size).expect("checked when it was made");
        let targets = self.shares();
        let is_dead = |place: usize| dead.contains(&self.nodes[place]);
        let mut cover: BTreeSet<usize> = (0..self.primaries as usize).collect();
        for primary in (0..self.primaries).filter(|primary| is_dead(*primary as usize)) {
            for copy in 1..self.replicas {
                let column = (grid.column(primary) + copy - 1) % gear_size;
                let places = (0..grid.gears()).map(|gear| grid.node(gear, column));
                let group: Vec<usize> = places.filter(|place| targets.copy(copy as usize)[*place] > 0).collect();
                let lost = group.iter().any(|place| is_dead(*place));
                cover.extend(group);
                if !lost {
                    break;
                }
            }
        }
        cover
    }

    fn shares(&self) -> Targets {
        // Many blocks, so that rounding leaves no node of a run empty.
        self.targets(1 << 32).ok().flatten().expect("checked when it was made, and has a chain")
    }

    /// Nodes in the order in which they are switched on: the cover first, then one at a time or one gear at a time.
    /// Dead nodes are left out, and so are nodes beyond the wanted number.
    #[must_use]
    pub fn stages(&self, dead: &BTreeSet<NodeId>) -> Vec<Vec<NodeId>> {
        let cover = self.cover(dead);
        let mut on: BTreeSet<NodeId> = cover.iter().copied().collect();
        let mut stages = vec![cover];
        let size = match self.shape {
            ChainShape::Geared { gear_size } => gear_size as usize,
            _ => 1,
        };
        let primaries = match self.shape {
            ChainShape::Geared { .. } => self.primaries as usize,
            _ => 0,
        };
        let most = self.wanted_active.map_or(usize::MAX, |wanted| wanted as usize);
        for gear in self.nodes[primaries..].chunks(size) {
            let more: Vec<NodeId> =
                gear.iter().copied().filter(|node| !dead.contains(node) && !on.contains(node)).collect();
            if on.len() + more.len() > most {
                break;
            }
            if !more.is_empty() {
                on.extend(&more);
                stages.push(more);
            }
        }
        stages
    }

    /// Rows of neighbours on the circle, each with a copy of nearly everything, from the cover on. Dead nodes are left out.
    /// None on a chain, where nodes come one by one or in gears.
    #[must_use]
    pub fn rows(&self, dead: &BTreeSet<NodeId>) -> Vec<Vec<NodeId>> {
        if self.shape != ChainShape::Ring {
            return Vec::new();
        }
        let cover = self.cover(dead);
        let first = self.nodes.iter().position(|node| cover.contains(node)).unwrap_or(0);
        let around = self.nodes[first..].iter().chain(&self.nodes[..first]).copied();
        let living: Vec<NodeId> = around.filter(|node| !dead.contains(node)).collect();
        living.chunks(self.nodes.len().div_ceil(self.replicas as usize)).map(<[NodeId]>::to_vec).collect()
    }

    /// Sets the wanted number of active nodes. `None`: as many as the power allows. Returns the resulting number, which
    /// may be lower because gears are switched on as a whole.
    ///
    /// `Invalid`, with the possible numbers, for a number below the cover, or above the number of nodes.
    pub fn set_wanted(&mut self, wanted: Option<u32>) -> Result<u32> {
        let (least, most) = (self.min_active(), self.count());
        if let Some(wanted) = wanted.filter(|wanted| !(least..=most).contains(wanted)) {
            bail!(
                Invalid,
                "{least} to {most} nodes can be active; {wanted} {} too {}",
                if wanted == 1 { "is" } else { "are" },
                if wanted < least { "few to hold everything" } else { "many: the expansion chain has no more" }
            );
        }
        self.wanted_active = wanted;
        let active: usize = self.stages(&BTreeSet::new()).iter().map(Vec::len).sum();
        Ok(u32::try_from(active).expect("not more than the nodes"))
    }

    /// The score that the chain adds to each of its nodes with data (Rabbit, Sec. 3.4).
    pub fn scores(&self) -> impl Iterator<Item = (NodeId, f64)> + '_ {
        let primaries = match self.shape {
            ChainShape::Anywhere | ChainShape::Ring | ChainShape::Halves => 0,
            _ => self.primaries as usize,
        };
        let reach = self.spread() as usize;
        self.nodes.iter().take(reach).enumerate().map(move |(index, node)| (*node, chain_score(index, primaries)))
    }
}

fn holding(targets: &Targets, copy: usize) -> impl Iterator<Item = usize> + '_ {
    targets.copy(copy).iter().enumerate().filter(|(_, blocks)| **blocks > 0).map(|(place, _)| place)
}

/// The score that a chain adds to its node at this index, from 0: 1 for a primary, `1 / l` for the `l`-th node (Rabbit,
/// Sec. 3.4).
#[must_use]
pub fn chain_score(index: usize, primaries: usize) -> f64 {
    if index < primaries { 1.0 } else { 1.0 / (index + 1) as f64 }
}

/// Nodes in the order in which a new dataset's chain takes them: by ascending score, then by id, so that a node early
/// in one chain is late in others (Rabbit, Sec. 3.4).
#[must_use]
pub fn choose_chain(nodes: impl IntoIterator<Item = NodeId>, scores: &BTreeMap<NodeId, f64>) -> Vec<NodeId> {
    let score = |node: &NodeId| scores.get(node).copied().unwrap_or(0.0);
    let mut order: Vec<NodeId> = nodes.into_iter().collect();
    order.sort_by(|one, other| score(one).total_cmp(&score(other)).then(one.cmp(other)));
    order
}

/// Score of each node, summed over all chains.
#[must_use]
pub fn sum_scores<'a>(chains: impl IntoIterator<Item = &'a DatasetChain>) -> BTreeMap<NodeId, f64> {
    let mut scores = BTreeMap::new();
    for (node, score) in chains.into_iter().flat_map(DatasetChain::scores) {
        *scores.entry(node).or_insert(0.0) += score;
    }
    scores
}
