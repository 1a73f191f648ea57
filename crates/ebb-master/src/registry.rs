//! Nodes and volumes: their liveness, their space, and their reports.
//!
//! A plain state machine; moments come in as arguments. Logged facts (names, addresses, incarnations, draining) come
//! from the state machine as `NodeRecord`s. Everything here is learned anew by each master process.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebb_layout::{View, VolumeView, row_reserve_bytes};
use ebb_runtime::Moment;
use ebb_types::{BootId, HostName, Incarnation, MetablockId, NodeId, RackName, VolumeId};
use ebb_wire::pb;

use crate::reserve::Reservations;

mod space;

pub use space::Space;

/// Time for which a refused process is shown after its last attempt to register.
const TWIN_SHOWN: Duration = Duration::from_secs(15);

/// A node's new pace is published if it differs from the old one by more than one part in this many.
const PACE_PART: u64 = 4;

/// The nodes and volumes as this master process knows them.
#[derive(Debug)]
pub struct Registry {
    nodes: BTreeMap<NodeId, Node>,
    started: Moment,
    dead_time: Duration,
    suspect_time: Duration,
    /// Version of the node map that clients see. It starts at a number of this process, so that it differs from an
    /// earlier process's.
    version: u64,
    /// Refused processes that claimed to be a node, each with the reason and the moment of its last attempt.
    twins: BTreeMap<NodeId, (String, Moment)>,
    /// Bytes of the longest row of any dataset that encodes.
    row_bytes: u64,
}

#[derive(Debug, Default)]
struct Node {
    /// None: nothing has registered as it.
    boot: Option<BootId>,
    pid: u32,
    /// The newest cluster version that its release knows.
    version: u32,
    heard: Option<Moment>,
    load: u32,
    /// Bytes per second that the node can write; 0 means not reported.
    pace: u64,
    dead: bool,
    /// Whether it has been silent for the suspect time.
    late: bool,
    volumes: BTreeMap<VolumeId, Volume>,
}

#[derive(Debug, Default, Clone)]
struct Volume {
    capacity_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
    replicas: u64,
    /// Device number of the disk; 0 means unknown.
    device: u64,
    poisoned: bool,
    /// Cause of the poisoning; empty otherwise.
    trouble: String,
    reported: bool,
    /// Metablocks named so far by a report in progress.
    named: BTreeSet<MetablockId>,
    /// Bytes read by scrubs since its process started.
    scrubbed_bytes: u64,
    /// Bytes of frozen replicas found compressed or made so since its process started.
    compressed_bytes: u64,
    /// Last reported position of its journal. It never decreases.
    lsn: u64,
}

/// Answer to a heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pulse {
    /// The node is registered, and this is its current start.
    Known,
    /// This process does not know the node, or knows another start of it. The node must register and report.
    Register,
}

/// Result of one part of a replica report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reported {
    /// The part is from another start of the node.
    Unknown,
    /// More parts follow.
    Part,
    /// This part completed the report.
    Whole {
        /// All metablocks with a replica on the volume.
        named: BTreeSet<MetablockId>,
        /// Whether this is the volume's first whole report since the node started.
        first: bool,
    },
}

/// An event after which repair must look for lost copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// The node was silent for the dead time.
    NodeDied(NodeId),
    /// A sync or an I/O failed on the volume.
    VolumePoisoned(VolumeId),
}

impl Registry {
    /// A registry that has not heard from any node.
    #[must_use]
    pub fn new(started: Moment, dead_time: Duration, suspect_time: Duration, first_version: u64) -> Self {
        Self {
            nodes: BTreeMap::new(),
            started,
            dead_time,
            suspect_time,
            version: first_version,
            twins: BTreeMap::new(),
            row_bytes: 0,
        }
    }

    /// From now on each volume keeps room for rows of so many bytes; 0: nothing is encoded.
    pub fn set_row_bytes(&mut self, bytes: u64) {
        self.row_bytes = bytes;
    }

    /// Version of the node map.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Raises the version of the node map after a change that clients must see.
    pub fn bump(&mut self) {
        self.version += 1;
    }

