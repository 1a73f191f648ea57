//! A cluster laid out as resources of an engine, and the routes through them.

use crate::cluster::{Cluster, DiskModel, GBPS, Hardware, Placement};
use crate::engine::{Engine, ResourceId, Use};

/// A machine that data comes from or goes to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Host {
    /// A compute node.
    Node(usize),
    /// The localized storage node of a sub-rack; the outside store is number 0.
    Store(usize),
}

/// To or from a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// From the disk.
    Read,
    /// To the disk.
    Write,
}

/// One machine's link, each way.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// From the machine.
    pub up: ResourceId,
    /// To the machine.
    pub down: ResourceId,
}

#[derive(Debug)]
struct Node {
    cores: ResourceId,
    link: Link,
    disks: Vec<ResourceId>,
}

#[derive(Debug)]
struct Store {
    link: Link,
    array: ResourceId,
}

/// The cluster's resources.
#[derive(Debug)]
pub struct Site {
    nodes: Vec<Node>,
    stores: Vec<Store>,
    uplinks: Vec<Link>,
    sub_rack: Vec<usize>,
    file_disk: DiskModel,
    shuffle_disk: DiskModel,
    shuffle_disks: usize,
    /// Cost of a byte at an array of disks. Each disk has one second of work per second.
    array_read: (f64, f64),
    array_write: (f64, f64),
    placement: Placement,
}

impl Site {
    /// Lays `cluster` out in `engine`.
    pub fn new(cluster: &Cluster, engine: &mut Engine) -> Self {
        let mut link =
            |gbps: f64| Link { up: engine.add_resource(gbps * GBPS), down: engine.add_resource(gbps * GBPS) };
        let links: Vec<Link> = (0..cluster.nodes).map(|_| link(cluster.node_gbps)).collect();
        let store_count = match cluster.placement {
            Placement::Baseline => 0,
            Placement::Naive => 1,
            Placement::Localized | Placement::Hybrid => cluster.sub_racks,
        };
        let store_links: Vec<Link> = (0..store_count).map(|_| link(cluster.lsn_gbps)).collect();
        let uplinks: Vec<Link> = cluster.uplink_gbps.map_or_else(Vec::new, |gbps| {
            if cluster.sub_racks > 1 { (0..cluster.sub_racks).map(|_| link(gbps)).collect() } else { Vec::new() }
        });
        let shared = cluster.is_shared();
        let disks = if shared { cluster.local_disks } else { cluster.node_disks };
        let core_rate = cluster.cores as f64 * cluster.hardware.core_hertz;
        let nodes = links
            .into_iter()
            .map(|link| Node {
                cores: engine.add_resource(core_rate),
                link,
                disks: (0..disks).map(|_| engine.add_resource(1.0)).collect(),
            })
            .collect();
        let stores = store_links
            .into_iter()
            .map(|link| Store { link, array: engine.add_resource(cluster.lsn_disks as f64) })
            .collect();
        let hardware = &cluster.hardware;
        Self {
            nodes,
            stores,
            uplinks,
            sub_rack: (0..cluster.nodes).map(|node| cluster.sub_rack_of(node)).collect(),
            file_disk: hardware.disk,
            shuffle_disk: if shared && cluster.node_ssd { hardware.ssd } else { hardware.disk },
            shuffle_disks: if shared { disks } else { cluster.shuffle_disks },
            array_read: cost_of(&hardware.disk, Way::Read),
            array_write: array_write(cluster),
            placement: cluster.placement,
        }
    }

    /// Number of stores.
    #[must_use]
    pub fn store_count(&self) -> usize {
        self.stores.len()
    }

    /// Disks of a node.
    #[must_use]
    pub fn disk_count(&self) -> usize {
        self.nodes.first().map_or(0, |node| node.disks.len())
    }

    /// The sub-rack of a node.
    #[must_use]
    pub fn sub_rack(&self, node: usize) -> usize {
        self.sub_rack[node]
    }

    /// A node's cores, for cycles.
    #[must_use]
    pub fn cores(&self, node: usize) -> Use {
        Use::plain(self.nodes[node].cores)
    }

    /// Adds the way over the network to `route`; nothing within one machine.
    pub fn pass(&self, from: Host, to: Host, route: &mut Vec<Use>) {
        if from == to {
            return;
        }
        route.push(Use::plain(self.link(from).up));
        let (source, target) = (self.rack_of(from), self.rack_of(to));
        if source != target {
            // The outside store hangs on the core switch, not on a sub-rack.
            for (rack, outward) in [(source, true), (target, false)] {
                if let Some(uplink) = rack.and_then(|rack| self.uplinks.get(rack)) {
                    route.push(Use::plain(if outward { uplink.up } else { uplink.down }));
                }
            }
        }
        route.push(Use::plain(self.link(to).down));
    }

