//! Placement of file blocks: chosen block by block from the seed, the same in every run with the same cluster.

use crate::cluster::Cluster;
use crate::random::Random;
use crate::site::{Host, Site};

/// Placement of the blocks of the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum InputLayout {
    /// As the cluster writes files.
    #[default]
    AsWritten,
    /// One copy, dealt evenly to the nodes and their disks.
    Dealt,
    /// As written, and all copies but a random one removed.
    OneLeft,
}

/// One copy of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copy {
    /// The machine.
    pub host: Host,
    /// Its disk; a store stripes over all of its disks.
    pub disk: usize,
}

/// The copies of the input's blocks. Nodes are random; a node deals its blocks to its disks in turn (HDFS's
/// `RoundRobinVolumesPolicy`).
pub fn place_input(cluster: &Cluster, site: &Site, input: InputLayout, blocks: usize, seed: u64) -> Vec<Vec<Copy>> {
    let stores = site.store_count();
    if stores > 0 {
        return (0..blocks).map(|block| place_on_stores(block % stores, cluster.lsn_replicas, stores)).collect();
    }
    // The input was written long ago, by nodes that were not loaded.
    let (idle, mut next_disk) = (vec![0; cluster.nodes], vec![0; cluster.nodes]);
    let mut deal = |node: usize| {
        next_disk[node] += 1;
        Copy { host: Host::Node(node), disk: (next_disk[node] - 1) % site.disk_count() }
    };
    (0..blocks)
        .map(|block| {
            let mut random = Random::new(seed, block as u64);
            if input == InputLayout::Dealt {
                return vec![deal(block % cluster.nodes)];
            }
            let first = random.below(cluster.nodes);
            let nodes = replica_nodes(cluster, first, &idle, &mut random);
            let copies: Vec<Copy> = nodes.into_iter().map(&mut deal).collect();
            if input == InputLayout::OneLeft { vec![copies[random.below(copies.len())]] } else { copies }
        })
        .collect()
}

/// Copies on different stores as long as there are any; the others stay on the first and cost its disks only.
pub fn place_on_stores(first: usize, replicas: usize, stores: usize) -> Vec<Copy> {
    (0..replicas)
        .map(|index| if index < stores { (first + index) % stores } else { first })
        .map(|store| Copy { host: Host::Store(store), disk: 0 })
        .collect()
}

/// Nodes for the copies of a block with its writer on `first`: the writer's node, two of one other sub-rack if there is
/// one, then any others (the rule of HDFS). Among possible nodes, those with the fewest blocks in `blocks_on`.
pub fn replica_nodes(cluster: &Cluster, first: usize, blocks_on: &[usize], random: &mut Random) -> Vec<usize> {
    let mut chosen = vec![first];
    let home = cluster.sub_rack_of(first);
    let mut away = None;
    while chosen.len() < cluster.replicas {
        let rack = match (chosen.len(), away) {
            (1, _) if cluster.sub_racks > 1 => {
                let other = random.below(cluster.sub_racks - 1);
                away = Some(if other >= home { other + 1 } else { other });
                away
            }
            (2, Some(rack)) => Some(rack),
            _ => None,
        };
        let in_rack = |node: &usize| rack.is_none_or(|rack| cluster.sub_rack_of(*node) == rack);
        let free: Vec<usize> = (0..cluster.nodes).filter(in_rack).filter(|node| !chosen.contains(node)).collect();
        let free = if free.is_empty() {
            // A sub-rack of one node: the third copy goes anywhere.
            (0..cluster.nodes).filter(|node| !chosen.contains(node)).collect()
        } else {
            free
        };
        let fewest = free.iter().map(|node| blocks_on[*node]).min().unwrap_or(0);
        let free: Vec<usize> = free.into_iter().filter(|node| blocks_on[*node] == fewest).collect();
        chosen.push(free[random.below(free.len())]);
    }
    chosen
}
