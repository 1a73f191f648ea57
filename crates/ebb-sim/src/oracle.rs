//! Small cases that another simulator can run too.
//!
//! A case is a graph of flows over resources. SimGrid (<https://simgrid.org>), which shares nothing with this crate, has
//! run them all: `oracle/simgrid.json` holds the times at which its flows ended, and `oracle/record.sh` makes that file
//! anew. The test of this module holds the engine against it. Seeks and unequal costs are not in these cases: SimGrid's
//! links have neither.

use serde::{Deserialize, Serialize};

use crate::engine::{Engine, Event, ResourceId, Use};
use crate::random::Random;

/// A case.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OracleCase {
    /// What it is.
    pub name: String,
    /// Capacities, in units a second.
    pub resources: Vec<f64>,
    /// Flows; each may wait for earlier ones.
    pub flows: Vec<OracleFlow>,
}

/// A flow.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OracleFlow {
    /// Flows that must have ended.
    pub after: Vec<usize>,
    /// Seconds that it waits then.
    pub delay: f64,
    /// Units.
    pub amount: f64,
    /// Units a second at most.
    pub limit: Option<f64>,
    /// Resources, each used once.
    pub uses: Vec<usize>,
}

/// All cases: random ones, and small MapReduce jobs in three placements.
#[must_use]
pub fn cases() -> Vec<OracleCase> {
    let mut cases: Vec<OracleCase> = (0..40).map(random_case).collect();
    for (name, nodes, disks) in
        [("two nodes", 2, None), ("four nodes, LSN", 4, Some(3.0)), ("three nodes, LSN", 3, Some(1.0))]
    {
        cases.push(small_job(name, nodes, disks));
    }
    cases
}

/// When each flow of a case ends, by our engine.
#[must_use]
pub fn play(case: &OracleCase) -> Vec<f64> {
    let mut engine = Engine::new(0.0);
    let ids: Vec<ResourceId> = case.resources.iter().map(|capacity| engine.add_resource(*capacity)).collect();
    let count = case.flows.len();
    let mut waits: Vec<usize> = case.flows.iter().map(|flow| flow.after.len()).collect();
    for (index, flow) in case.flows.iter().enumerate() {
        if flow.after.is_empty() {
            engine.alarm(flow.delay, index as u64);
        }
    }
    let mut ends = vec![f64::NAN; count];
    while let Some(event) = engine.next_event() {
        match event {
            Event::Alarm(token) => {
                let flow = &case.flows[token as usize];
                let uses: Vec<Use> = flow.uses.iter().map(|index| Use::plain(ids[*index])).collect();
                engine.start(flow.amount, flow.limit.unwrap_or(f64::INFINITY), &uses, token);
            }
            Event::Done(token) => {
                let ended = token as usize;
                ends[ended] = engine.now();
                for (index, flow) in case.flows.iter().enumerate() {
                    if flow.after.contains(&ended) {
                        waits[index] -= 1;
                        if waits[index] == 0 {
                            engine.alarm(engine.now() + flow.delay, index as u64);
                        }
                    }
                }
            }
        }
    }
    ends
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

/// Two maps on each node read, compute, spill; a reducer on each node fetches from all maps and writes. With an LSN of
/// so many disks files are there, else on the node's disk and copied to the next node.
fn small_job(name: &str, nodes: usize, lsn_disks: Option<f64>) -> OracleCase {
    let mut resources = Vec::new();
    let mut add = |capacity: f64| {
        resources.push(capacity);
        resources.len() - 1
    };
    let (up, down, disk, cores): (Vec<usize>, Vec<usize>, Vec<usize>, Vec<usize>) = {
        let mut of = |capacity: f64| (0..nodes).map(|_| add(capacity)).collect::<Vec<_>>();
        (of(125.0), of(125.0), of(80.0), of(2.0))
    };
    let lsn = lsn_disks.map(|disks| {
        let array = 80.0 * disks;
        [add(250.0), add(250.0), add(array)]
    });
    let mut flows: Vec<OracleFlow> = Vec::new();
    let mut flow = |after: Vec<usize>, delay: f64, amount: f64, limit: Option<f64>, uses: Vec<usize>| {
        flows.push(OracleFlow { after, delay, amount, limit, uses });
        flows.len() - 1
    };
    let mut spills = Vec::new();
    for map in 0..2 * nodes {
        let node = map % nodes;
        let input = lsn.map_or_else(|| vec![disk[node]], |[out, _, array]| vec![array, out, down[node]]);
        // Node after node begins, as its heartbeat comes.
        let read = flow(vec![], 0.25 * map as f64, 64.0, None, input);
        // Work on a core: an amount of core seconds, one core at most.
        let work = flow(vec![read], 0.0, 1.5 + 0.125 * node as f64, Some(1.0), vec![cores[node]]);
        spills.push(flow(vec![work], 0.0, 48.0, None, vec![disk[node]]));
    }
    for reducer in 0..nodes {
        let mut fetched = Vec::new();
        for (map, spill) in spills.iter().enumerate() {
            let source = map % nodes;
            let route =
                if source == reducer { vec![disk[source]] } else { vec![disk[source], up[source], down[reducer]] };
            fetched.push(flow(vec![*spill], 0.0, 48.0 / nodes as f64, None, route));
        }
        let next = (reducer + 1) % nodes;
        let route = lsn.map_or_else(
            || vec![disk[reducer], up[reducer], down[next], disk[next]],
            |[_, into, array]| vec![up[reducer], into, array],
        );
        flow(fetched, 0.5, 96.0, None, route);
    }
    OracleCase { name: name.to_owned(), resources, flows }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Recorded {
        simgrid: String,
        cases: Vec<OracleCase>,
        ends: Vec<Vec<f64>>,
    }

    #[test]
    fn simgrid_says_the_same() {
        let recorded: Recorded = serde_json::from_str(include_str!("../oracle/simgrid.json")).unwrap();
        let ours = cases();
        assert_eq!(recorded.cases, ours, "the cases have changed since: run crates/ebb-sim/oracle/record.sh");
        assert!(recorded.simgrid.starts_with("3.") || recorded.simgrid.starts_with("4."), "{}", recorded.simgrid);
        for (case, theirs) in ours.iter().zip(&recorded.ends) {
            let ends = play(case);
            assert_eq!(ends.len(), theirs.len());
            for (index, (ours, theirs)) in ends.iter().zip(theirs).enumerate() {
                let close = (ours - theirs).abs() <= 1e-6 * theirs.max(1.0);
                assert!(close, "{}: flow {index} ends at {ours}, SimGrid says {theirs}", case.name);
            }
        }
        let flows: usize = recorded.ends.iter().map(Vec::len).sum();
        assert!(flows > 400, "{flows} flows are too few to mean anything");
    }
}
