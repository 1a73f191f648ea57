//! Whether the members of a RAID set lie where no failure takes more than its code bears.

use std::collections::{BTreeMap, BTreeSet};

use ebb_layout::View;
use ebb_layout::raid::{Part, Racks, RaidMembers, Seat, Sites, SpreadRule, check_spread, stand_in};
use ebb_types::{Domain, HostName, MetablockId, NodeId, RackName, RaidCode, RaidSetId, Result, bail};
use ebb_wire::pb;

use super::RaidSet;
use crate::machine::Machine;

/// Members by part. Those of slots that still have all their copies are left out: they break no rule yet.
#[derive(Default)]
pub(crate) struct Seats(BTreeMap<Part, Vec<pb::Member>>);

impl Seats {
    /// The rows' members.
    pub(crate) fn of_rows(set: &RaidSet) -> Self {
        let rows = (0..).zip(&set.rows);
        Self(rows.map(|(place, row)| (Part::Row(place), vec![row.member])).collect())
    }

    /// Gives a part these members alone.
    pub(crate) fn put(&mut self, part: Part, members: &[pb::Member]) {
        self.0.insert(part, members.to_vec());
    }

    /// Where they lie, by what is to lie apart.
    fn by(&self, domain: Domain) -> RaidMembers {
        let seat = |member: &pb::Member| match domain {
            Domain::Host => Seat { node: member.node_id(), home: member.home_id() },
            Domain::Volume => Seat::at_home(stand_in(member.volume_id())),
        };
        let parts = self.0.iter().map(|(part, members)| (*part, members.iter().map(seat).collect()));
        RaidMembers { parts: parts.collect() }
    }

    /// Nodes on which they lie, and where they belong.
    fn nodes(&self) -> BTreeSet<NodeId> {
        self.0.values().flatten().flat_map(|member| [member.node_id(), member.home_id()]).collect()
    }
}

/// Whether a slot has as few members as its code keeps.
pub(crate) fn is_thin(code: RaidCode, members: &[pb::Member]) -> bool {
    members.len() <= code.copies as usize
}

impl Machine {
    /// Where the members of the parts lie that are thin.
    pub(crate) fn seats(&self, set: &RaidSet) -> Seats {
        let mut seats = Seats::of_rows(set);
        for (place, slot) in (0..).zip(&set.slots) {
            let members = self.slot_members(slot);
            if is_thin(set.code, &members) {
                seats.put(Part::Slot(place), &members);
            }
        }
        seats
    }

    /// The same for a RAID set that is not recorded yet.
    pub(crate) fn proposed_seats(&self, set: &pb::RaidSet, code: RaidCode) -> Seats {
        let mut seats = Seats::default();
        for (place, row) in (0..).zip(&set.rows) {
            seats.put(Part::Row(place), row.member.as_slice());
        }
        for (place, slot) in (0..).zip(&set.slots) {
            let block = self.metablock(MetablockId::new(slot.metablock));
            if let Some(block) = block.filter(|block| is_thin(code, &block.members)) {
                seats.put(Part::Slot(place), &block.members);
            }
        }
        seats
    }

    /// I-65, I-77: refuses members of which one failure would take more than the code bears.
    pub(crate) fn check_seats(&self, id: RaidSetId, code: RaidCode, seats: &Seats) -> Result<()> {
        let nodes = seats.nodes();
        if code.domain == Domain::Volume && nodes.len() > 1 {
            let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
            bail!(Invalid, "{id} is one of volumes of one node, and has members on {}", nodes.join(", "));
        }
        // Racks and disks are the planner's: here it is not known whether there are enough, and which volumes share one.
        let rule = SpreadRule { code, racks: Racks::TooFew };
        let view = self.view_of(&nodes);
        if let Some(breach) = check_spread(&Sites::of(&view), rule, &seats.by(code.domain)).first() {
            bail!(Invalid, "{id}: {breach}");
        }
        Ok(())
    }

    /// Hosts and racks of registered nodes.
    fn view_of(&self, nodes: &BTreeSet<NodeId>) -> View {
        let registered = nodes.iter().filter_map(|node| Some((*node, self.registered(*node)?)));
        let volume = |(node, known): (NodeId, &pb::Node)| ebb_layout::VolumeView {
            node,
            host: HostName::new(known.host.clone()),
            rack: RackName::new(known.rack.clone()),
            ..Default::default()
        };
        View { volumes: registered.map(volume).collect(), ..View::default() }
    }
}
