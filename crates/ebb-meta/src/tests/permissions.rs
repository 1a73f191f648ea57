//! Rights to change files and directories.

use ebb_types::{Credentials, ErrorKind as E, InodeId};
use ebb_wire::pb::meta_op::{self, Op};

use super::harness::{ROOT, World, user};
use crate::{EXECUTE, READ, WRITE};

fn alice() -> Credentials {
    user(1000, 100, &[])
}

fn bob() -> Credentials {
    user(2000, 200, &[])
}

#[test]
fn entries_need_write_and_search_permission_of_the_directory() {
    let mut world = World::new();
    let d = world.mkdir(ROOT, "d", 0o755).unwrap();
    world.chown(d, Some(1000), Some(100)).unwrap();
    world.as_user(bob());
    assert_eq!(world.mkfile(d, "f", 0o644), Err(E::AccessDenied));
    assert_eq!(world.mkfile(ROOT, "f", 0o644), Err(E::AccessDenied));
    assert_eq!(world.mkfile(ROOT, "d", 0o644), Err(E::Exists));
    world.as_user(alice());
    let f = world.mkfile(d, "f", 0o644).unwrap();
    world.as_user(bob());
    assert_eq!(world.unlink(d, "f").unwrap_err(), E::AccessDenied);
    assert_eq!(world.rename((d, "f"), (d, "g")).unwrap_err(), E::AccessDenied);
    assert_eq!(world.link(f, d, "g").unwrap_err(), E::AccessDenied);
    // Without search permission not even the existence of a name is shown.
    world.as_user(alice()).chmod(d, 0o200).unwrap();
    assert_eq!(world.mkfile(d, "f", 0o644), Err(E::AccessDenied));
    assert_eq!(world.unlink(d, "none").unwrap_err(), E::AccessDenied);
    // Write without search is not enough, search without write neither.
    world.chmod(d, 0o500).unwrap();
    assert_eq!(world.unlink(d, "f").unwrap_err(), E::AccessDenied);
    assert_eq!(world.unlink(d, "none").unwrap_err(), E::NotFound);
    world.as_root().unlink(d, "f").unwrap();
}

#[test]
fn groups_count_whether_primary_or_supplementary_and_the_owner_class_comes_first() {
    let mut world = World::new();
    let d = world.mkdir(ROOT, "d", 0o755).unwrap();
    world.chown(d, Some(1000), Some(300)).unwrap();
    world.chmod(d, 0o070).unwrap();
    world.as_user(user(2000, 200, &[5, 300])).mkfile(d, "f", 0o644).unwrap();
    world.as_user(user(2000, 300, &[])).mkfile(d, "g", 0o644).unwrap();
    // The owner is in the group too, and has only what the owner has.
    assert_eq!(world.as_user(user(1000, 300, &[300])).mkfile(d, "h", 0o644), Err(E::AccessDenied));
    assert_eq!(world.as_user(bob()).mkfile(d, "h", 0o644), Err(E::AccessDenied));
}

#[test]
fn in_a_sticky_directory_only_owners_remove() {
    let mut world = World::new();
    let d = world.mkdir(ROOT, "d", 0o777).unwrap();
    world.chmod(d, 0o1777).unwrap();
    world.as_user(alice()).mkfile(d, "f", 0o666).unwrap();
    world.as_user(bob());
    assert_eq!(world.unlink(d, "f").unwrap_err(), E::NotPermitted);
    assert_eq!(world.rename((d, "f"), (d, "g")).unwrap_err(), E::NotPermitted);
    world.mkfile(d, "mine", 0o644).unwrap();
    assert_eq!(world.rename((d, "mine"), (d, "f")).unwrap_err(), E::NotPermitted);
    assert_eq!(world.exchange((d, "mine"), (d, "f")).unwrap_err(), E::NotPermitted);
    world.rename((d, "mine"), (d, "still-mine")).unwrap();
    // The directory's owner may.
    world.as_root().chown(d, Some(2000), None).unwrap();
    world.as_user(bob()).unlink(d, "f").unwrap();
}

#[test]
fn only_the_owner_changes_the_mode() {
    let mut world = World::new();
    world.chmod(ROOT, 0o777).unwrap();
    let f = world.as_user(alice()).mkfile(ROOT, "f", 0o666).unwrap();
    assert_eq!(world.as_user(bob()).chmod(f, 0o600).unwrap_err(), E::NotPermitted);
    assert_eq!(world.as_user(alice()).chmod(f, 0o7777).unwrap().attr.unwrap().mode, 0o7777);
    // Not in the file's group: set-group-id is lost, on directories too.
    world.as_root().chown(f, None, Some(999)).unwrap();
    assert_eq!(world.as_user(alice()).chmod(f, 0o6755).unwrap().attr.unwrap().mode, 0o4755);
    let d = world.mkdir(ROOT, "d", 0o755).unwrap();
    world.as_root().chown(d, None, Some(999)).unwrap();
    assert_eq!(world.as_user(alice()).chmod(d, 0o2755).unwrap().attr.unwrap().mode, 0o755);
    assert_eq!(world.as_root().chmod(d, 0o2755).unwrap().attr.unwrap().mode, 0o2755);
    let link = world.symlink(ROOT, "l", "f").unwrap();
    assert_eq!(world.chmod(link, 0o600).unwrap_err(), E::Unsupported);
}

