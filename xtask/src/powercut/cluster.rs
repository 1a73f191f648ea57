//! A cluster of processes, in which each data directory is a disk of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Result;
use super::image::{FileSystem, Image, run};
use crate::interrupt;
use crate::tree::root;

/// Number of block servers, and of copies, so that each cut hits a copy of everything.
pub const NODES: usize = 3;

/// Time limit for the repair of copies.
const HEALTHY_MAX: Duration = Duration::from_secs(180);
/// Time limit for the end of a killed process.
const END_MAX: Duration = Duration::from_secs(20);

/// Directory of the dataset that encodes.
const ENCODED: &str = "encoded";
/// Rest of a metablock before it is encoded: short, so that cuts hit files while they are encoded.
const DELAY: &str = "300ms";
/// Small, as pieces of less than a quarter of it stay in copies.
const GEOMETRY: &[&str] = &["--block", "64KiB", "--metablock", "128KiB"];
/// Nodes encode for so long before a cut.
const ENCODE_BEFORE: Duration = Duration::from_millis(150);

/// The cluster. Ended, and its disks unmounted, when dropped.
pub struct Cluster {
    ebb: PathBuf,
    dir: PathBuf,
    mount: PathBuf,
    redundancy: String,
    images: Vec<Image>,
}

impl Cluster {
    /// Makes one below `scratch`, its directories on disks of this kind, mounted. `redundancy` is that of cold files: copies, or
    /// RAID sets as `ebb dataset create` has them.
    pub fn make(system: FileSystem, scratch: &Path, redundancy: &str) -> Result<Self> {
        let (dir, mount) = (scratch.join("cluster"), scratch.join("mnt"));
        fs::create_dir_all(&mount).map_err(|error| format!("{}: {error}", mount.display()))?;
        let mut cluster = Self {
            ebb: root().join("target/debug/ebb"),
            dir,
            mount,
            redundancy: redundancy.to_owned(),
            images: Vec::new(),
        };
        // Started once, so that its directories are there.
        cluster.up()?;
        cluster.ebb(&["cluster", "down"])?;
        let nodes = (1..=NODES).map(|node| (format!("h{node}"), format!("nodes/h{node}")));
        for (name, directory) in nodes.chain([("master".to_owned(), "master".to_owned())]) {
            let mut image = Image::make(system, scratch, &name)?;
            image.take_place_of(&cluster.dir.join(directory))?;
            cluster.images.push(image);
        }
        cluster.up()?;
        cluster.mount_it()?;
        if cluster.encodes() {
            let path = format!("/{ENCODED}");
            cluster.ebb(
                &[&["dataset", "create", &path, "--redundancy", redundancy, "--delay", DELAY], GEOMETRY].concat(),
            )?;
        }
        Ok(cluster)
    }

    /// Whether cold files become RAID sets.
    fn encodes(&self) -> bool {
        self.redundancy != "copies"
    }

    /// Directory of the mount that programs write in.
    pub fn place(&self) -> PathBuf {
        if self.encodes() { self.mount.join(ENCODED) } else { self.mount.clone() }
    }

    /// The power of these disks fails, and with it the processes on them; with `takes_mount` that of the mount, too.
    pub fn cut(&self, disks: &[String], takes_mount: bool) -> Result<()> {
        // What is cold is encoded while the power fails.
        let mut encoding = None;
        if self.encodes() {
            let started = self.command(&["raid", "encode", &format!("/{ENCODED}")]).stdout(Stdio::null()).spawn();
            encoding = Some(started.map_err(|error| format!("ebb raid encode: {error}"))?);
            interrupt::sleep(ENCODE_BEFORE);
        }
        let done = self.cut_now(disks, takes_mount);
        if let Some(mut encoding) = encoding {
            // It waits for a master or for nodes that are gone.
            let ended = encoding.kill().and_then(|()| encoding.wait());
            ended.map_err(|error| format!("ebb raid encode: {error}"))?;
        }
        done
    }

    fn cut_now(&self, disks: &[String], takes_mount: bool) -> Result<()> {
        let hit: Vec<&Image> = self.images.iter().filter(|image| disks.contains(&image.name)).collect();
        for image in &hit {
            image.cut()?;
        }
        for process in self.processes()? {
            let is_hit = disks.iter().any(|disk| process.belongs_to(disk));
            if is_hit || takes_mount && process.role == "mount" {
                process.kill()?;
            }
        }
        Ok(())
    }

    /// The power is back: the disks are mounted, and the ended processes start again.
    pub fn start_again(&mut self) -> Result<()> {
        let running = self.processes()?;
        for image in &mut self.images {
            if !running.iter().any(|process| process.belongs_to(&image.name)) {
                image.remount()?;
            }
        }
        self.up()
    }

    /// Unmounts and mounts again, so that reads then come from the nodes.
    pub fn mount_anew(&self) -> Result<()> {
        // If its process was killed, the mount is gone already, or left as a dead mount.
        if self.ebb(&["umount", &self.mount.display().to_string()]).is_err() {
            let _ = run(Command::new("umount").arg("-l").arg(&self.mount));
        }
        self.mount_it()
    }

    fn mount_it(&self) -> Result<()> {
        // On a node's host, so that the node reports its end to the master at once when it is killed.
        self.ebb(&["mount", "--host", "h1", &self.mount.display().to_string()])
    }

