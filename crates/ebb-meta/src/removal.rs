//! A node leaves the cluster for good.
//!
//! It has to be drained and empty: no set, extra copy or guest names it. Its id is kept, so that nothing is placed there
//! by a command that was proposed before, and so that its process is refused when it registers again.

use std::collections::BTreeSet;

use ebb_types::{DatasetId, MetablockId, NodeId, Result, bail};
use ebb_wire::pb;

use crate::machine::Machine;
use crate::ops::grant::check_members;

impl Machine {
    /// Refuses the removal of a node that takes data or holds some.
    ///
    /// Errors: `NotFound` for an unknown node, `Invalid` for the only one, `Busy` with what is left.
    pub fn check_removable(&self, id: NodeId) -> Result<()> {
        let Some(record) = self.registry.node(id) else { bail!(NotFound, "there is no node {id}") };
        if self.registry.len() == 1 {
            bail!(Invalid, "{id} is the only node of the cluster");
        }
        if !record.draining {
            bail!(Busy, "{id} takes data: `ebb node drain {id}` empties it");
        }
        let members: usize =
            self.volumes_of(id).into_iter().map(|volume| self.replicas.on_volume(volume).count()).sum();
        let extras = self.extras.iter().flat_map(|(_, _, extras)| extras).filter(|extra| extra.node_id() == id).count();
        let away = self.replicas.away_from(id, MetablockId::new(0)).take_while(|(home, _)| *home == id).count();
        if members + extras + away > 0 {
            bail!(
                Busy,
                "{id} is not empty: {members} copies lie there, {extras} extra copies, and {away} belong there: wait until \
                 `ebb node drain {id}` has ended"
            );
        }
        Ok(())
    }

    /// Removes a node, and takes it off the chains. Fails with kind `Stale` if the chains have changed since the command
    /// was proposed.
    pub(crate) fn forget_node(&mut self, op: &pb::ForgetNode) -> Result<()> {
        let id = NodeId::new(op.node);
        self.check_removable(id)?;
        let on_chain = self.datasets.iter().filter(|dataset| dataset.chain.contains(&op.node));
        let on_chain: BTreeSet<u64> = on_chain.map(|dataset| dataset.id).collect();
        let named: BTreeSet<u64> = op.chains.iter().map(|change| change.dataset).collect();
        if on_chain != named || op.chains.len() != named.len() {
            bail!(Stale, "{id} is on other expansion chains by now");
        }
        for change in &op.chains {
            self.check_chain_change(op.node, change)?;
        }
        for change in &op.chains {
            self.datasets.leave_chain(DatasetId::new(change.dataset), op.node, change.by);
        }
        self.volumes_of(id).into_iter().for_each(|volume| self.replicas.forget_volume(volume));
        self.registry.remove(id);
        Ok(())
    }

    fn check_chain_change(&self, gone: u64, change: &pb::ReplaceInChain) -> Result<()> {
        let Some(settings) = self.datasets.get(DatasetId::new(change.dataset)) else {
            bail!(NotFound, "there is no dataset ds{}", change.dataset);
        };
        let is_there = change.by == 0 || self.registry.node(NodeId::new(change.by)).is_some();
        if change.gone != gone || settings.chain.contains(&change.by) || !is_there {
            bail!(Stale, "n{} does not take the place of n{gone} on the chain of {}", change.by, settings.path);
        }
        let left = settings.chain.len() - usize::from(change.by == 0);
        let least = settings.replicas.max(settings.primaries).max(settings.gear_size).max(1) as usize;
        if left < least {
            bail!(Invalid, "the chain of {} has to have {least} nodes, and would have {left}", settings.path);
        }
        Ok(())
    }

    /// Checks members for a set or extra copies. A removed node takes none.
    pub(crate) fn check_placement(&self, members: &[pb::Member]) -> Result<()> {
        check_members(members)?;
        // I-118: a command that was proposed before the removal would bring the node back into a set.
        match members.iter().find(|member| self.registry.is_removed(member.node_id())) {
            Some(gone) => bail!(Unavailable, "n{} was removed from the cluster, and takes no copy", gone.node),
            None => Ok(()),
        }
    }
}
