use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebb_types::{Declared, HostName, Incarnation, InodeId, NodeClass, RackName, VolumeId};
use proptest::prelude::*;

use super::*;
use crate::{LayoutKind, Lodging, View, choose, choose_lodged, restore};

const GIB: u64 = 1 << 30;
const HOSTS: u64 = 3;

/// Localized storage nodes 1 to `lsns`, in `racks` racks, each with so many volumes and serving three hosts: `c1` to `c3` by the
/// first, and so on. And a compute node with a disk of its own.
fn view(lsns: u64, racks: u64, volumes: u64) -> View {
    let served = |lsn: u64| (1..=HOSTS).map(move |host| format!("c{}", (lsn - 1) * HOSTS + host)).collect::<Vec<_>>();
    let serves: Vec<Vec<String>> = (1..=lsns).map(served).collect();
    let names: Vec<(String, String)> =
        (1..=lsns).map(|lsn| (format!("lsn{lsn}"), format!("r{}", (lsn - 1) * racks / lsns))).collect();
    let declared = names.iter().zip(&serves).zip(1..).map(|(((host, rack), serves), node)| Declared {
        node: Some(NodeId::new(node)),
        host,
        rack,
        serves,
    });
    let sub_racks = Arc::new(SubRacks::new(declared));
    let volume = |node: u64, volume: u64, host: &str, rack: &str| VolumeView {
        node: NodeId::new(node),
        volume: VolumeId::new(node * 100 + volume),
        incarnation: Incarnation::new(1),
        host: HostName::new(host),
        rack: RackName::new(rack),
        capacity_bytes: 100 * GIB,
        free_bytes: 90 * GIB,
        usable: true,
        ..VolumeView::default()
    };
    let of_lsns = names.iter().zip(1..).flat_map(|((host, rack), node)| {
        (1..=volumes).map(move |number| volume(node, number, host, rack)).collect::<Vec<_>>()
    });
    View { volumes: of_lsns.chain([volume(99, 1, "c1", "r0")]).collect(), sub_racks }
}

fn ask(lsns: u64, replicas: usize) -> Ask {
    let nodes = (1..=lsns).map(NodeId::new).collect();
    Ask {
        layout: LayoutKind::Lsn,
        chain: Some(Arc::new(ChainView::new(LayoutKind::Lsn, nodes, 0, 0, replicas as u32).unwrap())),
        replicas,
        on: NodeClass::Lsn,
        writer: HostName::default(),
        preferred: Vec::new(),
        index: 0,
        inode: InodeId::new(7),
        present: Vec::new(),
        exclude: Vec::new(),
        bytes: 4 << 20,
        seed: 5,
    }
}

fn written_on(host: &str, index: u64, ask: &Ask) -> Ask {
    Ask { writer: HostName::new(host), index, ..ask.clone() }
}

fn nodes(plan: &Plan) -> Vec<u64> {
    plan.members.iter().map(|member| member.node.raw()).collect()
}

fn reasons(plan: &Plan) -> Vec<Reason> {
    plan.members.iter().map(|member| member.reason).collect()
}

#[test]
fn first_copies_are_near_the_writer_and_second_ones_take_turns_in_the_other_half() {
    let (view, ask) = (view(4, 2, 4), ask(4, 2));
    let plans: Vec<Plan> = (0..64).map(|index| choose(&view, &written_on("c5", index, &ask)).unwrap()).collect();
    assert!(plans.iter().all(|plan| reasons(plan) == [Reason::WriterLsn, Reason::OtherHalf]));
    let pairs: Vec<Vec<u64>> = plans.iter().map(nodes).collect();
    assert!(pairs.iter().all(|pair| pair[0] == 2), "lsn2 serves c4 to c6: {pairs:?}");
    let seconds: Vec<u64> = pairs.iter().map(|pair| pair[1]).collect();
    assert!(seconds.windows(2).all(|two| two[0] != two[1]) && seconds.iter().all(|node| [3, 4].contains(node)));
    // I-72: each stream goes over all disks, also that of second copies.
    let on = |copy: usize, node: u64| {
        let members = plans.iter().map(|plan| plan.members[copy]).filter(move |member| member.node.raw() == node);
        members.fold(BTreeMap::new(), |mut counts, member| {
            *counts.entry(member.volume.raw()).or_insert(0) += 1;
            counts
        })
    };
    assert!(on(0, 2).values().eq(&[16; 4]), "{:?}", on(0, 2));
    assert!(on(1, 3).values().eq(&[8; 4]) && on(1, 4).values().eq(&[8; 4]), "{:?} {:?}", on(1, 3), on(1, 4));
    let volumes: Vec<u64> = plans.iter().map(|plan| plan.members[0].volume.raw()).collect();
    assert!(volumes.windows(4).all(|four| four.iter().collect::<BTreeSet<_>>().len() == 4), "in turn: {volumes:?}");
}

