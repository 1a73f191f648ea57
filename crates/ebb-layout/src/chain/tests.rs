//! Online placement comes to the targets, in any order, with any number of writers, and with removals on the way.

use std::sync::Arc;

use ebb_types::{HostName, Incarnation, InodeId, NodeClass, NodeId, RackName, VolumeId};

use super::ChainView;
use crate::rng::Rng;
use crate::targets::geared::Grid;
use crate::targets::{Chain, equal_work, simple};
use crate::{Ask, LayoutKind, View, VolumeView, choose};

fn view(nodes: u64) -> View {
    let volume = |node: u64| VolumeView {
        node: NodeId::new(node),
        volume: VolumeId::new(node),
        incarnation: Incarnation::new(1),
        device: 0,
        host: HostName::new(format!("h{node}")),
        rack: RackName::new(format!("r{}", node % 2)),
        capacity_bytes: 1 << 40,
        free_bytes: 1 << 39,
        load: 0,
        usable: true,
        off: false,
        kept_bytes: 0,
    };
    View { volumes: (1..=nodes).map(volume).collect(), ..View::default() }
}

/// A dataset that is being written.
struct World {
    view: View,
    chain: Arc<ChainView>,
    blocks: Vec<Vec<NodeId>>,
    seed: u64,
}

impl World {
    fn new(layout: LayoutKind, nodes: u64, primaries: u32, gear_size: u32, replicas: u32) -> Self {
        let order = (1..=nodes).map(NodeId::new).collect();
        let chain = ChainView::new(layout, order, primaries, gear_size, replicas).unwrap();
        Self { view: view(nodes), chain: Arc::new(chain), blocks: Vec::new(), seed: 0 }
    }

    fn ask(&self, present: &[NodeId]) -> Ask {
        Ask {
            layout: self.chain.layout(),
            chain: Some(Arc::clone(&self.chain)),
            replicas: self.chain.replicas() as usize,
            on: NodeClass::Any,
            writer: HostName::new("h1"),
            preferred: Vec::new(),
            index: self.blocks.len() as u64 / 7,
            inode: InodeId::new(self.blocks.len() as u64 % 7 + 2),
            present: present.iter().map(|node| (*node, VolumeId::new(node.raw()))).collect(),
            exclude: Vec::new(),
            bytes: 1 << 20,
            seed: self.seed,
        }
    }

    fn choose(&self, present: &[NodeId]) -> Vec<NodeId> {
        let plan = choose(&self.view, &self.ask(present)).unwrap();
        present.iter().copied().chain(plan.members.iter().map(|member| member.node)).collect()
    }

    /// Places one block.
    fn place(&mut self) {
        self.seed += 1;
        let members = self.choose(&[]);
        Arc::make_mut(&mut self.chain).add(&members);
        self.blocks.push(members);
    }

    fn fill(&mut self, blocks: u64) {
        (0..blocks).for_each(|_| self.place());
    }

    fn stored(&self) -> Vec<u64> {
        self.chain.nodes().iter().map(|node| self.chain.tally.on(*node)).collect()
    }

    fn check_near(&self, targets: &[u64]) {
        for (place, (have, want)) in self.stored().iter().zip(targets).enumerate() {
            let off = have.abs_diff(*want);
            assert!(
                off <= (want / 50).max(2),
                "place {place} of {:?}: {have} blocks, {want} are its share",
                self.chain.layout()
            );
        }
    }
}

fn targets(layout: LayoutKind, chain: Chain, gear_size: u32, blocks: u64) -> Vec<u64> {
    match layout {
        LayoutKind::Simple => simple::targets(chain, blocks),
        LayoutKind::EqualWork => equal_work::targets(chain, blocks),
        _ => Grid::new(chain, gear_size).unwrap().targets(blocks),
    }
    .unwrap()
    .blocks_per_node()
}

const SHAPES: [(LayoutKind, u32, u32, u32, u32); 8] = [
    (LayoutKind::EqualWork, 41, 5, 1, 3),
    (LayoutKind::EqualWork, 24, 3, 1, 3),
    (LayoutKind::EqualWork, 9, 2, 1, 2),
    (LayoutKind::EqualWork, 9, 1, 1, 3),
    (LayoutKind::Simple, 25, 5, 1, 4),
    (LayoutKind::Simple, 9, 3, 1, 3),
    (LayoutKind::Geared, 40, 10, 5, 3),
    (LayoutKind::Geared, 10, 2, 2, 3),
];

#[test]
fn ten_thousand_blocks_come_to_the_targets() {
    for (layout, nodes, primaries, gear_size, replicas) in SHAPES {
        let mut world = World::new(layout, u64::from(nodes), primaries, gear_size, replicas);
        let chain = Chain::new(nodes, primaries, replicas).unwrap();
        for blocks in [100, 1_900, 8_000] {
            world.fill(blocks);
            let all = world.blocks.len() as u64;
            world.check_near(&targets(layout, chain, gear_size, all));
        }
    }
}

