//! Homes are those of full power, guests are spread over who is on, and the targets hold when all are on again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebb_types::{ErrorKind, HostName, Incarnation, InodeId, NodeId, RackName, VolumeId};
use proptest::prelude::*;

use super::{Lodging, choose_lodged, choose_shelter};
use crate::targets::{Chain, equal_work};
use crate::{Ask, ChainView, LayoutKind, Plan, Reason, View, VolumeView, choose};

fn view(nodes: u64, off: &[u64]) -> View {
    let volume = |node: u64| VolumeView {
        node: NodeId::new(node),
        volume: VolumeId::new(node * 10),
        incarnation: Incarnation::new(1),
        host: HostName::new(format!("h{node}")),
        rack: RackName::new(format!("r{}", node % 2)),
        capacity_bytes: 1 << 40,
        free_bytes: 1 << 39,
        load: 0,
        usable: true,
        off: off.contains(&node),
    };
    View { volumes: (1..=nodes).map(volume).collect() }
}

fn ask(layout: LayoutKind, chain: Option<&Arc<ChainView>>, replicas: usize, index: u64) -> Ask {
    Ask {
        layout,
        chain: chain.cloned(),
        replicas,
        writer: HostName::new("client"),
        preferred: Vec::new(),
        index,
        inode: InodeId::new(7),
        present: Vec::new(),
        exclude: Vec::new(),
        bytes: 1 << 20,
        seed: 1,
    }
}

fn homes(plan: &Plan) -> Vec<NodeId> {
    plan.members.iter().map(|member| member.home).collect()
}

fn nodes(plan: &Plan) -> Vec<NodeId> {
    plan.members.iter().map(|member| member.node).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn homes_are_those_of_full_power_and_copies_lie_with_who_is_on(
        layout in prop::sample::select(LayoutKind::ALL),
        off in prop::collection::btree_set(1..=12_u64, 0..=9),
        index in 0..50_u64,
    ) {
        let off: Vec<u64> = off.into_iter().collect();
        let chain = (1..=12).map(NodeId::new).collect();
        let chain = layout.has_chain().then(|| Arc::new(ChainView::new(layout, chain, 2, 2, 3).unwrap()));
        let ask = ask(layout, chain.as_ref(), 3, index);
        let whole = choose(&view(12, &[]), &ask).unwrap();
        let plan = choose_lodged(&view(12, &off), &ask, &Lodging::default()).unwrap();
        prop_assert_eq!(homes(&plan), nodes(&whole), "{}", plan);
        let distinct: BTreeSet<_> = nodes(&plan).into_iter().collect();
        prop_assert_eq!(distinct.len(), 3, "{}", plan);
        for member in &plan.members {
            prop_assert!(!off.contains(&member.node.raw()), "{}", plan);
            prop_assert_eq!(member.node != member.home, off.contains(&member.home.raw()), "{}", plan);
            prop_assert!(member.node == member.home || !homes(&plan).contains(&member.node), "{}", plan);
        }
    }
}

#[test]
fn guests_are_spread_evenly_and_the_targets_hold_when_all_are_on_again() {
    for (off, primaries) in [((7..=12).collect::<Vec<u64>>(), 3), ((5..=12).collect(), 2), (vec![4, 9, 11], 3)] {
        let order = (1..=12).map(NodeId::new).collect();
        let mut chain = Arc::new(ChainView::new(LayoutKind::EqualWork, order, primaries, 1, 3).unwrap());
        let (view, mut lodging, mut guests) = (view(12, &off), Lodging::default(), 0);
        let mut stored: BTreeMap<NodeId, u64> = BTreeMap::new();
        for block in 0..2000 {
            let plan = choose_lodged(&view, &ask(LayoutKind::EqualWork, Some(&chain), 3, block), &lodging).unwrap();
            Arc::make_mut(&mut chain).add(&homes(&plan));
            for member in &plan.members {
                *stored.entry(member.home).or_default() += 1;
                if member.node != member.home {
                    *lodging.guests.entry(member.node).or_default() += 1;
                    guests += 1;
                }
            }
        }
        let share = guests / (12 - off.len() as u64);
        for (node, has) in &lodging.guests {
            assert!(has.abs_diff(share) <= (share / 20).max(2), "{node} has {has} guests of {guests}, {off:?} off");
        }
        let targets = equal_work::targets(Chain::new(12, primaries, 3).unwrap(), 2000).unwrap().blocks_per_node();
        for (place, want) in targets.iter().enumerate() {
            let have = stored.get(&NodeId::new(place as u64 + 1)).copied().unwrap_or(0);
            assert!(have.abs_diff(*want) <= (want / 50).max(2), "place {place}: {have}, {want} are its share");
        }
    }
}

#[test]
fn a_copy_goes_home_if_it_can_and_else_where_fewest_guests_are() {
    let mut ask = ask(LayoutKind::Random, None, 3, 0);
    ask.present = vec![(NodeId::new(1), VolumeId::new(10)), (NodeId::new(2), VolumeId::new(20))];
    let mut lodging = Lodging { beside: vec![NodeId::new(1), NodeId::new(3)], ..Lodging::default() };
    let home = NodeId::new(6);
    let at_home = choose_shelter(&view(6, &[2]), home, &ask, &lodging).unwrap();
    assert_eq!((at_home.node, at_home.home, at_home.reason), (home, home, Reason::Home));
    // 1 and 3 have copies of it, 2 is home to one of them, and 5 has the fewest guests.
    lodging.guests = [(4, 5), (5, 3), (3, 0)].map(|(node, guests)| (NodeId::new(node), guests)).into();
    let guest = choose_shelter(&view(6, &[6, 2]), home, &ask, &lodging).unwrap();
    assert_eq!((guest.node, guest.home, guest.reason), (NodeId::new(5), home, Reason::FewestGuests));
    assert!(guest.to_string().contains("a guest for n6"), "{guest}");
    // All copies so far are in one rack, and the other one has only one guest more.
    lodging.guests.insert(NodeId::new(4), 4);
    let other_rack = choose_shelter(&view(6, &[6, 2]), home, &ask, &lodging).unwrap();
    assert_eq!(other_rack.node, NodeId::new(4));
    let full = choose_shelter(&view(6, &[2, 4, 5, 6]), home, &ask, &lodging).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Unavailable, "{full}");
}

#[test]
fn with_too_few_nodes_on_nothing_is_placed() {
    let order = (1..=6).map(NodeId::new).collect();
    let chain = Arc::new(ChainView::new(LayoutKind::EqualWork, order, 1, 1, 2).unwrap());
    let mut ask = ask(LayoutKind::EqualWork, Some(&chain), 2, 0);
    let lodging = Lodging::default();
    let plan = choose_lodged(&view(6, &[2, 3, 4, 5]), &ask, &lodging).unwrap();
    assert_eq!(nodes(&plan).into_iter().collect::<BTreeSet<_>>(), [1, 6].map(NodeId::new).into(), "{plan}");
    ask.exclude = vec![NodeId::new(6)];
    let error = choose_lodged(&view(6, &[2, 3, 4, 5]), &ask, &lodging).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}
