//! Nodes, their hosts and their racks, by number: members of RAID sets are compared by these.

use std::collections::BTreeMap;

use ebb_types::{HostName, NodeId, RackName};

use crate::{View, VolumeView};

/// The cluster by nodes. Made once for many questions.
#[derive(Clone, Debug)]
pub struct Sites<'a> {
    nodes: BTreeMap<NodeId, Site<'a>>,
    hosts: Vec<&'a HostName>,
    /// By host: its rack.
    rack_of: Vec<usize>,
    racks: Vec<&'a RackName>,
}

/// One node.
#[derive(Clone, Debug)]
pub(super) struct Site<'a> {
    /// Number of its host.
    pub host: usize,
    /// Its volumes, by id, usable or not.
    pub volumes: Vec<&'a VolumeView>,
}

impl Site<'_> {
    /// Size of all its volumes, in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.volumes.iter().map(|volume| volume.capacity_bytes).sum()
    }
}

/// A number for each name, in the order of the first use.
fn number<'a, T: Ord>(numbers: &mut BTreeMap<&'a T, usize>, names: &mut Vec<&'a T>, name: &'a T) -> usize {
    *numbers.entry(name).or_insert_with(|| {
        names.push(name);
        names.len() - 1
    })
}

impl<'a> Sites<'a> {
    /// Every node of a view, usable or not. The order of the view does not matter.
    #[must_use]
    pub fn of(view: &'a View) -> Self {
        let mut volumes: Vec<&VolumeView> = view.volumes.iter().collect();
        volumes.sort_by_key(|volume| (volume.node, volume.volume));
        let mut sites = Self { nodes: BTreeMap::new(), hosts: Vec::new(), rack_of: Vec::new(), racks: Vec::new() };
        let (mut hosts, mut racks) = (BTreeMap::new(), BTreeMap::new());
        for volume in volumes {
            let host = number(&mut hosts, &mut sites.hosts, &volume.host);
            if host == sites.rack_of.len() {
                sites.rack_of.push(number(&mut racks, &mut sites.racks, &volume.rack));
            }
            sites.nodes.entry(volume.node).or_insert(Site { host, volumes: Vec::new() }).volumes.push(volume);
        }
        sites
    }

    /// Nodes, by id.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (NodeId, &Site<'a>)> {
        self.nodes.iter().map(|(node, site)| (*node, site))
    }

    /// A node, if the view has it.
    pub(super) fn node(&self, node: NodeId) -> Option<&Site<'a>> {
        self.nodes.get(&node)
    }

    /// Number of a node's host.
    pub(super) fn host_of(&self, node: NodeId) -> Option<usize> {
        self.node(node).map(|site| site.host)
    }

    /// Number of a node's rack.
    pub(super) fn rack_of(&self, node: NodeId) -> Option<usize> {
        self.host_of(node).map(|host| self.rack_of[host])
    }

    /// By host: its rack.
    pub(super) fn racks_by_host(&self) -> &[usize] {
        &self.rack_of
    }

    /// Whether the view has a node.
    #[must_use]
    pub fn has(&self, node: NodeId) -> bool {
        self.nodes.contains_key(&node)
    }

    /// How many racks there are.
    #[must_use]
    pub fn rack_count(&self) -> usize {
        self.racks.len()
    }

    /// How many hosts there are.
    #[must_use]
    pub fn host_count(&self) -> usize {
        self.hosts.len()
    }

    pub(super) fn host_name(&self, host: usize) -> &'a HostName {
        self.hosts[host]
    }

    pub(super) fn rack_name(&self, rack: usize) -> &'a RackName {
        self.racks[rack]
    }

    /// The volume of a node, if a member may stay or be made there: usable, and its node on.
    pub(super) fn serving(&self, node: NodeId) -> impl Iterator<Item = &'a VolumeView> {
        let volumes = self.node(node).map_or(&[][..], |site| &site.volumes);
        volumes.iter().copied().filter(|volume| volume.usable && !volume.off)
    }
}
