//! Which members a RAID set has: copies that leave, and members that are moved or made again.

use ebb_layout::raid::Part;
use ebb_types::{DatasetId, MetablockId, RaidSetId, Result, bail};
use ebb_wire::pb;

use super::seats::{Seats, is_thin};
use super::{Slot, SlotOwner};
use crate::machine::{Call, Machine};
use crate::ops::grant::check_members;
use crate::outcome::{Effect, Reply};
use crate::replicas::Owner;

impl Machine {
    /// Records the members that stay of each slot. The others leave.
    pub(crate) fn thin_set(&mut self, call: &mut Call<'_>, op: &pb::ThinSet) -> Result<Reply> {
        let id = RaidSetId::new(op.raid_set);
        let set = self.check_raid_generation(id, op.generation)?;
        if op.stay.len() != set.slots.len() {
            bail!(Invalid, "{id} has {} slots, and members are named for {}", set.slots.len(), op.stay.len());
        }
        let mut seats = Seats::of_rows(set);
        for (place, (slot, stay)) in set.slots.iter().zip(&op.stay).enumerate() {
            check_members(&stay.members)?;
            let has = self.slot_sources(slot);
            let metablock = slot.metablock;
            if stay.members.len() != set.code.copies as usize {
                bail!(Invalid, "{id}: {} members of {metablock} stay, not {}", stay.members.len(), set.code.copies);
            }
            if let Some(other) = stay.members.iter().find(|member| !has.contains(member)) {
                bail!(SetChanged, "{id}: n{} has no copy of {metablock} that could stay", other.node);
            }
            seats.put(Part::Slot(u32::try_from(place).unwrap_or(u32::MAX)), &stay.members);
        }
        self.check_seats(id, set.code, &seats)?;
        for place in 0..op.stay.len() {
            self.let_leave(call, id, place, &op.stay[place].members);
        }
        self.raise(call, id);
        Ok(Reply::None)
    }

    /// What leaves is no longer needed: every slot and row was found sound.
    pub(crate) fn drop_copies(&mut self, call: &mut Call<'_>, op: &pb::DropCopies) -> Result<Reply> {
        let id = RaidSetId::new(op.raid_set);
        let set = self.check_raid_generation(id, op.generation)?;
        let leaving: Vec<(MetablockId, Vec<pb::Member>)> =
            set.slots.iter().map(|slot| (slot.metablock, slot.leaving.clone())).collect();
        for (metablock, leaving) in leaving.into_iter().filter(|(_, leaving)| !leaving.is_empty()) {
            let Some(set) = self.raid.get_mut(id) else { continue };
            let slot = set.slots.iter_mut().find(|slot| slot.metablock == metablock).expect("it was there");
            slot.leaving = Vec::new();
            self.replicas.unindex(metablock, &leaving);
            call.effects.push(Effect::BesideChanged { metablock, old: leaving, new: Vec::new() });
        }
        self.raise(call, id);
        Ok(Reply::None)
    }

