//! Where a lost member is made again.

use ebb_layout::Chosen;
use ebb_layout::raid::{Part, RebuildAsk, Seat, choose_rebuild};
use ebb_types::{NodeId, Result};
use ebb_wire::pb;

use super::{Facts, Place, members_of, stays_of};

/// A node and volume for a part in place of a member of it.
///
/// Errors: `Unavailable` or `NoSpace` if no node may have it now.
pub(super) fn choose(facts: &Facts<'_>, place: &Place<'_>, replaced: &pb::Member) -> Result<pb::Member> {
    let copies = facts.code.copies as usize;
    let chosen = if place.members.len() > copies {
        choose_to_thin(facts, place, replaced)
    } else {
        choose_without(facts, place, replaced, nodes_of(place).collect())
    }?;
    let (node, volume, incarnation) = (chosen.node.raw(), chosen.volume.raw(), chosen.incarnation.raw());
    Ok(pb::Member { node, volume, incarnation, home: 0 })
}

fn nodes_of<'a>(place: &Place<'a>) -> impl Iterator<Item = NodeId> + 'a {
    place.members.iter().chain(place.leaving).map(pb::Member::node_id)
}

fn choose_without(
    facts: &Facts<'_>,
    place: &Place<'_>,
    replaced: &pb::Member,
    mut exclude: Vec<NodeId>,
) -> Result<Chosen> {
    exclude.extend(facts.exclude);
    let members = members_of(facts, |place| place.members.len() <= facts.code.copies as usize);
    let lost = Seat { node: replaced.node_id(), home: replaced.home_id() };
    let ask = RebuildAsk { members: &members, part: place.part, lost, exclude: &exclude, bytes: place.length };
    let strict = choose_rebuild(facts.sites, facts.rule, &ask, (facts.held)());
    // A rack that is lost may have been one too few. A member in a rack with others is better than none.
    strict.or_else(|_| choose_rebuild(facts.sites, &facts.rule.on_any_racks(), &ask, (facts.held)()))
}

/// A copy of a slot that has copies to spare, which the spread rule does not look at. It is to make others free to leave.
fn choose_to_thin(facts: &Facts<'_>, place: &Place<'_>, replaced: &pb::Member) -> Result<Chosen> {
    let Part::Slot(slot) = place.part else { return choose_without(facts, place, replaced, Vec::new()) };
    let copies = facts.code.copies as usize;
    let stays = |other: &Place<'_>| other.members.len() <= copies || other.part == place.part;
    let mut exclude: Vec<NodeId> =
        facts.places().filter(stays).flat_map(|other| nodes_of(&other).collect::<Vec<_>>()).collect();
    while let Ok(chosen) = choose_without(facts, place, replaced, exclude.clone()) {
        let mut copies = facts.good_copies();
        copies[slot as usize].push((chosen.node, chosen.volume));
        if stays_of(facts, copies).is_some() {
            return Ok(chosen);
        }
        exclude.push(chosen.node);
    }
    // Several copies are lost: one on a node without any part is a step.
    let all = facts.places().flat_map(|other| nodes_of(&other).collect::<Vec<_>>()).collect();
    choose_without(facts, place, replaced, all)
}
