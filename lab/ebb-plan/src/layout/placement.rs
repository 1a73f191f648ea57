//! Real blocks on nodes, as the targets ask.

use ebb_layout::targets::geared::Grid;
use ebb_layout::targets::{Targets, equal_work, ring, simple};

use super::{Layout, Setting};
use crate::rng::Rng;

/// The nodes that hold each block. The first holder has the primary copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Number of nodes.
    pub nodes: usize,
    /// Holders of each block, distinct.
    pub holders: Vec<Vec<u32>>,
}

/// Limit of copies that are laid out one by one.
pub const MAX_COPIES: u64 = 20_000_000;

impl Placement {
    /// Lays the blocks of a setting. `seed` makes the choices that the layout leaves open.
    ///
    /// # Panics
    /// If there are more than [`MAX_COPIES`] copies: callers check.
    #[must_use]
    pub fn of(setting: &Setting, seed: u64) -> Self {
        assert!(setting.blocks() * u64::from(setting.replicas()) <= MAX_COPIES, "too many copies to lay one by one");
        let mut rng = Rng::new(seed);
        let nodes = setting.nodes() as usize;
        let blocks = usize::try_from(setting.blocks()).expect("fewer than MAX_COPIES");
        let holders = match (setting.layout(), setting.grid(), setting.chain()) {
            (_, Some(grid), _) => gears(grid, setting.blocks(), &mut rng),
            (Layout::Simple, _, Some(chain)) => {
                runs(&simple::targets(chain, setting.blocks()).expect("possible"), setting.primaries(), &mut rng)
            }
            (_, _, Some(chain)) => {
                runs(&equal_work::targets(chain, setting.blocks()).expect("possible"), setting.primaries(), &mut rng)
            }
            (Layout::PowerBalanced, _, None) => {
                let first = |block| (block % nodes) as u32;
                (0..blocks).map(|block| ring::evenly(setting.nodes(), setting.replicas(), first(block))).collect()
            }
            (_, _, None) => (0..blocks).map(|_| rng.distinct(setting.nodes(), setting.replicas())).collect(),
        };
        Self { nodes, holders }
    }

    /// Blocks on each node.
    #[must_use]
    pub fn blocks_per_node(&self) -> Vec<u64> {
        let mut stored = vec![0; self.nodes];
        self.holders.iter().flatten().for_each(|node| stored[*node as usize] += 1);
        stored
    }
}

/// The primary copy in turn, every further copy along its run in an order of its own: each run draws evenly from all
/// primaries, and no two runs pair the same blocks more than by chance.
fn runs(targets: &Targets, primaries: u32, rng: &mut Rng) -> Vec<Vec<u32>> {
    let mut holders = first_copies(targets, primaries);
    for copy in 1..targets.copies() {
        let order = fair_order(&holders, primaries, rng);
        let slots = targets
            .copy(copy)
            .iter()
            .enumerate()
            .flat_map(|(node, held)| std::iter::repeat_n(node as u32, *held as usize));
        place(&mut holders, order, slots);
    }
    holders
}

fn first_copies(targets: &Targets, primaries: u32) -> Vec<Vec<u32>> {
    let mut left = targets.copy(0).to_vec();
    let blocks = left.iter().sum::<u64>();
    let mut turn = (0..primaries).cycle();
    let mut next = || loop {
        let node = turn.next().expect("the cycle has no end");
        if left[node as usize] > 0 {
            left[node as usize] -= 1;
            return vec![node];
        }
    };
    (0..blocks).map(|_| next()).collect()
}

/// All blocks, those of each primary in random order, the primaries in turn.
fn fair_order(holders: &[Vec<u32>], primaries: u32, rng: &mut Rng) -> Vec<usize> {
    let mut of_primary: Vec<Vec<usize>> = vec![Vec::new(); primaries as usize];
    holders.iter().enumerate().for_each(|(block, held)| of_primary[held[0] as usize].push(block));
    of_primary.iter_mut().for_each(|blocks| rng.shuffle(blocks));
    let longest = of_primary.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|row| of_primary.iter().filter_map(move |blocks| blocks.get(row).copied())).collect()
}

/// Gives each slot the next block that its node does not hold yet.
fn place(holders: &mut [Vec<u32>], order: Vec<usize>, slots: impl Iterator<Item = u32>) {
    let mut queue: std::collections::VecDeque<usize> = order.into();
    for node in slots {
        let turn = queue.iter().position(|block| !holders[*block].contains(&node));
        if let Some(block) = turn.and_then(|turn| queue.remove(turn)) {
            holders[block].push(node);
            continue;
        }
        // Only blocks that the node has already are left. One of them changes places with a block of this copy
        // elsewhere.
        let block = queue.pop_front().expect("there are as many slots as blocks");
        let depth = holders[block].len();
        let other = (0..holders.len()).find(|other| {
            let held = &holders[*other];
            held.len() > depth && !held.contains(&node) && !holders[block].contains(&held[depth])
        });
        let other = other.expect("a node holds no more than all blocks, so some other block can move here");
        let moved = std::mem::replace(&mut holders[other][depth], node);
        holders[block].push(moved);
    }
}

/// Column by column: a column's part of a copy is made of the blocks of its primaries.
fn gears(grid: Grid, blocks: u64, rng: &mut Rng) -> Vec<Vec<u32>> {
    let targets = grid.targets(blocks).expect("the setting was found to be possible");
    let primaries = grid.chain().primaries();
    let mut holders = first_copies(&targets, primaries);
    for copy in 1..targets.copies() {
        let order = fair_order(&holders, primaries, rng);
        for column in 0..grid.gear_size() {
            let source = grid.source_column(column, u32::try_from(copy).expect("few copies"));
            let own = order.iter().copied().filter(|block| grid.column(holders[*block][0]) == source).collect();
            let down = (0..grid.gears()).map(|gear| grid.node(gear, column));
            let slots: Vec<u32> =
                down.flat_map(|node| std::iter::repeat_n(node as u32, targets.copy(copy)[node] as usize)).collect();
            place(&mut holders, own, slots.into_iter());
        }
    }
    holders
}
