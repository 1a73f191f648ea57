//! The last answer of a policy, with its question: between two changes a policy is not asked again.
//!
//! A policy may weigh many plans. The manager asks at every reading, which is several times a second.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::{NodeId, PlanVersion, Result};

use crate::battery::Battery;
use crate::chain::DatasetChain;
use crate::hardware::{Hardware, Supply};
use crate::plan::PowerPlan;
use crate::policy::{Ask, PolicyKind, Rotational, Timing, choose};

/// An [`Ask`] with its values. Plans are compared by their versions: a version has one plan.
#[derive(Clone, PartialEq, Debug)]
struct Question {
    policy: PolicyKind,
    hardware: Hardware,
    supply: Supply,
    battery: Battery,
    circle: Vec<NodeId>,
    chains: Vec<DatasetChain>,
    dead: BTreeSet<NodeId>,
    late: BTreeSet<NodeId>,
    popularity: BTreeMap<NodeId, f64>,
    rotational: Rotational,
    timing: Timing,
    lead_ms: u64,
    forecast: Vec<f64>,
    last: Option<PlanVersion>,
    kept: Option<PlanVersion>,
}

/// The last question and its answer.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Memo(Option<(Question, PowerPlan)>);

impl Memo {
    /// The policy's plan.
    pub fn choose(&mut self, policy: PolicyKind, ask: &Ask<'_>) -> Result<PowerPlan> {
        if let Some((question, plan)) = &self.0
            && question.is(policy, ask)
        {
            return Ok(plan.clone());
        }
        let plan = choose(policy, ask)?;
        self.0 = Some((Question::of(policy, ask), plan.clone()));
        Ok(plan)
    }
}

impl Question {
    fn of(policy: PolicyKind, ask: &Ask<'_>) -> Self {
        Self {
            policy,
            hardware: ask.hardware.clone(),
            supply: ask.supply,
            battery: ask.battery,
            circle: ask.circle.to_vec(),
            chains: ask.chains.to_vec(),
            dead: ask.dead.clone(),
            late: ask.late.clone(),
            popularity: ask.popularity.clone(),
            rotational: ask.rotational,
            timing: ask.timing,
            lead_ms: ask.lead_ms,
            forecast: ask.forecast.to_vec(),
            last: ask.last.map(|last| last.version),
            kept: ask.kept.map(|kept| kept.version),
        }
    }

    fn is(&self, policy: PolicyKind, ask: &Ask<'_>) -> bool {
        let plans = (ask.last.map(|last| last.version), ask.kept.map(|kept| kept.version));
        self.policy == policy
            && self.timing == ask.timing
            && self.supply == ask.supply
            && self.battery == ask.battery
            && (self.last, self.kept) == plans
            && self.circle == ask.circle
            && (&self.dead, &self.late) == (ask.dead, ask.late)
            && self.chains == ask.chains
            && &self.popularity == ask.popularity
            && &self.hardware == ask.hardware
            && (self.rotational, self.lead_ms) == (ask.rotational, ask.lead_ms)
            && self.forecast == ask.forecast
    }
}
