//! Failures of nodes: their damage, and its restoration. Availability comes first, then durability, then layout
//! (Rabbit, Sec. 3.5), each with the time since when it is restored.
//!
//! Plain values: [`Facts`] describes volumes and chains, [`Facts::count`] counts one metablock after the other, and
//! [`Failures`] keeps the results. The shell is in [`run`], and the return of copies to their chain is in
//! [`crate::copies::layout`].

pub mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebb_layout::ChainView;
use ebb_layout::restore::{check_off, is_in_runs};
use ebb_types::{DatasetId, Incarnation, MetablockId, NodeId, VolumeId};
use ebb_wire::pb;

use crate::work::ReplicaKey;

/// Maximum number of failures in memory. Those that are over are dropped first.
const KEPT_MAX: usize = 16;

/// Counts of damage, over all metablocks that were ever written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// Metablocks without a copy on a node that answers and that a plan wakes.
    pub unreachable: u64,
    /// Metablocks with fewer copies than wanted on nodes that answer or sleep by plan.
    pub short: u64,
    /// Metablocks with a copy off its chain, or to be moved until the nodes have their shares.
    pub misplaced: u64,
}

/// State of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VolumeFacts {
    /// Present incarnation. A copy on another incarnation is gone.
    pub incarnation: Incarnation,
    /// Whether its node is not missed, and it is not poisoned.
    pub is_there: bool,
    /// Whether a plan wakes its node.
    pub serves: bool,
}

/// Input of a census.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// All recorded volumes, by id.
    pub volumes: BTreeMap<VolumeId, VolumeFacts>,
    /// Replicas that are damaged or missing.
    pub damaged: BTreeSet<ReplicaKey>,
    /// Wanted copies and chain of each dataset.
    pub datasets: BTreeMap<DatasetId, DatasetFacts>,
}

/// State of a dataset.
#[derive(Clone, Debug)]
pub struct DatasetFacts {
    /// Number of copies that it wants.
    pub wanted: u32,
    /// Its chain, with the copies on it.
    pub chain: Arc<ChainView>,
}

/// A census in progress.
#[derive(Clone, Debug, Default)]
pub struct Counting {
    census: Census,
    /// Number of metablocks off their chain, in each dataset.
    off: BTreeMap<DatasetId, u64>,
}

impl Facts {
    /// Counts one metablock. Returns whether it is off its chain.
    pub fn count(
        &self,
        counting: &mut Counting,
        dataset: DatasetId,
        metablock: MetablockId,
        members: &[pb::Member],
    ) -> bool {
        let there = |member: &&pb::Member| {
            let volume = self.volumes.get(&member.volume_id());
            volume.is_some_and(|volume| volume.is_there && volume.incarnation.raw() == member.incarnation)
                && !self.damaged.contains(&(metablock, member.volume_id()))
        };
        let good: Vec<&pb::Member> = members.iter().filter(there).collect();
        let nodes: BTreeSet<u64> = good.iter().map(|member| member.node).collect();
        let serves = |member: &&pb::Member| self.volumes.get(&member.volume_id()).is_some_and(|volume| volume.serves);
        counting.census.unreachable += u64::from(!good.iter().any(serves));
        let Some(DatasetFacts { wanted, chain }) = self.datasets.get(&dataset) else { return false };
        let is_short = nodes.len() < *wanted as usize;
        counting.census.short += u64::from(is_short);
        if !chain.layout().has_chain() {
            return false;
        }
        let homes: Vec<NodeId> = members.iter().map(pb::Member::home_id).collect();
        let is_away = members.iter().any(pb::Member::is_guest);
        // A missing copy has no place, so it is not where the chain wants it.
        let is_off = is_short || is_away || !is_in_runs(chain, &homes);
        *counting.off.entry(dataset).or_default() += u64::from(is_off);
        is_off
    }

    /// The finished census. It includes the moves that even out the nodes' shares.
    #[must_use]
    pub fn finish(&self, counting: &Counting) -> Census {
        let misplaced = self.datasets.iter().map(|(id, DatasetFacts { chain, .. })| {
            // A copy outside its run is usually one that another node lacks for its share. The two are one move, so the
            // larger count is taken.
            counting.off.get(id).copied().unwrap_or(0).max(check_off(chain))
        });
        Census { misplaced: misplaced.sum(), ..counting.census }
    }
}

