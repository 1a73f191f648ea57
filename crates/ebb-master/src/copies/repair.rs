//! Keeping the number of copies: what is wrong with one set, and what to do about it.
//!
//! [`choose_repair`] is pure: a view of one metablock and of its members' condition in, one step with its reason out.
//! Steps are small and the set is looked at again after each, so that a plan never rests on what was true long ago.
//! Which sets are looked at is in `look`.

pub(crate) mod look;

use ebb_types::NodeId;
use ebb_wire::pb;

use super::Reason;

/// How a member is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Condition {
    /// On a live node, undamaged.
    Good,
    /// Good, but its node is being drained: a source, not a copy that counts.
    Draining,
    /// Its node has not been heard of since this master started: wait, it may be dead or fine.
    Unknown,
    /// Its node is dead.
    NodeLost,
    /// Its node lives, with the volume poisoned, in another life, or without it.
    VolumeLost,
    /// Its bytes are damaged or missing.
    Damaged,
    /// Damaged, and its volume found no room for a good copy beside what it has.
    Cramped,
}

/// What is known of one set.
#[derive(Clone, Debug)]
pub struct SetView {
    /// Copies that the dataset asks for.
    pub wanted: usize,
    /// Members and how they are, in the order of the record.
    pub members: Vec<(pb::Member, Condition)>,
}

/// One step towards the wanted number of good copies.
#[derive(Clone, PartialEq, Debug)]
pub enum Repair {
    /// Copy from one of `sources` to a new volume; it takes the place of `replaced`, if any.
    Copy {
        /// Members that can be read, best first.
        sources: Vec<pb::Member>,
        /// Who leaves the set when the copy is made.
        replaced: Option<pb::Member>,
        /// Members that stay.
        staying: Vec<pb::Member>,
        /// Why.
        reason: Reason,
    },
    /// Copy from one of `sources` to a damaged member, where the copy takes the place of what is there when it is
    /// whole. The set stays as it is: data stay where the layout wants them, and it goes without a further node.
    Renew {
        /// Members that can be read, best first.
        sources: Vec<pb::Member>,
        /// Whose replica is made good.
        member: pb::Member,
    },
    /// Take a member out of the set; nothing is copied.
    Drop {
        /// Who leaves.
        dropped: pb::Member,
        /// Members that stay.
        staying: Vec<pb::Member>,
        /// Why.
        reason: Reason,
    },
    /// Copies are missing, but no member can be read.
    Impossible,
}

/// The next step for one set; `None`: it is as it should be (or nothing is known against it).
///
/// A bad member leaves only when the copies that count are as many as wanted. What is damaged or lost goes before
/// what is only to be moved.
#[must_use]
pub fn choose_repair(view: &SetView) -> Option<Repair> {
    let of = |wanted: &[Condition]| {
        let members = view.members.iter().filter(|(_, condition)| wanted.contains(condition));
        members.map(|(member, _)| *member).collect::<Vec<_>>()
    };
    // An unknown member may come back with everything: it counts until it is known to be lost.
    let counting = distinct_nodes(&of(&[Condition::Good, Condition::Unknown]));
    let bad = worst(view);
    let (sources, missing) = (of(&[Condition::Good, Condition::Draining]), counting < view.wanted);
    if !missing {
        let (dropped, _) = bad?;
        return Some(Repair::Drop { dropped, staying: without(view, &dropped), reason: Reason::Superfluous });
    }
    if sources.is_empty() {
        // What cannot be read now may be readable later: the record stays as it is.
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

/// Copies that can be read, on distinct nodes: the fewer, the more urgent.
#[must_use]
pub fn readable(view: &SetView) -> usize {
    let good = view.members.iter().filter(|(_, is)| matches!(is, Condition::Good | Condition::Draining));
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
