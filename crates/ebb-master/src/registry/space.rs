//! Space of the volumes, for `statfs`.

use std::collections::{BTreeMap, BTreeSet};

use ebb_layout::{VolumeView, row_reserve_bytes};
use ebb_types::{NodeId, VolumeId};
use petgraph::unionfind::UnionFind;

use super::Registry;
use crate::reserve::Reservations;

/// A device is tight if less than one part in this many is free.
const TIGHT_PART: u64 = 20;

/// Space of all usable volumes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// Total, in bytes.
    pub capacity_bytes: u64,
    /// Neither used nor reserved for writers, in bytes.
    pub free_bytes: u64,
    /// Used by replicas, in bytes.
    pub used_bytes: u64,
    /// Free space by pool, less the volumes' own reserves.
    pools: Vec<Pool>,
}

/// Nodes that share devices, and the free space of these devices. Mostly it is one node with its own devices; nodes of
/// one machine may share some.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Pool {
    nodes: u64,
    free_bytes: u64,
}

/// Identity of a device. A volume that reports none counts as a device of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Shared {
    Device(u64),
    Volume(VolumeId),
}

#[derive(Default)]
struct Device {
    capacity_bytes: u64,
    free_bytes: Option<u64>,
    promised_bytes: u64,
    kept_bytes: u64,
    nodes: BTreeSet<NodeId>,
}

impl Registry {
    /// Space of all usable volumes. A device counts once, however many volumes share it.
    #[must_use]
    pub fn space(&self, reservations: &Reservations) -> Space {
        let mut devices: BTreeMap<Shared, Device> = BTreeMap::new();
        let mut space = Space::default();
        for (node, known) in self.nodes.iter().filter(|(_, node)| node.heard.is_some() && !node.dead) {
            for (id, volume) in known.volumes.iter().filter(|(_, volume)| !volume.poisoned) {
                space.used_bytes += volume.used_bytes;
                let key = if volume.device == 0 { Shared::Volume(*id) } else { Shared::Device(volume.device) };
                let device = devices.entry(key).or_default();
                device.capacity_bytes = device.capacity_bytes.max(volume.capacity_bytes);
                // The volumes reported at different moments. While a device fills up, the lower value is the later one.
                let free = device.free_bytes.map_or(volume.free_bytes, |free| free.min(volume.free_bytes));
                device.free_bytes = Some(free);
                device.promised_bytes += reservations.on_volume(*id);
                let view = VolumeView { capacity_bytes: volume.capacity_bytes, ..VolumeView::default() };
                let for_rows = row_reserve_bytes(volume.capacity_bytes, self.row_bytes);
                device.kept_bytes = device.kept_bytes.max(view.reserve_bytes() + for_rows);
                device.nodes.insert(*node);
            }
        }
        for device in devices.values() {
            space.capacity_bytes += device.capacity_bytes;
            space.free_bytes += device.free_bytes();
        }
        space.pools = pools(&devices.into_values().collect::<Vec<_>>());
        space
    }
}

impl Registry {
    /// Volumes on devices of which less than a twentieth is neither used nor reserved.
    #[must_use]
    pub fn tight_volumes(&self, reservations: &Reservations) -> BTreeSet<VolumeId> {
        let volumes = || self.nodes.values().flat_map(|node| &node.volumes);
        let key = |id: VolumeId, device: u64| if device == 0 { Shared::Volume(id) } else { Shared::Device(device) };
        let mut reserved: BTreeMap<Shared, u64> = BTreeMap::new();
        for (id, volume) in volumes() {
            *reserved.entry(key(*id, volume.device)).or_default() += reservations.on_volume(*id);
        }
        let is_tight = |id: VolumeId, volume: &super::Volume| {
            let reserved = reserved.get(&key(id, volume.device)).copied().unwrap_or_default();
            volume.free_bytes.saturating_sub(reserved) < volume.capacity_bytes / TIGHT_PART
        };
        volumes().filter(|(id, volume)| is_tight(**id, volume)).map(|(id, _)| *id).collect()
    }
}

impl Device {
    fn free_bytes(&self) -> u64 {
        self.free_bytes.unwrap_or_default().saturating_sub(self.promised_bytes)
    }
}

/// Groups devices that have a node in common into pools.
fn pools(devices: &[Device]) -> Vec<Pool> {
    let mut sets = UnionFind::new(devices.len());
    let mut first: BTreeMap<NodeId, usize> = BTreeMap::new();
    for (index, device) in devices.iter().enumerate() {
        for node in &device.nodes {
            sets.union(*first.entry(*node).or_insert(index), index);
        }
    }
    let mut pools: BTreeMap<usize, Pool> = BTreeMap::new();
    for (index, device) in devices.iter().enumerate() {
        let pool = pools.entry(sets.find(index)).or_default();
        pool.free_bytes += device.free_bytes().saturating_sub(device.kept_bytes);
    }
    for index in first.into_values() {
        pools.entry(sets.find(index)).or_default().nodes += 1;
    }
    pools.into_values().collect()
}

