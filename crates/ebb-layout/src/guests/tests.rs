//! Homes are those of full power, guests are spread over the nodes that are on, and the targets hold when all are on
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebb_types::{ErrorKind, HostName, Incarnation, InodeId, NodeClass, NodeId, RackName, VolumeId};
use proptest::prelude::*;

use super::{Lodging, choose_lodged, choose_shelter};
use crate::overload::{OverloadRule, Queue, choose_overloaded, mean_bytes};
use crate::targets::{Chain, equal_work};
use crate::{Ask, ChainView, LayoutKind, Plan, Reason, View, VolumeView, choose};

fn view(nodes: u64, off: &[u64]) -> View {
    let volume = |node: u64| VolumeView {
        node: NodeId::new(node),
        volume: VolumeId::new(node * 10),
        incarnation: Incarnation::new(1),
        device: 0,
        host: HostName::new(format!("h{node}")),
        rack: RackName::new(format!("r{}", node % 2)),
        capacity_bytes: 1 << 40,
        free_bytes: 1 << 39,
        load: 0,
        usable: true,
        off: off.contains(&node),
        kept_bytes: 0,
    };
    View { volumes: (1..=nodes).map(volume).collect(), ..View::default() }
}

fn ask(layout: LayoutKind, chain: Option<&Arc<ChainView>>, replicas: usize, index: u64) -> Ask {
    Ask {
        layout,
        chain: chain.cloned(),
        replicas,
        on: NodeClass::Any,
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
    fn homes_are_those_of_full_power_and_copies_lie_on_nodes_that_are_on(
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

/// Writers are given blocks faster than any node can write them. Returns the bytes that then wait for each node, the
/// copies that belong to each, and the copies that are away from their homes, by home.
fn burst(layout: LayoutKind, nodes: u64, rule: &OverloadRule, blocks: u64) -> (Vec<u64>, Vec<u64>, Vec<u64>) {
    const BYTES: u64 = 64;
    let order = (1..=nodes).map(NodeId::new).collect();
    let mut chain = Arc::new(ChainView::new(layout, order, 3, 3, 3).unwrap());
    let view = view(nodes, &[]);
    let empty = (1..=nodes).map(|node| (NodeId::new(node), Queue::default()));
    let mut lodging = Lodging { queues: empty.collect(), ..Lodging::default() };
    let mut homes_of = BTreeMap::<NodeId, u64>::new();
    for block in 0..blocks {
        lodging.overloaded = choose_overloaded(rule, &lodging.queues, &lodging.overloaded, BYTES);
        let ask = Ask { bytes: BYTES, ..ask(layout, Some(&chain), 3, block) };
        let plan = choose_lodged(&view, &ask, &lodging).unwrap();
        Arc::make_mut(&mut chain).add(&homes(&plan));
        for member in &plan.members {
            *homes_of.entry(member.home).or_default() += 1;
            lodging.queues.get_mut(&member.node).unwrap().waiting_bytes += BYTES;
            if member.home != member.node {
                lodging.queues.get_mut(&member.home).unwrap().away += 1;
            }
        }
    }
    let waiting = lodging.queues.values().map(|queue| queue.waiting_bytes / BYTES).collect();
    let away = lodging.queues.values().map(|queue| queue.away).filter(|away| *away > 0).collect();
    (waiting, homes_of.values().copied().collect(), away)
}

/// Rabbit, Sec. 3.3: a write of B blocks takes as long as B r / N at one node, where B / p were written by a primary.
#[test]
fn with_others_that_write_for_primaries_all_nodes_write_alike() {
    let off = OverloadRule { ahead_bytes: None, ..OverloadRule::default() };
    let on = OverloadRule { ahead_bytes: Some(4 * 64), ..OverloadRule::default() };
    for layout in [LayoutKind::EqualWork, LayoutKind::Geared] {
        let (without, homes_without, none) = burst(layout, 24, &off, 1_200);
        let (with, homes_with, away) = burst(layout, 24, &on, 1_200);
        assert_eq!((without.iter().max(), none), (Some(&400), vec![]), "1200 / p");
        assert!(with.iter().max() <= Some(&(1_200 * 3 / 24 + 5)), "{with:?}");
        assert_eq!(homes_with, homes_without, "homes do not change");
        assert!(away.len() >= 3 && away[..3].iter().all(|away| (240..300).contains(away)), "{away:?}");
    }
    let few = burst(LayoutKind::EqualWork, 24, &OverloadRule { away_max: 10, ..on }, 1_200);
    assert!(few.2.len() >= 3 && few.2.iter().all(|away| *away == 10), "{:?}", few.2);
    assert_eq!(burst(LayoutKind::EqualWork, 24, &on, 10).2, [] as [u64; 0], "a few blocks are no burst");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// Nothing is given up for a home that has too much to write.
    #[test]
    fn guests_of_overloaded_homes_lie_on_hosts_of_their_own_and_in_as_many_racks(
        waiting in prop::collection::vec(0..2_000_u64, 12),
        off in prop::collection::btree_set(1..=12_u64, 0..=6),
        blinks in prop::collection::btree_set(1..=12_u64, 0..=3),
        hosts in 4..=12_u64,
        index in 0..50_u64,
    ) {
        let off: Vec<u64> = off.into_iter().collect();
        let order = (1..=12).map(NodeId::new).collect();
        let chain = Arc::new(ChainView::new(LayoutKind::EqualWork, order, 2, 1, 3).unwrap());
        let mut view = view(12, &off);
        for volume in &mut view.volumes {
            let host = volume.node.raw() % hosts;
            (volume.host, volume.rack) = (HostName::new(format!("h{host}")), RackName::new(format!("r{}", host % 2)));
        }
        let ask = ask(LayoutKind::EqualWork, Some(&chain), 3, index);
        let steady = (1..=12_u64).filter(|node| !off.contains(node) && !blinks.contains(node));
        let queue = |node: u64| Queue { waiting_bytes: waiting[node as usize - 1], away: 0 };
        let queues: BTreeMap<_, _> = steady.map(|node| (NodeId::new(node), queue(node))).collect();
        let rule = OverloadRule { ahead_bytes: Some(200), ahead_metablocks: 0, away_max: 9 };
        let overloaded = choose_overloaded(&rule, &queues, &BTreeSet::new(), 1);
        let calm = Lodging { queues: queues.clone(), ..Lodging::default() };
        let (Ok(before), lodging) =
            (choose_lodged(&view, &ask, &calm), Lodging { queues: queues.clone(), overloaded: overloaded.clone(), ..calm })
        else { return Ok(()) };
        let plan = choose_lodged(&view, &ask, &lodging).unwrap();
        prop_assert_eq!(homes(&plan), homes(&before));
        let places = |plan: &Plan, of: fn(&VolumeView) -> String| -> usize {
            let place = |node: NodeId| of(view.volumes.iter().find(|volume| volume.node == node).unwrap());
            nodes(plan).into_iter().map(place).collect::<BTreeSet<_>>().len()
        };
        let host = |volume: &VolumeView| volume.host.to_string();
        let rack = |volume: &VolumeView| volume.rack.to_string();
        if off.is_empty() {
            prop_assert!(places(&plan, host) >= places(&before, host), "{}\nwas\n{}", plan, before);
            prop_assert!(places(&plan, rack) >= places(&before, rack), "{}\nwas\n{}", plan, before);
        }
        prop_assert_eq!(nodes(&plan).into_iter().collect::<BTreeSet<_>>().len(), 3);
        for member in &plan.members {
            prop_assert!(member.node == member.home || !homes(&plan).contains(&member.node), "{}", plan);
            if member.reason == Reason::LeastToWrite {
                prop_assert!(overloaded.contains(&member.home) && queues.contains_key(&member.node), "{}", plan);
                prop_assert!(queues[&member.node].waiting_bytes <= mean_bytes(&queues), "{}", plan);
            }
        }
    }
}

#[test]
fn bytes_that_the_home_has_no_room_for_are_not_written_elsewhere() {
    let order = (1..=8).map(NodeId::new).collect();
    let chain = Arc::new(ChainView::new(LayoutKind::EqualWork, order, 1, 1, 2).unwrap());
    let ask = ask(LayoutKind::EqualWork, Some(&chain), 2, 0);
    let queue = |node: u64| (NodeId::new(node), Queue { waiting_bytes: if node == 1 { 1000 } else { 0 }, away: 3 });
    let lodging =
        Lodging { queues: (1..=8).map(queue).collect(), overloaded: [NodeId::new(1)].into(), ..Lodging::default() };
    let mut view = view(8, &[]);
    let guest = choose_lodged(&view, &ask, &lodging).unwrap().members[0];
    assert_eq!((guest.home, guest.reason), (NodeId::new(1), Reason::LeastToWrite));
    // Three are away, and it has room for three.
    view.volumes[0].free_bytes = view.volumes[0].reserve_bytes() + 3 * ask.bytes;
    let at_home = choose_lodged(&view, &ask, &lodging).unwrap().members[0];
    assert_eq!((at_home.node, at_home.home), (NodeId::new(1), NodeId::new(1)));
}
