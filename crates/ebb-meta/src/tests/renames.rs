//! Renaming, rule by rule.

use ebb_types::{ErrorKind as E, InodeId};
use ebb_wire::pb::meta_op::{self, Op};

use super::harness::{ROOT, World, rename_op, user};
use crate::Effect;

#[test]
fn a_file_moves_over_a_file_whole() {
    let mut world = World::new();
    let a = world.mkfile(ROOT, "a", 0o644).unwrap();
    let b = world.mkfile(ROOT, "b", 0o644).unwrap();
    let before = world.attr(a);
    let reply = world.rename((ROOT, "a"), (ROOT, "b")).unwrap();
    assert_eq!((reply.displaced_inode, reply.displaced_gone), (b, true));
    assert!(world.effects.contains(&Effect::Orphaned(InodeId::new(b))));
    assert_eq!(world.lookup(ROOT, "b").unwrap().inode, a);
    assert_eq!(world.lookup(ROOT, "a"), Err(E::NotFound));
    assert!(world.attr(a).ctime_ns > before.ctime_ns);
    assert_eq!(world.attr(a).mtime_ns, before.mtime_ns);
    assert_eq!(world.attr(b).ctime_ns, world.attr(a).ctime_ns);
}

#[test]
fn a_target_with_other_links_lives_on() {
    let mut world = World::new();
    world.mkfile(ROOT, "a", 0o644).unwrap();
    let b = world.mkfile(ROOT, "b", 0o644).unwrap();
    world.link(b, ROOT, "c").unwrap();
    let reply = world.rename((ROOT, "a"), (ROOT, "b")).unwrap();
    assert_eq!((reply.displaced_inode, reply.displaced_gone), (b, false));
    assert_eq!(world.attr(b).nlink, 1);
}

#[test]
fn two_names_of_one_inode_stay_both() {
    let mut world = World::new();
    let a = world.mkfile(ROOT, "a", 0o644).unwrap();
    world.link(a, ROOT, "b").unwrap();
    let before = world.attr(a);
    world.rename((ROOT, "a"), (ROOT, "b")).unwrap();
    assert_eq!(world.names(ROOT), ["a", "b"]);
    assert_eq!(world.attr(a), before);
    world.rename((ROOT, "a"), (ROOT, "a")).unwrap();
    assert_eq!(world.names(ROOT), ["a", "b"]);
}

#[test]
fn directories_move_with_their_parents_links() {
    let mut world = World::new();
    let a = world.mkdir(ROOT, "a", 0o755).unwrap();
    let b = world.mkdir(ROOT, "b", 0o755).unwrap();
    let d = world.mkdir(a, "d", 0o755).unwrap();
    world.rename((a, "d"), (b, "e")).unwrap();
    assert_eq!((world.attr(a).nlink, world.attr(b).nlink, world.attr(d).nlink), (2, 3, 2));
    assert_eq!(world.lookup(d, "..").unwrap().inode, b);
    assert_eq!(world.lookup(d, ".").unwrap().inode, d);
    // Over an empty directory elsewhere: one `..` goes, one comes.
    let old = world.mkdir(a, "e", 0o755).unwrap();
    world.rename((b, "e"), (a, "e")).unwrap();
    assert_eq!((world.attr(a).nlink, world.attr(b).nlink, world.attr(old).nlink), (3, 2, 0));
    // Over an empty directory in the same place.
    world.mkdir(a, "f", 0o755).unwrap();
    world.rename((a, "e"), (a, "f")).unwrap();
    assert_eq!((world.attr(a).nlink, world.lookup(a, "f").unwrap().inode), (3, d));
}

#[test]
fn kinds_must_match_and_targets_be_empty() {
    let mut world = World::new();
    let d = world.mkdir(ROOT, "d", 0o755).unwrap();
    world.mkfile(ROOT, "f", 0o644).unwrap();
    world.mkdir(ROOT, "e", 0o755).unwrap();
    world.mkfile(d, "x", 0o644).unwrap();
    assert_eq!(world.rename((ROOT, "e"), (ROOT, "f")).unwrap_err(), E::NotDirectory);
    assert_eq!(world.rename((ROOT, "f"), (ROOT, "e")).unwrap_err(), E::IsDirectory);
    assert_eq!(world.rename((ROOT, "e"), (ROOT, "d")).unwrap_err(), E::NotEmpty);
    assert_eq!(world.rename((ROOT, "none"), (ROOT, "d")).unwrap_err(), E::NotFound);
    assert_eq!(world.rename((ROOT, "f"), (ROOT, "..")).unwrap_err(), E::Busy);
    assert_eq!(world.rename((d, "."), (ROOT, "g")).unwrap_err(), E::Busy);
}

