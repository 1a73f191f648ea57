//! What background work there is: files to recover, sets to look at, replicas to delete.
//!
//! Plain values. All of it is found out anew by each master process: from the logged state, from nodes' reports and
//! from what clients notice.

pub mod suspects;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{InodeId, MetablockId, NodeId, VolumeId};
use ebb_wire::pb;

use crate::copies::{Obstacle, Reason};
use crate::parted::Parted;
use crate::recovery::wait::Waiting;
use crate::work::suspects::Suspects;

/// A replica, as the map or a report names it.
pub type ReplicaKey = (MetablockId, VolumeId);

/// Copies longer than this are slow for their bytes, shorter ones for their calls and syncs.
const LARGE_BYTES: u64 = 1 << 20;

/// Sets whose obstacles are remembered: for people, who look at some.
const OBSTACLES_MAX: usize = 10_000;
/// An obstacle that was not met again for so long is in no step's way any more: each chooser has come by meanwhile.
const OBSTACLE_LASTS: Duration = Duration::from_secs(60);

/// An obstacle in the way of a step, and when it was met last.
#[derive(Clone, Debug)]
struct Met {
    at: Moment,
    reason: Reason,
    obstacle: Obstacle,
}

impl Met {
    fn lasts(&self, now: Moment) -> bool {
        now.since(self.at) < OBSTACLE_LASTS
    }
}

/// A copy from one node to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyInProgress {
    /// Whose replica is read.
    pub source: NodeId,
    /// Where the new one is written.
    pub target: NodeId,
    /// How much of a node's allowance it takes.
    pub weight: usize,
    /// What it is for.
    pub reason: Reason,
}

impl CopyInProgress {
    /// A copy of `len` bytes: a large one weighs as much as four small ones.
    #[must_use]
    pub fn new(source: NodeId, target: NodeId, len: u64, reason: Reason) -> Self {
        Self { source, target, weight: weight(len), reason }
    }

    /// Its share of the rate that is allowed for all copies of a node; 0: no limit.
    ///
    /// Invariant: copies under way on a node never weigh more than `weight_max` together ([`Work::takes`]), so together
    /// they stay under the rate.
    #[must_use]
    pub fn rate(&self, node_rate: u64, weight_max: usize) -> u64 {
        let share = u128::from(node_rate) * self.weight as u128 / weight_max.max(self.weight) as u128;
        u64::try_from(share).unwrap_or(u64::MAX).max(u64::from(node_rate > 0))
    }
}

fn weight(len: u64) -> usize {
    if len > LARGE_BYTES { 4 } else { 1 }
}

/// What repair has done since this master process began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Copied {
    /// Copies that joined their set.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Members that recoveries had left out and that came back with everything: nothing was copied.
    pub rejoined: u64,
}

impl Copied {
    /// A copy of so many bytes joined its set. `is_known`: the member had them already.
    pub fn on_made(&mut self, is_known: bool, bytes: u64) {
        if is_known {
            self.rejoined += 1;
        } else {
            self.count += 1;
            self.bytes += bytes;
        }
    }
}

