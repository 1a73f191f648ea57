//! The nodes as last heard from the master, and how much is asked of each.

pub(crate) mod gray;
pub(crate) mod silence;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ebb_layout::SubRacks;
use ebb_power::read::Distance;
use ebb_runtime::Moment;
use ebb_types::{DatasetId, HostName, Result, err};
use ebb_wire::{convert, pb};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::nodes::silence::Silence;

/// The node map. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeMap(Arc<Mutex<State>>, Arc<Notify>);

/// A member, and where its node is reached.
#[derive(Clone, Debug)]
pub(crate) struct Hop {
    pub member: pb::Member,
    pub address: String,
    pub host: String,
}

impl Hop {
    /// `node`: the member's.
    pub fn new(member: pb::Member, node: &pb::Node) -> Self {
        assert_eq!(member.node, node.id, "a member is reached at its own node");
        Self { member, address: node.address.clone(), host: node.host.clone() }
    }

    pub fn to_message(&self) -> pb::Hop {
        pb::Hop { member: Some(self.member), address: self.address.clone(), host: self.host.clone() }
    }
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    nodes: BTreeMap<u64, pb::Node>,
    /// The first node of each host.
    hosts: BTreeMap<String, u64>,
    /// As the nodes declare them.
    sub_racks: Arc<SubRacks>,
    /// Calls in progress.
    outstanding: BTreeMap<u64, usize>,
    silence: Silence,
    /// Nodes that answer again and whose return was not reported to the master yet.
    reached: BTreeSet<u64>,
    /// Nodes that count as gray for this client alone, with the time that they take.
    slow_links: BTreeMap<u64, Duration>,
    /// All that count as gray.
    gray: BTreeMap<u64, Duration>,
    allotment: Allotment,
}

/// The nodes that serve one dataset alone, as the master has allotted them.
#[derive(Debug, Default)]
struct Allotment {
    /// By node.
    serves: BTreeMap<u64, u64>,
    /// The datasets that have nodes of their own.
    datasets: BTreeSet<u64>,
    /// How often it was another one.
    changes: u64,
}

impl Allotment {
    fn update<'a>(&mut self, nodes: impl Iterator<Item = &'a pb::Node>) {
        let serves = convert::serving(nodes);
        if serves != self.serves {
            self.datasets = serves.values().copied().collect();
            self.serves = serves;
            self.changes += 1;
        }
    }
}

impl State {
    /// Computes the gray nodes anew.
    fn find_gray(&mut self) {
        let gray = |node: &pb::Node| node.gray.map(|gray| (node.id, Duration::from_micros(gray.took_us)));
        let known = self.nodes.values().filter_map(gray);
        self.gray = known.chain(self.slow_links.iter().map(|(node, took)| (*node, *took))).collect();
    }

    fn is_well(&self, node: &pb::Node) -> bool {
        let answers = node.state() == pb::NodeState::NodeLive && !node.late && self.silence.since(node.id).is_none();
        answers && !self.gray.contains_key(&node.id)
    }
}

impl NodeMap {
    /// Takes a newer map.
    pub fn update(&self, version: u64, nodes: Vec<pb::Node>) {
        {
            let mut state = self.0.lock();
            state.version = version;
            state.nodes = nodes.into_iter().map(|node| (node.id, node)).collect();
            // Of several on a host the first stays.
            state.hosts = state.nodes.values().rev().map(|node| (node.host.clone(), node.id)).collect();
            state.sub_racks = Arc::new(SubRacks::new(state.nodes.values().map(pb::Node::declared)));
            state.find_gray();
            let State { allotment, nodes, .. } = &mut *state;
            allotment.update(nodes.values());
        }
        self.1.notify_waiters();
    }

    /// How often the allotment of nodes to datasets has changed.
    pub fn allotment(&self) -> u64 {
        self.0.lock().allotment.changes
    }

