//! Times and sizes.

use ebb_types::{Credentials, ErrorKind as E};
use ebb_wire::pb;
use ebb_wire::pb::meta_op::SetAttr;

use super::harness::{MIB, ROOT, World, committed, user, version};

fn alice() -> Credentials {
    user(1000, 100, &[])
}

#[test]
fn chosen_times_are_the_owners_and_now_is_for_writers() {
    let mut world = World::new();
    world.chmod(ROOT, 0o777).unwrap();
    let inode = world.as_user(alice()).mkfile(ROOT, "f", 0o644).unwrap();
    let chosen = SetAttr { inode, atime_ns: Some(5), mtime_ns: Some(-7), ..Default::default() };
    let now = SetAttr { inode, atime_now: true, mtime_now: true, ..Default::default() };
    let attr = world.set_attr(chosen.clone()).unwrap().attr.unwrap();
    assert_eq!((attr.atime_ns, attr.mtime_ns, attr.ctime_ns), (5, -7, world.now));
    world.as_user(user(2000, 200, &[]));
    assert_eq!(world.set_attr(chosen).unwrap_err(), E::NotPermitted);
    assert_eq!(world.set_attr(now.clone()).unwrap_err(), E::AccessDenied);
    assert_eq!(world.set_attr(SetAttr { atime_now: false, ..now.clone() }).unwrap_err(), E::NotPermitted);
    world.as_user(alice()).chmod(inode, 0o666).unwrap();
    world.as_user(user(2000, 200, &[]));
    assert_eq!(world.set_attr(SetAttr { mtime_now: false, ..now.clone() }).unwrap_err(), E::NotPermitted);
    let attr = world.set_attr(now).unwrap().attr.unwrap();
    assert_eq!((attr.atime_ns, attr.mtime_ns, attr.ctime_ns), (world.now, world.now, world.now));
}

#[test]
fn every_change_moves_ctime_and_only_what_it_names() {
    let mut world = World::new();
    let f = world.mkfile(ROOT, "f", 0o644).unwrap();
    let before = world.attr(f);
    let after = world.chmod(f, 0o600).unwrap().attr.unwrap();
    assert_eq!(after, pb::Attr { mode: 0o600, ctime_ns: world.now, ..before });
    let after2 = world.set_attr(SetAttr { inode: f, ..Default::default() }).unwrap().attr.unwrap();
    assert_eq!(after2, after);
}

#[test]
fn mtime_of_a_file_written_elsewhere_is_the_holders() {
    let mut world = World::new();
    let inode = world.create(ROOT, "f", &[1]).attr.unwrap().inode;
    let first = world.session;
    let touch = SetAttr { inode, mtime_ns: Some(1), ..Default::default() };
    world.set_attr(touch.clone()).unwrap();
    world.session = world.open_session();
    world.request = 0;
    assert_eq!(world.set_attr(touch.clone()).unwrap_err(), E::LeaseHeld);
    world.set_attr(SetAttr { inode, atime_ns: Some(1), ..Default::default() }).unwrap();
    world.close_session(first);
    assert_eq!(world.set_attr(touch).unwrap_err(), E::Busy);
}

#[test]
fn a_size_needs_the_lease_unless_it_stays() {
    let mut world = World::new();
    let inode = world.mkfile(ROOT, "f", 0o644).unwrap();
    let size = |size, epoch| SetAttr { inode, size: Some(size), epoch, ..Default::default() };
    assert_eq!(world.set_attr(size(10, 0)).unwrap_err(), E::StaleEpoch);
    let before = world.attr(inode);
    let same = world.set_attr(size(0, 0)).unwrap().attr.unwrap();
    assert_eq!((same.mtime_ns, same.size_generation), (world.now, before.size_generation));
    let epoch = world.acquire(inode).unwrap().epoch;
    assert_eq!(world.set_attr(size(10, epoch - 1)).unwrap_err(), E::StaleEpoch);
    let grown = world.set_attr(size(10, epoch)).unwrap().attr.unwrap();
    assert_eq!((grown.size, grown.size_generation, grown.mtime_ns, grown.ctime_ns), (10, 1, world.now, world.now));
    assert_eq!(world.set_attr(size(i64::MAX as u64 + 1, epoch)).unwrap_err(), E::FileTooLarge);
    assert_eq!(world.set_attr(size(i64::MAX as u64, epoch)).unwrap().attr.unwrap().size, i64::MAX as u64);
    world.session = world.open_session();
    world.request = 0;
    assert_eq!(world.set_attr(size(10, epoch)).unwrap_err(), E::LeaseHeld);
}

