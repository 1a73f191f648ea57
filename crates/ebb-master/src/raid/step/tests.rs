use std::collections::BTreeMap;

use ebb_layout::{LayoutKind, View, VolumeView};
use ebb_types::{HostName, Incarnation};

use super::*;

const CODE: RaidCode = RaidCode::single(4, 2);

fn member(node: u64) -> pb::Member {
    pb::Member { node, volume: node + 100, incarnation: 1, home: 0 }
}

/// Nodes 1 to 9, each on a host of its own.
fn view() -> View {
    let volume = |node: u64| VolumeView {
        node: NodeId::new(node),
        volume: VolumeId::new(node + 100),
        incarnation: Incarnation::new(1),
        host: HostName::new(format!("h{node}")),
        capacity_bytes: 1 << 40,
        free_bytes: 1 << 39,
        usable: true,
        ..Default::default()
    };
    View { volumes: (1..=9).map(volume).collect(), ..View::default() }
}

/// Slots 11 to 14 with these members, and rows 21 and 22 on nodes 5 and 6.
fn raid_set(members: [&[u64]; 4]) -> pb::RaidSet {
    let slot = |(metablock, nodes): (u64, &[u64])| pb::RaidSlot {
        metablock,
        inode: 1,
        version: Some(pb::Version { epoch: 1, seq: 1 }),
        length: 1 << 20,
        members: nodes.iter().map(|node| member(*node)).collect(),
        leaving: Vec::new(),
    };
    let row = |(metablock, node)| pb::RaidRow { metablock, member: Some(member(node)), length: 2 << 20 };
    pb::RaidSet {
        id: 9,
        dataset: 0,
        code: Some(pb::RaidCode { copies: 1, slots: 4, rows: 2, domain: 0 }),
        generation: 1,
        slots: (11..).zip(members).map(slot).collect(),
        rows: [(21, 5), (22, 6)].into_iter().map(row).collect(),
    }
}

/// The step where members on these nodes are in these conditions, and all others good.
fn step(set: &pb::RaidSet, conditions: &[(u64, Condition)], overdue: bool) -> Option<Step> {
    step_of(set, conditions, overdue, None, &[])
}

/// The same for a dataset that wants so many copies again, while these nodes are off.
fn step_of(
    set: &pb::RaidSet,
    conditions: &[(u64, Condition)],
    overdue: bool,
    returns_to: Option<usize>,
    off: &[u64],
) -> Option<Step> {
    let mut view = view();
    let condition_of = |node: u64| {
        conditions.iter().find(|(other, _)| *other == node).map_or(Condition::Good, |(_, condition)| *condition)
    };
    for volume in &mut view.volumes {
        let lost = matches!(condition_of(volume.node.raw()), Condition::NodeLost | Condition::Draining);
        (volume.usable, volume.off) = (!lost, off.contains(&volume.node.raw()));
    }
    let sites = Sites::of(&view);
    let rule = RaidRule::new(&sites, LayoutKind::Random, None, CODE).unwrap();
    let copies = |slot: &pb::RaidSlot| [&slot.members[..], &slot.leaving].concat();
    let slots = set.slots.iter().flat_map(|slot| copies(slot).into_iter().map(|member| (slot.metablock, member)));
    let rows = set.rows.iter().filter_map(|row| row.member.map(|member| (row.metablock, member)));
    let conditions = slots
        .chain(rows)
        .map(|(metablock, member)| ((MetablockId::new(metablock), member.volume_id()), condition_of(member.node)))
        .collect();
    let held = Held::default();
    let is_overdue = |_, _| overdue;
    choose_step(&Facts {
        set,
        code: CODE,
        sites: &sites,
        rule: &rule,
        held: &|| &held,
        coming: &BTreeMap::new(),
        conditions,
        is_overdue: &is_overdue,
        exclude: &[],
        is_retired: &|_, volume| volume == VolumeId::new(102),
        returns_to,
    })
}

const SEALED: [&[u64]; 4] = [&[1, 2, 3], &[2, 3, 4], &[3, 4, 1], &[4, 1, 2]];
const THIN: [&[u64]; 4] = [&[1], &[2], &[3], &[4]];

#[test]
fn copies_leave_and_then_the_set_is_as_wanted() {
    let Some(Step::Thin(stay)) = step(&raid_set(SEALED), &[], false) else { panic!("copies are left") };
    let mut nodes: Vec<u64> = stay.iter().map(|members| members[0].node).collect();
    assert!(stay.iter().all(|members| members.len() == 1));
    nodes.sort_unstable();
    assert_eq!(nodes, [1, 2, 3, 4]);
    let mut set = raid_set(THIN);
    assert_eq!(step(&set, &[], false), None);
    set.slots[2].leaving = vec![member(8)];
    assert_eq!(step(&set, &[], false), Some(Step::Drop));
}

