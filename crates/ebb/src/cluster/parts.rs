//! The processes that a cluster on one machine is made of, and how its new nodes are declared.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use ebb_types::{Result, bail};
use ebb_wire::pb;

use super::hosts::Host;
use crate::role::{power_client, power_manager};

/// Most nodes of a cluster on one machine.
const NODES_MAX: u32 = 256;
/// Most volumes of a node.
pub const VOLUMES_MAX: u32 = 64;

/// Sub-racks, each with a localized storage node: their number, and the compute hosts of each. Printed as `2x3`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubRackCount {
    /// Sub-racks.
    pub sub_racks: u32,
    /// Compute hosts of each.
    pub hosts: u32,
}

impl SubRackCount {
    /// Block servers of all.
    pub const fn nodes(self) -> u32 {
        self.sub_racks * (self.hosts + 1)
    }
}

impl fmt::Display for SubRackCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.sub_racks, self.hosts)
    }
}

impl FromStr for SubRackCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('x').map(|(sub_racks, hosts)| (sub_racks.parse(), hosts.parse()));
        let Some((Ok(sub_racks), Ok(hosts))) = parts else {
            return Err(format!("{text:?} is not as 2x3: sub-racks, and compute hosts of each"));
        };
        let is_within = |count: u32| (1..=NODES_MAX).contains(&count);
        if !is_within(sub_racks)
            || !is_within(hosts)
            || u64::from(sub_racks) * (u64::from(hosts) + 1) > u64::from(NODES_MAX)
        {
            return Err(format!("{text}: at least 1x1, and at most {NODES_MAX} nodes in all"));
        }
        Ok(Self { sub_racks, hosts })
    }
}

/// How new nodes are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewNodes {
    /// Volumes of each, but of localized storage nodes.
    pub volumes: u32,
    /// Racks that they are dealt to in turn; the hosts of a sub-rack are in one.
    pub racks: u32,
    /// Sub-racks, of a cluster that has such.
    pub sub_racks: Option<SubRackCount>,
    /// Volumes of each localized storage node.
    pub lsn_volumes: u32,
}

/// What a block server is started with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeSpec {
    /// Its host.
    pub host: String,
    /// Its rack.
    pub rack: String,
    /// Its volumes.
    pub volumes: u32,
    /// The hosts that it serves.
    pub serves_hosts: Vec<String>,
}

impl NodeSpec {
    /// A node that is started again has the disks, the place and the hosts that it had.
    pub fn of_record(node: &pb::Node) -> Self {
        Self {
            host: node.host.clone(),
            rack: node.rack.clone(),
            volumes: u32::try_from(node.volumes.len()).unwrap_or(u32::MAX),
            serves_hosts: node.serves_hosts.clone(),
        }
    }

    /// The arguments of its process.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> =
            ["block", "--host", &self.host, "--rack", &self.rack, "--volumes", &self.volumes.to_string()]
                .map(str::to_owned)
                .into();
        if !self.serves_hosts.is_empty() {
            arguments.extend(["--serves-hosts".to_owned(), self.serves_hosts.join(",")]);
        }
        arguments
    }
}

impl NewNodes {
    /// What a node is started with that the master has never heard of.
    ///
    /// `Invalid` for a localized storage node of a cluster whose sub-racks are not named.
    pub fn spec(&self, host: Host) -> Result<NodeSpec> {
        let rack = |turn: u32| format!("r{}", (turn - 1) % self.racks + 1);
        let (rack, volumes, serves_hosts) = match (host, self.sub_racks) {
            (Host::Lsn(_), None) => bail!(
                Invalid,
                "{host} has not registered yet, and nothing says which hosts it serves: give --sub-racks as when the cluster was \
                 made"
            ),
            (Host::Lsn(number), Some(count)) => {
                let first = (number - 1) * count.hosts + 1;
                let served = (first..first + count.hosts).map(|number| Host::Compute(number).to_string());
                (rack(number), self.lsn_volumes, served.collect())
            }
            (Host::Compute(number), Some(count)) => (rack((number - 1) / count.hosts + 1), self.volumes, Vec::new()),
            (Host::Compute(number), None) => (rack(number), self.volumes, Vec::new()),
        };
        Ok(NodeSpec { host: host.to_string(), rack, volumes, serves_hosts })
    }

    /// Checks the numbers.
    pub fn check(&self) -> Result<()> {
        let least = u32::from(self.sub_racks.is_none());
        if !(least..=VOLUMES_MAX).contains(&self.volumes) {
            bail!(Invalid, "--volumes {}: between {least} and {VOLUMES_MAX}", self.volumes);
        }
        if !(1..=VOLUMES_MAX).contains(&self.lsn_volumes) {
            bail!(Invalid, "--lsn-volumes {}: between 1 and {VOLUMES_MAX}", self.lsn_volumes);
        }
        if self.racks == 0 {
            bail!(Invalid, "--racks 0: at least 1");
        }
        Ok(())
    }
}

