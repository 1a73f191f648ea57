//! The rule against brute force, and what its breaches are called.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::tests::{code, even_view};
use super::super::tolerates;
use super::*;
use crate::View;

fn seat(node: u64) -> Seat {
    Seat::at_home(NodeId::new(node))
}

fn members(slots: &[&[u64]], rows: &[u64]) -> RaidMembers {
    let seats = |nodes: &[u64]| nodes.iter().map(|node| seat(*node)).collect();
    let slots = (0..).zip(slots).map(|(number, nodes)| (Part::Slot(number), seats(nodes)));
    let rows = (0..).zip(rows).map(|(number, node)| (Part::Row(number), seats(&[*node])));
    RaidMembers { parts: slots.chain(rows).collect() }
}

fn check(view: &View, code: RaidCode, racks: Racks, members: &RaidMembers) -> Vec<String> {
    let sites = Sites::of(view);
    check_spread(&sites, SpreadRule { code, racks }, members).iter().map(ToString::to_string).collect()
}

#[test]
fn each_breach_has_a_sentence() {
    let mut view = even_view(8, 2);
    view.volumes[1].host = view.volumes[0].host.clone();
    let set = members(&[&[1], &[3]], &[2]);
    assert_eq!(check(&view, code("2+1"), Racks::TooFew, &set), ["slot 0 on n1 and row 0 on n2 share the host h1"]);
    let view = even_view(8, 2);
    assert_eq!(check(&view, code("2+1"), Racks::TooFew, &set), [""; 0]);
    let crowded = ["the rack r1 has 2 members and may have 1"];
    assert_eq!(check(&view, code("2+1"), Racks::Enough, &set), crowded);
    assert_eq!(check(&view, code("2+2"), Racks::Enough, &set), [""; 0]);

    let pairs = members(&[&[1, 2], &[2, 1], &[1, 3]], &[4]);
    assert_eq!(
        check(&view, code("raid5(4)"), Racks::TooFew, &pairs),
        ["slot 0 and slot 1 lie on the hosts of n1 and n2 both"]
    );
    let pairs = members(&[&[1, 2], &[1, 3]], &[2]);
    assert_eq!(
        check(&view, code("raid5(4)"), Racks::TooFew, &pairs),
        ["slot 0 on n2 and row 0 on n2 share the host h2"]
    );
    let one_rack = members(&[&[1, 2], &[1, 3]], &[4]);
    assert_eq!(check(&view, code("raid5(4)"), Racks::Enough, &one_rack), ["all copies of slot 1 are in the rack r1"]);
    let unknown = members(&[&[1], &[99]], &[99]);
    assert_eq!(
        check(&view, code("2+1"), Racks::TooFew, &unknown),
        ["slot 1 on n99 and row 0 on n99 share a node that is not known"]
    );
}

#[test]
fn guests_are_compared_by_where_they_lie_and_where_they_belong() {
    let view = even_view(8, 1);
    let guest = |node: u64, home: u64| vec![Seat { node: NodeId::new(node), home: NodeId::new(home) }];
    let mut set = members(&[&[1], &[2]], &[3]);
    let with = |set: &RaidMembers| check(&view, code("2+1"), Racks::TooFew, set);
    set.parts.insert(Part::Slot(1), guest(4, 2));
    assert_eq!(with(&set), [""; 0]);
    set.parts.insert(Part::Slot(1), guest(4, 1));
    assert_eq!(with(&set), ["slot 0 on n1 and slot 1 on n4 share the host h1"], "when it has gone home");
    set.parts.insert(Part::Slot(1), guest(1, 4));
    assert_eq!(with(&set), ["slot 0 on n1 and slot 1 on n1 share the host h1"]);
    let mut pairs = members(&[&[1, 2], &[1, 3]], &[4]);
    pairs.parts.insert(Part::Slot(1), vec![seat(1), guest(3, 2)[0]]);
    assert_eq!(check(&view, code("raid5(4)"), Racks::TooFew, &pairs).len(), 1);
}

prop_compose! {
    /// Members on any of so few nodes that they often lie badly.
    fn any_members()(copies in 1..=2_u32, slots in 2..=5_usize, draws in prop::collection::vec(1..=11_u64, 14), rows in 1..=2_usize)
        -> (RaidCode, RaidMembers)
    {
        let rows = if copies == 2 { 1 } else { rows };
        let mut nodes = draws.iter().copied();
        let nodes: Vec<Vec<u64>> = (0..slots).map(|_| nodes.by_ref().take(copies as usize).collect()).collect();
        let slots: Vec<&[u64]> = nodes.iter().map(Vec::as_slice).collect();
        let code = RaidCode { copies, ..RaidCode::single(slots.len() as u32, rows as u32) };
        (code, members(&slots, &draws[14 - rows..]))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// Goal: the rule forbids no more than it must. Method: with one copy, and with two, it holds if and only if any losses
    /// that the code bears leave everything decodable.
    #[test]
    fn the_rule_is_the_same_as_bearing_any_losses((code, set) in any_members()) {
        let view = even_view(11, 1);
        let nodes: BTreeSet<NodeId> = set.seats().map(|(_, seat)| seat.node).collect();
        let nodes: Vec<NodeId> = nodes.into_iter().collect();
        let losses = (0..1_u32 << nodes.len()).filter(|chosen| chosen.count_ones() == code.tolerates().min(nodes.len() as u32));
        let mut down = losses.map(|chosen| {
            nodes.iter().enumerate().filter(|(at, _)| chosen >> at & 1 == 1).map(|(_, node)| *node).collect()
        });
        let bears = down.all(|down| tolerates(&set, &down));
        let breaches = check(&view, code, Racks::TooFew, &set);
        prop_assert_eq!(bears, breaches.is_empty(), "{:?}: {:?}", set, breaches);
    }
}
