//! Directories that go with everything below them, and files that take another's place: one command each.

use ebb_types::{Credentials, ErrorKind as E, InodeId};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{self, Op};

use super::harness::{ROOT, World, user};
use crate::{EXECUTE, READ};

fn alice() -> Credentials {
    user(1000, 100, &[])
}

fn bob() -> Credentials {
    user(2000, 200, &[])
}

/// `/t` of alice's: two directories, three files.
fn tree() -> (World, u64) {
    let mut world = World::new();
    let t = world.mkdir(ROOT, "t", 0o755).unwrap();
    world.chown(t, Some(1000), Some(100)).unwrap();
    world.as_user(alice());
    let d = world.mkdir(t, "d", 0o755).unwrap();
    let e = world.mkdir(d, "e", 0o755).unwrap();
    for (parent, name) in [(t, "f"), (d, "g"), (e, "h")] {
        world.mkfile(parent, name, 0o644).unwrap();
    }
    (world, t)
}

#[test]
fn the_name_goes_at_once_and_the_rest_in_pieces_the_deepest_first() {
    let (mut world, t) = tree();
    world.as_root();
    assert_eq!(world.rmdir(ROOT, "t").unwrap_err(), E::NotEmpty);
    let reply = world.fell(ROOT, "t").unwrap();
    assert_eq!((reply.displaced_inode, reply.displaced_gone), (t, true));
    assert_eq!(world.resolve("/t"), Err(E::NotFound));
    assert_eq!(world.machine.check(), Vec::<String>::new());
    // Another of the name can be made at once.
    world.mkdir(ROOT, "t", 0o755).unwrap();
    let removed = world.expire(1);
    let at = |name: &str| removed.iter().position(|other| other == name).unwrap();
    assert!(removed.len() == 5 && at("h") < at("e") && at("e") < at("d") && at("g") < at("d"), "{removed:?}");
    assert_eq!(world.machine.check(), Vec::<String>::new());
    let orphans: Vec<u64> = world.machine.orphans().map(InodeId::raw).collect();
    assert!(orphans.len() == 6 && orphans.contains(&t), "{orphans:?}");
    world.reap(&orphans);
    assert_eq!(world.machine.counts().inodes, 2);
}

#[test]
fn what_is_left_survives_a_checkpoint_and_takes_no_new_entries() {
    let (mut world, t) = tree();
    world.as_root().fell(ROOT, "t").unwrap();
    world.reload();
    assert_eq!(world.machine.check(), Vec::<String>::new());
    assert_eq!(world.mkfile(t, "new", 0o644), Err(E::NotFound));
    let f = world.mkfile(ROOT, "f", 0o644).unwrap();
    assert_eq!(world.rename((ROOT, "f"), (t, "f")).unwrap_err(), E::NotFound);
    assert_eq!(world.exchange((t, "f"), (ROOT, "f")).unwrap_err(), E::NotFound);
    assert_eq!(world.link(f, t, "link").unwrap_err(), E::NotFound);
    // What is taken out of it is not removed.
    world.rename((t, "d"), (ROOT, "saved")).unwrap();
    assert_eq!(world.expire(10), ["f"]);
    assert!(world.resolve("/saved/e/h").is_ok());
    assert_eq!(world.machine.check(), Vec::<String>::new());
}

#[test]
fn who_could_not_remove_each_name_removes_none() {
    let (mut world, t) = tree();
    assert_eq!(world.as_user(bob()).fell(ROOT, "t").unwrap_err(), E::AccessDenied);
    world.as_root().chmod(ROOT, 0o777).unwrap();
    assert_eq!(world.as_user(bob()).fell(ROOT, "t").unwrap_err(), E::AccessDenied);
    let e = world.resolve("/t/d/e").unwrap();
    // An empty directory of anybody's goes; one with entries of another user's does not.
    world.as_root().mkdir(t, "empty", 0o700).unwrap();
    world.chown(e, Some(2000), None).unwrap();
    assert_eq!(world.as_user(alice()).fell(ROOT, "t").unwrap_err(), E::AccessDenied);
    world.as_root().chmod(e, 0o1777).unwrap();
    assert_eq!(world.as_user(alice()).fell(ROOT, "t").map(drop), Ok(()), "the file in the sticky directory is alice's");
}

#[test]
fn a_dataset_within_is_not_felled() {
    let (mut world, t) = tree();
    world.as_root();
    let dataset = super::datasets::dataset("/t/d/data");
    world.run(Op::CreateDataset(meta_op::CreateDataset { dataset: Some(dataset), ..Default::default() })).unwrap();
    assert_eq!(world.fell(ROOT, "t").unwrap_err(), E::Unsupported);
    assert_eq!(world.fell(t, "d").unwrap_err(), E::Unsupported);
    world.mkfile(world.resolve("/t/d/data").unwrap(), "x", 0o644).unwrap();
    let d = world.resolve("/t/d").unwrap();
    world.fell(d, "data").unwrap();
    assert_eq!(world.machine.check(), Vec::<String>::new());
    world.fell(ROOT, "t").unwrap();
    world.expire(100);
    assert_eq!(world.machine.check(), Vec::<String>::new());
}