/// Goal: a row that is made again takes no host that all copies of a slot need, while copies are left; one that has it goes elsewhere.
#[test]
fn a_row_is_in_the_way_of_no_slot() {
    let pairs: [&[u64]; 4] = [&[1, 2], &[2, 1], &[3, 4], &[4, 3]];
    let Some(Step::Mend(mend)) = step(&raid_set(pairs), &[(5, Condition::NodeLost)], true) else { panic!() };
    assert_eq!((mend.part, mend.source), (Part::Row(0), None));
    assert!(mend.target.unwrap().node > 6, "each of the first four has a slot for itself: {mend:?}");
    let mut set = raid_set(pairs);
    set.rows[0].member = Some(member(1));
    let Some(Step::Mend(mend)) = step(&set, &[], false) else { panic!() };
    assert_eq!((mend.part, mend.replaced, mend.source), (Part::Row(0), member(1), Some(member(1))));
    assert!(![1, 2, 3, 4, 6].contains(&mend.target.unwrap().node), "{mend:?}");
    // A node with copies is off. They lie apart, and it is waited for.
    let mixed: [&[u64]; 4] = [&[5, 1], &[2, 7], &[3, 4], &[4, 3]];
    assert!(matches!(step_of(&raid_set(mixed), &[], false, None, &[1]), Some(Step::Wait(_))));
    assert!(matches!(step_of(&raid_set(mixed), &[], false, None, &[]), Some(Step::Thin(_))));
    // Nobody else can have it: nothing leaves.
    let others =
        [(5, Condition::NodeLost), (7, Condition::NodeLost), (8, Condition::NodeLost), (9, Condition::NodeLost)];
    assert!(matches!(step(&set, &others, false), Some(Step::Wait(_))));
}

#[test]
fn a_copy_that_is_lost_before_others_leave_is_no_member_that_stays() {
    let Some(Step::Thin(stay)) = step(&raid_set(SEALED), &[(9, Condition::NodeLost)], false) else { panic!() };
    assert_eq!(stay.len(), 4);
    // Three nodes for four slots, each on a host of its own: nothing leaves before another copy is made.
    assert!(matches!(step(&raid_set(SEALED), &[(1, Condition::NodeLost)], false), Some(Step::Wait(_))));
    let Some(Step::Mend(mend)) = step(&raid_set(SEALED), &[(1, Condition::NodeLost)], true) else { panic!() };
    assert_eq!((mend.replaced, mend.source.is_some()), (member(1), true));
    assert!(mend.target.unwrap().node > 6, "n5 and n6 have the rows: {mend:?}");
    let Some(Step::Mend(mend)) = step(&raid_set(SEALED), &[(1, Condition::Damaged)], false) else { panic!() };
    assert_eq!((mend.replaced, mend.target), (member(1), None), "it is made good where it is");
}

#[test]
fn a_lost_member_is_made_again_at_once_only_if_no_other_may_be_lost() {
    let set = raid_set(THIN);
    let lost = [(3, Condition::NodeLost)];
    assert!(matches!(step(&set, &lost, false), Some(Step::Wait(_))), "its node may come back");
    let Some(Step::Mend(mend)) = step(&set, &lost, true) else { panic!("it has been away for long") };
    assert_eq!((mend.part, mend.metablock.raw(), mend.replaced, mend.source), (Part::Slot(2), 13, member(3), None));
    let target = mend.target.unwrap().node;
    assert!((7..=9).contains(&target), "n{target} has another member");

    let lost = [(3, Condition::NodeLost), (5, Condition::NodeLost)];
    assert!(matches!(step(&set, &lost, false), Some(Step::Mend(_))), "one more would be one too many");
}

#[test]
fn damage_is_mended_in_place_and_a_node_that_leaves_is_the_source() {
    let set = raid_set(THIN);
    let Some(Step::Mend(mend)) = step(&set, &[(6, Condition::Damaged)], false) else { panic!() };
    assert_eq!((mend.part, mend.target, mend.source), (Part::Row(1), None, None));
    let Some(Step::Mend(mend)) = step(&set, &[(2, Condition::Draining)], false) else { panic!() };
    assert_eq!((mend.part, mend.source), (Part::Slot(1), Some(member(2))));
    assert!(mend.target.is_some());
    assert!(matches!(step(&set, &[(2, Condition::Unknown)], false), Some(Step::Wait(_))));
}

#[test]
fn a_copy_that_was_leaving_comes_back_for_one_that_is_lost() {
    let mut set = raid_set(THIN);
    set.slots[0].leaving = vec![member(2), member(8)];
    let Some(Step::Mend(mend)) = step(&set, &[(1, Condition::NodeLost)], true) else { panic!() };
    assert_eq!((mend.target, mend.source), (Some(member(8)), Some(member(8))), "n2 has another slot");
}

