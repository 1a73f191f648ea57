//! What a RAID set needs next. Pure.
//!
//! ```text
//!  sealed ── Thin ──► copies leave ── Drop ──► thin
//!               └ a member is lost or damaged: Mend, before anything leaves
//! ```
//!
//! A dataset that wants copies again gets them slot by slot; then its RAID sets end.

use std::collections::BTreeMap;

use ebb_layout::raid::{
    Held, Part, RaidMembers, RaidRule, RebuildTime, Seat, Sites, check_spread, choose_rebuild_time, choose_stays,
    fewest_fatal_losses,
};
use ebb_types::{MetablockId, NodeId, RaidCode, VolumeId};
use ebb_wire::pb;

use crate::copies::repair::Condition;

/// A change of one RAID set.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Step {
    /// Freeze the members that stay, slot by slot, and record that the others leave.
    Thin(Vec<Vec<pb::Member>>),
    /// Find every part sound, and record that what leaves is needed no more.
    Drop,
    /// Make a member again.
    Mend(Mend),
    /// Have ballast promise to serve decoding alone.
    Retire(Vec<(MetablockId, pb::Member)>),
    /// Make a further copy of a slot, for a dataset that wants copies again.
    Return(MetablockId),
    /// Every living slot has the copies that its dataset wants: the RAID set ends.
    Dissolve,
    /// Nothing can be done now.
    Wait(String),
}

/// One member that is made again.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Mend {
    /// Slot or row.
    pub part: Part,
    /// Its metablock.
    pub metablock: MetablockId,
    /// The member that is lost, damaged, or leaves its node.
    pub replaced: pb::Member,
    /// Where it is made. `None`: at the same place, because it is damaged.
    pub target: Option<pb::Member>,
    /// A good copy of the same metablock. `None`: it is decoded.
    pub source: Option<pb::Member>,
    /// A slot that no file has any more.
    pub is_ballast: bool,
}

/// Facts about one RAID set.
pub(crate) struct Facts<'a> {
    pub set: &'a pb::RaidSet,
    pub code: RaidCode,
    pub sites: &'a Sites<'a>,
    pub rule: &'a RaidRule,
    /// Slots and check bytes on each node. They are counted when a step first needs them.
    pub held: &'a dyn Fn() -> &'a Held,
    /// Members that are being made on each node.
    pub coming: &'a BTreeMap<NodeId, u64>,
    /// The condition of each member, by metablock and volume.
    pub conditions: BTreeMap<(MetablockId, VolumeId), Condition>,
    /// Whether a lost member has been lost for long.
    pub is_overdue: &'a dyn Fn(MetablockId, VolumeId) -> bool,
    /// Nodes that take no member now.
    pub exclude: &'a [NodeId],
    /// Whether a member of ballast is known to serve decoding alone.
    pub is_retired: &'a dyn Fn(MetablockId, VolumeId) -> bool,
    /// The copies that its dataset wants, if it wants no RAID sets any more.
    pub returns_to: Option<usize>,
}

/// A slot or row with its recorded members.
struct Place<'a> {
    part: Part,
    metablock: MetablockId,
    length: u64,
    members: &'a [pb::Member],
    leaving: &'a [pb::Member],
    is_ballast: bool,
}

impl Facts<'_> {
    fn places(&self) -> impl Iterator<Item = Place<'_>> {
        let slots = (0..).zip(&self.set.slots).map(|(slot, found)| Place {
            part: Part::Slot(slot),
            metablock: MetablockId::new(found.metablock),
            length: found.length,
            members: &found.members,
            leaving: &found.leaving,
            is_ballast: found.inode == 0,
        });
        let rows = (0..).zip(&self.set.rows).map(|(row, found)| Place {
            part: Part::Row(row),
            metablock: MetablockId::new(found.metablock),
            length: found.length,
            members: found.member.as_slice(),
            leaving: &[],
            is_ballast: false,
        });
        slots.chain(rows)
    }

    fn condition(&self, metablock: MetablockId, member: &pb::Member) -> Condition {
        self.conditions.get(&(metablock, member.volume_id())).copied().unwrap_or(Condition::Unknown)
    }

    /// Good copies of each slot.
    fn good_copies(&self) -> Vec<Vec<(NodeId, VolumeId)>> {
        let good = |slot: &pb::RaidSlot| {
            let metablock = MetablockId::new(slot.metablock);
            let members = slot.members.iter().filter(|member| self.is_good(metablock, member));
            members.map(|member| (member.node_id(), member.volume_id())).collect()
        };
        self.set.slots.iter().map(good).collect()
    }

    fn is_good(&self, metablock: MetablockId, member: &pb::Member) -> bool {
        self.condition(metablock, member).is_source()
    }

    /// Whether copies of a slot are still to leave.
    fn has_spare_copies(&self) -> bool {
        self.set.slots.iter().any(|slot| slot.members.len() > self.code.copies as usize)
    }
}

