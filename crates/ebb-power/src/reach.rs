//! Data that a plan would put out of reach.

use std::collections::BTreeSet;

use ebb_types::{NodeId, Result, bail, counted};

use crate::plan::{Duty, PowerPlan};

/// Metablocks with replicas on the same nodes, or on some of the same nodes; or those of a RAID set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holding {
    /// Nodes with a current replica; guest replicas count.
    pub nodes: Vec<NodeId>,
    /// Least number of these nodes on which each metablock lies; usually all of them.
    pub copies: usize,
    /// Number of these metablocks.
    pub metablocks: u64,
    /// Name of one of their files, for people; empty if it was not looked up.
    pub example: String,
    /// Nodes of the slots that files have, if they are a RAID set; else empty. The nodes above are then those of all its
    /// parts, and without so many of them as `copies` says a slot elsewhere cannot be decoded. Decoding needs the others
    /// together, so a node that blinks is no help to another.
    pub slots: Vec<NodeId>,
}

impl Holding {
    /// Whether both describe the same metablocks.
    #[must_use]
    pub fn lies_like(&self, other: &Self) -> bool {
        (&self.nodes, self.copies, &self.slots) == (&other.nodes, other.copies, &other.slots)
    }

    /// Whether they are slots of a RAID set with one copy of each.
    #[must_use]
    pub fn is_decoded(&self) -> bool {
        !self.slots.is_empty()
    }
}

/// Whether a plan is followed even if it puts data out of reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Force {
    /// The plan is refused.
    Refuse,
    /// The plan is followed: the operator insisted, or there is no power for another plan.
    Insist,
}

/// Files named in a refusal.
const EXAMPLES: usize = 3;

/// Data with a living replica, but without one on a node that the plan ever wakes for long enough to be read. For data
/// that lies on some of its nodes, it is enough that this may be so. A node that is not in the plan is always on.
#[must_use]
pub fn at_stake<'a>(plan: &PowerPlan, holdings: &'a [Holding], dead: &BTreeSet<NodeId>) -> Vec<&'a Holding> {
    let reachable = |node: &NodeId| {
        plan.nodes.get(node).is_none_or(|plan_of| plan_of.is_reachable(plan.interval_ms, plan.guard_ms))
    };
    let blinks = |node: &NodeId| plan.nodes.get(node).is_some_and(|plan_of| plan_of.duty != Duty::On);
    let is_lost = |holding: &&Holding| {
        let (gone, living): (Vec<_>, Vec<_>) = holding.nodes.iter().partition(|node| dead.contains(node));
        let dark = living.iter().filter(|node| !reachable(node)).count();
        if !holding.is_decoded() {
            return dark > 0 && gone.len() + dark >= holding.copies;
        }
        // What is on a node that is reached is read there. The rest is decoded of nodes that are on together.
        let is_read_there = |node: &NodeId| !dead.contains(node) && reachable(node);
        let unsteady = living.iter().filter(|node| blinks(node)).count();
        let is_decodable = gone.len() + unsteady < holding.copies;
        unsteady > 0 && !is_decodable && !holding.slots.iter().all(is_read_there)
    };
    holdings.iter().filter(is_lost).collect()
}

/// Data at stake under the new plan that the present plan has within reach. Data that are out of reach already do not
/// stop a plan that brings other data back.
#[must_use]
pub fn newly_at_stake<'a>(
    last: &PowerPlan,
    plan: &PowerPlan,
    holdings: &'a [Holding],
    dead: &BTreeSet<NodeId>,
) -> Vec<&'a Holding> {
    let before = at_stake(last, holdings, dead);
    let is_news = |lost: &&Holding| !before.iter().any(|known| std::ptr::eq(*known, *lost));
    at_stake(plan, holdings, dead).into_iter().filter(is_news).collect()
}

/// Refuses a plan that would switch off the last nodes with `lost`, unless `force` insists: `NotPermitted`, with files
/// and nodes.
pub fn admit(plan: &PowerPlan, lost: &[&Holding], force: Force) -> Result<()> {
    if lost.is_empty() || force == Force::Insist {
        return Ok(());
    }
    let metablocks: u64 = lost.iter().map(|holding| holding.metablocks).sum();
    let nodes: BTreeSet<NodeId> = lost.iter().flat_map(|holding| &holding.nodes).copied().collect();
    let nodes: Vec<String> = nodes.iter().take(8).map(ToString::to_string).collect();
    let files: Vec<&str> =
        named(lost).map(|holding| holding.example.as_str()).filter(|file| !file.is_empty()).collect();
    let more = if lost.len() > EXAMPLES { " and others" } else { "" };
    let of = if files.is_empty() { String::new() } else { format!(", of {}{more}", files.join(", ")) };
    bail!(
        NotPermitted,
        "the policy {} would switch off {}, the last nodes with {}{of}: raise the power, choose a policy that blinks, or \
         force it",
        plan.policy,
        nodes.join(", "),
        counted(metablocks, "metablock")
    )
}

/// The holdings with files named in an error sentence.
#[must_use]
pub fn spoken_of(lost: &[&Holding]) -> Vec<Holding> {
    named(lost).cloned().collect()
}

fn named<'a>(lost: &[&'a Holding]) -> impl Iterator<Item = &'a Holding> {
    lost.iter().copied().take(EXAMPLES)
}