#[test]
fn a_new_file_takes_the_place_of_another_in_one_step() {
    let mut world = World::new();
    let old = world.mkfile(ROOT, "f", 0o600).unwrap();
    let create =
        |replace| meta_op::Create { parent: ROOT, name: b"f".into(), mode: 0o640, replace, ..Default::default() };
    let opened = world.run(Op::Create(create(false))).unwrap();
    assert_eq!((opened.attr.unwrap().inode, opened.created), (old, false));
    let made = world.run(Op::Create(create(true))).unwrap();
    assert!(made.created && made.displaced_gone && made.displaced_inode == old);
    let attr = made.attr.unwrap();
    assert_eq!((world.resolve("/f"), attr.mode), (Ok(attr.inode), 0o640));
    assert_eq!(world.attr(old).nlink, 0, "whoever has it open keeps it");
    assert_eq!(world.machine.check(), Vec::<String>::new());
    // Rights: to change the directory, and to write the file that goes.
    world.chmod(ROOT, 0o777).unwrap();
    assert_eq!(world.as_user(bob()).run(Op::Create(create(true))).unwrap_err(), E::AccessDenied);
    world.as_root().mkdir(ROOT, "d", 0o755).unwrap();
    let over = meta_op::Create { name: b"d".into(), ..create(true) };
    assert_eq!(world.run(Op::Create(over)).unwrap_err(), E::IsDirectory);
}

#[test]
fn sums_are_those_of_a_walk_however_often_it_stops() {
    let (mut world, t) = tree();
    let made = world.create(t, "data", &[1, 2]);
    let file = made.attr.unwrap();
    world.commit(pb::CommitFile { inode: file.inode, epoch: file.epoch, size: 7, ..Default::default() }).unwrap();
    let whole = world.ask(Op::Summarize(meta_op::Summarize { inode: t, from: Vec::new() })).unwrap().summary.unwrap();
    assert_eq!((whole.bytes, whole.files, whole.directories), (7, 4, 3));
    assert!(whole.next.is_empty());
    let one = world.ask(Op::Summarize(meta_op::Summarize { inode: file.inode, from: Vec::new() })).unwrap();
    assert_eq!(one.summary.map(|sums| (sums.files, sums.directories)), Some((1, 0)));
    // Begun in the middle: what is before the place does not count again.
    let d = world.resolve("/t/d").unwrap();
    let place = |inode, cookie| pb::SummaryPlace { inode, cookie };
    let listed = world.ask(Op::ReadDir(meta_op::ReadDir { inode: t, ..Default::default() })).unwrap().entries;
    let cookie = listed.iter().find(|entry| entry.inode == d).unwrap().cookie;
    let from = vec![place(t, cookie), place(d, 0)];
    let rest = world.ask(Op::Summarize(meta_op::Summarize { inode: t, from })).unwrap().summary.unwrap();
    assert_eq!((rest.files, rest.directories), (4, 1), "/t and /t/d were counted before");
    // A directory that the user may not list refuses the sum.
    world.chmod(d, 0o700).unwrap();
    let refused = world.as_user(bob()).ask(Op::Summarize(meta_op::Summarize { inode: t, from: Vec::new() }));
    assert_eq!(refused.unwrap_err(), E::AccessDenied);
}

#[test]
fn rights_to_list_are_checked_where_no_kernel_did() {
    let (mut world, t) = tree();
    world.chmod(t, 0o711).unwrap();
    let list = |check, plus| Op::ReadDir(meta_op::ReadDir { inode: t, check, plus, ..Default::default() });
    let access = |access| Op::Resolve(meta_op::Resolve { path: b"/t".into(), follow_last: true, access });
    world.as_user(bob());
    assert!(world.ask(list(false, true)).is_ok() && world.ask(access(EXECUTE)).is_ok());
    assert_eq!(world.ask(list(true, false)).unwrap_err(), E::AccessDenied);
    assert_eq!(world.ask(access(READ)).unwrap_err(), E::AccessDenied);
    world.as_user(alice()).chmod(t, 0o744).unwrap();
    world.as_user(bob());
    assert!(world.ask(list(true, false)).is_ok(), "names need the right to read");
    assert_eq!(world.ask(list(true, true)).unwrap_err(), E::AccessDenied, "attributes need that to search");
}
