//! The trash of datasets.

use ebb_types::{DatasetId, ErrorKind as E, InodeId};
use ebb_wire::pb;
use ebb_wire::pb::command::Command as Change;
use ebb_wire::pb::meta_op::{self, Op};

use super::harness::{ROOT, World, user};

const HOUR_NS: i64 = 3600 * 1_000_000_000;

fn keep(world: &mut World, dataset: u64, seconds: u32) -> Result<(), E> {
    let set = meta_op::SetDataset { dataset, trash_seconds: Some(seconds), ..Default::default() };
    world.run(Op::SetDataset(set)).map(drop)
}

/// A removal of root's, with a directory for it; as `ebb fs rm` makes it.
fn removal(world: &mut World, name: &str) -> u64 {
    let trash = world.resolve("/.trash").unwrap();
    let user = world.resolve("/.trash/0").unwrap_or_else(|_| world.mkdir(trash, "0", 0o700).unwrap());
    let removal = world.mkdir(user, name, 0o700).unwrap();
    let mark = meta_op::SetXattr {
        inode: removal,
        name: ebb_types::trash::FORMER_PATH.to_vec(),
        value: b"/f".as_slice().into(),
        ..Default::default()
    };
    world.run(Op::SetXattr(mark)).unwrap();
    removal
}

fn later(world: &mut World) -> i64 {
    world.now += HOUR_NS + 1_000_000;
    world.now
}

#[test]
fn the_setting_makes_a_directory_for_everybody() {
    let mut world = World::new();
    keep(&mut world, 0, 3600).unwrap();
    let trash = world.lookup(ROOT, ".trash").unwrap();
    assert_eq!((trash.mode, trash.uid), (0o1777, 0));
    keep(&mut world, 0, 7200).unwrap();
    assert_eq!(world.machine.dataset(DatasetId::new(0)).unwrap().trash_seconds, 7200);
    keep(&mut world, 0, 0).unwrap();
    assert!(world.lookup(ROOT, ".trash").is_ok(), "what is in it stays");
    // A dataset of its own, made with the setting.
    let asked = pb::Dataset { path: "/d".into(), trash_seconds: 60, ..Default::default() };
    let create = |dataset: &pb::Dataset| {
        Op::CreateDataset(meta_op::CreateDataset { dataset: Some(dataset.clone()), ..Default::default() })
    };
    let made = world.run(create(&asked)).unwrap().dataset.unwrap();
    assert_eq!(world.lookup(made.root_inode, ".trash").unwrap().dataset, made.id);
    let narrow = pb::Dataset { path: "/n".into(), quota_inodes: 1, ..asked };
    assert_eq!(world.run(create(&narrow)), Err(E::Invalid));
    assert_eq!(world.resolve("/n"), Err(E::NotFound));
}

#[test]
fn a_name_that_is_taken_is_no_trash() {
    let mut world = World::new();
    world.mkfile(ROOT, ".trash", 0o644).unwrap();
    assert_eq!(keep(&mut world, 0, 60), Err(E::Exists));
    assert_eq!(world.machine.dataset(DatasetId::new(0)).unwrap().trash_seconds, 0, "nothing was changed");
}

#[test]
fn what_is_over_goes_from_below_and_in_any_portions() {
    for max in [1, 2, 3, 100] {
        let mut world = World::new();
        keep(&mut world, 0, 3600).unwrap();
        let old = removal(&mut world, "old");
        let tree = world.mkdir(old, "tree", 0o755).unwrap();
        let deep = world.mkdir(tree, "deep", 0o755).unwrap();
        world.mkfile(deep, "f", 0o644).unwrap();
        world.mkfile(tree, "g", 0o644).unwrap();
        later(&mut world);
        let young = removal(&mut world, "young");
        world.mkfile(young, "h", 0o644).unwrap();
        assert_eq!(world.expire(max), ["f", "deep", "g", "tree", "old"], "{max} at a time");
        assert!(world.resolve("/.trash/0/young/h").is_ok() && world.resolve("/.trash/0/old").is_err());
        later(&mut world);
        assert_eq!(world.expire(max), ["h", "young"]);
        assert!(world.resolve("/.trash/0").is_ok());
    }
}

#[test]
fn only_removals_expire() {
    let mut world = World::new();
    keep(&mut world, 0, 3600).unwrap();
    removal(&mut world, "r");
    let own = world.resolve("/.trash/0").unwrap();
    world.mkdir(own, "moved-by-hand", 0o755).unwrap();
    world.mkfile(own, "file", 0o644).unwrap();
    later(&mut world);
    assert_eq!(world.expire(100), ["r"]);
    removal(&mut world, "s");
    keep(&mut world, 0, 0).unwrap();
    later(&mut world);
    assert!(world.machine.expired_names(world.now, 100).is_empty(), "without the setting nothing expires");
}

#[test]
fn what_was_taken_out_meanwhile_stays() {
    let mut world = World::new();
    keep(&mut world, 0, 3600).unwrap();
    let old = removal(&mut world, "old");
    let tree = world.mkdir(old, "tree", 0o755).unwrap();
    world.mkfile(tree, "f", 0o644).unwrap();
    world.mkfile(old, "g", 0o644).unwrap();
    world.mkfile(old, "k", 0o644).unwrap();
    let now = later(&mut world);
    let names = world.machine.expired_names(now, 100).into_iter().map(|one| pb::expire_trash::Name {
        parent: one.parent.raw(),
        name: one.name,
        inode: one.inode.raw(),
    });
    let names = names.collect();
    world.rename((old, "tree"), (ROOT, "tree")).unwrap();
    world.unlink(old, "g").unwrap();
    world.mkfile(old, "g", 0o644).unwrap();
    world.apply(Change::ExpireTrash(pb::ExpireTrash { names })).reply.unwrap();
    assert!(world.resolve("/tree/f").is_ok(), "it is out of the trash");
    assert!(world.resolve("/.trash/0/old/g").is_ok(), "another file has the name");
    assert_eq!(world.resolve("/.trash/0/old/k"), Err(E::NotFound));
}

#[test]
fn a_file_with_another_name_lives_on() {
    let mut world = World::new();
    keep(&mut world, 0, 3600).unwrap();
    let file = world.mkfile(ROOT, "f", 0o644).unwrap();
    let old = removal(&mut world, "old");
    world.link(file, old, "f").unwrap();
    later(&mut world);
    world.expire(100);
    assert_eq!(world.machine.attr(InodeId::new(file)).unwrap().nlink, 1);
    assert_eq!(world.resolve("/f"), Ok(file));
}

#[test]
fn users_have_their_own_part() {
    let mut world = World::new();
    keep(&mut world, 0, 3600).unwrap();
    let trash = world.resolve("/.trash").unwrap();
    let own = world.as_user(user(7, 7, &[])).mkdir(trash, "7", 0o700).unwrap();
    assert_eq!(world.as_user(user(8, 8, &[])).mkdir(own, "x", 0o700), Err(E::AccessDenied));
    assert_eq!(world.as_user(user(8, 8, &[])).rmdir(trash, "7"), Err(E::NotPermitted), "the directory is sticky");
    assert_eq!(keep(&mut world, 0, 1), Err(E::NotPermitted));
}
