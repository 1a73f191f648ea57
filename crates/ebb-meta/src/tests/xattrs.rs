//! Extended attributes and ACLs on inodes.

use ebb_types::{Credentials, ErrorKind as E};
use ebb_wire::pb::meta_op::{self, Op};

use super::harness::{Answer, ROOT, World, user};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const NONE: u32 = u32::MAX;

fn alice() -> Credentials {
    user(1000, 100, &[])
}

fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = vec![2, 0, 0, 0];
    for (tag, perm, id) in entries {
        out.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
        out.extend(id.to_le_bytes());
    }
    out
}

/// The owner, one named user, group, mask, others.
fn named(owner: u16, id: u32, perm: u16, group: u16, mask: u16, other: u16) -> Vec<u8> {
    acl(&[(1, owner, NONE), (2, perm, id), (4, group, NONE), (16, mask, NONE), (32, other, NONE)])
}

fn set(world: &mut World, inode: u64, name: &str, value: &[u8], create: bool, replace: bool) -> Answer {
    let value = bytes::Bytes::copy_from_slice(value);
    world.run(Op::SetXattr(meta_op::SetXattr { inode, name: name.into(), value, create, replace }))
}

fn remove(world: &mut World, inode: u64, name: &str) -> Answer {
    world.run(Op::RemoveXattr(meta_op::RemoveXattr { inode, name: name.into() }))
}

fn list(world: &World, inode: u64) -> Vec<String> {
    let names = world.ask(Op::ListXattr(meta_op::ListXattr { inode })).unwrap().names;
    names.into_iter().map(|name| String::from_utf8(name).unwrap()).collect()
}

#[test]
fn attributes_are_set_read_listed_and_removed() {
    let mut world = World::new();
    let f = world.mkfile(ROOT, "f", 0o644).unwrap();
    let before = world.attr(f);
    world.set_xattr(f, "user.b", b"two").unwrap();
    assert_eq!((world.attr(f).ctime_ns, world.attr(f).mtime_ns), (world.now, before.mtime_ns));
    world.set_xattr(f, "user.a", b"").unwrap();
    assert_eq!(list(&world, f), ["user.a", "user.b"]);
    assert_eq!(world.get_xattr(f, "user.b").unwrap(), b"two");
    assert_eq!(world.get_xattr(f, "user.a").unwrap(), b"");
    assert_eq!(world.get_xattr(f, "user.c"), Err(E::NoAttribute));
    assert_eq!(set(&mut world, f, "user.a", b"", true, false).unwrap_err(), E::Exists);
    assert_eq!(set(&mut world, f, "user.c", b"", false, true).unwrap_err(), E::NoAttribute);
    set(&mut world, f, "user.a", b"x", false, true).unwrap();
    remove(&mut world, f, "user.b").unwrap();
    assert_eq!(remove(&mut world, f, "user.b").unwrap_err(), E::NoAttribute);
    remove(&mut world, f, "user.a").unwrap();
    assert_eq!(list(&world, f), Vec::<String>::new());
}

#[test]
fn sizes_have_limits() {
    let mut world = World::new();
    let f = world.mkfile(ROOT, "f", 0o644).unwrap();
    assert_eq!(world.set_xattr(f, "", b"").unwrap_err(), E::Range);
    assert_eq!(world.set_xattr(f, &format!("user.{}", "x".repeat(251)), b"").unwrap_err(), E::Range);
    world.set_xattr(f, &format!("user.{}", "x".repeat(250)), b"").unwrap();
    assert_eq!(world.set_xattr(f, "user.", b"").unwrap_err(), E::Invalid);
    assert_eq!(world.set_xattr(f, "user.a", &vec![0; 65_537]).unwrap_err(), E::TooBig);
    world.set_xattr(f, "user.a", &vec![0; 65_536]).unwrap();
    assert_eq!(world.set_xattr(f, "user.b", &vec![0; 65_536]).unwrap_err(), E::NoSpace);
    world.set_xattr(f, "user.a", b"small").unwrap();
    world.set_xattr(f, "user.b", &vec![0; 65_536]).unwrap();
    let d = world.mkdir(ROOT, "d", 0o755).unwrap();
    world.checked = false;
    let refused = (0..400).find(|at| world.set_xattr(d, &format!("user.{at:0>250}"), b"").is_err());
    assert_eq!(refused, Some(256), "a list of names above 64 KiB could not be read");
}

