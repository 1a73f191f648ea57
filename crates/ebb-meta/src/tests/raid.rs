//! RAID sets: what a Seal compares, what is frozen, who dies with whom, and what a checkpoint keeps.

use ebb_types::{ErrorKind as E, MetablockId, RaidSetId, VolumeId};
use ebb_wire::pb;
use pb::command::Command as Change;
use pb::meta_op::{self, Op};

use super::determinism::through_checkpoint;
use super::extras::{change, extras};
use super::harness::{MIB, ROOT, World, committed, member, members, placement, version};
use crate::Reply;

const CODE: pb::RaidCode = pb::RaidCode { copies: 1, slots: 2, rows: 1, domain: 0 };

/// A file with one committed metablock on these volumes, without a holder.
fn settled(world: &mut World, name: &str, volumes: &[u64]) -> (u64, u64) {
    let made = world.create(ROOT, name, volumes);
    let (inode, block) = (made.attr.unwrap().inode, made.metablocks[0].id);
    let metablocks = vec![committed(block, 1, 3, MIB)];
    let file = pb::CommitFile { inode, epoch: 1, size: MIB, metablocks, release: true, ..Default::default() };
    world.commit(file).unwrap();
    (inode, block)
}

fn apply(world: &mut World, change: Change) -> Result<Reply, E> {
    world.apply(change).reply.map_err(|error| error.kind())
}

fn take_ids(world: &mut World, count: u32) -> u64 {
    match apply(world, Change::TakeIds(count)).unwrap() {
        Reply::Ids { first, .. } => first.raw(),
        other => panic!("not ids: {other:?}"),
    }
}

/// A RAID set of these files, as a leader would propose it: its id, its row's id, and the row on this volume.
fn proposed(world: &World, id: u64, row: (u64, u64), files: &[(u64, u64)]) -> pb::RaidSet {
    let slot = |(inode, block): &(u64, u64)| {
        let (_, record) = world.machine.find_metablock(MetablockId::new(*block)).unwrap();
        let length = record.frozen.map_or(record.length, |frozen| frozen.length);
        pb::RaidSlot { metablock: *block, inode: *inode, version: record.version, length, ..Default::default() }
    };
    let rows = vec![pb::RaidRow { metablock: row.0, member: Some(member(row.1)), length: MIB + 16 }];
    pb::RaidSet { id, dataset: 0, code: Some(CODE), generation: 0, slots: files.iter().map(slot).collect(), rows }
}

fn seal(world: &mut World, set: pb::RaidSet) -> Result<Reply, E> {
    apply(world, Change::SealSets(pb::SealSets { sets: vec![set], dissolves: Vec::new() }))
}

struct Sealed {
    world: World,
    raid_set: u64,
    row: u64,
    a: (u64, u64),
    b: (u64, u64),
}

impl Sealed {
    /// Two files on (1, 3) and (2, 3), and their row on 4.
    fn new() -> Self {
        let mut world = World::new();
        let a = settled(&mut world, "a", &[1, 3]);
        let b = settled(&mut world, "b", &[2, 3]);
        let raid_set = take_ids(&mut world, 2);
        let row = raid_set + 1;
        let set = proposed(&world, raid_set, (row, 4), &[a, b]);
        seal(&mut world, set).unwrap();
        Self { world, raid_set, row, a, b }
    }

    fn thin() -> Self {
        let mut sealed = Self::new();
        sealed.stay(&[1], &[2]).unwrap();
        sealed.drop_copies().unwrap();
        sealed
    }

    fn record(&self) -> Option<pb::RaidSet> {
        self.world.machine.raid_set(RaidSetId::new(self.raid_set))
    }

    fn generation(&self) -> u64 {
        self.record().unwrap().generation
    }

    fn stay(&mut self, a: &[u64], b: &[u64]) -> Result<Reply, E> {
        let (raid_set, generation) = (self.raid_set, self.generation());
        let stay = vec![placement(a), placement(b)];
        apply(&mut self.world, Change::ThinSet(pb::ThinSet { raid_set, generation, stay }))
    }

    fn drop_copies(&mut self) -> Result<Reply, E> {
        let (raid_set, generation) = (self.raid_set, self.generation());
        apply(&mut self.world, Change::DropCopies(pb::DropCopies { raid_set, generation }))
    }

