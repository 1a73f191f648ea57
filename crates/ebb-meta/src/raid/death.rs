//! Slots that die, and RAID sets that end.

use ebb_types::{DatasetId, InodeId, MetablockId, RaidSetId, Result, bail};
use ebb_wire::pb;

use super::{Slot, SlotOwner};
use crate::machine::{Call, Machine};
use crate::map::Metablock;
use crate::outcome::{Effect, Reply};
use crate::replicas::Owner;

impl Machine {
    /// A file has lost this metablock: a snapshot has it alone from now on, or it is ballast of its RAID set, or its replicas are
    /// to be deleted.
    pub(crate) fn lose_metablock(
        &mut self,
        call: &mut Call<'_>,
        inode: InodeId,
        dataset: DatasetId,
        block: &Metablock,
    ) {
        if let Some(number) = self.snapshots.newest_with(dataset, block.id) {
            return self.keep_metablock(call, (inode, dataset), number, block);
        }
        match block.frozen.and_then(|frozen| frozen.raid_set) {
            Some(id) => {
                let (metablock, old) = (block.id, block.members.to_vec());
                call.effects.push(Effect::SetChanged { inode, dataset, metablock, old, new: Vec::new() });
                self.kill_slot(call, id, block);
            }
            None => self.free_metablock(call, (inode, dataset), block.id, &block.members, block.left_out()),
        }
    }

    /// I-69: the other slots cannot be decoded without it, so its bytes stay.
    pub(crate) fn kill_slot(&mut self, call: &mut Call<'_>, id: RaidSetId, block: &Metablock) {
        let Some(set) = self.raid.get_mut(id) else {
            unreachable!("{} is in {id}, which is not recorded", block.id);
        };
        let slot = set.slots.iter_mut().find(|slot| slot.metablock == block.id);
        let slot = slot.unwrap_or_else(|| unreachable!("{} says that it is in {id}, which has no such slot", block.id));
        assert!(!slot.is_dead(), "{} dies twice", block.id);
        // Copies that leave count again: nobody has found this RAID set sound without them.
        let mut members = block.members.to_vec();
        members.append(&mut slot.leaving);
        let (metablock, new) = (block.id, members.clone());
        slot.owner = SlotOwner::Ballast(members);
        let is_over = set.slots.iter().all(Slot::is_dead);
        self.replicas.give(block.id, Owner::RaidSet(id));
        call.effects.push(Effect::BesideChanged { metablock, old: Vec::new(), new });
        self.raise(call, id);
        if is_over {
            self.end_raid_set(call, id);
        }
    }

    /// Frees the rows and the ballast of a RAID set. Its living slots are the caller's.
    pub(crate) fn end_raid_set(&mut self, call: &mut Call<'_>, id: RaidSetId) {
        let Some(set) = self.raid.remove(id) else { return };
        for row in &set.rows {
            self.free_beside(call, row.metablock, &[row.member]);
        }
        for slot in &set.slots {
            match &slot.owner {
                SlotOwner::Ballast(_) => {
                    let sources = self.slot_sources(slot);
                    self.free_beside(call, slot.metablock, &sources);
                }
                SlotOwner::File(_) => self.edit_metablock(slot.metablock, |block| {
                    block.frozen = block.frozen.map(|frozen| frozen.alone());
                    block.generation += 1;
                }),
            }
        }
        call.effects.push(Effect::RaidSetChanged(id));
    }

    /// Nothing has this metablock any more that no file's map had: its replicas are to be deleted.
    pub(crate) fn free_beside(&mut self, call: &mut Call<'_>, metablock: MetablockId, members: &[pb::Member]) {
        self.replicas.free(metablock, members, &[]);
        call.effects.push(Effect::BesideChanged { metablock, old: members.to_vec(), new: Vec::new() });
    }

    /// Nothing has this metablock of a file any more: its replicas are to be deleted. `of`: file and dataset.
    pub(crate) fn free_metablock(
        &mut self,
        call: &mut Call<'_>,
        of: (InodeId, DatasetId),
        metablock: MetablockId,
        members: &[pb::Member],
        left_out: &[pb::LeftOut],
    ) {
        self.replicas.free(metablock, members, left_out);
        let (inode, dataset) = of;
        call.effects.push(Effect::SetChanged { inode, dataset, metablock, old: members.to_vec(), new: Vec::new() });
    }

    /// Ends a RAID set whose living slots have all wanted copies again. They stay frozen.
    pub(crate) fn dissolve_set(&mut self, call: &mut Call<'_>, op: &pb::DissolveSet) -> Result<Reply> {
        let id = RaidSetId::new(op.raid_set);
        let set = self.check_raid_generation(id, op.generation)?;
        for slot in &set.slots {
            if slot.is_dead() {
                continue;
            }
            let (has, wanted) = (self.slot_members(slot).len(), self.wanted_in(set.dataset));
            // I-64: what it stands for has to be there without it.
            if has < wanted {
                bail!(Busy, "{id} cannot end: {} has {has} of {wanted} copies", slot.metablock);
            }
        }
        let leaving: Vec<(MetablockId, Vec<pb::Member>)> = set
            .slots
            .iter()
            .filter(|slot| !slot.is_dead())
            .map(|slot| (slot.metablock, slot.leaving.clone()))
            .collect();
        for (metablock, leaving) in leaving {
            self.replicas.unindex(metablock, &leaving);
            call.effects.push(Effect::BesideChanged { metablock, old: leaving, new: Vec::new() });
        }
        self.end_raid_set(call, id);
        Ok(Reply::None)
    }
}
