//! Nodes and volumes: who lives, how full, what has been reported.
//!
//! A plain state machine; moments come in as arguments. What is logged (names, addresses, incarnations, draining)
//! comes from the state machine as `NodeRecord`s; everything here is found out anew by each master process.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebb_layout::{View, VolumeView};
use ebb_runtime::Moment;
use ebb_types::{BootId, HostName, Incarnation, MetablockId, NodeId, RackName, VolumeId};
use ebb_wire::pb;

use crate::reserve::Reservations;

mod space;

pub use space::Space;

/// A process that was refused is told of for so long after its last try.
const TWIN_TOLD: Duration = Duration::from_secs(15);

/// A pace that differs from the one that was told by more than this part of it is told.
const PACE_PART: u64 = 4;

/// What this master process knows of the nodes.
#[derive(Debug)]
pub struct Registry {
    nodes: BTreeMap<NodeId, Node>,
    started: Moment,
    dead_time: Duration,
    suspect_time: Duration,
    /// Of the node map, as clients see it. Begins at a number of this process, so that it differs from an earlier one's.
    version: u64,
    /// Processes that were refused because they are not the node that they say, and when they last tried.
    twins: BTreeMap<NodeId, (String, Moment)>,
}

#[derive(Debug, Default)]
struct Node {
    /// None: nothing has registered as it.
    boot: Option<BootId>,
    pid: u32,
    heard: Option<Moment>,
    load: u32,
    /// Bytes a second that it takes; 0: it has not told.
    pace: u64,
    dead: bool,
    /// Silent for the suspect time.
    late: bool,
    volumes: BTreeMap<VolumeId, Volume>,
}

#[derive(Debug, Default, Clone)]
struct Volume {
    capacity_bytes: u64,
    used_bytes: u64,
    free_bytes: u64,
    replicas: u64,
    /// 0: not known.
    device: u64,
    poisoned: bool,
    /// Why.
    trouble: String,
    reported: bool,
    /// While a report comes in: what it named so far.
    named: BTreeSet<MetablockId>,
    /// Of its journal, as it was last told: it never goes back.
    lsn: u64,
}

/// What a heartbeat is answered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pulse {
    /// All is known.
    Known,
    /// Another start of the node than the registered one, or a node that this process has not met: register and report.
    Register,
}

/// What a part of a report comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reported {
    /// It is of another start of the node.
    Unknown,
    /// More is to come.
    Part,
    /// It was the last one.
    Whole {
        /// Everything that the volume has.
        named: BTreeSet<MetablockId>,
        /// Whether it is the first report of this start of the node.
        first: bool,
    },
}

/// A change that repair has to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// Silent for the dead time.
    NodeDied(NodeId),
    /// A sync or an I/O failed on it.
    VolumePoisoned(VolumeId),
}

impl Registry {
    /// Nobody heard of yet.
    #[must_use]
    pub fn new(started: Moment, dead_time: Duration, suspect_time: Duration, first_version: u64) -> Self {
        Self {
            nodes: BTreeMap::new(),
            started,
            dead_time,
            suspect_time,
            version: first_version,
            twins: BTreeMap::new(),
        }
    }

    /// Version of the node map.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Something that clients should see has changed.
    pub fn bump(&mut self) {
        self.version += 1;
    }

    /// A node says that it is there. `volumes` as they are recorded now, ids filled in. True: by a new process, or for the first time.
    pub fn on_register(&mut self, node: NodeId, boot: BootId, pid: u32, volumes: &[pb::Volume], now: Moment) -> bool {
        let old = self.nodes.remove(&node).unwrap_or_default();
        let fresh = old.boot != Some(boot);
        let mut entry = Node { boot: Some(boot), pid, heard: Some(now), ..Node::default() };
        for told in volumes {
            let id = VolumeId::new(told.id);
            let mut volume = old.volumes.get(&id).filter(|_| !fresh).cloned().unwrap_or_default();
            volume.lsn = old.volumes.get(&id).map_or(0, |old| old.lsn);
            volume.update(told);
            // A report that broke off is begun anew.
            volume.named.clear();
            entry.volumes.insert(id, volume);
        }
        self.nodes.insert(node, entry);
        self.version += 1;
        fresh
    }

