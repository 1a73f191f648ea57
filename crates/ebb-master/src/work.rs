//! Queues of background work: files to recover, sets to repair, replicas to delete.
//!
//! Plain values. Each master process finds all of it anew: from the logged state, from reports of nodes, and from
//! clients.

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

/// Key of a replica.
pub type ReplicaKey = (MetablockId, VolumeId);

/// Key of a member's replica.
#[must_use]
pub fn replica_key(record: &pb::Metablock, member: &pb::Member) -> ReplicaKey {
    (record.metablock_id(), member.volume_id())
}

/// Above this size the bytes dominate the cost of a copy; below it, calls and syncs do.
const LARGE_BYTES: u64 = 1 << 20;

/// Maximum number of sets whose obstacles are remembered. They are only shown to operators.
const OBSTACLES_MAX: usize = 10_000;
/// Time after which an obstacle that was not met again is dropped. Every set has been tried again by then.
const OBSTACLE_LASTS: Duration = Duration::from_secs(60);

/// An obstacle to a step, with its last occurrence.
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
    /// Node whose replica is read.
    pub source: NodeId,
    /// Node that gets the new replica.
    pub target: NodeId,
    /// Part that it takes of a node's limit on copies.
    pub weight: usize,
    /// Purpose of the copy.
    pub reason: Reason,
}

impl CopyInProgress {
    /// A copy of `len` bytes. A large copy weighs as much as four small ones.
    #[must_use]
    pub fn new(source: NodeId, target: NodeId, len: u64, reason: Reason) -> Self {
        Self { source, target, weight: weight(len), reason }
    }

    /// Its share of a node's copy rate, in bytes per second; 0 means no limit.
    ///
    /// Invariant: the weights of all copies under way on a node add up to at most `weight_max` ([`Work::takes`]). So
    /// together the copies stay under the rate.
    #[must_use]
    pub fn rate(&self, node_rate: u64, weight_max: usize) -> u64 {
        let share = u128::from(node_rate) * self.weight as u128 / weight_max.max(self.weight) as u128;
        u64::try_from(share).unwrap_or(u64::MAX).max(u64::from(node_rate > 0))
    }
}

/// Part of a node's limit on copies that `len` bytes take.
fn weight(len: u64) -> usize {
    if len > LARGE_BYTES { 4 } else { 1 }
}

/// Copies that repair has made since this master process started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Copied {
    /// Number of copies that joined their set.
    pub count: u64,
    /// Bytes of these copies.
    pub bytes: u64,
    /// Members that recoveries had left out and that rejoined without a copy, because they had everything.
    pub rejoined: u64,
}

/// Where a new member's bytes came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A copy of another member.
    Copied,
    /// Its own replica: a recovery had left it out, and it had everything.
    OwnReplica,
}

impl Copied {
    /// Counts a member that joined its set with this many bytes.
    pub fn on_made(&mut self, origin: Origin, bytes: u64) {
        if origin == Origin::OwnReplica {
            self.rejoined += 1;
        } else {
            self.count += 1;
            self.bytes += bytes;
        }
    }
}

/// Whether a metablock is still in the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// It has a set.
    Mapped,
    /// It was freed as a whole.
    Freed,
}

/// Result of an attempt to recover a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attempt {
    /// The file is recovered.
    Done,
    /// The file must be tried again.
    Failed,
}

