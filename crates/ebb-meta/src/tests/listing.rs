//! Listings and paths.

use std::collections::BTreeSet;

use ebb_types::ErrorKind as E;
use ebb_wire::pb;
use ebb_wire::pb::meta_op::{self, Op};

use super::harness::{ROOT, World};

fn page(world: &World, inode: u64, cookie: u64, limit: u32) -> pb::MetaReply {
    world
        .ask(Op::ReadDir(meta_op::ReadDir { inode, cookie, limit, plus: false, map: false, ..Default::default() }))
        .unwrap()
}

#[test]
fn a_listing_misses_and_repeats_nothing_that_stays() {
    let mut world = World::new();
    world.checked = false;
    let d = world.mkdir(ROOT, "d", 0o755).unwrap();
    for at in 0..3000 {
        world.mkfile(d, &format!("f{at}"), 0o644).unwrap();
    }
    let (mut seen, mut cookie, mut turn) = (Vec::new(), 0, 0);
    loop {
        let reply = page(&world, d, cookie, 100);
        seen.extend(reply.entries.iter().map(|entry| String::from_utf8(entry.name.clone()).unwrap()));
        if reply.end {
            break;
        }
        cookie = reply.entries.last().unwrap().cookie;
        // Meanwhile: names before and behind the place go, and new ones come.
        world.unlink(d, &format!("f{turn}")).unwrap();
        world.unlink(d, &format!("f{}", 2999 - turn)).unwrap();
        world.mkfile(d, &format!("new{turn}"), 0o644).unwrap();
        world.rename((d, &format!("f{}", 1500 + turn)), (d, &format!("renamed{turn}"))).unwrap();
        turn += 1;
    }
    let unique: BTreeSet<&String> = seen.iter().collect();
    assert_eq!(unique.len(), seen.len());
    for at in (turn..1500).chain(1500 + turn..3000 - turn) {
        assert!(unique.contains(&format!("f{at}")), "f{at} stayed and was missed");
    }
    assert_eq!(world.machine.check(), Vec::<String>::new());
}

#[test]
fn listings_are_bounded_and_tell_attributes_and_maps_if_asked() {
    let mut world = World::new();
    world.create(ROOT, "f", &[1, 2]);
    let d = world.mkdir(ROOT, "d", 0o755).unwrap();
    let op = meta_op::ReadDir { inode: ROOT, cookie: 0, limit: 1, plus: true, map: true, ..Default::default() };
    let reply = world.ask(Op::ReadDir(op)).unwrap();
    let entry = &reply.entries[0];
    assert_eq!((entry.kind, entry.metablocks.len(), reply.end), (1, 1, false));
    assert_eq!(entry.attr, Some(world.attr(entry.inode)));
    assert!(entry.cookie >= 3, "1 and 2 are left to . and ..");
    let rest = page(&world, ROOT, entry.cookie, u32::MAX);
    assert_eq!((rest.entries.len(), rest.end, rest.entries[0].attr.is_none()), (1, true, true));
    assert!(page(&world, d, 0, 10).end);
    assert!(page(&world, ROOT, u64::MAX, 10).entries.is_empty());
    let of_file = world.ask(Op::ReadDir(meta_op::ReadDir { inode: entry.inode, ..Default::default() }));
    assert_eq!(of_file, Err(E::NotDirectory));
    world.checked = false;
    for at in 0..5000 {
        world.mkfile(d, &at.to_string(), 0o644).unwrap();
    }
    assert_eq!(page(&world, d, 0, u32::MAX).entries.len(), crate::READ_DIR_LIMIT_MAX as usize);
}

#[test]
fn a_page_stays_below_the_cap_of_a_message() {
    use ebb_wire::Message;
    let mut world = World::new();
    world.checked = false;
    let d = world.mkdir(ROOT, "d", 0o755).unwrap();
    for at in 0..4000 {
        world.create(d, &format!("{at:0>255}"), &[1 << 62, 1 << 61, 1 << 60, 4, 5, 6, 7, 8]);
    }
    let op = meta_op::ReadDir { inode: d, cookie: 0, limit: 4096, plus: true, map: true, ..Default::default() };
    let reply = world.ask(Op::ReadDir(op)).unwrap();
    assert!(!reply.end && reply.encoded_len() < ebb_wire::frame::MESSAGE_LEN_MAX, "{}", reply.encoded_len());
}

#[test]
fn paths_are_walked_with_dots_slashes_and_links() {
    let mut world = World::new();
    let a = world.mkdir(ROOT, "a", 0o755).unwrap();
    let b = world.mkdir(a, "b", 0o755).unwrap();
    let f = world.mkfile(b, "f", 0o644).unwrap();
    world.symlink(a, "rel", "b/f").unwrap();
    world.symlink(a, "abs", "/a/b").unwrap();
    let up = world.symlink(b, "up", "..").unwrap();
    world.symlink(ROOT, "loop", "loop").unwrap();
    world.symlink(ROOT, "dangling", "nowhere").unwrap();
    for (path, found) in [
        ("/", Ok(ROOT)),
        ("//a///b/./f", Ok(f)),
        ("/a/b/../b/f", Ok(f)),
        ("/../../a", Ok(a)),
        ("/a/rel", Ok(f)),
        ("/a/abs/f", Ok(f)),
        ("/a/abs/up/rel", Ok(f)),
        ("/a/abs/", Ok(b)),
        ("/a/b/f/", Err(E::NotDirectory)),
        ("/a/b/f/.", Err(E::NotDirectory)),
        ("/a/b/f/g", Err(E::NotDirectory)),
        ("/a/none", Err(E::NotFound)),
        ("/loop", Err(E::TooManyLinks)),
        ("/dangling", Err(E::NotFound)),
        ("a", Err(E::Invalid)),
        ("", Err(E::Invalid)),
    ] {
        assert_eq!(world.resolve(path), found, "{path}");
    }
    assert_eq!(world.resolve(&"/a".repeat(2048)), Err(E::NameTooLong));
    assert_eq!(world.resolve(&format!("/{}", "x".repeat(256))), Err(E::NameTooLong));
    let no_follow = |path: &str| {
        world.ask(Op::Resolve(meta_op::Resolve { path: path.into(), follow_last: false, access: 0 })).unwrap()
    };
    let reply = no_follow("/a/b/up");
    assert_eq!((reply.attr.unwrap().inode, reply.parent), (up, b));
    assert_eq!(no_follow("/a/b/up/").attr.unwrap().inode, a, "a slash asks for the directory behind the link");
    assert_eq!(no_follow("/a/b/..").parent, ROOT);
}
