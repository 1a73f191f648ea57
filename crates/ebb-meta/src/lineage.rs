//! The history of the cluster that this state belongs to: its lineage, the runs of the master, and lower bounds of
//! numbers. An earlier history may have given numbers below these bounds (docs/protocol.md, Going back in time).
//!
//! A **position** is a place in that history. Nodes and clients keep the newest position that they have seen, and show
//! it to each master that they meet. A master that has never been at that position is older than the cluster.

use ebb_types::{DatasetId, Epoch, InodeId, MetablockId, NodeId, Result, SessionId, VolumeId, bail};
use ebb_wire::pb;

use crate::machine::{Machine, NUMBER_MAX};

/// Largest increment of an epoch. If two histories of a file part, they draw the same next epoch with a probability of
/// one in this number.
pub const EPOCH_STEP_MAX: u64 = 1 << 26;
/// Increment of all epochs when a loss is accepted. No history can have given so many since.
const EPOCH_JUMP: u64 = 1 << 48;
/// Increment of the counters of inodes and metablocks when a loss is accepted.
const ID_JUMP: u64 = 1 << 40;
/// Increment of the counters of nodes, volumes and datasets when a loss is accepted.
const FEW_JUMP: u64 = 1 << 20;
/// Lowest id of a session that the leader drew. Ids of the counter lie below.
pub const SESSION_DRAWN_MIN: u64 = 1 << 48;
/// Most runs that are remembered. A position in an earlier run is believed.
const RUNS_MAX: usize = 1000;

/// The history that a state belongs to.
#[derive(Clone, Default, Debug)]
pub(crate) struct Lineage {
    /// 0 if the log is of a release that drew no lineage, and no run has started since.
    id: u64,
    run: u64,
    /// The last runs, oldest first.
    runs: imbl::Vector<Run>,
    /// Lineages whose loss was accepted.
    superseded: imbl::OrdSet<u64>,
    epoch_floor: u64,
    /// Ids of metablocks that this history never assigned, and never will.
    never_given: imbl::Vector<IdRange>,
    deletions_held: bool,
}

/// Ids from `begin` to below `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct IdRange {
    begin: MetablockId,
    end: MetablockId,
}

/// One start of a master.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    number: u64,
    mark: u64,
    /// Entries of earlier runs have at most this index.
    after: u64,
}

/// How the position that a peer has seen compares with this state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PositionVerdict {
    /// This history has been at the position, or the peer has seen none.
    Known,
    /// The position is of a lineage whose loss was accepted.
    Superseded,
    /// This history has not reached the position: the log is older than the master that the peer has seen.
    Ahead,
    /// Another master has gone on from a copy of this log.
    Parted,
    /// The position is of a lineage that this log does not know. Either an older log was put back after a loss was
    /// accepted, or the peer belongs to another cluster.
    Stranger,
}

impl Lineage {
    /// The next epoch after this one. The increment follows from the command. The result is above every epoch of an
    /// earlier history.
    pub(crate) fn raised(&self, epoch: Epoch, step: u64) -> Epoch {
        // I-87: the floor is above all epochs that a lost history may have given.
        let from = epoch.raw().max(self.epoch_floor);
        let raised = Epoch::new(from.saturating_add(step.clamp(1, EPOCH_STEP_MAX)).min(NUMBER_MAX));
        assert!(
            raised > epoch || epoch.raw() >= NUMBER_MAX,
            "{epoch} is followed by {raised}, which fences off no holder"
        );
        raised
    }

    /// Whether a run has started that drew a lineage, or found one.
    pub(crate) fn is_begun(&self) -> bool {
        self.id != 0
    }

    /// Whether the id lies in a range that the counter passed over.
    pub(crate) fn is_foreign(&self, id: MetablockId) -> bool {
        self.never_given.iter().any(|range| (range.begin..range.end).contains(&id))
    }

    /// Records that the counter passes over a range of ids.
    pub(crate) fn pass_over(&mut self, begin: MetablockId, end: MetablockId) {
        if begin >= end {
            return;
        }
        match self.never_given.back_mut() {
            Some(last) if last.end == begin => last.end = end,
            _ => self.never_given.push_back(IdRange { begin, end }),
        }
    }

    fn compare_position(&self, applied: u64, position: &pb::Position) -> PositionVerdict {
        if position.lineage == 0 {
            return PositionVerdict::Known;
        }
        // I-86: the order of these questions matters. A superseded lineage is no stranger.
        if self.superseded.contains(&position.lineage) {
            return PositionVerdict::Superseded;
        }
        if position.lineage != self.id {
            return PositionVerdict::Stranger;
        }
        let Some(at) = self.runs.iter().position(|run| run.number == position.run) else {
            return if position.run > self.run { PositionVerdict::Ahead } else { PositionVerdict::Known };
        };
        // A run ends where the next one starts. The last run has come as far as the state.
        let end = self.runs.get(at + 1).map_or(applied, |next| next.after);
        match self.runs[at].mark == position.mark {
            false => PositionVerdict::Parted,
            true if position.index > end => PositionVerdict::Ahead,
            true => PositionVerdict::Known,
        }
    }

    pub(crate) fn to_record(&self) -> Option<pb::LineageRecord> {
        let run = |run: &Run| pb::RunRecord { run: run.number, mark: run.mark, after: run.after };
        let range = |range: &IdRange| pb::IdRange { begin: range.begin.raw(), end: range.end.raw() };
        let record = pb::LineageRecord {
            lineage: self.id,
            run: self.run,
            runs: self.runs.iter().map(run).collect(),
            superseded: self.superseded.iter().copied().collect(),
            epoch_floor: self.epoch_floor,
            never_given: self.never_given.iter().map(range).collect(),
            deletions_held: self.deletions_held,
        };
        (record != pb::LineageRecord::default()).then_some(record)
    }

