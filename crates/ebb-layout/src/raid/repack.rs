//! When a RAID set is made anew out of what lives in it, and with what.
//!
//! A slot that died is **ballast**: no file has it any more, and its neighbours cannot be decoded without it. Repacking
//! reads what lives and writes new rows; then the old rows and the ballast are free. The more has died, the less each
//! freed metablock costs, so a RAID set waits until enough has.

use std::fmt;

use ebb_types::{InodeId, MetablockId, RaidSetId, VolumeId};

use super::draft::{Entry, Stay};
use super::spread::Seat;
use super::work::Work;
use crate::Reason;

/// A recorded RAID set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OldSet {
    /// Itself.
    pub id: RaidSetId,
    /// Its slots, but for empty ones.
    pub slots: Vec<OldSlot>,
    /// Whether an operator wants no ballast in it.
    pub asked: bool,
}

/// A slot of a recorded RAID set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OldSlot {
    /// Its metablock.
    pub metablock: MetablockId,
    /// The directory of its file.
    pub directory: InodeId,
    /// Its length in bytes.
    pub len_bytes: u64,
    /// Its good members, and their volumes.
    pub members: Vec<(Seat, VolumeId)>,
    /// Whether a file has it.
    pub life: SlotLife,
}

/// Whether a slot's metablock lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotLife {
    /// A file has it.
    Live,
    /// It is ballast, kept for its neighbours.
    Dead,
}

/// How much room volumes have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// As much as is needed.
    Ample,
    /// Less than a tenth of a volume is free: copies go sooner, and ballast too.
    Tight,
}

/// A volume with less free space than this part of it is tight.
const TIGHT_PART: u64 = 10;

impl Room {
    /// Of a volume.
    #[must_use]
    pub const fn of(free_bytes: u64, capacity_bytes: u64) -> Self {
        if free_bytes < capacity_bytes / TIGHT_PART { Self::Tight } else { Self::Ample }
    }
}

/// Why a RAID set is repacked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RepackReason {
    /// Ballast is lost. To make it again costs as much, and until then the others bear a loss less.
    LostBallast,
    /// Half of its slots are dead.
    HalfDead,
    /// A quarter of its slots are dead, and there is little room.
    QuarterDead,
    /// A slot is dead, and an operator asked.
    Asked,
}

impl fmt::Display for RepackReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LostBallast => "ballast is lost",
            Self::HalfDead => "half of the slots are dead",
            Self::QuarterDead => "a quarter of the slots are dead, and there is little room",
            Self::Asked => "an operator asked",
        })
    }
}

/// Whether a RAID set is to be repacked. One without a live slot is freed instead.
#[must_use]
pub fn choose_repack(old: &OldSet, copies: u32, room: Room) -> Option<RepackReason> {
    let dead = old.slots.iter().filter(|slot| slot.life == SlotLife::Dead);
    let is_lost = |slot: &OldSlot| slot.members.len() < copies as usize;
    let (all, lost, dead) = (old.slots.len(), dead.clone().any(is_lost), dead.count());
    if dead == all {
        None
    } else if lost {
        Some(RepackReason::LostBallast)
    } else if dead * 2 >= all {
        Some(RepackReason::HalfDead)
    } else if dead * 4 >= all && room == Room::Tight {
        Some(RepackReason::QuarterDead)
    } else if dead > 0 && old.asked {
        Some(RepackReason::Asked)
    } else {
        None
    }
}

/// Why a RAID set that is to be repacked is not, this time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeptReason {
    /// A live slot has lost a member: that is made again first.
    Damaged,
    /// A member is a guest, or its node is off or may take no work.
    Away,
    /// It has one live slot, and nothing else goes with that one now.
    Alone,
    /// The rows find no hosts, or none with room.
    NoHosts,
}

impl fmt::Display for KeptReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Damaged => "a live slot has lost a member, which is made again first",
            Self::Away => "a member is a guest, or its node cannot serve",
            Self::Alone => "its one live slot finds no other metablocks",
            Self::NoHosts => "its new rows find no hosts with room",
        })
    }
}

/// The live slots of a RAID set, each of which stays where it is.
pub(super) fn live_slots<'a>(work: &Work<'a>, old: &OldSet) -> Result<Vec<Entry<'a>>, KeptReason> {
    let copies = work.rule.spread.code.copies as usize;
    let live = old.slots.iter().filter(|slot| slot.life == SlotLife::Live);
    let entry = |slot: &OldSlot| {
        if slot.members.len() < copies {
            return Err(KeptReason::Damaged);
        }
        let staying = |(seat, volume): &(Seat, VolumeId)| {
            let volume = work.staying((seat.node, *volume)).filter(|_| seat.node == seat.home);
            volume.ok_or(KeptReason::Away)
        };
        let volumes = slot.members[..copies].iter().map(staying).collect::<Result<Vec<_>, _>>()?;
        let reasons = vec![Reason::StaysThin; volumes.len()];
        Ok(Entry { len_bytes: slot.len_bytes, stays: vec![Stay { volumes, reasons, cost: 0 }] })
    };
    live.map(entry).collect()
}

#[cfg(test)]
mod tests {
    use ebb_types::NodeId;

    use super::*;

    fn old(live: usize, dead: usize, lost: usize) -> OldSet {
        let member = (Seat::at_home(NodeId::new(1)), VolumeId::new(1));
        let slot = |life, members: usize| OldSlot {
            metablock: MetablockId::new(1),
            directory: InodeId::new(1),
            len_bytes: 1,
            members: vec![member; members],
            life,
        };
        let live = std::iter::repeat_n(slot(SlotLife::Live, 1), live);
        let dead = std::iter::repeat_n(slot(SlotLife::Dead, 1), dead);
        let lost = std::iter::repeat_n(slot(SlotLife::Dead, 0), lost);
        OldSet { id: RaidSetId::new(1), slots: live.chain(dead).chain(lost).collect(), asked: false }
    }

    #[test]
    fn half_of_the_slots_have_to_die_or_a_quarter_where_room_is_tight() {
        let of =
            |live, dead, lost| [Room::Ample, Room::Tight].map(|room| choose_repack(&old(live, dead, lost), 1, room));
        assert_eq!(of(8, 0, 0), [None, None]);
        assert_eq!(of(7, 1, 0), [None, None]);
        assert_eq!(of(6, 2, 0), [None, Some(RepackReason::QuarterDead)]);
        assert_eq!(of(5, 3, 0), [None, Some(RepackReason::QuarterDead)]);
        assert_eq!(of(4, 4, 0), [Some(RepackReason::HalfDead); 2]);
        assert_eq!(of(7, 0, 1), [Some(RepackReason::LostBallast); 2]);
        let asked = |live, dead| choose_repack(&OldSet { asked: true, ..old(live, dead, 0) }, 1, Room::Ample);
        assert_eq!((asked(7, 1), asked(8, 0)), (Some(RepackReason::Asked), None));
        assert_eq!(of(0, 7, 1), [None, None], "it is freed");
        assert_eq!(of(2, 1, 0), [None, Some(RepackReason::QuarterDead)], "empty slots are no dead ones");
    }

    #[test]
    fn a_volume_is_tight_below_a_tenth() {
        assert_eq!([Room::of(99, 1000), Room::of(100, 1000)], [Room::Tight, Room::Ample]);
    }
}
