//! A cluster of real processes for one test. Nothing of it is left behind, also after a failure.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use ebb_power_drivers::Process;
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::watch::Watch;

/// A cluster that ends with the test.
pub struct Cluster {
    temp: TempDir,
    _watch: Watch,
    /// The log filter of its processes, if not the usual.
    filter: Option<&'static str>,
}

/// The result of a run of `ebb`.
pub struct Run {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Cluster {
    /// Starts one with `nodes` block servers and short time-outs.
    pub fn up(nodes: u32) -> Self {
        let cluster = Self::none();
        let nodes = nodes.to_string();
        cluster.ok(&["cluster", "up", "--nodes", &nodes, "--dead-after-ms", "2000", "--session-ttl-ms", "4000"]);
        cluster
    }

    /// A directory for one, not started.
    pub fn none() -> Self {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let watch = Watch::new(temp.path().join("cluster"));
        Self { temp, _watch: watch, filter: None }
    }

    /// The same, whose processes log by this filter.
    pub fn logging(mut self, filter: &'static str) -> Self {
        self.filter = Some(filter);
        self
    }

    /// Puts these bytes in a file, replacing one that is there.
    pub fn put(&self, path: &str, bytes: &[u8]) {
        let local = self.path("put");
        std::fs::write(&local, bytes).unwrap();
        self.ok(&["fs", "put", "-f", local.to_str().unwrap(), path]);
    }

    /// The bytes of a file.
    pub fn get(&self, path: &str) -> Vec<u8> {
        let local = self.path("got");
        self.ok(&["fs", "get", "-f", path, local.to_str().unwrap()]);
        std::fs::read(local).unwrap()
    }

    /// The cluster's directory.
    pub fn dir(&self) -> PathBuf {
        self.temp.path().join("cluster")
    }

    /// A path beside it, for mounts and local files.
    pub fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// Mounts on a new directory and returns it.
    pub fn mount(&self, name: &str) -> PathBuf {
        self.mount_as(name, "client")
    }

    /// Mounts as a client on `host`.
    pub fn mount_as(&self, name: &str, host: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path).unwrap();
        self.ok(&["mount", "--host", host, path.to_str().unwrap()]);
        path
    }

    /// Runs `ebb` on this cluster.
    pub fn ebb(&self, arguments: &[&str]) -> Run {
        self.ebb_of(Path::new(env!("CARGO_BIN_EXE_ebb")), arguments)
    }

    /// The same with another build of it: processes that it starts are of that build.
    pub fn ebb_of(&self, program: &Path, arguments: &[&str]) -> Run {
        let output = Command::new(program)
            .args(arguments)
            .env("EBB_DIR", self.dir())
            .envs(self.filter.map(|filter| ("EBB_LOG", filter)))
            .output()
            .expect("the ebb program runs");
        Run::of(&output)
    }

    /// Runs `ebb`, which must succeed; its output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        self.ok_of(Path::new(env!("CARGO_BIN_EXE_ebb")), arguments)
    }

    /// The same with another build of it.
    pub fn ok_of(&self, program: &Path, arguments: &[&str]) -> String {
        let run = self.ebb_of(program, arguments);
        assert_eq!(run.code, 0, "ebb {arguments:?}: {}{}", run.out, run.err);
        run.out
    }

    /// Runs `ebb ... --json`; returns its output.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let mut all = arguments.to_vec();
        all.push("--json");
        let run = self.ebb(&all);
        serde_json::from_str(&run.out).unwrap_or_else(|error| panic!("ebb {all:?}: {error}: {}{}", run.out, run.err))
    }

    /// Pid of the process with this role on this host.
    pub fn pid(&self, role: &str, host: &str) -> u32 {
        let status = self.json(&["cluster", "status"]);
        let found = status["processes"]
            .as_array()
            .unwrap()
            .iter()
            .find(|process| process["role"] == role && (host.is_empty() || process["host"] == host))
            .unwrap_or_else(|| panic!("no {role} on {host:?}: {status}"));
        u32::try_from(found["pid"].as_u64().unwrap()).unwrap()
    }

    /// kill -9. Returns when the process has ended: its disk operations end first.
    pub fn kill(&self, pid: u32) {
        self.kill_all(&[pid]);
    }

    /// The same of several at once.
    pub fn kill_all(&self, pids: &[u32]) {
        end_by(Signal::KILL, pids);
    }

    /// Asks a process to end in good order, and returns when it has.
    pub fn end(&self, pid: u32) {
        end_by(Signal::TERM, &[pid]);
    }

    /// Waits until `fsck` calls the cluster healthy, and returns its report.
    pub fn healthy(&self) -> Value {
        let mut last = Value::Null;
        let healthy = holds_within(Duration::from_secs(90), || {
            last = self.json(&["fsck"]);
            last["healthy"] == true
        });
        assert!(healthy, "not healthy: {last:#}");
        last
    }
}

