//! Leases, grants, commits, sets, recovery and deletes.

use ebb_types::{DatasetId, ErrorKind as E, InodeId, MetablockId, NodeId, SessionId, VolumeId};
use ebb_wire::pb;
use ebb_wire::pb::command::Command as Change;
use ebb_wire::pb::meta_op::{self, Op};

use super::harness::{MIB, ROOT, World, committed, member, members, placement, version};
use crate::{Effect, Machine, Reply};

fn grant(world: &mut World, inode: u64, epoch: u64, indexes: &[u64], volumes: &[&[u64]]) -> super::harness::Answer {
    let op = meta_op::Grant { inode, epoch, indexes: indexes.to_vec(), ..Default::default() };
    world.place(Op::Grant(op), volumes.iter().map(|volumes| placement(volumes)).collect())
}

fn written(world: &mut World, name: &str, volumes: &[u64]) -> (u64, u64) {
    let made = world.create(ROOT, name, volumes);
    let (inode, block) = (made.attr.unwrap().inode, made.metablocks[0].id);
    let file = pb::CommitFile {
        inode,
        epoch: 1,
        size: 1000,
        metablocks: vec![committed(block, 1, 5, 1000)],
        ..Default::default()
    };
    world.commit(file).unwrap();
    (inode, block)
}

fn on(world: &World, volume: u64) -> Vec<u64> {
    world.machine.on_volume(VolumeId::new(volume)).map(MetablockId::raw).collect()
}

fn deleted(world: &World, volume: u64) -> Vec<u64> {
    world.machine.deleted_on(VolumeId::new(volume)).map(MetablockId::raw).collect()
}

#[test]
fn create_brings_lease_and_first_metablock() {
    let mut world = World::new();
    let made = world.create(ROOT, "f", &[1, 2]);
    let (attr, block) = (made.attr.unwrap(), &made.metablocks[0]);
    assert_eq!((attr.epoch, attr.replicas, attr.size), (1, 2, 0));
    assert_eq!((block.index, block.generation, block.min_version().seq), (0, 1, 0));
    let set = Effect::SetChanged {
        inode: InodeId::new(attr.inode),
        dataset: DatasetId::new(0),
        metablock: block.metablock_id(),
        old: Vec::new(),
        new: members(&[1, 2]),
    };
    assert!(world.effects.contains(&set));
    assert_eq!(world.machine.holder(InodeId::new(attr.inode)), Some(SessionId::new(world.session)));
    assert_eq!((on(&world, 1), on(&world, 2)), (vec![block.id], vec![block.id]));
    assert_eq!(world.machine.find_metablock(block.metablock_id()).unwrap().0.raw(), attr.inode);
    // Without volumes the file is made all the same.
    let op = meta_op::Create { parent: ROOT, name: b"g".into(), mode: 0o644, ..Default::default() };
    assert!(world.run(Op::Create(op.clone())).unwrap().metablocks.is_empty());
    let op = meta_op::Create { name: b"h".into(), no_grant: true, ..op };
    assert!(world.place(Op::Create(op), vec![placement(&[1])]).unwrap().metablocks.is_empty());
}

#[test]
fn a_lease_has_one_holder_and_one_epoch() {
    let mut world = World::new();
    let inode = world.mkfile(ROOT, "f", 0o644).unwrap();
    assert_eq!(world.acquire(inode).unwrap().epoch, 1);
    assert_eq!(world.acquire(inode).unwrap().epoch, 1, "asking again changes nothing");
    let first = world.session;
    world.session = world.open_session();
    world.request = 0;
    assert_eq!(world.acquire(inode), Err(E::LeaseHeld));
    assert_eq!(world.acquire(ROOT), Err(E::Invalid));
    assert_eq!(world.acquire(999), Err(E::Stale));
    let second = std::mem::replace(&mut world.session, first);
    world.request = 10;
    world.release(inode);
    assert!(world.effects.contains(&Effect::LeaseEnded { inode: InodeId::new(inode), session: SessionId::new(first) }));
    world.session = second;
    assert_eq!(world.acquire(inode).unwrap().epoch, 2);
    world.session = 999;
    assert_eq!(world.acquire(inode), Err(E::SessionExpired));
}

