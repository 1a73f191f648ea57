//! Nodes that leave the cluster for good.

use ebb_types::{DatasetId, ErrorKind as E, MetablockId, NodeId, VolumeId};
use ebb_wire::pb;
use ebb_wire::pb::command::Command as Change;
use ebb_wire::pb::meta_op::{self, Op};

use super::harness::{ROOT, World, members, placement};
use crate::Machine;

/// Three nodes of one volume each, with the number of the node.
fn three_nodes() -> World {
    let mut world = World::new();
    for node in 1..=3 {
        register(&mut world, 0, node).unwrap();
    }
    world
}

fn register(world: &mut World, id: u64, node: u64) -> Result<(), E> {
    let volume = pb::Volume { id: if id == 0 { 0 } else { node }, path: format!("/{node}"), ..Default::default() };
    let command = pb::RegisterNodeCommand {
        node: id,
        host: format!("h{node}"),
        rack: "r".into(),
        address: format!("{node}:1"),
        volumes: vec![volume],
        ..Default::default()
    };
    change(world, Change::RegisterNode(command))
}

fn change(world: &mut World, change: Change) -> Result<(), E> {
    world.apply(change).reply.map(drop).map_err(|error| error.kind())
}

fn drain(world: &mut World, node: u64) {
    change(world, Change::SetNodeState(pb::SetNodeState { node, draining: true })).unwrap();
}

fn forget(world: &mut World, node: u64, chains: &[(u64, u64)]) -> Result<(), E> {
    let chains = chains.iter().map(|(dataset, by)| pb::ReplaceInChain { dataset: *dataset, gone: node, by: *by });
    change(world, Change::ForgetNode(pb::ForgetNode { node, chains: chains.collect() }))
}

#[test]
fn only_a_drained_node_without_copies_leaves() {
    let mut world = three_nodes();
    assert_eq!(forget(&mut world, 9, &[]), Err(E::NotFound));
    assert_eq!(forget(&mut world, 3, &[]), Err(E::Busy), "it takes data");
    let made = world.create(ROOT, "f", &[2, 3]);
    drain(&mut world, 3);
    assert_eq!(forget(&mut world, 3, &[]), Err(E::Busy), "it has a copy");
    let (inode, epoch) = (made.attr.unwrap().inode, made.attr.unwrap().epoch);
    let block = &made.metablocks[0];
    let moved = |generation, set: &[u64]| {
        let (metablock, members) = (block.id, members(set));
        Op::ChangeSet(meta_op::ChangeSet { inode, epoch, metablock, generation, members, version: None })
    };
    world.run(moved(block.generation, &[2, 1])).unwrap();
    assert_eq!(forget(&mut world, 3, &[]), Ok(()));
    assert_eq!(world.machine.counts().nodes, 2);
    assert_eq!(world.run(moved(block.generation + 1, &[2, 3])), Err(E::Unavailable), "it takes nothing any more");
    let create =
        meta_op::Create { parent: ROOT, name: b"g".to_vec(), mode: 0o644, exclusive: true, ..Default::default() };
    assert_eq!(world.place(Op::Create(create), vec![placement(&[3, 1])]), Err(E::Unavailable));
    assert_eq!(world.resolve("/g"), Err(E::NotFound));
}

#[test]
fn a_guest_keeps_its_home_in_the_cluster() {
    let mut world = three_nodes();
    let made = world.create(ROOT, "f", &[1, 2]);
    let (attr, block) = (made.attr.unwrap(), &made.metablocks[0]);
    let guest = pb::Member { home: 3, ..members(&[2])[0] };
    let op = meta_op::ChangeSet {
        inode: attr.inode,
        epoch: attr.epoch,
        metablock: block.id,
        generation: block.generation,
        members: vec![members(&[1])[0], guest],
        version: None,
    };
    world.run(Op::ChangeSet(op)).unwrap();
    drain(&mut world, 3);
    assert_eq!(forget(&mut world, 3, &[]), Err(E::Busy));
}