/// Queues of background work.
#[derive(Debug, Default)]
pub struct Work {
    /// Files whose lease holder is gone and that wait for recovery.
    pub recoveries: BTreeSet<InodeId>,
    /// Files that are being recovered.
    pub recovering: BTreeSet<InodeId>,
    /// Files whose last attempt at recovery failed.
    pub unrecovered: BTreeSet<InodeId>,
    /// Files whose recovery waits for members that are silent but not dead.
    pub waiting: Waiting,
    /// Replicas that a recovery left out and that were found unfit to rejoin. They are not asked again.
    pub unfit: BTreeSet<ReplicaKey>,
    /// Where the round over the files continues.
    next_recovery: InodeId,
    /// Files whose holder lives, but has said that it no longer holds them.
    pub abandoned: BTreeSet<InodeId>,
    /// Files with replicas of a higher epoch than this log ever gave, after a loss was accepted.
    pub ahead: BTreeSet<InodeId>,
    /// Sets that are not, or may not be, as wanted.
    pub suspects: Suspects,
    /// All sets are to be examined: a dataset wants another number of copies.
    pub rescan: bool,
    /// Nodes that get no copies of a file at present, because its writer cannot reach them.
    pub parted: Parted,
    /// Copies in progress for sets.
    pub copies: BTreeMap<MetablockId, CopyInProgress>,
    /// Extra copies in progress, which no set needs.
    pub extra_copies: BTreeMap<MetablockId, CopyInProgress>,
    /// Copies made by recoveries. They never wait, but count against the nodes' limits.
    pub recovery_copies: BTreeMap<ReplicaKey, CopyInProgress>,
    /// Totals of finished copies.
    pub copied: Copied,
    /// Obstacles that steps met recently.
    obstacles: BTreeMap<MetablockId, Met>,
    /// Metablocks off their chain, by a census that has just ended.
    pub misplaced: Option<Vec<MetablockId>>,
    /// Number of the last misplaced metablocks whose move began.
    pub moved: Option<usize>,
    /// Replicas that are certainly damaged or missing.
    pub damaged: BTreeSet<ReplicaKey>,
    /// Damaged replicas whose volume has no room for a good copy beside them.
    pub cramped: BTreeSet<ReplicaKey>,
    /// Replicas that may be damaged or missing. Their volumes are to be asked.
    pub doubts: BTreeSet<ReplicaKey>,
    /// Replicas that the map does not name, to be deleted.
    pub excess: BTreeSet<(VolumeId, MetablockId)>,
    /// When a volume last confirmed a deletion. It reports its free space later.
    pub freed: Option<Moment>,
}

impl Work {
    /// Records an obstacle that keeps a step for a set from starting.
    pub fn on_obstacle(&mut self, metablock: MetablockId, reason: Reason, obstacle: Obstacle, now: Moment) {
        if self.obstacles.len() >= OBSTACLES_MAX {
            self.obstacles.retain(|_, met| met.lasts(now));
        }
        if self.obstacles.len() < OBSTACLES_MAX || self.obstacles.contains_key(&metablock) {
            self.obstacles.insert(metablock, Met { at: now, reason, obstacle });
        }
    }

    /// Records that a step for a set has started.
    pub fn on_begun(&mut self, metablock: MetablockId) {
        self.obstacles.remove(&metablock);
    }

    /// Drops a set that is as wanted, or gone.
    pub fn on_settled(&mut self, metablock: MetablockId) {
        self.suspects.remove(&metablock);
        self.obstacles.remove(&metablock);
    }

    /// The obstacle that a set's next step met recently, and the purpose of the step.
    #[must_use]
    pub fn obstacle(&self, metablock: MetablockId, now: Moment) -> Option<(Reason, &Obstacle)> {
        let met = self.obstacles.get(&metablock).filter(|met| met.lasts(now))?;
        Some((met.reason, &met.obstacle))
    }

    /// Sets with work in progress or waiting.
    #[must_use]
    pub fn busy_sets(&self) -> BTreeSet<MetablockId> {
        let copied = self.copies.keys().chain(self.extra_copies.keys());
        copied.chain(self.obstacles.keys()).chain(self.suspects.iter()).copied().collect()
    }

    /// Records a change of a recorded set.
    pub fn on_set_changed(
        &mut self,
        metablock: MetablockId,
        old: &[pb::Member],
        new: &[pb::Member],
        presence: Presence,
    ) {
        for member in old.iter().filter(|member| !new.iter().any(|other| other.is_at(member))) {
            let volume = member.volume_id();
            self.on_renewed(metablock, volume);
            // A freed metablock's replicas are in the state machine's list of deleted replicas instead.
            if presence == Presence::Mapped {
                self.excess.insert((volume, metablock));
            }
        }
        for member in new {
            self.excess.remove(&(member.volume_id(), metablock));
        }
        if presence == Presence::Mapped {
            self.suspects.insert(metablock);
        } else {
            self.on_settled(metablock);
        }
    }

    /// Records a replica that is certainly damaged or missing.
    pub fn on_damage(&mut self, metablock: MetablockId, volume: VolumeId) {
        self.damaged.insert((metablock, volume));
        self.suspects.insert(metablock);
    }

    /// Records a replica that is good again, or no longer a member.
    pub fn on_renewed(&mut self, metablock: MetablockId, volume: VolumeId) {
        self.damaged.remove(&(metablock, volume));
        self.cramped.remove(&(metablock, volume));
        self.unfit.remove(&(metablock, volume));
    }

