//! Assignment of tasks to hosts, by the rules of the simulator's tracker: free slots at each heartbeat, and the nearest data first.

use ebb_layout::Distance;
use ebb_sim::{App, Cluster};

/// How a map is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// By the locations that splits tell.
    Located,
    /// By its number, wherever its data lie.
    Blind,
}

/// Tasks that have not been given out, and slots.
#[derive(Debug)]
pub struct Tracker {
    choice: Choice,
    /// Of each map, the distance of its nearest copy from each host.
    distances: Vec<Vec<Distance>>,
    given: Vec<bool>,
    maps_left: usize,
    maps_running: usize,
    next_reducer: usize,
    reducers: usize,
    reducers_running: usize,
    /// A host's slots for maps and for reducers.
    slots: (usize, usize),
    /// Those in use on each host.
    used: Vec<(usize, usize)>,
    /// Maps that were given to a host in the sub-rack of their data, or nearer.
    pub near_maps: usize,
}

/// Slots of a host that may be used when `tasks` run or wait: no host is filled while others are empty.
const fn even_share(tasks: usize, slots: usize, hosts: usize) -> usize {
    let even = tasks.div_ceil(hosts);
    if even < slots { even } else { slots }
}

impl Tracker {
    /// All tasks of a job. Maps without input are near everywhere.
    #[must_use]
    pub fn new(cluster: &Cluster, app: &App, choice: Choice, distances: Vec<Vec<Distance>>) -> Self {
        Self {
            choice,
            given: vec![false; app.mappers],
            distances,
            maps_left: app.mappers,
            maps_running: 0,
            next_reducer: 0,
            reducers: app.reducers,
            reducers_running: 0,
            slots: (cluster.map_slots, cluster.reduce_slots),
            used: vec![(0, 0); cluster.nodes],
            near_maps: 0,
        }
    }

    /// Maps for the free slots of a host.
    pub fn maps_for(&mut self, host: usize) -> Vec<usize> {
        let even = even_share(self.maps_running + self.maps_left, self.slots.0, self.used.len());
        let mut maps = Vec::new();
        while self.used[host].0 < even {
            let Some(map) = self.next_map(host) else { break };
            self.given[map] = true;
            self.maps_left -= 1;
            self.maps_running += 1;
            self.used[host].0 += 1;
            self.near_maps += usize::from(self.distance(map, host) <= Distance::SubRack);
            maps.push(map);
        }
        maps
    }

    fn next_map(&self, host: usize) -> Option<usize> {
        let mut left = (0..self.given.len()).filter(|map| !self.given[*map]);
        match self.choice {
            Choice::Blind => left.next(),
            Choice::Located => left.min_by_key(|map| (self.distance(*map, host), *map)),
        }
    }

    fn distance(&self, map: usize, host: usize) -> Distance {
        self.distances.get(map).map_or(Distance::Host, |hosts| hosts[host])
    }

    /// Reducers for the free slots of a host, at most `most`.
    pub fn reducers_for(&mut self, host: usize, most: usize) -> std::ops::Range<usize> {
        let first = self.next_reducer;
        let load = self.reducers_running + self.reducers - first;
        let free = even_share(load, self.slots.1, self.used.len()).saturating_sub(self.used[host].1);
        let count = most.min(free).min(self.reducers - first);
        self.next_reducer += count;
        self.reducers_running += count;
        self.used[host].1 += count;
        first..self.next_reducer
    }

    /// A map on this host has ended.
    pub fn map_ended(&mut self, host: usize) {
        self.maps_running -= 1;
        self.used[host].0 -= 1;
    }

    /// A reducer on this host has ended.
    pub fn reducer_ended(&mut self, host: usize) {
        self.reducers_running -= 1;
        self.used[host].1 -= 1;
    }

    /// Whether every task has been given out.
    #[must_use]
    pub const fn all_given(&self) -> bool {
        self.maps_left == 0 && self.next_reducer == self.reducers
    }
}

#[cfg(test)]
mod tests {
    use ebb_sim::Study;

    use super::*;

    #[test]
    fn the_nearest_map_goes_first_and_no_host_is_filled_while_others_are_empty() {
        let cluster = Cluster { nodes: 3, map_slots: 4, ..Study::by_name("real-cluster").unwrap().cluster };
        let app = App { mappers: 6, reducers: 3, ..App::by_name("Grep").unwrap() };
        let near = |map: usize| (0..3).map(move |host| if map % 3 == host { Distance::SubRack } else { Distance::Far });
        let distances: Vec<Vec<Distance>> = (0..6).map(|map| near(map).collect()).collect();
        let mut located = Tracker::new(&cluster, &app, Choice::Located, distances.clone());
        assert_eq!((located.maps_for(1), located.maps_for(0)), (vec![1, 4], vec![0, 3]));
        assert_eq!((located.reducers_for(1, 2), located.reducers_for(1, 2)), (0..1, 1..1));
        let mut blind = Tracker::new(&cluster, &app, Choice::Blind, distances);
        assert_eq!((blind.maps_for(1), blind.near_maps), (vec![0, 1], 1));
        located.map_ended(1);
        assert_eq!(located.maps_for(1), [2], "two of the five left are its share, and one runs");
    }
}
