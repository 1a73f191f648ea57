//! Commands about RAID sets.

use ebb_types::RaidSetId;
use ebb_wire::pb;
use ebb_wire::pb::command::Command as Change;
use ebb_wire::pb::meta_op::{self, Op};

use super::Dice;

impl Dice<'_> {
    /// Metablocks that could be sealed, with their files, and some that could not.
    fn slots(&mut self, dataset: u64) -> Vec<pb::RaidSlot> {
        let mut slots = Vec::new();
        for (id, inode) in &self.machine.inodes {
            for block in inode.file().into_iter().flat_map(|file| file.map.iter()) {
                let is_written = block.version != ebb_types::Version::ZERO;
                let fits = inode.dataset.raw() == dataset && inode.holder().is_none() && is_written;
                if fits && block.frozen.is_none_or(|frozen| frozen.raid_set.is_none()) {
                    slots.push(pb::RaidSlot {
                        metablock: block.id.raw(),
                        inode: id.raw(),
                        version: Some(block.version.into()),
                        length: block.stored_length(),
                        ..Default::default()
                    });
                }
            }
        }
        let from = self.below(slots.len().max(1) as u64) as usize;
        slots.rotate_left(from);
        slots.truncate(if self.one_in(20) { 1 } else { 2 });
        if self.one_in(20) && !slots.is_empty() {
            slots[0].length = self.number(3000);
        }
        slots
    }

    fn raid_set(&mut self) -> (u64, u64) {
        let all: Vec<(u64, u64)> = self.machine.raid_sets().map(|set| (set.id, set.generation)).collect();
        let ids = all.iter().map(|(id, _)| *id).collect();
        match self.pick(ids).and_then(|id| all.iter().find(|one| one.0 == id)) {
            Some(one) if !self.one_in(15) => *one,
            _ => (self.number(12), self.number(4)),
        }
    }

    fn taken(&mut self) -> u64 {
        let all = self.machine.raid.taken().iter().copied().collect();
        self.pick(all).unwrap_or(1)
    }

    fn seal(&mut self) -> pb::SealSets {
        let (id, mut row) = (self.taken(), self.taken());
        if id == row && !self.one_in(10) {
            row = self.machine.raid.taken().iter().copied().find(|other| *other != id).unwrap_or(row);
        }
        let mut dissolves = Vec::new();
        let mut slots = self.slots(0);
        // A repacking: a slot of a RAID set in which another one is dead.
        let old = self.machine.raid_sets().find(|set| set.slots.iter().any(|slot| slot.inode == 0));
        if let Some(old) = old.filter(|_| self.one_in(2)) {
            let living = old.slots.iter().filter(|slot| slot.inode != 0).cloned();
            slots = living.chain(slots).take(2).collect();
            dissolves.push(pb::DissolveSet { raid_set: old.id, generation: old.generation });
        }
        let (node, length) = (7 + self.below(3), 1 << 20);
        let member = pb::Member { node, volume: node, incarnation: 1, home: 0 };
        let rows = vec![pb::RaidRow { metablock: row, member: Some(member), length }];
        let code = Some(pb::RaidCode { copies: 1, slots: 2, rows: 1, domain: 0 });
        pb::SealSets { sets: vec![pb::RaidSet { id, dataset: 0, code, generation: 0, slots, rows }], dissolves }
    }

    /// Members that stay: of each slot the one that the throws say.
    fn thin(&mut self) -> pb::ThinSet {
        let (raid_set, generation) = self.raid_set();
        let slots = self.machine.raid_set(RaidSetId::new(raid_set)).unwrap_or_default().slots;
        let stay = slots.into_iter().map(|slot| {
            let sources: Vec<pb::Member> = slot.members.into_iter().chain(slot.leaving).collect();
            let at = self.below(sources.len().max(1) as u64) as usize;
            pb::Placement { members: sources.into_iter().skip(at).take(1).collect() }
        });
        pb::ThinSet { raid_set, generation, stay: stay.collect() }
    }

    fn moved(&mut self) -> pb::MoveFrozen {
        let (raid_set, generation) = self.raid_set();
        let set = self.machine.raid_set(RaidSetId::new(raid_set)).unwrap_or_default();
        let parts = set.slots.iter().map(|slot| slot.metablock).chain(set.rows.iter().map(|row| row.metablock));
        let parts: Vec<u64> = parts.collect();
        let metablock = self.pick(parts).unwrap_or(3);
        let node = 1 + self.below(12);
        let mut members = vec![pb::Member { node, volume: node, incarnation: 1, home: 0 }];
        if self.one_in(4) {
            members.push(pb::Member { node: node + 1, volume: node + 1, incarnation: 1, home: 0 });
        }
        pb::MoveFrozen { raid_set, generation, metablock, members }
    }

    pub(super) fn raid_change(&mut self) -> Change {
        match self.below(32) {
            0..=3 => Change::TakeIds(self.number(6) as u32),
            4..=13 => Change::SealSets(self.seal()),
            14..=19 => Change::ThinSet(self.thin()),
            20..=22 => {
                let (raid_set, generation) = self.raid_set();
                Change::DropCopies(pb::DropCopies { raid_set, generation })
            }
            23..=27 => Change::MoveFrozen(self.moved()),
            28..=30 => {
                let (raid_set, generation) = self.raid_set();
                Change::DissolveSet(pb::DissolveSet { raid_set, generation })
            }
            _ => Change::BeginRun(pb::BeginRun { lineage: 1, mark: self.below(9), after: 0 }),
        }
    }

    /// An heir takes its place, mostly one that may.
    pub(super) fn swap(&mut self, inode: u64, epoch: u64) -> Op {
        let heirs = self.machine.heirs(ebb_types::InodeId::new(inode)).to_vec();
        let Some(heir) = heirs.first() else {
            let op =
                meta_op::Swap { inode, epoch, metablock: self.number(9), heir: self.number(9), ..Default::default() };
            return Op::Swap(op);
        };
        let (_, frozen) = self.machine.find_metablock(heir.of).unwrap_or_default();
        let version = if self.one_in(10) { self.version(epoch) } else { frozen.version };
        let length = if self.one_in(10) { self.number(3000) } else { frozen.length };
        Op::Swap(meta_op::Swap { inode, epoch, metablock: heir.of.raw(), heir: heir.id.raw(), version, length })
    }
}