#[test]
fn grants_are_given_once_and_need_the_lease() {
    let mut world = World::new();
    let inode = world.create(ROOT, "f", &[1, 2]).attr.unwrap().inode;
    let reply = grant(&mut world, inode, 1, &[0, 3, 1], &[&[9, 8], &[3, 4], &[5, 6]]).unwrap();
    let granted: Vec<_> = reply.metablocks.iter().map(|block| (block.index, block.members[0].volume)).collect();
    assert_eq!(granted, [(0, 1), (3, 3), (1, 5)], "in the order asked for; what is there stays where it is");
    let again = grant(&mut world, inode, 1, &[3, 1], &[&[7, 8], &[7, 8]]).unwrap();
    assert_eq!(again.metablocks, reply.metablocks[1..]);
    assert_eq!(world.machine.next_metablock().raw(), 4);
    assert_eq!(grant(&mut world, inode, 1, &[7], &[]).unwrap_err(), E::NoSpace);
    assert_eq!(grant(&mut world, inode, 1, &[7], &[&[]]).unwrap_err(), E::NoSpace);
    assert_eq!(grant(&mut world, inode, 1, &[7], &[&[1, 1]]).unwrap_err(), E::Invalid);
    assert_eq!(grant(&mut world, inode, 2, &[7], &[&[1]]).unwrap_err(), E::StaleEpoch);
    assert_eq!(grant(&mut world, inode, 1, &[1 << 50], &[&[1]]).unwrap_err(), E::FileTooLarge);
    assert_eq!(grant(&mut world, inode, 1, &[u64::MAX], &[&[1]]).unwrap_err(), E::FileTooLarge);
    let last = (i64::MAX as u64) / (64 * MIB);
    assert_eq!(grant(&mut world, inode, 1, &[last], &[&[1]]).unwrap().metablocks[0].index, last);
    assert_eq!(grant(&mut world, inode, 1, &vec![0; 1025], &[]).unwrap_err(), E::Invalid);
    world.session = world.open_session();
    world.request = 0;
    assert_eq!(grant(&mut world, inode, 1, &[8], &[&[1]]).unwrap_err(), E::StaleEpoch);
}

#[test]
fn commits_record_synced_bytes_and_may_overtake_each_other() {
    let mut world = World::new();
    let made = world.create(ROOT, "f", &[1, 2]);
    let (inode, block) = (made.attr.unwrap().inode, made.metablocks[0].id);
    let commit = |seq, length| pb::CommitFile {
        inode,
        epoch: 1,
        size: length,
        mtime_ns: 5,
        metablocks: vec![committed(block, 1, seq, length)],
        ..Default::default()
    };
    world.commit(commit(7, 700)).unwrap();
    world.commit(commit(3, 300)).unwrap();
    let attr = world.attr(inode);
    assert_eq!((attr.size, attr.allocated_bytes, attr.mtime_ns), (700, 700, 5));
    let recorded = &world.machine.metablocks(InodeId::new(inode)).unwrap()[0];
    assert_eq!((recorded.version, recorded.length), (version(1, 7), 700));
    assert_eq!(world.commit(commit(8, 64 * MIB + 1)), Err(E::Invalid));
    assert_eq!(world.commit(pb::CommitFile { size: u64::MAX, ..commit(8, 1) }), Err(E::FileTooLarge));
    assert_eq!(world.commit(pb::CommitFile { epoch: 2, ..commit(8, 1) }), Err(E::StaleEpoch));
    assert_eq!(
        world.commit(pb::CommitFile { metablocks: vec![committed(block, 2, 1, 1)], ..commit(8, 1) }),
        Err(E::Invalid)
    );
    assert_eq!(
        world.commit(pb::CommitFile { metablocks: vec![committed(77, 1, 1, 1)], ..commit(8, 1) }),
        Err(E::NotFound)
    );
    assert_eq!(world.commit(pb::CommitFile { inode: 99, ..commit(8, 1) }), Err(E::NotFound));
    assert_eq!(world.commit(pb::CommitFile { inode: ROOT, ..commit(8, 1) }), Err(E::Invalid));
}