#[test]
fn each_space_has_its_rules() {
    let mut world = World::new();
    world.chmod(ROOT, 0o777).unwrap();
    let f = world.as_user(alice()).mkfile(ROOT, "f", 0o644).unwrap();
    let l = world.symlink(ROOT, "l", "f").unwrap();
    let sticky = world.mkdir(ROOT, "sticky", 0o777).unwrap();
    world.as_root().chmod(sticky, 0o1777).unwrap();
    world.set_xattr(f, "trusted.t", b"1").unwrap();
    world.set_xattr(f, "security.s", b"1").unwrap();
    world.set_xattr(l, "trusted.t", b"1").unwrap();
    assert_eq!(world.set_xattr(l, "user.u", b"1").unwrap_err(), E::NotPermitted);
    assert_eq!(world.set_xattr(f, "system.other", b"1").unwrap_err(), E::Unsupported);
    assert_eq!(world.set_xattr(f, "nonsense", b"1").unwrap_err(), E::Unsupported);
    world.as_user(alice());
    assert_eq!(world.set_xattr(f, "trusted.t", b"2").unwrap_err(), E::NotPermitted);
    assert_eq!(world.set_xattr(f, "security.s", b"2").unwrap_err(), E::NotPermitted);
    assert_eq!(world.get_xattr(f, "trusted.t"), Err(E::NoAttribute));
    assert_eq!(world.get_xattr(f, "security.s").unwrap(), b"1");
    assert_eq!(list(&world, f), ["security.s"]);
    world.set_xattr(f, "user.u", b"1").unwrap();
    world.as_user(user(2000, 200, &[]));
    assert_eq!(world.set_xattr(f, "user.u", b"2").unwrap_err(), E::AccessDenied);
    assert_eq!(remove(&mut world, f, "user.u").unwrap_err(), E::AccessDenied);
    assert_eq!(world.set_xattr(sticky, "user.u", b"2").unwrap_err(), E::NotPermitted);
}

#[test]
fn an_access_acl_is_kept_in_step_with_the_mode() {
    let mut world = World::new();
    let f = world.mkfile(ROOT, "f", 0o640).unwrap();
    assert_eq!(world.get_xattr(f, ACCESS), Err(E::NoAttribute));
    let value = named(7, 1000, 6, 4, 6, 0);
    assert_eq!(world.set_xattr(f, ACCESS, &value).unwrap().attr.unwrap().mode, 0o760);
    assert_eq!(world.get_xattr(f, ACCESS).unwrap(), value);
    assert_eq!(list(&world, f), [ACCESS]);
    // chmod goes to the mask, not to the owning group.
    world.chmod(f, 0o604).unwrap();
    assert_eq!(world.get_xattr(f, ACCESS).unwrap(), named(6, 1000, 6, 4, 0, 4));
    // An ACL that a mode can say is none.
    let minimal = acl(&[(1, 7, NONE), (4, 5, NONE), (32, 1, NONE)]);
    assert_eq!(world.set_xattr(f, ACCESS, &minimal).unwrap().attr.unwrap().mode, 0o751);
    assert_eq!(world.get_xattr(f, ACCESS), Err(E::NoAttribute));
    // Removal leaves the mode as it is, and is no error if there is nothing.
    world.set_xattr(f, ACCESS, &value).unwrap();
    assert_eq!(remove(&mut world, f, ACCESS).unwrap().attr.unwrap().mode, 0o760);
    remove(&mut world, f, ACCESS).unwrap();
    assert_eq!(world.set_xattr(f, ACCESS, b"x").unwrap_err(), E::Invalid);
}