    /// Those of these nodes that serve another dataset than this one. None do if it has no nodes of its own, or is not
    /// known.
    pub fn foreign_to(&self, dataset: Option<DatasetId>, nodes: impl Iterator<Item = u64>) -> Vec<u64> {
        let state = self.0.lock();
        let Some(own) = dataset.map(DatasetId::raw).filter(|own| state.allotment.datasets.contains(own)) else {
            return Vec::new();
        };
        let is_foreign = |node: &u64| state.allotment.serves.get(node).is_some_and(|other| *other != own);
        nodes.filter(is_foreign).collect()
    }

    /// Told when the map or the power plans change, or a node is found silent. Whoever waits takes it before looking.
    pub fn changes(&self) -> Arc<Notify> {
        self.1.clone()
    }

    /// Has all that wait for changes look again.
    pub fn wake_waiters(&self) {
        self.1.notify_waiters();
    }

    /// Forgets the version, so that the next poll brings the map again (another master counts from elsewhere).
    pub fn forget_version(&self) {
        self.0.lock().version = 0;
    }

    /// Version of the map.
    pub fn version(&self) -> u64 {
        self.0.lock().version
    }

    /// All nodes.
    pub fn all(&self) -> Vec<pb::Node> {
        self.0.lock().nodes.values().cloned().collect()
    }

    /// How to reach a member. Kind `Unreachable` if its node is not known.
    pub fn hop(&self, member: &pb::Member) -> Result<Hop> {
        let state = self.0.lock();
        match state.nodes.get(&member.node) {
            Some(node) if !node.address.is_empty() => Ok(Hop::new(*member, node)),
            _ => Err(err!(Unreachable, "node n{} is not in the node map yet", member.node)),
        }
    }

    /// Where a node of the cluster listens, as last heard.
    pub fn address(&self, node: u64) -> Option<String> {
        self.0.lock().nodes.get(&node).map(|node| node.address.clone())
    }

    /// The first node of a host.
    pub fn on_host(&self, host: &str) -> Option<u64> {
        self.0.lock().hosts.get(host).copied()
    }

    /// Declared host of a node; empty if unknown.
    pub fn host(&self, node: u64) -> HostName {
        HostName::new(self.0.lock().nodes.get(&node).map_or(String::new(), |node| node.host.clone()))
    }

    /// The sub-racks that the nodes have declared.
    pub fn sub_racks(&self) -> Arc<SubRacks> {
        self.0.lock().sub_racks.clone()
    }

    /// Place of a node, as seen from a host. The rack of a host is known if there is a node on it, or a node serves it.
    pub fn distance(&self, host: &HostName, node: u64) -> Distance {
        let state = self.0.lock();
        let Some(node) = state.nodes.get(&node) else { return Distance::Far };
        state.sub_racks.distance(host.as_str(), &node.host)
    }

    /// The node's rate of writing while it is busy, in bytes a second, as far as it has reported one.
    pub fn write_bytes_per_sec(&self, node: u64) -> u64 {
        let rate = self.0.lock().nodes.get(&node).map_or(0, |node| node.write_bytes_per_sec);
        ebb_power::debt::pace_or_assumed(rate)
    }

    /// Whether the master holds the node for dead.
    pub fn is_dead(&self, node: u64) -> bool {
        self.0.lock().nodes.get(&node).is_some_and(|node| node.state() == pb::NodeState::NodeDead)
    }

    /// Whether the member's node lives and does without its volume: it came back with another one, or the volume is
    /// poisoned.
    pub fn does_without(&self, member: &pb::Member) -> bool {
        let state = self.0.lock();
        let node = state.nodes.get(&member.node).filter(|node| node.state() == pb::NodeState::NodeLive);
        let works =
            |volume: &pb::Volume| volume.id == member.volume && volume.state() != pb::VolumeState::VolumePoisoned;
        node.is_some_and(|node| !node.volumes.iter().any(works))
    }

    /// Sets the nodes that count as gray for this client alone, with the time that they take. Returns all gray nodes.
    pub fn set_slow_links(&self, links: BTreeMap<u64, Duration>) -> BTreeMap<u64, Duration> {
        let mut state = self.0.lock();
        if state.slow_links != links {
            state.slow_links = links;
            state.find_gray();
        }
        state.gray.clone()
    }

