//! Extra copies: recorded beside a set, and gone before anybody writes.

use ebb_types::{ErrorKind as E, InodeId, MetablockId};
use ebb_wire::pb;
use pb::command::Command as Change;

use super::harness::{MIB, ROOT, World, committed, member, members};
use crate::{Effect, Machine};

/// A file with a committed metablock on these volumes, without a holder.
fn settled(world: &mut World, name: &str, volumes: &[u64]) -> (u64, u64) {
    let made = world.create(ROOT, name, volumes);
    let (inode, block) = (made.attr.unwrap().inode, made.metablocks[0].id);
    let file = pb::CommitFile {
        inode,
        epoch: 1,
        size: MIB,
        metablocks: vec![committed(block, 1, 3, MIB)],
        release: true,
        ..Default::default()
    };
    world.commit(file).unwrap();
    (inode, block)
}

pub(super) fn change(world: &mut World, block: u64, before: &[u64], after: &[u64]) -> Result<(), E> {
    let (inode, record) = world.machine.find_metablock(MetablockId::new(block)).unwrap();
    let epoch = world.machine.attr(inode).unwrap().epoch;
    let (before, members) = (members(before), members(after));
    let op = pb::ChangeExtras {
        inode: inode.raw(),
        epoch,
        metablock: block,
        generation: record.generation,
        before,
        members,
    };
    world.apply(Change::ChangeExtras(op)).reply.map(drop).map_err(|error| error.kind())
}

pub(super) fn extras(world: &World, block: u64) -> Vec<u64> {
    world.machine.extras(MetablockId::new(block)).iter().map(|extra| extra.node).collect()
}

fn effect(inode: u64, block: u64, old: &[u64], new: &[u64]) -> Effect {
    let (inode, metablock) = (InodeId::new(inode), MetablockId::new(block));
    Effect::ExtrasChanged { inode, metablock, old: members(old), new: members(new) }
}

#[test]
fn extra_copies_are_returned_beside_the_set_and_survive_a_checkpoint() {
    let mut world = World::new();
    let (inode, block) = settled(&mut world, "f", &[1, 2]);
    change(&mut world, block, &[], &[3, 4]).unwrap();
    assert_eq!(world.effects, [effect(inode, block, &[], &[3, 4])]);
    let (_, record) = world.machine.find_metablock(MetablockId::new(block)).unwrap();
    assert_eq!((record.members, record.extra, record.generation), (members(&[1, 2]), members(&[3, 4]), 1));
    assert!(world.machine.is_placed_on(MetablockId::new(block), member(4).volume_id()));
    assert!(!world.machine.is_placed_on(MetablockId::new(block), member(5).volume_id()));
    assert_eq!(world.machine.on_volume(member(4).volume_id()).count(), 0, "no set has it");
    let mut records = Vec::new();
    world.machine.encode_records(9, 1, |record| records.push(record.to_vec()));
    let (loaded, ..) = Machine::from_records(records.iter().map(|record| Ok(&record[..]))).unwrap();
    assert_eq!(loaded.digest(), world.machine.digest());
    assert_eq!(loaded.extras(MetablockId::new(block)), members(&[3, 4]));
    assert_eq!(loaded.check(), Vec::<String>::new());
}

#[test]
fn extra_copies_that_do_not_fit_are_refused() {
    let mut world = World::new();
    let (_, block) = settled(&mut world, "f", &[1, 2]);
    assert_eq!(change(&mut world, block, &[], &[2]), Err(E::Invalid), "a member's node");
    assert_eq!(change(&mut world, block, &[], &[3, 3]), Err(E::Invalid), "twice on a node");
    assert_eq!(change(&mut world, block, &[5], &[3]), Err(E::SetChanged), "there were none");
    let many: Vec<u64> = (3..40).collect();
    assert_eq!(change(&mut world, block, &[], &many), Err(E::Invalid));
    let unwritten = world.create(ROOT, "g", &[1, 2]);
    let (inode, fresh) = (unwritten.attr.unwrap().inode, unwritten.metablocks[0].id);
    assert_eq!(change(&mut world, fresh, &[], &[3]), Err(E::LeaseHeld));
    let gone = pb::ChangeExtras { inode, epoch: 1, metablock: 99, generation: 1, ..Default::default() };
    assert!(world.apply(Change::ChangeExtras(gone)).reply.is_err());
    assert_eq!((extras(&world, block), extras(&world, fresh)), (vec![], vec![]));
}

