//! The same commands give the same states and replies, with a restart from a checkpoint or without.

use ebb_types::{ErrorKind, InodeId};
use ebb_wire::pb;
use ebb_wire::pb::checkpoint_record::Record;
use proptest::prelude::*;

use super::garbage::{command, started, throws};
use super::harness::{ROOT, World, range};
use crate::{CHECKPOINT_FORMAT, Machine};

fn through_checkpoint(machine: &Machine) -> Machine {
    let (copy, index, term) = Machine::from_records(machine.records(9, 4).map(Ok)).unwrap();
    assert_eq!((index, term), (9, 4));
    copy
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn a_restart_in_the_middle_makes_no_difference(
        all in proptest::collection::vec(throws(), 2..150),
        cut in any::<prop::sample::Index>(),
    ) {
        let cut = cut.index(all.len());
        let (mut one, mut other) = (started(), started());
        let mut kept = None;
        for (now, throws) in all.into_iter().enumerate() {
            if now == cut {
                prop_assert_eq!(one.digest(), other.digest());
                kept = Some((one.clone(), one.digest()));
                other = through_checkpoint(&one);
                prop_assert_eq!(other.check(), Vec::<String>::new());
                prop_assert_eq!(one.digest(), other.digest());
                prop_assert_eq!(one.counts(), other.counts());
            }
            let command = command(&one, now as i64, throws);
            let (a, b) = (one.apply(&command), other.apply(&command));
            prop_assert_eq!(&a.effects, &b.effects);
            prop_assert_eq!(&a.reply, &b.reply);
        }
        prop_assert_eq!(one.digest(), other.digest());
        // What was cloned for a checkpoint has not moved.
        let (clone, digest) = kept.expect("the cut is within the run");
        prop_assert_eq!(clone.digest(), digest);
        prop_assert_eq!(clone.check(), Vec::<String>::new());
    }

    #[test]
    fn damaged_checkpoints_are_refused(
        all in proptest::collection::vec(throws(), 1..60),
        at in any::<prop::sample::Index>(),
        how in 0..4u8,
    ) {
        let mut machine = started();
        for (now, throws) in all.into_iter().enumerate() {
            let command = command(&machine, now as i64, throws);
            machine.apply(&command);
        }
        let mut records: Vec<pb::CheckpointRecord> = machine.records(1, 1).collect();
        let at = at.index(records.len());
        match how {
            0 => records.truncate(at),
            1 => drop(records.remove(at)),
            2 => records.insert(at, records[at].clone()),
            _ => records[at].record = None,
        }
        // A trailer that comes twice is never reached.
        let harmless = how == 2 && at + 2 == records.len();
        prop_assert_eq!(Machine::from_records(records.into_iter().map(Ok)).is_ok(), harmless);
    }
}

#[test]
fn a_rich_state_survives_the_checkpoint() {
    let mut world = World::new();
    let d = world.mkdir(ROOT, "d", 0o1777).unwrap();
    let made = world.create(d, "f", &[1, 2]);
    let (inode, block) = (made.attr.unwrap().inode, made.metablocks[0].id);
    let commit = pb::CommitFile {
        inode,
        epoch: 1,
        size: 500,
        metablocks: vec![super::harness::committed(block, 1, 1, 500)],
        ..Default::default()
    };
    world.commit(commit).unwrap();
    let trim = pb::meta_op::Trim { metablock: block, version: super::harness::version(1, 2), length: 100 };
    let cut = pb::meta_op::SetAttr { inode, size: Some(100), epoch: 1, trim: Some(trim), ..Default::default() };
    world.set_attr(cut).unwrap();
    world.set_xattr(inode, "user.a", b"1").unwrap();
    world.lock(inode, range(2, 1, 0, 9), false).unwrap();
    world.lock(inode, range(2, 2, 0, 9), true).unwrap();
    world.symlink(d, "l", "/x").unwrap();
    world.create(d, "g", &[3]);
    world.unlink(d, "g").unwrap();
    let copy = through_checkpoint(&world.machine);
    assert_eq!(copy.check(), Vec::<String>::new());
    assert_eq!(copy.digest(), world.machine.digest());
    assert_eq!(copy.pending_trim(InodeId::new(inode)), Some(trim));
    assert_eq!(copy.orphans().count(), 1);
    assert_eq!(copy.next_metablock(), world.machine.next_metablock());
    // A replay of the log from the start leads to the same state.
    let mut replay = Machine::new();
    for command in &world.log {
        replay.apply(command);
    }
    assert_eq!(replay.digest(), world.machine.digest());
}

#[test]
fn checkpoints_say_what_is_wrong_with_them() {
    let load = |records: Vec<pb::CheckpointRecord>| {
        Machine::from_records(records.into_iter().map(Ok)).map(|_| ()).map_err(|error| error.kind())
    };
    let good: Vec<pb::CheckpointRecord> = Machine::new().records(1, 1).collect();
    assert_eq!(load(good.clone()), Ok(()));
    assert_eq!(load(Vec::new()), Err(ErrorKind::Corrupt));
    assert_eq!(load(good[1..].to_vec()), Err(ErrorKind::Corrupt));
    let mut newer = good.clone();
    let Some(Record::Header(header)) = &mut newer[0].record else { panic!("the header comes first") };
    header.format = CHECKPOINT_FORMAT + 1;
    assert_eq!(load(newer), Err(ErrorKind::Unsupported));
    let broken = good.into_iter().take(1).map(Ok).chain([Err(ebb_types::err!(Io, "the disk is gone"))]);
    assert_eq!(Machine::from_records(broken).map(|_| ()).unwrap_err().kind(), ErrorKind::Io);
}
