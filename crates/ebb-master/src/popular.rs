//! What is read often: averages in memory, and extra copies that come and go with them (BlinkFS, Sec. 4.2).
//!
//! Clients tell with `Poll` which metablocks they asked members for most; commits count as writes. The averages are in
//! memory alone: a new master process begins with none, and for some intervals takes nothing back, and makes nothing, for what it
//! does not know. What to make and to take back is [`crate::copies::extras`].

use std::collections::{BTreeMap, BTreeSet};

use ebb_meta::Machine;
use ebb_power::popularity::{BLOCKS_MAX, Counts, Popularity};
use ebb_types::{MetablockId, NodeId};
use ebb_wire::pb;

use crate::work::ReplicaKey;

/// Weight of the newest interval: what is read no more has lost nine tenths of its average after eight of them.
const WEIGHT: f64 = 0.25;
/// Intervals after which averages say something: two thirds of what they will be.
const WARM: u32 = 4;
/// Metablocks that one poll may tell of.
pub(crate) const TOLD_MAX: usize = 512;

/// See the module.
#[derive(Debug)]
pub struct Popular {
    averages: Popularity,
    /// Since this master process began.
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
    /// A client tells what it has asked members for. What the map does not have is not kept.
    pub fn on_reads(&mut self, machine: &Machine, reads: &[pb::BlockReads]) {
        for told in reads.iter().take(TOLD_MAX) {
            let metablock = MetablockId::new(told.metablock);
            if machine.has_metablock(metablock)
                && let Some(counts) = self.counts_of(metablock)
            {
                counts.reads = counts.reads.saturating_add(told.reads.into());
            }
        }
    }

    /// A holder has committed writes to these.
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

    /// A metablock was freed.
    pub fn forget(&mut self, metablock: MetablockId) {
        self.averages.forget(metablock);
        self.counts.remove(&metablock);
    }

    /// An interval is over.
    pub fn on_interval(&mut self) {
        self.intervals = self.intervals.saturating_add(1);
        self.averages.on_interval(&std::mem::take(&mut self.counts));
    }

    /// Whether the averages are of more than a beginning.
    #[must_use]
    pub fn is_warm(&self) -> bool {
        self.intervals >= WARM
    }

    /// An extra copy is damaged or missing.
    pub fn condemn(&mut self, key: ReplicaKey) {
        self.condemned.insert(key);
    }

    /// It is recorded no more, or anew.
    pub fn acquit(&mut self, key: &ReplicaKey) {
        self.condemned.remove(key);
    }

    /// Averages.
    #[must_use]
    pub fn averages(&self) -> &Popularity {
        &self.averages
    }

    /// Whether an extra copy is known to be bad.
    #[must_use]
    pub fn is_condemned(&self, key: &ReplicaKey) -> bool {
        self.condemned.contains(key)
    }

    /// Reads that go to each node's data, each metablock's shared by all its copies.
    #[must_use]
    pub fn loads(&self, machine: &Machine) -> BTreeMap<NodeId, f64> {
        let mut loads = BTreeMap::new();
        for (metablock, heat) in self.averages.iter() {
            let Some((_, record)) = machine.find_metablock(metablock) else { continue };
            let copies = record.members.len() + record.extra.len();
            for member in record.members.iter().chain(&record.extra) {
                *loads.entry(member.node_id()).or_insert(0.0) += heat.reads / copies as f64;
            }
        }
        loads
    }
}
