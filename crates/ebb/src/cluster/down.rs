//! `ebb cluster down`: no process and no mount is left.

use std::path::Path;
use std::time::{Duration, Instant};

use ebb_cli::directory::ClusterDir;
use ebb_cli::output::Output;
use ebb_cli::process::{self, ProcessFile};
use ebb_types::{ErrorKind, Result, bail};
use rustix::process::Signal;
use serde_json::json;

use super::progress::{Next, Progress, writes};
use crate::role::{power_client, power_manager};

/// Between two looks at a process that is to end.
const LOOK: Duration = Duration::from_millis(500);
/// How often it is said that one is waited for.
const SAID_EVERY: Duration = Duration::from_secs(30);

/// Ends the cluster in `path`.
pub fn down(path: &Path, output: &Output) -> Result<()> {
    let cluster = ClusterDir::open(path)?;
    let ended = stop_processes(&cluster, output)?;
    let sentence = match ended {
        0 => format!("no process of the cluster in {} was running", cluster.path.display()),
        1 => "1 process ended, no mount left".to_owned(),
        _ => format!("{ended} processes ended, no mount left"),
    };
    output.answer(&sentence, &json!({ "ended": ended }));
    Ok(())
}

/// Ends the power services first, then mounts, for they still write; the master last, for the others report to it.
pub fn stop_processes(cluster: &ClusterDir, output: &Output) -> Result<usize> {
    let processes = process::list(cluster)?;
    let mut ended = 0;
    // No node may be put to sleep any more; the power client wakes nodes that it let sleep when it ends.
    for role in [power_manager::NAME, power_client::NAME, "mount", "worker", "proxy", "block", "master"] {
        let of_role: Vec<&ProcessFile> = processes.iter().filter(|process| process.role == role).collect();
        for process in &of_role {
            warn_of_users(process, output);
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

/// Waits until the process has ended; why it must be killed, if it does not end. One on a slow disk that still writes gets more
/// time than one that hangs.
fn wait(process: &ProcessFile, output: &Output) -> Option<String> {
    let (begun, mut progress, mut printed) = (Instant::now(), Progress::default(), Duration::ZERO);
    while !process.wait_ended(LOOK) {
        let passed = begun.elapsed();
        match progress.decide_next(writes(process), passed) {
            Next::Wait if passed >= printed + SAID_EVERY => {
                printed = passed;
                let (name, pid, seconds) = (&process.name, process.pid, passed.as_secs());
                output.say(&format!("{name} (pid {pid}) still writes after {seconds} s: it is waited for"));
            }
            Next::Wait => {}
            Next::Hangs(quiet) => return Some(format!("has not ended and written nothing for {} s", quiet.as_secs())),
            Next::TooLong(passed) => return Some(format!("has not ended within {} s", passed.as_secs())),
        }
    }
    None
}

/// Says which programs use a mount that is about to end: their open files are cut off.
fn warn_of_users(process: &ProcessFile, output: &Output) {
    let Some(mountpoint) = process.mountpoint.as_ref().filter(|_| process.is_running()) else { return };
    let users = ebb_fuse::users_of(mountpoint, LOOK);
    if !users.is_empty() {
        output.warn(&format!("{} is in use by {users}: their open files are cut off", mountpoint.display()));
    }
}

fn stop_one(cluster: &ClusterDir, process: &ProcessFile, output: &Output) -> Result<()> {
    if let Some(why) = wait(process, output) {
        output.warn(&format!("{} (pid {}) {why}: killed", process.name, process.pid));
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
