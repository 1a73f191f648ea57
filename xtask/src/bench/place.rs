//! Places for the load: a directory of the local disk, a mount that does nothing, a cluster's mount.

use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Block servers of the cluster: as many as there are copies.
const NODES: u32 = 3;
/// Time limit for a mount to appear.
const PATIENCE: Duration = Duration::from_secs(60);

/// Kind of a place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// The file system that the cluster's volumes are on; one copy, no network.
    Disk,
    /// A mount that does nothing: the cost of the kernel and the FUSE server.
    BareMount,
    /// A cluster's mount.
    Cluster,
}

impl Kind {
    /// Short name, for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::BareMount => "bare mount",
            Self::Cluster => "ebb",
        }
    }
}

/// A place for load.
pub enum Place {
    /// A directory of the file system that the build is on.
    Disk(PathBuf),
    /// A mount with requests through the kernel, and no work for them.
    Bare(Bare),
    /// The mount of a cluster.
    Cluster(Cluster),
}

/// A process with processor time that counts.
pub struct Daemon {
    /// "master", "block", "mount"; several processes may have one role.
    pub role: String,
    /// Process id.
    pub pid: u32,
}

impl Place {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Disk(_) => Kind::Disk,
            Self::Bare(_) => Kind::BareMount,
            Self::Cluster(_) => Kind::Cluster,
        }
    }

    /// Directory for files.
    pub fn root(&self) -> &Path {
        match self {
            Self::Disk(root) => root,
            Self::Bare(bare) => &bare.mountpoint,
            Self::Cluster(cluster) => &cluster.mountpoint,
        }
    }

    /// Drops the caches of the kernel and of a cluster's mount, which is mounted anew.
    pub fn chill(&mut self) -> Result<()> {
        if let Self::Cluster(cluster) = self {
            cluster.unmount()?;
            drop_caches()?;
            return cluster.mount();
        }
        drop_caches()
    }

    /// Processes that serve it.
    pub fn daemons(&self) -> Vec<Daemon> {
        match self {
            Self::Disk(_) => Vec::new(),
            Self::Bare(bare) => vec![Daemon { role: "mount".to_owned(), pid: bare.process.id() }],
            Self::Cluster(cluster) => cluster.daemons(),
        }
    }
}

/// Makes the kernel write back dirty pages and drop clean ones. Only root may do that.
fn drop_caches() -> Result<()> {
    run(&mut Command::new("sync"))?;
    std::fs::write("/proc/sys/vm/drop_caches", "3")
        .map_err(|error| Error::other(format!("dropping the kernel's caches, which only root may: {error}")))
}

/// `examples/bare.rs` of `ebb-fuse`, mounted.
pub struct Bare {
    mountpoint: PathBuf,
    process: Child,
}

impl Bare {
    /// Mounts it below `scratch`.
    pub fn start(program: &Path, scratch: &Path) -> Result<Self> {
        let mountpoint = scratch.join("bare");
        std::fs::create_dir_all(&mountpoint)?;
        let before = device(&mountpoint)?;
        let process = Command::new(program).arg(&mountpoint).stdin(Stdio::null()).spawn()?;
        let bare = Self { mountpoint, process };
        let begun = Instant::now();
        while device(&bare.mountpoint).ok() == Some(before) {
            if begun.elapsed() > PATIENCE {
                return Err(Error::other("the mount that does nothing does not appear"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(bare)
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let unmounted = run(Command::new("umount").arg(&self.mountpoint));
        if unmounted.is_err() {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

/// A cluster of this machine's own processes, with one mount.
pub struct Cluster {
    program: PathBuf,
    directory: PathBuf,
    mountpoint: PathBuf,
}

impl Cluster {
    /// A new cluster with three copies of everything. It is removed when dropped.
    pub fn start(program: &Path, scratch: &Path) -> Result<Self> {
        let (directory, mountpoint) = (scratch.join("cluster"), scratch.join("ebb"));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&mountpoint)?;
        let cluster = Self { program: program.to_owned(), directory, mountpoint };
        cluster.up()?;
        cluster.mount()?;
        Ok(cluster)
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

    fn ebb(&self, words: &[&str]) -> Result<()> {
        run(Command::new(&self.program).args(words).arg("--dir").arg(&self.directory))
    }

    fn up(&self) -> Result<()> {
        self.ebb(&["cluster", "up", "--nodes", &NODES.to_string()])
    }

    fn down(&self) -> Result<()> {
        self.ebb(&["cluster", "down"])
    }

    fn mount(&self) -> Result<()> {
        let mut command = Command::new(&self.program);
        run(command.arg("mount").arg("--dir").arg(&self.directory).arg(&self.mountpoint))
    }

    fn unmount(&self) -> Result<()> {
        let mut command = Command::new(&self.program);
        run(command.arg("umount").arg(&self.mountpoint))
    }

    /// One file for each process; its name begins with the role.
    fn daemons(&self) -> Vec<Daemon> {
        let Ok(entries) = std::fs::read_dir(self.directory.join("run")) else { return Vec::new() };
        let daemon = |entry: std::fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let role = name.split(['-', '.']).next()?.to_owned();
            let text = std::fs::read_to_string(entry.path()).ok()?;
            let digits = text.split("\"pid\":").nth(1)?.trim_start();
            let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
            Some(Daemon { role, pid: digits[..end].parse().ok()? })
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

/// Device of a directory. It changes when something is mounted there.
fn device(path: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata(path)?.dev())
}

/// Runs a program that prints nothing on success.
fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let program = command.get_program().to_string_lossy().into_owned();
    Err(Error::other(format!("{program}: {}: {}", output.status, stderr.trim())))
}
