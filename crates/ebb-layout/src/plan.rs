//! The answer of a layout: members and reasons.

use std::fmt;

use ebb_types::{Incarnation, NodeId, VolumeId};

/// Members to add, first copy first. Prints one member a line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// In the order of choice; a write pipeline may follow it.
    pub members: Vec<Chosen>,
}

/// One member and why it was chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chosen {
    /// Node.
    pub node: NodeId,
    /// Volume of that node.
    pub volume: VolumeId,
    /// Life of the volume that the choice was made for.
    pub incarnation: Incarnation,
    /// Where the copy belongs: the node itself, unless it is a guest there.
    pub home: NodeId,
    /// Why.
    pub reason: Reason,
}

/// Why a member was chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Reason {
    /// Write affinity names its host.
    PreferredHost,
    /// It is on the writer's host.
    WriterHost,
    /// The first copy, and neither affinity nor the writer's host could be served.
    AnyNode,
    /// In another rack than all copies so far.
    OtherRack,
    /// In the second copy's rack, on another host.
    RackOfSecond,
    /// A further copy, in a rack below its limit.
    Spread,
    /// Next disk in the file's round.
    StripeTurn,
    /// At the round's stride from the copy before it.
    StripeStride,
    /// The rack rule wished otherwise, but no such rack has another host with room.
    RackRuleGivenUp,
    /// The primary that is furthest below its share.
    Primary,
    /// The node of the copy's run that is furthest below its share.
    ChainRun,
    /// Its place on the circle.
    CirclePlace,
    /// A node beside its place on the circle, because the one at that place cannot take it.
    CircleNext,
    /// Half-way in a widest gap on the circle: a copy beside those that the dataset has for good.
    CircleGap,
    /// No node of the copy's run can take it.
    RunGivenUp,
    /// All hosts that could take a copy have one already: another node of the same host.
    SharedHost,
    /// It is where the copy belongs.
    Home,
    /// The copy's home is off: the active node with the fewest guests.
    FewestGuests,
    /// The copy's home has too much to write: the node that stays on and has least.
    LeastToWrite,
    /// A slot stays with the first member of its record.
    FirstStays,
    /// A slot stays with its primary.
    OwnPrimary,
    /// The node has fewest slots of those that may have it.
    FewestThin,
    /// The hosts of the slot's other members have slots of the RAID set.
    HostsTaken,
    /// A slot is thin already, and stays where it is.
    StaysThin,
    /// The node has fewest check bytes of its share.
    FewestChecks,
    /// The node of the row's run that has fewest check bytes of its share.
    RowRun,
    /// It is the localized storage node (LSN) of the writer's host.
    WriterLsn,
    /// It is the LSN of the host that write affinity names.
    PreferredLsn,
    /// The writer has no LSN: one by its room for each of its hosts.
    RoomForHosts,
    /// The LSN whose turn it is in the half without a copy.
    OtherHalf,
    /// The LSN whose turn it is, where both halves have a copy.
    FurtherLsn,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PreferredHost => "its host is named by write affinity",
            Self::WriterHost => "the writer's own host",
            Self::AnyNode => "first copy, any node",
            Self::OtherRack => "another rack than the copies so far",
            Self::RackOfSecond => "rack of the second copy, another host",
            Self::Spread => "any rack below its limit",
            Self::StripeTurn => "next disk in the file's round",
            Self::StripeStride => "a stride from the copy before",
            Self::RackRuleGivenUp => "no host with room where the rack rule wants it",
            Self::Primary => "the primary that has least of its share",
            Self::ChainRun => "the node of the copy's run that has least of its share",
            Self::CirclePlace => "its place on the circle",
            Self::CircleNext => "beside its place on the circle, where the node cannot take it",
            Self::CircleGap => "half-way in a widest gap on the circle",
            Self::RunGivenUp => "no node of the copy's run can take it",
            Self::SharedHost => "no other host with room",
            Self::Home => "where it belongs",
            Self::FewestGuests => "the active node with the fewest guests",
            Self::LeastToWrite => "its home has too much to write, and this node least",
            Self::FirstStays => "the record's first member stays",
            Self::OwnPrimary => "its primary",
            Self::FewestThin => "the node with the fewest slots",
            Self::HostsTaken => "the hosts of its other members have slots of the RAID set",
            Self::StaysThin => "it is thin there already",
            Self::FewestChecks => "the node with the fewest check bytes of its share",
            Self::WriterLsn => "the localized storage node of the writer's host",
            Self::PreferredLsn => "the localized storage node of the host that write affinity names",
            Self::RoomForHosts => "first copy, a localized storage node by its room for each of its hosts",
            Self::OtherHalf => "the localized storage node whose turn it is in the half without a copy",
            Self::FurtherLsn => "the localized storage node whose turn it is, both halves having a copy",
            Self::RowRun => "the node of the row's run with the fewest check bytes of its share",
        })
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ({})", self.node, self.volume, self.incarnation)?;
        if self.home != self.node {
            write!(f, ", a guest for {}", self.home)?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, member) in self.members.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{member}")?;
        }
        Ok(())
    }
}