#[test]
fn sizes_are_for_writers_of_regular_files() {
    let mut world = World::new();
    let d = world.mkdir(ROOT, "d", 0o777).unwrap();
    let l = world.symlink(ROOT, "l", "x").unwrap();
    let f = world.mkfile(ROOT, "f", 0o6755).unwrap();
    let size = |inode| SetAttr { inode, size: Some(0), ..Default::default() };
    assert_eq!(world.set_attr(size(d)).unwrap_err(), E::IsDirectory);
    assert_eq!(world.set_attr(size(l)).unwrap_err(), E::Invalid);
    // The superuser keeps suid and sgid.
    assert_eq!(world.set_attr(size(f)).unwrap().attr.unwrap().mode, 0o6755);
    world.as_user(alice());
    assert_eq!(world.set_attr(size(f)).unwrap_err(), E::AccessDenied);
    let by_handle = SetAttr { by_handle: true, mtime_now: true, ..size(f) };
    assert_eq!(world.set_attr(by_handle).unwrap().attr.unwrap().mode, 0o755);
}

#[test]
fn a_cut_frees_whole_metablocks_and_names_the_trim_of_the_last() {
    let mut world = World::new();
    let made = world.create(ROOT, "f", &[1, 2]);
    let inode = made.attr.unwrap().inode;
    let second = world
        .place(
            pb::meta_op::Op::Grant(pb::meta_op::Grant { inode, epoch: 1, indexes: vec![1, 2], ..Default::default() }),
            vec![super::harness::placement(&[3, 4]), super::harness::placement(&[5, 6])],
        )
        .unwrap()
        .metablocks;
    let ids: Vec<u64> = made.metablocks.iter().chain(&second).map(|block| block.id).collect();
    let all = ids.iter().map(|id| committed(*id, 1, 3, 64 * MIB)).collect();
    world
        .commit(pb::CommitFile { inode, epoch: 1, size: 192 * MIB, mtime_ns: 9, metablocks: all, ..Default::default() })
        .unwrap();
    assert_eq!(world.attr(inode).allocated_bytes, 192 * MIB);

    let size = 64 * MIB + 100;
    let cut = SetAttr { inode, size: Some(size), epoch: 1, ..Default::default() };
    assert_eq!(world.set_attr(cut.clone()).unwrap_err(), E::Invalid, "bytes are cut and no trim is named");
    let trim = |metablock, seq, length| Some(pb::meta_op::Trim { metablock, version: version(1, seq), length });
    for bad in [trim(ids[0], 4, 100), trim(ids[1], 3, 100), trim(ids[1], 4, 99)] {
        assert_eq!(world.set_attr(SetAttr { trim: bad, ..cut.clone() }).unwrap_err(), E::Invalid);
    }
    let good = SetAttr { trim: trim(ids[1], 4, 100), ..cut };
    let attr = world.set_attr(good).unwrap().attr.unwrap();
    assert_eq!((attr.size, attr.size_generation, attr.allocated_bytes), (size, 1, size));
    let volumes: Vec<u64> = [1, 3, 5].into_iter().filter(|volume| deleted(&world, *volume).contains(&ids[2])).collect();
    assert_eq!(volumes, [5]);
    assert_eq!(world.machine.pending_trim(inode.into_id()), trim(ids[1], 4, 100));

    // It may not grow, nor be given back, before the trim is on all members.
    let grow = SetAttr { inode, size: Some(size + 1), epoch: 1, ..Default::default() };
    assert_eq!(world.set_attr(grow.clone()).unwrap_err(), E::Busy);
    let commit = pb::CommitFile { inode, epoch: 1, size: size + 1, ..Default::default() };
    assert_eq!(world.commit(commit.clone()), Err(E::Busy));
    let release = pb::CommitFile { size, release: true, ..commit.clone() };
    assert_eq!(world.commit(release), Err(E::Busy));
    // Cut again, deeper: the new trim takes the old one's place, and a cut at an edge needs none.
    let deeper =
        SetAttr { inode, size: Some(64 * MIB + 50), epoch: 1, trim: trim(ids[1], 5, 50), ..Default::default() };
    world.set_attr(deeper).unwrap();
    let at_edge = SetAttr { inode, size: Some(64 * MIB), epoch: 1, ..Default::default() };
    world.set_attr(at_edge).unwrap();
    assert_eq!(world.machine.pending_trim(inode.into_id()), None);
    world.set_attr(grow).unwrap();
}

