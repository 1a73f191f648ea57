//! Nodes and their volumes.

use std::collections::BTreeSet;
use std::sync::Arc;

use ebb_layout::{SubRacks, check_declared};
use ebb_types::{NodeId, Result, VolumeId, bail};
use ebb_wire::pb;
use imbl::OrdMap;

use crate::machine::{NUMBER_MAX, NextIds, take_id};

/// Interval of a node's heartbeats.
const HEARTBEAT_MS: u32 = 1000;

/// All registered nodes.
///
/// Invariants: a volume belongs to one node, and a host to one sub-rack at most.
#[derive(Clone, Default)]
pub(crate) struct Registry {
    nodes: OrdMap<NodeId, Arc<pb::NodeRecord>>,
    /// As the nodes declare them.
    sub_racks: Arc<SubRacks>,
    owners: OrdMap<VolumeId, NodeId>,
    /// Nodes that have left the cluster for good, with their hosts.
    removed: OrdMap<NodeId, Arc<str>>,
}

impl Registry {
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &pb::NodeRecord> {
        self.nodes.values().map(|record| &**record)
    }

    pub(crate) fn node(&self, id: NodeId) -> Option<&pb::NodeRecord> {
        self.nodes.get(&id).map(|record| &**record)
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The sub-racks that the nodes have declared.
    pub(crate) fn sub_racks(&self) -> &Arc<SubRacks> {
        &self.sub_racks
    }

    /// The node of a registered volume.
    pub(crate) fn owner(&self, volume: VolumeId) -> Option<NodeId> {
        self.owners.get(&volume).copied()
    }

    pub(crate) fn volume_count(&self) -> usize {
        self.owners.len()
    }

    /// Restores a record from a checkpoint.
    pub(crate) fn restore(&mut self, record: pb::NodeRecord) -> Result<()> {
        let Some(node) = &record.node else { bail!(Corrupt, "a node record without a node") };
        let id = NodeId::new(node.id);
        if record.removed {
            self.removed.insert(id, node.host.as_str().into());
            return Ok(());
        }
        for volume in &node.volumes {
            if self.owners.insert(VolumeId::new(volume.id), id).is_some() {
                bail!(Corrupt, "v{} is recorded for two nodes", volume.id);
            }
        }
        if self.nodes.insert(id, Arc::new(record)).is_some() {
            bail!(Corrupt, "{id} is recorded twice");
        }
        self.find_sub_racks();
        Ok(())
    }

    fn find_sub_racks(&mut self) {
        let found =
            SubRacks::new(self.nodes.values().filter_map(|record| record.node.as_ref()).map(pb::Node::declared));
        self.sub_racks = Arc::new(found);
    }

    /// Starts or ends the drain of a node.
    pub(crate) fn set_draining(&mut self, id: NodeId, draining: bool) -> Result<()> {
        let Some(record) = self.nodes.get_mut(&id) else { bail!(NotFound, "no node {id} is registered") };
        Arc::make_mut(record).draining = draining;
        Ok(())
    }

    /// Removes a node for good. Its id is not used again.
    pub(crate) fn remove(&mut self, id: NodeId) {
        let record = self.nodes.remove(&id);
        let node = record.as_ref().and_then(|record| record.node.as_ref());
        for volume in node.iter().flat_map(|node| &node.volumes) {
            self.owners.remove(&VolumeId::new(volume.id));
        }
        self.removed.insert(id, node.map_or("", |node| &node.host).into());
        self.find_sub_racks();
    }

    /// Whether the node has left the cluster.
    pub(crate) fn is_removed(&self, id: NodeId) -> bool {
        self.removed.contains_key(&id)
    }

    /// Records for a checkpoint: nodes, and those that were removed.
    pub(crate) fn records(&self) -> impl Iterator<Item = pb::NodeRecord> + '_ {
        let removed = self.removed.iter().map(|(id, host)| {
            let node = pb::Node { id: id.raw(), host: host.to_string(), ..Default::default() };
            pb::NodeRecord { node: Some(node), removed: true, ..Default::default() }
        });
        self.nodes().cloned().chain(removed)
    }