#[test]
fn nothing_moves_into_itself() {
    let mut world = World::new();
    let a = world.mkdir(ROOT, "a", 0o755).unwrap();
    let b = world.mkdir(a, "b", 0o755).unwrap();
    let c = world.mkdir(b, "c", 0o755).unwrap();
    assert_eq!(world.rename((ROOT, "a"), (a, "x")).unwrap_err(), E::Invalid);
    assert_eq!(world.rename((ROOT, "a"), (c, "x")).unwrap_err(), E::Invalid);
    // The target holds the source: it cannot be empty.
    assert_eq!(world.rename((b, "c"), (ROOT, "a")).unwrap_err(), E::NotEmpty);
    assert_eq!(world.exchange((b, "c"), (ROOT, "a")).unwrap_err(), E::Invalid);
    assert_eq!(world.exchange((ROOT, "a"), (b, "c")).unwrap_err(), E::Invalid);
}

#[test]
fn no_replace_refuses_any_target() {
    let mut world = World::new();
    let a = world.mkfile(ROOT, "a", 0o644).unwrap();
    world.link(a, ROOT, "b").unwrap();
    let no_replace = |source, target| meta_op::Rename { no_replace: true, ..rename_op(source, target) };
    assert_eq!(world.run(Op::Rename(no_replace((ROOT, "a"), (ROOT, "b")))).unwrap_err(), E::Exists);
    world.run(Op::Rename(no_replace((ROOT, "a"), (ROOT, "c")))).unwrap();
    assert_eq!(world.names(ROOT), ["b", "c"]);
    let both = meta_op::Rename { exchange: true, ..no_replace((ROOT, "b"), (ROOT, "c")) };
    assert_eq!(world.run(Op::Rename(both)).unwrap_err(), E::Invalid);
}

#[test]
fn exchange_swaps_a_directory_and_a_file_across_directories() {
    let mut world = World::new();
    let a = world.mkdir(ROOT, "a", 0o755).unwrap();
    let b = world.mkdir(ROOT, "b", 0o755).unwrap();
    let d = world.mkdir(a, "x", 0o755).unwrap();
    world.mkfile(d, "inside", 0o644).unwrap();
    let f = world.mkfile(b, "y", 0o644).unwrap();
    world.exchange((a, "x"), (b, "y")).unwrap();
    assert_eq!((world.lookup(a, "x").unwrap().inode, world.lookup(b, "y").unwrap().inode), (f, d));
    assert_eq!((world.attr(a).nlink, world.attr(b).nlink), (2, 3));
    assert_eq!(world.lookup(d, "..").unwrap().inode, b);
    let e = world.mkdir(a, "z", 0o755).unwrap();
    world.exchange((a, "z"), (b, "y")).unwrap();
    assert_eq!((world.lookup(d, "..").unwrap().inode, world.lookup(e, "..").unwrap().inode), (a, b));
    assert_eq!((world.attr(a).nlink, world.attr(b).nlink), (3, 3));
    assert_eq!(world.exchange((a, "z"), (b, "none")).unwrap_err(), E::NotFound);
}

#[test]
fn a_directory_under_a_new_parent_must_be_writable_itself() {
    let mut world = World::new();
    let owner = user(1000, 100, &[]);
    world.chmod(ROOT, 0o777).unwrap();
    world.as_user(owner);
    let a = world.mkdir(ROOT, "a", 0o755).unwrap();
    world.mkdir(ROOT, "b", 0o555).unwrap();
    assert_eq!(world.rename((ROOT, "b"), (a, "b")).unwrap_err(), E::AccessDenied);
    world.rename((ROOT, "b"), (ROOT, "c")).unwrap();
    world.mkdir(a, "d", 0o755).unwrap();
    assert_eq!(world.exchange((a, "d"), (ROOT, "c")).unwrap_err(), E::AccessDenied);
}

#[test]
fn a_replaced_name_keeps_its_place_in_listings() {
    let mut world = World::new();
    for name in ["a", "b", "c"] {
        world.mkfile(ROOT, name, 0o644).unwrap();
    }
    world.rename((ROOT, "c"), (ROOT, "a")).unwrap();
    assert_eq!(world.names(ROOT), ["a", "b"]);
    world.rename((ROOT, "a"), (ROOT, "z")).unwrap();
    assert_eq!(world.names(ROOT), ["b", "z"]);
}

#[test]
fn a_removed_directory_is_no_target_even_below_the_source() {
    let mut world = World::new();
    let a = world.mkdir(ROOT, "a", 0o755).unwrap();
    let b = world.mkdir(a, "b", 0o755).unwrap();
    world.rmdir(a, "b").unwrap();
    assert_eq!(world.rename((ROOT, "a"), (b, "x")).unwrap_err(), E::NotFound);
    assert_eq!(world.exchange((ROOT, "a"), (b, "x")).unwrap_err(), E::NotFound);
}
