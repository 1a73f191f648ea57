//! Copies: the reasons to make, move or remove them.
//!
//! Four choosers examine the sets, each for reasons of its own. Each offers [`Step`]s: one small change of one set,
//! with a [`Priority`] and a [`Reason`]. One loop (`reconciler`) asks the choosers in the order of their priorities.
//! One executor (`executor`) finds the nodes, keeps to the limits, copies and records.
//!
//! | chooser | reasons | priority |
//! |---|---|---|
//! | [`repair`] | sets that lack good copies, or have too many members | `Mend` |
//! | [`guests`] | copies that lie away from home | `Leave` or `Move` |
//! | [`layout`] | copies that lie where their dataset's chain does not want them | `Move` |
//! | [`extras`] | extra copies of what is read often | `Spare` |
//!
//! A recovery makes a set equal before any chooser sees it. Its own copies never wait, because the file cannot be used
//! before. They count against their nodes, so that other copies wait for them, and use `transfer` like all others.
//!
//! A step never uses old facts. It is chosen from the present map, and recorded by a compare-and-swap on the epoch and
//! generation of that map. A step that cannot start leaves an [`Obstacle`], so that an operator can ask why a copy does
//! not move (`why`).

pub(crate) mod executor;
pub mod extras;
pub mod guests;
mod holders;
pub mod layout;
mod limits;
mod place;
pub(crate) mod reconciler;
mod rejoin;
pub mod repair;
pub mod route;
pub(crate) mod transfer;
pub(crate) mod why;

use std::fmt;

use ebb_types::{Epoch, InodeId, MetablockId, NodeId, RaidSetId};
use ebb_wire::pb;

pub use limits::Priority;

/// A set as it was when a step was chosen.
#[derive(Clone, Debug)]
pub struct Task {
    /// The metablock.
    pub metablock: MetablockId,
    /// Its file.
    pub inode: InodeId,
    /// The file's epoch.
    pub epoch: u64,
    /// The set as recorded.
    pub record: pb::Metablock,
    /// The file's dataset.
    pub dataset: pb::Dataset,
    /// Snapshots alone have it. Nobody writes it, and its file may be gone: epoch, leases and recoveries say nothing of it.
    pub is_kept: bool,
}

/// One small step towards the wanted state of a set.
#[derive(Clone, Debug)]
pub struct Step {
    /// The set.
    pub task: Task,
    /// Change that the step makes.
    pub kind: Kind,
    /// Steps to which it gives way, and limits that it keeps.
    pub priority: Priority,
    /// Reason for the step.
    pub reason: Reason,
}

/// Change that a step makes.
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// A new copy joins the set.
    Join {
        /// Place of the copy.
        target: Target,
        /// The set after the copy. The empty seat is the copy's.
        seats: Vec<Option<pb::Member>>,
    },
    /// A member that a recovery left out rejoins with its own replica.
    Rejoin {
        /// The record of the omission.
        left_out: pb::LeftOut,
        /// Members that stay.
        staying: Vec<pb::Member>,
    },
    /// A good copy replaces a damaged one in place. The set stays as it is.
    Renew {
        /// The member with the damaged replica.
        member: pb::Member,
    },
    /// The set changes without a copy.
    Change {
        /// The set afterwards.
        members: Vec<pb::Member>,
    },
    /// An extra copy is made beside the set.
    Extra,
    /// An extra copy is removed.
    TakeBack {
        /// The extra copy.
        extra: pb::Member,
    },
}

/// Place of a copy that joins a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Chosen by the layout, in the place of a leaving member if there is one.
    Layout {
        /// The member that leaves.
        replaced: Option<pb::Member>,
    },
    /// This node, or none.
    Home(NodeId),
}

/// Reason for a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// A member's node is dead.
    NodeLost,
    /// A member's volume is poisoned or gone.
    VolumeLost,
    /// A member's replica is damaged.
    MemberDamaged,
    /// A member's node is being drained.
    NodeDrains,
    /// There are fewer members than wanted.
    TooFew,
    /// There are enough good copies without this member.
    Superfluous,
    /// A member that a recovery left out has returned.
    Returned,
    /// A recovery makes the members of a set equal.
    Recovery,
    /// A guest's home is lost.
    Adopted,
    /// A guest's home is on again.
    GoesHome,
    /// A guest's host is about to be switched off.
    HostLeaves,
    /// A copy is not where the dataset's chain wants it.
    Misplaced,
    /// The metablock is read often.
    Popular,
    /// The extra copy is damaged, gone or on a node that drains.
    ExtraLost,
    /// The extra copy's volume is short of room.
    ExtraTight,
    /// The dataset no longer has a share of the unused capacity.
    NoShare,
    /// The metablock is now read less than others, is written often, or the share has become smaller.
    Unpopular,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NodeLost => "a member's node is dead",
            Self::VolumeLost => "a member's volume is poisoned or gone",
            Self::MemberDamaged => "a member's replica is damaged",
            Self::NodeDrains => "a member's node is being drained",
            Self::TooFew => "there are fewer members than copies wanted",
            Self::Superfluous => "there are enough good copies without this member",
            Self::Returned => "a member that was left out is there again",
            Self::Recovery => "a recovery makes the members equal",
            Self::Adopted => "a guest's home is lost: it stays for good",
            Self::GoesHome => "a guest's home is on again",
            Self::HostLeaves => "a guest's host is about to be switched off",
            Self::Misplaced => "a copy lies where the dataset's chain does not want it",
            Self::Popular => "it is read often",
            Self::ExtraLost => "the extra copy's replica, volume or node is damaged, gone or drained",
            Self::ExtraTight => "the extra copy's volume is short of room",
            Self::NoShare => "its dataset has no share of the unused capacity",
            Self::Unpopular => "its part of the unused capacity is smaller by now",
        })
    }
}

