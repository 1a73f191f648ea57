//! Which history of the cluster this state is: lineage, runs of the master, and the floors under numbers that an earlier
//! history may have given (docs/protocol.md, Going back in time).
//!
//! A **position** is a place in that history. Nodes and clients keep the newest that they were told, and say it to
//! whichever master they meet: one that is asked about a place that it has never been at is older than the cluster.

use ebb_types::{Epoch, InodeId, MetablockId, NodeId, Result, SessionId, VolumeId, bail};
use ebb_wire::pb;

use crate::machine::{Machine, NUMBER_MAX};

/// The most by which an epoch rises at once. Two histories of a file that part draw the same next epoch with a
/// probability of one in so many.
pub const EPOCH_STEP_MAX: u64 = 1 << 26;
/// By how much all epochs rise when a loss is accepted: more than any history can have given since.
const EPOCH_JUMP: u64 = 1 << 48;
/// The same of inodes and metablocks.
const ID_JUMP: u64 = 1 << 40;
/// The same of nodes, volumes and datasets.
const FEW_JUMP: u64 = 1 << 20;
/// Sessions that the leader drew have ids from here on; the counter's lie below.
pub const SESSION_DRAWN_MIN: u64 = 1 << 48;
/// Runs that are remembered. What was told of an earlier one is believed.
const RUNS_MAX: usize = 1000;

/// The history that a state belongs to.
#[derive(Clone, Default, Debug)]
pub(crate) struct Lineage {
    /// 0: the log is of a release that drew none, and no run has begun since.
    id: u64,
    run: u64,
    /// The last runs, oldest first.
    runs: imbl::Vector<Run>,
    /// Lineages whose loss was accepted.
    superseded: imbl::OrdSet<u64>,
    epoch_floor: u64,
    /// Metablocks that this history never gave, and never will: begin and end.
    never_given: imbl::Vector<(u64, u64)>,
    deletions_held: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    number: u64,
    mark: u64,
    /// Entries of earlier runs end here, or before.
    after: u64,
}

/// What a position that somebody tells means to this state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// This history has been there, or nobody said anything.
    Known,
    /// Of a lineage whose loss was accepted.
    Superseded,
    /// This history has not come so far: the log is older than what was seen of it.
    Ahead,
    /// Another master has gone on from a copy of this log.
    Parted,
    /// Of a lineage that this log does not know: it was put back after a loss was accepted, or is another one.
    Stranger,
}

impl Lineage {
    /// By how much an epoch rises follows from the command; never below what an earlier history may have given.
    pub(crate) fn raised(&self, epoch: Epoch, step: u64) -> Epoch {
        let from = epoch.raw().max(self.epoch_floor);
        Epoch::new(from.saturating_add(step.clamp(1, EPOCH_STEP_MAX)).min(NUMBER_MAX))
    }

    /// Whether a run has begun that drew a lineage, or found one.
    pub(crate) fn is_begun(&self) -> bool {
        self.id != 0
    }

    /// Whether this history never gave the id, below its counter.
    pub(crate) fn is_foreign(&self, id: MetablockId) -> bool {
        self.never_given.iter().any(|(begin, end)| (*begin..*end).contains(&id.raw()))
    }

    /// The counter passes over ids that this history did not give.
    pub(crate) fn pass_over(&mut self, begin: MetablockId, end: MetablockId) {
        let (begin, end) = (begin.raw(), end.raw());
        if begin >= end {
            return;
        }
        match self.never_given.back_mut() {
            Some(last) if last.1 == begin => last.1 = end,
            _ => self.never_given.push_back((begin, end)),
        }
    }

    fn compare_position(&self, applied: u64, told: &pb::Position) -> Told {
        if told.lineage == 0 {
            return Told::Known;
        }
        if self.superseded.contains(&told.lineage) {
            return Told::Superseded;
        }
        if told.lineage != self.id {
            return Told::Stranger;
        }
        let Some(at) = self.runs.iter().position(|run| run.number == told.run) else {
            return if told.run > self.run { Told::Ahead } else { Told::Known };
        };
        // The run that was told of ended where the next one began; the last one has come as far as the state.
        let end = self.runs.get(at + 1).map_or(applied, |next| next.after);
        match self.runs[at].mark == told.mark {
            false => Told::Parted,
            true if told.index > end => Told::Ahead,
            true => Told::Known,
        }
    }

    pub(crate) fn to_record(&self) -> Option<pb::LineageRecord> {
        let run = |run: &Run| pb::RunRecord { run: run.number, mark: run.mark, after: run.after };
        let range = |(begin, end): &(u64, u64)| pb::IdRange { begin: *begin, end: *end };
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
        Ok(Self {
            id: record.lineage,
            run: record.run,
            runs: record.runs.iter().map(run).collect(),
            superseded: record.superseded.iter().copied().collect(),
            epoch_floor: record.epoch_floor,
            never_given: record.never_given.iter().map(|range| (range.begin, range.end)).collect(),
            deletions_held: record.deletions_held,
        })
    }
}

impl Machine {
    /// Where this history stands, with so many entries applied.
    #[must_use]
    pub fn position(&self, applied: u64) -> pb::Position {
        let mark = self.lineage.runs.last().map_or(0, |run| run.mark);
        pb::Position { lineage: self.lineage.id, run: self.lineage.run, mark, index: applied }
    }

    /// What somebody has seen of a master, compared with this state, which has so many entries applied.
    #[must_use]
    pub fn judge_position(&self, applied: u64, told: &pb::Position) -> Told {
        self.lineage.compare_position(applied, told)
    }

    /// Whether a replica with this id is another history's: it was never given out here.
    #[must_use]
    pub fn is_foreign(&self, id: MetablockId) -> bool {
        id >= self.next.metablock || self.lineage.is_foreign(id)
    }

    /// Whether replicas stay until an fsck has come to its end, for a loss was accepted.
    #[must_use]
    pub fn deletions_held(&self) -> bool {
        self.lineage.deletions_held
    }

    /// Whether a loss was ever accepted: replicas may have epochs that this history never gave.
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

    /// What came after this log is lost for good: no number that it may have given is given again.
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
        lineage.superseded.extend(op.superseded.iter().copied().filter(|told| *told != 0 && *told != op.lineage));
        lineage.deletions_held = true;
        let raise = |counter: u64, jump: u64| counter.saturating_add(jump).min(NUMBER_MAX);
        let next = &mut self.next;
        let metablock = MetablockId::new(raise(next.metablock.raw(), ID_JUMP));
        lineage.pass_over(next.metablock, metablock);
        next.metablock = metablock;
        next.inode = InodeId::new(raise(next.inode.raw(), ID_JUMP));
        next.node = NodeId::new(raise(next.node.raw(), FEW_JUMP));
        next.volume = VolumeId::new(raise(next.volume.raw(), FEW_JUMP));
        next.dataset = ebb_types::DatasetId::new(raise(next.dataset.raw(), FEW_JUMP));
        Ok(())
    }

    pub(crate) fn release_deletions(&mut self) {
        self.lineage.deletions_held = false;
    }
}