    /// Registers a node that has started. An id of 0 is new, and one is assigned. Other ids must be this node's, or
    /// without an owner. A volume that an earlier registration left out, as its disk had failed to start, may come
    /// back. What it declares of its place must not contradict the others.
    pub(crate) fn register(
        &mut self,
        next: &mut NextIds,
        node: &pb::RegisterNodeCommand,
    ) -> Result<pb::RegisterNodeReply> {
        // I-12: without this, a repeated registration would leave a node behind that never speaks.
        let again = if node.node_id().is_none() { self.made_before(node) } else { None };
        let node = again.as_ref().unwrap_or(node);
        let known = node.node_id();
        if let Some((id, host)) = known.and_then(|known| self.removed.get_key_value(&known)) {
            bail!(
                Superseded,
                "{id} ({host}) was removed from this cluster, and its directory is not used any more: end this process; \
                 `ebb node add` starts a new node"
            );
        }
        if node.adopt && node.node < NUMBER_MAX {
            next.node = next.node.max(NodeId::new(node.node + 1));
            let named = node.volumes.iter().map(|volume| volume.id).filter(|id| *id < NUMBER_MAX).max();
            next.volume = next.volume.max(VolumeId::new(named.unwrap_or_default() + 1));
        } else if let Some(known) = known.filter(|known| !self.nodes.contains_key(known)) {
            bail!(NotFound, "no node {known} was ever registered here: its data directory is another cluster's");
        }
        self.check_volumes(known, next.volume, &node.volumes)?;
        // I-71: two nodes may register at once, so that only the order of the log can tell which comes second.
        let declared = self.nodes().filter_map(|record| record.node.as_ref()).map(pb::Node::declared);
        check_declared(declared, &node.declared())?;
        let id = match known {
            Some(known) => known,
            None => take_id!(next.node, NodeId),
        };
        let volumes: Vec<pb::Volume> = node.volumes.iter().map(|volume| adopt(next, volume)).collect();
        self.replace(id, node, volumes.clone());
        Ok(pb::RegisterNodeReply { node: id.raw(), volumes, heartbeat_ms: HEARTBEAT_MS, position: None })
    }

    /// Finds a new node whose registration was recorded and whose answer was lost. It has the same host, and the same
    /// volumes with the same incarnations. It gets the ids from then, which its volumes have not learnt. A node without
    /// volumes is known by the start of its process.
    fn made_before(&self, asked: &pb::RegisterNodeCommand) -> Option<pb::RegisterNodeCommand> {
        let lives = |volumes: &[pb::Volume]| -> Vec<(String, u64)> {
            volumes.iter().map(|volume| (volume.path.clone(), volume.incarnation.max(1))).collect()
        };
        let wanted = lives(&asked.volumes);
        if asked.volumes.iter().any(|volume| volume.id != 0) {
            return None;
        }
        let records = self.nodes().filter_map(|record| record.node.as_ref());
        let same = |known: &&pb::Node| {
            let is_told_apart = !wanted.is_empty() || known.boot == asked.boot;
            known.host == asked.host && lives(&known.volumes) == wanted && is_told_apart
        };
        let known = records.into_iter().find(same)?;
        let volumes = asked.volumes.iter().zip(&known.volumes);
        let volumes = volumes.map(|(reported, known)| pb::Volume { id: known.id, ..reported.clone() });
        Some(pb::RegisterNodeCommand { node: known.id, volumes: volumes.collect(), ..asked.clone() })
    }

    fn check_volumes(&self, node: Option<NodeId>, next: VolumeId, volumes: &[pb::Volume]) -> Result<()> {
        let mut seen = BTreeSet::new();
        for volume in volumes.iter().filter(|volume| volume.id != 0) {
            let id = VolumeId::new(volume.id);
            if id >= next {
                bail!(Invalid, "{id} at {} was never given out here: it is another cluster's", volume.path);
            }
            if !seen.insert(id) {
                bail!(Invalid, "{id} is named twice: two directories are copies of one volume");
            }
            match self.owner(id) {
                Some(owner) if Some(owner) != node => {
                    bail!(Invalid, "{id} at {} belongs to {owner}: it cannot be another node's too", volume.path)
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn replace(&mut self, id: NodeId, node: &pb::RegisterNodeCommand, volumes: Vec<pb::Volume>) {
        let old = self.nodes.get(&id);
        let draining = old.is_some_and(|record| record.draining);
        for volume in old.iter().filter_map(|record| record.node.as_ref()).flat_map(|node| &node.volumes) {
            self.owners.remove(&VolumeId::new(volume.id));
        }
        for volume in &volumes {
            self.owners.insert(VolumeId::new(volume.id), id);
        }
        let node = pb::Node {
            id: id.raw(),
            host: node.host.clone(),
            rack: node.rack.clone(),
            address: node.address.clone(),
            volumes,
            boot: node.boot,
            serves_hosts: node.serves_hosts.clone(),
            ..Default::default()
        };
        self.nodes.insert(id, Arc::new(pb::NodeRecord { node: Some(node), draining, removed: false }));
        self.find_sub_racks();
    }
}

/// The volume for the record, with an id, and an incarnation other than 0. State and use are not recorded.
fn adopt(next: &mut NextIds, volume: &pb::Volume) -> pb::Volume {
    let id = if volume.id == 0 { take_id!(next.volume, VolumeId).raw() } else { volume.id };
    pb::Volume {
        id,
        incarnation: volume.incarnation.max(1),
        path: volume.path.clone(),
        capacity_bytes: volume.capacity_bytes,
        used_bytes: volume.used_bytes,
        free_bytes: volume.free_bytes,
        starts: volume.starts,
        ..Default::default()
    }
}