#[test]
fn a_late_commit_does_not_undo_a_cut() {
    let mut world = World::new();
    let made = world.create(ROOT, "f", &[1, 2]);
    let (inode, block) = (made.attr.unwrap().inode, made.metablocks[0].id);
    let late = pb::CommitFile {
        inode,
        epoch: 1,
        size: 500,
        metablocks: vec![committed(block, 1, 1, 500)],
        size_generation: Some(0),
        ..Default::default()
    };
    world.set_attr(SetAttr { inode, size: Some(0), epoch: 1, ..Default::default() }).unwrap();
    assert_eq!(world.commit(late), Err(E::Stale));
    assert_eq!(world.attr(inode).size, 0);
}

#[test]
fn a_trim_is_done_when_the_holder_says_so() {
    let mut world = World::new();
    let made = world.create(ROOT, "f", &[1, 2]);
    let (inode, block) = (made.attr.unwrap().inode, made.metablocks[0].id);
    let written = vec![committed(block, 1, 1, 500)];
    let trim = pb::meta_op::Trim { metablock: block, version: version(1, 2), length: 100 };
    let cut = SetAttr { inode, size: Some(100), epoch: 1, trim: Some(trim), committed: written, ..Default::default() };
    // The record still says that the file is empty; the holder knows better.
    assert_eq!(world.set_attr(SetAttr { trim: None, ..cut.clone() }).unwrap_err(), E::Invalid);
    let attr = world.set_attr(cut).unwrap().attr.unwrap();
    assert_eq!((attr.size, attr.allocated_bytes), (100, 100));
    let commit = pb::CommitFile {
        inode,
        epoch: 1,
        size: 300,
        metablocks: vec![committed(block, 1, 3, 300)],
        trimmed: true,
        ..Default::default()
    };
    world.commit(commit).unwrap();
    assert_eq!((world.attr(inode).size, world.machine.pending_trim(inode.into_id())), (300, None));
}

fn deleted(world: &World, volume: u64) -> Vec<u64> {
    world.machine.deleted_on(ebb_types::VolumeId::new(volume)).map(ebb_types::MetablockId::raw).collect()
}

trait IntoId {
    fn into_id(self) -> ebb_types::InodeId;
}

impl IntoId for u64 {
    fn into_id(self) -> ebb_types::InodeId {
        ebb_types::InodeId::new(self)
    }
}

#[test]
fn change_times_rise_under_a_clock_that_was_set_back() {
    let mut world = World::new();
    let f = world.mkfile(ROOT, "f", 0o644).unwrap();
    let before = world.attr(f).ctime_ns;
    world.now -= 3_600_000_000_000;
    let mut last = before;
    for mode in [0o600, 0o640, 0o644] {
        world.set_attr(pb::meta_op::SetAttr { inode: f, mode: Some(mode), ..Default::default() }).unwrap();
        let now = world.attr(f).ctime_ns;
        assert!(now > last, "{now} after {last}");
        last = now;
    }
    let root = world.attr(ROOT).ctime_ns;
    world.unlink(ROOT, "f").unwrap();
    assert!(world.attr(ROOT).ctime_ns > root);
    world.now += 7_200_000_000_000;
    let f = world.mkfile(ROOT, "g", 0o644).unwrap();
    assert_eq!(world.attr(ROOT).ctime_ns, world.attr(f).ctime_ns, "the clock is ahead again");
}