#[test]
fn one_refused_file_does_not_hold_up_the_others() {
    let mut world = World::new();
    let a = world.create(ROOT, "a", &[1]).attr.unwrap().inode;
    let b = world.create(ROOT, "b", &[1]).attr.unwrap().inode;
    let file = |inode, epoch| pb::CommitFile { inode, epoch, size: 10, ..Default::default() };
    let reply = world.run(Op::Commit(meta_op::Commit { files: vec![file(a, 9), file(b, 1)] })).unwrap();
    assert_eq!(reply.refusals.iter().map(|refusal| refusal.inode).collect::<Vec<_>>(), [a]);
    assert_eq!((world.attr(a).size, world.attr(b).size), (0, 10));
}

#[test]
fn ctime_follows_a_commit_but_never_runs_ahead() {
    let mut world = World::new();
    let inode = world.create(ROOT, "f", &[1]).attr.unwrap().inode;
    let commit = |mtime_ns| pb::CommitFile { inode, epoch: 1, mtime_ns, ..Default::default() };
    let before = world.attr(inode).ctime_ns;
    world.commit(commit(before + 1)).unwrap();
    assert_eq!((world.attr(inode).mtime_ns, world.attr(inode).ctime_ns), (before + 1, before + 1));
    world.commit(commit(i64::MAX)).unwrap();
    assert_eq!((world.attr(inode).mtime_ns, world.attr(inode).ctime_ns), (i64::MAX, world.now));
    world.commit(commit(3)).unwrap();
    assert_eq!(world.attr(inode).mtime_ns, 3);
    world.chmod(inode, 0o6755).unwrap();
    world.commit(pb::CommitFile { kill_privileges: true, ..commit(0) }).unwrap();
    assert_eq!(world.attr(inode).mode, 0o755);
}

#[test]
fn release_frees_grants_that_were_not_written() {
    let mut world = World::new();
    let (inode, first) = written(&mut world, "f", &[1, 2]);
    let second = grant(&mut world, inode, 1, &[1], &[&[2, 3]]).unwrap().metablocks[0].id;
    world.release(inode);
    let freed = Effect::SetChanged {
        inode: InodeId::new(inode),
        dataset: DatasetId::new(0),
        metablock: MetablockId::new(second),
        old: members(&[2, 3]),
        new: Vec::new(),
    };
    assert!(world.effects.contains(&freed));
    assert_eq!((on(&world, 2), on(&world, 3)), (vec![first], vec![]));
    assert_eq!((deleted(&world, 2), deleted(&world, 3)), (vec![second], vec![second]));
    assert!(world.machine.find_metablock(MetablockId::new(second)).is_none());
    let drop = pb::DropDeleted { volume: 2, metablocks: vec![second, 12345] };
    world.apply(Change::DropDeleted(drop)).reply.unwrap();
    assert_eq!((deleted(&world, 2), deleted(&world, 3)), (vec![], vec![second]));
}

#[test]
fn sets_change_by_compare_and_swap() {
    let mut world = World::new();
    let (inode, block) = written(&mut world, "f", &[1, 2]);
    let change = |generation, volumes: &[u64]| meta_op::ChangeSet {
        inode,
        epoch: 1,
        metablock: block,
        generation,
        members: members(volumes),
        version: version(1, 9),
    };
    let reply = world.run(Op::ChangeSet(change(1, &[1, 3]))).unwrap();
    let now = &reply.metablocks[0];
    assert_eq!((now.generation, now.version, now.length), (2, version(1, 9), 1000));
    assert_eq!((on(&world, 1), on(&world, 2), on(&world, 3)), (vec![block], vec![], vec![block]));
    assert!(deleted(&world, 2).is_empty(), "what a set leaves behind is excess, not deleted by id");
    assert_eq!(world.run(Op::ChangeSet(change(1, &[1, 4]))).unwrap_err(), E::SetChanged);
    assert_eq!(world.run(Op::ChangeSet(change(2, &[]))).unwrap_err(), E::Invalid);
    assert_eq!(
        world.run(Op::ChangeSet(meta_op::ChangeSet { metablock: 99, ..change(2, &[1]) })).unwrap_err(),
        E::NotFound
    );
    assert_eq!(
        world.run(Op::ChangeSet(meta_op::ChangeSet { epoch: 0, ..change(2, &[1]) })).unwrap_err(),
        E::StaleEpoch
    );
    let ahead = meta_op::ChangeSet { version: version(2, 0), ..change(2, &[1]) };
    assert_eq!(world.run(Op::ChangeSet(ahead)).unwrap_err(), E::Invalid);
}