/// The rule on which reads of extra copies rest (I-56).
#[test]
fn whoever_may_write_ends_them_first() {
    let mut world = World::new();
    let (inode, block) = settled(&mut world, "f", &[1, 2]);
    change(&mut world, block, &[], &[3]).unwrap();
    world.acquire(inode).unwrap();
    assert_eq!(world.effects, [effect(inode, block, &[3], &[])]);
    assert_eq!(extras(&world, block), []);
    assert_eq!(change(&mut world, block, &[], &[3]), Err(E::LeaseHeld));
    world.release(inode);
    change(&mut world, block, &[], &[4]).unwrap();
    let begin = pb::BeginRecovery { inode, expected_epoch: 2 };
    world.apply(Change::BeginRecovery(begin)).reply.unwrap();
    assert!(world.effects.contains(&effect(inode, block, &[4], &[])));
    assert_eq!(change(&mut world, block, &[], &[3]), Err(E::Busy));
}

#[test]
fn a_copy_that_a_writer_overtook_is_not_recorded() {
    let mut world = World::new();
    let (inode, block) = settled(&mut world, "f", &[1, 2]);
    let begun = world.attr(inode).epoch;
    world.acquire(inode).unwrap();
    world.release(inode);
    let op = pb::ChangeExtras {
        inode,
        epoch: begun,
        metablock: block,
        generation: 1,
        members: members(&[3]),
        ..Default::default()
    };
    assert_eq!(world.apply(Change::ChangeExtras(op)).reply.unwrap_err().kind(), E::StaleEpoch);
    assert_eq!(extras(&world, block), []);
}

#[test]
fn a_node_that_becomes_a_member_has_no_extra_copy_any_more() {
    let mut world = World::new();
    let (inode, block) = settled(&mut world, "f", &[1, 2]);
    change(&mut world, block, &[], &[3, 4]).unwrap();
    let epoch = world.attr(inode).epoch;
    let set = pb::MasterChangeSet { inode, epoch, metablock: block, generation: 1, members: members(&[1, 3]) };
    world.apply(Change::ChangeSet(set)).reply.unwrap();
    assert!(world.effects.contains(&effect(inode, block, &[3, 4], &[4])));
    assert_eq!(extras(&world, block), [4]);
}

#[test]
fn a_removed_file_has_its_extra_copies_deleted() {
    let mut world = World::new();
    let (inode, block) = settled(&mut world, "f", &[1, 2]);
    change(&mut world, block, &[], &[3]).unwrap();
    world.unlink(ROOT, "f").unwrap();
    assert_eq!(extras(&world, block), [3], "somebody may have it open");
    world.reap(&[inode]);
    for volume in [1, 2, 3] {
        let deleted: Vec<MetablockId> = world.machine.deleted_on(member(volume).volume_id()).collect();
        assert_eq!(deleted, [MetablockId::new(block)], "volume {volume}");
    }
}

#[test]
fn a_dataset_has_a_share_of_the_unused_space() {
    use pb::meta_op::{CreateDataset, Op, SetDataset};
    let mut world = World::new();
    let asked =
        |percent| pb::Dataset { path: format!("/d{percent}"), extra_share_percent: percent, ..Default::default() };
    let create = |percent| Op::CreateDataset(CreateDataset { dataset: Some(asked(percent)), ..Default::default() });
    assert_eq!(world.run(create(91)).unwrap_err(), E::Invalid);
    let made = world.run(create(40)).unwrap().dataset.unwrap();
    assert_eq!(made.extra_share_percent, 40);
    let set = |percent| {
        Op::SetDataset(SetDataset { dataset: made.id, extra_share_percent: Some(percent), ..Default::default() })
    };
    assert_eq!(world.run(set(100)).unwrap_err(), E::Invalid);
    assert_eq!(world.run(set(0)).unwrap().dataset.unwrap().extra_share_percent, 0);
}

/// A deletion that is queued hits a replica of any life, and may come after a repair has put a member there (I-26).
#[test]
fn no_deletion_is_queued_for_what_a_snapshot_still_has() {
    let mut world = World::new();
    let (inode, block) = settled(&mut world, "f", &[1, 2]);
    change(&mut world, block, &[], &[3]).unwrap();
    let take = pb::meta_op::TakeSnapshot { dataset: 0, name: b"s".to_vec() };
    world.run(pb::meta_op::Op::TakeSnapshot(take)).unwrap();
    world.unlink(ROOT, "f").unwrap();
    world.reap(&[inode]);
    assert!(world.effects.contains(&effect(inode, block, &[3], &[])), "{:?}", world.effects);
    assert_eq!(world.machine.deleted_on(member(3).volume_id()).count(), 0);
    assert_eq!(world.machine.check(), Vec::<String>::new());
}
