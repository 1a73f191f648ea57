//! The paper's settings by name.

use ebb_types::{Result, bail};

use crate::cluster::{Cluster, Hardware, Placement};

/// A setting: a cluster with parts that the command line may change.
#[derive(Clone, Debug)]
pub struct Study {
    /// Its name.
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    /// The cluster, with an LSN as the study's figures use it.
    pub cluster: Cluster,
}

impl Study {
    /// Every study.
    #[must_use]
    pub fn all() -> Vec<Self> {
        vec![
            Self { name: "20-node", about: "20 nodes and one LSN (figures 5 and 6)", cluster: twenty() },
            Self { name: "5-node", about: "5 nodes and one LSN (figures 7 and 8)", cluster: five() },
            Self {
                name: "better-nodes",
                about: "20 nodes with four map slots and one LSN of 32 disks at 20 Gbps (figures 9 to 11)",
                cluster: Cluster { map_slots: 4, lsn_disks: 32, lsn_gbps: 20.0, ..twenty() },
            },
            Self {
                name: "real-cluster",
                about: "15 workers with one disk each and three LSNs (table I and figure 4)",
                cluster: real(),
            },
        ]
    }

    /// The study of this name.
    ///
    /// # Errors
    /// Invalid: there is no such study; lists the known ones.
    pub fn by_name(name: &str) -> Result<Self> {
        let all = Self::all();
        let names: Vec<&str> = all.iter().map(|study| study.name).collect();
        let names = names.join(", ");
        match all.into_iter().find(|study| study.name == name) {
            Some(study) => Ok(study),
            None => bail!(Invalid, "study {name:?} is not known; known are {names}"),
        }
    }
}

fn twenty() -> Cluster {
    Cluster {
        placement: Placement::Hybrid,
        nodes: 20,
        sub_racks: 1,
        cores: 8,
        node_disks: 4,
        shuffle_disks: 1,
        local_disks: 1,
        node_ssd: false,
        node_gbps: 1.0,
        uplink_gbps: None,
        map_slots: 8,
        reduce_slots: 4,
        replicas: 3,
        lsn_disks: 64,
        lsn_parity_disks: 0,
        lsn_gbps: 40.0,
        lsn_replicas: 1,
        hardware: Hardware::default(),
        quantum_secs: None,
    }
}

fn five() -> Cluster {
    Cluster { nodes: 5, node_disks: 2, lsn_disks: 6, lsn_gbps: 4.0, ..twenty() }
}

fn real() -> Cluster {
    Cluster { nodes: 15, sub_racks: 3, node_disks: 1, lsn_disks: 1, lsn_gbps: 1.0, reduce_slots: 2, ..twenty() }
}
