//! What a failed node has cost, and how far the cluster is over it: availability, then durability, then layout (Rabbit, Sec.
//! 3.5), each with the time since when it is restored.
//!
//! Plain values: [`Facts`] is what is known of volumes and chains, [`Facts::count`] takes in one metablock after the other,
//! and [`Failures`] keeps what came of it. The looks are in [`run`], and what brings copies back to their chain in
//! [`crate::copies::layout`].

pub mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebb_layout::ChainView;
use ebb_layout::restore::{check_off, is_in_runs};
use ebb_types::{DatasetId, MetablockId, NodeId};
use ebb_wire::pb;

use crate::work::ReplicaKey;

/// Failures that are remembered; those that are over go first.
const KEPT_MAX: usize = 16;

/// What is wrong, of all metablocks that were ever written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// Without a copy on a node that answers and that a plan wakes.
    pub unreachable: u64,
    /// With fewer copies, on nodes that answer or sleep by plan, than their dataset wants.
    pub short: u64,
    /// With a copy where the dataset's chain does not want it, or to be moved until its nodes have their shares.
    pub misplaced: u64,
}

/// What is known of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VolumeFacts {
    /// Its present life: a copy of another one is gone.
    pub incarnation: u64,
    /// Its node is not missed, and it is not poisoned.
    pub is_there: bool,
    /// A plan wakes its node.
    pub serves: bool,
}

/// What a census goes by.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Every volume that is recorded.
    pub volumes: BTreeMap<u64, VolumeFacts>,
    /// Replicas that are damaged or missing.
    pub damaged: BTreeSet<ReplicaKey>,
    /// Copies that each dataset wants, and what lies on its chain.
    pub datasets: BTreeMap<DatasetId, (u32, Arc<ChainView>)>,
}

/// A census on its way.
#[derive(Clone, Debug, Default)]
pub struct Counting {
    census: Census,
    /// Metablocks of each dataset that lie off their chain, one by one.
    off: BTreeMap<DatasetId, u64>,
}

impl Facts {
    /// Takes one metablock in. True: it lies off its chain.
    pub fn count(
        &self,
        counting: &mut Counting,
        dataset: DatasetId,
        metablock: MetablockId,
        members: &[pb::Member],
    ) -> bool {
        let there = |member: &&pb::Member| {
            let volume = self.volumes.get(&member.volume);
            volume.is_some_and(|volume| volume.is_there && volume.incarnation == member.incarnation)
                && !self.damaged.contains(&(metablock, member.volume_id()))
        };
        let good: Vec<&pb::Member> = members.iter().filter(there).collect();
        let nodes: BTreeSet<u64> = good.iter().map(|member| member.node).collect();
        let serves = |member: &&pb::Member| self.volumes.get(&member.volume).is_some_and(|volume| volume.serves);
        counting.census.unreachable += u64::from(!good.iter().any(serves));
        let Some((wanted, chain)) = self.datasets.get(&dataset) else { return false };
        let is_short = nodes.len() < *wanted as usize;
        counting.census.short += u64::from(is_short);
        if !chain.layout().has_chain() {
            return false;
        }
        let homes: Vec<NodeId> = members.iter().map(pb::Member::home_id).collect();
        let is_away = members.iter().any(pb::Member::is_guest);
        // A copy that is missing lies nowhere, so not where the chain wants it either.
        let is_off = is_short || is_away || !is_in_runs(chain, &homes);
        *counting.off.entry(dataset).or_default() += u64::from(is_off);
        is_off
    }

    /// What it came to, the shares of the chains' nodes counted in.
    #[must_use]
    pub fn finish(&self, counting: &Counting) -> Census {
        let misplaced = self.datasets.iter().map(|(id, (_, chain))| {
            // A copy outside its run is, as a rule, one that another node has too few of: they are not two moves.
            counting.off.get(id).copied().unwrap_or(0).max(check_off(chain))
        });
        Census { misplaced: misplaced.sum(), ..counting.census }
    }
}

/// One node that was missed. Moments are milliseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Which.
    pub node: NodeId,
    /// When it was heard last.
    pub failed_ms: u64,
    /// When it was heard again.
    pub back_ms: Option<u64>,
    /// What is wrong by the last census, or was when it was over.
    pub census: Census,
    /// Since when everything can be read.
    pub reachable_ms: Option<u64>,
    /// Since when nothing lacks copies.
    pub whole_ms: Option<u64>,
    /// Since when everything lies where its chain wants it.
    pub placed_ms: Option<u64>,
}

impl Failure {
    fn new(node: NodeId, failed_ms: u64) -> Self {
        let census = Census::default();
        Self { node, failed_ms, back_ms: None, census, reachable_ms: None, whole_ms: None, placed_ms: None }
    }

    /// Whether all that it took away is restored. What is wrong later is another failure's.
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

    /// As an operator is told of it.
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

/// Failures, as this master process has seen them.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    /// In the order in which they were noticed.
    all: Vec<Failure>,
}

impl Failures {
    /// These nodes are missed, heard last at these moments; all others are not.
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
            // It is told of once: what an earlier failure left open this one takes over.
            known.map(|known| self.all.remove(known));
            self.all.push(Failure::new(*node, *failed_ms));
        }
        while self.all.len() > KEPT_MAX {
            let oldest = self.all.iter().position(Failure::is_over).unwrap_or(0);
            self.all.remove(oldest);
        }
    }

    /// Whether anything is to be counted for them.
    #[must_use]
    pub fn are_open(&self) -> bool {
        self.all.iter().any(|failure| !failure.is_over())
    }

    /// What was found wrong.
    pub fn on_census(&mut self, census: Census, now_ms: u64) {
        self.all.iter_mut().filter(|failure| !failure.is_over()).for_each(|failure| failure.on_census(census, now_ms));
    }

    /// Oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Failure> {
        self.all.iter()
    }
}

#[cfg(test)]
mod tests;
