//! The same on the circle of the power-balanced layout.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::rng::Rng;

/// Nodes and copies.
const CIRCLES: [(u64, u32); 10] = [(12, 3), (9, 2), (10, 2), (8, 3), (40, 3), (7, 3), (16, 4), (6, 1), (6, 5), (23, 2)];

fn filled((nodes, replicas): (u64, u32), blocks: usize) -> World {
    World::filled((LayoutKind::PowerBalanced, nodes, 0, 1, replicas), blocks)
}

/// Writes so many more.
fn fill(world: &mut World, blocks: usize) {
    for at in world.blocks.len()..world.blocks.len() + blocks {
        let members = world.place(at, &[]);
        Arc::make_mut(&mut world.chain).add(&members);
        world.blocks.push(members);
    }
}

#[test]
fn blocks_placed_on_the_circle_stay() {
    for shape in CIRCLES {
        let mut world = filled(shape, 600);
        world.check(&format!("{shape:?}"));
        assert_eq!(world.restore(), 0, "{shape:?}: nothing is moved without a need");
    }
}

#[test]
fn a_lost_node_of_the_circle_gets_its_former_part_and_blocks_written_without_it() {
    for shape in CIRCLES {
        for (place, written) in [(0, 0), (3, 0), (1, 300)] {
            let case = format!("{shape:?} without place {place}, {written} blocks written meanwhile");
            let mut world = filled(shape, 600);
            let lost = world.lose(world.chain.nodes()[place]);
            fill(&mut world, written);
            assert!(check_off(&world.chain) > 0, "{case}: its loss shows");
            world.view.volumes.iter_mut().for_each(|volume| volume.usable = true);
            let moves = world.restore();
            world.check(&case);
            let missing = lost + written * shape.1 as usize / shape.0 as usize;
            // Blocks written meanwhile come from others, with all of their copies, and some of the others' copies
            // follow.
            let most = if written == 0 { missing * 3 / 2 + 20 } else { missing * (shape.1 as usize + 2) };
            assert!(moves + 10 >= missing * 9 / 10 && moves <= most, "{case}: {moves} moves for {missing} copies");
        }
    }
}

#[test]
fn another_node_in_its_place_on_the_circle_gets_the_same() {
    for shape in CIRCLES {
        let mut world = filled(shape, 600);
        let (gone, by) = (world.chain.nodes()[0], NodeId::new(shape.0 + 1));
        world.lose(gone);
        world.view.volumes.push(volume(by.raw()));
        let mut chain = world.chain.replaced(gone, by).unwrap();
        world.blocks.iter().for_each(|members| chain.add(members));
        world.chain = Arc::new(chain);
        world.restore();
        world.check(&format!("{shape:?}"));
        assert!(world.chain.tally.on(by) > 0 && world.chain.tally.on(gone) == 0);
    }
}

#[test]
fn a_node_that_may_not_take_a_copy_gets_none_on_the_circle() {
    let mut world = filled((9, 2), 100);
    let gone = world.chain.nodes()[0];
    world.lose(gone);
    fill(&mut world, 60);
    for members in &world.blocks {
        let shift = choose_shift(&world.chain, members, |node| node != gone);
        let change = choose_change(&world.chain, members, |node| node != gone);
        assert!(shift.or(change).is_none_or(|shift| shift.to != gone));
        assert_eq!(choose_shift(&world.chain, &members[..1], |_| true), None, "it lacks a copy");
    }
    // The node across could take a copy, and the other one could not follow.
    let circle = world.chain.circle().unwrap();
    let whole = world.blocks.iter().filter(|members| is_in_runs(&world.chain, members));
    for members in whole.clone() {
        let Some(change) = choose_change(&world.chain, members, |node| node != gone) else { continue };
        let to = |node: &NodeId| if *node == change.from { change.to } else { *node };
        let aim = world.chain.aim(&members.iter().map(to).collect::<Vec<_>>()).unwrap();
        assert!(!circle.has(aim, 0), "{change:?}");
    }
    assert!(whole.clone().any(|members| choose_change(&world.chain, members, |_| true).is_some()));
}

/// The measure that falls with each move: copies off the circle; then the sum of the spacings' squared counts; then
/// copies outside the spacings of their blocks.
fn measure(world: &World) -> (usize, u64, usize) {
    let (chain, circle) = (&world.chain, world.chain.circle().unwrap());
    let off = world.blocks.iter().flatten().filter(|node| chain.place_of(**node).is_none()).count();
    let spacings: BTreeSet<usize> = world.blocks.iter().filter_map(|block| chain.aim(block)).collect();
    let squares = spacings.iter().map(|spacing| chain.tally.for_spacing(*spacing).pow(2)).sum();
    let strays = |block: &Vec<NodeId>| {
        block.len() - chain.aim(block).map_or(0, |aim| circle.matched(aim, &chain.places_of(block)))
    };
    (off, squares, world.blocks.iter().map(strays).sum())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Goal: from any state moves end, each getting nearer, with every block whole and every node at its share; no two copies
    /// of a block ever meet. Method: copies strewn over the circle, and beside it, by any preference for some nodes.
    #[test]
    fn from_anywhere_every_copy_gets_into_its_place_and_every_node_to_its_share(
        nodes in 2_u64..24,
        copies in 1_u32..5,
        blocks in 0_usize..150,
        crowd in 1_u64..24,
        beside in 0_u64..3,
        seed: u64,
    ) {
        let replicas = copies.min(nodes as u32);
        let mut world = filled((nodes, replicas), 0);
        let mut rng = Rng::new(&[seed]);
        for _ in 0..blocks {
            // Most copies are in a crowd; some are on nodes that are not on the circle.
            let mut homes: Vec<NodeId> = Vec::new();
            while homes.len() < replicas as usize {
                let bound = if rng.below(8) == 0 { nodes + beside } else { crowd.clamp(u64::from(replicas), nodes) };
                let node = NodeId::new(1 + rng.below(bound));
                if !homes.contains(&node) {
                    homes.push(node);
                }
            }
            Arc::make_mut(&mut world.chain).add(&homes);
            world.blocks.push(homes);
        }
        let mut before = measure(&world);
        loop {
            let mut moves = 0;
            // A block sets out when all others have arrived.
            for sets_out in [false, true] {
                if sets_out && moves > 0 {
                    continue;
                }
                for at in 0..world.blocks.len() {
                    let (chain, homes) = (&world.chain, world.blocks[at].clone());
                    let shift =
                        if sets_out { choose_change(chain, &homes, |_| true) } else { choose_shift(chain, &homes, |_| true) };
                    let Some(shift) = shift else { continue };
                    prop_assert!(homes.contains(&shift.from) && !homes.contains(&shift.to), "{:?} of {:?}", shift, homes);
                    let to = |node: &NodeId| if *node == shift.from { shift.to } else { *node };
                    world.set(at, homes.iter().map(to).collect());
                    let now = measure(&world);
                    prop_assert!(now < before, "{:?} leads from {:?} to {:?}", shift, before, now);
                    before = now;
                    moves += 1;
                }
            }
            if moves == 0 {
                break;
            }
        }
        world.check("in the end");
    }
}
