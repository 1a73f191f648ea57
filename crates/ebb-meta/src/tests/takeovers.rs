//! Files that a client takes over.

use ebb_types::ErrorKind as E;
use ebb_wire::pb::meta_op::{Op, TakeOver};

use super::harness::{ROOT, World};
use crate::Effect;

fn take_over(world: &mut World, inode: u64, epoch: u64) -> Result<u64, E> {
    world.run(Op::TakeOver(TakeOver { inode, epoch })).map(|reply| reply.attr.unwrap().takeovers)
}

#[test]
fn the_holder_counts_takeovers_and_the_count_stays() {
    let mut world = World::new();
    let inode = world.create(ROOT, "f", &[1]).attr.unwrap().inode;
    let before = world.attr(inode);
    assert_eq!(before.takeovers, 0);
    assert_eq!(take_over(&mut world, inode, before.epoch), Ok(1));
    assert_eq!(take_over(&mut world, inode, before.epoch), Ok(2));
    assert!(
        world.effects.iter().any(|effect| matches!(effect, Effect::Changed { inode: id, .. } if id.raw() == inode))
    );
    world.reload();
    assert_eq!(world.attr(inode).takeovers, 2, "a checkpoint has it");
    world.release(inode);
    world.session = world.open_session();
    assert_eq!(world.acquire(inode).unwrap().takeovers, 2, "the next holder learns it");
}

#[test]
fn only_a_holder_takes_a_file_over() {
    let mut world = World::new();
    let inode = world.create(ROOT, "f", &[1]).attr.unwrap().inode;
    let epoch = world.attr(inode).epoch;
    assert_eq!(take_over(&mut world, inode, epoch + 1), Err(E::StaleEpoch));
    let (holder, other) = (world.session, world.open_session());
    world.session = other;
    assert_eq!(take_over(&mut world, inode, epoch), Err(E::StaleEpoch));
    world.session = holder;
    world.release(inode);
    assert_eq!(take_over(&mut world, inode, epoch), Err(E::StaleEpoch));
    assert_eq!(take_over(&mut world, ROOT, 0), Err(E::Invalid));
    assert_eq!(take_over(&mut world, 999, 0), Err(E::Stale));
    assert_eq!(world.attr(inode).takeovers, 0);
}
