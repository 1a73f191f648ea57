//! Repair: it keeps the number of good copies of each set.
//!
//! [`choose_repair`] is pure. It takes a view of one set with its members' conditions, and returns one step with its
//! reason. Steps are small, and the set is examined again after each, so that a plan never rests on old facts. The
//! module `look` chooses the sets to examine.

pub(crate) mod look;
pub mod surplus;

use ebb_types::NodeId;
use ebb_wire::pb;

use super::Reason;

/// Condition of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// On a live node, and undamaged.
    Good,
    /// Good, but its node is being drained. It is a source, but does not count as a copy.
    Draining,
    /// Its node has not been heard since this master started. It may be dead or fine, so repair waits.
    Unknown,
    /// Its node is dead.
    NodeLost,
    /// Its node lives, but the volume is poisoned, has another incarnation, or is gone.
    VolumeLost,
    /// Its replica is damaged or missing.
    Damaged,
    /// Its replica is damaged, and its volume has no room for a good copy beside it.
    Cramped,
}

impl Condition {
    /// Whether the member has good bytes that can be read now.
    pub fn is_source(self) -> bool {
        matches!(self, Self::Good | Self::Draining)
    }
}

/// One set with its members' conditions.
#[derive(Clone, Debug)]
pub struct SetView {
    /// Number of copies that the dataset wants.
    pub wanted: usize,
    /// Members with their conditions, in the order of the record.
    pub members: Vec<(pb::Member, Condition)>,
    /// The good member that leaves if there are more good ones than wanted; see [`surplus`].
    pub spare: Option<pb::Member>,
}

/// One step towards the wanted number of good copies.
#[derive(Clone, PartialEq, Debug)]
pub enum Repair {
    /// Copy from one of `sources` to a new volume, in the place of `replaced` if there is one.
    Copy {
        /// Readable members, best first.
        sources: Vec<pb::Member>,
        /// Member that leaves the set after the copy.
        replaced: Option<pb::Member>,
        /// Members that stay.
        staying: Vec<pb::Member>,
        /// Reason for the step.
        reason: Reason,
    },
    /// Copy from one of `sources` to a damaged member. The whole copy replaces the damaged replica in place. The set
    /// stays as it is, so data stay where the layout wants them, and no further node is needed.
    Renew {
        /// Readable members, best first.
        sources: Vec<pb::Member>,
        /// Member with the damaged replica.
        member: pb::Member,
    },
    /// Remove a member from the set without a copy.
    Drop {
        /// Member that leaves.
        dropped: pb::Member,
        /// Members that stay.
        staying: Vec<pb::Member>,
        /// Reason for the step.
        reason: Reason,
    },
    /// Copies are missing, and no member is readable.
    Impossible,
}

/// Chooses the next step for one set. `None` means that the set is as wanted, or that nothing is known against it.
///
/// I-16: a bad member leaves only when as many good copies as wanted remain. Damaged or lost members go before members
/// that are only to be moved.
#[must_use]
pub fn choose_repair(view: &SetView) -> Option<Repair> {
    let of = |wanted: &[Condition]| {
        let members = view.members.iter().filter(|(_, condition)| wanted.contains(condition));
        members.map(|(member, _)| *member).collect::<Vec<_>>()
    };
    // An unknown member may return with everything, so it counts until it is known to be lost.
    let counting = distinct_nodes(&of(&[Condition::Good, Condition::Unknown]));
    let bad = worst(view);
    let (sources, missing) = (of(&[Condition::Good, Condition::Draining]), counting < view.wanted);
    if !missing {
        let dropped = bad.map(|(member, _)| member).or_else(|| superfluous(view))?;
        return Some(Repair::Drop { dropped, staying: without(view, &dropped), reason: Reason::Superfluous });
    }
    if sources.is_empty() {
        // An unreadable copy may become readable later, so the record stays as it is.
        let hopeless = of(&[Condition::Unknown]).is_empty();
        return hopeless.then_some(Repair::Impossible);
    }
    if let Some(member) = first(view, Condition::Damaged) {
        return Some(Repair::Renew { sources, member });
    }
    let reason = bad.map_or(Reason::TooFew, |(_, reason)| reason);
    let replaced = bad.map(|(member, _)| member).filter(|_| view.members.len() >= view.wanted);
    let staying =
        replaced.map_or_else(|| view.members.iter().map(|(member, _)| *member).collect(), |gone| without(view, &gone));
    Some(Repair::Copy { sources, replaced, staying, reason })
}

/// Whether the set has more good copies than wanted. An unknown member counts for nothing here, for it may not come
/// back.
#[must_use]
pub fn has_surplus(view: &SetView) -> bool {
    distinct_nodes(&good(view)) > view.wanted
}

/// A good member beyond the wanted number.
fn superfluous(view: &SetView) -> Option<pb::Member> {
    let spare = view.spare.filter(|_| has_surplus(view))?;
    assert!(good(view).contains(&spare), "a member that leaves for nothing but the number is a good one");
    Some(spare)
}

fn good(view: &SetView) -> Vec<pb::Member> {
    let good = view.members.iter().filter(|(_, condition)| *condition == Condition::Good);
    good.map(|(member, _)| *member).collect()
}

/// Number of readable copies, on distinct nodes. A set with fewer is more urgent.
#[must_use]
pub fn readable(view: &SetView) -> usize {
    let good = view.members.iter().filter(|(_, is)| is.is_source());
    distinct_nodes(&good.map(|(member, _)| *member).collect::<Vec<_>>())
}

fn worst(view: &SetView) -> Option<(pb::Member, Reason)> {
    let ranked = [
        (Condition::Damaged, Reason::MemberDamaged),
        (Condition::Cramped, Reason::MemberDamaged),
        (Condition::VolumeLost, Reason::VolumeLost),
        (Condition::NodeLost, Reason::NodeLost),
        (Condition::Draining, Reason::NodeDrains),
    ];
    ranked.into_iter().find_map(|(condition, reason)| Some((first(view, condition)?, reason)))
}

fn first(view: &SetView, condition: Condition) -> Option<pb::Member> {
    view.members.iter().find(|(_, is)| *is == condition).map(|(member, _)| *member)
}

fn without(view: &SetView, gone: &pb::Member) -> Vec<pb::Member> {
    view.members.iter().map(|(member, _)| *member).filter(|member| member != gone).collect()
}

fn distinct_nodes(members: &[pb::Member]) -> usize {
    let nodes: std::collections::BTreeSet<NodeId> = members.iter().map(pb::Member::node_id).collect();
    nodes.len()
}

#[cfg(test)]
mod tests;
