//! Attempts that run, ids for their rows, and files that are not to be asked for again yet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::{DatasetId, Epoch, InodeId, MetablockId, NodeId, RaidSetId, VolumeId};

use ebb_wire::pb;

use crate::options::Options;

/// Most files in the table of those that are left alone. Further ones are asked again at once.
const FILES_MAX: usize = 10_000;
/// Shortest and longest time for which a file is left alone after its first failed attempt, if its delay is short.
const ALONE_MIN: Duration = Duration::from_secs(1);
const ALONE_FIRST: Duration = Duration::from_secs(10);
/// Longest time for which a file is left alone.
const ALONE_MAX: Duration = Duration::from_secs(3600);

/// One attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Attempt {
    /// The node that encodes.
    pub node: NodeId,
    /// Its rows, with ids that no other attempt has.
    pub rows: Vec<MetablockId>,
    /// Its slots.
    pub slots: Vec<MetablockId>,
}

/// A file that is left alone.
#[derive(Clone, Copy, Debug)]
struct Alone {
    until: Moment,
    span: Duration,
}

/// Soft state of encoding.
#[derive(Debug, Default)]
pub(crate) struct Encoding {
    running: BTreeMap<RaidSetId, Attempt>,
    /// Ids of `TakeIds` that no attempt has.
    ids: Vec<u64>,
    alone: BTreeMap<InodeId, Alone>,
    /// RAID sets with a step under way, and the node on which it makes a member.
    kept: BTreeMap<RaidSetId, Option<NodeId>>,
    /// Nodes that keep frozen replicas. One of an earlier release does not say so.
    knowing: BTreeSet<NodeId>,
    /// Files that an operator wants encoded, or without ballast beside them, whatever their age.
    asked: [BTreeSet<InodeId>; 2],
    /// Why nothing of a dataset's due metablocks began in the last round.
    waits: BTreeMap<DatasetId, String>,
    /// Ballast that has promised to serve decoding alone, as far as is known.
    retired: BTreeSet<(MetablockId, VolumeId)>,
}

impl Encoding {
    /// A node has registered.
    pub(crate) fn on_registered(&mut self, node: NodeId, knows_frozen: bool) {
        if knows_frozen {
            self.knowing.insert(node);
        } else {
            self.knowing.remove(&node);
        }
    }

    /// Whether a node keeps frozen replicas. Not known before it has registered with this process.
    pub(crate) fn knows_frozen(&self, node: NodeId) -> bool {
        self.knowing.contains(&node)
    }

    /// How many attempts may begin.
    pub(crate) fn free_places(&self, options: &Options) -> usize {
        options.encodings_max.saturating_sub(self.running.len())
    }

    /// Whether a node encodes already.
    pub(crate) fn is_encoding(&self, node: NodeId) -> bool {
        self.running.values().any(|attempt| attempt.node == node)
    }

