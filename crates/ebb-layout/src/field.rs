//! The cluster as a layout sees it: nodes that could take a copy, and how the copies so far are spread.

use std::collections::{BTreeMap, BTreeSet};

use ebb_types::{HostName, NodeClass, NodeId, RackName, Result, bail, counted, human_bytes};

use crate::rng::Rng;
use crate::{Ask, Chosen, Reason, SubRacks, View, VolumeView};

/// A node that is usable, not excluded, holds no copy yet, and has at least one volume with room.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// The node.
    pub node: NodeId,
    /// Its declared host.
    pub host: &'a HostName,
    /// Its declared rack.
    pub rack: &'a RackName,
    /// Requests in progress on it.
    pub load: u32,
    /// Its volumes with room, by id. Never empty.
    pub volumes: Vec<&'a VolumeView>,
}

/// Candidates by node id, and where the present members are.
#[derive(Clone, Debug)]
pub struct Field<'a> {
    /// Nodes that could take a copy, by node id.
    pub candidates: Vec<Candidate<'a>>,
    /// Every usable volume with room, of present and excluded nodes too: a round over all disks needs them.
    pub disks: Vec<&'a VolumeView>,
    /// Nodes with a usable volume, whether it has room or not: those that take turns on the circle.
    pub usable: BTreeSet<NodeId>,
    /// The declared sub-racks.
    pub sub_racks: &'a SubRacks,
    /// Every volume, usable or not.
    all: &'a [VolumeView],
    /// Host and rack of each present member that the view knows.
    present: Vec<(&'a HostName, &'a RackName)>,
    /// Racks with a present member or a candidate.
    rack_count: usize,
}

impl<'a> Field<'a> {
    /// Sorts the view by the needs of this ask, and checks that the ask can be met.
    pub fn survey(view: &'a View, ask: &Ask) -> Result<Self> {
        if ask.replicas == 0 {
            bail!(Invalid, "a metablock needs at least one copy; 0 were asked for");
        }
        let is_meant = |volume: &&VolumeView| is_meant(view, ask, volume);
        let mut disks: Vec<&VolumeView> = view.volumes.iter().collect();
        disks.sort_by_key(|volume| (volume.node, volume.volume));
        let taken: BTreeSet<NodeId> = ask.present.iter().map(|member| member.0).chain(ask.exclude.clone()).collect();
        let open = |volume: &&VolumeView| volume.usable && is_meant(volume) && !taken.contains(&volume.node);
        let usable_nodes: BTreeSet<NodeId> = disks.iter().copied().filter(open).map(|volume| volume.node).collect();
        let usable = disks.iter().filter(|volume| volume.usable).map(|volume| volume.node).collect();
        let present = present_places(&disks, ask);

        disks.retain(|volume| volume.usable && is_meant(volume) && volume.has_room(ask.bytes));
        let candidates = group_by_node(disks.iter().copied().filter(open));
        check_enough(view, ask, usable_nodes.len(), candidates.len())?;
        let racks: BTreeSet<_> =
            candidates.iter().map(|node| node.rack).chain(present.iter().map(|place| place.1)).collect();
        let rack_count = racks.len();
        Ok(Self { candidates, disks, usable, sub_racks: &view.sub_racks, all: &view.volumes, present, rack_count })
    }

    /// Most copies that one rack should take of `replicas`: HDFS's `(replicas - 1) / racks + 2`, and never all of
    /// them while there is another rack.
    pub fn rack_limit(&self, replicas: usize) -> usize {
        if self.rack_count <= 1 {
            return replicas;
        }
        ((replicas - 1) / self.rack_count + 2).min(replicas.max(2) - 1)
    }

    /// The nodes on a host, well or not, one for each volume.
    pub fn nodes_on<'f>(&'f self, host: &'f HostName) -> impl Iterator<Item = NodeId> + 'f {
        self.all.iter().filter(move |volume| volume.host == *host).map(|volume| volume.node)
    }

    /// The spread of the copies that are there before anything is chosen.
    pub fn spread(&self) -> Spread<'a> {
        Spread { places: self.present.clone(), nodes: BTreeSet::new() }
    }
}

/// Where the copies so far are: those present and those already chosen.
#[derive(Clone, Debug, Default)]
pub struct Spread<'a> {
    /// Host and rack of each copy, in the order of choice.
    pub places: Vec<(&'a HostName, &'a RackName)>,
    nodes: BTreeSet<NodeId>,
}

