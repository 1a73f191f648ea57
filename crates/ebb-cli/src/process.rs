//! Processes of a cluster: each writes a file under `run/` when it serves, and removes it when it ends.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ebb_power_drivers::Process;
use ebb_types::{Error, Result, bail, err};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::directory::ClusterDir;
use crate::private;

/// Time for a process that was killed to end: its disk operations end first.
const ENDING: Duration = Duration::from_secs(10);

/// One running process, as in its file under `run/`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessFile {
    /// File name without `.json`, unique in the cluster.
    pub name: String,
    /// "master", "proxy", "block", "worker", "mount", "power-manager", "power-client".
    pub role: String,
    /// Declared host.
    pub host: String,
    /// Rack of the host; empty where it does not matter.
    #[serde(default)]
    pub rack: String,
    /// Node id, of block servers.
    #[serde(default)]
    pub node: Option<String>,
    /// Process id.
    pub pid: u32,
    /// Start time of the process in clock ticks since boot: with the pid, names it for good.
    pub started: u64,
    /// Where it listens; empty for mounts.
    #[serde(default)]
    pub address: String,
    /// Where it prints.
    pub log: String,
    /// Of mounts.
    #[serde(default)]
    pub mountpoint: Option<PathBuf>,
}

impl ProcessFile {
    /// This process, registered under `name`.
    pub fn of_this_process(cluster: &ClusterDir, name: &str, role: &str, host: &str) -> Self {
        let pid = std::process::id();
        Self {
            name: name.to_owned(),
            role: role.to_owned(),
            host: host.to_owned(),
            rack: String::new(),
            node: None,
            pid,
            started: start_ticks(pid).unwrap_or(0),
            address: String::new(),
            log: log_path(cluster, name).display().to_string(),
            mountpoint: None,
        }
    }

    /// Writes the file under `run/`.
    pub fn write(&self, cluster: &ClusterDir) -> Result<Registration> {
        let path = cluster.run_dir().join(format!("{}.json", self.name));
        let text = serde_json::to_vec_pretty(self).map_err(|error| err!(Internal, "{}: {error}", path.display()))?;
        private::replace(&path, &text)?;
        Ok(Registration { path })
    }

    /// Whether that very process runs (a pid alone may have been taken by another).
    pub fn is_running(&self) -> bool {
        start_ticks(self.pid) == Some(self.started)
    }

    /// Whether it was killed and still runs.
    fn is_ending(&self) -> bool {
        self.find().is_some_and(|process| process.is_ending())
    }

    /// Whether it runs, and is frozen, since its node sleeps.
    pub fn is_frozen(&self) -> bool {
        self.find().is_some_and(|process| process.is_frozen())
    }

    fn find(&self) -> Option<Process> {
        Process::find(self.pid).ok().filter(|process| process.started() == self.started)
    }