    /// Forgets volumes that are gone for good.
    pub fn forget_volumes(&mut self, volumes: &BTreeSet<VolumeId>) {
        self.doubts.retain(|(_, volume)| !volumes.contains(volume));
        self.excess.retain(|(volume, _)| !volumes.contains(volume));
    }

    /// Volumes where a stray replica of this metablock waits for deletion. A new copy there would be deleted with it.
    #[must_use]
    pub fn strays(&self, metablock: MetablockId) -> BTreeSet<VolumeId> {
        let mut found = BTreeSet::new();
        // Strays may be many and volumes are few, so the loop goes from volume to volume.
        let mut from = VolumeId::default();
        while let Some((volume, _)) = self.excess.range((from, MetablockId::default())..).next() {
            if self.excess.contains(&(*volume, metablock)) {
                found.insert(*volume);
            }
            from = VolumeId::new(volume.raw() + 1);
        }
        found
    }

    /// Total weight of the copies in progress that read from or write to a node.
    #[must_use]
    pub fn copy_load(&self, node: NodeId) -> usize {
        let touches = |copy: &&CopyInProgress| copy.source == node || copy.target == node;
        let all = self.copies.values().chain(self.extra_copies.values()).chain(self.recovery_copies.values());
        all.filter(touches).map(|copy| copy.weight).sum()
    }

    /// Whether a node may take part in another copy of `len` bytes. A single copy is always allowed.
    #[must_use]
    pub fn takes(&self, node: NodeId, len: u64, weight_max: usize) -> bool {
        let load = self.copy_load(node);
        load == 0 || load + weight(len) <= weight_max
    }

    /// Whether there is damage that can be repaired. Repairs precede improvements of healthy sets.
    ///
    /// Damage that cannot be repaired stays queued without blocking anything: all copies are lost, or no node has room.
    #[must_use]
    pub fn is_mending(&self) -> bool {
        let recovers = self.recoveries.iter().chain(&self.recovering).any(|inode| !self.unrecovered.contains(inode));
        recovers || !self.copies.is_empty() || self.suspects.are_promising()
    }

    /// Records the end of an attempt to recover a file.
    pub fn on_recovery_ended(&mut self, inode: InodeId, attempt: Attempt) {
        self.recovering.remove(&inode);
        if attempt == Attempt::Done {
            self.waiting.on_done(inode);
            self.unrecovered.remove(&inode);
        } else {
            self.recoveries.insert(inode);
            self.unrecovered.insert(inode);
        }
    }

    /// Records an attempt at recovery that met members which are silent and may come back.
    pub fn on_recovery_waits(&mut self, inode: InodeId, now: Moment) {
        self.recovering.remove(&inode);
        self.unrecovered.insert(inode);
        self.waiting.on_attempt(inode, now);
    }

    /// Makes recoveries that wait for silent members due, because a node has reported its replicas.
    pub fn on_node_back(&mut self) {
        self.recoveries.append(&mut self.waiting.take_all());
    }

    /// The next file to recover, which counts as being recovered from now on.
    ///
    /// Files take turns. Otherwise files that cannot be recovered now could occupy all places and keep the others
    /// waiting.
    pub fn take_recovery(&mut self, now: Moment) -> Option<InodeId> {
        self.recoveries.append(&mut self.waiting.take_due(now));
        let behind = self.recoveries.range(self.next_recovery..).chain(self.recoveries.range(..self.next_recovery));
        let inode = behind.copied().find(|inode| !self.recovering.contains(inode))?;
        // Invariant: one recovery of a file runs at a time, or two could stamp its members with one epoch.
        self.next_recovery = InodeId::new(inode.raw().saturating_add(1));
        self.recoveries.remove(&inode);
        let is_new = self.recovering.insert(inode);
        assert!(is_new, "two recoveries of {inode} would run at a time");
        Some(inode)
    }

    /// Number of sets for which `counts` holds and that are not, or may not be, as wanted.
    #[must_use]
    pub fn unsettled_sets(&self, counts: impl Fn(MetablockId) -> bool) -> u64 {
        let all: BTreeSet<MetablockId> = self.suspects.iter().chain(self.copies.keys()).copied().collect();
        all.into_iter().filter(|metablock| counts(*metablock)).count() as u64
    }
}