#[test]
fn the_master_changes_sets_of_files_without_a_holder() {
    let mut world = World::new();
    let (inode, block) = written(&mut world, "f", &[1, 2]);
    let change = |epoch, generation| {
        Change::ChangeSet(pb::MasterChangeSet { inode, epoch, metablock: block, generation, members: members(&[2, 3]) })
    };
    let refused = |world: &mut World, command| world.apply(command).reply.unwrap_err().kind();
    assert_eq!(refused(&mut world, change(1, 1)), E::LeaseHeld);
    world.release(inode);
    assert_eq!(refused(&mut world, change(2, 1)), E::StaleEpoch);
    assert_eq!(refused(&mut world, change(1, 2)), E::SetChanged);
    assert_eq!(world.apply(change(1, 1)).reply.unwrap(), Reply::None);
    assert_eq!(on(&world, 3), [block]);
    // A lease granted while a copy was made lets it fail.
    world.acquire(inode).unwrap();
    assert_eq!(refused(&mut world, change(1, 2)), E::StaleEpoch);
}

fn begin_recovery(world: &mut World, inode: u64, expected_epoch: u64) -> Result<u64, E> {
    match world.apply(Change::BeginRecovery(pb::BeginRecovery { inode, expected_epoch })).reply {
        Ok(Reply::Epoch(epoch)) => Ok(epoch.raw()),
        Ok(other) => panic!("not an epoch: {other:?}"),
        Err(error) => Err(error.kind()),
    }
}

fn finish(world: &mut World, finish: pb::FinishRecovery) -> Result<(), E> {
    world.apply(Change::FinishRecovery(finish)).reply.map(|_| ()).map_err(|error| error.kind())
}

#[test]
fn a_lost_holder_leaves_a_file_to_recover() {
    let mut world = World::new();
    let (inode, block) = written(&mut world, "f", &[1, 2]);
    let unwritten = grant(&mut world, inode, 1, &[1, 2], &[&[2, 3], &[3, 4]]).unwrap().metablocks;
    let lost = world.session;
    let id = InodeId::new(inode);
    world.close_session(lost);
    assert!(world.effects.contains(&Effect::NeedsRecovery(id)));
    assert!(world.effects.contains(&Effect::LeaseEnded { inode: id, session: SessionId::new(lost) }));
    assert_eq!((world.machine.recovering().collect::<Vec<_>>(), world.machine.holder(id)), (vec![id], None));
    assert!(world.attr(inode).size_unknown);
    world.session = world.open_session();
    world.request = 0;
    assert_eq!(world.acquire(inode), Err(E::Busy));

    assert_eq!(begin_recovery(&mut world, inode, 9), Err(E::StaleEpoch));
    assert_eq!(begin_recovery(&mut world, inode, 1), Ok(2));
    assert_eq!(begin_recovery(&mut world, inode, 2), Ok(3), "one that died is begun again");
    assert_eq!(begin_recovery(&mut world, ROOT, 0), Err(E::Invalid));

    let found = |id: u64, version, length, volumes: &[u64]| pb::Metablock {
        id,
        version,
        length,
        members: members(volumes),
        ..Default::default()
    };
    let done = |metablocks| pb::FinishRecovery { inode, epoch: 3, size: 64 * MIB + 5, metablocks, written: true };
    let first = || found(block, version(3, 0), 64 * MIB, &[1]);
    assert_eq!(finish(&mut world, done(vec![])), Err(E::Invalid), "a committed metablock is missing");
    assert_eq!(
        finish(&mut world, done(vec![found(block, version(1, 4), 9, &[1])])),
        Err(E::Invalid),
        "below committed"
    );
    assert_eq!(finish(&mut world, done(vec![found(block, version(3, 0), 9, &[])])), Err(E::Invalid), "no member");
    assert_eq!(finish(&mut world, done(vec![first(), found(99, version(3, 0), 9, &[1])])), Err(E::NotFound));
    assert_eq!(finish(&mut world, pb::FinishRecovery { epoch: 2, ..done(vec![first()]) }), Err(E::StaleEpoch));
    let metablocks = vec![
        first(),
        found(unwritten[0].id, version(3, 0), 5, &[2, 3]),
        found(unwritten[1].id, version(0, 0), 0, &[3, 4]),
    ];
    finish(&mut world, done(metablocks)).unwrap();
    let attr = world.attr(inode);
    assert_eq!((attr.size, attr.size_unknown, attr.mtime_ns, attr.epoch), (64 * MIB + 5, false, world.now, 3));
    assert_eq!(world.machine.metablocks(id).unwrap().iter().map(|block| block.generation).collect::<Vec<_>>(), [2, 1]);
    assert_eq!((on(&world, 2), on(&world, 4)), (vec![unwritten[0].id], vec![]));
    assert_eq!(deleted(&world, 4), [unwritten[1].id]);
    assert_eq!(finish(&mut world, done(vec![])), Err(E::StaleEpoch), "it is over");
    assert_eq!(world.acquire(inode).unwrap().epoch, 4);
}