/// Reason why a step cannot start now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// No member can be read.
    NoSource,
    /// The nodes that it needs have as many copies in progress as they may.
    NodesBusy,
    /// There is no place for a copy; the text has the layout's reason.
    NoPlace(String),
    /// The nodes are not awake together soon.
    NodesApart,
    /// This node serves programs, or has much to write.
    NodeNotIdle(NodeId),
    /// This node must first delete an old replica of the metablock.
    Stray(NodeId),
    /// A session holds the file's write lease, and it was recalled.
    Held,
    /// The file is being recovered.
    Recovering,
    /// Nothing was written yet, so there is nothing to copy.
    Unwritten,
    /// The maximum number of steps of this priority is in progress.
    TooMany,
    /// The facts that the step was chosen by have changed, or its record failed.
    Refused(String),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSource => f.write_str("no member can be read"),
            Self::NodesBusy => f.write_str("its nodes take part in as many copies as they may"),
            Self::NoPlace(why) => write!(f, "there is no place for a copy: {why}"),
            Self::NodesApart => f.write_str("the nodes do not serve together soon"),
            Self::NodeNotIdle(node) => write!(f, "{node} has other work"),
            Self::Stray(node) => write!(f, "{node} has an old replica of it, which is deleted first"),
            Self::Held => f.write_str("a client holds the file's write lease, and was asked for it"),
            Self::Recovering => f.write_str("the file is being recovered"),
            Self::Unwritten => f.write_str("nothing was written yet"),
            Self::TooMany => f.write_str("as many copies of its kind are under way as may be"),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

/// Outcome of a try to start a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A copy is in progress, and ends by itself.
    Copying,
    /// The set was changed without a copy.
    Recorded,
    /// The step could not start.
    Not(Obstacle),
}

impl Task {
    /// The present state of a set. `None` if the metablock is gone, or in a RAID set: its members have steps of their own.
    pub(crate) fn find(machine: &ebb_meta::Machine, metablock: MetablockId) -> Option<Self> {
        Self::of(machine, metablock).filter(|task| !task.record.is_in_raid_set())
    }

    /// Whether ordinary copies are on their way out of the metablock's RAID set. An extra copy could be made where one of
    /// them is about to be deleted.
    pub(crate) fn is_thinning(&self, machine: &ebb_meta::Machine) -> bool {
        let set = self.record.frozen.and_then(|frozen| machine.raid_set(RaidSetId::new(frozen.raid_set)));
        let slots = set.into_iter().flat_map(|set| set.slots);
        slots.into_iter().any(|slot| slot.metablock == self.metablock.raw() && !slot.leaving.is_empty())
    }

    /// The present state of a set, which may be in a RAID set. `None` if the metablock is gone.
    pub(crate) fn of(machine: &ebb_meta::Machine, metablock: MetablockId) -> Option<Self> {
        if let Some((inode, dataset, record)) = machine.kept_metablock(metablock) {
            let dataset = machine.dataset(dataset)?.clone();
            return Some(Self { metablock, inode, epoch: 0, record, dataset, is_kept: true });
        }
        let (inode, record) = machine.find_metablock(metablock)?;
        let (epoch, dataset) = (machine.attr(inode).ok()?.epoch, machine.dataset_of(inode).ok()?);
        Some(Self { metablock, inode, epoch, record, dataset, is_kept: false })
    }

    /// Whether the file is being recovered, which makes its sets equal first. `None` if it is gone.
    pub(crate) fn is_in_recovery(&self, machine: &ebb_meta::Machine) -> Option<bool> {
        if self.is_kept { Some(false) } else { machine.attr(self.inode).ok().map(|attr| attr.size_unknown) }
    }

    /// What a new member promises. What is frozen has no writer, and graves may refuse less.
    pub(crate) const fn promise(&self) -> u64 {
        if self.record.frozen.is_some() { Epoch::FROZEN.raw() } else { self.epoch }
    }

    /// The set with an empty seat in the place of a member. The order is kept, because it is that of the write
    /// pipeline.
    pub(crate) fn seats_without(&self, leaves: &pb::Member) -> Vec<Option<pb::Member>> {
        self.record.members.iter().map(|member| (!member.is_at(leaves)).then_some(*member)).collect()
    }
}
