//! Where a lost member of a RAID set is made again.

use std::collections::BTreeMap;

use ebb_types::{NodeId, Result, bail, counted, human_bytes};

use super::spread::{Part, Placed, RaidMembers, Seat};
use super::work::{Held, Work};
use super::{RaidRule, Sites};
use crate::{Chosen, Reason, VolumeView};

/// One member to make again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RebuildAsk<'a> {
    /// The members that are recorded, the lost one too.
    pub members: &'a RaidMembers,
    /// The part that lost a member.
    pub part: Part,
    /// The member that is lost.
    pub lost: Seat,
    /// Nodes that take none.
    pub exclude: &'a [NodeId],
    /// Room that it needs, in bytes.
    pub bytes: u64,
    /// Nodes on which members are being made, and how many. What they hold is counted when that is recorded.
    pub coming: &'a BTreeMap<NodeId, u64>,
}

/// The node for a lost member: one that the spread rule of its own RAID set allows, and that comes nearest to what the
/// layout wants. Of equals it is one on which fewest others are being made, and that holds least.
///
/// Errors: `Unavailable` if no node that is on may have it, `NoSpace` if those that may have no room.
pub fn choose_rebuild(sites: &Sites<'_>, rule: &RaidRule, ask: &RebuildAsk<'_>, held: &Held) -> Result<Chosen> {
    let work = Work::new(sites, rule, held);
    let mut placed = Placed::new(sites, rule.spread());
    ask.members.seats().filter(|one| *one != (ask.part, ask.lost)).for_each(|(part, seat)| placed.add(part, seat));
    let is_open = |node: &NodeId| {
        *node != ask.lost.node
            && !ask.exclude.contains(node)
            && !ask.members.seats().any(|(_, seat)| seat.node == *node)
            && sites.serving(*node).next().is_some()
    };
    let open: Vec<NodeId> = sites.nodes().map(|(node, _)| node).filter(is_open).collect();
    let allowed: Vec<NodeId> =
        open.iter().copied().filter(|node| placed.allows(ask.part, Seat::at_home(*node))).collect();
    if allowed.is_empty() {
        bail!(
            Unavailable,
            "{} of a RAID set {} needs a host that keeps its members apart, and none of {} that could take it is such a \
             one: start or add a node",
            ask.part,
            rule.spread().code,
            counted(open.len() as u64, "node")
        );
    }
    let roomy = allowed.iter().filter_map(|node| Some((*node, work.roomiest(*node, ask.bytes)?)));
    let best = roomy.min_by_key(|(node, volume)| rank(&work, ask, *node, volume));
    let Some((node, volume)) = best else {
        bail!(
            NoSpace,
            "{} of a RAID set {}: none of the {} that may have it has room for {}: remove files, or add nodes or volumes",
            ask.part,
            rule.spread().code,
            counted(allowed.len() as u64, "node"),
            human_bytes(ask.bytes)
        );
    };
    let reason = wish(&work, ask, node).1;
    Ok(Chosen { node, volume: volume.volume, incarnation: volume.incarnation, home: node, reason })
}

/// The lesser, the better.
fn rank(work: &Work<'_>, ask: &RebuildAsk<'_>, node: NodeId, volume: &VolumeView) -> impl Ord + use<> {
    let rack = |node: NodeId| work.sites.rack_of(node);
    let in_rack = ask.members.seats().filter(|(_, seat)| *seat != ask.lost && rack(seat.node) == rack(node)).count();
    let holds = match ask.part {
        Part::Slot(_) => work.held.thin_on(node),
        Part::Row(_) => work.held.check_bytes_on(node) / ask.bytes.max(1),
    };
    let coming = ask.coming.get(&node).copied().unwrap_or(0);
    (wish(work, ask, node).0, coming, holds, in_rack, volume.load, node)
}

/// How far a node is from what the layout wants, and the reason if it is taken.
fn wish(work: &Work<'_>, ask: &RebuildAsk<'_>, node: NodeId) -> (usize, Reason) {
    let Some(chain) = work.rule.chain.as_deref().filter(|_| work.rule.layout.has_chain()) else {
        return match ask.part {
            Part::Slot(_) => (0, Reason::FewestThin),
            Part::Row(_) => (0, Reason::FewestChecks),
        };
    };
    let Some(place) = chain.place_of(node) else { return (usize::MAX, Reason::RunGivenUp) };
    if !work.rule.layout.has_primaries() {
        let nodes = chain.nodes().len();
        let lost = chain.place_of(ask.lost.home).unwrap_or(place);
        return (super::draft::distance(nodes, &[lost], place), Reason::CircleNext);
    }
    let is_primary = |node: NodeId| chain.place_of(node).is_some_and(|place| place < chain.primaries() as usize);
    let is_in_run = |copy: usize| {
        (0..chain.columns()).any(|column| chain.run(copy, column).iter().any(|(other, _)| *other == place))
    };
    let own = ask.members.of(ask.part).iter().filter(|seat| **seat != ask.lost);
    match ask.part {
        Part::Slot(_) if !own.clone().any(|seat| is_primary(seat.node)) => {
            if is_primary(node) {
                (0, Reason::OwnPrimary)
            } else {
                (1, Reason::RunGivenUp)
            }
        }
        Part::Slot(_) if is_in_run(1) => (0, Reason::ChainRun),
        Part::Row(row) if is_in_run((row + work.rule.spread.code.copies) as usize) => (0, Reason::RowRun),
        // Primaries hold the slots of all; nothing else belongs there.
        _ => (1 + usize::from(is_primary(node)), Reason::RunGivenUp),
    }
}

#[cfg(test)]
mod tests;
