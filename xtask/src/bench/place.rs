//! Places for the load: a directory of the local disk, a mount that does nothing, a cluster's mount.

use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::cluster::{Cluster, Daemon};

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
            Self::Cluster(cluster) => cluster.root(),
        }
    }

    /// Drops the caches of the kernel and of a cluster's mount, which is mounted anew.
    pub fn chill(&mut self) -> Result<()> {
        match self {
            Self::Cluster(cluster) => cluster.chill(),
            Self::Disk(_) | Self::Bare(_) => drop_caches(),
        }
    }

    /// Processes that serve it.
    pub fn daemons(&self) -> Vec<Daemon> {
        match self {
            Self::Disk(_) => Vec::new(),
            Self::Bare(bare) => {
                vec![Daemon { role: "mount".to_owned(), name: "bare".to_owned(), pid: bare.process.id() }]
            }
            Self::Cluster(cluster) => cluster.daemons(),
        }
    }
}

/// Makes the kernel write back dirty pages and drop clean ones. Only root may do that.
pub fn drop_caches() -> Result<()> {
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

/// Device of a directory. It changes when something is mounted there.
fn device(path: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata(path)?.dev())
}

/// Runs a program that prints nothing on success.
pub fn run(command: &mut Command) -> Result<()> {
    output_of(command).map(drop)
}

/// Runs a program, and returns what it prints.
pub fn output_of(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let program = command.get_program().to_string_lossy().into_owned();
    Err(Error::other(format!("{program}: {}: {}", output.status, stderr.trim())))
}