    fn shift(&mut self, metablock: u64, volumes: &[u64]) -> Result<Reply, E> {
        let (raid_set, generation, members) = (self.raid_set, self.generation(), members(volumes));
        apply(&mut self.world, Change::MoveFrozen(pb::MoveFrozen { raid_set, generation, metablock, members }))
    }

    fn is_placed(&self, block: u64, volume: u64) -> bool {
        self.world.machine.is_placed_on(MetablockId::new(block), VolumeId::new(volume))
    }

    fn has(&self, block: u64) -> bool {
        self.world.machine.has_metablock(MetablockId::new(block))
    }

    fn remove(&mut self, name: &str, inode: u64) {
        self.world.unlink(ROOT, name).unwrap();
        self.world.reap(&[inode]);
    }

    /// The heir of a's metablock, for its new holder.
    fn heir(&mut self) -> pb::Metablock {
        let inode = self.a.0;
        let epoch = self.world.acquire(inode).unwrap().epoch;
        let grant = meta_op::Grant { inode, epoch, indexes: vec![0], ..Default::default() };
        self.world.place(Op::Grant(grant), vec![placement(&[5, 6])]).unwrap().metablocks.remove(0)
    }

    fn swap(&mut self, heir: &pb::Metablock, length: u64) -> Result<pb::MetaReply, E> {
        let (inode, metablock) = self.a;
        let epoch = self.world.attr(inode).epoch;
        let op = meta_op::Swap { inode, epoch, metablock, heir: heir.id, version: version(1, 3), length };
        self.world.run(Op::Swap(op))
    }
}

#[test]
fn a_seal_is_compared_with_what_the_files_are_now() {
    let mut world = World::new();
    let a = settled(&mut world, "a", &[1, 3]);
    let b = settled(&mut world, "b", &[2, 3]);
    let id = take_ids(&mut world, 2);
    let good = proposed(&world, id, (id + 1, 4), &[a, b]);
    let refused = |world: &mut World, change: &dyn Fn(&mut pb::RaidSet)| {
        let mut set = good.clone();
        change(&mut set);
        seal(world, set).unwrap_err()
    };
    assert_eq!(refused(&mut world, &|set| set.slots[0].version = version(1, 2)), E::SetChanged);
    assert_eq!(refused(&mut world, &|set| set.slots[0].length -= 1), E::SetChanged);
    assert_eq!(refused(&mut world, &|set| set.slots[1] = set.slots[0].clone()), E::Invalid, "one metablock twice");
    assert_eq!(refused(&mut world, &|set| drop(set.slots.pop())), E::Invalid, "one member is no RAID set");
    assert_eq!(refused(&mut world, &|set| set.rows.clear()), E::Invalid);
    assert_eq!(refused(&mut world, &|set| set.rows[0].metablock = a.1), E::Stale, "an id that was not taken");
    assert_eq!(refused(&mut world, &|set| set.slots[0].inode = b.0), E::NotFound);
    assert_eq!(refused(&mut world, &|set| set.rows[0].length = 5), E::Invalid, "shorter than a slot");
    assert_eq!(refused(&mut world, &|set| set.code = Some(pb::RaidCode { slots: 99, ..CODE })), E::Invalid);
    // A writer comes, writes another part of the file or nothing at all, and goes.
    world.acquire(a.0).unwrap();
    assert_eq!(refused(&mut world, &|_| {}), E::LeaseHeld);
    world.release(a.0);
    seal(&mut world, good.clone()).unwrap();
    assert_eq!(seal(&mut world, good), Err(E::Stale), "its ids are used");
}

#[test]
fn what_lacks_a_copy_is_not_sealed() {
    let mut world = World::new();
    let (a, b) = (settled(&mut world, "a", &[1]), settled(&mut world, "b", &[2, 3]));
    let id = take_ids(&mut world, 2);
    let set = proposed(&world, id, (id + 1, 4), &[a, b]);
    assert_eq!(seal(&mut world, set), Err(E::Busy));
}

