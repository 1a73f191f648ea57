//! RAID sets in which slots have died, as the choice of repacks sees them.

use std::collections::{BTreeMap, BTreeSet};

use ebb_layout::raid::{OldSet, OldSlot, Seat, SlotLife};
use ebb_meta::{Cold, Machine};
use ebb_types::{DatasetId, InodeId, MetablockId, RaidSetId, VolumeId};
use ebb_wire::{convert, pb};

use crate::shared::Shared;

/// Most RAID sets of one round.
const SETS_MAX: usize = 1024;

/// RAID sets of a dataset that may be due for repacking.
#[derive(Default)]
pub(crate) struct Old {
    pub(crate) sets: Vec<OldSet>,
    /// Their living slots, as an attempt takes them.
    pub(crate) slots: BTreeMap<MetablockId, Cold>,
    /// The generation of each record.
    pub(crate) generations: BTreeMap<RaidSetId, u64>,
}

/// RAID sets in which a slot has died. One with copies that still leave, or with a step under way, is looked at later.
pub(crate) fn gather(shared: &Shared, machine: &Machine, dataset: DatasetId) -> Old {
    let is_idle = |set: &pb::RaidSet| {
        let soft = shared.soft();
        let id = RaidSetId::new(set.id);
        !soft.encoding.is_kept(id)
            && !set.slots.iter().any(|slot| soft.encoding.is_a_slot(MetablockId::new(slot.metablock)))
    };
    let sets: Vec<pb::RaidSet> = machine
        .raid_sets()
        .filter(|set| set.dataset == dataset.raw() && set.slots.iter().any(|slot| slot.inode == 0))
        .filter(|set| set.slots.iter().all(|slot| slot.leaving.is_empty() || slot.inode == 0) && is_idle(set))
        .take(SETS_MAX)
        .collect();
    if sets.is_empty() {
        return Old::default();
    }
    let living = sets.iter().flat_map(|set| &set.slots).filter(|slot| slot.inode != 0);
    let directories = machine.directories_of(&living.map(|slot| InodeId::new(slot.inode)).collect::<BTreeSet<_>>());
    let mut old = Old::default();
    for set in sets {
        let id = RaidSetId::new(set.id);
        let slots: Vec<OldSlot> = set.slots.iter().map(|slot| old_slot(shared, slot, &directories)).collect();
        let living = set.slots.iter().filter(|slot| slot.inode != 0);
        old.slots.extend(living.map(|slot| (MetablockId::new(slot.metablock), to_cold(slot, &directories))));
        old.generations.insert(id, set.generation);
        let asked = shared.soft().encoding.is_repack_asked(set.slots.iter().map(|slot| InodeId::new(slot.inode)));
        old.sets.push(OldSet { id, slots, asked });
    }
    old
}

fn old_slot(shared: &Shared, slot: &pb::RaidSlot, directories: &BTreeMap<InodeId, InodeId>) -> OldSlot {
    let metablock = MetablockId::new(slot.metablock);
    let is_good = |member: &&pb::Member| shared.with_view(|view| view.condition(metablock, member).is_source());
    let member = |member: &pb::Member| -> (Seat, VolumeId) {
        (Seat { node: member.node_id(), home: member.home_id() }, member.volume_id())
    };
    OldSlot {
        metablock,
        directory: directories.get(&InodeId::new(slot.inode)).copied().unwrap_or_default(),
        len_bytes: slot.length,
        members: slot.members.iter().filter(is_good).map(member).collect(),
        life: if slot.inode == 0 { SlotLife::Dead } else { SlotLife::Live },
    }
}

fn to_cold(slot: &pb::RaidSlot, directories: &BTreeMap<InodeId, InodeId>) -> Cold {
    let inode = InodeId::new(slot.inode);
    Cold {
        metablock: MetablockId::new(slot.metablock),
        inode,
        directory: directories.get(&inode).copied().unwrap_or_default(),
        index: 0,
        version: convert::version(slot.version),
        length: slot.length,
        committed_s: 0,
        members: slot.members.clone(),
        is_frozen: true,
    }
}
