//! What losses a RAID set bears: can it be decoded, and how many more may come.

use std::collections::BTreeSet;

use ebb_types::NodeId;

use super::spread::{Part, RaidMembers};

/// Whether everything can still be decoded with these nodes down: not more slots are out of reach than rows are in
/// reach.
#[must_use]
pub fn tolerates(members: &RaidMembers, down: &BTreeSet<NodeId>) -> bool {
    let reach = Reach::of(members, |node| !down.contains(&node));
    reach.lost_slots <= reach.rows
}

/// The fewest further losses of nodes after which something cannot be decoded; 0: that is so already.
///
/// It is on one scale with the readable copies of a metablock: whatever has the least is repaired first. For slots of
/// one copy it is `1 + rows - lost`. A dead slot that is kept for its neighbours counts like a live one.
#[must_use]
pub fn fewest_fatal_losses(members: &RaidMembers, is_good: impl Fn(NodeId) -> bool) -> u32 {
    let reach = Reach::of(members, is_good);
    let Some(spare) = reach.rows.checked_sub(reach.lost_slots) else { return 0 };
    let copies = |nodes: &BTreeSet<NodeId>| u32::try_from(nodes.len()).expect("a slot has few members");
    // Every spare row goes, and then the row that a lost slot needs,
    let by_rows = (reach.lost_slots > 0).then_some(spare + 1);
    // or the slot that has fewest copies.
    let by_slot = reach.slots.iter().map(|nodes| spare + copies(nodes)).min();
    // Two slots that lie on the same nodes in part may go more easily than a slot and a row.
    let pairs =
        reach.slots.iter().enumerate().flat_map(|(at, one)| reach.slots[at + 1..].iter().map(move |two| (one, two)));
    let by_pair = pairs.filter(|_| spare > 0).map(|(one, two)| spare - 1 + copies(&(one | two))).min();
    // A RAID set without slots has nothing to lose but its rows.
    [by_rows, by_slot, by_pair].into_iter().flatten().min().unwrap_or(spare + 1)
}

/// The members of a RAID set that are in reach.
struct Reach {
    /// Nodes of each slot that is in reach.
    slots: Vec<BTreeSet<NodeId>>,
    lost_slots: u32,
    rows: u32,
}

impl Reach {
    fn of(members: &RaidMembers, is_good: impl Fn(NodeId) -> bool) -> Self {
        let mut reach = Self { slots: Vec::new(), lost_slots: 0, rows: 0 };
        for (part, seats) in &members.parts {
            let nodes: BTreeSet<NodeId> = seats.iter().map(|seat| seat.node).filter(|node| is_good(*node)).collect();
            match part {
                Part::Slot(_) if nodes.is_empty() => reach.lost_slots += 1,
                Part::Slot(_) => reach.slots.push(nodes),
                Part::Row(_) => reach.rows += u32::from(!nodes.is_empty()),
            }
        }
        reach
    }
}

/// When a lost member is made again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RebuildTime {
    /// As soon as its node is dead: no further loss can be borne.
    AtOnce,
    /// When its node has been away for a while. To make a member again reads as many others as there are slots, and a
    /// node that comes back brings it for nothing.
    AfterWait,
}

/// When to make up for what a RAID set has lost that bears this many losses less one.
#[must_use]
pub const fn choose_rebuild_time(fewest_fatal_losses: u32) -> RebuildTime {
    if fewest_fatal_losses <= 1 { RebuildTime::AtOnce } else { RebuildTime::AfterWait }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::Seat;
    use super::*;

    fn set(slots: &[&[u64]], rows: &[u64]) -> RaidMembers {
        let seats = |nodes: &[u64]| nodes.iter().map(|node| Seat::at_home(NodeId::new(*node))).collect();
        let slots = (0..).zip(slots).map(|(number, nodes)| (Part::Slot(number), seats(nodes)));
        let rows = (0..).zip(rows).map(|(number, node)| (Part::Row(number), seats(&[*node])));
        RaidMembers { parts: slots.chain(rows).collect::<BTreeMap<_, _>>() }
    }

    fn left(set: &RaidMembers, down: &[u64]) -> u32 {
        fewest_fatal_losses(set, |node| !down.contains(&node.raw()))
    }

    #[test]
    fn a_set_of_eight_and_two_that_lost_two_comes_before_three_copies_that_lost_one() {
        let set = set(&[&[1], &[2], &[3], &[4], &[5], &[6], &[7], &[8]], &[9, 10]);
        assert_eq!(
            [&[][..], &[1], &[9], &[1, 9], &[1, 2], &[1, 2, 3]].map(|down| left(&set, down)),
            [3, 2, 2, 1, 1, 0]
        );
        let times = [3, 2, 1, 0].map(choose_rebuild_time);
        assert_eq!(times[..2], [RebuildTime::AfterWait; 2]);
        assert_eq!(times[2..], [RebuildTime::AtOnce; 2]);
    }

    #[test]
    fn second_copies_count() {
        let set = set(&[&[1, 2], &[1, 3], &[2, 3]], &[4]);
        assert_eq!([&[][..], &[4], &[1], &[1, 4], &[1, 2]].map(|down| left(&set, down)), [3, 2, 2, 1, 1]);
    }

    prop_compose! {
        /// Two copies of each slot on some of six nodes, or one on a node of its own.
        fn any_set()(
            pairs in prop::collection::btree_set((1..6_u64, 1..6_u64), 1..7), rows in 1..4_u64, mirrored: bool,
        ) -> RaidMembers {
            let pairs: BTreeSet<[u64; 2]> =
                pairs.into_iter().filter(|(one, two)| one < two).map(|(one, two)| [one, two]).collect();
            let single: Vec<[u64; 1]> = (1..=pairs.len() as u64).map(|node| [node]).collect();
            match mirrored {
                true => set(&pairs.iter().map(|pair| &pair[..]).collect::<Vec<_>>(), &[6]),
                false => set(
                    &single.iter().map(|one| &one[..]).collect::<Vec<_>>(),
                    &(50..50 + rows).collect::<Vec<_>>(),
                ),
            }
        }
    }

    proptest! {
        /// Goal: the number of losses is the least. Method: every set of nodes, for sets on which the spread rule holds.
        #[test]
        fn fewer_losses_are_borne_and_so_many_are_not(set in any_set(), down in prop::collection::btree_set(1..7_u64, 0..3)) {
            let down: BTreeSet<NodeId> = down.into_iter().map(NodeId::new).collect();
            let nodes: Vec<NodeId> =
                set.seats().map(|(_, seat)| seat.node).filter(|node| !down.contains(node)).collect::<BTreeSet<_>>().into_iter().collect();
            let found = fewest_fatal_losses(&set, |node| !down.contains(&node));
            let has_slots = set.parts.keys().any(|part| matches!(part, Part::Slot(_)));
            let fatal = (0..1_u32 << nodes.len()).filter(|chosen| {
                let more = nodes.iter().enumerate().filter(|(at, _)| chosen >> at & 1 == 1).map(|(_, node)| *node);
                !tolerates(&set, &down.iter().copied().chain(more).collect())
            });
            let least = fatal.map(u32::count_ones).min();
            prop_assert!(!has_slots || least == Some(found), "{least:?} and {found}: {set:?}");
        }
    }
}
