//! Making and removing names.

use ebb_types::{ErrorKind as E, InodeId};
use ebb_wire::pb::meta_op::{self, Op};

use super::harness::{ROOT, World, user};
use crate::Effect;

#[test]
fn directories_count_their_subdirectories_as_links() {
    let mut world = World::new();
    let a = world.mkdir(ROOT, "a", 0o777).unwrap();
    assert_eq!((world.attr(ROOT).nlink, world.attr(a).nlink), (3, 2));
    world.mkdir(a, "b", 0o777).unwrap();
    world.mkfile(a, "f", 0o644).unwrap();
    assert_eq!(world.attr(a).nlink, 3);
    assert_eq!(world.rmdir(ROOT, "a").unwrap_err(), E::NotEmpty);
    world.rmdir(a, "b").unwrap();
    assert_eq!(world.attr(a).nlink, 2);
    world.unlink(a, "f").unwrap();
    let reply = world.rmdir(ROOT, "a").unwrap();
    assert!(reply.displaced_gone);
    assert_eq!((reply.displaced_inode, reply.attr.unwrap().nlink, world.attr(ROOT).nlink), (a, 0, 2));
}

#[test]
fn names_are_checked() {
    let mut world = World::new();
    let long = "x".repeat(255);
    world.mkdir(ROOT, &long, 0o755).unwrap();
    assert_eq!(world.mkdir(ROOT, &"x".repeat(256), 0o755), Err(E::NameTooLong));
    assert_eq!(world.mkdir(ROOT, "a/b", 0o755), Err(E::Invalid));
    assert_eq!(world.mkdir(ROOT, "a\0b", 0o755), Err(E::Invalid));
    assert_eq!(world.mkdir(ROOT, "", 0o755), Err(E::NotFound));
    assert_eq!(world.mkdir(ROOT, ".", 0o755), Err(E::Exists));
    assert_eq!(world.mkfile(ROOT, "..", 0o755), Err(E::Exists));
    assert_eq!(world.lookup(ROOT, &"x".repeat(256)), Err(E::NameTooLong));
    assert_eq!(world.rmdir(ROOT, ".").unwrap_err(), E::Invalid);
    assert_eq!(world.rmdir(ROOT, "..").unwrap_err(), E::NotEmpty);
    assert_eq!(world.unlink(ROOT, "..").unwrap_err(), E::IsDirectory);
}

#[test]
fn a_kind_that_does_not_fit_is_refused() {
    let mut world = World::new();
    let file = world.mkfile(ROOT, "f", 0o644).unwrap();
    world.mkdir(ROOT, "d", 0o755).unwrap();
    assert_eq!(world.mkdir(file, "x", 0o755), Err(E::NotDirectory));
    assert_eq!(world.lookup(file, "x"), Err(E::NotDirectory));
    assert_eq!(world.unlink(ROOT, "d").unwrap_err(), E::IsDirectory);
    assert_eq!(world.rmdir(ROOT, "f").unwrap_err(), E::NotDirectory);
    assert_eq!(world.unlink(ROOT, "none").unwrap_err(), E::NotFound);
    assert_eq!(world.mkdir(99, "x", 0o755), Err(E::Stale));
}

#[test]
fn hard_links_share_the_inode_and_end_one_by_one() {
    let mut world = World::new();
    let file = world.mkfile(ROOT, "a", 0o644).unwrap();
    let before = world.attr(file);
    assert_eq!(world.link(file, ROOT, "b").unwrap().attr.unwrap().nlink, 2);
    assert!(world.attr(file).ctime_ns > before.ctime_ns);
    assert_eq!(world.attr(file).mtime_ns, before.mtime_ns);
    assert_eq!(world.attr(ROOT).mtime_ns, world.attr(file).ctime_ns);
    assert_eq!(world.link(file, ROOT, "b").unwrap_err(), E::Exists);
    let first = world.unlink(ROOT, "a").unwrap();
    assert_eq!((first.displaced_gone, first.attr.unwrap().nlink), (false, 1));
    let second = world.unlink(ROOT, "b").unwrap();
    assert!(second.displaced_gone);
    assert!(world.effects.contains(&Effect::Orphaned(InodeId::new(file))));
    assert_eq!(world.link(file, ROOT, "c").unwrap_err(), E::NotFound);
    assert_eq!(world.attr(file).nlink, 0);
    world.reap(&[file]);
    assert_eq!(world.effects, [Effect::Freed(InodeId::new(file))]);
    assert!(world.machine.attr(InodeId::new(file)).is_err());
}

#[test]
fn directories_have_one_name_and_links_have_a_limit() {
    let mut world = World::new();
    let dir = world.mkdir(ROOT, "d", 0o755).unwrap();
    assert_eq!(world.link(dir, ROOT, "e").unwrap_err(), E::NotPermitted);
    let file = world.mkfile(ROOT, "f", 0o644).unwrap();
    world.checked = false;
    for at in 1..65_000 {
        world.link(file, dir, &at.to_string()).unwrap();
    }
    assert_eq!(world.link(file, ROOT, "one-more").unwrap_err(), E::LinkLimit);
    assert_eq!(world.machine.check(), Vec::<String>::new());
}

