//! Hosts of a cluster on one machine: h1, h2 and so on, and lsn1, lsn2 and so on of localized storage nodes. Each node is its own
//! host, with a directory.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ebb_cli::directory::ClusterDir;
use ebb_types::{Error, HostName, Result};

use super::parts::SubRackCount;

/// Directories of nodes that have left the cluster.
const REMOVED: &str = "removed";

/// A host, with its number. Localized storage nodes come first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Host {
    /// The host of a localized storage node.
    Lsn(u32),
    /// One that runs tasks.
    Compute(u32),
}

impl Host {
    /// The host that a directory is of: `h3` of "h3" and of "h3.2".
    fn of_directory(name: &str) -> Option<Self> {
        let host = name.split('.').next()?;
        let number = |text: &str| text.parse().ok();
        match host.strip_prefix("lsn") {
            Some(text) => number(text).map(Self::Lsn),
            None => host.strip_prefix('h').and_then(number).map(Self::Compute),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lsn(number) => write!(f, "lsn{number}"),
            Self::Compute(number) => write!(f, "h{number}"),
        }
    }
}

/// The hosts that the cluster has.
pub fn known(cluster: &ClusterDir) -> BTreeSet<Host> {
    hosts_in(&cluster.path.join("nodes"))
}

/// The known hosts, and as many new ones as make `count`. A number is used once, also after its node was removed.
pub fn with_new(cluster: &ClusterDir, mut known: BTreeSet<Host>, count: usize) -> BTreeSet<Host> {
    let removed = hosts_in(&cluster.path.join(REMOVED));
    let numbers = known.iter().chain(&removed).filter_map(|host| match host {
        Host::Compute(number) => Some(*number),
        Host::Lsn(_) => None,
    });
    let highest = numbers.max().unwrap_or(0);
    let missing = count.saturating_sub(known.len());
    known.extend((highest + 1..).take(missing).map(Host::Compute));
    known
}

/// A new localized storage node, and so many new hosts for it to serve. A number is used once.
pub fn new_sub_rack(cluster: &ClusterDir, hosts: u32) -> (Host, Vec<Host>) {
    let (known, removed) = (known(cluster), hosts_in(&cluster.path.join(REMOVED)));
    let all = || known.iter().chain(&removed);
    let lsns = all().filter_map(|host| if let Host::Lsn(number) = host { Some(*number) } else { None });
    let computes = all().filter_map(|host| if let Host::Compute(number) = host { Some(*number) } else { None });
    let (lsn, first) = (lsns.max().unwrap_or(0) + 1, computes.max().unwrap_or(0) + 1);
    (Host::Lsn(lsn), (first..first + hosts).map(Host::Compute).collect())
}

/// The hosts of a new cluster with sub-racks.
pub fn of_sub_racks(count: SubRackCount) -> BTreeSet<Host> {
    let lsns = (1..=count.sub_racks).map(Host::Lsn);
    lsns.chain((1..=count.sub_racks * count.hosts).map(Host::Compute)).collect()
}

/// Takes the directory of a removed node out of the cluster. Returns where it is kept; none: there was none.
pub fn set_aside(cluster: &ClusterDir, host: &HostName) -> Result<Option<PathBuf>> {
    let removed = cluster.path.join(REMOVED);
    let failed = |error: std::io::Error| Error::from_io(&error, removed.display());
    fs::create_dir_all(&removed).map_err(failed)?;
    let names = std::iter::once(host.to_string()).chain((2..).map(|number| format!("{host}.{number}")));
    let aside = names.map(|name| removed.join(name)).find(|path| !path.exists()).expect("numbers do not end");
    match fs::rename(cluster.node_dir(host), &aside) {
        Ok(()) => Ok(Some(aside)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

/// Puts a directory back that was set aside.
pub fn put_back(cluster: &ClusterDir, host: &HostName, aside: &Path) -> Result<()> {
    fs::rename(aside, cluster.node_dir(host)).map_err(|error| Error::from_io(&error, aside.display()))
}

/// The hosts with an entry in a directory.
fn hosts_in(directory: &Path) -> BTreeSet<Host> {
    let names = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| Host::of_directory(name.to_str()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> (tempfile::TempDir, ClusterDir) {
        let dir = tempfile::tempdir().unwrap();
        let cluster = ClusterDir::create(&dir.path().join("c"), 2, ebb_identity::tls::Wire::default()).unwrap();
        (dir, cluster)
    }

    fn make(cluster: &ClusterDir, hosts: &[Host]) {
        hosts.iter().for_each(|host| fs::create_dir_all(cluster.node_dir(&HostName::new(host.to_string()))).unwrap());
    }

    fn compute(numbers: &[u32]) -> BTreeSet<Host> {
        numbers.iter().copied().map(Host::Compute).collect()
    }

    #[test]
    fn numbers_of_removed_hosts_are_not_used_again() {
        let (_dir, cluster) = cluster();
        assert_eq!(with_new(&cluster, known(&cluster), 3), compute(&[1, 2, 3]));
        make(&cluster, &[1, 2, 3, 11].map(Host::Compute));
        let aside = set_aside(&cluster, &HostName::new("h11")).unwrap().unwrap();
        assert!(aside.ends_with("removed/h11") && aside.is_dir());
        assert_eq!(known(&cluster), compute(&[1, 2, 3]));
        assert_eq!(with_new(&cluster, known(&cluster), 4), compute(&[1, 2, 3, 12]));
        assert_eq!(with_new(&cluster, known(&cluster), 2), compute(&[1, 2, 3]), "none is left out");
    }

    #[test]
    fn hosts_of_sub_racks_are_known_by_their_directories() {
        let (_dir, cluster) = cluster();
        let hosts = of_sub_racks("2x2".parse().unwrap());
        make(&cluster, &hosts.iter().copied().collect::<Vec<_>>());
        assert_eq!(known(&cluster), hosts);
        let names: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["lsn1", "lsn2", "h1", "h2", "h3", "h4"]);
        assert!(with_new(&cluster, hosts, 7).contains(&Host::Compute(5)), "further ones run tasks");
        assert_eq!(new_sub_rack(&cluster, 2), (Host::Lsn(3), vec![Host::Compute(5), Host::Compute(6)]));
        assert_eq!(Host::of_directory("lsn2.3"), Some(Host::Lsn(2)));
        assert_eq!(["lsn", "x1", "h", ""].map(Host::of_directory), [None; 4]);
    }

    #[test]
    fn a_directory_that_is_set_aside_can_be_put_back() {
        let (_dir, cluster) = cluster();
        let host = |number: u32| HostName::new(Host::Compute(number).to_string());
        make(&cluster, &[Host::Compute(1)]);
        assert_eq!(set_aside(&cluster, &host(2)).unwrap(), None, "its disk may be lost");
        let aside = set_aside(&cluster, &host(1)).unwrap().unwrap();
        put_back(&cluster, &host(1), &aside).unwrap();
        assert_eq!(known(&cluster), compute(&[1]));
        let first = set_aside(&cluster, &host(1)).unwrap().unwrap();
        make(&cluster, &[Host::Compute(1)]);
        let second = set_aside(&cluster, &host(1)).unwrap().unwrap();
        assert!(first.is_dir() && second.ends_with("removed/h1.2"), "an older one stays");
        assert_eq!(with_new(&cluster, known(&cluster), 1), compute(&[2]));
    }
}
