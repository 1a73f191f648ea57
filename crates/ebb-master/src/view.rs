//! The view of a decision: the logged state, the soft state and the time of one moment.
//!
//! A view borrows all three, so that no part is older than another. It holds both locks, so it must be short-lived and
//! must not outlive an await.

use std::collections::BTreeSet;

use ebb_layout::LayoutKind;
use ebb_layout::chain::halves::Half;
use ebb_meta::Machine;
use ebb_runtime::Moment;
use ebb_types::{DatasetId, MetablockId, NodeId, VolumeId};
use ebb_wire::pb;

use crate::copies::Task;
use crate::copies::repair::surplus::{self, Candidate};
use crate::copies::repair::{Condition, SetView};
use crate::copies::route::{Route, choose_route};
use crate::options::Options;
use crate::placement::sleep_of;
use crate::registry::Sleep;
use crate::shared::Shared;
use crate::soft::Soft;

/// Minimum time for which two nodes must be awake together for a copy, besides the transfer of the bytes.
const MEETING_MS: u64 = 100;
/// Assumed minimum rate of a copy, in bytes per second, if there is no limit.
const LEAST_RATE: u64 = 50 << 20;
/// A wait for two nodes up to this time is no burden to writers.
pub(crate) const SOON_MS: u64 = 2_000;

/// State of the cluster at one moment.
#[derive(Clone, Copy)]
pub(crate) struct ClusterView<'a> {
    pub machine: &'a Machine,
    pub soft: &'a Soft,
    pub options: &'a Options,
    pub now: Moment,
    /// Milliseconds since the Unix epoch, the time of power plans.
    pub now_ms: u64,
}

impl Shared {
    /// The present view.
    pub(crate) fn view<'a>(&'a self, machine: &'a Machine, soft: &'a Soft) -> ClusterView<'a> {
        ClusterView { machine, soft, options: &self.options, now: self.runtime.now(), now_ms: self.wall_ms() }
    }

    /// Calls `look` with the present view. `look` must take no lock.
    #[track_caller]
    pub(crate) fn with_view<T>(&self, look: impl FnOnce(&ClusterView<'_>) -> T) -> T {
        let machine = self.group.machine();
        let soft = self.soft();
        look(&self.view(&machine, &soft))
    }
}

