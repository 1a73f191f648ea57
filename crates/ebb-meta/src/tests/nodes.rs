//! Registration of nodes and volumes, and naming the cluster.

use ebb_types::{ClusterId, ErrorKind as E};
use ebb_wire::pb;
use ebb_wire::pb::command::Command as Change;
use ebb_wire::pb::meta_op::{self, Op};

use super::harness::{ROOT, World};
use crate::{Machine, Reply};

fn volume(id: u64, path: &str) -> pb::Volume {
    pb::Volume { id, path: path.into(), capacity_bytes: 100, free_bytes: 60, used_bytes: 40, ..Default::default() }
}

fn register(world: &mut World, node: u64, address: &str, volumes: Vec<pb::Volume>) -> Result<pb::RegisterNodeReply, E> {
    let (host, rack) = (format!("h{node}"), "r1".to_owned());
    let command = pb::RegisterNodeCommand { node, host, rack, address: address.into(), volumes, ..Default::default() };
    match world.apply(Change::RegisterNode(command)).reply {
        Ok(Reply::Node(reply)) => Ok(reply),
        Ok(other) => panic!("not a node: {other:?}"),
        Err(error) => Err(error.kind()),
    }
}

fn ids(reply: &pb::RegisterNodeReply) -> Vec<u64> {
    reply.volumes.iter().map(|volume| volume.id).collect()
}

#[test]
fn new_nodes_and_volumes_get_ids_that_stay_theirs() {
    let mut world = World::new();
    let first = register(&mut world, 0, "a:1", vec![volume(0, "/a"), volume(0, "/b")]).unwrap();
    assert_eq!((first.node, ids(&first)), (1, vec![1, 2]));
    assert!(first.heartbeat_ms > 0 && first.volumes.iter().all(|volume| volume.incarnation == 1));
    let second = register(&mut world, 0, "b:1", vec![volume(0, "/c")]).unwrap();
    assert_eq!((second.node, ids(&second)), (2, vec![3]));
    // Back at another address, with one more disk, in another order, and one formatted anew.
    let formatted = pb::Volume { incarnation: 5, ..volume(1, "/a") };
    let again = register(&mut world, 1, "a:2", vec![volume(2, "/b"), volume(0, "/d"), formatted]).unwrap();
    assert_eq!((again.node, ids(&again)), (1, vec![2, 4, 1]));
    let node = world.machine.nodes().next().unwrap().node.clone().unwrap();
    assert_eq!((node.address.as_str(), node.volumes.len(), node.volumes[2].incarnation), ("a:2", 3, 5));
    assert_eq!(world.machine.counts().nodes, 2);
}

#[test]
fn a_volume_of_another_node_is_refused() {
    let mut world = World::new();
    register(&mut world, 0, "a:1", vec![volume(0, "/a")]).unwrap();
    register(&mut world, 0, "b:1", vec![volume(0, "/b")]).unwrap();
    assert_eq!(register(&mut world, 9, "c:1", vec![]), Err(E::NotFound));
    assert_eq!(register(&mut world, 2, "b:1", vec![volume(1, "/a")]), Err(E::Invalid));
    assert_eq!(register(&mut world, 0, "c:1", vec![volume(1, "/a")]), Err(E::Invalid));
    assert_eq!(register(&mut world, 2, "b:1", vec![volume(77, "/b")]), Err(E::Invalid));
    assert_eq!(register(&mut world, 2, "b:1", vec![volume(2, "/b"), volume(2, "/copy")]), Err(E::Invalid));
    assert_eq!(world.machine.counts().nodes, 2);
    // A disk that did not come up is left out, and may come back.
    register(&mut world, 2, "b:1", vec![]).unwrap();
    assert_eq!(ids(&register(&mut world, 2, "b:1", vec![volume(2, "/b")]).unwrap()), [2]);
}

#[test]
fn draining_outlives_a_restart() {
    let mut world = World::new();
    register(&mut world, 0, "a:1", vec![]).unwrap();
    let drain = |node, draining| Change::SetNodeState(pb::SetNodeState { node, draining });
    world.apply(drain(1, true)).reply.unwrap();
    register(&mut world, 1, "a:2", vec![]).unwrap();
    assert!(world.machine.nodes().next().unwrap().draining);
    world.apply(drain(1, false)).reply.unwrap();
    assert!(!world.machine.nodes().next().unwrap().draining);
    assert_eq!(world.apply(drain(9, true)).reply.unwrap_err().kind(), E::NotFound);
}