impl Place<'_> {
    /// The step that makes a member of this part again, in place of `replaced`.
    fn mend(&self, replaced: pb::Member, target: Option<pb::Member>, source: Option<pb::Member>) -> Step {
        let (part, metablock, is_ballast) = (self.part, self.metablock, self.is_ballast);
        Step::Mend(Mend { part, metablock, replaced, target, source, is_ballast })
    }
}

/// The next step of a RAID set. `None`: it is as wanted.
pub(crate) fn choose_step(facts: &Facts<'_>) -> Option<Step> {
    // S-12: a reader with an old map gets what its file has lost, until then.
    let retire = choose_retire(facts);
    if !retire.is_empty() {
        return Some(Step::Retire(retire));
    }
    if let Some(step) = choose_mend(facts) {
        return Some(step);
    }
    if let Some(copies) = facts.returns_to {
        return Some(choose_return(facts, copies));
    }
    if facts.has_spare_copies() {
        return Some(choose_thin(facts));
    }
    facts.set.slots.iter().any(|slot| !slot.leaving.is_empty()).then_some(Step::Drop)
}

/// Members of ballast that serve now, and are not known to be retired.
fn choose_retire(facts: &Facts<'_>) -> Vec<(MetablockId, pb::Member)> {
    let ballast = facts.places().filter(|place| place.is_ballast);
    let members = ballast.flat_map(|place| {
        let all = place.members.iter().chain(place.leaving);
        all.map(move |member| (place.metablock, *member))
    });
    let is_open = |(metablock, member): &(MetablockId, pb::Member)| {
        facts.is_good(*metablock, member) && !(facts.is_retired)(*metablock, member.volume_id())
    };
    members.filter(is_open).collect()
}

fn choose_return(facts: &Facts<'_>, copies: usize) -> Step {
    let living = facts.places().filter(|place| matches!(place.part, Part::Slot(_)) && !place.is_ballast);
    let mut lacking = living.filter(|place| place.members.len() < copies);
    match lacking.next() {
        Some(place) => Step::Return(place.metablock),
        None => Step::Dissolve,
    }
}

fn choose_thin(facts: &Facts<'_>) -> Step {
    let Some(stays) = stays_beside(facts, &rows_of(facts), &facts.good_copies()) else {
        return choose_mend_to_thin(facts);
    };
    let stay = |(slot, volumes): (&pb::RaidSlot, Vec<VolumeId>)| {
        slot.members.iter().filter(|member| volumes.contains(&member.volume_id())).copied().collect()
    };
    Step::Thin(facts.set.slots.iter().zip(stays).map(stay).collect())
}

/// The node of each row.
fn rows_of(facts: &Facts<'_>) -> Vec<Option<NodeId>> {
    facts.set.rows.iter().map(|row| row.member.map(|member| member.node_id())).collect()
}

/// Which of these copies of each slot stay, with rows on these nodes. `None`: no choice of them lies by the spread rule.
fn stays_beside(
    facts: &Facts<'_>,
    rows: &[Option<NodeId>],
    copies: &[Vec<(NodeId, VolumeId)>],
) -> Option<Vec<Vec<VolumeId>>> {
    let rows: Vec<NodeId> = rows.iter().copied().flatten().collect();
    let stays = |rule: &RaidRule| choose_stays(facts.sites, rule, &rows, copies, (facts.held)());
    // A rack that is lost may have been one too few.
    stays(facts.rule).or_else(|| stays(&facts.rule.on_any_racks()))
}

/// No members that serve lie as the spread rule has it. With one that is lost or damaged they might.
fn choose_mend_to_thin(facts: &Facts<'_>) -> Step {
    let mut waits = "no members that serve now lie as the spread rule has it".to_owned();
    for place in facts.places() {
        let is_bad = |member: &&pb::Member| facts.condition(place.metablock, member) != Condition::Good;
        let Some(replaced) = place.members.iter().find(is_bad) else { continue };
        match choose_mend_of(facts, &place, replaced) {
            Step::Wait(reason) => waits += &format!("; {}: {reason}", place.part),
            step => return step,
        }
    }
    choose_other_row(facts).unwrap_or(Step::Wait(waits))
}