#[test]
fn recovery_keeps_the_committed_size_and_a_quiet_files_times() {
    let mut world = World::new();
    let (inode, block) = written(&mut world, "f", &[1, 2]);
    let before = world.attr(inode);
    world.close_session(world.session);
    begin_recovery(&mut world, inode, 1).unwrap();
    let found = pb::Metablock {
        id: block,
        version: version(2, 0),
        length: 1000,
        members: members(&[1, 2]),
        ..Default::default()
    };
    finish(&mut world, pb::FinishRecovery { inode, epoch: 2, size: 10, metablocks: vec![found], written: false })
        .unwrap();
    let after = world.attr(inode);
    assert_eq!((after.size, after.mtime_ns, after.ctime_ns), (1000, before.mtime_ns, before.ctime_ns));
    assert_eq!(world.machine.metablocks(InodeId::new(inode)).unwrap()[0].generation, 1);
}

#[test]
fn fencing_takes_the_lease_from_a_live_holder() {
    let mut world = World::new();
    let (inode, _) = written(&mut world, "f", &[1, 2]);
    begin_recovery(&mut world, inode, 1).unwrap();
    assert!(world.effects.contains(&Effect::LeaseEnded { inode: InodeId::new(inode), session: SessionId::new(1) }));
    assert_eq!(world.machine.held_files(SessionId::new(1)).count(), 0);
    assert_eq!(world.commit(pb::CommitFile { inode, epoch: 1, ..Default::default() }), Err(E::StaleEpoch));
    assert_eq!(grant(&mut world, inode, 1, &[1], &[&[1]]).unwrap_err(), E::StaleEpoch);
}

#[test]
fn reaping_a_file_frees_all_that_it_has() {
    let mut world = World::new();
    let (inode, block) = written(&mut world, "f", &[1, 2]);
    world.lock(inode, super::harness::flock(2, 1), false).unwrap();
    world.unlink(ROOT, "f").unwrap();
    assert_eq!(on(&world, 1), [block], "it may still be open");
    assert_eq!(world.machine.orphans().collect::<Vec<_>>(), [InodeId::new(inode)]);
    world.reap(&[inode]);
    assert!(world.effects.contains(&Effect::Freed(InodeId::new(inode))));
    assert!(world.effects.iter().any(|effect| matches!(effect, Effect::LeaseEnded { .. })));
    assert_eq!((on(&world, 1), deleted(&world, 1), deleted(&world, 2)), (vec![], vec![block], vec![block]));
    assert_eq!(world.machine.counts().orphans, 0);
}

