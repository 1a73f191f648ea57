//! Metablocks that cannot be read now, counted by cause.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::NodeId;
use ebb_wire::pb;

use crate::holdings::RaidHolding;
use crate::shared::Shared;
use crate::work::replica_key;

/// What a node does for readers at this moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Service {
    /// It serves, or it has not been missed yet.
    Serves,
    /// A power plan keeps it off.
    OffByPlan,
    /// It is missed, and no plan explains that.
    Fails,
}

/// Numbers of metablocks without a node that serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct OutOfReach {
    /// A power plan keeps at least one of their nodes off: they can be read when it is on.
    pub by_plan: u64,
    /// All their nodes fail.
    pub by_failure: u64,
}

impl OutOfReach {
    /// Counts over sets of nodes, each with its number of metablocks.
    ///
    /// Slots of RAID sets are among `raid`: while enough parts serve, all of them can be read.
    pub fn of<'a>(
        sets: impl Iterator<Item = (&'a [u64], u64)>,
        raid: impl Iterator<Item = &'a RaidHolding>,
        service: impl Fn(NodeId) -> Service,
    ) -> Self {
        let mut counts = Self::default();
        let is_broken = |holding: &&RaidHolding| {
            let silent = holding.nodes.iter().filter(|node| service(NodeId::new(**node)) != Service::Serves);
            silent.count() > holding.rows
        };
        let slots = raid.filter(is_broken).flat_map(|holding| holding.slots.chunks(1).map(|node| (node, 1)));
        for (nodes, metablocks) in sets.chain(slots) {
            let has = |wanted| nodes.iter().any(|node| service(NodeId::new(*node)) == wanted);
            match (has(Service::Serves), has(Service::OffByPlan)) {
                (true, _) => {}
                (false, true) => counts.by_plan += metablocks,
                (false, false) => counts.by_failure += metablocks,
            }
        }
        counts
    }
}

/// Counts the metablocks that cannot be read now because of their nodes.
pub(crate) fn out_of_reach(shared: &Shared) -> OutOfReach {
    shared.with_view(|view| {
        let registry = &view.soft.registry;
        let service = |node| match () {
            () if registry.is_dead(node) => Service::Fails,
            () if view.is_off(node) => Service::OffByPlan,
            () if registry.is_missed(node) => Service::Fails,
            () => Service::Serves,
        };
        let services: BTreeMap<NodeId, Service> = view.nodes().map(|node| (node, service(node))).collect();
        let of = |node: NodeId| services.get(&node).copied().unwrap_or(Service::Fails);
        let (holdings, apart) = (&view.soft.holdings, view.soft.holdings.apart());
        OutOfReach::of(apart.iter().map(|(nodes, count)| (&nodes[..], *count)), holdings.raid_sets(), of)
    })
}

/// Number of written metablocks whose every replica is known to be damaged or missing.
pub(crate) fn without_good_copy(shared: &Shared) -> u64 {
    let machine = shared.group.snapshot();
    let soft = shared.soft();
    let damaged = &soft.work.damaged;
    let suspects: BTreeSet<_> = damaged.iter().map(|(metablock, _)| *metablock).collect();
    let is_lost = |record: &pb::Metablock| {
        record.is_written() && record.members.iter().all(|member| damaged.contains(&replica_key(record, member)))
    };
    let records = suspects.into_iter().filter_map(|metablock| machine.find_record(metablock));
    records.filter(|record| is_lost(record)).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metablock_is_out_of_reach_without_a_node_that_serves_and_by_plan_if_one_will() {
        let service = |node: NodeId| match node.raw() {
            1 | 2 => Service::Serves,
            3 | 4 => Service::OffByPlan,
            _ => Service::Fails,
        };
        let sets: [(&[u64], u64); 5] = [(&[1, 3, 5], 10), (&[2], 1), (&[3, 4], 20), (&[3, 5], 3), (&[5, 6], 40)];
        let counts = OutOfReach::of(sets.into_iter(), std::iter::empty(), service);
        assert_eq!(counts, OutOfReach { by_plan: 23, by_failure: 40 });
        let raid = |nodes: &[u64]| RaidHolding { nodes: nodes.to_vec(), rows: 1, slots: nodes[..2].to_vec() };
        let raid = [raid(&[1, 5, 2]), raid(&[1, 5, 3])];
        let counts = OutOfReach::of(std::iter::empty(), raid.iter(), service);
        assert_eq!(counts, OutOfReach { by_plan: 0, by_failure: 1 }, "one of three may be silent");
    }
}
