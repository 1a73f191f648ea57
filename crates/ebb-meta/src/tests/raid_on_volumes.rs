//! RAID sets on the volumes of one node: all members there, each on a volume of its own.

use ebb_types::{ErrorKind as E, MetablockId, RaidSetId};
use ebb_wire::pb;
use pb::command::Command as Change;
use pb::meta_op::{self, Op};

use super::determinism::through_checkpoint;
use super::harness::{MIB, ROOT, World, committed};
use crate::Reply;

const CODE: pb::RaidCode = pb::RaidCode { copies: 1, slots: 2, rows: 1, domain: 1 };

fn on(node: u64, volume: u64) -> pb::Member {
    pb::Member { node, volume, incarnation: 1, home: 0 }
}

fn apply(world: &mut World, change: Change) -> Result<Reply, E> {
    world.apply(change).reply.map_err(|error| error.kind())
}

/// Two files with a copy on volumes 11 and 12 of node 1, and one on node 2 each; and a row.
struct Sealed {
    world: World,
    id: u64,
    blocks: [u64; 2],
}

impl Sealed {
    fn seal(row: pb::Member) -> Result<Self, E> {
        let mut world = World::new();
        let mut slots = Vec::new();
        for (name, volume) in [("a", 11), ("b", 12)] {
            let op =
                meta_op::Create { parent: ROOT, name: name.into(), mode: 0o644, exclusive: true, ..Default::default() };
            let members = vec![on(1, volume), on(2, volume + 10)];
            let made = world.place(Op::Create(op), vec![pb::Placement { members }]).unwrap();
            let (inode, block) = (made.attr.unwrap().inode, made.metablocks[0].id);
            let metablocks = vec![committed(block, 1, 3, MIB)];
            let file = pb::CommitFile { inode, epoch: 1, size: MIB, metablocks, release: true, ..Default::default() };
            world.commit(file).unwrap();
            let version = super::harness::version(1, 3);
            slots.push(pb::RaidSlot { metablock: block, inode, version, length: MIB, ..Default::default() });
        }
        let Reply::Ids { first, .. } = apply(&mut world, Change::TakeIds(2)).unwrap() else { panic!("no ids") };
        let id = first.raw();
        let blocks = [slots[0].metablock, slots[1].metablock];
        let rows = vec![pb::RaidRow { metablock: id + 1, member: Some(row), length: MIB + 16 }];
        let set = pb::RaidSet { id, dataset: 0, code: Some(CODE), generation: 0, slots, rows };
        apply(&mut world, Change::SealSets(pb::SealSets { sets: vec![set], dissolves: Vec::new() }))?;
        Ok(Self { world, id, blocks })
    }

    fn generation(&self) -> u64 {
        self.world.machine.raid_set(RaidSetId::new(self.id)).unwrap().generation
    }

    fn thin(&mut self, stay: [pb::Member; 2]) -> Result<Reply, E> {
        let stay = stay.map(|member| pb::Placement { members: vec![member] }).to_vec();
        let generation = self.generation();
        apply(&mut self.world, Change::ThinSet(pb::ThinSet { raid_set: self.id, generation, stay }))
    }

    fn shift(&mut self, metablock: u64, members: Vec<pb::Member>) -> Result<Reply, E> {
        let generation = self.generation();
        apply(&mut self.world, Change::MoveFrozen(pb::MoveFrozen { raid_set: self.id, generation, metablock, members }))
    }
}

#[test]
fn members_stay_on_one_node_and_apart_by_volume() {
    let mut sealed = Sealed::seal(on(1, 13)).unwrap();
    assert_eq!(sealed.thin([on(1, 11), on(2, 22)]), Err(E::Invalid), "another node");
    sealed.thin([on(1, 11), on(1, 12)]).unwrap();
    let [a, _] = sealed.blocks;
    assert_eq!(sealed.shift(a, vec![on(1, 12)]), Err(E::Invalid), "the other slot's volume");
    assert_eq!(sealed.shift(a, vec![on(1, 13)]), Err(E::Invalid), "the row's");
    assert_eq!(sealed.shift(a, vec![on(3, 31)]), Err(E::Invalid), "another node");
    sealed.shift(a, vec![on(1, 14)]).unwrap();
    assert_eq!(sealed.shift(sealed.id + 1, vec![on(1, 14)]), Err(E::Invalid));
    sealed.shift(sealed.id + 1, vec![on(1, 15)]).unwrap();
    let copy = through_checkpoint(&sealed.world.machine);
    assert_eq!((copy.digest(), copy.check()), (sealed.world.machine.digest(), vec![]));
    let kept = copy.raid_set(RaidSetId::new(sealed.id)).unwrap();
    assert_eq!(kept.code, Some(CODE), "what lies apart is recorded");
    // The way back: further copies are on other nodes.
    sealed.shift(a, vec![on(1, 14), on(2, 21)]).unwrap();
    assert_eq!(sealed.world.machine.find_metablock(MetablockId::new(a)).unwrap().1.members.len(), 2);
}

#[test]
fn a_row_on_another_node_or_an_unknown_domain_is_not_recorded() {
    // Slots have all their copies yet, so the row alone says where the RAID set is.
    let mut sealed = Sealed::seal(on(3, 31)).unwrap();
    assert_eq!(sealed.thin([on(1, 11), on(1, 12)]), Err(E::Invalid));
    let unknown = pb::RaidCode { domain: 2, ..CODE };
    assert!(ebb_types::RaidCode::from(unknown).check().is_err());
}
