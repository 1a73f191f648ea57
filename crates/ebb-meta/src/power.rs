//! Power plans that were published: durable before anybody follows them.
//!
//! The state machine does not look into a plan: its version and when it comes into force stand beside it.

use ebb_types::{Result, bail};
use ebb_wire::pb;

use crate::machine::Machine;

/// Plans that are kept: the one in force and those announced.
pub(crate) const PLANS_MAX: usize = 9;

impl Machine {
    /// Plans in force and announced, oldest first.
    pub fn plans(&self) -> impl Iterator<Item = &pb::PublishedPlan> + '_ {
        self.plans.iter()
    }

    /// Takes a plan. `Stale` if a later one, or this one, is there: another manager was faster.
    pub(crate) fn publish_plan(&mut self, now_ns: i64, plan: &pb::PublishedPlan) -> Result<()> {
        let newest = self.plans.last().map_or(0, |known| known.version);
        if plan.version <= newest {
            bail!(Stale, "power plan v{} comes after v{newest}: ask for the plans again", plan.version);
        }
        let now_ms = u64::try_from(now_ns / 1_000_000).unwrap_or(0);
        // A plan that was to follow, and starts no earlier than this one, never comes into force.
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
