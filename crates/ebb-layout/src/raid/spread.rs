//! The spread rule: where the members of one RAID set may lie, so that no failure takes more than its code bears.
//!
//! - With one copy, no two members are on one host.
//! - With two copies, no two slots are on the same two hosts, and the row is on no host of a slot. Then any two hosts
//!   take either one slot or the row, and never both.
//! - Where racks are enough: with one copy, no rack has more members than there are rows. With two, each slot is in two
//!   racks.
//!
//! A guest lies elsewhere than it belongs, and goes home some day. So members are compared by the hosts on which they lie
//! and by the hosts of their homes, and the rule holds before, while and after guests go home.

use std::collections::BTreeMap;
use std::fmt;

use ebb_types::{HostName, NodeId, RackName, RaidCode, counted};

use super::Sites;

/// Where a member lies, and where it belongs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Seat {
    /// Its node.
    pub node: NodeId,
    /// The node itself, unless it is a guest there.
    pub home: NodeId,
}

impl Seat {
    /// On a node, and no guest there.
    #[must_use]
    pub const fn at_home(node: NodeId) -> Self {
        Self { node, home: node }
    }
}

/// A place of a RAID set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Part {
    /// Place of a data metablock, by number.
    Slot(u32),
    /// Place of a check metablock, by number.
    Row(u32),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot(number) => write!(f, "slot {number}"),
            Self::Row(number) => write!(f, "row {number}"),
        }
    }
}

/// The members of a RAID set, by part. An empty slot is left out. A part that has lost all members has none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RaidMembers {
    /// Members of each part.
    pub parts: BTreeMap<Part, Vec<Seat>>,
}

impl RaidMembers {
    /// All members, part by part.
    pub fn seats(&self) -> impl Iterator<Item = (Part, Seat)> {
        self.parts.iter().flat_map(|(part, seats)| seats.iter().map(|seat| (*part, *seat)))
    }

    /// The members of a part; none of an empty slot.
    #[must_use]
    pub fn of(&self, part: Part) -> &[Seat] {
        self.parts.get(&part).map_or(&[], Vec::as_slice)
    }
}

/// Whether the racks are enough for a code and a layout to survive the loss of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Racks {
    /// They are: racks count.
    Enough,
    /// They are not: hosts alone count.
    TooFew,
}

/// What the members of a RAID set are held against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpreadRule {
    /// The code of the RAID set itself, whatever its dataset's is by now.
    pub code: RaidCode,
    /// Whether racks count.
    pub racks: Racks,
}

/// A breach of the spread rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Violation {
    /// Two members share a host, or will when guests have gone home.
    SharedHost {
        /// Both.
        members: [(Part, Seat); 2],
        /// The host; none: the node is unknown.
        host: Option<HostName>,
    },
    /// Two slots of two copies each are on the same two hosts, or will be.
    SamePair {
        /// Both slots, with the members that are on these hosts.
        slots: [(Part, [Seat; 2]); 2],
    },
    /// A rack has more members than the code has rows.
    CrowdedRack {
        /// The rack.
        rack: RackName,
        /// Its members.
        members: u32,
        /// As many as it may have.
        most: u32,
    },
    /// All copies of a slot are in one rack.
    OneRack {
        /// The slot.
        slot: Part,
        /// The rack.
        rack: RackName,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SharedHost { members: [(part, seat), (other, beside)], host } => {
                write!(f, "{part} on {} and {other} on {} share ", seat.node, beside.node)?;
                match host {
                    Some(host) => write!(f, "the host {host}"),
                    None => f.write_str("a node that is not known"),
                }
            }
            Self::SamePair { slots: [(part, [one, two]), (other, _)] } => {
                write!(f, "{part} and {other} lie on the hosts of {} and {} both", one.node, two.node)
            }
            Self::CrowdedRack { rack, members, most } => {
                write!(f, "the rack {rack} has {} and may have {most}", counted((*members).into(), "member"))
            }
            Self::OneRack { slot, rack } => write!(f, "all copies of {slot} are in the rack {rack}"),
        }
    }
}

/// The breaches of the spread rule, of hosts first. None: any losses that the code bears leave everything decodable.
#[must_use]
pub fn check_spread(sites: &Sites<'_>, rule: SpreadRule, members: &RaidMembers) -> Vec<Violation> {
    let mut placed = Placed::new(sites, rule);
    let mut found = Vec::new();
    for (part, seat) in members.seats() {
        found.extend(placed.host_conflicts(part, seat));
        placed.add(part, seat);
    }
    found.extend(placed.rack_conflicts());
    found
}

/// A host, or a node that the view does not know, which shares its host with none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Place {
    Host(usize),
    Unknown(NodeId),
}

/// Members that lie already, for the question whether one more may.
#[derive(Clone, Debug)]
pub(super) struct Placed<'s, 'v> {
    sites: &'s Sites<'v>,
    rule: SpreadRule,
    seats: Vec<(Part, Seat)>,
}

