//! Copies: what makes them, moves them and takes them away.
//!
//! Four choosers look at the sets, each for reasons of its own. Each offers [`Step`]s: one small change of one set, with a
//! [`Priority`] and a [`Reason`]. One loop (`reconciler`) asks them in the order of their priorities, and one executor
//! (`executor`) finds the nodes, keeps to the limits, copies and records.
//!
//! | chooser | what it looks for | priority |
//! |---|---|---|
//! | [`repair`] | sets that lack good copies, or have too many members | `Mend` |
//! | [`guests`] | copies that lie away from home | `Leave` or `Move` |
//! | [`layout`] | copies that lie where their dataset's chain does not want them | `Move` |
//! | [`extras`] | extra copies of what is read often | `Spare` |
//!
//! Recovery settles a set before any of them looks at it. Its copies wait for no turn: nobody can use the file before. They count
//! against their nodes, so that others wait for them, and go by `transfer` as all do.
//!
//! A step rests on nothing that is old: it is chosen from the map of now, and recorded by a compare-and-swap on the epoch and
//! generation that it was chosen by. A step that cannot begin leaves an [`Obstacle`], so that people can ask why a copy does not
//! move (`why`).

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

use ebb_types::{InodeId, MetablockId, NodeId};
use ebb_wire::pb;

pub use limits::Priority;

/// A set, as it was looked at for a step.
#[derive(Clone, Debug)]
pub struct Task {
    /// Which metablock.
    pub metablock: MetablockId,
    /// Its file.
    pub inode: InodeId,
    /// The file's epoch.
    pub epoch: u64,
    /// The set as recorded.
    pub record: pb::Metablock,
    /// The file's dataset.
    pub dataset: pb::Dataset,
}

/// One small step towards what a set should be.
#[derive(Clone, Debug)]
pub struct Step {
    /// The set.
    pub task: Task,
    /// What is done.
    pub kind: Kind,
    /// Which steps it gives way to, and what it may use.
    pub priority: Priority,
    /// Why.
    pub reason: Reason,
}

/// What a step does.
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// A copy joins the set.
    Join {
        /// Where it goes.
        target: Target,
        /// The set when the copy is made. The seat that is empty is the copy's.
        seats: Vec<Option<pb::Member>>,
    },
    /// A member that a recovery left out joins again, with what it has.
    Rejoin {
        /// What is recorded of it.
        left_out: pb::LeftOut,
        /// Members that stay.
        staying: Vec<pb::Member>,
    },
    /// A copy takes the place of a damaged one, where that is. The set stays as it is.
    Renew {
        /// The member whose replica is made good.
        member: pb::Member,
    },
    /// The set changes, and nothing is copied.
    Change {
        /// The set afterwards.
        members: Vec<pb::Member>,
    },
    /// An extra copy is made beside the set.
    Extra,
    /// An extra copy goes.
    TakeBack {
        /// Which.
        extra: pb::Member,
    },
}

/// Where a copy that joins a set goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Where the layout wants it, in the place of this member if there is one that leaves.
    Layout {
        /// The member that leaves.
        replaced: Option<pb::Member>,
    },
    /// To this node, or nowhere.
    Home(NodeId),
}

/// Why a step is taken.
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
    /// Fewer members than wanted.
    TooFew,
    /// There are enough good copies without this member.
    Superfluous,
    /// A member that a recovery went on without is there again.
    Returned,
    /// A recovery makes the members of a set equal.
    Recovery,
    /// A guest's home is lost.
    Adopted,
    /// A guest's home is on again.
    GoesHome,
    /// A guest's host is about to be switched off.
    HostLeaves,
    /// It lies where the dataset's chain does not want it.
    Misplaced,
    /// It is read often.
    Popular,
    /// The extra copy is damaged, gone or on a node that drains.
    ExtraLost,
    /// The extra copy's volume is short of room.
    ExtraTight,
    /// The dataset has no share of the unused capacity any more.
    NoShare,
    /// It is read less than others now, is written often, or the share has become smaller.
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

/// Why a step does not begin now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// No member can be read.
    NoSource,
    /// Nodes that it needs take part in as many copies as they may.
    NodesBusy,
    /// There is no place for a copy; the layout says why.
    NoPlace(String),
    /// The nodes do not serve together soon.
    NodesApart,
    /// This node has work for programs, or much to write.
    NodeNotIdle(NodeId),
    /// This node is to delete a replica of the same metablock first.
    Stray(NodeId),
    /// A session holds the file's write lease, and was asked for it.
    Held,
    /// The file is being recovered.
    Recovering,
    /// Nothing was written yet, so there is nothing to copy.
    Unwritten,
    /// As many steps of this priority are under way as may be.
    TooMany,
    /// What it was chosen by has changed, or the record of it failed.
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

/// What became of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A copy is under way, and ends by itself.
    Copying,
    /// The set was changed; nothing was copied.
    Recorded,
    /// Not now.
    Not(Obstacle),
}

impl Task {
    /// A set as it is now; none if it is gone.
    pub(crate) fn find(machine: &ebb_meta::Machine, metablock: MetablockId) -> Option<Self> {
        let (inode, record) = machine.find_metablock(metablock)?;
        let (epoch, dataset) = (machine.attr(inode).ok()?.epoch, machine.dataset_of(inode).ok()?);
        Some(Self { metablock, inode, epoch, record, dataset })
    }

    /// The set with an empty seat in the place of one of its members. The record's order is the pipeline's.
    pub(crate) fn seats_without(&self, leaves: &pb::Member) -> Vec<Option<pb::Member>> {
        self.record.members.iter().map(|member| (!member.is_at(leaves)).then_some(*member)).collect()
    }
}