/// The properties of this module say nothing about commands that are always refused.
#[test]
fn commands_of_every_kind_about_raid_sets_and_snapshots_are_carried_out() {
    let mut seed = 1u64;
    let mut next = || {
        // Knuth's constants; any sequence would do.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 40) as u16
    };
    let mut done = std::collections::BTreeMap::<&str, u32>::new();
    for _ in 0..1500 {
        let mut machine = super::started();
        for now in 0..400 {
            let throws = std::array::from_fn(|_| next());
            let command = super::command(&machine, now, throws);
            let kind = kind_of(&command);
            let applied = machine.apply(&command);
            if applied.reply.is_ok() {
                *done.entry(kind).or_default() += 1;
            }
        }
    }
    println!("{done:?}");
    for kind in ["ids", "seal", "repack", "thin", "drop", "move", "dissolve", "swap", "take", "end", "prune", "kept"] {
        assert!(done.contains_key(kind), "no {kind} was carried out: {done:?}");
    }
}

fn kind_of(command: &pb::Command) -> &'static str {
    match command.command.as_ref().unwrap() {
        Change::TakeIds(_) => "ids",
        Change::SealSets(seal) if seal.dissolves.is_empty() => "seal",
        Change::SealSets(_) => "repack",
        Change::ThinSet(_) => "thin",
        Change::DropCopies(_) => "drop",
        Change::MoveFrozen(_) => "move",
        Change::DissolveSet(_) => "dissolve",
        Change::Client(client) => {
            let op = client.request.as_ref().and_then(|request| request.op.as_ref()?.op.as_ref());
            match op {
                Some(Op::Swap(_)) => "swap",
                Some(Op::TakeSnapshot(_)) => "take",
                Some(Op::RemoveSnapshot(_)) => "end",
                _ => "other",
            }
        }
        Change::PruneSnapshot(_) => "prune",
        Change::ChangeKept(_) => "kept",
        _ => "other",
    }
}