/// Queues of background work.
#[derive(Debug, Default)]
pub struct Work {
    /// Files whose holder is gone.
    pub recoveries: BTreeSet<InodeId>,
    /// Of these, those that are being recovered.
    pub recovering: BTreeSet<InodeId>,
    /// Files that could not be recovered at the last attempt.
    pub unrecovered: BTreeSet<InodeId>,
    /// Files whose recovery waits for members that are only silent.
    pub waiting: Waiting,
    /// What recoveries left out, and turned out not to be what the set lacks: it is not asked again.
    pub unfit: BTreeSet<ReplicaKey>,
    /// Whose turn is next.
    next_recovery: InodeId,
    /// Files whose holder lives, but has said that it does not hold them any more.
    pub abandoned: BTreeSet<InodeId>,
    /// Files with replicas of a higher epoch than was ever given here, after a loss was accepted.
    pub ahead: BTreeSet<InodeId>,
    /// Sets to look at; they stay until they are as they should be.
    pub suspects: Suspects,
    /// Nodes that get no copies of a file at present, for its writer cannot reach them.
    pub parted: Parted,
    /// Copies in progress.
    pub copies: BTreeMap<MetablockId, CopyInProgress>,
    /// Extra copies in progress, which no set misses.
    pub extra_copies: BTreeMap<MetablockId, CopyInProgress>,
    /// Copies that recoveries make: they wait for no turn, and count for those that do.
    pub recovery_copies: BTreeMap<ReplicaKey, CopyInProgress>,
    /// Copies that were made.
    pub copied: Copied,
    /// Why steps do not begin, as far as they were tried lately.
    obstacles: BTreeMap<MetablockId, Met>,
    /// Metablocks that lie off their chain, of a census that has just ended.
    pub misplaced: Option<Vec<MetablockId>>,
    /// How many of the last ones began to move.
    pub moved: Option<usize>,
    /// Replicas known to be damaged or missing.
    pub damaged: BTreeSet<ReplicaKey>,
    /// Of these, those whose volume found no room for a good copy beside what it has.
    pub cramped: BTreeSet<ReplicaKey>,
    /// Replicas that may be: to be asked for.
    pub doubts: BTreeSet<ReplicaKey>,
    /// Replicas that the map does not name: to be deleted.
    pub excess: BTreeSet<(VolumeId, MetablockId)>,
    /// When a volume last said that it had deleted something: its free space is told later.
    pub freed: Option<Moment>,
}

impl Work {
    /// A step for a set does not begin now.
    pub fn on_obstacle(&mut self, metablock: MetablockId, reason: Reason, obstacle: Obstacle, now: Moment) {
        if self.obstacles.len() >= OBSTACLES_MAX {
            self.obstacles.retain(|_, met| met.lasts(now));
        }
        if self.obstacles.len() < OBSTACLES_MAX || self.obstacles.contains_key(&metablock) {
            self.obstacles.insert(metablock, Met { at: now, reason, obstacle });
        }
    }

    /// A step for a set has begun.
    pub fn on_begun(&mut self, metablock: MetablockId) {
        self.obstacles.remove(&metablock);
    }

    /// A set is as it should be, or gone.
    pub fn on_settled(&mut self, metablock: MetablockId) {
        self.suspects.remove(&metablock);
        self.obstacles.remove(&metablock);
    }

    /// Why a step for a set has not begun, and what it is for.
    #[must_use]
    pub fn obstacle(&self, metablock: MetablockId, now: Moment) -> Option<(Reason, &Obstacle)> {
        let met = self.obstacles.get(&metablock).filter(|met| met.lasts(now))?;
        Some((met.reason, &met.obstacle))
    }

    /// Sets for which there is something to do, as far as is known.
    #[must_use]
    pub fn busy_sets(&self) -> BTreeSet<MetablockId> {
        let copied = self.copies.keys().chain(self.extra_copies.keys());
        copied.chain(self.obstacles.keys()).chain(self.suspects.iter()).copied().collect()
    }

    /// A recorded set has changed; `exists`: the metablock is still in the map.
    pub fn on_set_changed(&mut self, metablock: MetablockId, old: &[pb::Member], new: &[pb::Member], exists: bool) {
        for member in old.iter().filter(|member| !new.iter().any(|other| other.is_at(member))) {
            let volume = member.volume_id();
            self.on_renewed(metablock, volume);
            // What was freed as a whole is in the state machine's list of deleted replicas.
            if exists {
                self.excess.insert((volume, metablock));
            }
        }
        for member in new {
            self.excess.remove(&(member.volume_id(), metablock));
        }
        if exists {
            self.suspects.insert(metablock);
        } else {
            self.on_settled(metablock);
        }
    }

    /// A replica is damaged or missing for certain.
    pub fn on_damage(&mut self, metablock: MetablockId, volume: VolumeId) {
        self.damaged.insert((metablock, volume));
        self.suspects.insert(metablock);
    }

