//! Datasets.

use ebb_types::{ErrorKind as E, InodeId};
use ebb_wire::pb;
use ebb_wire::pb::command::Command;
use ebb_wire::pb::meta_op::{self, Op};

use super::harness::{MIB, ROOT, World, user};

pub(super) fn dataset(path: &str) -> pb::Dataset {
    pb::Dataset { path: path.into(), ..Default::default() }
}

fn make(world: &mut World, dataset: pb::Dataset) -> Result<pb::Dataset, E> {
    world
        .run(Op::CreateDataset(meta_op::CreateDataset { dataset: Some(dataset), ..Default::default() }))
        .map(|reply| reply.dataset.unwrap())
}

fn paths(world: &World) -> Vec<String> {
    let reply = world.ask(Op::ListDatasets(meta_op::ListDatasets::default())).unwrap();
    reply.datasets.into_iter().map(|dataset| dataset.path).collect()
}

#[test]
fn files_made_below_belong_to_the_dataset() {
    let mut world = World::new();
    let asked = pb::Dataset {
        replicas: 1,
        block_size: 64 << 10,
        metablock_size: MIB,
        layout: "striped".into(),
        replication: "single-source".into(),
        ..dataset("/data/")
    };
    let made = make(&mut world, asked).unwrap();
    assert_eq!((made.id, made.path.as_str(), made.layout.as_str(), made.replicas), (1, "/data", "striped", 1));
    let sub = world.mkdir(made.root_inode, "sub", 0o755).unwrap();
    let f = world.mkfile(sub, "f", 0o644).unwrap();
    let attr = world.attr(f);
    assert_eq!((attr.dataset, attr.metablock_size, attr.replicas, attr.single_source), (1, MIB, 1, true));
    assert_eq!(world.machine.dataset_of(InodeId::new(f)).unwrap(), made);
    let outside = world.mkfile(ROOT, "g", 0o644).unwrap();
    assert_eq!((world.attr(outside).dataset, world.attr(outside).single_source), (0, false));
    assert_eq!(paths(&world), ["/", "/data"]);
}

#[test]
fn nothing_moves_between_datasets() {
    let mut world = World::new();
    let root = make(&mut world, dataset("/data")).unwrap().root_inode;
    let outside = world.mkfile(ROOT, "f", 0o644).unwrap();
    world.mkdir(ROOT, "d", 0o755).unwrap();
    let inside = world.mkfile(root, "g", 0o644).unwrap();
    assert_eq!(world.rename((ROOT, "f"), (root, "f")).unwrap_err(), E::CrossDevice);
    assert_eq!(world.rename((root, "g"), (ROOT, "f")).unwrap_err(), E::CrossDevice);
    assert_eq!(world.rename((ROOT, "d"), (root, "d")).unwrap_err(), E::CrossDevice);
    assert_eq!(world.exchange((ROOT, "f"), (root, "g")).unwrap_err(), E::CrossDevice);
    assert_eq!(world.link(outside, root, "f").unwrap_err(), E::CrossDevice);
    assert_eq!(world.link(inside, ROOT, "g").unwrap_err(), E::CrossDevice);
    world.rename((root, "g"), (root, "h")).unwrap();
}

#[test]
fn its_root_moves_within_the_dataset_around_it() {
    let mut world = World::new();
    let a = world.mkdir(ROOT, "a", 0o755).unwrap();
    let root = make(&mut world, dataset("/a/data")).unwrap().root_inode;
    let inner = make(&mut world, dataset("/a/data/inner")).unwrap().root_inode;
    assert_eq!(paths(&world), ["/", "/a/data", "/a/data/inner"]);
    world.rename((a, "data"), (ROOT, "b")).unwrap();
    assert_eq!(paths(&world), ["/", "/b", "/b/inner"]);
    let c = world.mkdir(ROOT, "c", 0o755).unwrap();
    world.exchange((ROOT, "b"), (ROOT, "c")).unwrap();
    assert_eq!(paths(&world), ["/", "/c", "/c/inner"]);
    assert_eq!(world.rename((root, "inner"), (c, "inner")).unwrap_err(), E::CrossDevice);
    world.rename((root, "inner"), (root, "moved")).unwrap();
    assert_eq!(paths(&world), ["/", "/c", "/c/moved"]);
    assert_eq!(world.attr(inner).dataset, 2);
}

