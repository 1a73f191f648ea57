//! File systems in files, mounted by way of loop devices.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::{Result, kernel};

/// Bytes of an image; it is sparse. XFS takes no less than 300 MB.
const IMAGE_BYTES: u64 = 1 << 30;
/// Time limit for a file system to stay busy after its processes were killed.
const BUSY_MAX: Duration = Duration::from_secs(20);

/// A kind of file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileSystem {
    Xfs,
    Ext4,
}

impl FileSystem {
    pub const ALL: &'static [Self] = &[Self::Xfs, Self::Ext4];

    pub fn name(self) -> &'static str {
        match self {
            Self::Xfs => "xfs",
            Self::Ext4 => "ext4",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|system| system.name() == name)
    }

    pub fn mkfs(self) -> &'static str {
        match self {
            Self::Xfs => "mkfs.xfs",
            Self::Ext4 => "mkfs.ext4",
        }
    }

    fn make(self, image: &Path) -> Result<()> {
        let quiet: &[&str] = match self {
            Self::Xfs => &["-q", "-f"],
            Self::Ext4 => &["-q", "-F"],
        };
        run(Command::new(self.mkfs()).args(quiet).arg(image))
    }
}

/// A disk of its own at some place of the tree. Unmounted when dropped.
pub struct Image {
    /// Name of its owner.
    pub name: String,
    file: PathBuf,
    mountpoint: PathBuf,
    is_mounted: bool,
}

impl Image {
    /// Makes a disk and mounts it below `scratch`.
    pub fn make(system: FileSystem, scratch: &Path, name: &str) -> Result<Self> {
        let file = scratch.join(format!("{name}.{}", system.name()));
        let mountpoint = scratch.join(format!("mnt-{name}-{}", system.name()));
        let made = fs::File::create(&file).and_then(|made| made.set_len(IMAGE_BYTES));
        made.and_then(|()| fs::create_dir_all(&mountpoint)).map_err(|error| format!("{}: {error}", file.display()))?;
        system.make(&file)?;
        let mut image = Self { name: name.to_owned(), file, mountpoint, is_mounted: false };
        image.mount()?;
        // ext4 makes it; a node's directory has none.
        let _ = fs::remove_dir(image.mountpoint.join("lost+found"));
        Ok(image)
    }

    /// Moves a directory's contents to the disk, and mounts the disk in the directory's place.
    pub fn take_place_of(&mut self, directory: &Path) -> Result<()> {
        let mut from = directory.as_os_str().to_owned();
        from.push("/.");
        run(Command::new("cp").arg("-a").arg(from).arg(&self.mountpoint))?;
        run(Command::new("sync").arg("-f").arg(&self.mountpoint))?;
        self.unmount()?;
        fs::remove_dir_all(directory)
            .and_then(|()| fs::create_dir(directory))
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        self.mountpoint = directory.to_owned();
        self.mount()
    }

    /// Its power fails: unsynced data are lost. It stays mounted, and answers with errors.
    pub fn cut(&self) -> Result<()> {
        kernel::shut_down(&self.mountpoint)
    }

    /// Tries a cut on an empty disk. Synced data must be there afterwards, and unsynced data must be lost.
    pub fn try_cut(&mut self) -> Result<()> {
        let context = |error: std::io::Error| format!("a trial on {}: {error}", self.mountpoint.display());
        let (synced, unsynced) = (self.mountpoint.join("synced"), self.mountpoint.join("unsynced"));
        let made =
            fs::File::create(&synced).and_then(|mut file| file.write_all(&[1; 5000]).and_then(|()| file.sync_all()));
        made.and_then(|()| fs::File::open(&self.mountpoint)?.sync_all()).map_err(context)?;
        fs::write(&unsynced, [2; 5000]).map_err(context)?;
        self.cut()?;
        self.remount()?;
        if fs::read(&synced).ok() != Some(vec![1; 5000]) {
            return Err(format!("{}: a cut lost data that were synced before it", self.file.display()));
        }
        if fs::read(&unsynced).is_ok_and(|bytes| bytes.contains(&2)) {
            return Err(format!("{}: a cut lost no unsynced data: it had no effect", self.file.display()));
        }
        Ok(())
    }

    /// The power is back: the journal is replayed. No process may have files open on it.
    pub fn remount(&mut self) -> Result<()> {
        self.unmount()?;
        self.mount()
    }

    fn mount(&mut self) -> Result<()> {
        // The loop device goes with the mount.
        run(Command::new("mount").args(["-o", "loop"]).arg(&self.file).arg(&self.mountpoint))?;
        self.is_mounted = true;
        Ok(())
    }

    fn unmount(&mut self) -> Result<()> {
        let end = Instant::now() + BUSY_MAX;
        loop {
            match run(Command::new("umount").arg(&self.mountpoint)) {
                Ok(()) => break,
                Err(sentence) if Instant::now() >= end => return Err(sentence),
                // Disk requests of a killed process end a little after it.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        self.is_mounted = false;
        Ok(())
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.is_mounted && self.unmount().is_err() {
            let _ = run(Command::new("umount").arg("-l").arg(&self.mountpoint));
        }
    }
}

/// Unmounts the mounts that an earlier run left below `scratch`, and removes the directory.
pub fn clear(scratch: &Path) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts").map_err(|error| format!("/proc/self/mounts: {error}"))?;
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(Path::new);
    let mut left: Vec<&Path> = points.filter(|point| point.starts_with(scratch)).collect();
    // The last mount is unmounted first.
    left.reverse();
    for point in left {
        run(Command::new("umount").arg("-l").arg(point))?;
    }
    match fs::remove_dir_all(scratch) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {error}", scratch.display())),
        _ => Ok(()),
    }
}

/// Runs a program. The error has its output.
pub fn run(command: &mut Command) -> Result<()> {
    let output = command.output().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let (program, arguments): (_, Vec<_>) = (command.get_program(), command.get_args().collect());
    Err(format!("{program:?} {arguments:?}: {}: {}", output.status, words.trim()))
}
