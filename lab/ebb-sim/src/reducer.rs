//! A running reducer: its fetched maps, the maps that it could fetch, and its bytes in memory.

use std::collections::VecDeque;

/// Phase of a reducer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Its machine starts.
    Starting,
    /// It fetches and merges.
    Fetching,
    /// It has everything on disk: sorts, reduces, writes.
    Reducing,
}

/// State of one reducer.
#[derive(Debug)]
pub struct Reducer {
    /// The node that it runs on.
    pub node: usize,
    /// Its phase.
    pub phase: Phase,
    /// Number of maps with their output fetched.
    pub fetched_maps: usize,
    /// Bytes in memory that wait for a merge.
    pub held: f64,
    /// Bytes that a merge is writing; 0: none runs.
    pub merging: f64,
    /// Finished maps of each node that it has not asked for.
    ready: Vec<usize>,
    /// Maps that it is fetching from each node.
    asked: Vec<usize>,
    /// Nodes with something ready that it is not fetching from.
    turn: VecDeque<usize>,
    under_way: usize,
}

impl Reducer {
    /// A reducer on `node` that starts when `finished` maps of each node have ended.
    #[must_use]
    pub fn new(node: usize, finished: &[usize]) -> Self {
        // Every reducer begins with its own node, or all would storm the first.
        let count = finished.len();
        let turn = (0..count).map(|step| (node + step) % count).filter(|source| finished[*source] > 0).collect();
        Self {
            node,
            phase: Phase::Starting,
            fetched_maps: 0,
            held: 0.0,
            merging: 0.0,
            ready: finished.to_vec(),
            asked: vec![0; count],
            turn,
            under_way: 0,
        }
    }

    /// A map on `source` has ended.
    pub fn map_finished(&mut self, source: usize) {
        self.ready[source] += 1;
        if self.ready[source] == 1 && self.asked[source] == 0 {
            self.turn.push_back(source);
        }
    }

    /// The next node to fetch from and of how many maps, if a copier and memory are free.
    pub fn next_fetch(&mut self, copiers: usize, memory: f64) -> Option<(usize, usize)> {
        if self.phase != Phase::Fetching || self.under_way >= copiers || self.held + self.merging >= memory {
            return None;
        }
        let source = self.turn.pop_front()?;
        let maps = std::mem::take(&mut self.ready[source]);
        self.asked[source] = maps;
        self.under_way += 1;
        Some((source, maps))
    }

    /// The fetch from `source` has ended, with `part` bytes of each map.
    pub fn fetched(&mut self, source: usize, part: f64) {
        let maps = std::mem::take(&mut self.asked[source]);
        self.fetched_maps += maps;
        self.held += part * maps as f64;
        self.under_way -= 1;
        if self.ready[source] > 0 {
            self.turn.push_back(source);
        }
    }
}
