use super::*;
use crate::work::{Attempt, Presence};

fn member(node: u64) -> pb::Member {
    pb::Member { node, volume: node * 10, incarnation: 1, home: 0 }
}

fn view(wanted: usize, conditions: &[Condition]) -> SetView {
    let members = conditions.iter().enumerate().map(|(at, condition)| (member(at as u64 + 1), *condition));
    SetView { wanted, members: members.collect(), spare: None }
}

use Condition::{Cramped, Damaged, Draining, Good, NodeLost, Unknown, VolumeLost};

fn copy(sources: &[u64], replaced: Option<u64>, staying: &[u64], reason: Reason) -> Option<Repair> {
    let all = |nodes: &[u64]| nodes.iter().map(|node| member(*node)).collect();
    Some(Repair::Copy { sources: all(sources), replaced: replaced.map(member), staying: all(staying), reason })
}

#[test]
fn a_set_that_is_as_it_should_be_is_left_alone() {
    assert_eq!(choose_repair(&view(3, &[Good, Good, Good])), None);
    assert_eq!(choose_repair(&view(3, &[Good, Good, Unknown])), None, "it may come back with everything");
    assert_eq!(choose_repair(&view(1, &[Good])), None);
}

#[test]
fn a_bad_member_is_replaced_and_leaves_when_the_copy_is_made() {
    assert_eq!(choose_repair(&view(3, &[Good, NodeLost, Good])), copy(&[1, 3], Some(2), &[1, 3], Reason::NodeLost));
    assert_eq!(
        choose_repair(&view(3, &[Cramped, NodeLost, Good])),
        copy(&[3], Some(1), &[2, 3], Reason::MemberDamaged)
    );
    // Its node may take it, where there is no other.
    let two = view(3, &[NodeLost, VolumeLost, Good]);
    assert_eq!(choose_repair(&two), copy(&[3], Some(2), &[1, 3], Reason::VolumeLost));
    assert_eq!(choose_repair(&view(2, &[Good, Draining])), copy(&[1, 2], Some(2), &[1], Reason::NodeDrains));
    assert_eq!(choose_repair(&view(1, &[Draining])), copy(&[1], Some(1), &[], Reason::NodeDrains));
}

#[test]
fn a_damaged_member_is_made_good_where_it_is() {
    let renew = |sources: &[u64], at| {
        Some(Repair::Renew { sources: sources.iter().map(|node| member(*node)).collect(), member: member(at) })
    };
    assert_eq!(choose_repair(&view(3, &[Good, Good, Damaged])), renew(&[1, 2], 3));
    assert_eq!(choose_repair(&view(3, &[NodeLost, Damaged, Draining])), renew(&[3], 2));
    assert_eq!(choose_repair(&view(1, &[Damaged])), Some(Repair::Impossible));
}

#[test]
fn too_few_members_get_more_and_superfluous_bad_ones_go() {
    assert_eq!(choose_repair(&view(3, &[Good, Good])), copy(&[1, 2], None, &[1, 2], Reason::TooFew));
    assert_eq!(choose_repair(&view(3, &[Good, NodeLost])), copy(&[1], None, &[1, 2], Reason::NodeLost));
    let dropped = Repair::Drop { dropped: member(2), staying: vec![member(1)], reason: Reason::Superfluous };
    assert_eq!(choose_repair(&view(1, &[Good, NodeLost])), Some(dropped));
}

#[test]
fn a_set_with_too_many_good_members_loses_the_spare_one() {
    let with_spare = |wanted, conditions: &[Condition], spare| SetView { spare, ..view(wanted, conditions) };
    let dropped = Repair::Drop { dropped: member(2), staying: vec![member(1), member(3)], reason: Reason::Superfluous };
    assert_eq!(choose_repair(&with_spare(2, &[Good, Good, Good], Some(member(2)))), Some(dropped));
    assert_eq!(choose_repair(&with_spare(3, &[Good, Good, Good], Some(member(2)))), None);
    // One that may not come back is no reason to give up a good one.
    assert_eq!(choose_repair(&with_spare(2, &[Good, Good, Unknown], Some(member(2)))), None);
    // Bad ones go first.
    let bad = Repair::Drop {
        dropped: member(3),
        staying: vec![member(1), member(2), member(4)],
        reason: Reason::Superfluous,
    };
    assert_eq!(choose_repair(&with_spare(2, &[Good, Good, NodeLost, Good], Some(member(1)))), Some(bad));
}

#[test]
fn without_a_source_nothing_is_done() {
    assert_eq!(choose_repair(&view(3, &[NodeLost, Damaged, VolumeLost])), Some(Repair::Impossible));
    assert_eq!(choose_repair(&view(3, &[NodeLost, Unknown, VolumeLost])), None, "it may come back");
}