    /// Puts other members in the place of a slot's or row's. They have its bytes already.
    pub(crate) fn move_frozen(&mut self, call: &mut Call<'_>, op: &pb::MoveFrozen) -> Result<Reply> {
        let (id, metablock) = (RaidSetId::new(op.raid_set), MetablockId::new(op.metablock));
        let set = self.check_raid_generation(id, op.generation)?;
        self.check_placement(&op.members)?;
        let dataset = set.dataset;
        let mut seats = self.seats(set);
        if let Some(row) = set.rows.iter().position(|row| row.metablock == metablock) {
            let [member] = op.members[..] else {
                bail!(Invalid, "{id}: a row has one member, not {}", op.members.len())
            };
            seats.put(Part::Row(u32::try_from(row).unwrap_or(u32::MAX)), &op.members);
            self.check_seats(id, set.code, &seats)?;
            let old = set.rows[row].member;
            self.replicas.change_set(metablock, &[old], &op.members);
            let set = self.raid.get_mut(id).expect("it was checked");
            set.rows[row].member = member;
            call.effects.push(Effect::BesideChanged { metablock, old: vec![old], new: op.members.clone() });
            self.raise(call, id);
            return Ok(Reply::None);
        }
        let Some(place) = set.slots.iter().position(|slot| slot.metablock == metablock) else {
            bail!(NotFound, "{metablock} is neither slot nor row of {id}");
        };
        if is_thin(set.code, &op.members) {
            seats.put(Part::Slot(u32::try_from(place).unwrap_or(u32::MAX)), &op.members);
            self.check_seats(id, set.code, &seats)?;
        }
        let slot = set.slots[place].clone();
        let old = self.slot_members(&slot);
        let kept: Vec<pb::Member> = slot
            .leaving
            .iter()
            .filter(|one| op.members.iter().all(|member| member.node != one.node))
            .copied()
            .collect();
        self.replicas.unindex(metablock, &self.slot_sources(&slot));
        self.replicas.index(metablock, &op.members);
        self.replicas.index(metablock, &kept);
        self.set_slot_members(id, place, &op.members);
        self.raid.get_mut(id).expect("it was checked").slots[place].leaving = kept;
        if let SlotOwner::File(inode) = slot.owner {
            self.yield_extras(call, inode, metablock, &op.members);
        }
        self.tell_members(call, (dataset, &slot), old, op.members.clone());
        self.raise(call, id);
        Ok(Reply::None)
    }

    /// The members of a slot that stay: those of its file's record, or the ballast's.
    pub(crate) fn slot_members(&self, slot: &Slot) -> Vec<pb::Member> {
        match &slot.owner {
            SlotOwner::Ballast(members) => members.clone(),
            SlotOwner::File(_) => self.metablock(slot.metablock).map_or_else(Vec::new, |block| block.members.to_vec()),
        }
    }

    /// All copies of a slot that its record names.
    pub(crate) fn slot_sources(&self, slot: &Slot) -> Vec<pb::Member> {
        let mut members = self.slot_members(slot);
        members.extend(&slot.leaving);
        members
    }

    fn let_leave(&mut self, call: &mut Call<'_>, id: RaidSetId, place: usize, stay: &[pb::Member]) {
        let Some(set) = self.raid.get(id) else { return };
        let (dataset, slot) = (set.dataset, set.slots[place].clone());
        let old = self.slot_members(&slot);
        let leaving: Vec<pb::Member> =
            self.slot_sources(&slot).into_iter().filter(|member| !stay.contains(member)).collect();
        // The index has stayers and leavers alike, so it stays as it is.
        self.set_slot_members(id, place, stay);
        self.raid.get_mut(id).expect("it was there").slots[place].leaving = leaving;
        if old != stay {
            self.tell_members(call, (dataset, &slot), old, stay.to_vec());
        }
    }

    /// Other members of a slot are recorded.
    fn tell_members(
        &self,
        call: &mut Call<'_>,
        (dataset, slot): (DatasetId, &Slot),
        old: Vec<pb::Member>,
        new: Vec<pb::Member>,
    ) {
        let metablock = slot.metablock;
        call.effects.push(match self.replicas.owner_of(metablock) {
            Some(Owner::File(inode)) => Effect::SetChanged { inode, dataset, metablock, old, new },
            Some(Owner::Kept(_)) => Effect::KeptChanged { dataset, metablock, old, new },
            _ => Effect::BesideChanged { metablock, old, new },
        });
    }

    fn set_slot_members(&mut self, id: RaidSetId, place: usize, members: &[pb::Member]) {
        let slot = &mut self.raid.get_mut(id).expect("it was checked").slots[place];
        match &mut slot.owner {
            SlotOwner::Ballast(old) => *old = members.to_vec(),
            SlotOwner::File(_) => {
                let metablock = slot.metablock;
                self.edit_metablock(metablock, |block| {
                    block.members = members.into();
                    block.generation += 1;
                });
            }
        }
    }

    pub(crate) fn raise(&mut self, call: &mut Call<'_>, id: RaidSetId) {
        if let Some(set) = self.raid.get_mut(id) {
            set.generation += 1;
        }
        call.effects.push(Effect::RaidSetChanged(id));
    }
}