    /// The one of a set's nodes that counts as gray, if any does: the slowest. So of a set never more than one does.
    pub fn gray_of(&self, nodes: impl Iterator<Item = u64>) -> Option<u64> {
        let state = self.0.lock();
        if state.gray.is_empty() {
            return None;
        }
        let slow = nodes.filter_map(|node| Some((*state.gray.get(&node)?, node)));
        slow.max().map(|(_, node)| node)
    }

    /// Whether there is a node that answers, is not gray, and is none of these.
    pub fn has_well_one_beside(&self, nodes: impl Iterator<Item = u64> + Clone) -> bool {
        let state = self.0.lock();
        state.nodes.values().any(|node| state.is_well(node) && !nodes.clone().any(|other| other == node.id))
    }

    /// A node that answers and is not gray, another one than this.
    pub fn a_well_one(&self, node: u64) -> Option<u64> {
        let state = self.0.lock();
        state.nodes.values().find(|other| other.id != node && state.is_well(other)).map(|other| other.id)
    }

    /// Whether the master misses the node's heartbeats.
    pub fn is_late(&self, node: u64) -> bool {
        self.0.lock().nodes.get(&node).is_some_and(|node| node.late)
    }

    /// Whether the node answers nothing at all at present.
    pub fn is_silent(&self, node: u64) -> bool {
        self.0.lock().silence.since(node).is_some()
    }

    /// Whether nothing can be had from the node: the master holds it for dead, or it answers nothing at all.
    pub fn is_lost(&self, node: u64) -> bool {
        let state = self.0.lock();
        let is_dead = state.nodes.get(&node).is_some_and(|node| node.state() == pb::NodeState::NodeDead);
        is_dead || state.silence.since(node).is_some()
    }

    /// Whether the node has answered a call within this span until now.
    pub fn has_answered_within(&self, node: u64, span: Duration, now: Moment) -> bool {
        self.0.lock().silence.answered(node).is_some_and(|answered| now.since(answered) <= span)
    }

    /// Nodes that answer nothing at all at present.
    pub fn silent(&self) -> Vec<u64> {
        self.0.lock().silence.all().collect()
    }

    /// Fails with `Unreachable` while the node is silent.
    pub fn check_answers(&self, node: u64) -> Result<()> {
        match self.is_silent(node) {
            true => Err(err!(Unreachable, "node n{node} answers nothing: it is frozen, or cut off from here")),
            false => Ok(()),
        }
    }

    /// The node answered. True: it had been silent.
    pub fn on_answer(&self, node: u64, now: Moment) -> bool {
        let mut state = self.0.lock();
        let was_silent = state.silence.on_answer(node, now);
        if was_silent {
            state.reached.insert(node);
        }
        was_silent
    }