#[test]
fn space_is_summed_over_volumes() {
    let mut world = World::new();
    register(&mut world, 0, "a:1", vec![volume(0, "/a"), volume(0, "/b")]).unwrap();
    let stat = world.ask(Op::StatFs(meta_op::StatFs { inode: ROOT })).unwrap().stat_fs.unwrap();
    assert_eq!((stat.capacity_bytes, stat.free_bytes, stat.used_bytes), (200, 120, 80));
    assert_eq!((stat.inodes, stat.replicas), (1, 2));
}

#[test]
fn a_cluster_is_named_once() {
    let mut world = World::new();
    let init = |cluster, default_replicas| {
        Change::InitCluster(pb::InitCluster {
            cluster,
            default_replicas,
            extra_share_percent: 0,
            version: crate::version::NEWEST,
        })
    };
    assert_eq!(world.machine.cluster(), Some(ClusterId::new(7)));
    world.apply(init(7, 3)).reply.unwrap();
    assert_eq!(world.attr(ROOT).replicas, 2, "naming it again changes nothing");
    assert_eq!(world.apply(init(8, 3)).reply.unwrap_err().kind(), E::Invalid);
    let mut fresh = crate::Machine::new();
    let mut try_init = |cluster, replicas| {
        let command = pb::Command { now_ns: 5, command: Some(init(cluster, replicas)), ..Default::default() };
        fresh.apply(&command).reply.map_err(|error| error.kind())
    };
    assert_eq!(try_init(0, 3), Err(E::Invalid));
    assert_eq!(try_init(1, 17), Err(E::Invalid));
    assert_eq!(try_init(1, 0), Ok(Reply::None));
    assert_eq!(fresh.attr(ebb_types::InodeId::ROOT).unwrap().replicas, 3);
    assert_eq!(fresh.attr(ebb_types::InodeId::ROOT).unwrap().mtime_ns, 5);
}

#[test]
fn a_registration_whose_answer_was_lost_makes_no_second_node() {
    let mut machine = Machine::new();
    let volume = |path: &str, incarnation| pb::Volume { path: path.into(), incarnation, ..Default::default() };
    let mut register = |host: &str, volumes: Vec<pb::Volume>| {
        let node = pb::RegisterNodeCommand { host: host.into(), volumes, ..Default::default() };
        let command =
            pb::Command { now_ns: 1, command: Some(pb::command::Command::RegisterNode(node)), ..Default::default() };
        match machine.apply(&command).reply.unwrap() {
            Reply::Node(reply) => (reply.node, reply.volumes.iter().map(|volume| volume.id).collect::<Vec<_>>()),
            other => panic!("{other:?}"),
        }
    };
    let first = register("h1", vec![volume("/a", 77), volume("/b", 78)]);
    assert_eq!(register("h1", vec![volume("/a", 77), volume("/b", 78)]), first);
    assert_ne!(register("h2", vec![volume("/a", 77), volume("/b", 78)]).0, first.0, "another host");
    assert_ne!(register("h1", vec![volume("/a", 79), volume("/b", 80)]).0, first.0, "volumes that were made anew");
}

#[test]
fn replicas_of_another_history_keep_their_ids_through_a_checkpoint() {
    let mut machine = Machine::new();
    let (volume, near, far) = (ebb_types::VolumeId::new(3), 1000, u64::MAX);
    let quarantine = |machine: &mut Machine, metablocks: Vec<u64>, release| {
        let op = pb::Quarantine { volume: volume.raw(), metablocks, release };
        machine
            .apply(&pb::Command {
                now_ns: 1,
                command: Some(pb::command::Command::Quarantine(op)),
                ..Default::default()
            })
            .reply
            .unwrap();
    };
    quarantine(&mut machine, vec![near, far], false);
    assert_eq!(machine.next_metablock().raw(), near + 1, "never given out, and one far up does not use the counter up");
    let mut encoded = Vec::new();
    machine.encode_records(1, 1, |record| encoded.push(record.to_vec()));
    let (mut copy, ..) = Machine::from_records(encoded.iter().map(|record| Ok(record.as_slice()))).unwrap();
    assert_eq!(copy.digest(), machine.digest());
    assert!(copy.is_quarantined(volume, ebb_types::MetablockId::new(near)));
    quarantine(&mut copy, vec![near], true);
    assert_eq!(copy.quarantined().collect::<Vec<_>>(), [(volume, ebb_types::MetablockId::new(far))]);
}
