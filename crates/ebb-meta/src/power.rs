//! Published power plans. A plan is durable before any process follows it.
//!
//! The state machine does not look into a plan. The version and the start of the plan stand beside it.

use ebb_types::{Result, bail};
use ebb_wire::pb;

use crate::machine::Machine;

/// Most plans that are kept: the one in force and the announced ones.
pub(crate) const PLANS_MAX: usize = 9;

impl Machine {
    /// Plans in force and announced, oldest first.
    pub fn plans(&self) -> impl Iterator<Item = &pb::PublishedPlan> + '_ {
        self.plans.iter()
    }

    /// Records a plan. Fails with kind `Stale` if this plan or a later one is recorded: another manager was faster.
    pub(crate) fn publish_plan(&mut self, now_ns: i64, plan: &pb::PublishedPlan) -> Result<()> {
        let newest = self.plans.last().map_or(0, |known| known.version);
        if plan.version <= newest {
            bail!(Stale, "power plan v{} comes after v{newest}: ask for the plans again", plan.version);
        }
        let now_ms = u64::try_from(now_ns / 1_000_000).unwrap_or(0);
        // An announced plan that starts no earlier than this one never comes into force.
        self.plans.retain(|known| known.start_ms < plan.start_ms);
        let over = self.plans.iter().filter(|known| known.start_ms <= now_ms).count().saturating_sub(1);
        self.plans.drain(..over);
        if self.plans.len() >= PLANS_MAX {
            bail!(Overloaded, "{} power plans are announced already", self.plans.len());
        }
        self.plans.push(plan.clone());
        Ok(())
    }
}
