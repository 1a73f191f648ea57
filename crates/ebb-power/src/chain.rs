//! Datasets on expansion chains: which nodes must be on, and which come next.
//!
//! A dataset's nodes are switched on in the order of its chain (Rabbit, Sec. 3.1). How much each stores is
//! `ebb_layout::targets`; here stands what follows for power: the nodes that together hold everything (the *cover*), the
//! stages in which further ones come, and the chain that a new dataset gets.

use std::collections::{BTreeMap, BTreeSet};

use ebb_layout::LayoutKind;
use ebb_layout::targets::geared::Grid;
use ebb_layout::targets::{Chain, Targets, check_replicas, equal_work, ring, simple};
use ebb_types::{DatasetId, NodeId, Result, bail};

#[cfg(test)]
mod tests;

/// How a dataset's copies lie on its chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChainShape {
    /// On any nodes, distinct ones (`random`, `striped`).
    Anywhere,
    /// One copy on the primaries, the others even over the rest.
    Simple,
    /// Node `i` behind the primaries stores `B / i`.
    EqualWork,
    /// Equal work by gears of so many nodes, that come whole.
    Geared {
        /// Nodes of a gear.
        gear_size: u32,
    },
    /// Far apart on the circle of nodes (`power-balanced`).
    Ring,
}

impl ChainShape {
    /// How a layout's copies lie; `gear_size` means nothing to layouts without gears.
    #[must_use]
    pub const fn of(layout: LayoutKind, gear_size: u32) -> Self {
        match layout {
            LayoutKind::Random | LayoutKind::Striped => Self::Anywhere,
            LayoutKind::Simple => Self::Simple,
            LayoutKind::EqualWork => Self::EqualWork,
            LayoutKind::Geared => Self::Geared { gear_size },
            LayoutKind::PowerBalanced => Self::Ring,
        }
    }
}

/// A dataset as the power manager sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct DatasetChain {
    /// Which.
    pub dataset: DatasetId,
    /// Its part of nodes that several datasets could use, against the other datasets' weights.
    pub weight: f64,
    /// Nodes that it was set to have active; none for as many as the power allows.
    pub wanted_active: Option<u32>,
    nodes: Vec<NodeId>,
    shape: ChainShape,
    primaries: u32,
    replicas: u32,
}