    /// A node lives. Returns also what broke since its last heartbeat.
    pub fn on_heartbeat(&mut self, beat: &pb::Heartbeat, now: Moment) -> (Pulse, Vec<Loss>) {
        let id = NodeId::new(beat.node);
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.boot == Some(BootId::new(beat.boot))) else {
            return (Pulse::Register, Vec::new());
        };
        // Clients are told when it matters: they learn nothing from a map for each heartbeat.
        let is_other_pace = node.pace.abs_diff(beat.write_bytes_per_sec) > node.pace / PACE_PART;
        node.pace = if is_other_pace { beat.write_bytes_per_sec } else { node.pace };
        let revived = node.dead || node.late || is_other_pace;
        (node.heard, node.load, node.dead, node.late) = (Some(now), beat.load, false, false);
        let mut losses = Vec::new();
        for told in &beat.volumes {
            let volume_id = VolumeId::new(told.id);
            let Some(volume) = node.volumes.get_mut(&volume_id) else { continue };
            let was_poisoned = volume.poisoned;
            volume.update(told);
            if volume.poisoned && !was_poisoned {
                losses.push(Loss::VolumePoisoned(volume_id));
            }
        }
        if revived || !losses.is_empty() {
            self.version += 1;
        }
        (Pulse::Known, losses)
    }

    /// A part of a volume's report.
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

    /// Time passes: which nodes died of it. `recorded` are all that were ever registered; `heartbeat` tells of one that has been
    /// silent for so long whether it should have spoken for the second span: who sleeps by plan is neither late nor dead.
    ///
    /// Who is late stays late until it is heard, and dies of its silence although a later plan switches it off.
    pub fn on_tick(
        &mut self,
        recorded: impl Iterator<Item = NodeId>,
        now: Moment,
        heartbeat: impl Fn(NodeId, Duration, Duration) -> Heartbeat,
    ) -> Vec<Loss> {
        let mut losses = Vec::new();
        let mut changed = false;
        for id in recorded {
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

    /// The master did not run for so long until now: that was nobody's silence.
    pub fn on_pause(&mut self, pause: Duration, now: Moment) {
        self.started = self.started.after(pause).min(now);
        for node in self.nodes.values_mut() {
            node.heard = node.heard.map(|heard| heard.after(pause).min(now));
        }
    }

    /// The process that is this node, if it was heard of lately: its boot and its number.
    #[must_use]
    pub fn lately(&self, node: NodeId, now: Moment) -> Option<(BootId, u32)> {
        let known = self.nodes.get(&node)?;
        let is_lately = known.heard.is_some_and(|heard| now.since(heard) < self.suspect_time);
        known.boot.filter(|_| is_lately).map(|boot| (boot, known.pid))
    }

    /// Of the volume's journal, as it was last told; 0: it was not.
    #[must_use]
    pub fn lsn(&self, node: NodeId, volume: VolumeId) -> u64 {
        self.nodes.get(&node).and_then(|node| node.volumes.get(&volume)).map_or(0, |volume| volume.lsn)
    }

    /// A process was refused because it is not the node that it says. True: it is news.
    pub fn on_twin(&mut self, node: NodeId, sentence: String, now: Moment) -> bool {
        let before = self.twins.insert(node, (sentence.clone(), now));
        before.is_none_or(|(known, _)| known != sentence)
    }

    /// Why a process that says that it is this node is refused, if one was lately.
    #[must_use]
    pub fn twin(&self, node: NodeId, now: Moment) -> Option<&str> {
        let (sentence, tried) = self.twins.get(&node)?;
        (now.since(*tried) < TWIN_TOLD).then_some(sentence)
    }

    /// The node that registered this start: a registration that is repeated because its answer was lost.
    #[must_use]
    pub fn by_boot(&self, boot: BootId) -> Option<NodeId> {
        self.nodes.iter().find(|(_, node)| node.boot == Some(boot)).map(|(id, _)| *id)
    }

    /// How a node is, draining aside.
    #[must_use]
    pub fn state(&self, node: NodeId) -> pb::NodeState {
        match self.nodes.get(&node) {
            Some(node) if node.dead => pb::NodeState::NodeDead,
            Some(node) if node.heard.is_some() => pb::NodeState::NodeLive,
            _ => pb::NodeState::NodeUnknown,
        }
    }

    /// Bytes a second that the node takes; 0: it has not told.
    #[must_use]
    pub fn write_bytes_per_sec(&self, node: NodeId) -> u64 {
        self.nodes.get(&node).map_or(0, |node| node.pace)
    }

    /// Whether calls to the node make sense.
    #[must_use]
    pub fn is_live(&self, node: NodeId) -> bool {
        self.state(node) == pb::NodeState::NodeLive
    }

    /// Whether the volume can be read and written.
    #[must_use]
    pub fn is_sound(&self, node: NodeId, volume: VolumeId) -> bool {
        self.is_live(node)
            && self.nodes.get(&node).and_then(|node| node.volumes.get(&volume)).is_some_and(|volume| !volume.poisoned)
    }

    /// Requests in progress on a node, as it last told.
    #[must_use]
    pub fn load(&self, node: NodeId) -> u32 {
        self.nodes.get(&node).map_or(0, |node| node.load)
    }

    /// Whether the node is dead. One that has not been heard of yet is not.
    #[must_use]
    pub fn is_dead(&self, node: NodeId) -> bool {
        self.state(node) == pb::NodeState::NodeDead
    }

    /// Whether the node has been silent for the suspect time or longer though it should have spoken.
    #[must_use]
    pub fn is_missed(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.dead || node.late)
    }

    /// Nodes that are missed, and for how long they have been silent.
    pub fn missed(&self, now: Moment) -> impl Iterator<Item = (NodeId, Duration)> + '_ {
        let missed = self.nodes.iter().filter(|(_, node)| node.dead || node.late);
        missed.map(move |(id, node)| (*id, now.since(node.heard.unwrap_or(self.started))))
    }

    /// Whether the volume is poisoned, as far as its node has told.
    #[must_use]
    pub fn is_poisoned(&self, node: NodeId, volume: VolumeId) -> bool {
        self.nodes.get(&node).and_then(|node| node.volumes.get(&volume)).is_some_and(|volume| volume.poisoned)
    }

    /// Whether every volume of every registered node has reported, or its node is dead, or was off all the time that this
    /// process has run, and still is by plan: only then may replicas go.
    pub fn is_safe_start<'a>(
        &self,
        mut recorded: impl Iterator<Item = &'a pb::NodeRecord>,
        is_off: impl Fn(NodeId) -> bool,
    ) -> bool {
        recorded.all(|record| {
            let Some(told) = &record.node else { return true };
            let id = NodeId::new(told.id);
            let Some(node) = self.nodes.get(&id).filter(|node| node.heard.is_some() || node.dead) else {
                return is_off(id);
            };
            node.dead || self.has_reported(told)
        })
    }

    /// Whether every volume of a node has reported: it is known what lies there.
    #[must_use]
    pub fn has_reported(&self, told: &pb::Node) -> bool {
        let Some(node) = self.nodes.get(&NodeId::new(told.id)) else { return false };
        let known = |volume: &pb::Volume| node.volumes.get(&VolumeId::new(volume.id));
        let has_told = |volume: &pb::Volume| known(volume).is_some_and(|known| known.reported || known.poisoned);
        node.heard.is_some() && told.volumes.iter().all(has_told)
    }

    /// What placement may know. `patience`: whether nodes that have been silent for a while may take replicas too.
    pub fn view<'a>(
        &self,
        recorded: impl Iterator<Item = &'a pb::NodeRecord>,
        patience: Patience,
        reservations: &Reservations,
        now: Moment,
        rest: impl Fn(NodeId) -> Rest,
    ) -> View {
        let mut view = View::default();
        for record in recorded {
            let Some(told) = &record.node else { continue };
            let id = NodeId::new(told.id);
            let unheard = Node::default();
            let node = self.nodes.get(&id).unwrap_or(&unheard);
            let silent = node.heard.map(|heard| now.since(heard));
            let (may_be_silent, is_off) = match rest(id) {
                Rest::None => (false, false),
                Rest::Blinks => (true, false),
                Rest::Off => (true, true),
            };
            let is_patient = patience == Patience::UntilDead || may_be_silent;
            // Who is off says nothing, and may be a home all the same.
            let prompt = is_off || silent.is_some_and(|silent| silent < self.suspect_time || is_patient);
            for volume in &told.volumes {
                let volume_id = VolumeId::new(volume.id);
                // What one that is off has told was told to an earlier master process; whether there is room shows when it is on.
                let untold = Volume { free_bytes: UNTOLD_FREE_BYTES, ..Volume::default() };
                let Some(known) = node.volumes.get(&volume_id).or(is_off.then_some(&untold)) else { continue };
                view.volumes.push(VolumeView {
                    node: id,
                    volume: volume_id,
                    incarnation: Incarnation::new(volume.incarnation),
                    host: HostName::new(told.host.clone()),
                    rack: RackName::new(told.rack.clone()),
                    capacity_bytes: known.capacity_bytes,
                    free_bytes: known.free_bytes.saturating_sub(reservations.on_volume(volume_id)),
                    load: node.load,
                    usable: prompt && !node.dead && !record.draining && !known.poisoned,
                    off: is_off,
                });
            }
        }
        view
    }

    /// A node as clients and people see it.
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
        (shown.late, shown.load, shown.write_bytes_per_sec) =
            known.map_or((false, 0, 0), |node| (node.late, node.load, node.pace));
        for volume in &mut shown.volumes {
            if let Some(known) = known.and_then(|node| node.volumes.get(&VolumeId::new(volume.id))) {
                volume.capacity_bytes = known.capacity_bytes;
                volume.used_bytes = known.used_bytes;
                volume.free_bytes = known.free_bytes;
                volume.replicas = known.replicas;
                volume.device = known.device;
                volume.trouble.clone_from(&known.trouble);
                let state = if known.poisoned { pb::VolumeState::VolumePoisoned } else { pb::VolumeState::VolumeLive };
                volume.state = state as i32;
            }
        }
        shown
    }

    /// Bytes that a volume can still promise, beyond what it keeps for itself; `None`: it has not told.
    #[must_use]
    pub fn room(&self, member: &pb::Member, reservations: &Reservations) -> Option<u64> {
        let volume = self.nodes.get(&member.node_id())?.volumes.get(&member.volume_id())?;
        let view = VolumeView { capacity_bytes: volume.capacity_bytes, ..VolumeView::default() };
        let taken = reservations.on_volume(member.volume_id()) + view.reserve_bytes();
        Some(volume.free_bytes.saturating_sub(taken))
    }
}

/// Whether a silent node owes a heartbeat, by the power plans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heartbeat {
    /// It was on for long enough.
    Owed,
    /// It was not yet.
    NotYet,
    /// No plan wakes it.
    Off,
}

/// Room that a volume counts as having whose node is off and has not told.
const UNTOLD_FREE_BYTES: u64 = 1 << 40;

/// What the power plan makes of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// It is on.
    None,
    /// It sleeps now and then, and wakes by itself: new replicas wait for it.
    Blinks,
    /// It is off until another plan comes: nothing new goes there, but what belongs there is a guest elsewhere meanwhile.
    Off,
}

/// How silent a node may be to get new replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// Not longer than the suspect time.
    Prompt,
    /// Any node that is not dead.
    UntilDead,
}

impl Volume {
    fn update(&mut self, told: &pb::Volume) {
        self.capacity_bytes = told.capacity_bytes;
        self.used_bytes = told.used_bytes;
        self.free_bytes = told.free_bytes;
        self.replicas = told.replicas;
        self.device = told.device;
        self.poisoned = told.state == pb::VolumeState::VolumePoisoned as i32;
        self.trouble.clone_from(&told.trouble);
        self.lsn = told.lsn;
    }
}

#[cfg(test)]
mod tests;
