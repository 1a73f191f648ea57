//! Where a lost member is made again.

use std::collections::{BTreeMap, BTreeSet};

use ebb_layout::Chosen;
use ebb_layout::raid::{Part, RebuildAsk, Seat, choose_rebuild};
use ebb_types::{NodeId, Result, VolumeId};
use ebb_wire::pb;

use super::{Facts, Place, members_of, rows_of, stays_beside};

/// A node and volume for a part in place of a member of it.
///
/// Errors: `Unavailable` or `NoSpace` if no node may have it now.
pub(super) fn choose(facts: &Facts<'_>, place: &Place<'_>, replaced: &pb::Member) -> Result<pb::Member> {
    let copies = facts.code.copies as usize;
    let beside = || choose_without(facts, place, replaced, nodes_of(place).collect());
    let chosen = match place.part {
        Part::Slot(_) if place.members.len() > copies => choose_to_thin(facts, place, replaced),
        // Slots with too few copies left to lie apart from any row get more of them later.
        Part::Row(row) if facts.has_spare_copies() => {
            choose_beside_slots(facts, place, replaced, row).or_else(|_| beside())
        }
        _ => beside(),
    }?;
    Ok(member(&chosen))
}

/// A member at home on a chosen volume.
pub(super) fn member(chosen: &Chosen) -> pb::Member {
    let (node, volume, incarnation) = (chosen.node.raw(), chosen.volume.raw(), chosen.incarnation.raw());
    pb::Member { node, volume, incarnation, home: 0 }
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
    let ask = RebuildAsk {
        members: &members,
        part: place.part,
        lost,
        exclude: &exclude,
        bytes: place.length,
        coming: facts.coming,
    };
    let strict = choose_rebuild(facts.sites, facts.rule, &ask, (facts.held)());
    // A rack that is lost may have been one too few. A member in a rack with others is better than none.
    strict.or_else(|_| choose_rebuild(facts.sites, &facts.rule.on_any_racks(), &ask, (facts.held)()))
}

/// A node for a row while slots have copies to spare: one beside which a copy of each can stay. The spread rule does not look at such
/// slots, and a row on the only host of one would keep all copies from ever leaving.
///
/// Errors: those of [`choose`], if there is no such node.
pub(super) fn choose_beside_slots(
    facts: &Facts<'_>,
    place: &Place<'_>,
    replaced: &pb::Member,
    row: u32,
) -> Result<Chosen> {
    let (mut rows, copies) = (rows_of(facts), facts.good_copies());
    let mut exclude: Vec<NodeId> = nodes_of(place).collect();
    loop {
        let chosen = choose_without(facts, place, replaced, exclude.clone())?;
        rows[row as usize] = Some(chosen.node);
        if stays_beside(facts, &rows, &copies).is_some() {
            return Ok(chosen);
        }
        exclude.push(chosen.node);
    }
}

/// A copy of a slot that has copies to spare, which the spread rule does not look at. It is to make others free to leave.
fn choose_to_thin(facts: &Facts<'_>, place: &Place<'_>, replaced: &pb::Member) -> Result<Chosen> {
    let Part::Slot(slot) = place.part else { return choose_without(facts, place, replaced, Vec::new()) };
    let copies = facts.code.copies as usize;
    // What leaves a thin slot is in nobody's way.
    let thin = facts.places().filter(|other| other.members.len() <= copies && other.part != place.part);
    let mut exclude: Vec<NodeId> = thin.flat_map(|other| other.members).map(pb::Member::node_id).collect();
    exclude.extend(nodes_of(place));
    let before = slots_apart(facts, &facts.good_copies());
    let mut helpful = None;
    let none_left = loop {
        let chosen = match choose_without(facts, place, replaced, exclude.clone()) {
            Ok(chosen) => chosen,
            Err(error) => break error,
        };
        let mut copies = facts.good_copies();
        copies[slot as usize].push((chosen.node, chosen.volume));
        if stays_beside(facts, &rows_of(facts), &copies).is_some() {
            return Ok(chosen);
        }
        exclude.push(chosen.node);
        if helpful.is_none() && slots_apart(facts, &copies) > before {
            helpful = Some(chosen);
        }
    };
    // Several copies are lost: one by which one slot more has a node of its own is a step.
    helpful.ok_or(none_left)
}

/// Whether each slot could keep a good copy on a node of its own beside the rows, if all nodes were on.
pub(super) fn could_lie_apart(facts: &Facts<'_>) -> bool {
    slots_apart(facts, &facts.good_copies()) == facts.set.slots.len()
}

/// How many slots can have a node of their own with one of these copies, beside the rows.
fn slots_apart(facts: &Facts<'_>, copies: &[Vec<(NodeId, VolumeId)>]) -> usize {
    let rows = rows_of(facts);
    let nodes = |slot: &Vec<(NodeId, VolumeId)>| {
        slot.iter().map(|one| one.0).filter(|node| !rows.contains(&Some(*node))).collect()
    };
    count_apart(&copies.iter().map(nodes).collect::<Vec<_>>())
}

/// How many slots can have a node of their own, one of theirs each: the size of a largest matching.
fn count_apart(slots: &[Vec<NodeId>]) -> usize {
    fn give_own_node(
        slot: usize,
        slots: &[Vec<NodeId>],
        tried: &mut BTreeSet<NodeId>,
        settled: &mut BTreeMap<NodeId, usize>,
    ) -> bool {
        slots[slot].iter().any(|node| {
            let is_free = tried.insert(*node)
                && settled.get(node).copied().is_none_or(|other| give_own_node(other, slots, tried, settled));
            if is_free {
                settled.insert(*node, slot);
            }
            is_free
        })
    }
    let mut settled = BTreeMap::new();
    (0..slots.len()).filter(|slot| give_own_node(*slot, slots, &mut BTreeSet::new(), &mut settled)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_make_room_for_each_other() {
        let count = |slots: &[&[u64]]| {
            count_apart(&slots.iter().map(|nodes| nodes.iter().copied().map(NodeId::new).collect()).collect::<Vec<_>>())
        };
        assert_eq!(count(&[&[1, 2], &[1], &[2, 3], &[1, 2, 3]]), 3);
        assert_eq!(count(&[&[1, 2], &[1], &[2, 3], &[3, 4]]), 4);
        assert_eq!(count(&[&[], &[1], &[1]]), 1);
    }
}