    pub(crate) fn from_record(record: &pb::LineageRecord) -> Result<Self> {
        if record.epoch_floor > NUMBER_MAX || record.run > NUMBER_MAX {
            bail!(Corrupt, "a lineage at run {} with epochs above {}", record.run, record.epoch_floor);
        }
        let run = |run: &pb::RunRecord| Run { number: run.run, mark: run.mark, after: run.after };
        let id = MetablockId::new;
        let range = |range: &pb::IdRange| IdRange { begin: id(range.begin), end: id(range.end) };
        Ok(Self {
            id: record.lineage,
            run: record.run,
            runs: record.runs.iter().map(run).collect(),
            superseded: record.superseded.iter().copied().collect(),
            epoch_floor: record.epoch_floor,
            never_given: record.never_given.iter().map(range).collect(),
            deletions_held: record.deletions_held,
        })
    }
}

impl Machine {
    /// Position of this history, with `applied` entries of the log applied.
    #[must_use]
    pub fn position(&self, applied: u64) -> pb::Position {
        let mark = self.lineage.runs.last().map_or(0, |run| run.mark);
        pb::Position { lineage: self.lineage.id, run: self.lineage.run, mark, index: applied }
    }

    /// Compares the position that a peer has seen with this state, which has `applied` entries of the log applied.
    #[must_use]
    pub fn judge_position(&self, applied: u64, position: &pb::Position) -> PositionVerdict {
        self.lineage.compare_position(applied, position)
    }

    /// Whether a replica with this id belongs to another history: this one never assigned the id.
    #[must_use]
    pub fn is_foreign(&self, id: MetablockId) -> bool {
        id >= self.next.metablock || self.lineage.is_foreign(id)
    }

    /// Whether deletions of replicas wait for the end of an fsck, because a loss was accepted.
    #[must_use]
    pub fn deletions_held(&self) -> bool {
        self.lineage.deletions_held
    }

    /// Whether a loss was ever accepted. Replicas may then have epochs that this history never gave.
    #[must_use]
    pub fn has_accepted_loss(&self) -> bool {
        !self.lineage.superseded.is_empty()
    }

    pub(crate) fn inode_epoch(&self, id: InodeId) -> Epoch {
        self.inodes.get(&id).map_or(Epoch::new(0), |inode| inode.epoch)
    }

    /// Whether a session of this id can have been opened.
    pub(crate) fn is_session_id(&self, id: SessionId) -> bool {
        id < self.next.session || (SESSION_DRAWN_MIN..=NUMBER_MAX).contains(&id.raw())
    }

    pub(crate) fn begin_run(&mut self, op: &pb::BeginRun) {
        let lineage = &mut self.lineage;
        if lineage.id == 0 {
            lineage.id = op.lineage;
        }
        lineage.run += 1;
        lineage.runs.push_back(Run { number: lineage.run, mark: op.mark, after: op.after });
        while lineage.runs.len() > RUNS_MAX {
            lineage.runs.pop_front();
        }
    }

    /// Accepts the loss of everything after this log. All counters jump, so that no number of the lost entries is given
    /// again.
    pub(crate) fn raise_floors(&mut self, op: &pb::RaiseFloors) -> Result<()> {
        if op.lineage == 0 || op.lineage == self.lineage.id {
            bail!(Invalid, "a loss is accepted with a new lineage");
        }
        let given = self.inodes.values().map(|inode| inode.epoch.raw()).max().unwrap_or_default();
        let lineage = &mut self.lineage;
        let most = given.max(op.epoch).max(lineage.epoch_floor);
        lineage.epoch_floor = most.saturating_add(EPOCH_JUMP).min(NUMBER_MAX / 2);
        let old = std::mem::replace(&mut lineage.id, op.lineage);
        lineage.superseded.insert(old);
        lineage
            .superseded
            .extend(op.superseded.iter().copied().filter(|lineage| *lineage != 0 && *lineage != op.lineage));
        lineage.deletions_held = true;
        self.trust.pass_over_lost();
        // A counter may be above the bound already: a quarantined id may have moved it there. It never goes back.
        let raise = |counter: u64, jump: u64| counter.saturating_add(jump).min(NUMBER_MAX.max(counter));
        let before = self.next;
        let next = &mut self.next;
        let metablock = MetablockId::new(raise(next.metablock.raw(), ID_JUMP));
        lineage.pass_over(next.metablock, metablock);
        next.metablock = metablock;
        next.inode = InodeId::new(raise(next.inode.raw(), ID_JUMP));
        next.node = NodeId::new(raise(next.node.raw(), FEW_JUMP));
        next.volume = VolumeId::new(raise(next.volume.raw(), FEW_JUMP));
        next.dataset = DatasetId::new(raise(next.dataset.raw(), FEW_JUMP));
        // I-87: a counter that goes back gives an id twice.
        assert!(next.metablock >= before.metablock && next.inode >= before.inode, "{before:?} goes back to {next:?}");
        assert!(next.node >= before.node && next.volume >= before.volume, "{before:?} goes back to {next:?}");
        assert!(next.dataset >= before.dataset, "{before:?} goes back to {next:?}");
        Ok(())
    }

    pub(crate) fn release_deletions(&mut self) {
        self.lineage.deletions_held = false;
    }
}