    /// Nodes that answer again, each reported once. If the poll is lost, so is the report: the master then waits a
    /// little longer for them.
    pub fn take_reached(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.lock().reached).into_iter().collect()
    }

    /// A call had no answer in time. True: the node is silent from now on.
    pub fn on_timeout(&self, node: u64, sent: Moment, deadline: Duration, now: Moment) -> bool {
        let is_news = self.0.lock().silence.on_timeout(node, sent, deadline, now);
        self.notify(is_news)
    }

    /// The connection of a call broke before it was answered. True: the node is silent from now on.
    pub fn on_broken(&self, node: u64, sent: Moment, now: Moment) -> bool {
        let is_news = self.0.lock().silence.on_broken(node, sent, now);
        self.notify(is_news)
    }

    /// A call did not get to the node. True: the node is silent from now on.
    pub fn on_unreached(&self, node: u64, sent: Moment, now: Moment) -> bool {
        let is_news = self.0.lock().silence.on_unreached(node, sent, now);
        self.notify(is_news)
    }

    /// When a call that was sent at `sent` need not be waited for any longer, if that is before its deadline.
    pub fn ends_early(&self, node: u64, sent: Moment, deadline: Duration) -> Option<Moment> {
        let state = self.0.lock();
        let is_late = state.nodes.get(&node).is_some_and(|node| node.late);
        state.silence.ends_early(node, sent, deadline, is_late)
    }

    /// A call has waited for the node until then. True: the node is silent from now on.
    pub fn on_waited(&self, node: u64, sent: Moment, now: Moment) -> bool {
        let is_news = self.0.lock().silence.on_waited(node, sent, now);
        self.notify(is_news)
    }

    /// Calls that wait for a silent node need not wait any longer.
    fn notify(&self, is_news: bool) -> bool {
        if is_news {
            self.1.notify_waiters();
        }
        is_news
    }

    /// Calls in progress to a node.
    pub fn outstanding(&self, node: u64) -> usize {
        self.0.lock().outstanding.get(&node).copied().unwrap_or(0)
    }

    /// Counts a call to a node until the guard is dropped.
    pub fn count_call(&self, node: u64) -> Outstanding {
        *self.0.lock().outstanding.entry(node).or_default() += 1;
        Outstanding { map: self.clone(), node }
    }
}

/// One call in progress.
#[derive(Debug)]
pub(crate) struct Outstanding {
    map: NodeMap,
    node: u64,
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        let mut state = self.map.0.lock();
        if let Some(count) = state.outstanding.get_mut(&self.node) {
            *count -= 1;
            if *count == 0 {
                state.outstanding.remove(&self.node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u64, gray_ms: u64) -> pb::Node {
        let gray = (gray_ms > 0).then(|| pb::Gray { took_us: gray_ms * 1000, ..Default::default() });
        pb::Node { id, gray, state: pb::NodeState::NodeLive.into(), ..Default::default() }
    }

    #[test]
    fn a_node_is_foreign_to_datasets_with_nodes_of_their_own_if_it_serves_another() {
        let map = NodeMap::default();
        let serving = |id, serves| pb::Node { serves, ..node(id, 0) };
        let foreign = |dataset: Option<u64>| map.foreign_to(dataset.map(DatasetId::new), [1, 2, 3, 4].into_iter());
        map.update(1, vec![serving(1, Some(0)), serving(2, Some(7)), serving(3, None)]);
        assert_eq!((foreign(Some(0)), foreign(Some(7))), (vec![2], vec![1]));
        assert_eq!((foreign(Some(8)), foreign(None)), (vec![], vec![]), "it shares all nodes");
        let before = map.allotment();
        map.update(2, vec![serving(2, Some(7)), serving(1, Some(0)), serving(4, None)]);
        assert_eq!(map.allotment(), before, "another map, and the same allotment");
        map.update(3, vec![serving(2, Some(7)), serving(1, None)]);
        assert_eq!((map.allotment(), foreign(Some(0))), (before + 1, vec![]));
    }

    #[test]
    fn of_a_set_the_slowest_alone_is_gray() {
        let map = NodeMap::default();
        map.update(1, vec![node(1, 0), node(2, 200), node(3, 900), node(4, 0), node(5, 0)]);
        let gray = |nodes: &[u64]| map.gray_of(nodes.iter().copied());
        assert_eq!((gray(&[1, 2, 3]), gray(&[1, 2, 4]), gray(&[1, 4, 5])), (Some(3), Some(2), None));
        assert_eq!(map.set_slow_links(BTreeMap::from([(4, Duration::from_secs(1))])).len(), 3);
        assert_eq!((gray(&[3, 4]), gray(&[4, 5])), (Some(4), Some(4)));
        assert!(map.has_well_one_beside([1, 2, 3].into_iter()), "node 5");
        assert!(!map.has_well_one_beside([1, 2, 5].into_iter()));
        assert_eq!((map.a_well_one(1), map.a_well_one(5)), (Some(5), Some(1)));
        map.set_slow_links(BTreeMap::new());
        assert_eq!(gray(&[4, 5]), None);
    }
}
