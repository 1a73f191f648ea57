//! The cases: random graphs, each way of sharing by itself, and small MapReduce jobs, one and several at a time.

use super::{OracleCase, OracleFlow};
use crate::random::Random;

/// All cases.
#[must_use]
pub fn cases() -> Vec<OracleCase> {
    let mut cases: Vec<OracleCase> = (0..40).map(random_case).collect();
    for (name, nodes, disks, starts) in [
        ("two nodes", 2, None, &[0.0][..]),
        ("four nodes, LSN", 4, Some(3.0), &[0.0]),
        ("three nodes, LSN", 3, Some(1.0), &[0.0]),
        ("two jobs one after the other", 3, None, &[0.0, 4.0]),
        ("three jobs on an LSN", 4, Some(2.0), &[0.0, 1.5, 3.0]),
    ] {
        cases.push(jobs(name, nodes, disks, starts));
    }
    cases.extend([shared_link(), disks_behind_a_link(), crossing_links()]);
    cases
}

fn random_case(number: u64) -> OracleCase {
    let mut random = Random::new(number, 77);
    // Round numbers, so that they are the same in every notation.
    let mut between = |low: usize, high: usize| (low + random.below(high - low)) as f64;
    let resource_count = between(1, 7) as usize;
    let resources = (0..resource_count).map(|_| between(5, 200) * 0.5).collect();
    let count = between(1, 25) as usize;
    let flows = (0..count)
        .map(|index| {
            let after = if index > 0 && between(0, 3) == 0.0 { vec![between(0, index) as usize] } else { vec![] };
            let mut uses: Vec<usize> =
                (0..between(1, 4) as usize).map(|_| between(0, resource_count) as usize).collect();
            uses.sort_unstable();
            uses.dedup();
            OracleFlow {
                after,
                delay: between(0, 60) * 0.25,
                amount: between(1, 1000),
                limit: (between(0, 3) == 0.0).then(|| between(1, 40)),
                uses,
            }
        })
        .collect();
    OracleCase { name: format!("random {number}"), resources, flows }
}

fn at(delay: f64, amount: f64, limit: Option<f64>, uses: &[usize]) -> OracleFlow {
    OracleFlow { after: vec![], delay, amount, limit, uses: uses.to_vec() }
}

/// Many flows of all sizes come to one link and leave it; some are slower than their share.
fn shared_link() -> OracleCase {
    let flow = |index: usize| {
        let limit = (index % 4 == 3).then_some(3.0 + index as f64);
        at(0.5 * index as f64, 40.0 + 25.0 * (index * 7 % 11) as f64, limit, &[0])
    };
    OracleCase { name: "shared link".to_owned(), resources: vec![125.0], flows: (0..16).map(flow).collect() }
}

/// Disks of different speed are read through one link: the slow ones are limits of their own, the fast ones share the
/// link, and two flows read the same disk.
fn disks_behind_a_link() -> OracleCase {
    let speeds = [12.5, 20.0, 40.0, 80.0, 80.0, 160.0];
    let resources = std::iter::once(200.0).chain(speeds).collect();
    let mut flows: Vec<OracleFlow> =
        (1..=speeds.len()).map(|disk| at(0.25 * disk as f64, 320.0, None, &[disk, 0])).collect();
    flows.push(at(2.0, 150.0, None, &[4, 0]));
    flows.push(at(3.0, 75.0, None, &[6]));
    OracleCase { name: "disks behind a link".to_owned(), resources, flows }
}

/// A long route over all links crosses one short flow on each (the classic of max-min fairness), again and again.
fn crossing_links() -> OracleCase {
    let mut flows = vec![at(0.0, 400.0, None, &[0, 1, 2, 3]), at(6.0, 200.0, None, &[0, 1, 2, 3])];
    for link in 0..4 {
        for turn in 0..3 {
            flows.push(at(2.5 * turn as f64 + 0.25 * link as f64, 60.0 + 10.0 * link as f64, None, &[link]));
        }
    }
    OracleCase { name: "crossing links".to_owned(), resources: vec![30.0, 45.0, 60.0, 25.0], flows }
}

/// The resources of a small cluster, by index.
struct Small {
    up: Vec<usize>,
    down: Vec<usize>,
    disk: Vec<usize>,
    cores: Vec<usize>,
    /// Link out, link in, array.
    lsn: Option<[usize; 3]>,
}

/// Jobs that start one after the other on one cluster; with an LSN of so many disks files are there, else on the node's
/// disk and copied to the next node.
fn jobs(name: &str, nodes: usize, lsn_disks: Option<f64>, starts: &[f64]) -> OracleCase {
    let mut resources = Vec::new();
    let mut add = |capacity: f64| {
        resources.push(capacity);
        resources.len() - 1
    };
    let mut of = |capacity: f64| (0..nodes).map(|_| add(capacity)).collect::<Vec<_>>();
    let (up, down, disk, cores) = (of(125.0), of(125.0), of(80.0), of(2.0));
    let lsn = lsn_disks.map(|disks| [add(250.0), add(250.0), add(80.0 * disks)]);
    let small = Small { up, down, disk, cores, lsn };
    let mut flows = Vec::new();
    for start in starts {
        small.job(*start, &mut flows);
    }
    OracleCase { name: name.to_owned(), resources, flows }
}

impl Small {
    /// Two maps on each node read, compute, spill; a reducer on each node fetches from all maps and writes.
    fn job(&self, start: f64, flows: &mut Vec<OracleFlow>) {
        let nodes = self.disk.len();
        let mut flow = |after: Vec<usize>, delay: f64, amount: f64, limit: Option<f64>, uses: Vec<usize>| {
            flows.push(OracleFlow { after, delay, amount, limit, uses });
            flows.len() - 1
        };
        let mut spills = Vec::new();
        for map in 0..2 * nodes {
            let node = map % nodes;
            let input =
                self.lsn.map_or_else(|| vec![self.disk[node]], |[out, _, array]| vec![array, out, self.down[node]]);
            // Node after node begins, as its heartbeat comes.
            let read = flow(vec![], start + 0.25 * map as f64, 64.0, None, input);
            // Work on a core: an amount of core seconds, one core at most.
            let work = flow(vec![read], 0.0, 1.5 + 0.125 * node as f64, Some(1.0), vec![self.cores[node]]);
            spills.push(flow(vec![work], 0.0, 48.0, None, vec![self.disk[node]]));
        }
        for reducer in 0..nodes {
            let mut fetched = Vec::new();
            for (map, spill) in spills.iter().enumerate() {
                let source = map % nodes;
                let local = vec![self.disk[source]];
                let remote = vec![self.disk[source], self.up[source], self.down[reducer]];
                let route = if source == reducer { local } else { remote };
                fetched.push(flow(vec![*spill], 0.0, 48.0 / nodes as f64, None, route));
            }
            let next = (reducer + 1) % nodes;
            let route = self.lsn.map_or_else(
                || vec![self.disk[reducer], self.up[reducer], self.down[next], self.disk[next]],
                |[_, into, array]| vec![self.up[reducer], into, array],
            );
            flow(fetched, 0.5, 96.0, None, route);
        }
    }
}