impl Space {
    /// Bytes of new data that fit in `copies` copies, each on another node (on all nodes, if there are fewer). A large
    /// volume beside small ones has room that no set of nodes can use.
    ///
    /// The result is the largest `d` for which the pools take `copies * d` bytes with at most `d` on each node.
    #[must_use]
    pub fn available_bytes(&self, copies: u64) -> u64 {
        let nodes: u64 = self.pools.iter().map(|pool| pool.nodes).sum();
        let copies = copies.min(nodes).max(1);
        let takes = |data: u64| -> u128 {
            let in_pool = |pool: &Pool| u128::from(pool.free_bytes).min(u128::from(pool.nodes) * u128::from(data));
            self.pools.iter().map(in_pool).sum()
        };
        // `takes` is concave in `data`: once it is too little, it stays too little. So a binary search finds the limit.
        let total: u128 = self.pools.iter().map(|pool| u128::from(pool.free_bytes)).sum();
        let (mut fits, mut over) = (0, u64::try_from(total / u128::from(copies)).unwrap_or(u64::MAX - 1) + 1);
        while over - fits > 1 {
            let middle = fits + (over - fits) / 2;
            if takes(middle) >= u128::from(copies) * u128::from(middle) {
                fits = middle;
            } else {
                over = middle;
            }
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(pools: &[(u64, u64)]) -> Space {
        let pools = pools.iter().map(|(nodes, free_bytes)| Pool { nodes: *nodes, free_bytes: *free_bytes }).collect();
        Space { pools, ..Space::default() }
    }

    #[test]
    fn the_smallest_of_as_many_nodes_as_copies_is_the_limit() {
        assert_eq!(of(&[(1, 100), (1, 5000), (1, 7000)]).available_bytes(3), 100);
        assert_eq!(of(&[(1, 100), (1, 5000), (1, 7000)]).available_bytes(2), 5100);
        assert_eq!(of(&[(1, 100), (1, 5000), (1, 7000)]).available_bytes(1), 12_100);
        assert_eq!(of(&[(1, 100), (2, 5000)]).available_bytes(3), 100, "two nodes on one device");
        assert_eq!(of(&[(3, 9000)]).available_bytes(3), 3000);
        assert_eq!(of(&[(2, 9000)]).available_bytes(3), 4500, "two copies where there are two nodes");
        assert_eq!(of(&[(1, 600); 6]).available_bytes(3), 1200);
        assert_eq!(of(&[]).available_bytes(3), 0);
        assert_eq!(of(&[(1, u64::MAX), (1, u64::MAX)]).available_bytes(1), u64::MAX - 1, "no overflow");
    }

    #[test]
    fn devices_with_a_node_in_common_are_one_pool() {
        let device = |nodes: &[u64], free| Device {
            free_bytes: Some(free),
            nodes: nodes.iter().map(|node| NodeId::new(*node)).collect(),
            ..Device::default()
        };
        let pool = |nodes, free_bytes| Pool { nodes, free_bytes };
        assert_eq!(pools(&[device(&[1], 10), device(&[2], 20)]), [pool(1, 10), pool(1, 20)]);
        assert_eq!(pools(&[device(&[1], 10), device(&[2, 3], 20), device(&[3, 4], 30)]), [pool(1, 10), pool(3, 50)]);
        // The last one joins what were two.
        assert_eq!(pools(&[device(&[1], 10), device(&[2], 20), device(&[1, 2], 30)]), [pool(2, 60)]);
        assert_eq!(pools(&[device(&[1], 10), device(&[1], 10)]), [pool(1, 20)], "a node with two disks");
    }

    proptest! {
        /// Beside what a placement finds that always takes the nodes with most room: unit by unit, it is optimal.
        #[test]
        fn a_placement_can_use_all_of_it_and_no_more(frees in proptest::collection::vec(0_u64..40, 1..7), copies in 1_u64..5) {
            let pools: Vec<(u64, u64)> = frees.iter().map(|free| (1, *free)).collect();
            let width = copies.min(frees.len() as u64) as usize;
            let mut left = frees;
            let mut placed = 0;
            loop {
                left.sort_unstable_by(|one, other| other.cmp(one));
                if left[width - 1] == 0 {
                    break;
                }
                left[..width].iter_mut().for_each(|free| *free -= 1);
                placed += 1;
            }
            prop_assert_eq!(of(&pools).available_bytes(copies), placed);
        }
    }
}
