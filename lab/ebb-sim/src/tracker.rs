//! Assignment of tasks to nodes: by free slots, and the nearest data first.

use crate::app::App;
use crate::cluster::Cluster;
use crate::layout::Copy;
use crate::site::{Host, Site};

/// Tasks that have not been given out, and slots.
#[derive(Debug)]
pub struct Tracker {
    blocks: Vec<Vec<Copy>>,
    given: Vec<bool>,
    maps_left: usize,
    next_reducer: usize,
    reducers: usize,
    /// Maps with a copy on each node, in order; those given are skipped.
    on_node: Vec<Near>,
    /// Maps with a copy in each sub-rack.
    in_rack: Vec<Near>,
    anywhere: Near,
    maps_running: usize,
    reducers_running: usize,
    /// For maps and for reducers.
    slots_per_node: (usize, usize),
    /// Free ones of each node.
    map_slots: Vec<usize>,
    reduce_slots: Vec<usize>,
}

/// Slots of a node that may be used when `tasks` run or wait: no node is filled while others are empty (Hadoop's
/// `JobQueueTaskScheduler`, load factor).
const fn even_share(tasks: usize, slots: usize, nodes: usize) -> usize {
    let even = tasks.div_ceil(nodes);
    if even < slots { even } else { slots }
}

/// A list of maps and how far it has been used up.
#[derive(Clone, Debug, Default)]
struct Near {
    maps: Vec<usize>,
    next: usize,
}

impl Near {
    fn find_next_map(&mut self, given: &[bool]) -> Option<usize> {
        while let Some(map) = self.maps.get(self.next) {
            if !given[*map] {
                return Some(*map);
            }
            self.next += 1;
        }
        None
    }
}

impl Tracker {
    /// All tasks of `app`. Map number n reads block number n of `blocks`.
    #[must_use]
    pub fn new(cluster: &Cluster, app: &App, blocks: Vec<Vec<Copy>>) -> Self {
        let mut on_node = vec![Near::default(); cluster.nodes];
        let mut in_rack = vec![Near::default(); cluster.sub_racks];
        for (map, copies) in blocks.iter().enumerate() {
            for copy in copies {
                let rack = match copy.host {
                    Host::Node(node) => {
                        on_node[node].maps.push(map);
                        cluster.sub_rack_of(node)
                    }
                    Host::Store(store) => store,
                };
                if in_rack[rack].maps.last() != Some(&map) {
                    in_rack[rack].maps.push(map);
                }
            }
        }
        Self {
            given: vec![false; blocks.len()],
            maps_left: blocks.len(),
            anywhere: Near { maps: (0..blocks.len()).collect(), next: 0 },
            blocks,
            next_reducer: 0,
            reducers: app.reducers,
            on_node,
            in_rack,
            maps_running: 0,
            reducers_running: 0,
            slots_per_node: (cluster.map_slots, cluster.reduce_slots),
            map_slots: vec![cluster.map_slots; cluster.nodes],
            reduce_slots: vec![cluster.reduce_slots; cluster.nodes],
        }
    }

    /// Maps for the free slots of a node, each with the copy that it reads.
    pub fn maps_for(&mut self, node: usize, site: &Site) -> Vec<(usize, Copy)> {
        let mut maps = Vec::new();
        let used = self.slots_per_node.0 - self.map_slots[node];
        let even = even_share(self.maps_running + self.maps_left, self.slots_per_node.0, self.map_slots.len());
        for _ in used..even {
            let rack = site.sub_rack(node);
            let near = self.on_node[node].find_next_map(&self.given);
            let near = near.or_else(|| self.in_rack[rack].find_next_map(&self.given));
            let Some(map) = near.or_else(|| self.anywhere.find_next_map(&self.given)) else { break };
            self.given[map] = true;
            self.maps_left -= 1;
            self.maps_running += 1;
            self.map_slots[node] -= 1;
            maps.push((map, self.nearest(map, node, site)));
        }
        maps
    }

    /// Reducers for the free slots of a node, at most `most`.
    pub fn reducers_for(&mut self, node: usize, most: usize) -> std::ops::Range<usize> {
        let first = self.next_reducer;
        let used = self.slots_per_node.1 - self.reduce_slots[node];
        let load = self.reducers_running + self.reducers - first;
        let even = even_share(load, self.slots_per_node.1, self.reduce_slots.len());
        let count = most.min(even.saturating_sub(used)).min(self.reducers - first);
        self.next_reducer += count;
        self.reducers_running += count;
        self.reduce_slots[node] -= count;
        first..self.next_reducer
    }

    /// A map on `node` has ended.
    pub fn map_ended(&mut self, node: usize) {
        self.maps_running -= 1;
        self.map_slots[node] += 1;
    }

    /// A reducer on `node` has ended.
    pub fn reducer_ended(&mut self, node: usize) {
        self.reducers_running -= 1;
        self.reduce_slots[node] += 1;
    }

    /// Whether every task has been given out.
    #[must_use]
    pub const fn all_given(&self) -> bool {
        self.maps_left == 0 && self.next_reducer == self.reducers
    }

    /// The copy on the node itself, else one in its sub-rack, else one that differs from node to node.
    fn nearest(&self, map: usize, node: usize, site: &Site) -> Copy {
        let copies = &self.blocks[map];
        let here = copies.iter().find(|copy| copy.host == Host::Node(node));
        let near = || {
            copies.iter().find(|copy| match copy.host {
                Host::Node(holder) => site.sub_rack(holder) == site.sub_rack(node),
                Host::Store(store) => store == site.store_of(node),
            })
        };
        // With one sub-rack every copy is near: take turns, or the first copies of all blocks would do all the work.
        let any = copies[(map + node) % copies.len()];
        if let Some(copy) = here {
            return *copy;
        }
        let any_is_near = match any.host {
            Host::Node(holder) => site.sub_rack(holder) == site.sub_rack(node),
            Host::Store(store) => store == site.store_of(node),
        };
        if any_is_near { any } else { near().copied().unwrap_or(any) }
    }
}
