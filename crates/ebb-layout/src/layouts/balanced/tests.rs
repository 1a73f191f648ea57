//! Copies on the circle: at equal distances, also with nodes missing; extra copies between them; another number of
//! copies.

use std::collections::BTreeSet;
use std::sync::Arc;

use ebb_types::{HostName, Incarnation, InodeId, NodeClass, NodeId, RackName, VolumeId};
use proptest::prelude::*;

use crate::restore::is_in_runs;
use crate::targets::ring::{Openness, halving, widest_gap};
use crate::{Ask, ChainView, LayoutKind, Plan, Reason, View, VolumeView, choose, choose_shift};

/// A dataset on nodes 1.., each on a host of its own.
struct World {
    view: View,
    chain: Arc<ChainView>,
    seed: u64,
}

impl World {
    fn new(nodes: u32, replicas: u32) -> Self {
        let volume = |node: u32| VolumeView {
            node: NodeId::new(node.into()),
            volume: VolumeId::new(node.into()),
            incarnation: Incarnation::new(1),
            host: HostName::new(format!("h{node}")),
            device: 0,
            rack: RackName::new("r"),
            capacity_bytes: 1 << 40,
            free_bytes: 1 << 39,
            load: 0,
            usable: true,
            off: false,
            kept_bytes: 0,
        };
        let mut world = Self {
            view: View { volumes: (1..=nodes).map(volume).collect(), ..View::default() },
            chain: chain(nodes, replicas),
            seed: 0,
        };
        world.view.volumes.reverse();
        world
    }

    fn ask(&self, present: &[NodeId], replicas: usize) -> Ask {
        Ask {
            layout: LayoutKind::PowerBalanced,
            chain: Some(Arc::clone(&self.chain)),
            replicas,
            on: NodeClass::Any,
            writer: HostName::new("h1"),
            preferred: Vec::new(),
            index: self.seed,
            inode: InodeId::new(2),
            present: present.iter().map(|node| (*node, VolumeId::new(node.raw()))).collect(),
            exclude: Vec::new(),
            bytes: 1 << 20,
            seed: self.seed,
        }
    }

    fn choose(&mut self, present: &[NodeId], replicas: usize) -> Plan {
        self.seed += 1;
        choose(&self.view, &self.ask(present, replicas)).unwrap()
    }

    /// Places a block beside members that it has, and counts it.
    fn place(&mut self, present: &[NodeId]) -> Vec<NodeId> {
        let plan = self.choose(present, self.chain.replicas() as usize);
        let members: Vec<NodeId> =
            present.iter().copied().chain(plan.members.iter().map(|member| member.node)).collect();
        Arc::make_mut(&mut self.chain).add(&members);
        members
    }

    fn kill(&mut self, gone: &BTreeSet<NodeId>) {
        self.view.volumes.iter_mut().for_each(|volume| volume.usable = !gone.contains(&volume.node));
    }

    fn stored(&self) -> Vec<u64> {
        self.chain.nodes().iter().map(|node| self.chain.tally.on(*node)).collect()
    }

    /// Widest gap in living nodes.
    fn widest(&self, members: &[NodeId]) -> u32 {
        let is_alive = |node: &NodeId| self.view.volumes.iter().any(|volume| volume.node == *node && volume.usable);
        let living: Vec<NodeId> = self.chain.nodes().iter().copied().filter(is_alive).collect();
        let places: Vec<u32> = (0..).zip(&living).filter(|(_, node)| members.contains(node)).map(|at| at.0).collect();
        widest_gap(living.len() as u32, &places)
    }
}

fn chain(nodes: u32, replicas: u32) -> Arc<ChainView> {
    let order = (1..=u64::from(nodes)).map(NodeId::new).collect();
    Arc::new(ChainView::new(LayoutKind::PowerBalanced, order, 0, 0, replicas).unwrap())
}

fn are_distinct(members: &[NodeId]) -> bool {
    members.iter().collect::<BTreeSet<_>>().len() == members.len()
}

