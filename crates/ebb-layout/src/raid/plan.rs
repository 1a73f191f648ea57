//! The answer of [`choose_sets`](super::choose_sets): RAID sets, and what waits, with reasons.

use std::collections::BTreeMap;
use std::fmt;

use ebb_types::{MetablockId, RaidSetId, counted, human_bytes};

use super::repack::{KeptReason, RepackReason};
use super::spread::{Part, RaidMembers, Seat};
use crate::Chosen;

/// RAID sets to make. Prints one member a line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RaidPlans {
    /// In the order of choice.
    pub sets: Vec<RaidPlan>,
    /// Candidates that are in none of them, in the order of their files.
    pub left: Vec<Left>,
    /// RAID sets that are due for repacking and stay as they are.
    pub kept: Vec<KeptSet>,
}

/// One RAID set to make.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RaidPlan {
    /// Slot by slot. A short RAID set has fewer than its code.
    pub slots: Vec<PlannedSlot>,
    /// Row by row: where each is to be written.
    pub rows: Vec<Chosen>,
    /// Why these go together now.
    pub why: SetReason,
    /// RAID sets whose live slots are all in this one, and which end with it.
    pub dissolves: Vec<RaidSetId>,
}

/// A slot to fill.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlannedSlot {
    /// The metablock.
    pub metablock: MetablockId,
    /// Its length in bytes.
    pub len_bytes: u64,
    /// Its members that stay.
    pub members: Vec<Chosen>,
}

/// Why metablocks make a RAID set together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetReason {
    /// They are of one file, and of like length.
    File,
    /// They are of one directory, and of like length.
    Directory,
    /// One of them has waited for a delay.
    Waited,
    /// They live in RAID sets that are repacked, or fill up such a one.
    Repacked(RepackReason),
}

impl fmt::Display for SetReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => f.write_str("of one file"),
            Self::Directory => f.write_str("of one directory"),
            Self::Waited => f.write_str("of the dataset, as one has waited for a delay"),
            Self::Repacked(reason) => write!(f, "repacked, as {reason}"),
        }
    }
}

/// A candidate that is in no RAID set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    /// The metablock.
    pub metablock: MetablockId,
    /// Why.
    pub reason: LeftReason,
}

/// Why a candidate is in no RAID set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum LeftReason {
    /// It waits for others to share a RAID set with.
    Waits,
    /// The others' members, or the rows, leave no host for it.
    NoHosts,
    /// None of its members lies where a slot may stay, on a node that serves.
    NoMember,
}

impl fmt::Display for LeftReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waits => "there are no others yet to share a RAID set with",
            Self::NoHosts => "no hosts are left for it beside the others and the rows",
            Self::NoMember => "none of its members may stay where it is",
        })
    }
}

impl RaidPlans {
    /// The reason for which most candidates are in no RAID set. `None`: all are in one.
    #[must_use]
    pub fn most_left(&self) -> Option<LeftReason> {
        let counts = self.left.iter().fold(BTreeMap::<_, usize>::new(), |mut counts, left| {
            *counts.entry(left.reason).or_default() += 1;
            counts
        });
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(reason, _)| reason)
    }
}

/// A RAID set that is due for repacking and stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptSet {
    /// The RAID set.
    pub raid_set: RaidSetId,
    /// Why.
    pub why: KeptReason,
}

impl RaidPlan {
    /// Length of its longest slot in bytes.
    #[must_use]
    pub fn longest_bytes(&self) -> u64 {
        self.slots.iter().map(|slot| slot.len_bytes).max().unwrap_or(0)
    }

    /// Its members by part, as they will lie.
    #[must_use]
    pub fn members(&self) -> RaidMembers {
        let seat = |member: &Chosen| Seat { node: member.node, home: member.home };
        let slots = (0..).zip(&self.slots);
        let slots = slots.map(|(number, slot)| (Part::Slot(number), slot.members.iter().map(seat).collect()));
        let rows = (0..).zip(&self.rows).map(|(number, row)| (Part::Row(number), vec![seat(row)]));
        RaidMembers { parts: slots.chain(rows).collect::<BTreeMap<_, _>>() }
    }
}

impl fmt::Display for RaidPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots = counted(self.slots.len() as u64, "slot");
        write!(f, "RAID set of {slots} up to {}, {}", human_bytes(self.longest_bytes()), self.why)?;
        for id in &self.dissolves {
            write!(f, "; {id} ends")?;
        }
        for (number, slot) in (0..).zip(&self.slots) {
            for member in &slot.members {
                write!(f, "\n{} {}: {member}", Part::Slot(number), slot.metablock)?;
            }
        }
        for (number, row) in (0..).zip(&self.rows) {
            write!(f, "\n{}: {row}", Part::Row(number))?;
        }
        Ok(())
    }
}

impl fmt::Display for RaidPlans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sets = self.sets.iter().map(ToString::to_string);
        let left = self.left.iter().map(|left| format!("{} is left: {}", left.metablock, left.reason));
        let kept = self.kept.iter().map(|kept| format!("{} stays: {}", kept.raid_set, kept.why));
        f.write_str(&sets.chain(left).chain(kept).collect::<Vec<_>>().join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_most_candidates_is_told() {
        let left = |reasons: &[LeftReason]| {
            let left =
                reasons.iter().zip(1..).map(|(reason, id)| Left { metablock: MetablockId::new(id), reason: *reason });
            RaidPlans { left: left.collect(), ..Default::default() }
        };
        use LeftReason::{NoHosts, NoMember, Waits};
        assert_eq!(left(&[Waits, NoHosts, NoMember, NoHosts]).most_left(), Some(NoHosts));
        assert_eq!(left(&[]).most_left(), None);
    }
}