/// A check that one run of the master wrote may have been found to be a stray, and be deleted, by the next.
#[test]
fn ids_of_an_earlier_run_are_worth_nothing() {
    let mut world = World::new();
    let (a, b) = (settled(&mut world, "a", &[1, 3]), settled(&mut world, "b", &[2, 3]));
    let id = take_ids(&mut world, 2);
    let set = proposed(&world, id, (id + 1, 4), &[a, b]);
    apply(&mut world, Change::BeginRun(pb::BeginRun { lineage: 5, mark: 2, after: 0 })).unwrap();
    assert_eq!(seal(&mut world, set), Err(E::Stale));
    assert!(take_ids(&mut world, 1) > id + 1, "and they are not given again");
}

#[test]
fn copies_leave_first_and_go_afterwards() {
    let mut sealed = Sealed::new();
    let (a, b) = (sealed.a.1, sealed.b.1);
    assert_eq!(sealed.stay(&[3], &[3]), Err(E::Invalid), "two slots on one node");
    assert_eq!(sealed.stay(&[5], &[2]), Err(E::SetChanged), "no copy is there");
    sealed.stay(&[1], &[2]).unwrap();
    let record = sealed.record().unwrap();
    assert_eq!((record.slots[0].members.clone(), record.slots[0].leaving.clone()), (members(&[1]), members(&[3])));
    assert!(sealed.is_placed(a, 3) && sealed.is_placed(b, 3), "what leaves is a source, and no excess");
    // The member that was to stay is lost: what leaves takes its place, though the row may not lie there.
    assert_eq!(sealed.shift(a, &[4]), Err(E::Invalid), "beside the row");
    sealed.shift(a, &[3]).unwrap();
    assert_eq!(sealed.record().unwrap().slots[0].leaving, []);
    sealed.drop_copies().unwrap();
    assert!(!sealed.is_placed(b, 3) && sealed.is_placed(a, 3) && sealed.is_placed(b, 2));
}

#[test]
fn a_slot_may_have_extra_copies_beside_its_members() {
    let mut sealed = Sealed::new();
    let block = sealed.a.1;
    sealed.stay(&[1], &[2]).unwrap();
    assert_eq!(change(&mut sealed.world, block, &[], &[3]), Err(E::Invalid), "the copy there leaves");
    change(&mut sealed.world, block, &[], &[5]).unwrap();
    sealed.drop_copies().unwrap();
    change(&mut sealed.world, block, &[5], &[5, 6]).unwrap();
    sealed.shift(block, &[5]).unwrap();
    assert_eq!(extras(&sealed.world, block), [6], "the member made again lies where an extra copy was");
    // A writer ends them, and so does another RAID set.
    sealed.heir();
    assert!(extras(&sealed.world, block).is_empty());
}

#[test]
fn what_is_frozen_is_neither_written_nor_moved_nor_stamped() {
    let mut sealed = Sealed::thin();
    let (inode, block) = sealed.a;
    let epoch = sealed.world.acquire(inode).unwrap().epoch;
    let commit = |seq| pb::CommitFile {
        inode,
        epoch,
        size: MIB,
        metablocks: vec![committed(block, epoch, seq, MIB)],
        ..Default::default()
    };
    assert_eq!(sealed.world.commit(commit(1)), Err(E::Busy));
    let known = pb::CommitFile { metablocks: vec![committed(block, 1, 3, MIB)], ..commit(1) };
    sealed.world.commit(known).expect("it says what is recorded");
    let (_, record) = sealed.world.machine.find_metablock(MetablockId::new(block)).unwrap();
    let op = meta_op::ChangeSet {
        inode,
        epoch,
        metablock: block,
        generation: record.generation,
        members: members(&[7]),
        version: version(1, 3),
    };
    assert_eq!(sealed.world.run(Op::ChangeSet(op)).unwrap_err(), E::Busy);
    // The holder dies: a recovery asks for nothing that is frozen.
    apply(&mut sealed.world, Change::BeginRecovery(pb::BeginRecovery { inode, expected_epoch: epoch })).unwrap();
    let epoch = sealed.world.attr(inode).epoch;
    let finish = pb::FinishRecovery { inode, epoch, size: MIB, ..Default::default() };
    let named =
        pb::FinishRecovery { metablocks: vec![pb::Metablock { members: members(&[1]), ..record }], ..finish.clone() };
    assert_eq!(apply(&mut sealed.world, Change::FinishRecovery(named)), Err(E::Invalid));
    apply(&mut sealed.world, Change::FinishRecovery(finish)).unwrap();
    assert!(sealed.has(block), "it is not freed, though the recovery did not name it");
}