#[test]
fn the_map_is_sent_in_pages() {
    let mut world = World::new();
    let inode = world.create(ROOT, "f", &[1]).attr.unwrap().inode;
    for index in (2..40).step_by(2) {
        grant(&mut world, inode, 1, &[index], &[&[1, 2]]).unwrap();
    }
    let page = |first_index, limit| world.ask(Op::GetMap(meta_op::GetMap { inode, first_index, limit })).unwrap();
    let indexes = |reply: &pb::MetaReply| reply.metablocks.iter().map(|block| block.index).collect::<Vec<_>>();
    assert_eq!((indexes(&page(0, 3)), page(0, 3).end), (vec![0, 2, 4], false));
    assert_eq!((indexes(&page(35, 3)), page(35, 3).end), (vec![36, 38], true));
    assert_eq!((page(0, 0).metablocks.len(), page(0, 0).end), (20, true));
    assert_eq!(world.ask(Op::GetMap(meta_op::GetMap { inode: ROOT, ..Default::default() })).unwrap_err(), E::Invalid);
}

/// What is away from home, by home.
fn away(world: &World) -> Vec<(u64, u64)> {
    let all = world.machine.away_from(NodeId::default(), MetablockId::default());
    all.map(|(home, metablock)| (home.raw(), metablock.raw())).collect()
}

#[test]
fn guests_are_recorded_with_their_homes_and_known_by_them() {
    let mut world = World::new();
    let (inode, block) = written(&mut world, "f", &[1, 2]);
    let guest = |volume: u64, home: u64| pb::Member { home, ..member(volume) };
    let change = |generation, members: Vec<pb::Member>| {
        Op::ChangeSet(meta_op::ChangeSet {
            inode,
            epoch: 1,
            metablock: block,
            generation,
            members,
            version: version(1, 9),
        })
    };
    // Two that belong to one node, one where another belongs, and one that is its own guest.
    for refused in
        [[guest(3, 5), guest(4, 5)], [member(1), guest(3, 1)], [guest(1, 2), guest(2, 4)], [guest(1, 1), member(2)]]
    {
        assert_eq!(world.run(change(1, refused.to_vec())).unwrap_err(), E::Invalid, "{refused:?}");
    }
    assert!(away(&world).is_empty());
    let set = vec![guest(3, 1), guest(4, 2)];
    assert_eq!(world.run(change(1, set.clone())).unwrap().metablocks[0].members, set);
    assert_eq!(away(&world), [(1, block), (2, block)]);
    world.machine = super::determinism::through_checkpoint(&world.machine);
    assert_eq!(away(&world), [(1, block), (2, block)]);
    world.run(change(2, vec![member(1), guest(4, 2)])).unwrap();
    assert_eq!(away(&world), [(2, block)]);
    world.run(Op::Unlink(meta_op::Unlink { parent: ROOT, name: b"f".into() })).unwrap();
    world.reap(&[inode]);
    assert!(away(&world).is_empty());
    assert_eq!(world.machine.check(), Vec::<String>::new());
}

#[test]
fn a_set_of_one_member_knows_its_incarnation() {
    let mut world = World::new();
    let op = meta_op::Create { parent: ROOT, name: b"f".into(), ..Default::default() };
    let place = pb::Placement { members: vec![pb::Member { incarnation: 9, ..member(4) }] };
    let reply = world.place(Op::Create(op), vec![place]).unwrap();
    assert_eq!(reply.metablocks[0].members[0].incarnation, 9);
}

