//! Assignment of the blocks of a full read to nodes: the greedy balancer beside the best possible assignment.
//!
//! [`greedy`] is Rabbit's load balancer (Sec. 3.2), which decides block by block. [`Optimal`] knows all blocks: it is a
//! minimum-cost flow from blocks to active holders, found as an optimal semi-matching (Harvey, Ladner, Lovász, Tamir:
//! *Semi-matchings for bipartite graphs and load balancing*, 2003), which minimises the busiest node's load and the
//! spread of loads at once.

use std::collections::VecDeque;

use ebb_power::read::{HitBalance, desired_hit_ratio};

use super::placement::Placement;

/// Blocks served by each node; 0 for nodes that are off.
pub type Loads = Vec<u64>;

/// The hit-ratio heuristic, blocks requested in the order of `requests`. `None` if some block has no active holder.
///
/// It knows the places of all blocks. Clients run it on counts of their own reads (`ebb_power::read::LearnedBalance`).
#[must_use]
pub fn greedy(placement: &Placement, active: &[bool], requests: impl Iterator<Item = usize>) -> Option<Loads> {
    let on = active.iter().filter(|on| **on).count() as f64;
    let blocks = placement.holders.len() as f64;
    let stored = placement.blocks_per_node().into_iter().enumerate();
    let mut balance = HitBalance::new(stored.map(|(node, held)| (node, desired_hit_ratio(blocks, on, held as f64))));
    let mut served = vec![0_u64; placement.nodes];
    for block in requests {
        let holders = placement.holders[block].iter().map(|node| *node as usize).filter(|node| active[*node]);
        served[balance.choose(holders)?] += 1;
    }
    Some(served)
}

/// Mean and standard deviation over the active nodes.
#[must_use]
pub fn mean_and_deviation(loads: &Loads, active: &[bool]) -> (f64, f64) {
    let on: Vec<f64> = loads.iter().zip(active).filter(|pair| *pair.1).map(|pair| *pair.0 as f64).collect();
    let count = on.len().max(1) as f64;
    let mean = on.iter().sum::<f64>() / count;
    (mean, (on.iter().map(|load| (load - mean).powi(2)).sum::<f64>() / count).sqrt())
}

/// The best assignment for a growing set of active nodes.
#[derive(Clone, Debug)]
pub struct Optimal<'a> {
    placement: &'a Placement,
    active: Vec<bool>,
    /// Blocks that each node serves.
    serves: Vec<Vec<usize>>,
    /// `shared[a][b]`: blocks that `a` serves and `b` holds.
    shared: Vec<Vec<u32>>,
    /// Blocks that no active node holds.
    waiting: Vec<usize>,
}

impl<'a> Optimal<'a> {
    /// No node is on.
    #[must_use]
    pub fn new(placement: &'a Placement) -> Self {
        let nodes = placement.nodes;
        Self {
            placement,
            active: vec![false; nodes],
            serves: vec![Vec::new(); nodes],
            shared: vec![vec![0; nodes]; nodes],
            waiting: (0..placement.holders.len()).collect(),
        }
    }

    /// Switches a node on. Call [`Optimal::even_out_loads`] before asking.
    pub fn switch_on(&mut self, node: usize) {
        if std::mem::replace(&mut self.active[node], true) {
            return;
        }
        let held = |block: &usize| self.placement.holders[*block].contains(&(node as u32));
        let (taken, waiting) = self.waiting.iter().partition(|block| held(block));
        self.waiting = waiting;
        let taken: Vec<usize> = taken;
        for block in taken {
            self.count(block, node, 1);
            self.serves[node].push(block);
        }
    }

    /// Moves blocks until no path can even any two loads out.
    pub fn even_out_loads(&mut self) {
        while self.improve() {}
    }

    /// Blocks that no active node holds.
    #[must_use]
    pub fn unreadable(&self) -> usize {
        self.waiting.len()
    }

    /// Blocks that each node serves.
    #[must_use]
    pub fn loads(&self) -> Loads {
        self.serves.iter().map(|blocks| blocks.len() as u64).collect()
    }

    /// One sweep over the nodes, least loaded first; whether anything moved.
    fn improve(&mut self) -> bool {
        let mut order: Vec<usize> = (0..self.active.len()).filter(|node| self.active[*node]).collect();
        order.sort_by_key(|node| self.serves[*node].len());
        // A node that reaches a less loaded sink without gain reaches a more loaded one without gain too.
        let mut seen = vec![false; self.active.len()];
        for sink in order {
            if seen[sink] {
                continue;
            }
            if let Some(path) = self.gaining_path(sink, &mut seen) {
                self.shift(&path);
                return true;
            }
        }
        false
    }

    /// A path from a node that serves at least two more than `sink`, along which each node can hand a block to the
    /// next; it starts at the busiest source found.
    fn gaining_path(&self, sink: usize, seen: &mut [bool]) -> Option<Vec<usize>> {
        let mut next = vec![usize::MAX; self.active.len()];
        let mut queue = VecDeque::from([sink]);
        let mut visited = vec![sink];
        seen[sink] = true;
        let load = self.serves[sink].len();
        let mut best: Option<usize> = None;
        while let Some(to) = queue.pop_front() {
            for from in 0..self.active.len() {
                if seen[from] || !self.active[from] || self.shared[from][to] == 0 {
                    continue;
                }
                seen[from] = true;
                visited.push(from);
                next[from] = to;
                queue.push_back(from);
                let gains = self.serves[from].len() >= load + 2;
                if gains && best.is_none_or(|best| self.serves[from].len() > self.serves[best].len()) {
                    best = Some(from);
                }
            }
        }
        let mut at = best?;
        let mut path = vec![at];
        while at != sink {
            at = next[at];
            path.push(at);
        }
        Some(path)
    }

    /// Hands blocks along the path until its ends are even or some step has no more.
    fn shift(&mut self, path: &[usize]) {
        let (first, last) = (path[0], path[path.len() - 1]);
        let even = (self.serves[first].len() - self.serves[last].len()) / 2;
        let steps = path.windows(2).map(|step| self.shared[step[0]][step[1]] as usize);
        let count = steps.min().unwrap_or(0).min(even).max(1);
        for step in path.windows(2) {
            self.hand_over(step[0], step[1], count);
        }
    }

    fn hand_over(&mut self, from: usize, to: usize, count: usize) {
        let mut left = count;
        let mut at = 0;
        while left > 0 && at < self.serves[from].len() {
            let block = self.serves[from][at];
            if !self.placement.holders[block].contains(&(to as u32)) {
                at += 1;
                continue;
            }
            self.serves[from].swap_remove(at);
            self.serves[to].push(block);
            self.count(block, from, -1);
            self.count(block, to, 1);
            left -= 1;
        }
        assert!(left == 0, "a step hands over no more than it was found to have");
    }

    fn count(&mut self, block: usize, server: usize, change: i32) {
        for holder in &self.placement.holders[block] {
            let shared = &mut self.shared[server][*holder as usize];
            *shared = shared.checked_add_signed(change).expect("a block that is taken away was counted");
        }
    }
}
