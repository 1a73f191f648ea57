//! The same commands give the same states and replies, with a restart from a checkpoint or without.

use ebb_types::{ErrorKind, InodeId};
use ebb_wire::pb::checkpoint_record::Record;
use ebb_wire::{Message, pb};
use proptest::prelude::*;

use super::garbage::{command, started, throws};
use super::harness::{ROOT, World, range};
use crate::{CHECKPOINT_FORMAT, Machine};

fn encoded(machine: &Machine, index: u64, term: u64) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    machine.encode_records(index, term, |record| records.push(record.to_vec()));
    records
}

fn records(machine: &Machine) -> Vec<pb::CheckpointRecord> {
    encoded(machine, 1, 1).iter().map(|record| pb::CheckpointRecord::decode(record.as_slice()).unwrap()).collect()
}

fn load(records: &[pb::CheckpointRecord]) -> Result<(), ErrorKind> {
    let encoded: Vec<Vec<u8>> = records.iter().map(pb::CheckpointRecord::encode_to_vec).collect();
    Machine::from_records(encoded.iter().map(|record| Ok(record.as_slice()))).map(|_| ()).map_err(|error| error.kind())
}

pub(crate) fn through_checkpoint(machine: &Machine) -> Machine {
    let encoded = encoded(machine, 9, 4);
    let (copy, index, term) = Machine::from_records(encoded.iter().map(|record| Ok(record.as_slice()))).unwrap();
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
        let mut records = records(&machine);
        let at = at.index(records.len());
        match how {
            0 => records.truncate(at),
            1 => drop(records.remove(at)),
            2 => records.insert(at, records[at].clone()),
            _ => records[at].record = None,
        }
        // A trailer that comes twice is never reached.
        let harmless = how == 2 && at + 2 == records.len();
        prop_assert_eq!(load(&records).is_ok(), harmless);
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
    let good = records(&Machine::new());
    assert_eq!(load(&good), Ok(()));
    assert_eq!(load(&[]), Err(ErrorKind::Corrupt));
    assert_eq!(load(&good[1..]), Err(ErrorKind::Corrupt));
    let mut newer = good.clone();
    let Some(Record::Header(header)) = &mut newer[0].record else { panic!("the header comes first") };
    header.format = CHECKPOINT_FORMAT + 1;
    assert_eq!(load(&newer), Err(ErrorKind::Unsupported));
    let first = encoded(&Machine::new(), 1, 1).remove(0);
    let broken = [Ok(first.as_slice()), Err(ebb_types::err!(Io, "the disk is gone"))];
    assert_eq!(Machine::from_records(broken.into_iter()).map(|_| ()).unwrap_err().kind(), ErrorKind::Io);
}

/// A stream whose checksum is right and whose contents no master wrote.
fn load_closed(mut records: Vec<pb::CheckpointRecord>) -> Result<(), ErrorKind> {
    records.pop();
    let chained = |sum: u32, record: &pb::CheckpointRecord| {
        ebb_wire::frame::crc32c(&[&sum.to_le_bytes()[..], &record.encode_to_vec()].concat())
    };
    let checksum = records.iter().fold(0, chained);
    let trailer = Record::Trailer(pb::CheckpointTrailer { records: records.len() as u64, checksum });
    records.push(pb::CheckpointRecord { record: Some(trailer) });
    load(&records)
}

/// Such a state would be gone on from until something divides by a size of 0, gives an id twice or counts below 0.
#[test]
fn states_that_cannot_be_gone_on_from_are_refused() {
    let mut world = World::new();
    let directory = world.mkdir(ROOT, "d", 0o755).unwrap();
    world.mkdir(directory, "e", 0o755).unwrap();
    let file = world.create(directory, "f", &[1, 2]).attr.unwrap().inode;
    let good = records(&world.machine);
    load_closed(good.clone()).unwrap();
    let refused = |case: &str, change: &dyn Fn(&mut Record)| {
        let mut records = good.clone();
        records.iter_mut().filter_map(|record| record.record.as_mut()).for_each(change);
        assert_ne!(records, good, "{case} changes something");
        assert_eq!(load_closed(records).unwrap_err(), ErrorKind::Corrupt, "{case}");
    };
    refused("a metablock size of 0", &|record| {
        if let Record::Dataset(dataset) = record {
            dataset.metablock_size = 0;
        }
    });
    let header = |change: fn(&mut pb::CheckpointHeader)| {
        move |record: &mut Record| {
            if let Record::Header(header) = record {
                change(header);
            }
        }
    };
    refused("inodes above their counter", &header(|header| header.next_inode = 2));
    refused("metablocks above their counter", &header(|header| header.next_metablock = 1));
    refused("sessions above their counter", &header(|header| header.next_session = 1));
    refused("a counter at its end", &header(|header| header.next_node = u64::MAX));
    let inode = |id: u64, change: fn(&mut pb::InodeRecord)| {
        move |record: &mut Record| {
            if let Record::Inode(inode) = record
                && inode.attr.is_some_and(|attr| attr.inode == id)
            {
                change(inode);
            }
        }
    };
    refused("an epoch at its end", &inode(file, |inode| inode.attr.as_mut().unwrap().epoch = u64::MAX));
    refused("a generation at its end", &inode(file, |inode| inode.metablocks[0].generation = u64::MAX));
    refused("a set of nobody", &inode(file, |inode| inode.metablocks[0].members[0].volume = u64::MAX));
    refused("links that are no names", &inode(file, |inode| inode.attr.as_mut().unwrap().nlink = u32::MAX));
    refused("a directory with too few links", &inode(directory, |inode| inode.attr.as_mut().unwrap().nlink = 2));
    refused("a cookie at its end", &inode(directory, |inode| inode.next_cookie = u64::MAX));
}