impl ClusterView<'_> {
    /// All recorded nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        nodes(self.machine).map(|node| NodeId::new(node.id))
    }

    /// Sleep of a node by the power plans.
    pub(crate) fn sleep_of(&self, node: NodeId) -> Sleep {
        sleep_of(&self.soft.plans, node, self.now_ms)
    }

    /// Whether no plan wakes a node.
    pub(crate) fn is_off(&self, node: NodeId) -> bool {
        self.sleep_of(node) == Sleep::Off
    }

    /// Whether a node may be a home of copies: it is known, not dead, and not being drained.
    pub(crate) fn is_home(&self, node: NodeId) -> bool {
        let record = self.machine.node(node);
        record.is_some_and(|record| !record.draining) && !self.soft.registry.is_dead(node)
    }

    /// Condition of a member.
    pub(crate) fn condition(&self, metablock: MetablockId, member: &pb::Member) -> Condition {
        condition(self.machine, self.soft, metablock, member)
    }

    /// A set with its members' conditions.
    pub(crate) fn set(&self, metablock: MetablockId, record: &pb::Metablock, wanted: u32) -> SetView {
        let members = record.members.iter().map(|member| (*member, self.condition(metablock, member)));
        let (wanted, members): (usize, Vec<_>) = (wanted.max(1) as usize, members.collect());
        let spare = if members.len() > wanted { self.spare(metablock, &members) } else { None };
        SetView { wanted, members, spare }
    }

    /// The member that leaves first if a set has too many.
    fn spare(&self, metablock: MetablockId, members: &[(pb::Member, Condition)]) -> Option<pb::Member> {
        let dataset = Task::of(self.machine, metablock)?.dataset.id;
        let chain = self.soft.chains.chain(DatasetId::new(dataset))?;
        let good = members.iter().filter(|(_, condition)| *condition == Condition::Good);
        let homes: Vec<NodeId> = good.clone().map(|(member, _)| member.home_id()).collect();
        let is_in = |half: Half, node: NodeId| half.has_any(&chain, &[node]);
        let part = |node: NodeId| match self.machine.registered(node) {
            // Of localized storage nodes each half is to keep a copy, and halves follow racks.
            Some(_) if chain.layout() == LayoutKind::Lsn && is_in(Half::First, node) => "first half",
            Some(_) if chain.layout() == LayoutKind::Lsn => "second half",
            node => node.map_or("", |node| &node.rack),
        };
        let candidate = |(member, _): &(pb::Member, Condition)| Candidate {
            member: *member,
            place: chain.place_of(member.home_id()).filter(|_| chain.is_due(&homes, member.home_id())),
            primaries: chain.primaries() as usize,
            part: part(member.node_id()),
        };
        surplus::choose(&good.map(candidate).collect::<Vec<_>>())
    }

    /// Readable members. Some may first have to wake.
    pub(crate) fn sources(&self, metablock: MetablockId, record: &pb::Metablock) -> Vec<pb::Member> {
        let is_good = |member: &&pb::Member| self.condition(metablock, member).is_source();
        record.members.iter().filter(is_good).copied().collect()
    }

    /// The home of the copy that is missing beside `staying`, if it must be kept. It is the home of the first of
    /// `members` that is a guest, or that a plan switches off. `None` means that the layout chooses another home.
    pub(crate) fn home_to_keep(&self, members: &[pb::Member], staying: &[pb::Member]) -> Option<NodeId> {
        let gone = members.iter().filter(|member| !staying.iter().any(|other| other.home_id() == member.home_id()));
        let kept = gone.filter(|member| member.is_guest() || self.is_off(member.node_id()));
        kept.map(pb::Member::home_id).find(|home| self.is_home(*home))
    }

    /// Nodes where a stray replica of this metablock waits for deletion. A new copy there would be deleted with it.
    /// Nodes that are off are left out, because they take no copy now and may be its home.
    pub(crate) fn nodes_with_strays(&self, metablock: MetablockId) -> Vec<NodeId> {
        let volumes = self.soft.work.strays(metablock);
        let has = |node: &&pb::Node| node.volumes.iter().any(|volume| volumes.contains(&VolumeId::new(volume.id)));
        let nodes = nodes(self.machine).filter(has).map(|node| NodeId::new(node.id));
        nodes.filter(|node| !self.is_off(*node)).collect()
    }

    /// Nodes whose limit has no room for another copy of `bytes`.
    pub(crate) fn busy_nodes(&self, bytes: u64) -> Vec<NodeId> {
        let work = &self.soft.work;
        let nodes: BTreeSet<NodeId> = work.copies.values().flat_map(|copy| [copy.source, copy.target]).collect();
        nodes.into_iter().filter(|node| !work.takes(*node, bytes, self.options.copies_per_node_max)).collect()
    }

    /// Time for which two nodes must be awake together for a copy of `bytes`, in milliseconds.
    pub(crate) fn need_ms(&self, bytes: u64) -> u64 {
        need_ms(self.options, bytes)
    }

    /// Route of a copy of `bytes`, if the plans ever wake both nodes.
    pub(crate) fn route(&self, source: NodeId, target: NodeId, bytes: u64) -> Option<Route> {
        choose_route(&self.soft.plans, source, target, self.now_ms, self.need_ms(bytes))
    }

    /// Chooses the source of a copy to a node: among members that are not busy and that the plans wake, the one that
    /// meets the target soonest, then the one with the least load. A node that is switched off is never a source.
    pub(crate) fn choose_source(&self, sources: &[pb::Member], target: NodeId, bytes: u64) -> Option<pb::Member> {
        let busy = self.busy_nodes(bytes);
        let idle = sources.iter().filter(|source| !busy.contains(&source.node_id()));
        let reached = idle.filter_map(|source| Some((self.route(source.node_id(), target, bytes)?, *source)));
        let best = reached.min_by_key(|(route, source)| (*route, self.soft.work.copy_load(source.node_id())));
        best.map(|(_, source)| source)
    }

    /// Whether a copy that can wait may start: the nodes are awake together now or soon, or never. The file's writers
    /// pause during the copy, so it must not wait long for its nodes.
    pub(crate) fn is_time(&self, source: NodeId, target: NodeId, bytes: u64) -> bool {
        matches!(self.route(source, target, bytes), Some(Route::Direct { wait_ms: 0..=SOON_MS } | Route::ByProxy))
    }

    /// Whether replicas may be deleted (docs/protocol.md, "Repair").
    pub(crate) fn is_safe_start(&self) -> bool {
        // A replica that a lost history left behind may be the only copy of a file's data.
        !self.machine.deletions_held()
            && self.soft.registry.is_safe_start(self.machine.nodes(), |node| self.is_off(node))
    }
}

/// All recorded nodes.
pub(crate) fn nodes(machine: &Machine) -> impl Iterator<Item = &pb::Node> {
    machine.nodes().filter_map(|record| record.node.as_ref())
}

/// Condition of a member, by everything that is known.
pub(crate) fn condition(machine: &Machine, soft: &Soft, metablock: MetablockId, member: &pb::Member) -> Condition {
    let (node, volume) = (member.node_id(), member.volume_id());
    let Some(record) = machine.node(node) else { return Condition::NodeLost };
    if soft.registry.is_dead(node) {
        return Condition::NodeLost;
    }
    let known = record.node.iter().flat_map(|node| &node.volumes).find(|known| known.id == member.volume);
    // Another incarnation of the volume does not have this replica.
    if known.is_none_or(|known| known.incarnation != member.incarnation) || soft.registry.is_poisoned(node, volume) {
        return Condition::VolumeLost;
    }
    let place = (metablock, volume);
    if soft.work.damaged.contains(&place) {
        return if soft.work.cramped.contains(&place) { Condition::Cramped } else { Condition::Damaged };
    }
    match (soft.registry.is_sound(node, volume), record.draining) {
        (true, false) => Condition::Good,
        (true, true) => Condition::Draining,
        (false, _) => Condition::Unknown,
    }
}

/// Time for which two nodes must be awake together for a copy of `bytes`, in milliseconds.
pub(crate) fn need_ms(options: &Options, bytes: u64) -> u64 {
    let rate = match options.copy_rate_bytes_per_sec {
        0 => LEAST_RATE,
        // At most four large copies share a node's rate.
        all => (all / 4).max(1),
    };
    MEETING_MS + bytes.saturating_mul(1000) / rate
}