#[test]
fn affinity_comes_before_the_writer_and_clients_outside_get_room() {
    let (mut view, ask) = (view(4, 2, 2), ask(4, 2));
    let affine = Ask { preferred: vec![HostName::new("c10")], ..written_on("c1", 0, &ask) };
    let plan = choose(&view, &affine).unwrap();
    assert_eq!((nodes(&plan)[0], reasons(&plan)[0]), (4, Reason::PreferredLsn));
    let own = choose(&view, &written_on("lsn3", 0, &ask)).unwrap();
    assert_eq!((nodes(&own)[0], reasons(&own)[0]), (3, Reason::WriterLsn));
    let outside = |view: &View, inode: u64, index: u64| {
        let plan = choose(view, &Ask { inode: InodeId::new(inode), ..written_on("laptop", index, &ask) }).unwrap();
        assert_eq!(reasons(&plan)[0], Reason::RoomForHosts);
        nodes(&plan)[0]
    };
    let counted = |view: &View| {
        let mut counts = BTreeMap::new();
        (0..4_000).for_each(|inode| *counts.entry(outside(view, inode, 0)).or_insert(0_u64) += 1);
        counts
    };
    // Six standard deviations of a binomial distribution: sqrt(4000 x 0.25 x 0.75) = 27.
    assert!(counted(&view).values().all(|count| count.abs_diff(1_000) < 165), "{:?}", counted(&view));
    assert!((0..50).all(|index| outside(&view, 8, index) == outside(&view, 8, 0)), "a file stays together");
    view.volumes.iter_mut().filter(|volume| volume.node.raw() == 1).for_each(|volume| volume.free_bytes /= 3);
    let fewer = counted(&view)[&1];
    assert!((300..500).contains(&fewer), "a third of the room, a third of the files: {fewer}");
}

#[test]
fn a_full_node_s_copies_go_to_its_half_and_a_lost_half_s_to_the_other() {
    let (mut view, ask) = (view(6, 3, 2), ask(6, 2));
    view.volumes.iter_mut().filter(|volume| volume.node.raw() == 2).for_each(|volume| volume.free_bytes = 0);
    for index in 0..20 {
        let plan = choose(&view, &written_on("c4", index, &ask)).unwrap();
        assert_eq!(reasons(&plan), [Reason::RunGivenUp, Reason::OtherHalf]);
        assert!([1, 3].contains(&nodes(&plan)[0]) && nodes(&plan)[1] > 3, "{plan}");
    }
    view.volumes.iter_mut().filter(|volume| volume.node.raw() > 3).for_each(|volume| volume.usable = false);
    let plan = choose(&view, &written_on("c1", 0, &ask)).unwrap();
    assert_eq!((nodes(&plan), reasons(&plan)[1]), (vec![1, 3], Reason::RunGivenUp));
    view.volumes.iter_mut().filter(|volume| volume.node.raw() == 3).for_each(|volume| volume.usable = false);
    let error = choose(&view, &written_on("c1", 0, &Ask { replicas: 3, ..ask })).unwrap_err().to_string();
    assert!(error.contains("2 of 6 localized storage nodes"), "the compute node does not count: {error}");
}