#[test]
fn an_empty_directory_of_ones_own_can_become_one() {
    let mut world = World::new();
    let d = world.mkdir(ROOT, "d", 0o755).unwrap();
    let f = world.mkfile(d, "f", 0o644).unwrap();
    assert_eq!(make(&mut world, dataset("/d")), Err(E::NotEmpty));
    assert_eq!(make(&mut world, dataset("/d/f")), Err(E::NotDirectory));
    world.unlink(d, "f").unwrap();
    world.reap(&[f]);
    world.as_user(user(1000, 100, &[]));
    assert_eq!(make(&mut world, dataset("/d")), Err(E::NotPermitted));
    assert_eq!(make(&mut world, dataset("/d/e")), Err(E::AccessDenied));
    world.as_root();
    assert_eq!(make(&mut world, dataset("/d")).unwrap().root_inode, d);
    assert_eq!(make(&mut world, dataset("/d")), Err(E::Exists));
}

#[test]
fn settings_are_checked() {
    let mut world = World::new();
    for path in ["", "d", "/d/..", "/."] {
        assert_eq!(make(&mut world, dataset(path)), Err(E::Invalid), "{path}");
    }
    assert_eq!(make(&mut world, dataset("/")), Err(E::Exists));
    assert_eq!(make(&mut world, dataset("/none/d")), Err(E::NotFound));
    for bad in [
        pb::Dataset { replicas: 17, ..dataset("/d") },
        pb::Dataset { block_size: 1000, ..dataset("/d") },
        pb::Dataset { metablock_size: MIB + 1, ..dataset("/d") },
        pb::Dataset { replication: "carrier pigeon".into(), ..dataset("/d") },
        pb::Dataset { layout: "../x".into(), ..dataset("/d") },
    ] {
        assert_eq!(make(&mut world, bad), Err(E::Invalid));
    }
    assert_eq!(world.lookup(ROOT, "d"), Err(E::NotFound));
    assert_eq!(make(&mut world, dataset("/d")).unwrap().replicas, 2);
}

#[test]
fn it_goes_with_its_last_inode() {
    let mut world = World::new();
    let root = make(&mut world, dataset("/data")).unwrap().root_inode;
    let f = world.mkfile(root, "f", 0o644).unwrap();
    world.unlink(root, "f").unwrap();
    world.rmdir(ROOT, "data").unwrap();
    assert_eq!(paths(&world), ["/"]);
    world.reap(&[root]);
    assert_eq!(world.machine.datasets().count(), 2, "an open file is still in it");
    world.reap(&[f]);
    assert_eq!(world.machine.datasets().count(), 1);
    assert_eq!(make(&mut world, dataset("/data")).unwrap().id, 2);
}

#[test]
fn a_quota_of_inodes_stops_the_next_one_and_may_be_raised() {
    let mut world = World::new();
    let made = make(&mut world, pb::Dataset { quota_inodes: 3, ..dataset("/d") }).unwrap();
    let a = world.mkfile(made.root_inode, "a", 0o644).unwrap();
    world.mkdir(made.root_inode, "b", 0o755).unwrap();
    assert_eq!(world.mkfile(made.root_inode, "c", 0o644).unwrap_err(), E::QuotaExceeded);
    assert_eq!(world.mkdir(made.root_inode, "c", 0o755).unwrap_err(), E::QuotaExceeded);
    world.mkfile(ROOT, "elsewhere", 0o644).unwrap();
    // A second name is no inode; a removed one is none once it is freed.
    let link = meta_op::Link { inode: a, parent: made.root_inode, name: b"a2".to_vec() };
    world.run(Op::Link(link)).unwrap();
    let set =
        |quota_inodes| meta_op::SetDataset { dataset: made.id, quota_inodes: Some(quota_inodes), ..Default::default() };
    world.run(Op::SetDataset(set(4))).unwrap();
    world.mkfile(made.root_inode, "c", 0o644).unwrap();
    world.user = user(1000, 1000, &[]);
    assert_eq!(world.run(Op::SetDataset(set(0))).unwrap_err(), E::NotPermitted);
    assert_eq!(world.run(Op::SetDataset(meta_op::SetDataset { dataset: 99, ..set(0) })).unwrap_err(), E::NotFound);
}