    /// Nodes that encode.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.running.values().map(|attempt| attempt.node)
    }

    /// Whether an attempt has a metablock as a slot.
    pub(crate) fn is_a_slot(&self, metablock: MetablockId) -> bool {
        self.running.values().any(|attempt| attempt.slots.contains(&metablock))
    }

    /// Whether an attempt has a metablock as a row.
    pub(crate) fn is_a_row(&self, metablock: MetablockId) -> bool {
        self.running.values().any(|attempt| attempt.rows.contains(&metablock))
    }

    /// Ids that were taken for RAID sets and rows.
    pub(crate) fn add_ids(&mut self, ids: impl Iterator<Item = u64>) {
        self.ids.extend(ids);
    }

    /// So many ids. `None`: there are too few.
    pub(crate) fn take_ids(&mut self, count: usize) -> Option<Vec<u64>> {
        let rest = self.ids.len().checked_sub(count)?;
        Some(self.ids.split_off(rest))
    }

    /// An attempt begins.
    pub(crate) fn add_attempt(&mut self, id: RaidSetId, attempt: Attempt) {
        assert!(self.running.insert(id, attempt).is_none(), "{id} is attempted once");
    }

    /// An attempt has ended. It may be of an earlier term, which this state does not know.
    pub(crate) fn remove_attempt(&mut self, id: RaidSetId) -> Option<Attempt> {
        self.running.remove(&id)
    }

    /// A step of a RAID set begins, which makes a member on a node, or none.
    pub(crate) fn keep(&mut self, id: RaidSetId, target: Option<NodeId>) {
        self.kept.insert(id, target);
    }

    /// Members that are being made on each node.
    pub(crate) fn coming(&self) -> BTreeMap<NodeId, u64> {
        let mut coming = BTreeMap::new();
        for node in self.kept.values().flatten() {
            *coming.entry(*node).or_default() += 1;
        }
        coming
    }

    /// It has ended.
    pub(crate) fn end_keeping(&mut self, id: RaidSetId) {
        self.kept.remove(&id);
    }

    /// Whether a step of a RAID set is under way.
    pub(crate) fn is_kept(&self, id: RaidSetId) -> bool {
        self.kept.contains_key(&id)
    }

    /// Number of steps under way.
    pub(crate) fn kept_count(&self) -> usize {
        self.kept.len()
    }

    /// An operator wants these files encoded now, or repacked.
    pub(crate) fn ask_for(&mut self, kind: pb::raid_work::Kind, files: impl Iterator<Item = InodeId>) {
        let room = FILES_MAX.saturating_sub(self.asked[kind as usize].len());
        for inode in files.take(room) {
            self.asked[kind as usize].insert(inode);
            // Whoever asks does not want to wait for an earlier failure.
            self.alone.remove(&inode);
        }
    }

    /// Whether an operator wants a file encoded now.
    pub(crate) fn is_encode_asked(&self, inode: InodeId) -> bool {
        self.asked[pb::raid_work::Kind::RaidEncode as usize].contains(&inode)
    }

    /// Whether an operator wants any.
    pub(crate) fn is_any_encode_asked(&self) -> bool {
        !self.asked[pb::raid_work::Kind::RaidEncode as usize].is_empty()
    }

    /// Whether an operator wants no ballast beside one of these files.
    pub(crate) fn is_repack_asked(&self, mut files: impl Iterator<Item = InodeId>) -> bool {
        files.any(|inode| self.asked[pb::raid_work::Kind::RaidRepack as usize].contains(&inode))
    }

    /// A file is as an operator wanted it, or gone.
    pub(crate) fn forget_asked(&mut self, kind: pb::raid_work::Kind, is_left: impl Fn(InodeId) -> bool) {
        self.asked[kind as usize].retain(|inode| is_left(*inode));
    }

    /// A round has ended. `why` says why no attempt began, if one could have.
    pub(crate) fn note_waits(&mut self, dataset: DatasetId, why: Option<String>) {
        match why {
            Some(why) => drop(self.waits.insert(dataset, why)),
            None => drop(self.waits.remove(&dataset)),
        }
    }

    /// Why nothing of a dataset is being encoded; empty if there is no reason.
    pub(crate) fn why_waits(&self, dataset: DatasetId) -> String {
        let runs = !self.running.is_empty();
        self.waits.get(&dataset).filter(|_| !runs).cloned().unwrap_or_default()
    }

    /// A member of ballast has promised to serve decoding alone.
    pub(crate) fn on_retired(&mut self, metablock: MetablockId, volume: VolumeId) {
        self.retired.insert((metablock, volume));
    }

    /// A volume told what a replica has promised. It may have been away, or put back from a copy.
    pub(crate) fn on_promise_told(&mut self, metablock: MetablockId, volume: VolumeId, promise: Epoch) {
        if promise != Epoch::RETIRED {
            self.retired.remove(&(metablock, volume));
        }
    }

    /// Whether a member of ballast is known to serve decoding alone.
    pub(crate) fn is_retired(&self, metablock: MetablockId, volume: VolumeId) -> bool {
        self.retired.contains(&(metablock, volume))
    }

    /// Forgets retired members of what is no ballast any more.
    pub(crate) fn forget_retired(&mut self, is_ballast: impl Fn(MetablockId) -> bool) {
        self.retired.retain(|(metablock, _)| is_ballast(*metablock));
    }

    /// An attempt failed for files that are in use. They are left alone for twice a short delay or a quarter of a long one, and each
    /// further time for twice as long. A writer keeps its lease for a moment after it has closed its file.
    pub(crate) fn leave_alone(&mut self, inodes: impl Iterator<Item = InodeId>, now: Moment, delay: Duration) {
        let least = (delay * 2).clamp(ALONE_MIN, ALONE_FIRST).max(delay / 4);
        for inode in inodes {
            let span = self.alone.get(&inode).map_or(least, |alone| (alone.span * 2).min(ALONE_MAX.max(least)));
            if self.alone.len() < FILES_MAX || self.alone.contains_key(&inode) {
                self.alone.insert(inode, Alone { until: now.after(span), span });
            }
        }
    }

    /// Whether a file is left alone.
    pub(crate) fn is_left_alone(&self, inode: InodeId, now: Moment) -> bool {
        self.alone.get(&inode).is_some_and(|alone| now < alone.until)
    }

    /// Forgets files that were left alone long ago.
    pub(crate) fn forget_old(&mut self, now: Moment) {
        self.alone.retain(|_, alone| now < alone.until.after(alone.span));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_given_to_one_attempt_each() {
        let mut encoding = Encoding::default();
        assert_eq!(encoding.take_ids(1), None);
        encoding.add_ids(10..15);
        let (first, second) = (encoding.take_ids(3).unwrap(), encoding.take_ids(2).unwrap());
        assert!(first.iter().all(|id| !second.contains(id)));
        assert_eq!(encoding.take_ids(1), None);
    }

    #[test]
    fn a_row_is_kept_while_its_attempt_runs() {
        let mut encoding = Encoding::default();
        let id = RaidSetId::new(1);
        let (row, slot) = (MetablockId::new(2), MetablockId::new(3));
        encoding.add_attempt(id, Attempt { node: NodeId::new(4), rows: vec![row], slots: vec![slot] });
        assert!(encoding.is_a_row(row) && !encoding.is_a_row(slot) && encoding.is_a_slot(slot));
        assert!(encoding.is_encoding(NodeId::new(4)) && !encoding.is_encoding(NodeId::new(5)));
        encoding.remove_attempt(id).unwrap();
        assert!(!encoding.is_a_row(row) && encoding.remove_attempt(id).is_none());
    }

    #[test]
    fn a_file_in_use_is_left_alone_for_longer_each_time() {
        let (mut encoding, inode, now) = (Encoding::default(), InodeId::new(7), Moment::default());
        let delay = Duration::from_secs(20);
        encoding.leave_alone([inode].into_iter(), now, delay);
        assert!(encoding.is_left_alone(inode, now.after(Duration::from_secs(9))));
        let later = now.after(Duration::from_secs(11));
        assert!(!encoding.is_left_alone(inode, later));
        encoding.leave_alone([inode].into_iter(), later, delay);
        assert!(encoding.is_left_alone(inode, later.after(Duration::from_secs(19))));
        encoding.forget_old(later.after(Duration::from_secs(60)));
        encoding.leave_alone([inode].into_iter(), later, Duration::from_secs(400));
        assert!(encoding.is_left_alone(inode, later.after(Duration::from_secs(99))), "a quarter of the delay");
        let young = InodeId::new(8);
        encoding.leave_alone([young].into_iter(), now, Duration::from_millis(300));
        assert!(encoding.is_left_alone(young, now.after(Duration::from_millis(900))));
        assert!(!encoding.is_left_alone(young, now.after(Duration::from_millis(1100))), "its delay is shorter");
    }
}