    /// Sends a signal, if that very process runs.
    pub fn signal(&self, signal: Signal) {
        if self.is_running()
            && let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw)
        {
            // It may end between the check and the signal; then the goal is reached.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Waits until the process has ended; false if it still runs after `span`.
    pub fn wait_ended(&self, span: Duration) -> bool {
        let start = Instant::now();
        while self.is_running() {
            if start.elapsed() > span {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }
}

/// Removes the process's file when dropped.
#[derive(Debug)]
pub struct Registration {
    path: PathBuf,
}

impl Drop for Registration {
    fn drop(&mut self) {
        // `cluster down` may have removed it already.
        let _ = fs::remove_file(&self.path);
    }
}

/// A name that no other process of the cluster takes while this lives.
#[derive(Debug)]
pub struct NameClaim {
    /// `stem-number`.
    pub name: String,
    _locked: fs::File,
}

/// Claims `stem-1`, or the first number that no running process has and no other caller claims.
///
/// The caller keeps the claim until its process has written its file. Two callers at the same moment get two names.
pub fn claim_name(cluster: &ClusterDir, stem: &str) -> Result<NameClaim> {
    let dir = cluster.run_dir();
    private::make_dir(&dir).map_err(|error| Error::from_io(&error, dir.display()))?;
    for number in 1_u64.. {
        let name = format!("{stem}-{number}");
        let path = dir.join(format!("{name}.claim"));
        let claim = private::file().create(true).truncate(false).write(true).open(&path);
        let claim = claim.map_err(|error| Error::from_io(&error, path.display()))?;
        // Ordering: the processes are listed under the lock. The last owner of the claim has written its file before.
        if claim.try_lock().is_ok() && !list(cluster)?.iter().any(|other| other.name == name && other.is_running()) {
            return Ok(NameClaim { name, _locked: claim });
        }
    }
    Err(err!(Internal, "no number is left for a {stem}"))
}

/// Every registered process, running or not, masters first, then by name.
pub fn list(cluster: &ClusterDir) -> Result<Vec<ProcessFile>> {
    let mut found = Vec::new();
    for path in private::json_files(&cluster.run_dir())? {
        match fs::read(&path).map(|bytes| serde_json::from_slice::<ProcessFile>(&bytes)) {
            Ok(Ok(process)) => found.push(process),
            Ok(Err(error)) => bail!(Invalid, "{}: {error}; remove it if no such process runs", path.display()),
            // It ended between the listing and the reading.
            Err(_) => {}
        }
    }
    let rank = |role: &str| {
        ["master", "proxy", "power-manager", "power-client", "block", "worker", "mount"]
            .iter()
            .position(|known| *known == role)
    };
    found.sort_by_key(|process| (rank(&process.role), natural(&process.name)));
    Ok(found)
}

/// The registered processes that are meant and run. One that was killed and has not gone yet is waited for: it does not
/// serve, and no other can take its place. `Busy` if it does not go.
pub fn running(cluster: &ClusterDir, meant: impl Fn(&ProcessFile) -> bool) -> Result<Vec<ProcessFile>> {
    let mut found = list(cluster)?;
    found.retain(meant);
    for process in found.iter().filter(|process| process.is_ending()) {
        if !process.wait_ended(ENDING) {
            let seconds = ENDING.as_secs();
            bail!(Busy, "{} (pid {}) was killed and has not ended after {seconds} s", process.name, process.pid);
        }
    }
    found.retain(ProcessFile::is_running);
    Ok(found)
}

/// Sorts h2 before h10.
fn natural(name: &str) -> (String, u64) {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (stem, number) = name.split_at(name.len() - digits);
    (stem.to_owned(), number.parse().unwrap_or(0))
}

/// Where a process prints.
pub fn log_path(cluster: &ClusterDir, name: &str) -> PathBuf {
    cluster.log_dir().join(format!("{name}.log"))
}

/// Start time of a process in clock ticks since boot; none if it is gone or a zombie.
pub fn start_ticks(pid: u32) -> Option<u64> {
    Process::find(pid).ok().filter(Process::is_running).map(|process| process.started())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_another_start_time_does_not() {
        let ticks = start_ticks(std::process::id()).unwrap();
        assert!(ticks > 0);
        assert_eq!(start_ticks(u32::MAX), None);
    }

    #[test]
    fn a_claimed_name_is_given_to_no_other_process() {
        let home = tempfile::tempdir().unwrap();
        let cluster = ClusterDir::create(home.path(), 1, ebb_identity::tls::Wire::default()).unwrap();
        let first = claim_name(&cluster, "mount").unwrap();
        let second = claim_name(&cluster, "mount").unwrap();
        assert_eq!((first.name.as_str(), second.name.as_str()), ("mount-1", "mount-2"));
        let running = ProcessFile::of_this_process(&cluster, &first.name, "mount", "h1").write(&cluster).unwrap();
        drop((first, second));
        assert_eq!(claim_name(&cluster, "mount").unwrap().name, "mount-2", "a process has the first name");
        drop(running);
        assert_eq!(claim_name(&cluster, "mount").unwrap().name, "mount-1");
    }

    #[test]
    fn names_sort_by_number() {
        assert!(natural("block-h2") < natural("block-h10"));
    }

    #[test]
    fn any_process_file_is_read_or_refused() {
        ebb_fuzz::run::hold(&ebb_fuzz::Target {
            name: "ebb/process",
            source: "run/*.json",
            cap: ebb_fuzz::Cap { base: 64 << 10, times: 64 },
            shape: ebb_fuzz::Shape::Text,
            cases: 3_000,
            decode: |bytes| {
                serde_json::from_slice::<ProcessFile>(bytes)
                    .is_ok_and(|file| natural(&file.name).0.len() <= file.name.len())
            },
            samples: || {
                let file = ProcessFile {
                    name: "block-h10".to_owned(),
                    role: "block".to_owned(),
                    host: "h10".to_owned(),
                    rack: "r1".to_owned(),
                    node: Some("n3".to_owned()),
                    pid: 77,
                    started: 12_345,
                    address: "127.0.0.1:7001".to_owned(),
                    log: "/c/log/block-h10.log".to_owned(),
                    mountpoint: None,
                };
                vec![serde_json::to_vec_pretty(&file).unwrap()]
            },
            repair: ebb_fuzz::target::nothing,
        });
    }
}
