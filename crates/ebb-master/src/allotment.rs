//! Nodes for live datasets: which dataset each node serves alone (docs/power/sharing.md).
//!
//! Clients report with `Poll` what they read of each dataset. The decision is [`ebb_power::allot`]. It reaches clients
//! with the node map, and workers with their clients. It is advice about reads: nothing depends on it but their order.
//!
//! Everything here is in memory only. After a restart all nodes serve all datasets, until clients have reported reads for
//! [`JOIN`] again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebb_meta::Machine;
use ebb_power::allot::live::Liveness;
use ebb_power::allot::{Allotment, Claim, Part, allot};
use ebb_runtime::Moment;
use ebb_types::{DatasetId, NodeId};
use ebb_wire::pb;

use crate::chains::{nodes_of, power_chain};
use crate::shared::Shared;
use crate::view::ClusterView;

/// A dataset is live once it has been read for so long. One that is looked into moves no nodes.
const JOIN: Duration = Duration::from_secs(1);
/// A dataset is live no more when no reads were reported for so long, or for a session's time to live. Clients poll four
/// times in that, and a poll may be lost.
const LEAVE: Duration = Duration::from_secs(10);
/// Maximum number of datasets in one report.
const REPORTED_MAX: usize = 64;

/// The allotment, and what it was made from.
#[derive(Debug)]
pub(crate) struct Allotting {
    live: Liveness,
    /// The claims of the last decision. The same claims are not decided on twice, so nodes do not move to and fro.
    claims: Vec<Claim>,
    allotment: Allotment,
}

impl Allotting {
    /// Nothing is known to be read yet.
    pub(crate) fn new(session_ttl: Duration) -> Self {
        let live = Liveness::new(JOIN, LEAVE.max(session_ttl));
        Self { live, claims: Vec::new(), allotment: Allotment::default() }
    }

    /// Records a client's report. Unknown datasets are ignored.
    pub(crate) fn on_reads(&mut self, machine: &Machine, reads: &[pb::DatasetReads], now: Moment) {
        for report in reads.iter().take(REPORTED_MAX).filter(|report| report.bytes > 0) {
            let dataset = DatasetId::new(report.dataset);
            if machine.dataset(dataset).is_some() {
                self.live.on_read(dataset, now.since(Moment::default()));
            }
        }
    }

    /// The dataset that a node serves alone.
    pub(crate) fn serves(&self, node: NodeId) -> Option<DatasetId> {
        self.allotment.nodes.get(&node).copied()
    }

    /// Whether a dataset is live.
    pub(crate) fn is_live(&mut self, dataset: DatasetId, now: Moment) -> bool {
        self.live.find_live(now.since(Moment::default())).contains(&dataset)
    }

    /// The part of a live dataset with a share.
    pub(crate) fn part(&self, dataset: DatasetId) -> Option<&Part> {
        self.allotment.parts.iter().find(|part| part.dataset == dataset)
    }

    /// Decides anew if the claims are other ones. True: some node serves another dataset than before.
    fn on_claims(&mut self, claims: Vec<Claim>) -> bool {
        if claims == self.claims {
            return false;
        }
        let held: BTreeMap<NodeId, DatasetId> = std::mem::take(&mut self.allotment.nodes);
        (self.allotment, self.claims) = (allot(&claims, &held), claims);
        held != self.allotment.nodes
    }
}

/// The claims of these datasets, as far as they have a share.
fn claims_of(view: &ClusterView<'_>, live: &[DatasetId]) -> Vec<Claim> {
    let all: Vec<NodeId> = view.nodes().collect();
    let cannot_serve = |node: &NodeId| view.soft.registry.is_dead(*node) || view.is_off(*node);
    let away: BTreeSet<NodeId> = all.iter().copied().filter(cannot_serve).collect();
    let claim = |dataset: &DatasetId| {
        let dataset = view.machine.dataset(*dataset).filter(|dataset| dataset.share > 0)?;
        let chain = power_chain(dataset, &nodes_of(view.machine, dataset)).ok()?;
        Some(Claim::new(&chain, f64::from(dataset.share), dataset.priority, &away))
    };
    live.iter().filter_map(claim).collect()
}

/// Shares the nodes out anew if other datasets are read, have other shares, or lie on other nodes that serve.
pub(crate) fn update(shared: &Shared) {
    let machine = shared.group.machine();
    let mut soft = shared.soft();
    let live = soft.allotting.live.find_live(shared.runtime.now().since(Moment::default()));
    let claims = claims_of(&shared.view(&machine, &soft), &live);
    if !soft.allotting.on_claims(claims) {
        return;
    }
    soft.registry.bump();
    for part in &soft.allotting.allotment.parts {
        let path = machine.dataset(part.dataset).map_or("", |dataset| &dataset.path);
        tracing::info!(dataset = path, %part, "nodes are allotted to a dataset that is read");
    }
    drop(soft);
    shared.announce_node_map();
}

/// Completes the answer of `DescribeDataset`.
pub(crate) fn describe(shared: &Shared, dataset: DatasetId, reply: &mut pb::DescribeDatasetReply) {
    let mut soft = shared.soft();
    reply.live = soft.allotting.is_live(dataset, shared.runtime.now());
    if let Some(part) = soft.allotting.part(dataset) {
        reply.serving = part.nodes.iter().map(|node| node.raw()).collect();
        reply.sharing = part.to_string();
    }
}

#[cfg(test)]
mod tests {
    use ebb_power::{ChainShape, DatasetChain};

    use super::*;

    fn claims(shares: &[f64]) -> Vec<Claim> {
        let nodes = |turn: u64| (0..6).map(|place| NodeId::new((place + turn * 3) % 6 + 1)).collect();
        let claim = |(turn, share): (usize, &f64)| {
            let id = DatasetId::new(turn as u64 + 1);
            let chain = DatasetChain::new(id, nodes(turn as u64), ChainShape::EqualWork, 2, 3).unwrap();
            Claim::new(&chain, *share, 0, &BTreeSet::new())
        };
        shares.iter().enumerate().map(claim).collect()
    }

    #[test]
    fn the_same_claims_move_nothing_and_the_end_of_all_reads_frees_every_node() {
        let mut allotting = Allotting::new(Duration::from_secs(1));
        assert!(!allotting.on_claims(Vec::new()), "nothing is read");
        assert!(allotting.on_claims(claims(&[1.0, 1.0])));
        assert_eq!(allotting.part(DatasetId::new(2)).unwrap().nodes.len(), 3);
        assert!(!allotting.on_claims(claims(&[1.0, 1.0])));
        assert!(!allotting.on_claims(claims(&[2.0, 2.0])), "other weights, the same parts");
        assert!(allotting.on_claims(claims(&[1.0, 2.0])));
        assert!(allotting.on_claims(Vec::new()));
        assert_eq!(allotting.serves(NodeId::new(1)), None);
    }
}