impl<'a> Spread<'a> {
    /// Whether the node was chosen already.
    pub fn has_node(&self, node: NodeId) -> bool {
        self.nodes.contains(&node)
    }

    /// Whether a copy is on this host.
    pub fn has_host(&self, host: &HostName) -> bool {
        self.places.iter().any(|place| place.0 == host)
    }

    /// Copies in this rack.
    pub fn rack_copies(&self, rack: &RackName) -> usize {
        self.places.iter().filter(|place| place.1 == rack).count()
    }

    /// The rack of all copies, if there are copies and they share one.
    pub fn only_rack(&self) -> Option<&'a RackName> {
        let (first, rest) = self.places.split_first()?;
        rest.iter().all(|place| place.1 == first.1).then_some(first.1)
    }

    /// Records a choice and returns the plan's line for it.
    pub fn place_on(&mut self, volume: &'a VolumeView, reason: Reason) -> Chosen {
        assert!(self.nodes.insert(volume.node), "{} was chosen twice", volume.node);
        self.places.push((&volume.host, &volume.rack));
        Chosen { node: volume.node, volume: volume.volume, incarnation: volume.incarnation, home: volume.node, reason }
    }
}

impl<'a> Candidate<'a> {
    /// One of its volumes, with a likelihood that grows with the free space above the reserve: disks of one node fill
    /// up together, also if their sizes differ.
    pub fn pick_volume(&self, rng: &mut Rng) -> &'a VolumeView {
        let weights: Vec<u64> =
            self.volumes.iter().map(|volume| (volume.free_bytes - volume.reserve_bytes()) >> 20).collect();
        let total: u64 = weights.iter().map(|weight| weight + 1).sum();
        let mut draw = rng.below(total);
        for (volume, weight) in self.volumes.iter().zip(&weights) {
            if draw <= *weight {
                return volume;
            }
            draw -= weight + 1;
        }
        unreachable!("the draw is below the sum of the weights")
    }
}

fn present_places<'a>(disks: &[&'a VolumeView], ask: &Ask) -> Vec<(&'a HostName, &'a RackName)> {
    let place_of = |node: NodeId| disks.iter().find(|volume| volume.node == node).map(|v| (&v.host, &v.rack));
    ask.present.iter().filter_map(|member| place_of(member.0)).collect()
}

fn group_by_node<'a>(volumes: impl Iterator<Item = &'a VolumeView>) -> Vec<Candidate<'a>> {
    let mut nodes: BTreeMap<NodeId, Candidate<'a>> = BTreeMap::new();
    for volume in volumes {
        let node = nodes.entry(volume.node).or_insert_with(|| Candidate {
            node: volume.node,
            host: &volume.host,
            rack: &volume.rack,
            load: volume.load,
            volumes: Vec::new(),
        });
        node.volumes.push(volume);
    }
    nodes.into_values().collect()
}

/// Whether a volume's node is of the class that may take a copy.
fn is_meant(view: &View, ask: &Ask, volume: &VolumeView) -> bool {
    ask.on.has(view.sub_racks.is_lsn(volume.host.as_str()))
}

fn check_enough(view: &View, ask: &Ask, usable: usize, roomy: usize) -> Result<()> {
    let missing = ask.missing();
    if roomy >= missing {
        return Ok(());
    }
    let meant = view.volumes.iter().filter(|volume| is_meant(view, ask, volume));
    let known: BTreeSet<NodeId> = meant.map(|volume| volume.node).collect();
    let known = known.len();
    let nodes = match ask.on {
        NodeClass::Any => "nodes",
        NodeClass::Lsn => "localized storage nodes",
        NodeClass::Compute => "compute nodes with volumes",
    };
    let need = match ask.present.len() {
        0 => format!("{} on as many nodes", counted(missing as u64, "copy")),
        present => {
            format!("{missing} more {} beside the {present} that exist", if missing == 1 { "copy" } else { "copies" })
        }
    };
    if usable < missing {
        bail!(
            Unavailable,
            "{need}: only {usable} of {known} {nodes} can take one: start nodes, end a drain, or ask for fewer copies"
        );
    }
    let room = human_bytes(ask.bytes);
    if roomy == 0 {
        bail!(NoSpace, "no node that can take a copy has room for {room}: remove files, or add nodes or volumes");
    }
    bail!(
        NoSpace,
        "{need}: only {roomy} of {usable} usable {nodes} have room for {room}: remove files, or add nodes or volumes"
    )
}
