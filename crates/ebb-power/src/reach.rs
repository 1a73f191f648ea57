//! What a plan would put out of reach.

use std::collections::BTreeSet;

use ebb_types::{NodeId, Result, bail};

use crate::plan::PowerPlan;

/// Data that lies on the same nodes, or on some of the same nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holding {
    /// Nodes with a current replica; guest replicas count.
    pub nodes: Vec<NodeId>,
    /// Each lies on at least so many of them, whichever; as many as there are, as a rule.
    pub copies: usize,
    /// Metablocks that lie like this.
    pub metablocks: u64,
    /// One of their files, for people.
    pub example: String,
}

/// Whether a plan is followed although it puts data out of reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Force {
    /// It is refused.
    Refuse,
    /// It is followed: somebody insisted, or there is no power for another.
    Insist,
}

/// Files named in a refusal.
const EXAMPLES: usize = 3;

/// Data that has a living replica, and none that the plan ever wakes for long enough to be read; of data that lies on some of
/// its nodes, that may have none. A node that the plan does not know is always on.
#[must_use]
pub fn at_stake<'a>(plan: &PowerPlan, holdings: &'a [Holding], dead: &BTreeSet<NodeId>) -> Vec<&'a Holding> {
    let reachable = |node: &NodeId| {
        plan.nodes.get(node).is_none_or(|plan_of| plan_of.is_reachable(plan.interval_ms, plan.guard_ms))
    };
    let is_lost = |holding: &&Holding| {
        let (gone, living): (Vec<_>, Vec<_>) = holding.nodes.iter().partition(|node| dead.contains(node));
        let dark = living.into_iter().filter(|node| !reachable(node)).count();
        dark > 0 && gone.len() + dark >= holding.copies
    };
    holdings.iter().filter(is_lost).collect()
}

/// Refuses (`NotPermitted`), naming files and nodes, a plan that would switch off the last replica node of something,
/// unless somebody insists.
pub fn admit(plan: &PowerPlan, holdings: &[Holding], dead: &BTreeSet<NodeId>, force: Force) -> Result<()> {
    admit_lost(plan, &at_stake(plan, holdings, dead), force)
}

/// The same of a plan that follows another one. What that one has out of reach already keeps nothing from being brought back.
pub fn admit_after(
    last: &PowerPlan,
    plan: &PowerPlan,
    holdings: &[Holding],
    dead: &BTreeSet<NodeId>,
    force: Force,
) -> Result<()> {
    let before = at_stake(last, holdings, dead);
    let is_news = |lost: &&Holding| !before.iter().any(|known| std::ptr::eq(*known, *lost));
    let lost: Vec<&Holding> = at_stake(plan, holdings, dead).into_iter().filter(is_news).collect();
    admit_lost(plan, &lost, force)
}

fn admit_lost(plan: &PowerPlan, lost: &[&Holding], force: Force) -> Result<()> {
    if lost.is_empty() || force == Force::Insist {
        return Ok(());
    }
    let metablocks: u64 = lost.iter().map(|holding| holding.metablocks).sum();
    let nodes: BTreeSet<NodeId> = lost.iter().flat_map(|holding| &holding.nodes).copied().collect();
    let nodes: Vec<String> = nodes.iter().take(8).map(ToString::to_string).collect();
    let files: Vec<&str> = lost.iter().take(EXAMPLES).map(|holding| holding.example.as_str()).collect();
    let more = if lost.len() > EXAMPLES { " and others" } else { "" };
    bail!(
        NotPermitted,
        "{} ({}) would switch off the last nodes with {metablocks} metablocks ({}), of {}{more}: raise the power, choose a \
         policy that blinks, or force it",
        plan.version,
        plan.policy,
        nodes.join(", "),
        files.join(", ")
    )
}
