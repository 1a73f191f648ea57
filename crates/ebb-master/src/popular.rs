//! Popularity: averages of reads, for extra copies that come and go with them (BlinkFS, Sec. 4.2).
//!
//! Clients report with `Poll` the metablocks that they read most from members. Commits count as writes. The averages
//! are in memory only. A new master process starts without them, and for some intervals neither makes nor removes extra
//! copies. The choice of extra copies is in [`crate::copies::extras`].

use std::collections::{BTreeMap, BTreeSet};

use ebb_meta::Machine;
use ebb_power::popularity::{BLOCKS_MAX, Counts, Popularity};
use ebb_types::{BLOCK_SIZE_DEFAULT, MetablockId, NodeId};
use ebb_wire::pb;

use crate::work::ReplicaKey;

/// Weight of the newest interval. The average of a metablock that is no longer read falls to a tenth in eight
/// intervals.
const WEIGHT: f64 = 0.25;
/// Intervals after which the averages are meaningful: they have reached two thirds of their final value.
const WARM: u32 = 4;
/// Maximum number of metablocks in one report.
pub(crate) const REPORTED_MAX: usize = 512;

/// Averages and counts of reads and writes.
#[derive(Debug)]
pub struct Popular {
    averages: Popularity,
    /// Intervals since this master process started.
    intervals: u32,
    counts: BTreeMap<MetablockId, Counts>,
    /// Extra copies that are damaged or missing.
    condemned: BTreeSet<ReplicaKey>,
}

impl Default for Popular {
    fn default() -> Self {
        let averages = Popularity::new(WEIGHT).expect("the weight is between 0 and 1");
        Self { averages, intervals: 0, counts: BTreeMap::new(), condemned: BTreeSet::new() }
    }
}

impl Popular {
    /// Records a client's report of its reads. Unknown metablocks are ignored.
    pub fn on_reads(&mut self, machine: &Machine, reads: &[pb::BlockReads]) {
        for report in reads.iter().take(REPORTED_MAX) {
            let metablock = MetablockId::new(report.metablock);
            if machine.has_metablock(metablock)
                && let Some(counts) = self.counts_of(metablock)
            {
                counts.read_parts = counts.read_parts.saturating_add(report.reads.into());
            }
        }
    }

    /// Records a holder's commit.
    pub fn on_commit(&mut self, files: &[pb::CommitFile]) {
        for block in files.iter().flat_map(|file| &file.metablocks) {
            if let Some(counts) = self.counts_of(MetablockId::new(block.id)) {
                counts.writes = counts.writes.saturating_add(1);
            }
        }
    }

    fn counts_of(&mut self, metablock: MetablockId) -> Option<&mut Counts> {
        let has_room = self.counts.len() < BLOCKS_MAX || self.counts.contains_key(&metablock);
        has_room.then(|| self.counts.entry(metablock).or_default())
    }

    /// Forgets a freed metablock.
    pub fn forget(&mut self, metablock: MetablockId) {
        self.averages.forget(metablock);
        self.counts.remove(&metablock);
    }

    /// Ends an interval: its counts enter the averages.
    pub fn on_interval(&mut self) {
        self.intervals = self.intervals.saturating_add(1);
        self.averages.on_interval(&std::mem::take(&mut self.counts));
    }

    /// Whether enough intervals have passed for meaningful averages.
    #[must_use]
    pub fn is_warm(&self) -> bool {
        self.intervals >= WARM
    }

    /// Records that an extra copy is damaged or missing.
    pub fn condemn(&mut self, key: ReplicaKey) {
        self.condemned.insert(key);
    }

    /// Clears the mark of an extra copy that left the record, or was made again.
    pub fn acquit(&mut self, key: &ReplicaKey) {
        self.condemned.remove(key);
    }

    /// The averages.
    #[must_use]
    pub fn averages(&self) -> &Popularity {
        &self.averages
    }

    /// Whether an extra copy is known to be damaged or missing.
    #[must_use]
    pub fn is_condemned(&self, key: &ReplicaKey) -> bool {
        self.condemned.contains(key)
    }

    /// Reads of each node's data, in blocks. The reads of a metablock are split evenly among its copies.
    #[must_use]
    pub fn loads(&self, machine: &Machine) -> BTreeMap<NodeId, f64> {
        let mut loads = BTreeMap::new();
        for (metablock, heat) in self.averages.iter() {
            let Some(record) = machine.find_record(metablock) else { continue };
            let copies = record.members.len() + record.extra.len();
            let blocks = record.length.div_ceil(BLOCK_SIZE_DEFAULT).max(1) as f64;
            for member in record.members.iter().chain(&record.extra) {
                *loads.entry(member.node_id()).or_insert(0.0) += heat.reads * blocks / copies as f64;
            }
        }
        loads
    }
}