/// Every set of up to four members in every condition: following the steps ends with as many good copies as wanted,
/// if there is a source at all, and no step takes a readable member away below that number.
#[test]
fn steps_converge_and_never_lower_the_number_of_readable_copies_below_what_is_wanted() {
    let conditions = [Good, Draining, Unknown, NodeLost, VolumeLost, Damaged, Cramped];
    for len in 1..=4u32 {
        for wanted in 1..=3 {
            for code in 0..conditions.len().pow(len) {
                let list: Vec<_> =
                    (0..len).map(|at| conditions[code / conditions.len().pow(at) % conditions.len()]).collect();
                converge(view(wanted, &list));
            }
        }
    }
}

fn converge(start: SetView) {
    let mut view = start.clone();
    let mut next_node = 100;
    for _ in 0..20 {
        let readable = |view: &SetView| view.members.iter().filter(|(_, is)| matches!(is, Good | Draining)).count();
        let before = readable(&view);
        match choose_repair(&view) {
            None | Some(Repair::Impossible) => {
                let counting = view.members.iter().filter(|(_, is)| matches!(is, Good | Unknown)).count();
                assert!(counting >= view.wanted || before == 0, "{start:?} ended as {view:?}");
                return;
            }
            Some(Repair::Drop { dropped, staying, .. }) => {
                view.members.retain(|(member, _)| *member != dropped);
                assert_eq!(view.members.iter().map(|(member, _)| *member).collect::<Vec<_>>(), staying);
                let counting = view.members.iter().filter(|(_, is)| matches!(is, Good | Unknown)).count();
                assert!(counting >= view.wanted, "{start:?}");
            }
            Some(Repair::Renew { sources, member }) => {
                assert!(!sources.is_empty());
                let found = view.members.iter_mut().find(|(known, _)| *known == member).unwrap();
                assert_eq!(found.1, Damaged);
                found.1 = Good;
            }
            Some(Repair::Copy { sources, replaced, staying, .. }) => {
                assert!(!sources.is_empty());
                view.members.retain(|(member, _)| Some(*member) != replaced);
                assert_eq!(view.members.iter().map(|(member, _)| *member).collect::<Vec<_>>(), staying);
                view.members.push((member(next_node), Good));
                next_node += 1;
                assert!(readable(&view) >= before, "{start:?}");
            }
        }
    }
    panic!("{start:?} does not end");
}

#[test]
fn queues_follow_the_map() {
    use ebb_types::{MetablockId, VolumeId};
    let mut work = crate::work::Work::default();
    let block = MetablockId::new(4);
    work.on_damage(block, VolumeId::new(10));
    work.on_set_changed(block, &[member(1), member(2)], &[member(2), member(3)], Presence::Mapped);
    assert!(work.damaged.is_empty(), "it is not a member any more");
    assert_eq!(work.strays(block).into_iter().collect::<Vec<_>>(), [VolumeId::new(10)]);
    work.on_set_changed(block, &[member(2), member(3)], &[member(2), member(1)], Presence::Mapped);
    assert_eq!(work.strays(block).into_iter().collect::<Vec<_>>(), [VolumeId::new(30)], "taken into the set again");
    work.on_set_changed(block, &[member(2), member(1)], &[], Presence::Freed);
    assert_eq!(work.unsettled_sets(|_| true), 0);
    assert_eq!(work.excess.len(), 1, "what was freed as a whole is the state machine's to delete");
    work.recoveries.insert(InodeId::new(3));
    assert_eq!(work.take_recovery(ebb_runtime::Moment::default()), Some(InodeId::new(3)));
    work.recoveries.insert(InodeId::new(3));
    assert_eq!(work.take_recovery(ebb_runtime::Moment::default()), None, "one attempt at a time");
}

/// Two files are recovered at a time, and two cannot be: their members are gone.
#[test]
fn files_that_cannot_be_recovered_keep_no_other_waiting() {
    let mut work = crate::work::Work::default();
    work.recoveries.extend((1..=4).map(InodeId::new));
    let mut tried = Vec::new();
    for _ in 0..3 {
        for inode in [
            work.take_recovery(ebb_runtime::Moment::default()).unwrap(),
            work.take_recovery(ebb_runtime::Moment::default()).unwrap(),
        ] {
            tried.push(inode.raw());
            work.on_recovery_ended(inode, if inode.raw() > 2 { Attempt::Done } else { Attempt::Failed });
        }
    }
    assert_eq!(tried, [1, 2, 3, 4, 1, 2]);
    assert!(!work.is_mending(), "nothing else waits for them");
}

use ebb_types::InodeId;