#[test]
fn nothing_leaves_while_a_row_is_lost() {
    let set = raid_set(SEALED);
    let step = step(&set, &[(5, Condition::NodeLost)], true);
    let Some(Step::Mend(mend)) = step else { panic!("{step:?}") };
    assert_eq!((mend.part, mend.metablock.raw()), (Part::Row(0), 21));
}

/// Whatever else is to be done waits: a reader with an old map gets what its file has lost.
#[test]
fn ballast_is_retired_first() {
    let mut set = raid_set(THIN);
    (set.slots[0].inode, set.slots[1].inode, set.slots[2].inode) = (0, 0, 0);
    set.slots[0].leaving = vec![member(8)];
    let retire = |members: &[(u64, u64)]| {
        Some(Step::Retire(
            members.iter().map(|(metablock, node)| (MetablockId::new(*metablock), member(*node))).collect(),
        ))
    };
    let lost = [(5, Condition::NodeLost)];
    assert_eq!(step(&set, &lost, true), retire(&[(11, 1), (11, 8), (13, 3)]), "n2 has promised already");
    let away = [(1, Condition::Unknown), (3, Condition::NodeLost)];
    assert_eq!(step(&set, &away, false), retire(&[(11, 8)]), "the others are asked when they are back");
}

#[test]
fn a_dataset_that_wants_copies_gets_them_and_then_its_raid_sets_end() {
    let mut set = raid_set(THIN);
    let step = |set: &pb::RaidSet, conditions: &[(u64, Condition)]| step_of(set, conditions, true, Some(2), &[]);
    assert_eq!(step(&set, &[]), Some(Step::Return(MetablockId::new(11))));
    set.slots[0].members.push(member(8));
    assert_eq!(step(&set, &[]), Some(Step::Return(MetablockId::new(12))), "and nothing leaves");
    set.slots[1].inode = 0;
    assert_eq!(step(&set, &[]), Some(Step::Return(MetablockId::new(13))), "no file has the second any more");
    let Some(Step::Mend(mend)) = step(&set, &[(4, Condition::NodeLost)]) else { panic!("a slot is lost") };
    assert_eq!(mend.part, Part::Slot(3));
    set.slots[2].members.push(member(8));
    set.slots[3].members.push(member(9));
    assert_eq!(step(&set, &[]), Some(Step::Dissolve));
}

/// Slots 11 to 13 have copies on n2 and n8 alone, and nodes that have copies of 14 are not in the way: one of these leaves.
#[test]
fn a_copy_is_made_where_others_may_leave_then() {
    let set = raid_set([&[2, 3, 8], &[2, 3, 8], &[2, 3, 8], &[1, 4, 7]]);
    let Some(Step::Mend(mend)) = step(&set, &[(3, Condition::NodeLost), (9, Condition::NodeLost)], true) else {
        panic!()
    };
    let target = mend.target.unwrap().node;
    assert!([1, 4, 7].contains(&target), "n5 and n6 have the rows, n9 is lost: n{target}");
    let mut set = set;
    set.slots[0].members[1] = member(target);
    assert!(matches!(step(&set, &[(3, Condition::NodeLost), (9, Condition::NodeLost)], true), Some(Step::Thin(_))));
}

/// A row lies where the second copies are, so that one new copy is not enough.
#[test]
fn several_copies_are_made_one_after_the_other() {
    let mut set = raid_set([&[2, 3, 5], &[2, 3, 5], &[2, 3, 5], &[1, 4, 7]]);
    let away = [(3, Condition::NodeLost), (9, Condition::NodeLost)];
    for _ in 0..2 {
        let Some(Step::Mend(mend)) = step(&set, &away, true) else { panic!("{:?}", step(&set, &away, true)) };
        let Part::Slot(slot) = mend.part else { panic!() };
        let member = set.slots[slot as usize].members.iter_mut().find(|member| member.node == 3).unwrap();
        *member = mend.target.unwrap();
    }
    assert!(matches!(step(&set, &away, true), Some(Step::Thin(_))));
}

/// A slot died before its copies had gone, and others leave their nodes only when everything is sound.
#[test]
fn copies_that_leave_are_in_the_way_of_no_other_slot() {
    let mut set = raid_set([&[1, 2, 5], &[2], &[3], &[4]]);
    set.slots[0].inode = 0;
    (set.slots[1].leaving, set.slots[2].leaving) = (vec![member(7), member(8)], vec![member(9)]);
    let away = [(1, Condition::NodeLost)];
    let retired = |set: &pb::RaidSet| match step(set, &away, true) {
        // Other steps are what this is about.
        Some(Step::Retire(_)) => None,
        other => other,
    };
    assert!(retired(&set).is_none(), "ballast is retired first");
    set.slots[0].inode = 1;
    let Some(Step::Mend(mend)) = step(&set, &away, true) else { panic!("{:?}", step(&set, &away, true)) };
    assert!([7, 8, 9].contains(&mend.target.unwrap().node), "{mend:?}");
}
