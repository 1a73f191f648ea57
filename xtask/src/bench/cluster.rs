//! A cluster of this machine's own processes, with one mount.

use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::place::{drop_caches, output_of, run};

/// Time for a process that was killed to end.
const ENDING: Duration = Duration::from_secs(20);

/// How a cluster is started.
#[derive(Clone, Copy)]
pub struct Shape<'a> {
    /// Name of its directory and mount point.
    pub name: &'a str,
    /// Block servers.
    pub nodes: u32,
    /// Further arguments of `ebb cluster up`.
    pub up: &'a [&'a str],
    /// Further arguments of `ebb mount`.
    pub mount: &'a [&'a str],
    /// What its processes log. Empty: as they do by themselves.
    pub log: &'a str,
}

impl Shape<'_> {
    /// As many block servers as there are copies.
    pub const PLAIN: Self = Self { name: "cluster", nodes: 3, up: &[], mount: &[], log: "" };
}

/// A process with processor time that counts.
pub struct Daemon {
    /// "master", "block", "mount"; several processes may have one role.
    pub role: String,
    /// Name, such as "block-h3".
    pub name: String,
    /// Process id.
    pub pid: u32,
}

/// A running cluster. It is ended and removed when dropped.
pub struct Cluster {
    program: PathBuf,
    directory: PathBuf,
    mountpoint: PathBuf,
    nodes: u32,
    up: Vec<String>,
    mount: Vec<String>,
    log: String,
}

impl Cluster {
    /// A new cluster below `scratch`, with a mount.
    pub fn start(program: &Path, scratch: &Path, shape: Shape<'_>) -> Result<Self> {
        let (directory, mountpoint) = (scratch.join(shape.name), scratch.join(format!("{}.mount", shape.name)));
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let cluster = Self {
            program: program.to_owned(),
            directory,
            mountpoint,
            nodes: shape.nodes,
            up: owned(shape.up),
            mount: owned(shape.mount),
            log: shape.log.to_owned(),
        };
        cluster.remove_leftovers();
        std::fs::create_dir_all(&cluster.mountpoint)?;
        cluster.up()?;
        cluster.mount()?;
        Ok(cluster)
    }

    /// What an earlier run left, if it was killed.
    fn remove_leftovers(&self) {
        if self.directory.exists() {
            let _ = self.unmount();
            let _ = self.down();
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }

    /// Directory of its mount.
    pub fn root(&self) -> &Path {
        &self.mountpoint
    }

    /// Seconds from nothing running, with caches dropped, until the mount answers.
    pub fn cold_start(&self) -> Result<f64> {
        self.unmount()?;
        self.down()?;
        drop_caches()?;
        let begun = Instant::now();
        self.up()?;
        self.mount()?;
        std::fs::read_dir(&self.mountpoint)?.count();
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Mounts anew, with the kernel's caches dropped.
    pub fn chill(&self) -> Result<()> {
        self.unmount()?;
        drop_caches()?;
        self.mount()
    }

    /// Mounts anew: what the mount keeps is gone, and the kernel's caches of the nodes stay.
    pub fn mount_anew(&self) -> Result<()> {
        self.unmount()?;
        self.mount()
    }

    /// A command of `ebb` for this cluster.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).arg("--dir").arg(&self.directory);
        if !self.log.is_empty() {
            command.env("EBB_LOG", &self.log);
        }
        command
    }

    /// Runs a command of `ebb`, and returns what it prints.
    pub fn ebb(&self, words: &[&str]) -> Result<String> {
        output_of(&mut self.command(words))
    }

    fn up(&self) -> Result<()> {
        run(self.command(&["cluster", "up", "--nodes", &self.nodes.to_string()]).args(&self.up))
    }

    fn down(&self) -> Result<()> {
        self.ebb(&["cluster", "down"]).map(drop)
    }

    fn mount(&self) -> Result<()> {
        run(self.command(&["mount"]).args(&self.mount).arg(&self.mountpoint))
    }

    fn unmount(&self) -> Result<()> {
        run(Command::new(&self.program).arg("umount").arg(&self.mountpoint))
    }

    /// Directories of the nodes' volumes.
    pub fn volumes(&self) -> Result<Vec<PathBuf>> {
        let mut volumes = Vec::new();
        for node in std::fs::read_dir(self.directory.join("nodes"))? {
            let entries = std::fs::read_dir(node?.path())?.flatten().map(|entry| entry.path());
            volumes.extend(entries.filter(|path| path.join("replicas").is_dir()));
        }
        Ok(volumes)
    }

    /// What a process has logged, by its name.
    pub fn log(&self, name: &str) -> Result<String> {
        std::fs::read_to_string(self.directory.join("log").join(format!("{name}.log")))
    }

    /// Kills a process of this cluster, by its name, and waits for its end: until then its processor time would count.
    pub fn kill(&self, name: &str) -> Result<()> {
        let daemon = self.daemons().into_iter().find(|daemon| daemon.name == name);
        let daemon = daemon.ok_or_else(|| Error::other(format!("there is no process {name}")))?;
        run(Command::new("kill").arg("-9").arg(daemon.pid.to_string()))?;
        let begun = Instant::now();
        while Path::new(&format!("/proc/{}", daemon.pid)).exists() {
            if begun.elapsed() > ENDING {
                return Err(Error::other(format!("{name} does not end when it is killed")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Its processes. Each has a file.
    pub fn daemons(&self) -> Vec<Daemon> {
        let Ok(entries) = std::fs::read_dir(self.directory.join("run")) else { return Vec::new() };
        let daemon = |entry: std::fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?.strip_suffix(".json")?.to_owned();
            let role = name.split('-').next()?.to_owned();
            let text = std::fs::read_to_string(entry.path()).ok()?;
            let digits = text.split("\"pid\":").nth(1)?.trim_start();
            let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
            Some(Daemon { role, name, pid: digits[..end].parse().ok()? })
        };
        entries.flatten().filter_map(daemon).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.unmount();
        let _ = self.down();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
