//! Which history a state belongs to, and numbers that are not given twice.

use ebb_types::{ErrorKind as E, MetablockId, VolumeId};
use ebb_wire::pb;
use ebb_wire::pb::command::Command as Change;
use ebb_wire::pb::meta_op::{self, Op};

use super::harness::{ROOT, World};
use crate::machine::Machine;
use crate::{EPOCH_STEP_MAX, PositionVerdict, Reply, SESSION_DRAWN_MIN};

fn begin_run(world: &mut World, mark: u64, after: u64) {
    world.apply(Change::BeginRun(pb::BeginRun { lineage: 77, mark, after })).reply.unwrap();
}

fn position(lineage: u64, run: u64, mark: u64, index: u64) -> pb::Position {
    pb::Position { lineage, run, mark, index }
}

#[test]
fn a_history_knows_where_it_has_been_and_nothing_else() {
    let mut world = World::new();
    assert_eq!(
        world.machine.judge_position(5, &position(77, 1, 1, 1)),
        PositionVerdict::Stranger,
        "it has no lineage yet"
    );
    assert_eq!(world.machine.judge_position(5, &pb::Position::default()), PositionVerdict::Known, "nothing was said");
    begin_run(&mut world, 10, 2);
    begin_run(&mut world, 20, 50);
    assert_eq!(world.machine.position(80), position(77, 2, 20, 80));
    for (position, expected) in [
        (position(77, 1, 10, 50), PositionVerdict::Known),
        (position(77, 1, 10, 51), PositionVerdict::Ahead),
        (position(77, 2, 20, 80), PositionVerdict::Known),
        (position(77, 2, 20, 81), PositionVerdict::Ahead),
        (position(77, 2, 21, 60), PositionVerdict::Parted),
        (position(77, 1, 11, 3), PositionVerdict::Parted),
        (position(77, 3, 30, 60), PositionVerdict::Ahead),
        (position(78, 1, 10, 3), PositionVerdict::Stranger),
    ] {
        assert_eq!(world.machine.judge_position(80, &position), expected, "{position:?}");
    }
    // Runs of long ago are forgotten, and believed.
    for run in 3..=1002 {
        begin_run(&mut world, run * 10, 100 + run);
    }
    assert_eq!(world.machine.judge_position(9999, &position(77, 2, 21, 60)), PositionVerdict::Known);
    assert_eq!(world.machine.judge_position(9999, &position(77, 3, 31, 60)), PositionVerdict::Parted);
}

/// The same log goes on in two ways, as from a copy; in one of them the loss of the other is accepted.
#[test]
fn a_loss_that_is_accepted_gives_no_number_twice() {
    let mut world = World::new();
    begin_run(&mut world, 10, 2);
    let create =
        |name: &str| Op::Create(meta_op::Create { parent: ROOT, name: name.into(), mode: 0o644, ..Default::default() });
    let kept = world.run(create("kept")).unwrap().attr.unwrap();
    let mut lost = world.machine.clone();
    let raised = 1_000_000;
    let raise = pb::RaiseFloors { lineage: 88, superseded: vec![99], epoch: raised };
    world.apply(Change::RaiseFloors(raise.clone())).reply.unwrap();
    assert_eq!(world.machine.position(3).lineage, 88);
    assert!(world.machine.deletions_held() && world.machine.has_accepted_loss());
    for lineage in [77, 99] {
        assert_eq!(world.machine.judge_position(3, &position(lineage, 500, 1, 9000)), PositionVerdict::Superseded);
    }
    assert_eq!(world.machine.judge_position(3, &position(66, 1, 1, 1)), PositionVerdict::Stranger);
    let again = world.apply(Change::RaiseFloors(raise)).reply;
    assert_eq!(again.unwrap_err().kind(), E::Invalid, "a lineage is drawn once");

    let lost_metablock = lost.next_metablock();
    assert!(world.machine.next_metablock() > lost_metablock && world.machine.is_foreign(lost_metablock));
    let made = world.run(create("made")).unwrap().attr.unwrap();
    assert!(made.inode > kept.inode + 1 && made.epoch > raised, "{made:?}");
    let node = pb::RegisterNodeCommand { host: "h".into(), volumes: vec![pb::Volume::default()], ..Default::default() };
    let register = |machine: &mut Machine, node| {
        let command = pb::Command { now_ns: 1, command: Some(Change::RegisterNode(node)), ..Default::default() };
        match machine.apply(&command).reply.unwrap() {
            Reply::Node(reply) => (reply.node, reply.volumes[0].id),
            other => panic!("not a node: {other:?}"),
        }
    };
    let (lost_node, lost_volume) = register(&mut lost, node.clone());
    let (new_node, new_volume) = register(&mut world.machine, node.clone());
    assert!(new_node > lost_node && new_volume > lost_volume);
    // The lost one comes back, and keeps its replicas.
    let volumes = vec![pb::Volume { id: lost_volume, ..Default::default() }];
    let back = pb::RegisterNodeCommand { node: lost_node, volumes, adopt: true, ..node };
    assert_eq!(register(&mut world.machine, back), (lost_node, lost_volume));

    let mut encoded = Vec::new();
    world.machine.encode_records(1, 1, |record| encoded.push(record.to_vec()));
    let (copy, ..) = Machine::from_records(encoded.iter().map(|record| Ok(record.as_slice()))).unwrap();
    assert_eq!(copy.digest(), world.machine.digest());
    assert!(copy.is_foreign(lost_metablock) && copy.deletions_held());
    world.apply(Change::ReleaseDeletions(pb::Empty {})).reply.unwrap();
    assert!(!world.machine.deletions_held() && world.machine.has_accepted_loss());
}

