//! The block servers of a cluster in a world: where each is, its volumes, and the hosts that it serves.

use std::path::PathBuf;

use ebb_block::BlockOptions;
use ebb_runtime::virt::{Process, World};
use ebb_types::{HostName, RackName};

/// A block server's data directory.
const DIR: &str = "/node";

/// One block server, as it is declared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// Its host.
    pub host: String,
    /// Its rack.
    pub rack: String,
    /// Volumes, each on a spindle of its own.
    pub volumes: usize,
    /// Hosts that it serves.
    pub serves: Vec<String>,
}

/// Sub-racks of equal size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubRackSizes {
    /// How many there are.
    pub sub_racks: usize,
    /// Compute hosts of each.
    pub hosts: usize,
    /// Volumes of each localized storage node.
    pub lsn_volumes: usize,
    /// Volumes of each compute host.
    pub host_volumes: usize,
    /// Racks that the sub-racks are dealt to in turn.
    pub racks: usize,
}

impl Site {
    /// Equal nodes, h1 and so on, in two racks.
    #[must_use]
    pub fn equal(nodes: usize) -> Vec<Self> {
        let site = |number: usize| Self {
            host: format!("h{number}"),
            rack: format!("r{}", (number - 1) % 2 + 1),
            volumes: 1,
            serves: Vec::new(),
        };
        (1..=nodes).map(site).collect()
    }

    /// Localized storage nodes, lsn1 and so on, and then the hosts that they serve, h1 and so on.
    #[must_use]
    pub fn sub_racks(sizes: SubRackSizes) -> Vec<Self> {
        let rack = |sub_rack: usize| format!("r{}", sub_rack % sizes.racks + 1);
        let lsn = |sub_rack: usize| Self {
            host: format!("lsn{}", sub_rack + 1),
            rack: rack(sub_rack),
            volumes: sizes.lsn_volumes,
            serves: (1..=sizes.hosts).map(|host| format!("h{}", sub_rack * sizes.hosts + host)).collect(),
        };
        let host = |number: usize| Self {
            host: format!("h{}", number + 1),
            rack: rack(number / sizes.hosts),
            volumes: sizes.host_volumes,
            serves: Vec::new(),
        };
        (0..sizes.sub_racks).map(lsn).chain((0..sizes.sub_racks * sizes.hosts).map(host)).collect()
    }

    fn directories(&self) -> Vec<PathBuf> {
        (1..=self.volumes).map(|number| PathBuf::from(format!("{DIR}/volume-{number}"))).collect()
    }

    /// The machine, with a spindle for each volume.
    pub(super) fn process(&self, world: &World) -> Process {
        let process = world.process(&self.host);
        if self.volumes > 1 {
            process.split_disk(&self.directories());
        }
        process
    }

    /// The directory of one of its volumes, from 1 on.
    #[must_use]
    pub fn volume(number: usize) -> PathBuf {
        PathBuf::from(format!("{DIR}/volume-{number}"))
    }

    /// Sets what is declared of it.
    pub(super) fn declare(&self, options: &mut BlockOptions) {
        options.rack = RackName::new(self.rack.clone());
        options.volumes = self.directories();
        options.serves_hosts = self.serves.iter().map(|host| HostName::new(host.as_str())).collect();
    }
}