#[test]
fn repair_makes_the_copy_of_the_half_that_lacks_one() {
    let (view, ask) = (view(5, 1, 2), ask(5, 2));
    let repaired = |stays: u64, index: u64| {
        let present = vec![(NodeId::new(stays), VolumeId::new(stays * 100 + 1))];
        nodes(&choose(&view, &Ask { present, index, ..ask.clone() }).unwrap())[0]
    };
    let all = |stays| (0..40).map(|index| repaired(stays, index)).collect::<BTreeSet<_>>();
    assert_eq!(all(1), BTreeSet::from([3, 4, 5]));
    assert_eq!(all(5), BTreeSet::from([1, 2, 3]));
    assert_eq!(all(3), BTreeSet::from([1, 2, 4, 5]), "the middle is in both halves");
}

#[test]
fn copies_come_back_to_the_chain_and_to_both_halves() {
    let chain = ChainView::new(LayoutKind::Lsn, (1..=4).map(NodeId::new).collect(), 0, 0, 2).unwrap();
    let shift = |homes: [u64; 2]| {
        let homes = homes.map(NodeId::new);
        let shift = restore::choose_shift(&chain, &homes, |node| node.raw() != 3);
        shift.map(|shift| (shift.from.raw(), shift.to.raw(), shift.reason))
    };
    assert_eq!(shift([1, 3]), None);
    assert_eq!(shift([1, 2]), Some((2, 4, restore::ShiftReason::OneHalf)));
    assert_eq!(shift([9, 1]), Some((9, 4, restore::ShiftReason::OutOfRun)));
    assert_eq!(shift([3, 4]), Some((4, 1, restore::ShiftReason::OneHalf)));
    assert!(restore::is_in_runs(&chain, &[4, 1].map(NodeId::new)));
    assert_eq!(restore::check_off(&chain), 0, "how much a node has is its writers' business");
}

#[test]
fn with_half_of_the_nodes_off_second_copies_are_guests() {
    let (mut view, ask) = (view(4, 2, 2), ask(4, 2));
    view.volumes.iter_mut().filter(|volume| volume.node.raw() > 2).for_each(|volume| volume.off = true);
    let plan = choose_lodged(&view, &written_on("c1", 0, &ask), &Lodging::default()).unwrap();
    assert_eq!(nodes(&plan), [1, 2], "both that are on");
    assert!(plan.members[1].home.raw() > 2, "{plan}");
}

proptest! {
    /// I-72: copies lie on localized storage nodes of their own, in both halves, and in two racks where there are two.
    #[test]
    fn every_block_has_a_copy_in_both_halves(
        lsns in 2_u64..9, racks in 1_u64..4, volumes in 1_u64..5, host in 1_u64..40, inode in 0_u64..1_000, index in 0_u64..1_000,
    ) {
        let view = view(lsns, racks.min(lsns), volumes);
        let ask = Ask { inode: InodeId::new(inode), ..written_on(&format!("c{host}"), index, &ask(lsns, 2)) };
        let plan = choose(&view, &ask).unwrap();
        let homes: Vec<NodeId> = plan.members.iter().map(|member| member.node).collect();
        let chain = ask.chain.as_ref().unwrap();
        prop_assert!(homes[0] != homes[1] && homes.iter().all(|node| node.raw() <= lsns));
        prop_assert_eq!(Half::without(chain, &homes), None);
        let rack = |node: NodeId| view.volumes.iter().find(|volume| volume.node == node).map(|volume| volume.rack.clone());
        // The half that the first copy is not in may lie in its rack alone.
        let other: Vec<NodeId> = Half::ALL.into_iter().filter(|half| !half.has_any(chain, &homes[..1])).flat_map(|half| half.nodes(chain)).collect();
        if other.iter().any(|node| rack(*node) != rack(homes[0])) {
            prop_assert!(rack(homes[0]) != rack(homes[1]), "{}", plan);
        }
        prop_assert_eq!(choose(&view, &ask).unwrap(), plan);
    }
}