    /// Adds a disk of a node that holds files.
    pub fn file_disk(&self, node: usize, disk: usize, way: Way, route: &mut Vec<Use>) {
        let disks = &self.nodes[node].disks;
        route.push(use_of(disks[disk % disks.len()], &self.file_disk, way));
    }

    /// Adds a store's disks; data is striped over all of them.
    pub fn array(&self, store: usize, way: Way, route: &mut Vec<Use>) {
        let (cost, crowd_cost) = if way == Way::Write { self.array_write } else { self.array_read };
        route.push(Use { resource: self.stores[store].array, cost, crowd_cost });
    }

    /// Adds the way between a node and the shuffle data of task number `task` that ran there.
    pub fn shuffle(&self, node: usize, task: usize, way: Way, route: &mut Vec<Use>) {
        match self.placement {
            Placement::Baseline | Placement::Hybrid => {
                let disk = self.nodes[node].disks[task % self.shuffle_disks];
                route.push(use_of(disk, &self.shuffle_disk, way));
            }
            Placement::Naive | Placement::Localized => {
                let store = self.store_of(node);
                match way {
                    Way::Read => {
                        self.array(store, way, route);
                        self.pass(Host::Store(store), Host::Node(node), route);
                    }
                    Way::Write => {
                        self.pass(Host::Node(node), Host::Store(store), route);
                        self.array(store, way, route);
                    }
                }
            }
        }
    }

    /// The store that serves a node.
    #[must_use]
    pub fn store_of(&self, node: usize) -> usize {
        if self.placement == Placement::Naive { 0 } else { self.sub_rack[node] }
    }

    /// Utilization of the resources until now: units given over units that could have been given.
    #[must_use]
    pub fn busy(&self, engine: &Engine) -> Busy {
        let share = |ids: &mut dyn Iterator<Item = ResourceId>| {
            let (mut given, mut could) = (0.0, 0.0);
            for id in ids {
                given += engine.carried(id);
                could += engine.capacity(id) * engine.now();
            }
            if could > 0.0 { given / could } else { 0.0 }
        };
        let links = |link: &Link| [link.up, link.down];
        Busy {
            cores: share(&mut self.nodes.iter().map(|node| node.cores)),
            node_disks: share(&mut self.nodes.iter().flat_map(|node| node.disks.iter().copied())),
            node_links: share(&mut self.nodes.iter().flat_map(|node| links(&node.link))),
            lsn_disks: share(&mut self.stores.iter().map(|store| store.array)),
            lsn_links: share(&mut self.stores.iter().flat_map(|store| links(&store.link))),
        }
    }

    fn link(&self, host: Host) -> Link {
        match host {
            Host::Node(node) => self.nodes[node].link,
            Host::Store(store) => self.stores[store].link,
        }
    }

    fn rack_of(&self, host: Host) -> Option<usize> {
        match host {
            Host::Node(node) => Some(self.sub_rack[node]),
            Host::Store(_) if self.placement == Placement::Naive => None,
            Host::Store(store) => Some(store),
        }
    }
}

/// Shares of the time that resources worked, 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct Busy {
    /// Cores of all nodes.
    pub cores: f64,
    /// Disks of all nodes, seeks not counted.
    pub node_disks: f64,
    /// Links of all nodes, both ways.
    pub node_links: f64,
    /// Disks of all LSNs, seeks not counted.
    pub lsn_disks: f64,
    /// Links of all LSNs, both ways.
    pub lsn_links: f64,
}

fn use_of(resource: ResourceId, disk: &DiskModel, way: Way) -> Use {
    let (cost, crowd_cost) = cost_of(disk, way);
    Use { resource, cost, crowd_cost }
}

/// Seconds of a disk for a byte, and the additional seconds while its head goes from stream to stream.
fn cost_of(disk: &DiskModel, way: Way) -> (f64, f64) {
    let (rate, seek, run) = match way {
        Way::Read => (disk.read_bytes_per_sec, disk.read_seek_secs, disk.read_run_bytes),
        Way::Write => (disk.write_bytes_per_sec, disk.write_seek_secs, disk.write_run_bytes),
    };
    (1.0 / rate, seek / run)
}

/// Seconds of an array's disks, added up, for a byte written to it. Reads go to one disk at a time, a write is a stripe
/// that moves all heads, parity disks' too (see [`Hardware::array_stripe_bytes`]).
fn array_write(cluster: &Cluster) -> (f64, f64) {
    let Hardware { disk, array_stripe_bytes, array_piece_bytes, .. } = &cluster.hardware;
    let (all, data) = (cluster.lsn_disks as f64, (cluster.lsn_disks - cluster.lsn_parity_disks) as f64);
    let piece = array_piece_bytes.min(array_stripe_bytes / data);
    (all / data / disk.write_bytes_per_sec, all / data * disk.write_seek_secs / piece)
}