#[test]
fn copies_lie_at_equal_distances_and_every_node_has_as_many() {
    for nodes in 1..=40 {
        for replicas in 1..=nodes.min(6) {
            let mut world = World::new(nodes, replicas);
            let case = format!("{nodes} nodes, {replicas} copies");
            for _ in 0..6 * nodes {
                let members = world.place(&[]);
                assert!(members.len() == replicas as usize && are_distinct(&members), "{case}: {members:?}");
                assert!(world.widest(&members) <= nodes.div_ceil(replicas), "{case}: {members:?}");
                assert!(is_in_runs(&world.chain, &members), "{case}: {members:?}");
            }
            let stored = world.stored();
            let (least, most) = (stored.iter().min().unwrap(), stored.iter().max().unwrap());
            assert!(most - least <= u64::from(replicas), "{case}: {stored:?}");
        }
    }
}

#[test]
fn first_copies_are_on_all_nodes() {
    let mut world = World::new(9, 3);
    let first: BTreeSet<NodeId> = (0..90).map(|_| world.place(&[])[0]).collect();
    assert_eq!(first.len(), 9, "writers send to the first copy: {first:?}");
}

/// Goal: with one node missing the gaps are no wider, counted in nodes that take turns; and no node but those beside it has
/// more than its part of the blocks written meanwhile.
#[test]
fn with_one_node_missing_gaps_are_as_narrow_and_only_those_beside_it_have_more() {
    for (nodes, replicas) in [(9, 3), (9, 2), (10, 3), (12, 4), (8, 3), (7, 3), (40, 3), (23, 2), (6, 1), (16, 6)] {
        let mut world = World::new(nodes, replicas);
        let case = format!("{nodes} nodes, {replicas} copies");
        let before: Vec<Vec<NodeId>> = (0..10 * nodes).map(|_| world.place(&[])).collect();
        let gone = NodeId::new(u64::from(nodes / 2));
        world.kill(&BTreeSet::from([gone]));
        for members in before.iter().filter(|members| members.contains(&gone)) {
            let staying: Vec<NodeId> = members.iter().copied().filter(|node| *node != gone).collect();
            let repaired = world.place(&staying);
            assert!(are_distinct(&repaired) && !repaired.contains(&gone), "{case}: {repaired:?}");
            assert!(world.widest(&repaired) <= nodes.div_ceil(replicas), "{case}: {repaired:?}");
        }
        world.chain = chain(nodes, replicas);
        for _ in 0..20 * nodes {
            let members = world.place(&[]);
            assert!(world.widest(&members) <= nodes.div_ceil(replicas), "{case}: {members:?}");
        }
        let share = f64::from(20 * replicas);
        for (at, has) in world.stored().into_iter().enumerate().map(|(at, has)| (at as u32 + 1, has as f64)) {
            let away = at.abs_diff(nodes / 2).min(nodes - at.abs_diff(nodes / 2));
            let most = if away <= 1 { 2.1 } else { 1.35 };
            assert!(away == 0 || (has >= share * 0.75 && has <= share * most), "{case}: n{at} has {has} of {share}");
        }
    }
}

#[test]
fn a_copy_that_narrows_the_widest_gap_comes_first() {
    let mut world = World::new(9, 3);
    let plan = world.choose(&[], 2);
    assert!(plan.members.iter().all(|member| member.reason == Reason::CirclePlace), "{plan}");
    // Two of three copies, where so few nodes work: both are on places of a spacing, and the third has its place.
    let two: Vec<NodeId> = plan.members.iter().map(|member| member.node).collect();
    let three = world.place(&two);
    assert!(is_in_runs(&world.chain, &three), "{three:?}");
    assert_eq!(Openness::of(9, &[0, 3, 6]), Openness { widest: 3, squares: 27 });
    assert_eq!(Openness::of(9, &[]), Openness { widest: 9, squares: 81 });
}

/// Goal: a second, fourth or eighth extra copy leaves gaps half as wide, as the paper's halving from one copy on; copies that
/// are there stay.
#[test]
fn extra_copies_halve_widest_gaps() {
    for (nodes, replicas, all) in [(16, 1, 2), (16, 1, 4), (16, 1, 8), (12, 3, 6), (8, 2, 4), (40, 5, 10)] {
        let mut world = World::new(nodes, replicas);
        let mut members = world.place(&[]);
        for copies in replicas + 1..=all {
            let plan = world.choose(&members, copies as usize);
            assert_eq!(plan.members[0].reason, Reason::CircleGap, "{plan}");
            members.push(plan.members[0].node);
        }
        assert_eq!(world.widest(&members), nodes / all, "{nodes} nodes, {replicas} and {all} copies: {members:?}");
        if replicas == 1 {
            assert_eq!(widest_gap(nodes, &halving(nodes, all, 0)), nodes / all);
        }
    }
}