    /// Records a registration. `volumes` are the recorded ones, with ids filled in. Returns whether the start is new to
    /// this process.
    pub fn on_register(&mut self, node: NodeId, boot: BootId, pid: u32, volumes: &[pb::Volume], now: Moment) -> bool {
        let old = self.nodes.remove(&node).unwrap_or_default();
        let fresh = old.boot != Some(boot);
        let mut entry = Node { boot: Some(boot), pid, heard: Some(now), ..Node::default() };
        for reported in volumes {
            let id = VolumeId::new(reported.id);
            let mut volume = old.volumes.get(&id).filter(|_| !fresh).cloned().unwrap_or_default();
            // The journal's position outlives a start: a volume with less than that is an older copy of itself.
            volume.lsn = old.volumes.get(&id).map_or(0, |old| old.lsn);
            volume.update(reported);
            // The node repeats a report that was interrupted from its beginning.
            volume.named.clear();
            entry.volumes.insert(id, volume);
        }
        self.nodes.insert(node, entry);
        self.version += 1;
        fresh
    }

    /// Records the newest cluster version that a node's release knows.
    pub fn on_version(&mut self, node: NodeId, version: u32) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.version = version;
        }
    }

    /// The newest cluster version that a node's release knows. None if it has not registered at this master.
    #[must_use]
    pub fn release_of(&self, node: NodeId) -> Option<u32> {
        self.nodes.get(&node).map(|node| node.version).filter(|version| *version != 0)
    }

    /// Forgets a node that was removed from the cluster. Returns its volumes.
    pub fn forget(&mut self, node: NodeId) -> BTreeSet<VolumeId> {
        self.twins.remove(&node);
        self.version += 1;
        self.nodes.remove(&node).map(|node| node.volumes.into_keys().collect()).unwrap_or_default()
    }

    /// Records a heartbeat. Returns the answer, and the volumes that were poisoned since the previous heartbeat.
    pub fn on_heartbeat(&mut self, beat: &pb::Heartbeat, now: Moment) -> (Pulse, Vec<Loss>) {
        let id = NodeId::new(beat.node);
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.boot == Some(BootId::new(beat.boot))) else {
            return (Pulse::Register, Vec::new());
        };
        // Load and space change with every heartbeat. A new map for each would flood clients with facts that they do
        // not need.
        let is_other_pace = node.pace.abs_diff(beat.write_bytes_per_sec) > node.pace / PACE_PART;
        node.pace = if is_other_pace { beat.write_bytes_per_sec } else { node.pace };
        let revived = node.dead || node.late || is_other_pace;
        (node.heard, node.load, node.dead, node.late) = (Some(now), beat.load, false, false);
        let mut losses = Vec::new();
        for reported in &beat.volumes {
            let volume_id = VolumeId::new(reported.id);
            let Some(volume) = node.volumes.get_mut(&volume_id) else { continue };
            let was_poisoned = volume.poisoned;
            volume.update(reported);
            if volume.poisoned && !was_poisoned {
                losses.push(Loss::VolumePoisoned(volume_id));
            }
        }
        if revived || !losses.is_empty() {
            self.version += 1;
        }
        (Pulse::Known, losses)
    }

    /// Records a part of a volume's report.
    pub fn on_report(&mut self, report: &pb::ReplicaReport) -> Reported {
        let node =
            self.nodes.get_mut(&NodeId::new(report.node)).filter(|node| node.boot == Some(BootId::new(report.boot)));
        let Some(volume) = node.and_then(|node| node.volumes.get_mut(&VolumeId::new(report.volume))) else {
            return Reported::Unknown;
        };
        volume.named.extend(report.replicas.iter().map(|replica| MetablockId::new(replica.metablock)));
        if !report.last {
            return Reported::Part;
        }
        let first = !std::mem::replace(&mut volume.reported, true);
        Reported::Whole { named: std::mem::take(&mut volume.named), first }
    }

    /// Advances the time, and returns the nodes that died.
    ///
    /// `recorded` are all nodes ever registered. `heartbeat(node, silence, limit)` says whether a node that has been
    /// silent that long owed a heartbeat within the limit. A node that sleeps by plan owes none.
    ///
    /// A late node stays late until it is heard. It dies of its silence even if a later plan switches it off.
    pub fn on_tick(
        &mut self,
        recorded: impl Iterator<Item = NodeId>,
        now: Moment,
        heartbeat: impl Fn(NodeId, Duration, Duration) -> Heartbeat,
    ) -> Vec<Loss> {
        let mut losses = Vec::new();
        let mut changed = false;
        for id in recorded {
            // I-61: only a silence that the power plans do not explain makes a node late or dead.
            let node = self.nodes.entry(id).or_default();
            let silent = now.since(node.heard.unwrap_or(self.started));
            if !node.late && node.heard.is_some() && silent >= self.suspect_time {
                node.late = heartbeat(id, silent, self.suspect_time) == Heartbeat::Owed;
                changed |= node.late;
            }
            if !node.dead && silent >= self.dead_time {
                node.dead = match heartbeat(id, silent, self.dead_time) {
                    Heartbeat::Owed => true,
                    Heartbeat::Off => node.late,
                    Heartbeat::NotYet => false,
                };
                losses.extend(node.dead.then_some(Loss::NodeDied(id)));
            }
        }
        if changed || !losses.is_empty() {
            self.version += 1;
        }
        losses
    }

    /// Discounts a pause of the master itself.
    // I-97: the master could not hear anything during the pause, so the pause is not counted as silence of a node.
    pub fn on_pause(&mut self, pause: Duration, now: Moment) {
        self.started = self.started.after(pause).min(now);
        for node in self.nodes.values_mut() {
            node.heard = node.heard.map(|heard| heard.after(pause).min(now));
        }
    }

    /// Boot id and process number of a node that was heard within the suspect time.
    #[must_use]
    pub fn lately(&self, node: NodeId, now: Moment) -> Option<(BootId, u32)> {
        let known = self.nodes.get(&node)?;
        let is_lately = known.heard.is_some_and(|heard| now.since(heard) < self.suspect_time);
        known.boot.filter(|_| is_lately).map(|boot| (boot, known.pid))
    }

    /// Last reported position of the volume's journal; 0 means not reported.
    #[must_use]
    pub fn lsn(&self, node: NodeId, volume: VolumeId) -> u64 {
        self.nodes.get(&node).and_then(|node| node.volumes.get(&volume)).map_or(0, |volume| volume.lsn)
    }

    /// Records a process that was refused because it is not the node that it claims to be. Returns whether the reason
    /// is new.
    pub fn on_twin(&mut self, node: NodeId, sentence: String, now: Moment) -> bool {
        let before = self.twins.insert(node, (sentence.clone(), now));
        before.is_none_or(|(known, _)| known != sentence)
    }

    /// Reason why a process that claims to be this node was recently refused.
    #[must_use]
    pub fn twin(&self, node: NodeId, now: Moment) -> Option<&str> {
        let (sentence, tried) = self.twins.get(&node)?;
        (now.since(*tried) < TWIN_SHOWN).then_some(sentence)
    }

    /// The node that registered this start. It identifies a registration that is repeated because its answer was lost.
    #[must_use]
    pub fn by_boot(&self, boot: BootId) -> Option<NodeId> {
        self.nodes.iter().find(|(_, node)| node.boot == Some(boot)).map(|(id, _)| *id)
    }

    /// State of a node, without regard to draining.
    #[must_use]
    pub fn state(&self, node: NodeId) -> pb::NodeState {
        match self.nodes.get(&node) {
            Some(node) if node.dead => pb::NodeState::NodeDead,
            Some(node) if node.heard.is_some() => pb::NodeState::NodeLive,
            _ => pb::NodeState::NodeUnknown,
        }
    }

    /// Bytes per second that the node can write; 0 means not reported.
    #[must_use]
    pub fn write_bytes_per_sec(&self, node: NodeId) -> u64 {
        self.nodes.get(&node).map_or(0, |node| node.pace)
    }

    /// Whether calls to the node may succeed.
    #[must_use]
    pub fn is_live(&self, node: NodeId) -> bool {
        self.state(node) == pb::NodeState::NodeLive
    }

    /// Whether the node is live and the volume is not poisoned.
    #[must_use]
    pub fn is_sound(&self, node: NodeId, volume: VolumeId) -> bool {
        self.is_live(node)
            && self.nodes.get(&node).and_then(|node| node.volumes.get(&volume)).is_some_and(|volume| !volume.poisoned)
    }

    /// Requests in progress on a node, as last reported.
    #[must_use]
    pub fn load(&self, node: NodeId) -> u32 {
        self.nodes.get(&node).map_or(0, |node| node.load)
    }

    /// Whether the node is dead. A node that this process has never heard is not.
    #[must_use]
    pub fn is_dead(&self, node: NodeId) -> bool {
        self.state(node) == pb::NodeState::NodeDead
    }

    /// Whether the node has been silent for the suspect time, though it owed a heartbeat.
    #[must_use]
    pub fn is_missed(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.dead || node.late)
    }

    /// Missed nodes, with the length of their silence.
    pub fn missed(&self, now: Moment) -> impl Iterator<Item = (NodeId, Duration)> + '_ {
        let missed = self.nodes.iter().filter(|(_, node)| node.dead || node.late);
        missed.map(move |(id, node)| (*id, now.since(node.heard.unwrap_or(self.started))))
    }

    /// Whether the volume is poisoned, as last reported.
    #[must_use]
    pub fn is_poisoned(&self, node: NodeId, volume: VolumeId) -> bool {
        self.nodes.get(&node).and_then(|node| node.volumes.get(&volume)).is_some_and(|volume| volume.poisoned)
    }

    /// Whether replicas may be deleted.
    ///
    /// Every volume of every registered node must have reported. Excepted are dead nodes, and nodes that were off by
    /// plan for the whole life of this process and still are.
    // I-17: a replica that has not been reported may be the last good copy.
    pub fn is_safe_start<'a>(
        &self,
        mut recorded: impl Iterator<Item = &'a pb::NodeRecord>,
        is_off: impl Fn(NodeId) -> bool,
    ) -> bool {
        recorded.all(|record| {
            let Some(known) = &record.node else { return true };
            let id = NodeId::new(known.id);
            let Some(node) = self.nodes.get(&id).filter(|node| node.heard.is_some() || node.dead) else {
                return is_off(id);
            };
            node.dead || self.has_reported(known)
        })
    }

    /// Whether every volume of a node has reported its replicas. Poisoned volumes need not report.
    #[must_use]
    pub fn has_reported(&self, recorded: &pb::Node) -> bool {
        let Some(node) = self.nodes.get(&NodeId::new(recorded.id)) else { return false };
        let known = |volume: &pb::Volume| node.volumes.get(&VolumeId::new(volume.id));
        let has_reported = |volume: &pb::Volume| known(volume).is_some_and(|known| known.reported || known.poisoned);
        node.heard.is_some() && recorded.volumes.iter().all(has_reported)
    }

    /// Input of placement. `patience` says whether nodes that have been silent for a while may get replicas too.
    /// `sleep_of(node)` is the node's state by the power plan.
    pub fn view<'a>(
        &self,
        recorded: impl Iterator<Item = &'a pb::NodeRecord>,
        patience: Patience,
        reservations: &Reservations,
        now: Moment,
        sleep_of: impl Fn(NodeId) -> Sleep,
    ) -> View {
        let mut view = View::default();
        for record in recorded {
            let Some(recorded) = &record.node else { continue };
            let id = NodeId::new(recorded.id);
            let unheard = Node::default();
            let node = self.nodes.get(&id).unwrap_or(&unheard);
            let silent = node.heard.map(|heard| now.since(heard));
            let (may_be_silent, is_off) = match sleep_of(id) {
                Sleep::None => (false, false),
                Sleep::Blinks => (true, false),
                Sleep::Off => (true, true),
            };
            let is_patient = patience == Patience::UntilDead || may_be_silent;
            // A node that is off says nothing, but may still be the home of a copy.
            let prompt = is_off || silent.is_some_and(|silent| silent < self.suspect_time || is_patient);
            for volume in &recorded.volumes {
                let volume_id = VolumeId::new(volume.id);
                // A node that is off last reported to an earlier master process. Its free space is known only when it
                // is on again.
                let unreported = Volume { free_bytes: UNREPORTED_FREE_BYTES, ..Volume::default() };
                let Some(known) = node.volumes.get(&volume_id).or(is_off.then_some(&unreported)) else { continue };
                view.volumes.push(VolumeView {
                    node: id,
                    volume: volume_id,
                    incarnation: Incarnation::new(volume.incarnation),
                    device: known.device,
                    host: HostName::new(recorded.host.clone()),
                    rack: RackName::new(recorded.rack.clone()),
                    capacity_bytes: known.capacity_bytes,
                    free_bytes: known.free_bytes.saturating_sub(reservations.on_volume(volume_id)),
                    load: node.load,
                    usable: prompt && !node.dead && !record.draining && !known.poisoned,
                    off: is_off,
                    kept_bytes: row_reserve_bytes(known.capacity_bytes, self.row_bytes),
                });
            }
        }
        view
    }

    /// Description of a node for clients and operators.
    #[must_use]
    pub fn describe(&self, record: &pb::NodeRecord) -> pb::Node {
        let mut shown = record.node.clone().expect("a node's record has the node: checkpoints without are refused");
        let id = NodeId::new(shown.id);
        let state = match self.state(id) {
            pb::NodeState::NodeLive if record.draining => pb::NodeState::NodeDraining,
            state => state,
        };
        shown.state = state as i32;
        let known = self.nodes.get(&id);
        (shown.boot, shown.pid) = known.map_or((0, 0), |node| (node.boot.map_or(0, BootId::raw), node.pid));
        (shown.late, shown.load, shown.write_bytes_per_sec, shown.version) =
            known.map_or((false, 0, 0, 0), |node| (node.late, node.load, node.pace, node.version));
        for volume in &mut shown.volumes {
            if let Some(known) = known.and_then(|node| node.volumes.get(&VolumeId::new(volume.id))) {
                volume.capacity_bytes = known.capacity_bytes;
                volume.used_bytes = known.used_bytes;
                volume.free_bytes = known.free_bytes;
                volume.replicas = known.replicas;
                volume.device = known.device;
                volume.scrubbed_bytes = known.scrubbed_bytes;
                volume.compressed_bytes = known.compressed_bytes;
                volume.trouble.clone_from(&known.trouble);
                let state = if known.poisoned { pb::VolumeState::VolumePoisoned } else { pb::VolumeState::VolumeLive };
                volume.state = state as i32;
            }
        }
        shown
    }

    /// Bytes that a volume can still promise, beyond its own reserve. `None` means that it has not reported.
    #[must_use]
    pub fn room(&self, member: &pb::Member, reservations: &Reservations) -> Option<u64> {
        let volume = self.nodes.get(&member.node_id())?.volumes.get(&member.volume_id())?;
        let view = VolumeView { capacity_bytes: volume.capacity_bytes, ..VolumeView::default() };
        let kept = row_reserve_bytes(volume.capacity_bytes, self.row_bytes);
        let taken = reservations.on_volume(member.volume_id()) + view.reserve_bytes() + kept;
        Some(volume.free_bytes.saturating_sub(taken))
    }
}