#[test]
fn only_root_gives_files_away_and_owners_choose_among_their_groups() {
    let mut world = World::new();
    world.chmod(ROOT, 0o777).unwrap();
    world.as_user(user(1000, 100, &[101]));
    let f = world.mkfile(ROOT, "f", 0o666).unwrap();
    assert_eq!(world.chown(f, Some(2000), None).unwrap_err(), E::NotPermitted);
    assert_eq!(world.chown(f, None, Some(555)).unwrap_err(), E::NotPermitted);
    assert_eq!(world.chown(f, Some(1000), Some(101)).unwrap().attr.unwrap().gid, 101);
    assert_eq!(world.as_user(user(2000, 100, &[101])).chown(f, None, Some(101)).unwrap_err(), E::NotPermitted);
    assert_eq!(world.chown(f, Some(2000), None).unwrap_err(), E::NotPermitted);
    assert_eq!(world.as_root().chown(f, Some(2000), Some(555)).unwrap().attr.unwrap().uid, 2000);
    assert_eq!(world.chown(f, Some(u32::MAX), None).unwrap_err(), E::Invalid);
}

#[test]
fn chown_clears_suid_and_sgid_of_what_can_be_executed() {
    let mut world = World::new();
    let f = world.mkfile(ROOT, "f", 0o644).unwrap();
    for (mode, after) in [(0o6755, 0o755), (0o6744, 0o2744), (0o4777, 0o777), (0o1755, 0o1755)] {
        world.chmod(f, mode).unwrap();
        assert_eq!(world.chown(f, Some(1000), Some(100)).unwrap().attr.unwrap().mode, after, "{mode:o}");
    }
    let d = world.mkdir(ROOT, "d", 0o755).unwrap();
    world.chmod(d, 0o6755).unwrap();
    assert_eq!(world.chown(d, Some(1000), Some(100)).unwrap().attr.unwrap().mode, 0o6755);
    // An owner outside the group loses sgid even where it only means locking.
    world.chmod(f, 0o2744).unwrap();
    world.chown(f, None, Some(900)).unwrap();
    assert_eq!(world.attr(f).mode, 0o2744);
    assert_eq!(world.as_user(alice()).chown(f, None, Some(100)).unwrap().attr.unwrap().mode, 0o744);
}

#[test]
fn setgid_directories_hand_their_group_down() {
    let mut world = World::new();
    let d = world.mkdir(ROOT, "d", 0o777).unwrap();
    world.chown(d, None, Some(300)).unwrap();
    world.chmod(d, 0o2777).unwrap();
    world.as_user(alice());
    let f = world.mkfile(d, "f", 0o2755).unwrap();
    // Not in the group: an executable file does not get set-group-id.
    assert_eq!((world.attr(f).gid, world.attr(f).mode), (300, 0o755));
    let g = world.mkfile(d, "g", 0o2745).unwrap();
    assert_eq!(world.attr(g).mode, 0o2745);
    let sub = world.mkdir(d, "sub", 0o755).unwrap();
    assert_eq!((world.attr(sub).gid, world.attr(sub).mode), (300, 0o2755));
    let link = world.symlink(d, "l", "f").unwrap();
    assert_eq!(world.attr(link).gid, 300);
    let h = world.as_user(user(1000, 100, &[300])).mkfile(d, "h", 0o2755).unwrap();
    assert_eq!(world.attr(h).mode, 0o2755);
    // mkdir takes no suid or sgid from its caller.
    let plain = world.as_root().mkdir(ROOT, "plain", 0o7777).unwrap();
    assert_eq!(world.attr(plain).mode, 0o1755);
}

#[test]
fn the_umask_is_applied() {
    let mut world = World::new();
    let op = meta_op::Create { parent: ROOT, name: b"f".into(), mode: 0o666, umask: 0o137, ..Default::default() };
    assert_eq!(world.run(Op::Create(op)).unwrap().attr.unwrap().mode, 0o640);
}

#[test]
fn access_for_opening_is_returned() {
    let mut world = World::new();
    let f = InodeId::new(world.mkfile(ROOT, "f", 0o640).unwrap());
    world.chown(f.raw(), Some(1000), Some(100)).unwrap();
    let denied = |credentials: Credentials, want| world.machine.check_access(f, &credentials, want).is_err();
    assert!(!denied(alice(), READ | WRITE));
    assert!(denied(alice(), EXECUTE));
    assert!(!denied(user(5, 100, &[]), READ));
    assert!(denied(user(5, 100, &[]), WRITE));
    assert!(denied(bob(), READ));
    assert!(!denied(Credentials::root(), READ | WRITE));
    assert!(denied(Credentials::root(), EXECUTE));
}

#[test]
fn resolve_needs_search_permission_all_the_way() {
    let mut world = World::new();
    let a = world.mkdir(ROOT, "a", 0o711).unwrap();
    let b = world.mkdir(a, "b", 0o700).unwrap();
    let f = world.mkfile(b, "f", 0o644).unwrap();
    assert_eq!(world.resolve("/a/b/f"), Ok(f));
    world.as_user(alice());
    assert_eq!(world.resolve("/a/b"), Ok(b));
    assert_eq!(world.resolve("/a/b/f"), Err(E::AccessDenied));
    assert_eq!(world.resolve("/a/b/.."), Err(E::AccessDenied));
}