/// A node that was missed. Moments are milliseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The node.
    pub node: NodeId,
    /// Moment of its last heartbeat before.
    pub failed_ms: u64,
    /// Moment when it was heard again.
    pub back_ms: Option<u64>,
    /// The last census, or the one that ended the failure.
    pub census: Census,
    /// Since when every metablock is readable.
    pub reachable_ms: Option<u64>,
    /// Since when no metablock lacks copies.
    pub whole_ms: Option<u64>,
    /// Since when every metablock is where its chain wants it.
    pub placed_ms: Option<u64>,
}

impl Failure {
    fn new(node: NodeId, failed_ms: u64) -> Self {
        let census = Census::default();
        Self { node, failed_ms, back_ms: None, census, reachable_ms: None, whole_ms: None, placed_ms: None }
    }

    /// Whether everything is restored. Later damage belongs to another failure.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.reachable_ms.is_some() && self.whole_ms.is_some() && self.placed_ms.is_some()
    }

    fn on_census(&mut self, census: Census, now_ms: u64) {
        self.census = census;
        let since = |known: Option<u64>, is_so: bool| is_so.then(|| known.unwrap_or(now_ms));
        self.reachable_ms = since(self.reachable_ms, census.unreachable == 0);
        self.whole_ms = since(self.whole_ms, census.short == 0 && census.unreachable == 0);
        self.placed_ms = since(self.placed_ms, census == Census::default());
    }

    /// The failure as a message for operators.
    #[must_use]
    pub fn to_message(&self) -> pb::NodeFailure {
        pb::NodeFailure {
            node: self.node.raw(),
            failed_ms: self.failed_ms,
            back_ms: self.back_ms.unwrap_or(0),
            unreachable: self.census.unreachable,
            short: self.census.short,
            misplaced: self.census.misplaced,
            reachable_ms: self.reachable_ms.unwrap_or(0),
            whole_ms: self.whole_ms.unwrap_or(0),
            placed_ms: self.placed_ms.unwrap_or(0),
        }
    }
}

/// Failures seen by this master process.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    /// Failures, in the order in which they were noticed.
    all: Vec<Failure>,
}

impl Failures {
    /// Forgets a node that was removed from the cluster: it does not come back.
    pub fn forget(&mut self, node: NodeId) {
        self.all.retain(|failure| failure.node != node);
    }

    /// Updates the list. `missed` has all nodes that are missed now, each with the moment of its last heartbeat.
    pub fn on_look(&mut self, missed: &BTreeMap<NodeId, u64>, now_ms: u64) {
        for failure in self.all.iter_mut().filter(|failure| failure.back_ms.is_none()) {
            if !missed.contains_key(&failure.node) {
                failure.back_ms = Some(now_ms);
            }
        }
        for (node, failed_ms) in missed {
            let known = self.all.iter().position(|failure| failure.node == *node);
            if known.is_some_and(|known| self.all[known].back_ms.is_none()) {
                continue;
            }
            // A node has one entry: the new failure takes over damage of its earlier one.
            known.map(|known| self.all.remove(known));
            self.all.push(Failure::new(*node, *failed_ms));
        }
        while self.all.len() > KEPT_MAX {
            let oldest = self.all.iter().position(Failure::is_over).unwrap_or(0);
            self.all.remove(oldest);
        }
    }

    /// Whether a failure still needs censuses.
    #[must_use]
    pub fn are_open(&self) -> bool {
        self.all.iter().any(|failure| !failure.is_over())
    }

    /// Records a census for all failures that are not over.
    pub fn on_census(&mut self, census: Census, now_ms: u64) {
        self.all.iter_mut().filter(|failure| !failure.is_over()).for_each(|failure| failure.on_census(census, now_ms));
    }

    /// All failures, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Failure> {
        self.all.iter()
    }
}

#[cfg(test)]
mod tests;
