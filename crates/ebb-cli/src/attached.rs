//! Programs of others that run on a node, such as a YARN NodeManager: they sleep and wake with it, and so does all that they
//! start. They are not of the cluster: nothing here ends them.

use std::fs;
use std::path::PathBuf;

use ebb_types::{Error, Result, bail, err};
use serde::{Deserialize, Serialize};

use crate::directory::ClusterDir;
use crate::{private, process};

/// A program that is attached to a node's host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attached {
    /// Host of the node.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// Start time of the process in clock ticks since boot: with the pid, names it for good.
    pub started: u64,
}

impl Attached {
    /// Whether that very process runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        process::start_ticks(self.pid) == Some(self.started)
    }

    fn path(&self, cluster: &ClusterDir) -> PathBuf {
        folder(cluster).join(format!("{}-{}.json", self.host, self.pid))
    }
}

fn folder(cluster: &ClusterDir) -> PathBuf {
    cluster.run_dir().join("attached")
}

/// Attaches a running process to a host's node.
///
/// # Errors
/// `NotFound` if there is no such process.
pub fn add(cluster: &ClusterDir, host: &str, pid: u32) -> Result<Attached> {
    let started = process::start_ticks(pid).ok_or_else(|| err!(NotFound, "there is no process {pid}"))?;
    let attached = Attached { host: host.to_owned(), pid, started };
    let path = attached.path(cluster);
    let text = serde_json::to_vec_pretty(&attached).map_err(|error| err!(Internal, "{}: {error}", path.display()))?;
    private::replace(&path, &text)?;
    Ok(attached)
}

/// Detaches a process from a host's node.
///
/// # Errors
/// `NotFound` if it is not attached there.
pub fn remove(cluster: &ClusterDir, host: &str, pid: u32) -> Result<()> {
    let path = Attached { host: host.to_owned(), pid, started: 0 }.path(cluster);
    fs::remove_file(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => err!(NotFound, "process {pid} is not attached to {host}"),
        _ => Error::from_io(&error, path.display()),
    })
}

/// The attached programs that run. Those that have ended are forgotten meanwhile.
pub fn list(cluster: &ClusterDir) -> Result<Vec<Attached>> {
    let mut found = Vec::new();
    for path in private::json_files(&folder(cluster))? {
        // It may be detached between the listing and the reading.
        let Ok(bytes) = fs::read(&path) else { continue };
        match serde_json::from_slice::<Attached>(&bytes) {
            Ok(attached) if attached.is_running() => found.push(attached),
            Ok(_) => drop(fs::remove_file(&path)),
            Err(error) => bail!(Invalid, "{}: {error}; remove it, and attach the program again", path.display()),
        }
    }
    found.sort_by(|one, other| (&one.host, one.pid).cmp(&(&other.host, other.pid)));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use ebb_types::ErrorKind;

    use super::*;

    #[test]
    fn programs_are_attached_listed_and_detached() {
        let home = tempfile::tempdir().unwrap();
        let cluster = ClusterDir::create(home.path(), 1, ebb_identity::tls::Wire::default()).unwrap();
        assert_eq!(list(&cluster).unwrap(), []);
        let own = add(&cluster, "h1", std::process::id()).unwrap();
        assert_eq!(list(&cluster).unwrap(), std::slice::from_ref(&own));
        assert_eq!(add(&cluster, "h1", u32::MAX).unwrap_err().kind(), ErrorKind::NotFound);
        // One that had the number before is forgotten.
        let other = Attached { started: own.started + 1, host: "h2".into(), ..own };
        private::write(&other.path(&cluster), &serde_json::to_vec(&other).unwrap()).unwrap();
        assert_eq!(list(&cluster).unwrap().len(), 1);
        assert!(!other.path(&cluster).exists());
        remove(&cluster, "h1", std::process::id()).unwrap();
        assert_eq!(remove(&cluster, "h1", std::process::id()).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(process::list(&cluster).unwrap().len(), 0, "they are not of the cluster");
    }
}