#[test]
fn a_cut_inside_what_is_frozen_is_recorded_alone() {
    let mut sealed = Sealed::thin();
    let (inode, block) = sealed.a;
    let epoch = sealed.world.acquire(inode).unwrap().epoch;
    let cut = |size| meta_op::SetAttr { inode, size: Some(size), epoch, ..Default::default() };
    sealed.world.set_attr(cut(100)).expect("no trim, and no room for an heir is needed");
    let (_, record) = sealed.world.machine.find_metablock(MetablockId::new(block)).unwrap();
    assert_eq!((record.length, record.frozen.unwrap().length), (100, MIB));
    // To nothing: the metablock goes, and is ballast.
    sealed.world.set_attr(cut(0)).unwrap();
    assert_eq!(sealed.record().unwrap().slots[0].inode, 0);
    assert!(sealed.is_placed(block, 1) && sealed.world.machine.find_metablock(MetablockId::new(block)).is_none());
}

#[test]
fn ballast_stays_until_the_last_slot_dies() {
    let mut sealed = Sealed::thin();
    let (a, b) = (sealed.a, sealed.b);
    sealed.remove("a", a.0);
    assert!(sealed.has(a.1) && sealed.has(sealed.row));
    let copy = through_checkpoint(&sealed.world.machine);
    assert_eq!((copy.digest(), copy.check()), (sealed.world.machine.digest(), vec![]));
    sealed.remove("b", b.0);
    assert_eq!(sealed.record(), None);
    assert!(!sealed.has(a.1) && !sealed.has(b.1) && !sealed.has(sealed.row));
    let deleted: Vec<u64> = sealed.world.machine.deleted_on(VolumeId::new(4)).map(MetablockId::raw).collect();
    assert_eq!(deleted, [sealed.row]);
    assert_eq!(sealed.world.machine.deleted_on(VolumeId::new(1)).count(), 1);
}

/// A slot dies before its copies were dropped: all of them are ballast, for nobody found the RAID set sound without them.
#[test]
fn copies_that_leave_are_ballast_with_their_slot() {
    let mut sealed = Sealed::new();
    sealed.stay(&[1], &[2]).unwrap();
    let a = sealed.a;
    sealed.remove("a", a.0);
    assert_eq!(sealed.record().unwrap().slots[0].members, members(&[1, 3]));
    assert!(sealed.is_placed(a.1, 3));
}

#[test]
fn an_heir_takes_the_place_of_what_is_written() {
    let mut sealed = Sealed::thin();
    let heir = sealed.heir();
    assert_eq!((heir.heir_of, heir.members.clone()), (sealed.a.1, members(&[5, 6])));
    assert!(sealed.is_placed(heir.id, 5), "its replicas are no strays");
    let copy = through_checkpoint(&sealed.world.machine);
    assert_eq!((copy.digest(), copy.check()), (sealed.world.machine.digest(), vec![]));
    let again = sealed.world.machine.heirs(ebb_types::InodeId::new(sealed.a.0)).len();
    assert_eq!(again, 1);
    assert_eq!(sealed.swap(&heir, MIB + 1), Err(E::SetChanged), "more than was frozen");
    let other = pb::Metablock { id: heir.id + 7, ..heir.clone() };
    assert_eq!(sealed.swap(&other, MIB), Err(E::NotFound));
    let block = sealed.swap(&heir, MIB).unwrap().metablocks.remove(0);
    assert_eq!((block.id, block.index, block.version, block.length), (heir.id, 0, version(1, 3), MIB));
    assert_eq!(block.frozen, None);
    assert_eq!(sealed.record().unwrap().slots[0].inode, 0, "the old one is ballast");
    let (inode, epoch) = (sealed.a.0, sealed.world.attr(sealed.a.0).epoch);
    let metablocks = vec![committed(heir.id, epoch, 1, MIB)];
    let commit = pb::CommitFile { inode, epoch, size: MIB, metablocks, ..Default::default() };
    sealed.world.commit(commit).expect("it is written like any other");
    sealed.world.release(inode);
}