/// Whether a silent node owed a heartbeat, by the power plans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heartbeat {
    /// The node was on for the whole limit.
    Owed,
    /// The node has not been on for long enough yet.
    NotYet,
    /// The node is off, and no plan wakes it.
    Off,
}

/// Free space that is assumed of a volume whose node is off and has not reported.
const UNREPORTED_FREE_BYTES: u64 = 1 << 40;

/// Sleep of a node by the power plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sleep {
    /// The node is on.
    None,
    /// The node sleeps at times and wakes by itself. New replicas wait for it.
    Blinks,
    /// The node is off until another plan. It gets nothing new; a copy whose home it is lies elsewhere as a guest
    /// meanwhile.
    Off,
}

/// Silence up to which a node may get new replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// At most the suspect time.
    Prompt,
    /// Any, while the node is not dead.
    UntilDead,
}

impl Volume {
    fn update(&mut self, reported: &pb::Volume) {
        self.capacity_bytes = reported.capacity_bytes;
        self.used_bytes = reported.used_bytes;
        self.free_bytes = reported.free_bytes;
        self.replicas = reported.replicas;
        self.device = reported.device;
        self.scrubbed_bytes = reported.scrubbed_bytes;
        self.compressed_bytes = reported.compressed_bytes;
        self.poisoned = reported.state == pb::VolumeState::VolumePoisoned as i32;
        self.trouble.clone_from(&reported.trouble);
        self.lsn = reported.lsn;
    }
}

#[cfg(test)]
mod tests;