#[test]
fn the_number_of_copies_can_be_changed_within_its_bounds() {
    let mut world = World::new();
    let made = make(&mut world, pb::Dataset { min_copies: 2, ..dataset("/d") }).unwrap();
    let f = world.mkfile(made.root_inode, "f", 0o644).unwrap();
    let set = |replicas| meta_op::SetDataset { dataset: made.id, replicas: Some(replicas), ..Default::default() };
    assert_eq!(world.run(Op::SetDataset(set(4))).unwrap().dataset.unwrap().replicas, 4);
    assert_eq!(world.attr(f).replicas, 4, "files have what their dataset has");
    assert_eq!(world.run(Op::SetDataset(set(0))).unwrap_err(), E::Invalid);
    assert_eq!(world.run(Op::SetDataset(set(1000))).unwrap_err(), E::Invalid);
    assert_eq!(world.run(Op::SetDataset(set(1))).unwrap_err(), E::Invalid, "a write must be on two members");
    let fewer = meta_op::SetDataset { min_copies: Some(1), ..set(1) };
    assert_eq!(world.run(Op::SetDataset(fewer)).unwrap().dataset.unwrap().replicas, 1);
}

#[test]
fn logs_for_sleepers_are_two_at_least() {
    let mut world = World::new();
    let made = make(&mut world, pb::Dataset { log_copies: 3, ..dataset("/d") }).unwrap();
    let f = world.mkfile(made.root_inode, "f", 0o644).unwrap();
    assert_eq!(world.attr(f).log_copies, 3, "files have what their dataset has");
    let set = |logs| meta_op::SetDataset { dataset: made.id, log_copies: Some(logs), ..Default::default() };
    assert_eq!(world.run(Op::SetDataset(set(1))).unwrap_err(), E::Invalid);
    assert_eq!(world.run(Op::SetDataset(set(17))).unwrap_err(), E::Invalid);
    assert_eq!(world.run(Op::SetDataset(set(0))).unwrap().dataset.unwrap().log_copies, 0);
    assert_eq!(make(&mut world, pb::Dataset { log_copies: 1, ..dataset("/e") }).unwrap_err(), E::Invalid);
}

#[test]
fn a_priority_goes_with_a_share() {
    let mut world = World::new();
    assert_eq!(make(&mut world, pb::Dataset { priority: 1, ..dataset("/d") }).unwrap_err(), E::Invalid);
    assert_eq!(make(&mut world, pb::Dataset { share: 1001, ..dataset("/d") }).unwrap_err(), E::Invalid);
    let made = make(&mut world, pb::Dataset { share: 3, priority: 2, ..dataset("/d") }).unwrap();
    assert_eq!((made.share, made.priority), (3, 2));
    let set = |share, priority| meta_op::SetDataset { dataset: made.id, share, priority, ..Default::default() };
    let mut after = |share, priority| {
        let dataset = world.run(Op::SetDataset(set(share, priority)))?.dataset.unwrap();
        Ok((dataset.share, dataset.priority))
    };
    assert_eq!(after(Some(5), None), Ok((5, 2)));
    assert_eq!(after(None, Some(1)), Ok((5, 1)));
    assert_eq!(after(Some(0), None), Ok((0, 0)), "nothing is left for it to order");
    assert_eq!(after(None, Some(1)), Err(E::Invalid));
    assert_eq!(after(Some(1), Some(1_001)), Err(E::Invalid));
    assert_eq!(after(Some(1), None), Ok((1, 0)));
}