#[test]
fn an_access_acl_decides_about_changes() {
    let mut world = World::new();
    let d = world.mkdir(ROOT, "d", 0o700).unwrap();
    world.as_user(alice());
    assert_eq!(world.mkfile(d, "f", 0o644), Err(E::AccessDenied));
    world.as_root().set_xattr(d, ACCESS, &named(7, 1000, 7, 0, 7, 0)).unwrap();
    world.as_user(alice()).mkfile(d, "f", 0o644).unwrap();
    assert_eq!(world.as_user(user(2000, 100, &[])).mkfile(d, "g", 0o644), Err(E::AccessDenied));
    // The mask takes it back.
    world.as_root().chmod(d, 0o750).unwrap();
    assert_eq!(world.as_user(alice()).mkfile(d, "g", 0o644), Err(E::AccessDenied));
    assert_eq!(world.resolve("/d/f").map(|_| ()), Ok(()));
}

#[test]
fn acls_are_the_owners_and_fit_the_kind() {
    let mut world = World::new();
    world.chmod(ROOT, 0o777).unwrap();
    let f = world.mkfile(ROOT, "f", 0o666).unwrap();
    let l = world.symlink(ROOT, "l", "f").unwrap();
    let value = named(7, 1000, 6, 4, 6, 0);
    assert_eq!(world.set_xattr(f, DEFAULT, &value).unwrap_err(), E::AccessDenied);
    remove(&mut world, f, DEFAULT).unwrap();
    assert_eq!(world.set_xattr(l, ACCESS, &value).unwrap_err(), E::Unsupported);
    assert_eq!(world.get_xattr(l, ACCESS), Err(E::Unsupported));
    assert_eq!(world.as_user(alice()).set_xattr(f, ACCESS, &value).unwrap_err(), E::NotPermitted);
    // An owner outside the file's group loses set-group-id with the ACL.
    world.as_root().chown(f, Some(1000), Some(999)).unwrap();
    world.chmod(f, 0o2770).unwrap();
    assert_eq!(world.as_user(alice()).set_xattr(f, ACCESS, &value).unwrap().attr.unwrap().mode, 0o760);
}

#[test]
fn a_default_acl_is_handed_down_and_the_umask_is_not_asked() {
    let mut world = World::new();
    let d = world.mkdir(ROOT, "d", 0o755).unwrap();
    let default = named(7, 1000, 7, 5, 7, 5);
    world.set_xattr(d, DEFAULT, &default).unwrap();
    assert_eq!((world.attr(d).mode, list(&world, d)), (0o755, vec![DEFAULT.to_owned()]));
    // The harness asks with umask 022: without the default ACL the group would not get write.
    let f = world.mkfile(d, "f", 0o666).unwrap();
    assert_eq!(world.attr(f).mode, 0o664);
    assert_eq!(world.get_xattr(f, ACCESS).unwrap(), named(6, 1000, 7, 5, 6, 4));
    assert_eq!(world.get_xattr(f, DEFAULT), Err(E::NoAttribute));
    let sub = world.mkdir(d, "sub", 0o777).unwrap();
    assert_eq!(world.attr(sub).mode, 0o775);
    assert_eq!(
        (world.get_xattr(sub, ACCESS).unwrap(), world.get_xattr(sub, DEFAULT).unwrap()),
        (default.clone(), default)
    );
    let l = world.symlink(d, "l", "f").unwrap();
    assert_eq!(world.attr(l).mode, 0o777);
    remove(&mut world, d, DEFAULT).unwrap();
    let g = world.mkfile(d, "g", 0o666).unwrap();
    assert_eq!(world.attr(g).mode, 0o644);
    // A default ACL that a mode can say gives a mode and no ACL.
    world.set_xattr(d, DEFAULT, &acl(&[(1, 7, NONE), (4, 0, NONE), (32, 0, NONE)])).unwrap();
    let h = world.mkfile(d, "h", 0o666).unwrap();
    assert_eq!((world.attr(h).mode, list(&world, h)), (0o600, vec![]));
}

#[test]
fn a_write_by_another_takes_file_capabilities_too() {
    let mut world = World::new();
    let inode = world.create(ROOT, "f", &[1]).attr.unwrap().inode;
    world.set_xattr(inode, "security.capability", b"caps").unwrap();
    world.set_xattr(inode, "user.keep", b"1").unwrap();
    let commit = ebb_wire::pb::CommitFile { inode, epoch: 1, kill_privileges: true, ..Default::default() };
    world.commit(commit).unwrap();
    assert_eq!(list(&world, inode), ["user.keep"]);
}