impl<'s, 'v> Placed<'s, 'v> {
    pub fn new(sites: &'s Sites<'v>, rule: SpreadRule) -> Self {
        Self { sites, rule, seats: Vec::new() }
    }

    pub fn add(&mut self, part: Part, seat: Seat) {
        self.seats.push((part, seat));
    }

    /// Whether a member more would keep the rule.
    pub fn allows(&self, part: Part, seat: Seat) -> bool {
        if !self.host_conflicts(part, seat).is_empty() {
            return false;
        }
        let mut with = self.clone();
        let before = with.rack_conflicts();
        with.add(part, seat);
        with.rack_conflicts().iter().all(|conflict| before.contains(conflict))
    }

    /// What a member would break by the hosts of those before it.
    pub fn host_conflicts(&self, part: Part, seat: Seat) -> Vec<Violation> {
        let mut found = Vec::new();
        for (other, beside) in &self.seats {
            if self.is_apart(part, *other)
                && let Some(place) = self.shared(seat, *beside)
            {
                let host = match place {
                    Place::Host(host) => Some(self.sites.host_name(host).clone()),
                    Place::Unknown(_) => None,
                };
                found.push(Violation::SharedHost { members: [(*other, *beside), (part, seat)], host });
            }
        }
        if self.rule.code.copies > 1 && matches!(part, Part::Slot(_)) {
            let own = self.seats.iter().filter(|(other, _)| *other == part);
            found.extend(own.flat_map(|(_, twin)| self.same_pairs(part, [*twin, seat])));
        }
        found
    }

    /// Whether two members may not share a host: only slots of two copies may, one copy each.
    fn is_apart(&self, part: Part, other: Part) -> bool {
        let are_slots = matches!((part, other), (Part::Slot(_), Part::Slot(_)));
        self.rule.code.copies == 1 || part == other || !are_slots
    }

    /// The slots that have a pair on the same hosts.
    fn same_pairs(&self, part: Part, pair: [Seat; 2]) -> Vec<Violation> {
        let shared = |one: Seat, other: Seat| self.shared(one, other).is_some();
        let mut found = Vec::new();
        for (at, (other, one)) in self.seats.iter().enumerate() {
            let is_slot = matches!(other, Part::Slot(_)) && *other != part;
            for (_, two) in self.seats[at + 1..].iter().filter(|(twin, _)| is_slot && twin == other) {
                let straight = shared(pair[0], *one) && shared(pair[1], *two);
                if straight || (shared(pair[0], *two) && shared(pair[1], *one)) {
                    found.push(Violation::SamePair { slots: [(*other, [*one, *two]), (part, pair)] });
                }
            }
        }
        found
    }

    /// A host on which both can come to lie.
    fn shared(&self, one: Seat, other: Seat) -> Option<Place> {
        let places = |seat: Seat| [seat.node, seat.home].map(|node| self.place(node));
        let others = places(other);
        places(one).into_iter().find(|place| others.contains(place))
    }

    fn place(&self, node: NodeId) -> Place {
        self.sites.host_of(node).map_or(Place::Unknown(node), Place::Host)
    }

    /// Racks that hold more than they may, by where members lie and by where they belong.
    pub fn rack_conflicts(&self) -> Vec<Violation> {
        if self.rule.racks == Racks::TooFew {
            return Vec::new();
        }
        let by_node = self.rack_conflicts_by(|seat| seat.node);
        let mut found = by_node.clone();
        found.extend(self.rack_conflicts_by(|seat| seat.home).into_iter().filter(|one| !by_node.contains(one)));
        found
    }

    fn rack_conflicts_by(&self, node: impl Fn(Seat) -> NodeId) -> Vec<Violation> {
        let rack = |seat: &Seat| self.sites.rack_of(node(*seat));
        let name = |rack: usize| self.sites.rack_name(rack).clone();
        if self.rule.code.copies == 1 {
            let most = self.rule.code.rows;
            let mut counts: BTreeMap<usize, u32> = BTreeMap::new();
            self.seats.iter().filter_map(|(_, seat)| rack(seat)).for_each(|rack| *counts.entry(rack).or_default() += 1);
            let crowded = counts.into_iter().filter(|(_, members)| *members > most);
            return crowded.map(|(rack, members)| Violation::CrowdedRack { rack: name(rack), members, most }).collect();
        }
        let mut slots: BTreeMap<Part, Vec<Option<usize>>> = BTreeMap::new();
        let of_slots = self.seats.iter().filter(|(part, _)| matches!(part, Part::Slot(_)));
        of_slots.for_each(|(part, seat)| slots.entry(*part).or_default().push(rack(seat)));
        let one_rack = slots.into_iter().filter_map(|(slot, racks)| {
            let first = (*racks.first()?)?;
            (racks.len() > 1 && racks.iter().all(|rack| *rack == Some(first))).then_some((slot, first))
        });
        one_rack.map(|(slot, rack)| Violation::OneRack { slot, rack: name(rack) }).collect()
    }
}

#[cfg(test)]
mod tests;
