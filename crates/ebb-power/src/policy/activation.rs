//! Whole nodes along the expansion chains, or whole gears (Rabbit, Sec. 3).
//!
//! Covers come first, dataset by dataset, by falling weight. A dataset stalls if its cover cannot be powered. The power
//! that is left goes stage by stage to the dataset that has least for its weight (Sec. 3.4's fair share).

use std::collections::BTreeSet;

use ebb_types::{DatasetId, NodeId};

use super::{Ask, Schedule};
use crate::chain::DatasetChain;
use crate::plan::Duty;

pub(super) fn schedule(ask: &Ask<'_>) -> Schedule {
    let active = choose_active(ask);
    let why = match (active.on.len(), active.stalled.len()) {
        (on, 0) => format!("{on} of {} nodes on", ask.living().len()),
        (on, stalled) => format!("{on} of {} nodes on; too little power for {stalled} datasets", ask.living().len()),
    };
    on_for_good(ask, active, why)
}

pub(super) fn on_for_good(ask: &Ask<'_>, active: Active, why: String) -> Schedule {
    Schedule {
        duties: active.on.into_iter().map(|node| (node, Duty::On)).collect(),
        interval_ms: ask.timing.interval_ms,
        stalled: active.stalled,
        why,
    }
}

/// Nodes that are on, and datasets that stall.
#[derive(Default)]
pub(super) struct Active {
    pub on: BTreeSet<NodeId>,
    pub stalled: Vec<DatasetId>,
    /// Stages that are on, in the order in which they were added.
    pub added: Vec<Vec<NodeId>>,
    /// The stages that would come next, with more power: at most one of each dataset, and one
    /// outside all datasets.
    pub refused: Vec<Vec<NodeId>>,
}

pub(super) fn choose_active(ask: &Ask<'_>) -> Active {
    let mut fill = Fill { ask, on: BTreeSet::new(), spent: 0.0, added: Vec::new(), refused: Vec::new() };
    let mut order: Vec<&DatasetChain> = ask.chains.iter().collect();
    order.sort_by(|one, other| other.weight.total_cmp(&one.weight).then(one.dataset.cmp(&other.dataset)));
    let mut stalled = Vec::new();
    let mut growing: Vec<Growing<'_>> = Vec::new();
    for chain in order {
        let mut stages = chain.stages(ask.dead).into_iter();
        let cover = stages.next().unwrap_or_default();
        if fill.add(&cover) {
            growing.push(Growing { chain, next: stages.collect(), count: cover.len() });
        } else {
            stalled.push(chain.dataset);
        }
    }
    fill.grow(&mut growing);
    // A dataset that stalls leaves its power unused: it does not go to nodes outside all chains.
    if stalled.is_empty() {
        let chained: BTreeSet<NodeId> = ask.chains.iter().flat_map(DatasetChain::nodes).copied().collect();
        let refused = fill.refused.len();
        for node in ask.living().into_iter().filter(|node| !chained.contains(node)) {
            fill.add(&[node]);
        }
        fill.refused.truncate(refused + 1);
    }
    stalled.sort_unstable();
    Active { on: fill.on, stalled, added: fill.added, refused: fill.refused }
}

struct Growing<'a> {
    chain: &'a DatasetChain,
    next: std::collections::VecDeque<Vec<NodeId>>,
    count: usize,
}

impl Growing<'_> {
    fn share(&self) -> f64 {
        self.count as f64 / self.chain.weight.max(f64::MIN_POSITIVE)
    }
}

struct Fill<'a> {
    ask: &'a Ask<'a>,
    on: BTreeSet<NodeId>,
    spent: f64,
    added: Vec<Vec<NodeId>>,
    refused: Vec<Vec<NodeId>>,
}

impl Fill<'_> {
    /// Switches these on too, all or none.
    fn add(&mut self, nodes: &[NodeId]) -> bool {
        let new: BTreeSet<NodeId> = nodes.iter().copied().filter(|node| !self.on.contains(node)).collect();
        let extra = self.ask.extra_of(&new);
        if !self.ask.affords(self.spent + extra) {
            self.refused.push(nodes.to_vec());
            return false;
        }
        self.spent += extra;
        self.on.extend(new);
        self.added.push(nodes.to_vec());
        true
    }

    /// Adds stages, always for the dataset that has least for its weight, until the power is used up. A dataset ends at
    /// the first stage that cannot be powered, because gears come whole and in order.
    fn grow(&mut self, growing: &mut Vec<Growing<'_>>) {
        growing.retain(|one| !one.next.is_empty());
        while let Some(at) = (0..growing.len()).min_by(|one, other| {
            let share = |at: usize| growing[at].share();
            share(*one).total_cmp(&share(*other)).then(growing[*one].chain.dataset.cmp(&growing[*other].chain.dataset))
        }) {
            let one = &mut growing[at];
            let stage = one.next.pop_front().expect("those without a stage are gone");
            let done = !self.add(&stage) || one.next.is_empty();
            one.count += stage.len();
            if done {
                growing.remove(at);
            }
        }
    }
}