#[test]
fn a_removed_directory_takes_no_entries() {
    let mut world = World::new();
    let dir = world.mkdir(ROOT, "d", 0o777).unwrap();
    world.rmdir(ROOT, "d").unwrap();
    assert_eq!(world.mkfile(dir, "f", 0o644), Err(E::NotFound));
    assert_eq!(world.names(dir), Vec::<String>::new());
    let file = world.mkfile(ROOT, "f", 0o644).unwrap();
    assert_eq!(world.rename((ROOT, "f"), (dir, "f")).unwrap_err(), E::NotFound);
    assert_eq!(world.link(file, dir, "f").unwrap_err(), E::NotFound);
}

#[test]
fn reap_leaves_named_inodes_alone() {
    let mut world = World::new();
    let file = world.mkfile(ROOT, "f", 0o644).unwrap();
    world.reap(&[file, ROOT, 12345]);
    assert!(world.effects.is_empty());
    assert_eq!(world.lookup(ROOT, "f").unwrap().inode, file);
}

#[test]
fn symbolic_links_hold_any_target_of_fitting_length() {
    let mut world = World::new();
    let link = world.symlink(ROOT, "l", "../any where").unwrap();
    let attr = world.attr(link);
    assert_eq!((attr.kind, attr.mode, attr.size, attr.nlink), (3, 0o777, 12, 1));
    assert_eq!(world.ask(Op::ReadLink(meta_op::ReadLink { inode: link })).unwrap().value, b"../any where");
    assert_eq!(world.ask(Op::ReadLink(meta_op::ReadLink { inode: ROOT })), Err(E::Invalid));
    assert_eq!(world.symlink(ROOT, "m", ""), Err(E::NotFound));
    assert_eq!(world.symlink(ROOT, "m", &"t".repeat(4096)), Err(E::NameTooLong));
    world.symlink(ROOT, "m", &"t".repeat(4095)).unwrap();
}

#[test]
fn special_files_keep_their_kind_and_devices_are_the_superusers() {
    let mut world = World::new();
    let node = |name: &str, kind, rdev| {
        Op::MakeNode(meta_op::MakeNode { parent: ROOT, name: name.into(), kind, mode: 0o666, umask: 0o022, rdev })
    };
    world.chmod(ROOT, 0o777).unwrap();
    let fifo = world.run(node("fifo", 4, 77)).unwrap().attr.unwrap();
    assert_eq!((fifo.kind, fifo.mode, fifo.rdev), (4, 0o644, 0));
    assert_eq!(world.run(node("char", 6, 0x0103)).unwrap().attr.unwrap().rdev, 0x0103);
    assert_eq!(world.run(node("dir", 2, 0)).unwrap_err(), E::NotPermitted);
    assert_eq!(world.run(node("link", 3, 0)).unwrap_err(), E::Invalid);
    assert_eq!(world.run(node("what", 9, 0)).unwrap_err(), E::Invalid);
    world.as_user(user(1000, 100, &[]));
    assert_eq!(world.run(node("block", 7, 8)).unwrap_err(), E::NotPermitted);
    assert_eq!(world.run(node("char2", 6, 1)).unwrap_err(), E::NotPermitted);
    world.run(node("whiteout", 6, 0)).unwrap();
    world.run(node("socket", 5, 0)).unwrap();
    // It exists wins over everything else.
    assert_eq!(world.run(node("char", 6, 1)).unwrap_err(), E::Exists);
}

#[test]
fn create_opens_an_existing_file_without_a_lease() {
    let mut world = World::new();
    let made = world.create(ROOT, "f", &[1, 2]);
    assert!(made.created);
    assert_eq!((made.lease(), made.metablocks.len()), (ebb_wire::pb::LeaseMode::LeaseWrite, 1));
    let op = meta_op::Create { parent: ROOT, name: b"f".into(), mode: 0o600, ..Default::default() };
    let opened = world.run(Op::Create(op.clone())).unwrap();
    assert!(!opened.created);
    assert_eq!((opened.lease(), opened.attr.as_ref().unwrap().mode), (ebb_wire::pb::LeaseMode::LeaseNone, 0o644));
    assert_eq!(opened.attr.unwrap().inode, made.attr.unwrap().inode);
    let exclusive = meta_op::Create { exclusive: true, ..op.clone() };
    assert_eq!(world.run(Op::Create(exclusive)).unwrap_err(), E::Exists);
    world.mkdir(ROOT, "d", 0o755).unwrap();
    let directory = meta_op::Create { name: b"d".into(), ..op };
    assert_eq!(world.run(Op::Create(directory)).unwrap_err(), E::IsDirectory);
}

#[test]
fn making_and_removing_names_moves_the_directorys_times() {
    let mut world = World::new();
    let dir = world.mkdir(ROOT, "d", 0o755).unwrap();
    let made = world.attr(dir);
    assert_eq!((made.atime_ns, made.mtime_ns, made.ctime_ns), (made.btime_ns, made.btime_ns, made.btime_ns));
    world.mkfile(dir, "f", 0o644).unwrap();
    let added = world.attr(dir);
    assert!(added.mtime_ns > made.mtime_ns && added.ctime_ns == added.mtime_ns && added.atime_ns == made.atime_ns);
    assert!(world.effects.contains(&Effect::Changed { inode: InodeId::new(dir), by: ebb_types::SessionId::new(1) }));
    assert_eq!(world.mkfile(dir, "f", 0o644), Err(E::Exists));
    assert_eq!(world.attr(dir), added);
    world.unlink(dir, "f").unwrap();
    assert!(world.attr(dir).mtime_ns > added.mtime_ns);
}
