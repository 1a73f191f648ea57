//! Whole nodes while the supply pays for them, and blinking for the rest of it: Ebb's own policy.
//!
//! The power for a part of a node is not left over. While the cover can be powered, its nodes never sleep, and the next
//! node or gear of the chain blinks. With less power the nodes of the cover take turns, or a part of them, or all
//! nodes: several plans come into question ([`candidates`]), and each is weighed by the waits of single reads and by the
//! times of jobs ([`score`]).
//!
//! The choice ([`choice`]) is never worse than the plan of another policy for the same power in any of these measures,
//! as long as there is such a plan. Where there is none, the plan says which policy would be better at what.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::NodeId;

use super::circular::blink;
use super::fit::carried;
use super::{Ask, PolicyKind, Rotational, Schedule};
use crate::chain::DatasetChain;
use crate::chain::coded::Coded;
use crate::plan::Duty;

mod candidates;
mod choice;
mod full_read;
mod reads;
mod score;
#[cfg(test)]
mod tests;
mod turns;

use candidates::{Candidate, candidates, rivals};
use choice::{Scored, choose};
use reads::Reads;
use score::{JOB_NODE_SECONDS, JOB_READS, rate, score};

/// Between the words about a plan and its measures.
const MEASURES: &str = ": a read waits ";

pub(super) fn schedule(ask: &Ask<'_>) -> Schedule {
    let reads = Reads::new(ask);
    if reads.is_empty() || ask.headroom_watts() <= 0.0 {
        return ask.all_off("too little power to wake any node");
    }
    let (reads, plans) = Plans::of(ask, reads);
    let scored = |(plan, rate): (Candidate, f64)| {
        let score = score(ask, &reads, &plan.duties, plan.period_ms, rate);
        Scored { score, plan }
    };
    let Plans { rivals, own, kept } = plans.map(scored);
    match choose(rivals, own, kept.into_iter().next()) {
        Some(chosen) => to_schedule(ask, chosen),
        // Neither supply nor battery carry any blink: as many nodes of the cover as the supply alone powers, in turns.
        None => blink(ask, &ask.cover()),
    }
}

/// Plans that come into question: supply and battery carry them.
struct Plans<T> {
    rivals: Vec<T>,
    own: Vec<T>,
    /// One at most.
    kept: Vec<T>,
}

impl Plans<(Candidate, f64)> {
    /// All plans with their rates, and the reads with the groups of nodes that bound any of them. Times of jobs depend on these groups, so
    /// they must be the same for all plans.
    fn of(ask: &Ask<'_>, mut reads: Reads) -> (Reads, Self) {
        let spares_disks = ask.rotational == Rotational::Spare && ask.affords(ask.extra_of(&ask.cover()));
        let is_carried = |candidate: &Candidate| {
            if !candidate.is_lit() || spares_disks && candidate.blinks_disks(ask) {
                return false;
            }
            let duties = ask.circle.iter().copied().zip(candidate.duties.iter().copied()).collect();
            carried(ask, &duties, candidate.period_ms)
        };
        let fitting = |found: Vec<Candidate>| found.into_iter().filter(&is_carried).collect::<Vec<_>>();
        let plans = Plans {
            rivals: fitting(rivals(ask)),
            own: fitting(candidates(ask, &reads)),
            kept: fitting(kept(ask).into_iter().collect()),
        };
        let plans = plans.map(|plan| {
            let rate = rate(ask, &mut reads, &plan.duties, plan.period_ms);
            (plan, rate)
        });
        reads.share_bounds();
        (reads, plans)
    }
}

impl<P> Plans<P> {
    fn map<T>(self, mut map: impl FnMut(P) -> T) -> Plans<T> {
        let mut all = |plans: Vec<P>| plans.into_iter().map(&mut map).collect();
        Plans { rivals: all(self.rivals), own: all(self.own), kept: all(self.kept) }
    }
}

/// The plan that is known for the time of the new one, as a candidate. Nodes that do not answer are left out: they get
/// the power that is left.
fn kept(ask: &Ask<'_>) -> Option<Candidate> {
    let plan = ask.kept.filter(|plan| plan.policy == PolicyKind::Tide)?;
    let duty = |node| match plan.nodes.get(node) {
        Some(part) if !ask.dead.contains(node) || ask.late.contains(node) => part.duty,
        _ => Duty::Off,
    };
    let duties = ask.circle.iter().map(duty).collect();
    let name = plan.why.split(MEASURES).next().unwrap_or_default().to_owned();
    Some(Candidate { duties, period_ms: plan.interval_ms, name })
}

fn to_schedule(ask: &Ask<'_>, chosen: Scored) -> Schedule {
    let Scored { plan, score } = chosen;
    let why = format!(
        "{}{MEASURES}{:.2} s on average, a job of {JOB_NODE_SECONDS:.0} node-seconds with {JOB_READS:.0} reads takes \
         {:.1} s, full reads have {:.2} nodes",
        plan.name,
        score.wait_s,
        score.job_s(),
        score.rate
    );
    let duties: BTreeMap<NodeId, Duty> = ask.circle.iter().copied().zip(plan.duties).collect();
    let is_served = |node: &NodeId| duties.get(node).is_some_and(|duty| *duty != Duty::Off);
    let is_alive = |node: &NodeId| !ask.dead.contains(node);
    let is_out = |set: &BTreeSet<NodeId>| set.iter().any(is_alive) && !set.iter().any(is_served);
    let is_read = |node: &NodeId| is_alive(node) && is_served(node);
    let stalls = |chain: &&DatasetChain| {
        let is_dark = |coded: &Coded| coded.parts.iter().any(is_alive) && !coded.is_at_hand(is_read);
        chain.holder_sets().keys().any(is_out) || chain.coded().iter().any(is_dark)
    };
    let stalled = ask.chains.iter().filter(stalls).map(|chain| chain.dataset).collect();
    Schedule { duties, interval_ms: plan.period_ms, stalled, why }
}
