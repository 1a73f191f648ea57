//! `ebb cluster down`: no process and no mount is left.

use std::path::Path;
use std::time::Duration;

use ebb_types::{ErrorKind, Result, bail};
use rustix::process::Signal;

use super::config::ClusterDir;
use super::process::{self, ProcessFile};
use crate::output::Output;
use crate::role::{power_client, power_manager};

/// Time to flush, sync and end.
const GRACE: Duration = Duration::from_secs(30);

/// Ends the cluster in `path`.
pub fn down(path: &Path, output: &Output) -> Result<()> {
    let cluster = ClusterDir::open(path)?;
    let ended = stop_processes(&cluster, output)?;
    if ended == 0 {
        output.say(&format!("no process of the cluster in {} was running", cluster.path.display()));
    } else {
        output.say(&format!("{ended} process{} ended, no mount left", if ended == 1 { "" } else { "es" }));
    }
    Ok(())
}

/// Ends what puts nodes to sleep first, then mounts, for they still write; the master last, for the others report to it.
pub fn stop_processes(cluster: &ClusterDir, output: &Output) -> Result<usize> {
    let processes = process::list(cluster)?;
    let mut ended = 0;
    // Nobody may be put to sleep any more; what sleeps is woken by whoever let it.
    for role in [power_manager::NAME, power_client::NAME, "mount", "worker", "proxy", "block", "master"] {
        let of_role: Vec<&ProcessFile> = processes.iter().filter(|process| process.role == role).collect();
        for process in &of_role {
            ended += usize::from(process.is_running());
            process.signal(Signal::CONT);
            process.signal(Signal::TERM);
        }
        for process in of_role {
            stop_one(cluster, process, output)?;
        }
    }
    Ok(ended)
}

fn stop_one(cluster: &ClusterDir, process: &ProcessFile, output: &Output) -> Result<()> {
    if !process.wait_ended(GRACE) {
        output.warn(&format!(
            "{} (pid {}) did not end within {} s: killed",
            process.name,
            process.pid,
            GRACE.as_secs()
        ));
        process.signal(Signal::KILL);
        if !process.wait_ended(Duration::from_secs(5)) {
            bail!(Busy, "{} (pid {}) does not end even when killed", process.name, process.pid);
        }
    }
    if let Some(mountpoint) = &process.mountpoint {
        // A mount process that was killed leaves a dead mount behind; one that ended by itself leaves none.
        if let Err(error) = ebb_fuse::unmount_lazily(mountpoint)
            && error.kind() != ErrorKind::Invalid
        {
            return Err(error);
        }
    }
    let _ = std::fs::remove_file(cluster.run_dir().join(format!("{}.json", process.name)));
    Ok(())
}