#[test]
fn every_node_draws_evenly_from_every_primary() {
    for (layout, nodes, primaries, gear_size, replicas) in SHAPES {
        let mut world = World::new(layout, u64::from(nodes), primaries, gear_size, replicas);
        world.fill(2_500);
        let chain = &world.chain;
        for place in primaries as usize..nodes as usize {
            let drawn = |primary: usize| chain.tally.pair(chain.nodes()[primary], chain.nodes()[place]);
            // Under gears a node draws from the primaries of its columns only.
            let drawn: Vec<u64> = (0..primaries as usize).map(drawn).filter(|blocks| *blocks > 0).collect();
            let (least, most) = (drawn.iter().min(), drawn.iter().max());
            let (Some(least), Some(most)) = (least, most) else { continue };
            let is_boundary = layout == LayoutKind::Geared && most - least > 4;
            assert!(most - least <= (most / 25).max(4) || is_boundary, "{layout} place {place}: {drawn:?}");
        }
    }
}

#[test]
fn removals_and_a_full_node_do_not_take_a_chain_off_course() {
    let mut world = World::new(LayoutKind::EqualWork, 24, 3, 1, 3);
    let mut rng = Rng::new(&[5]);
    world.fill(3_000);
    for _ in 0..2_000 {
        let at = usize::try_from(rng.below(world.blocks.len() as u64)).unwrap();
        let gone = world.blocks.swap_remove(at);
        Arc::make_mut(&mut world.chain).remove(&gone);
    }
    world.view.volumes[4].usable = false;
    world.fill(300);
    world.view.volumes[4].usable = true;
    world.fill(8_700);
    world.check_near(&targets(LayoutKind::EqualWork, Chain::new(24, 3, 3).unwrap(), 1, 10_000));
}

#[test]
fn a_repair_puts_a_copy_where_the_lost_one_was() {
    for (layout, nodes, primaries, gear_size, replicas) in SHAPES {
        let mut world = World::new(layout, u64::from(nodes), primaries, gear_size, replicas);
        world.fill(1_000);
        for lost in 0..replicas as usize {
            let before = world.blocks[17].clone();
            let mut present = before.clone();
            let gone = world.chain.place_of(present.remove(lost)).unwrap();
            let now = world.chain.place_of(*world.choose(&present).last().unwrap()).unwrap();
            let primary = world.chain.place_of(before[0]).unwrap();
            let runs = (0..replicas as usize).map(|copy| world.chain.run(copy, if lost == 0 { now } else { primary }));
            let shared =
                runs.into_iter().any(|run| [gone, now].iter().all(|place| run.iter().any(|at| at.0 == *place)));
            assert!(shared || lost == 0, "{layout}: copy {lost} went from place {gone} to {now}");
            assert_eq!(now < primaries as usize, gone < primaries as usize, "{layout}: {gone} to {now}");
        }
    }
}

#[test]
fn the_circle_is_filled_evenly_and_its_copies_stand_apart() {
    let mut world = World::new(LayoutKind::PowerBalanced, 9, 0, 0, 3);
    world.fill(900);
    assert!(world.stored().iter().all(|blocks| blocks.abs_diff(300) <= 3), "{:?}", world.stored());
    for members in &world.blocks {
        let places: Vec<u32> = members.iter().map(|node| u32::try_from(node.raw() - 1).unwrap()).collect();
        assert!(crate::targets::ring::widest_gap(9, &places) <= 5, "{places:?}");
    }
    let mut lost = world.blocks[3].clone();
    let gone = lost.remove(1);
    assert_eq!(*world.choose(&lost).last().unwrap(), gone, "the circle that the others are on has one place left");
}

#[test]
fn impossible_shapes_are_explained() {
    let refusal = |layout, nodes: u64, primaries, gear, replicas| {
        let order = (1..=nodes).map(NodeId::new).collect();
        ChainView::new(layout, order, primaries, gear, replicas).unwrap_err().detail().to_owned()
    };
    assert!(refusal(LayoutKind::EqualWork, 9, 4, 1, 3).contains("4 primaries with 3 copies need at least 12 nodes"));
    assert!(refusal(LayoutKind::EqualWork, 9, 10, 1, 1).contains("the nearest possible number of primaries is 9"));
    assert!(refusal(LayoutKind::PowerBalanced, 2, 0, 0, 3).contains("no node may hold a block twice"));
    assert!(refusal(LayoutKind::Geared, 9, 2, 3, 3).contains("cannot be dealt evenly to 3 columns"));
}