#[test]
fn a_removed_node_is_refused_and_its_id_is_not_given_again() {
    let mut world = three_nodes();
    drain(&mut world, 3);
    forget(&mut world, 3, &[]).unwrap();
    assert_eq!(register(&mut world, 3, 3), Err(E::Superseded));
    assert!(world.refusal.clone().unwrap().to_string().contains("n3 (h3) was removed from this cluster"));
    assert_eq!(forget(&mut world, 3, &[]), Err(E::NotFound));
    register(&mut world, 0, 4).unwrap();
    assert!(world.machine.node(NodeId::new(4)).is_some() && world.machine.node(NodeId::new(3)).is_none());
    // A checkpoint remembers it.
    let mut records = Vec::new();
    world.machine.encode_records(1, 1, |record| records.push(record.to_vec()));
    let loaded = Machine::from_records(records.iter().map(|record| Ok(&record[..]))).unwrap().0;
    assert_eq!(loaded.digest(), world.machine.digest());
    world.machine = loaded;
    assert_eq!(register(&mut world, 3, 3), Err(E::Superseded));
}

#[test]
fn deletions_that_wait_for_it_end() {
    let mut world = three_nodes();
    let inode = world.create(ROOT, "f", &[3, 1]).attr.unwrap().inode;
    world.unlink(ROOT, "f").unwrap();
    let session = world.session;
    world.close_session(session);
    let epoch = world.machine.attr(ebb_types::InodeId::new(inode)).unwrap().epoch;
    change(&mut world, Change::BeginRecovery(pb::BeginRecovery { inode, expected_epoch: epoch })).unwrap();
    change(&mut world, Change::Reap(pb::Reap { inodes: vec![inode] })).unwrap();
    let quarantine = pb::Quarantine { volume: 3, metablocks: vec![900], release: false };
    change(&mut world, Change::Quarantine(quarantine)).unwrap();
    let (volume, kept) = (VolumeId::new(3), VolumeId::new(1));
    assert_eq!(world.machine.deleted_on(volume).count(), 1);
    drain(&mut world, 3);
    forget(&mut world, 3, &[]).unwrap();
    assert_eq!((world.machine.deleted_on(volume).count(), world.machine.deleted_on(kept).count()), (0, 1));
    assert!(!world.machine.is_quarantined(volume, MetablockId::new(900)));
}

#[test]
fn it_leaves_every_chain() {
    let mut world = three_nodes();
    register(&mut world, 0, 4).unwrap();
    let mut made = |path: &str, chain: &[u64]| {
        let dataset =
            pb::Dataset { path: path.into(), chain: chain.to_vec(), active: 3, replicas: 2, ..Default::default() };
        let create = meta_op::CreateDataset { dataset: Some(dataset), ..Default::default() };
        world.run(Op::CreateDataset(create)).unwrap().dataset.unwrap().id
    };
    let (shorter, replaced, other) = (made("/a", &[1, 3, 2]), made("/b", &[3, 1, 2]), made("/c", &[1, 2, 4]));
    let least = made("/d", &[3, 2]);
    drain(&mut world, 3);
    let all = [(shorter, 0), (replaced, 4), (least, 4)];
    assert_eq!(forget(&mut world, 3, &all[..2]), Err(E::Stale), "one is not named");
    assert_eq!(forget(&mut world, 3, &[all[0], all[1], all[2], (other, 0)]), Err(E::Stale), "one is not its own");
    assert_eq!(forget(&mut world, 3, &[all[0], (replaced, 2), all[2]]), Err(E::Stale), "it is on the chain");
    assert_eq!(forget(&mut world, 3, &[all[0], (replaced, 9), all[2]]), Err(E::Stale), "no such node");
    assert_eq!(forget(&mut world, 3, &[all[0], all[1], (least, 0)]), Err(E::Invalid), "two copies need two nodes");
    assert_eq!(forget(&mut world, 3, &all), Ok(()));
    let now = |id| {
        let dataset = world.machine.dataset(DatasetId::new(id)).unwrap();
        (dataset.chain.clone(), dataset.active)
    };
    assert_eq!(now(shorter), (vec![1, 2], 2), "no more nodes can be active than there are");
    assert_eq!((now(replaced).0, now(other).0, now(least).0), (vec![4, 1, 2], vec![1, 2, 4], vec![4, 2]));
}

#[test]
fn the_only_node_stays() {
    let mut world = World::new();
    register(&mut world, 0, 1).unwrap();
    drain(&mut world, 1);
    assert_eq!(forget(&mut world, 1, &[]), Err(E::Invalid));
}
