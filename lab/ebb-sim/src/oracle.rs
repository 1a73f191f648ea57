//! Small cases that another simulator can run too.
//!
//! A case is a graph of flows over resources. SimGrid (<https://simgrid.org>), which shares nothing with this crate,
//! has run them all: `oracle/simgrid.json` holds the times at which its flows ended, and `oracle/record.sh` makes that
//! file anew (`--check`: runs SimGrid and compares with the file). The test of this module compares the engine with it.
//! Seeks and unequal costs are not in these cases: SimGrid's links have neither.

use serde::{Deserialize, Serialize};

use crate::engine::{Engine, Event, ResourceId, Use};

mod cases;

pub use cases::cases;

/// A case.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct OracleCase {
    /// Its name.
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
    /// Seconds that it waits after that.
    pub delay: f64,
    /// Units.
    pub amount: f64,
    /// Units a second at most.
    pub limit: Option<f64>,
    /// Resources, each used once.
    pub uses: Vec<usize>,
}

/// Time at which each flow of a case ends, by our engine.
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
        assert_eq!(recorded.cases, ours, "the cases have changed since: run lab/ebb-sim/oracle/record.sh");
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