impl DatasetChain {
    /// A dataset over these nodes, in the order in which they are switched on. `primaries` means nothing to `Anywhere`
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
        let chain = Self { dataset, weight: 1.0, wanted_active: None, nodes, shape, primaries, replicas };
        match shape {
            ChainShape::Anywhere | ChainShape::Ring => check_replicas(chain.count(), replicas)?,
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

    /// How its copies lie.
    #[must_use]
    pub const fn shape(&self) -> ChainShape {
        self.shape
    }

    /// Least number of active nodes at which everything can be read (Rabbit's floor), none of them failed.
    #[must_use]
    pub fn min_active(&self) -> u32 {
        u32::try_from(self.cover(&BTreeSet::new()).len()).expect("not more than the nodes")
    }

    /// Nodes over which the copies reach.
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

    /// What each node should store of so many blocks, in the order of the chain, all copies together.
    pub fn target(&self, blocks: u64) -> Result<Vec<u64>> {
        match self.targets(blocks)? {
            Some(targets) => Ok(targets.blocks_per_node()),
            None => ebb_layout::targets::even(self.count(), self.replicas, blocks),
        }
    }

    fn targets(&self, blocks: u64) -> Result<Option<Targets>> {
        Ok(Some(match self.shape {
            ChainShape::Anywhere | ChainShape::Ring => return Ok(None),
            ChainShape::Simple => simple::targets(self.chain()?, blocks)?,
            ChainShape::EqualWork => equal_work::targets(self.chain()?, blocks)?,
            ChainShape::Geared { gear_size } => Grid::new(self.chain()?, gear_size)?.targets(blocks)?,
        }))
    }

    /// Nodes that must be on so that everything can be read, although some are dead; in the order of the chain.
    ///
    /// Of a chain: the primaries, and for each dead one where its second copies lie: the recovery group under gears, all
    /// nodes with second copies without (Rabbit, Sec. 3.5); where one of those is dead too, the third copies, and so on.
    /// What has lost all its copies asks for nothing.
    #[must_use]
    pub fn cover(&self, dead: &BTreeSet<NodeId>) -> Vec<NodeId> {
        let places: BTreeSet<usize> = match self.shape {
            ChainShape::Anywhere => self.cover_anywhere(dead),
            ChainShape::Ring => self.cover_ring(dead),
            ChainShape::Simple | ChainShape::EqualWork => self.cover_runs(dead),
            ChainShape::Geared { gear_size } => self.cover_gears(dead, gear_size),
        };
        let alive = places.into_iter().map(|place| self.nodes[place]).filter(|node| !dead.contains(node));
        alive.collect()
    }

    /// All but as many as could be off and dead without touching every copy of anything.
    fn cover_anywhere(&self, dead: &BTreeSet<NodeId>) -> BTreeSet<usize> {
        let alive: Vec<usize> = (0..self.nodes.len()).filter(|place| !dead.contains(&self.nodes[*place])).collect();
        let gone = self.nodes.len() - alive.len();
        let spare = (self.replicas as usize - 1).saturating_sub(gone);
        let on = alive.len() - spare.min(alive.len());
        alive.into_iter().take(on).collect()
    }

    /// The shortest beginning of the circle with a living copy of every block that has one.
    fn cover_ring(&self, dead: &BTreeSet<NodeId>) -> BTreeSet<usize> {
        let first_copy = |first: u32| {
            let places = ring::halving(self.count(), self.replicas, first);
            places.into_iter().map(|place| place as usize).filter(|place| !dead.contains(&self.nodes[*place])).min()
        };
        let last = (0..self.count()).filter_map(first_copy).max();
        last.map_or_else(BTreeSet::new, |last| (0..=last).collect())
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

    /// Nodes in the order in which they come: the cover first, then one at a time or one gear at a time. Dead ones are
    /// left out, and so is what would go beyond the wanted number.
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

    /// Sets how many nodes are to be active; none for as many as the power allows. What it comes to: gears come whole, so
    /// it may be fewer.
    ///
    /// `Invalid`, with the nearest possible number, for fewer than hold everything, or more than there are.
    pub fn set_wanted(&mut self, wanted: Option<u32>) -> Result<u32> {
        let (least, most) = (self.min_active(), self.count());
        if let Some(wanted) = wanted.filter(|wanted| !(least..=most).contains(wanted)) {
            bail!(
                Invalid,
                "{}: {wanted} active nodes; {least} hold everything and its expansion chain has {most}, so the nearest \
                 possible number is {}",
                self.dataset,
                wanted.clamp(least, most)
            );
        }
        self.wanted_active = wanted;
        let active: usize = self.stages(&BTreeSet::new()).iter().map(Vec::len).sum();
        Ok(u32::try_from(active).expect("not more than the nodes"))
    }

    /// What the chain adds to the score of each of its nodes that stores something (Rabbit, Sec. 3.4).
    pub fn scores(&self) -> impl Iterator<Item = (NodeId, f64)> + '_ {
        let primaries = match self.shape {
            ChainShape::Anywhere | ChainShape::Ring => 0,
            _ => self.primaries as usize,
        };
        let reach = self.spread() as usize;
        self.nodes.iter().take(reach).enumerate().map(move |(index, node)| (*node, chain_score(index, primaries)))
    }
}

fn holding(targets: &Targets, copy: usize) -> impl Iterator<Item = usize> + '_ {
    targets.copy(copy).iter().enumerate().filter(|(_, blocks)| **blocks > 0).map(|(place, _)| place)
}

/// What a chain adds to the score of its node at this index, from 0: 1 for a primary, `1 / l` for the `l`-th (Rabbit,
/// Sec. 3.4).
#[must_use]
pub fn chain_score(index: usize, primaries: usize) -> f64 {
    if index < primaries { 1.0 } else { 1.0 / (index + 1) as f64 }
}

/// Nodes in the order in which a new dataset's chain takes them: by ascending score, then by id, so that what is early
/// in one chain is late in others (Rabbit, Sec. 3.4).
#[must_use]
pub fn choose_chain(nodes: impl IntoIterator<Item = NodeId>, scores: &BTreeMap<NodeId, f64>) -> Vec<NodeId> {
    let score = |node: &NodeId| scores.get(node).copied().unwrap_or(0.0);
    let mut order: Vec<NodeId> = nodes.into_iter().collect();
    order.sort_by(|one, other| score(one).total_cmp(&score(other)).then(one.cmp(other)));
    order
}

/// Scores of all nodes, all chains together.
#[must_use]
pub fn sum_scores<'a>(chains: impl IntoIterator<Item = &'a DatasetChain>) -> BTreeMap<NodeId, f64> {
    let mut scores = BTreeMap::new();
    for (node, score) in chains.into_iter().flat_map(DatasetChain::scores) {
        *scores.entry(node).or_insert(0.0) += score;
    }
    scores
}