#[test]
fn an_extra_copy_leaves_the_places_of_the_others_free() {
    let mut world = World::new(9, 3);
    // The second copy is not where it belongs, at place 3, which is in the middle of the widest gap.
    let members = [0, 8, 6].map(|place| world.chain.nodes()[place]);
    let aim: Vec<NodeId> = [0, 3, 6].map(|place| world.chain.nodes()[place]).into();
    assert!(aim.iter().all(|node| world.chain.is_due(&members, *node)) && !world.chain.is_due(&members, members[1]));
    let mut all = members.to_vec();
    for copies in 4..=6 {
        let plan = world.choose(&all, copies);
        assert!(!aim.contains(&plan.members[0].node), "{plan}");
        all.push(plan.members[0].node);
    }
}

/// Moves of one block until all copies are in their places. No copy goes before its successor is there, so that there are
/// never fewer.
fn moves(chain: &ChainView, members: &mut [NodeId]) -> usize {
    let mut moves = 0;
    while let Some(shift) = choose_shift(chain, members, |_| true) {
        assert!(!members.contains(&shift.to), "{shift:?}");
        *members.iter_mut().find(|node| **node == shift.from).unwrap() = shift.to;
        moves += 1;
        assert!(moves <= members.len(), "{members:?}");
    }
    moves
}

#[test]
fn another_number_of_copies_leads_to_even_places_again() {
    for nodes in 4..=40 {
        for (old, new) in [(2, 3), (3, 2), (1, 2), (3, 4), (4, 2)] {
            let mut world = World::new(nodes, old);
            for _ in 0..nodes {
                world.chain = chain(nodes, old);
                let mut members = world.place(&[]);
                world.chain = chain(nodes, new);
                if new > old {
                    let before = world.widest(&members);
                    members = world.place(&members);
                    assert!(world.widest(&members) <= before, "{members:?}");
                }
                // Which of too many goes is the caller's choice; here, the last.
                members.truncate(new as usize);
                let moved = moves(&world.chain, &mut members);
                let case = format!("{nodes} nodes, from {old} to {new} copies: {moved} moves, {members:?}");
                assert!(is_in_runs(&world.chain, &members) && moved < new as usize, "{case}");
                assert!(world.widest(&members) <= nodes.div_ceil(new), "{case}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Goal: whatever nodes are missing, new and repaired blocks have their copies on living nodes, and the widest gap in
    /// living nodes is no wider than with all nodes.
    #[test]
    fn with_any_nodes_missing_no_gap_is_wider_than_with_all(
        nodes in 2_u32..30,
        copies in 1_u32..7,
        gone in proptest::collection::btree_set(1_u64..30, 0..10),
        seed in 0_u64..1_000,
    ) {
        let gone: BTreeSet<NodeId> = gone.into_iter().filter(|node| *node <= u64::from(nodes)).map(NodeId::new).collect();
        let living = nodes - gone.len() as u32;
        let replicas = copies.min(living);
        prop_assume!(replicas > 0);
        let mut world = World::new(nodes, replicas);
        world.seed = seed;
        let before: Vec<Vec<NodeId>> = (0..nodes).map(|_| world.place(&[])).collect();
        world.kill(&gone);
        let mut blocks: Vec<Vec<NodeId>> = (0..nodes).map(|_| world.place(&[])).collect();
        for members in before {
            let mut staying: Vec<NodeId> = members.into_iter().filter(|node| !gone.contains(node)).collect();
            // Repair makes one copy at a time.
            while staying.len() < replicas as usize {
                let plan = world.choose(&staying, staying.len() + 1);
                staying.push(plan.members[0].node);
            }
            blocks.push(staying);
        }
        for members in blocks {
            prop_assert!(members.len() == replicas as usize && are_distinct(&members), "{:?}", members);
            prop_assert!(members.iter().all(|node| !gone.contains(node)), "{:?}", members);
            let widest = world.widest(&members);
            prop_assert!(widest <= nodes.div_ceil(replicas), "{:?} of {} without {:?}: {}", members, nodes, gone, widest);
        }
    }
}