#[test]
fn committed_bytes_are_counted_for_the_dataset() {
    let mut world = World::new();
    let made = make(&mut world, pb::Dataset { metablock_size: MIB, block_size: 64 << 10, ..dataset("/d") }).unwrap();
    let file = world.create(made.root_inode, "f", &[1, 2]);
    let (inode, block) = (file.attr.unwrap().inode, file.metablocks[0].id);
    let metablocks = vec![super::harness::committed(block, 1, 1, 5000)];
    world.commit(pb::CommitFile { inode, epoch: 1, size: 5000, metablocks, ..Default::default() }).unwrap();
    assert_eq!(world.machine.dataset_usage(made.id), (2, 5000));
    let listed = world.ask(Op::ListDatasets(meta_op::ListDatasets::default())).unwrap().datasets;
    let shown = listed.iter().find(|dataset| dataset.id == made.id).unwrap();
    assert_eq!((shown.used_inodes, shown.used_bytes), (2, 5000));
    world.unlink(made.root_inode, "f").unwrap();
    world.apply(pb::command::Command::Reap(pb::Reap { inodes: vec![inode] })).reply.unwrap();
    assert_eq!(world.machine.dataset_usage(made.id), (1, 0));
}

#[test]
fn a_chain_is_kept_and_the_number_of_active_nodes_can_be_set() {
    let mut world = World::new();
    let asked = pb::Dataset { primaries: 2, chain: vec![3, 1, 2, 4], active: 3, ..dataset("/d") };
    let made = make(&mut world, asked).unwrap();
    assert_eq!((made.primaries, made.active, made.chain.clone()), (2, 3, vec![3, 1, 2, 4]));
    let set = meta_op::SetDataset { dataset: made.id, active: Some(4), ..Default::default() };
    assert_eq!(world.run(Op::SetDataset(set)).unwrap().dataset.unwrap(), pb::Dataset { active: 4, ..made });
    let more = pb::Dataset { primaries: 5, chain: vec![1, 2, 3, 4], ..dataset("/e") };
    assert_eq!(make(&mut world, more).unwrap_err(), E::Invalid);
}

#[test]
fn files_tell_how_far_their_dataset_reads_ahead() {
    use ebb_types::Prefetch;
    let mut world = World::new();
    let raw = |setting: Prefetch| setting.to_raw();
    let quarter = raw(Prefetch::Percent(25));
    assert_eq!(make(&mut world, pb::Dataset { prefetch: 103, ..dataset("/x") }).unwrap_err(), E::Invalid);
    let made = make(&mut world, pb::Dataset { prefetch: quarter, ..dataset("/d") }).unwrap();
    let inside = world.mkfile(made.root_inode, "f", 0o644).unwrap();
    let outside = world.mkfile(ROOT, "f", 0o644).unwrap();
    assert_eq!((world.attr(inside).prefetch, world.attr(outside).prefetch), (quarter, 0));
    let set = |id, prefetch| Op::SetDataset(meta_op::SetDataset { dataset: id, prefetch, ..Default::default() });
    assert_eq!(world.run(set(made.id, Some(103))).unwrap_err(), E::Invalid);
    world.run(set(made.id, Some(raw(Prefetch::Spare)))).unwrap();
    world.run(set(made.id, None)).unwrap();
    assert_eq!(world.attr(inside).prefetch, raw(Prefetch::Spare), "what is not said stays");
    // A new dataset does as the one around everything does.
    world.run(set(0, Some(quarter))).unwrap();
    assert_eq!(make(&mut world, dataset("/e")).unwrap().prefetch, quarter);
    world.run(set(0, Some(0))).unwrap();
    assert_eq!(world.attr(outside).prefetch, 0);
}