#[test]
fn epochs_rise_by_the_step_that_was_drawn() {
    let mut world = World::new();
    let create = Op::Create(meta_op::Create { parent: ROOT, name: "f".into(), mode: 0o644, ..Default::default() });
    let request = Some(world.request(create));
    let client = pb::ClientCommand { request, placements: Vec::new() };
    let command = pb::Command { now_ns: 1, command: Some(Change::Client(client)), step: 1000 };
    let Ok(Reply::Meta(reply)) = world.machine.apply(&command).reply else { panic!("not made") };
    let attr = reply.attr.unwrap();
    assert_eq!(attr.epoch, 1000);
    let begin = pb::BeginRecovery { inode: attr.inode, expected_epoch: attr.epoch };
    let command = pb::Command { now_ns: 2, command: Some(Change::BeginRecovery(begin)), step: u64::MAX };
    let Ok(Reply::Epoch(epoch)) = world.machine.apply(&command).reply else { panic!("not begun") };
    assert_eq!(epoch.raw(), 1000 + EPOCH_STEP_MAX, "not more than the largest step");
}

#[test]
fn session_ids_are_the_drawn_ones_and_none_is_open_twice() {
    let mut world = World::new();
    begin_run(&mut world, 10, 2);
    let mut open = |session| {
        let open = pb::OpenSessionCommand { host: "h".into(), role: "r".into(), session };
        world.apply(Change::OpenSession(open)).reply.map_err(|error| error.kind())
    };
    let drawn = SESSION_DRAWN_MIN + 5;
    assert_eq!(open(drawn), Ok(Reply::Session(ebb_types::SessionId::new(drawn))));
    assert_eq!(open(drawn), Err(E::Busy));
    assert_eq!(open(9), Err(E::Invalid), "the counter's");
    assert_eq!(open(u64::MAX), Err(E::Invalid));
    let mut encoded = Vec::new();
    world.machine.encode_records(1, 1, |record| encoded.push(record.to_vec()));
    Machine::from_records(encoded.iter().map(|record| Ok(record.as_slice()))).unwrap();
}

#[test]
fn ids_that_the_counter_passed_over_are_foreign_on_every_volume() {
    let mut world = World::new();
    let quarantine = pb::Quarantine { volume: 1, metablocks: vec![1000], release: false };
    world.apply(Change::Quarantine(quarantine)).reply.unwrap();
    assert_eq!(world.machine.next_metablock(), MetablockId::new(1001));
    // Another volume reports the same and a lower one: neither was ever given out.
    for id in [500, 1000, 1001] {
        assert!(world.machine.is_foreign(MetablockId::new(id)), "m{id}");
    }
    assert!(!world.machine.is_quarantined(VolumeId::new(2), MetablockId::new(1000)));
}