#[test]
fn a_file_without_a_name_gets_its_first_one_and_no_second() {
    let mut world = World::new();
    let unnamed =
        |linkable| meta_op::Create { parent: ROOT, mode: 0o600, unnamed: true, linkable, ..Default::default() };
    let link = |inode, name: &str| Op::Link(meta_op::Link { inode, parent: ROOT, name: name.into() });
    let directory = world.machine.attr(InodeId::ROOT).unwrap();
    let made = world.place(Op::Create(unnamed(true)), vec![placement(&[1, 2])]).unwrap();
    let inode = made.attr.unwrap().inode;
    assert_eq!((made.attr.unwrap().nlink, made.metablocks.len(), made.created), (0, 1, true));
    let orphans = |world: &World| world.machine.orphans().map(InodeId::raw).collect::<Vec<_>>();
    assert_eq!(orphans(&world), [inode]);
    assert_eq!(world.machine.attr(InodeId::ROOT).unwrap(), directory, "the directory does not change");
    assert_eq!(world.machine.unacknowledged_opens().last(), Some((SessionId::new(world.session), InodeId::new(inode))));
    assert_eq!(world.run(link(inode, "f")).unwrap().attr.unwrap().nlink, 1);
    assert!(orphans(&world).is_empty());
    world.run(Op::Unlink(meta_op::Unlink { parent: ROOT, name: b"f".into() })).unwrap();
    assert_eq!(world.run(link(inode, "g")).unwrap_err(), E::NotFound, "once it had a name it is like any other");

    let never = world.run(Op::Create(unnamed(false))).unwrap().attr.unwrap().inode;
    assert_eq!(world.run(link(never, "g")).unwrap_err(), E::NotFound);
    let named = meta_op::Create { name: b"x".into(), ..unnamed(true) };
    assert_eq!(world.run(Op::Create(named)).unwrap_err(), E::Invalid);
    let nowhere = meta_op::Create { parent: inode, ..unnamed(true) };
    assert_eq!(world.run(Op::Create(nowhere)).unwrap_err(), E::NotDirectory);
    assert_eq!(world.machine.check(), Vec::<String>::new());
}

/// Goal: that the bytes of a removed file are thrown away is known to every later process, whatever else keeps its holder from
/// committing, and of no other file.
#[test]
fn a_removed_file_whose_bytes_were_thrown_away_is_known_as_such_after_a_checkpoint() {
    let mut world = World::new();
    let gone = |inode, epoch| pb::CommitFile { inode, epoch, gone: true, ..Default::default() };
    let unlink = |name: &str| Op::Unlink(meta_op::Unlink { parent: ROOT, name: name.into() });
    let emptied = |world: &World, inode| world.machine.is_emptied(InodeId::new(inode));
    let names = ["named", "held", "overtaken"];
    let [named, held, overtaken] = names.map(|name| world.create(ROOT, name, &[1]).attr.unwrap().inode);
    world.run(unlink("held")).unwrap();
    world.run(unlink("overtaken")).unwrap();
    world.commit(gone(named, 1)).unwrap();
    assert!(!emptied(&world, named) && world.attr(named).size_unknown, "it has a name: its bytes are searched for");
    assert_eq!(world.commit(gone(held, 7)), Err(E::StaleEpoch));
    assert!(!emptied(&world, held), "its holder is another, or its lease is over");
    world.commit(gone(held, 1)).unwrap();
    world.commit(pb::CommitFile { size_generation: Some(9), ..gone(overtaken, 1) }).unwrap();
    let unnamed = meta_op::Create { parent: ROOT, unnamed: true, linkable: true, ..Default::default() };
    let unnamed = world.run(Op::Create(unnamed)).unwrap().attr.unwrap().inode;
    world.commit(gone(unnamed, 1)).unwrap();
    let link = meta_op::Link { inode: unnamed, parent: ROOT, name: b"late".into() };
    assert_eq!(world.run(Op::Link(link)).unwrap_err(), E::NotFound);
    assert_eq!(world.ask(Op::GetAttr(meta_op::GetAttr { inode: held })).unwrap_err(), E::Stale);
    assert_eq!(world.machine.check(), Vec::<String>::new());

    let mut records = Vec::new();
    world.machine.encode_records(9, 1, |record| records.push(record.to_vec()));
    let (loaded, ..) = Machine::from_records(records.iter().map(|record| Ok(&record[..]))).unwrap();
    let state = |inode| (loaded.is_emptied(InodeId::new(inode)), loaded.holder(InodeId::new(inode)));
    assert_eq!([named, held, overtaken, unnamed].map(state), [false, true, true, true].map(|emptied| (emptied, None)));
}
