//! The state between two RAID sets of one batch: what nodes hold already, and what earlier plans have promised.

use std::collections::BTreeMap;

use ebb_types::{CHUNK_SIZE, MetablockId, NodeId, VolumeId};

use super::draft::Stay;
use super::{Candidate, RaidRule, Sites};
use crate::rng::hash;
use crate::{Reason, VolumeView};

/// What the nodes hold of one dataset's RAID sets. Kept by the caller as members come and go.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Held {
    /// Members of slots on each node.
    pub thin: BTreeMap<NodeId, u64>,
    /// Bytes of rows on each node.
    pub check_bytes: BTreeMap<NodeId, u64>,
}

impl Held {
    /// Slots on a node.
    #[must_use]
    pub fn thin_on(&self, node: NodeId) -> u64 {
        self.thin.get(&node).copied().unwrap_or(0)
    }

    /// Bytes of rows on a node.
    #[must_use]
    pub fn check_bytes_on(&self, node: NodeId) -> u64 {
        self.check_bytes.get(&node).copied().unwrap_or(0)
    }
}

/// Slots by which the node of a record's first member may be ahead of another's, and keeps its copy all the same. The
/// first copy is where its writer wished it to be. But where first copies lie by lot or on few hosts, a read of all that
/// is encoded would wait for the node that has most.
pub(super) const FIRST_WORTH: i64 = 2;

/// A batch in progress.
#[derive(Clone, Debug)]
pub(super) struct Work<'a> {
    pub sites: &'a Sites<'a>,
    pub rule: &'a RaidRule,
    pub held: Held,
    /// Bytes on each volume that earlier plans of the batch will take.
    promised: BTreeMap<(NodeId, VolumeId), u64>,
}

impl<'a> Work<'a> {
    pub fn new(sites: &'a Sites<'a>, rule: &'a RaidRule, held: &Held) -> Self {
        Self { sites, rule, held: held.clone(), promised: BTreeMap::new() }
    }

    /// The volume of a node with most room, if it has as much as this; its node is on.
    pub fn roomiest(&self, node: NodeId, bytes: u64) -> Option<&'a VolumeView> {
        let free = |volume: &VolumeView| {
            let promised = self.promised.get(&(node, volume.volume)).copied().unwrap_or(0);
            volume.free_bytes.saturating_sub(promised)
        };
        let has_room =
            |volume: &VolumeView| VolumeView { free_bytes: free(volume), ..volume.clone() }.has_row_room(bytes);
        let roomy = self.sites.serving(node).filter(|volume| has_room(volume));
        roomy.max_by_key(|volume| (free(volume), std::cmp::Reverse(volume.volume)))
    }

    /// The volume of a member that may stay where it is.
    pub fn staying(&self, member: (NodeId, VolumeId)) -> Option<&'a VolumeView> {
        self.sites.serving(member.0).find(|volume| volume.volume == member.1)
    }

    /// Counts the row that a plan puts on a volume.
    pub fn promise(&mut self, volume: &VolumeView, row_bytes: u64, room_bytes: u64) {
        *self.held.check_bytes.entry(volume.node).or_default() += row_bytes;
        *self.promised.entry((volume.node, volume.volume)).or_default() += room_bytes;
    }

    /// The ways in which a candidate can keep as many members as its code wants. None: it is no candidate now.
    pub fn stays(&self, candidate: &Candidate) -> Vec<Stay<'a>> {
        let serving: Vec<&VolumeView> = candidate.members.iter().filter_map(|member| self.staying(*member)).collect();
        let first = candidate.members.first().map(|member| member.0);
        let is_primary = |node: NodeId| {
            self.rule
                .primaries()
                .is_none_or(|chain| chain.place_of(node).is_some_and(|place| place < chain.primaries() as usize))
        };
        let fewest = serving.iter().map(|volume| self.held.thin_on(volume.node)).min();
        let stay = |volumes: Vec<&'a VolumeView>| {
            let has_first = volumes.iter().any(|volume| Some(volume.node) == first);
            let thin: u64 = volumes.iter().map(|volume| self.held.thin_on(volume.node)).sum();
            let thin = i64::try_from(thin).unwrap_or(i64::MAX >> 24).min(i64::MAX >> 24);
            let reasons = volumes.iter().map(|volume| match volume.node {
                node if self.rule.primaries().is_some() && is_primary(node) => Reason::OwnPrimary,
                node if Some(node) == first => Reason::FirstStays,
                node if Some(self.held.thin_on(node)) == fewest => Reason::FewestThin,
                _ => Reason::HostsTaken,
            });
            let reasons = reasons.collect();
            Stay { volumes, reasons, cost: if has_first { thin } else { thin + FIRST_WORTH } }
        };
        if self.rule.spread.code.copies == 1 {
            let single = serving.iter().filter(|volume| is_primary(volume.node));
            return single.map(|volume| stay(vec![*volume])).collect();
        }
        let pairs =
            serving.iter().enumerate().flat_map(|(at, one)| serving[at + 1..].iter().map(move |two| (*one, *two)));
        let fits = |(one, two): &(&VolumeView, &VolumeView)| {
            (is_primary(one.node) || is_primary(two.node)) && self.is_pair(one.node, two.node)
        };
        pairs.filter(fits).map(|(one, two)| stay(vec![one, two])).collect()
    }

    /// Whether a slot's two copies may lie on these nodes.
    fn is_pair(&self, one: NodeId, two: NodeId) -> bool {
        let hosts = [one, two].map(|node| self.sites.host_of(node));
        let racks = [one, two].map(|node| self.sites.rack_of(node));
        hosts[0] != hosts[1] && (self.rule.spread.racks == super::Racks::TooFew || racks[0] != racks[1])
    }
}

/// A number by which equals are ordered, so that no node is favoured.
pub(super) fn tie(node: NodeId, first: MetablockId) -> u64 {
    hash(&[node.raw(), first.raw()])
}

/// Length of a row over slots of which this is the longest, in bytes: whole chunks.
#[must_use]
pub const fn row_len_bytes(longest: u64) -> u64 {
    longest.next_multiple_of(CHUNK_SIZE)
}

/// Room that a row needs, in bytes: with the checksums of every chunk of every slot behind it, and the names of the
/// slots.
#[must_use]
pub fn row_room_bytes(longest: u64, slots: u32) -> u64 {
    const SUM_BYTES: u64 = 4;
    const NAME_BYTES: u64 = 64;
    let sums = u64::from(slots + 1) * (longest.div_ceil(CHUNK_SIZE) * SUM_BYTES + NAME_BYTES);
    row_len_bytes(longest) + sums.next_multiple_of(CHUNK_SIZE)
}