#[test]
fn files_tell_by_which_rule_their_dataset_is_read() {
    use ebb_types::ReadRule;
    let mut world = World::new();
    let (nearest, longest) = (ReadRule::Nearest.to_raw(), ReadRule::LongestAwake.to_raw());
    assert_eq!(make(&mut world, pb::Dataset { read_rule: 99, ..dataset("/x") }).unwrap_err(), E::Invalid);
    let made = make(&mut world, pb::Dataset { read_rule: nearest, ..dataset("/d") }).unwrap();
    let inside = world.mkfile(made.root_inode, "f", 0o644).unwrap();
    let outside = world.mkfile(ROOT, "f", 0o644).unwrap();
    assert_eq!((world.attr(inside).read_rule, world.attr(outside).read_rule), (nearest, 0));
    let set = |id, read_rule| Op::SetDataset(meta_op::SetDataset { dataset: id, read_rule, ..Default::default() });
    assert_eq!(world.run(set(made.id, Some(99))).unwrap_err(), E::Invalid);
    world.run(set(made.id, Some(longest))).unwrap();
    world.run(set(made.id, None)).unwrap();
    assert_eq!(world.attr(inside).read_rule, longest, "what is not said stays");
    world.run(set(0, Some(nearest))).unwrap();
    assert_eq!(make(&mut world, dataset("/e")).unwrap().read_rule, nearest, "as the dataset around it");
}

#[test]
fn a_node_takes_the_place_of_another_on_a_chain_once() {
    let mut world = World::new();
    let made = make(&mut world, pb::Dataset { chain: vec![3, 1, 2], ..dataset("/data") }).unwrap();
    assert_eq!(made.chain, [3, 1, 2]);
    let mut replace = |dataset, gone, by| {
        let command = pb::ReplaceInChain { dataset, gone, by };
        let reply = world.apply(ebb_wire::pb::command::Command::ReplaceInChain(command)).reply;
        reply.map(drop).map_err(|error| error.kind())
    };
    assert_eq!(replace(made.id, 1, 9), Ok(()));
    assert_eq!(replace(made.id, 1, 9), Err(E::Stale), "it is done");
    assert_eq!(replace(made.id, 3, 2), Err(E::Stale), "a node is on a chain once");
    assert_eq!(replace(made.id, 3, 0), Err(E::Stale));
    assert_eq!(replace(77, 3, 8), Err(E::NotFound));
    assert_eq!(world.machine.dataset(ebb_types::DatasetId::new(made.id)).unwrap().chain, [3, 9, 2]);
}

#[test]
fn a_registered_node_joins_a_chain_once_at_either_end() {
    let mut world = World::new();
    let made = make(&mut world, pb::Dataset { chain: vec![71, 72], ..dataset("/data") }).unwrap();
    let plain = make(&mut world, dataset("/plain")).unwrap();
    let node = pb::RegisterNodeCommand { host: "h".into(), rack: "r".into(), ..Default::default() };
    for boot in [5, 6] {
        world.apply(Command::RegisterNode(pb::RegisterNodeCommand { boot, ..node.clone() })).reply.unwrap();
    }
    let nodes: Vec<u64> = world.machine.nodes().filter_map(|record| Some(record.node.as_ref()?.id)).collect();
    let [.., one, other] = nodes[..] else { panic!("two nodes were registered: {nodes:?}") };
    let mut join = |dataset, node, first| {
        let reply = world.apply(Command::JoinChain(pb::JoinChain { dataset, node, first })).reply;
        reply.map(drop).map_err(|error| error.kind())
    };
    assert_eq!(join(plain.id, one, false), Err(E::Stale), "it places anywhere");
    assert_eq!(join(77, one, false), Err(E::NotFound));
    assert_eq!(join(made.id, 99, false), Err(E::NotFound));
    assert_eq!((join(made.id, one, false), join(made.id, other, true)), (Ok(()), Ok(())));
    assert_eq!(join(made.id, one, true), Err(E::Stale), "it is done");
    let chain = &world.machine.dataset(ebb_types::DatasetId::new(made.id)).unwrap().chain;
    assert_eq!(*chain, [other, 71, 72, one]);
}