#[test]
fn an_heir_that_was_not_written_ends_with_its_holder() {
    for how in 0..4 {
        let mut sealed = Sealed::thin();
        let (inode, heir) = (sealed.a.0, sealed.heir());
        match how {
            0 => sealed.world.release(inode),
            1 => sealed.world.close_session(sealed.world.session),
            2 => {
                let expected_epoch = sealed.world.attr(inode).epoch;
                apply(&mut sealed.world, Change::BeginRecovery(pb::BeginRecovery { inode, expected_epoch }))
                    .map(drop)
                    .unwrap();
            }
            _ => {
                let epoch = sealed.world.attr(inode).epoch;
                let cut = meta_op::SetAttr { inode, size: Some(0), epoch, ..Default::default() };
                sealed.world.set_attr(cut).map(drop).unwrap();
            }
        }
        assert!(!sealed.has(heir.id), "way {how}");
        assert_eq!(sealed.world.machine.deleted_on(VolumeId::new(5)).count(), 1, "way {how}");
    }
}

#[test]
fn repacking_ends_the_old_with_the_new() {
    let mut sealed = Sealed::thin();
    let (a, b) = (sealed.a, sealed.b);
    let c = settled(&mut sealed.world, "c", &[6, 7]);
    sealed.remove("a", a.0);
    let id = take_ids(&mut sealed.world, 2);
    let set = proposed(&sealed.world, id, (id + 1, 5), &[b, c]);
    assert_eq!(seal(&mut sealed.world, set.clone()), Err(E::Busy), "it is in a RAID set");
    let dissolves = |generation| vec![pb::DissolveSet { raid_set: sealed.raid_set, generation }];
    let generation = sealed.generation();
    let stale = pb::SealSets { sets: vec![set.clone()], dissolves: dissolves(generation - 1) };
    let without = pb::SealSets { sets: vec![], dissolves: dissolves(generation) };
    let good = pb::SealSets { sets: vec![set], dissolves: dissolves(generation) };
    assert_eq!(apply(&mut sealed.world, Change::SealSets(stale)), Err(E::SetChanged));
    assert_eq!(apply(&mut sealed.world, Change::SealSets(without)), Err(E::Invalid), "b would be in none");
    apply(&mut sealed.world, Change::SealSets(good)).unwrap();
    assert!(!sealed.has(a.1) && !sealed.has(sealed.row));
    assert_eq!(sealed.world.machine.raid_set_of(MetablockId::new(b.1)), Some(RaidSetId::new(id)));
    // The slot that was thin already stays where it is.
    let (raid_set, stay) = (id, vec![placement(&[2]), placement(&[6])]);
    apply(&mut sealed.world, Change::ThinSet(pb::ThinSet { raid_set, generation: 1, stay })).unwrap();
}

#[test]
fn the_way_back_to_copies_wants_them_first() {
    let mut sealed = Sealed::thin();
    let (raid_set, a, b) = (sealed.raid_set, sealed.a.1, sealed.b.1);
    let dissolve = |sealed: &mut Sealed| {
        let generation = sealed.generation();
        apply(&mut sealed.world, Change::DissolveSet(pb::DissolveSet { raid_set, generation }))
    };
    assert_eq!(dissolve(&mut sealed), Err(E::Busy));
    sealed.shift(a, &[1, 5]).unwrap();
    sealed.shift(b, &[2, 5]).unwrap();
    dissolve(&mut sealed).unwrap();
    assert!(!sealed.has(sealed.row));
    let (_, record) = sealed.world.machine.find_metablock(MetablockId::new(a)).unwrap();
    assert_eq!(record.frozen, Some(pb::Frozen { raid_set: 0, slot: 0, length: MIB }), "it stays frozen");
    // And it can be sealed again.
    let id = take_ids(&mut sealed.world, 2);
    let set = proposed(&sealed.world, id, (id + 1, 4), &[sealed.a, sealed.b]);
    seal(&mut sealed.world, set).unwrap();
}

#[test]
fn raid_sets_are_found_by_any_of_their_metablocks() {
    let sealed = Sealed::thin();
    let ask = |metablocks: Vec<u64>| {
        let reply = sealed.world.ask(Op::GetRaidSets(meta_op::GetRaidSets { metablocks })).unwrap();
        reply.raid_sets.into_iter().map(|set| set.id).collect::<Vec<_>>()
    };
    assert_eq!(ask(vec![sealed.a.1, sealed.row, 999]), [sealed.raid_set]);
    assert_eq!(ask(vec![999]), []);
}