    /// Waits until a file-system check finds every copy good.
    pub fn wait_healthy(&self) -> Result<()> {
        self.wait_for(&["fsck"])
    }

    /// Waits until this check finds nothing wrong.
    fn wait_for(&self, check: &[&str]) -> Result<()> {
        let end = Instant::now() + HEALTHY_MAX;
        loop {
            match self.ebb(check) {
                Ok(()) => return Ok(()),
                Err(sentence) if interrupt::is_interrupted() || Instant::now() >= end => {
                    return Err(format!("copies were not good again within {} s: {sentence}", HEALTHY_MAX.as_secs()));
                }
                Err(_) => interrupt::sleep(Duration::from_millis(200)),
            }
        }
    }

    /// Has files encoded, where they are to be, and all rows compared with their slots. Returns the number of RAID sets.
    pub fn compare_rows(&self) -> Result<usize> {
        if !self.encodes() {
            return Ok(0);
        }
        self.ebb(&["raid", "encode", &format!("/{ENCODED}")])?;
        // What the cut cost is made again meanwhile, and files are still being encoded.
        self.wait_for(&["fsck", "--parity"])?;
        match self.raid_sets()? {
            0 => Err("nothing was encoded".to_owned()),
            sets => Ok(sets),
        }
    }

    fn raid_sets(&self) -> Result<usize> {
        let output = self.command(&["raid", "list"]).output().map_err(|error| format!("ebb raid list: {error}"))?;
        if !output.status.success() {
            return Err(format!("ebb raid list: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.starts_with("rs")).count())
    }

    /// Reads every replica, then ends the cluster.
    pub fn end(self) -> Result<()> {
        self.ebb(&["fsck", "--scrub"])
    }

    /// The ends of all logs, to find the cause of a failure.
    pub fn last_words(&self) -> String {
        let Ok(logs) = fs::read_dir(self.dir.join("log")) else { return String::new() };
        let mut words = String::new();
        for log in logs.flatten() {
            let text = fs::read_to_string(log.path()).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            words += &format!("--- {}\n", log.path().display());
            lines[lines.len().saturating_sub(15)..].iter().for_each(|line| words += &format!("{line}\n"));
        }
        words
    }

    /// Starts the processes that do not run.
    fn up(&self) -> Result<()> {
        // Sessions of mounts that were cut off end sooner than by default: the run waits for each.
        self.ebb(&["cluster", "up", "--nodes", &NODES.to_string(), "--session-ttl-ms", "4000"])
    }

    fn ebb(&self, words: &[&str]) -> Result<()> {
        run(&mut self.command(words))
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.ebb);
        command.args(words).env("EBB_DIR", &self.dir);
        command
    }

    fn processes(&self) -> Result<Vec<Process>> {
        let run_dir = self.dir.join("run");
        let entries = fs::read_dir(&run_dir).map_err(|error| format!("{}: {error}", run_dir.display()))?;
        let texts = entries.flatten().filter(|entry| entry.path().extension().is_some_and(|end| end == "json"));
        let all = texts.filter_map(|entry| Process::parse(&fs::read_to_string(entry.path()).ok()?));
        Ok(all.filter(Process::is_running).collect())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(sentence) = self.ebb(&["cluster", "down"]) {
            println!("powercut: {sentence}");
        }
    }
}

/// A process, as described by its file under `run/`.
struct Process {
    role: String,
    host: String,
    pid: u32,
    started: u64,
}

impl Process {
    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            let rest = text.split_once(&format!("\"{name}\":"))?.1.trim_start();
            Some(rest.split([',', '\n', '}']).next()?.trim().trim_matches('"').to_owned())
        };
        let (pid, started) = (field("pid")?.parse().ok()?, field("started")?.parse().ok()?);
        Some(Self { role: field("role")?, host: field("host")?, pid, started })
    }

    /// Whether it runs on this disk.
    fn belongs_to(&self, disk: &str) -> bool {
        match self.role.as_str() {
            "block" | "worker" => self.host == disk,
            "master" => disk == "master",
            _ => false,
        }
    }

    /// Whether the same process runs, and not another one with its number, by field 22 of proc_pid_stat(5).
    fn is_running(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let Some((_, rest)) = stat.rsplit_once(')') else { return false };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        fields.first() != Some(&"Z") && fields.get(19).and_then(|ticks| ticks.parse().ok()) == Some(self.started)
    }

    /// `kill -9`, and waits for its end.
    fn kill(&self) -> Result<()> {
        run(Command::new("kill").arg("-9").arg(self.pid.to_string()))?;
        let end = Instant::now() + END_MAX;
        while self.is_running() {
            if Instant::now() >= end {
                return Err(format!("process {} does not end when it is killed", self.pid));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_file_is_read() {
        let text = "{\n  \"name\": \"block-h2\",\n  \"role\": \"block\",\n  \"host\": \"h2\",\n  \"pid\": 417,\n  \"started\": 99\n}";
        let process = Process::parse(text).unwrap();
        assert_eq!((process.pid, process.started), (417, 99));
        assert!(process.belongs_to("h2") && !process.belongs_to("h1") && !process.belongs_to("master"));
    }
}