impl Run {
    fn of(output: &Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Lines of each log that a failed test prints.
const LINES_SHOWN: usize = 25;

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.dir().join("cluster.toml").exists() {
            let run = self.ebb(&["cluster", "down"]);
            if run.code != 0 {
                eprintln!("cluster down: {}{}", run.out, run.err);
            }
        }
        if std::thread::panicking() {
            print_logs(&self.dir().join("log"));
        }
    }
}

/// Prints what the logs say of a failed test: first all warnings and errors, then the end of each log.
fn print_logs(dir: &Path) {
    let read = |entry: std::fs::DirEntry| (entry.path(), std::fs::read_to_string(entry.path()).unwrap_or_default());
    let logs: Vec<(PathBuf, String)> = std::fs::read_dir(dir).into_iter().flatten().flatten().map(read).collect();
    for (path, text) in &logs {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_bad = |line: &&str| [" WARN ", "ERROR ", "panicked"].iter().any(|word| line.contains(word));
        text.lines().filter(is_bad).take(LINES_SHOWN).for_each(|line| eprintln!("{name}: {line}"));
    }
    for (path, text) in &logs {
        let lines: Vec<&str> = text.lines().collect();
        eprintln!("--- {}", path.display());
        lines[lines.len().saturating_sub(LINES_SHOWN)..].iter().for_each(|line| eprintln!("{line}"));
    }
}

/// Sends a signal. By a system call, and not by a program: to start one, the kernel flushes and closes the open files
/// of this process. Files on a mount that is frozen wait for the mount then, and no process would be left to thaw it.
pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("the number of a process");
    kill_process(pid, signal).unwrap_or_else(|error| panic!("{signal:?} to {pid:?}: {error}"));
}

/// Sends a signal to processes, and returns when they have ended.
fn end_by(ending: Signal, pids: &[u32]) {
    let processes: Vec<Process> = pids.iter().map(|pid| Process::find(*pid).unwrap()).collect();
    pids.iter().for_each(|pid| signal(*pid, ending));
    wait_for("end of processes", Duration::from_secs(60), || !processes.iter().any(Process::is_running));
}

/// Polls until `check` holds. The bound is for a hung program, not part of the test.
pub fn wait_for(event: &str, bound: Duration, check: impl FnMut() -> bool) {
    assert!(holds_within(bound, check), "no {event} after {} s", bound.as_secs());
}

fn holds_within(bound: Duration, mut check: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !check() {
        if start.elapsed() >= bound {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    true
}

/// Random choices that follow from a seed (Marsaglia's xorshift).
pub struct Dice(u64);

impl Dice {
    /// One for each seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        (self.bits() >> 11) % bound
    }
}

/// Makes a file of these bytes and syncs it.
pub fn write_synced(path: &Path, data: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(data)?;
    file.sync_all()
}

/// Bytes that differ everywhere, so that a misplaced block is seen.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut dice = Dice::new(seed);
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        out.extend_from_slice(&dice.bits().to_le_bytes());
    }
    out.truncate(len);
    out
}

/// Runs a shell command that must succeed; its output, trimmed.
pub fn shell(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
