//! RAID sets on the volumes of one node, in the terms of [`ebb_layout::raid::volumes`]: each volume stands in for a node. Pure.

use std::collections::BTreeMap;

use ebb_layout::raid::stand_in;
use ebb_types::{Domain, MetablockId, NodeId, VolumeId};
use ebb_wire::pb;

use super::step::{Mend, Step};
use crate::copies::repair::Condition;

/// The node on whose volumes a RAID set lies. None: its members are on hosts of their own.
pub(crate) fn node_of(set: &pb::RaidSet) -> Option<NodeId> {
    let is_inside = set.raid_code().domain == Domain::Volume;
    set.rows.first().and_then(|row| row.member).filter(|_| is_inside).map(|member| member.node_id())
}

/// A RAID set whose members are on the nodes that their volumes stand in for.
pub(crate) fn on_stand_ins(set: &pb::RaidSet) -> pb::RaidSet {
    let mut set = set.clone();
    let slots = set.slots.iter_mut().flat_map(|slot| slot.members.iter_mut().chain(&mut slot.leaving));
    for member in slots.chain(set.rows.iter_mut().filter_map(|row| row.member.as_mut())) {
        (member.node, member.home) = (stand_in(member.volume_id()).raw(), 0);
    }
    set
}

/// A step that was chosen among stand-ins, with the members that this RAID set of a node has in truth.
pub(crate) fn on_node(step: Step, set: &pb::RaidSet, node: NodeId) -> Step {
    let slots = set.slots.iter().flat_map(|slot| slot.members.iter().chain(&slot.leaving));
    let recorded: BTreeMap<VolumeId, pb::Member> = slots
        .chain(set.rows.iter().filter_map(|row| row.member.as_ref()))
        .map(|member| (member.volume_id(), *member))
        .collect();
    let back = |member: pb::Member| match recorded.get(&member.volume_id()) {
        // A volume that was put anew has another incarnation.
        Some(known) => pb::Member { incarnation: member.incarnation, ..*known },
        None => pb::Member { node: node.raw(), home: 0, ..member },
    };
    match step {
        Step::Thin(stay) => Step::Thin(stay.into_iter().map(|slot| slot.into_iter().map(back).collect()).collect()),
        Step::Retire(all) => Step::Retire(all.into_iter().map(|(id, member)| (id, back(member))).collect()),
        Step::Mend(mend) => Step::Mend(Mend {
            replaced: back(mend.replaced),
            target: mend.target.map(back),
            source: mend.source.map(back),
            ..mend
        }),
        Step::Drop | Step::Return(_) | Step::Dissolve | Step::Wait(_) => step,
    }
}

/// Whether the node of such a RAID set is to be emptied. Its members find no place on another node, so the RAID set goes back
/// to copies, which can. Until then they are as good as any.
pub(crate) fn leave(conditions: &mut BTreeMap<(MetablockId, VolumeId), Condition>) -> bool {
    let mut leaves = false;
    for condition in conditions.values_mut().filter(|condition| **condition == Condition::Draining) {
        (*condition, leaves) = (Condition::Good, true);
    }
    leaves
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(node: u64, volume: u64) -> pb::Member {
        pb::Member { node, volume, incarnation: 7, home: 0 }
    }

    fn set() -> pb::RaidSet {
        let slot = |volume: u64| pb::RaidSlot {
            metablock: volume,
            inode: 1,
            members: vec![member(3, volume)],
            leaving: vec![member(4, volume + 100)],
            ..Default::default()
        };
        let code = Some(pb::RaidCode { copies: 1, slots: 2, rows: 1, domain: Domain::Volume.to_raw() });
        let rows = vec![pb::RaidRow { metablock: 9, member: Some(member(3, 33)), length: 1 }];
        pb::RaidSet { id: 5, code, slots: vec![slot(31), slot(32)], rows, ..Default::default() }
    }

    #[test]
    fn a_step_comes_back_with_the_members_that_there_are() {
        let (set, lifted) = (set(), on_stand_ins(&set()));
        assert_eq!(node_of(&set), Some(NodeId::new(3)));
        assert_eq!(node_of(&pb::RaidSet { code: None, ..set.clone() }), None);
        let nodes = |set: &pb::RaidSet| -> Vec<u64> {
            let slots = set.slots.iter().flat_map(|slot| slot.members.iter().chain(&slot.leaving));
            slots.chain(set.rows.iter().flat_map(|row| &row.member)).map(|member| member.node).collect()
        };
        assert_eq!(nodes(&lifted), [31, 131, 32, 132, 33]);
        let stay = lifted.slots.iter().map(|slot| slot.members.clone()).collect();
        let Step::Thin(stay) = on_node(Step::Thin(stay), &set, NodeId::new(3)) else { panic!() };
        assert_eq!(stay, [[member(3, 31)], [member(3, 32)]]);
        let mend = Mend {
            part: ebb_layout::raid::Part::Slot(0),
            metablock: MetablockId::new(31),
            replaced: lifted.slots[0].members[0],
            target: Some(pb::Member { node: 34, ..member(0, 34) }),
            source: Some(lifted.slots[0].leaving[0]),
            is_ballast: false,
        };
        let Step::Mend(mend) = on_node(Step::Mend(mend), &set, NodeId::new(3)) else { panic!() };
        assert_eq!((mend.replaced, mend.target), (member(3, 31), Some(member(3, 34))), "a new one is on the same node");
        assert_eq!(mend.source, Some(member(4, 131)));
    }

    #[test]
    fn what_drains_is_good_and_leaves() {
        let at = |volume| (MetablockId::new(1), VolumeId::new(volume));
        let mut conditions = BTreeMap::from([(at(1), Condition::Draining), (at(2), Condition::Damaged)]);
        assert!(leave(&mut conditions) && !leave(&mut conditions));
        assert_eq!(conditions[&at(1)], Condition::Good);
        assert_eq!(conditions[&at(2)], Condition::Damaged);
    }
}