/// A row is in the way of all copies of a slot: it goes to a node where it is not, if there is one. Nodes that are off are waited for.
fn choose_other_row(facts: &Facts<'_>) -> Option<Step> {
    if target::could_lie_apart(facts) {
        return None;
    }
    facts.places().find_map(|place| {
        let Part::Row(row) = place.part else { return None };
        let replaced = *place.members.first().filter(|member| facts.is_good(place.metablock, member))?;
        let chosen = target::choose_beside_slots(facts, &place, &replaced, row).ok()?;
        Some(place.mend(replaced, Some(target::member(&chosen)), Some(replaced)))
    })
}

/// A part that lacks a member, the most urgent step first.
fn choose_mend(facts: &Facts<'_>) -> Option<Step> {
    let copies = facts.code.copies as usize;
    // A slot that has copies to spare loses one without harm: it is chosen which of the others stay.
    let lacks = |place: &Place<'_>| {
        let good =
            place.members.iter().filter(|member| facts.condition(place.metablock, member) == Condition::Good).count();
        let wanted = if matches!(place.part, Part::Row(_)) { 1 } else { copies };
        good < wanted
    };
    let mut wait = None;
    for place in facts.places().filter(lacks) {
        let is_bad = |member: &&pb::Member| facts.condition(place.metablock, member) != Condition::Good;
        let Some(replaced) = place.members.iter().find(is_bad) else { continue };
        match choose_mend_of(facts, &place, replaced) {
            Step::Wait(reason) => wait = Some(Step::Wait(format!("{}: {reason}", place.part))),
            step => return Some(step),
        }
    }
    wait
}

fn choose_mend_of(facts: &Facts<'_>, place: &Place<'_>, replaced: &pb::Member) -> Step {
    let condition = facts.condition(place.metablock, replaced);
    let source = place.members.iter().find(|member| facts.is_good(place.metablock, member)).copied();
    match condition {
        Condition::Good => return Step::Wait("it is good".to_owned()),
        Condition::Unknown => return Step::Wait("its node is not heard".to_owned()),
        Condition::Damaged => return place.mend(*replaced, None, source),
        Condition::NodeLost | Condition::VolumeLost | Condition::Draining | Condition::Cramped => {}
    }
    let is_lost = matches!(condition, Condition::NodeLost | Condition::VolumeLost);
    let is_good = |node: NodeId| {
        facts.places().any(|place| {
            place.members.iter().any(|member| member.node_id() == node && facts.is_good(place.metablock, member))
        })
    };
    let time = choose_rebuild_time(fewest_fatal_losses(&members_of(facts, |_| true), is_good));
    if is_lost && time == RebuildTime::AfterWait && !(facts.is_overdue)(place.metablock, replaced.volume_id()) {
        return Step::Wait("its node may come back, and further losses can be borne".to_owned());
    }
    if let Some(back) = choose_back(facts, place, replaced) {
        return place.mend(*replaced, Some(back), Some(back));
    }
    match target::choose(facts, place, replaced) {
        Ok(target) => place.mend(*replaced, Some(target), source),
        Err(error) => Step::Wait(error.to_string()),
    }
}

/// A copy that was leaving, and lies where the spread rule allows: it comes back without a copy.
fn choose_back(facts: &Facts<'_>, place: &Place<'_>, replaced: &pb::Member) -> Option<pb::Member> {
    let members = members_of(facts, |place| place.members.len() <= facts.code.copies as usize);
    let lost = Seat { node: replaced.node_id(), home: replaced.home_id() };
    let fits = |back: &&pb::Member| {
        let mut members = members.clone();
        let seats = members.parts.entry(place.part).or_default();
        seats.retain(|seat| *seat != lost);
        seats.push(Seat { node: back.node_id(), home: back.home_id() });
        facts.sites.has(back.node_id())
            && facts.is_good(place.metablock, back)
            && check_spread(facts.sites, facts.rule.spread(), &members).is_empty()
    };
    place.leaving.iter().find(fits).copied()
}

/// Members of those parts that count. A slot that still has all its copies is in nobody's way: some of them leave.
fn members_of(facts: &Facts<'_>, counts: impl Fn(&Place<'_>) -> bool) -> RaidMembers {
    let seat = |member: &pb::Member| Seat { node: member.node_id(), home: member.home_id() };
    let places = facts.places().filter(counts);
    RaidMembers { parts: places.map(|place| (place.part, place.members.iter().map(seat).collect())).collect() }
}

mod target;
#[cfg(test)]
mod tests;