    /// A replica is good again, or no member any more.
    pub fn on_renewed(&mut self, metablock: MetablockId, volume: VolumeId) {
        self.damaged.remove(&(metablock, volume));
        self.cramped.remove(&(metablock, volume));
        self.unfit.remove(&(metablock, volume));
    }

    /// Volumes where a stray replica of this metablock waits for its deletion: it would take a new copy with it.
    #[must_use]
    pub fn strays(&self, metablock: MetablockId) -> BTreeSet<VolumeId> {
        let mut found = BTreeSet::new();
        // Volumes are few and strays may be many: from volume to volume, not from stray to stray.
        let mut from = VolumeId::default();
        while let Some((volume, _)) = self.excess.range((from, MetablockId::default())..).next() {
            if self.excess.contains(&(*volume, metablock)) {
                found.insert(*volume);
            }
            from = VolumeId::new(volume.raw() + 1);
        }
        found
    }

    /// Weight of the copies in progress that read from or write to a node.
    #[must_use]
    pub fn copy_load(&self, node: NodeId) -> usize {
        let touches = |copy: &&CopyInProgress| copy.source == node || copy.target == node;
        let all = self.copies.values().chain(self.extra_copies.values()).chain(self.recovery_copies.values());
        all.filter(touches).map(|copy| copy.weight).sum()
    }

    /// Whether a node may take part in one more copy of `len` bytes. One copy is always allowed.
    #[must_use]
    pub fn takes(&self, node: NodeId, len: u64, weight_max: usize) -> bool {
        let load = self.copy_load(node);
        load == 0 || load + weight(len) <= weight_max
    }

    /// Whether something that is wrong can be mended: this goes before what makes better what is right. What cannot (all its copies
    /// are lost, nobody has room for another) stays queued, and keeps nothing else waiting.
    #[must_use]
    pub fn is_mending(&self) -> bool {
        let recovers = self.recoveries.iter().chain(&self.recovering).any(|inode| !self.unrecovered.contains(inode));
        recovers || !self.copies.is_empty() || self.suspects.are_promising()
    }

    /// An attempt to recover a file has ended.
    pub fn on_recovery_ended(&mut self, inode: InodeId, is_done: bool) {
        self.recovering.remove(&inode);
        if is_done {
            self.waiting.on_done(inode);
            self.unrecovered.remove(&inode);
        } else {
            self.recoveries.insert(inode);
            self.unrecovered.insert(inode);
        }
    }

    /// An attempt to recover a file has met members that are silent and may come back.
    pub fn on_recovery_waits(&mut self, inode: InodeId, now: Moment) {
        self.recovering.remove(&inode);
        self.unrecovered.insert(inode);
        self.waiting.on_attempt(inode, now);
    }

    /// A node has told what it has: whoever waited for it looks again.
    pub fn on_node_back(&mut self) {
        self.recoveries.append(&mut self.waiting.take_all());
    }

    /// The next file to recover; it counts as being recovered from now on. Files take turns: those that cannot be recovered now
    /// come again and again, and there may be more of them than are recovered at a time.
    pub fn take_recovery(&mut self, now: Moment) -> Option<InodeId> {
        self.recoveries.append(&mut self.waiting.take_due(now));
        let behind = self.recoveries.range(self.next_recovery..).chain(self.recoveries.range(..self.next_recovery));
        let inode = behind.copied().find(|inode| !self.recovering.contains(inode))?;
        self.next_recovery = InodeId::new(inode.raw().saturating_add(1));
        self.recoveries.remove(&inode);
        self.recovering.insert(inode);
        Some(inode)
    }

    /// Sets that are not, or may not be, as they should be, of those that count.
    #[must_use]
    pub fn unsettled_sets(&self, counts: impl Fn(MetablockId) -> bool) -> u64 {
        let all: BTreeSet<MetablockId> = self.suspects.iter().chain(self.copies.keys()).copied().collect();
        all.into_iter().filter(|metablock| counts(*metablock)).count() as u64
    }
}