/// One process that a cluster is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The master.
    Master,
    /// A proxy.
    Proxy(u32),
    /// The block server of a host.
    Block(Host),
    /// The worker of a host.
    Worker(Host),
    /// The power manager.
    PowerManager,
    /// The power client.
    PowerClient,
}

impl Part {
    /// Its name among the processes of the cluster.
    pub fn name(&self) -> String {
        match self {
            Self::Master => "master".to_owned(),
            Self::Proxy(index) => format!("proxy-{index}"),
            Self::Block(host) => format!("block-{host}"),
            Self::Worker(host) => format!("worker-{host}"),
            Self::PowerManager => power_manager::NAME.to_owned(),
            Self::PowerClient => power_client::NAME.to_owned(),
        }
    }
}

/// In the order in which they start: block servers register with the master, workers ask it; no node sleeps before all
/// have started. No tasks run on a localized storage node.
pub fn wanted(hosts: &BTreeSet<Host>, proxies: u32, follows_power: bool) -> Vec<Part> {
    let compute = hosts.iter().copied().filter(|host| matches!(host, Host::Compute(_)));
    let power = [Part::PowerClient, Part::PowerManager];
    let power = power.into_iter().filter(|_| follows_power);
    // Ordering: a master that has nodes in its log opens no session before it has heard from them, and a proxy needs one.
    std::iter::once(Part::Master)
        .chain(hosts.iter().copied().map(Part::Block))
        .chain((1..=proxies).map(Part::Proxy))
        .chain(compute.map(Part::Worker))
        .chain(power)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: NewNodes = NewNodes { volumes: 2, racks: 2, sub_racks: None, lsn_volumes: 4 };

    fn spec(new: NewNodes, host: Host) -> (String, u32, String) {
        let spec = new.spec(host).unwrap();
        (spec.rack, spec.volumes, spec.serves_hosts.join(" "))
    }

    #[test]
    fn hosts_are_dealt_to_racks_and_those_of_a_sub_rack_to_one() {
        assert_eq!(spec(NEW, Host::Compute(3)), ("r1".to_owned(), 2, String::new()));
        let new = NewNodes { sub_racks: Some("3x2".parse().unwrap()), ..NEW };
        assert_eq!(spec(new, Host::Lsn(2)), ("r2".to_owned(), 4, "h3 h4".to_owned()));
        assert_eq!(spec(new, Host::Lsn(3)), ("r1".to_owned(), 4, "h5 h6".to_owned()));
        let racks: Vec<String> = (1..=6).map(|number| spec(new, Host::Compute(number)).0).collect();
        assert_eq!(racks, ["r1", "r1", "r2", "r2", "r1", "r1"]);
        assert!(NEW.spec(Host::Lsn(1)).unwrap_err().to_string().contains("--sub-racks"));
        let arguments = new.spec(Host::Lsn(1)).unwrap().arguments().join(" ");
        assert_eq!(arguments, "block --host lsn1 --rack r1 --volumes 4 --serves-hosts h1,h2");
    }

    #[test]
    fn numbers_that_make_no_cluster_are_refused() {
        let count = |text: &str| text.parse::<SubRackCount>();
        assert_eq!(count("2x3").map(|count| (count.to_string(), count.nodes())), Ok(("2x3".to_owned(), 8)));
        for wrong in ["", "2", "x", "0x3", "2x0", "2x3x4", "-1x3", "300x1", "4294967295x4294967295", "16x16"] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
        assert!(NEW.check().is_ok());
        assert!(NewNodes { volumes: 0, ..NEW }.check().is_err());
        assert!(NewNodes { volumes: 0, sub_racks: count("1x1").ok(), ..NEW }.check().is_ok());
        assert!(NewNodes { lsn_volumes: 65, ..NEW }.check().is_err());
        assert!(NewNodes { racks: 0, ..NEW }.check().is_err());
    }

    #[test]
    fn no_worker_runs_on_a_localized_storage_node() {
        let hosts = BTreeSet::from([Host::Lsn(1), Host::Compute(1), Host::Compute(2)]);
        let names: Vec<String> = wanted(&hosts, 1, false).iter().map(Part::name).collect();
        assert_eq!(
            names,
            ["master", "block-lsn1", "block-h1", "block-h2", "proxy-1", "worker-h1", "worker-h2"],
            "the localized storage node registers before the hosts that it serves"
        );
    }
}
