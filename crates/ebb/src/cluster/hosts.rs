//! Hosts of a cluster on one machine: h1, h2 and so on. Each node is its own host, with a directory.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ebb_cli::directory::ClusterDir;
use ebb_types::{Error, HostName, Result};

/// Directories of nodes that have left the cluster.
const REMOVED: &str = "removed";

/// Numbers of the hosts that the cluster has.
pub fn known(cluster: &ClusterDir) -> BTreeSet<u32> {
    numbers(&cluster.path.join("nodes"))
}

/// The known hosts, and as many new ones as make `count`. A number is used once, also after its node was removed.
pub fn with_new(cluster: &ClusterDir, mut known: BTreeSet<u32>, count: usize) -> BTreeSet<u32> {
    let removed = numbers(&cluster.path.join(REMOVED));
    let highest = known.iter().chain(&removed).max().copied().unwrap_or(0);
    let missing = count.saturating_sub(known.len());
    known.extend((highest + 1..).take(missing));
    known
}

/// The name of a host.
pub fn name(number: u32) -> HostName {
    HostName::new(format!("h{number}"))
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

/// Numbers of the hosts with an entry in a directory.
fn numbers(directory: &Path) -> BTreeSet<u32> {
    let names = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| number(name.to_str()?)).collect()
}

/// The number in a directory's name: 3 of "h3" and of "h3.2".
fn number(name: &str) -> Option<u32> {
    name.strip_prefix('h')?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> (tempfile::TempDir, ClusterDir) {
        let dir = tempfile::tempdir().unwrap();
        let cluster = ClusterDir::create(&dir.path().join("c"), 2).unwrap();
        (dir, cluster)
    }

    fn make(cluster: &ClusterDir, numbers: &[u32]) {
        numbers.iter().for_each(|number| fs::create_dir_all(cluster.node_dir(&name(*number))).unwrap());
    }

    #[test]
    fn numbers_of_removed_hosts_are_not_used_again() {
        let (_dir, cluster) = cluster();
        assert_eq!(with_new(&cluster, known(&cluster), 3), BTreeSet::from([1, 2, 3]));
        make(&cluster, &[1, 2, 3, 11]);
        let aside = set_aside(&cluster, &name(11)).unwrap().unwrap();
        assert!(aside.ends_with("removed/h11") && aside.is_dir());
        assert_eq!(known(&cluster), BTreeSet::from([1, 2, 3]));
        assert_eq!(with_new(&cluster, known(&cluster), 4), BTreeSet::from([1, 2, 3, 12]));
        assert_eq!(with_new(&cluster, known(&cluster), 2), BTreeSet::from([1, 2, 3]), "none is left out");
    }

    #[test]
    fn a_directory_that_is_set_aside_can_be_put_back() {
        let (_dir, cluster) = cluster();
        make(&cluster, &[1]);
        assert_eq!(set_aside(&cluster, &name(2)).unwrap(), None, "its disk may be lost");
        let aside = set_aside(&cluster, &name(1)).unwrap().unwrap();
        put_back(&cluster, &name(1), &aside).unwrap();
        assert_eq!(known(&cluster), BTreeSet::from([1]));
        let first = set_aside(&cluster, &name(1)).unwrap().unwrap();
        make(&cluster, &[1]);
        let second = set_aside(&cluster, &name(1)).unwrap().unwrap();
        assert!(first.is_dir() && second.ends_with("removed/h1.2"), "an older one stays");
        assert_eq!(with_new(&cluster, known(&cluster), 1), BTreeSet::from([2]));
    }
}
