//! Names, directories and the space behind them.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use ebb_types::{Result, bail};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, ftruncate};
use rustix::io::Errno;

use super::file::{RealFile, error, retry};
use super::{blocking, compress, private};
use crate::backend::Work;
use crate::disk::{Compression, DirLock, DiskBackend, File, FileSystem, FileSystemBackend, OpenMode, Space};

/// The file in a directory whose lock stands for the directory.
pub(crate) const LOCK_NAME: &str = ".lock";

/// The file systems of this machine.
pub(super) struct RealDisk;

/// Runs a call on a path that may wait for the disk; `doing` is for the error's sentence.
fn on_path<'a, T: Send + 'static>(
    doing: &'static str,
    path: &Path,
    call: impl Fn(&Path) -> rustix::io::Result<T> + Send + 'static,
) -> Work<'a, Result<T>> {
    let path = path.to_owned();
    Box::pin(blocking(move || retry(|| call(&path)).map_err(|errno| error(errno, doing, &path))))
}

impl DiskBackend for RealDisk {
    fn open<'a>(&'a self, path: &'a Path, mode: OpenMode) -> Work<'a, Result<File>> {
        let flags = OFlags::CLOEXEC
            | match mode {
                // A pipe without a writer would hold the thread for ever.
                OpenMode::ReadOnly => OFlags::RDONLY | OFlags::NONBLOCK,
                OpenMode::Existing => OFlags::RDWR,
                OpenMode::Create => OFlags::RDWR | OFlags::CREATE,
                OpenMode::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
            };
        Box::pin(async move {
            let descriptor = on_path("open", path, move |path| open(path, flags)).await?;
            Ok(File::new(RealFile::new(descriptor, path), path))
        })
    }

    fn create_dir_all<'a>(&'a self, path: &'a Path) -> Work<'a, Result<()>> {
        let directory = path.to_owned();
        Box::pin(async move {
            on_path("make the directory", path, create_dir_all).await?;
            blocking(move || private::narrow(&directory)).await
        })
    }

    fn read_dir<'a>(&'a self, path: &'a Path) -> Work<'a, Result<Vec<String>>> {
        on_path("list", path, |path| {
            let mut names = Vec::new();
            for entry in errno(std::fs::read_dir(path))? {
                names.push(errno(entry)?.file_name().to_string_lossy().into_owned());
            }
            names.sort_unstable();
            Ok(names)
        })
    }

    fn rename<'a>(&'a self, source: &'a Path, target: &'a Path) -> Work<'a, Result<()>> {
        let target = target.to_owned();
        on_path("rename", source, move |source| rustix::fs::rename(source, &target))
    }

    fn remove_file<'a>(&'a self, path: &'a Path) -> Work<'a, Result<()>> {
        on_path("remove", path, |path| rustix::fs::unlink(path))
    }

    fn exists<'a>(&'a self, path: &'a Path) -> Work<'a, Result<bool>> {
        on_path("look for", path, |path| match rustix::fs::stat(path) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(errno) => Err(errno),
        })
    }

    fn sync_dir<'a>(&'a self, path: &'a Path) -> Work<'a, Result<()>> {
        on_path("sync the directory", path, sync_dir)
    }

    fn space<'a>(&'a self, path: &'a Path) -> Work<'a, Result<Space>> {
        on_path("find the space of", path, |path| {
            let stat = rustix::fs::statvfs(path)?;
            // f_bavail, not f_bfree: space that is reserved for root is not ours to fill.
            let (capacity_bytes, free_bytes) = (stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize);
            Ok(Space { capacity_bytes, free_bytes, device: device(rustix::fs::stat(path)?.st_dev) })
        })
    }

    fn lock_dir<'a>(&'a self, path: &'a Path) -> Work<'a, Result<DirLock>> {
        let directory = path.to_owned();
        Box::pin(blocking(move || lock(&directory)))
    }

    fn file_system<'a>(&'a self, path: &'a Path) -> Work<'a, Result<FileSystem>> {
        Box::pin(async move {
            let directory = on_path("open the directory", path, |path| open(path, DIRECTORY)).await?;
            Ok(FileSystem::new(RealFileSystem { directory: Arc::new(directory), path: path.to_owned() }))
        })
    }
}

/// Of a file system, a directory that is held open: the kernel reports errors that came after it was opened (since
/// Linux 5.8).
struct RealFileSystem {
    directory: Arc<OwnedFd>,
    path: PathBuf,
}

impl FileSystemBackend for RealFileSystem {
    fn sync_all(&self) -> Work<'_, Result<()>> {
        let directory = self.directory.clone();
        on_path("sync the file system of", &self.path, move |_| rustix::fs::syncfs(&directory))
    }

    fn compression(&self) -> Work<'_, Result<Option<Compression>>> {
        let directory = self.directory.clone();
        on_path("look for the compression of", &self.path, move |_| compress::wanted(directory.as_fd()))
    }
}

/// A device's number among all machines': mixed with the machine's boot id (random(4)), which all its processes see, also
/// those in containers.
fn device(number: u64) -> u64 {
    static MACHINE: OnceLock<Vec<u8>> = OnceLock::new();
    let machine = MACHINE.get_or_init(|| std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default());
    if machine.is_empty() {
        return 0;
    }
    // FNV-1a: any good mixture will do.
    let bytes = machine.iter().copied().chain(number.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)).max(1)
}

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

fn open(path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, flags, private::FILE)
}

/// A directory's entries are its data, but its new blocks are metadata: fsync, not fdatasync.
fn sync_dir(path: &Path) -> rustix::io::Result<()> {
    rustix::fs::fsync(rustix::fs::open(path, DIRECTORY, Mode::empty())?)
}

/// Makes the directory and those above it, each durable in the one above it.
fn create_dir_all(path: &Path) -> rustix::io::Result<()> {
    // An empty parent is how a relative path spells the working directory.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match rustix::fs::mkdir(path, private::DIRECTORY) {
        Ok(()) => sync_dir(parent),
        Err(Errno::NOENT) if parent != path && parent != Path::new(".") => {
            create_dir_all(parent)?;
            create_dir_all(path)
        }
        Err(Errno::EXIST) if rustix::fs::stat(path)?.st_mode & libc::S_IFMT == libc::S_IFDIR => Ok(()),
        Err(Errno::EXIST) => Err(Errno::NOTDIR),
        Err(errno) => Err(errno),
    }
}

fn errno<T>(result: std::io::Result<T>) -> rustix::io::Result<T> {
    result.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Takes `.lock` in the directory with flock(2). The kernel lets go of it when the process ends, however it ends; the
/// pid in the file is for people and is believed only while the lock is held.
fn lock(directory: &Path) -> Result<DirLock> {
    private::narrow(directory)?;
    let path: PathBuf = directory.join(LOCK_NAME);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let file = retry(|| open(&path, flags)).map_err(|errno| error(errno, "open", &path))?;
    match retry(|| flock(&file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => bail!(
            Busy,
            "{} is in use by process {}: stop it first, or choose another directory",
            directory.display(),
            read_pid(&file)
        ),
        Err(errno) => return Err(error(errno, "lock", &path)),
    }
    let pid = std::process::id().to_string();
    retry(|| ftruncate(&file, 0))
        .and_then(|()| retry(|| rustix::io::pwrite(&file, pid.as_bytes(), 0)))
        .map_err(|errno| error(errno, "write", &path))?;
    Ok(DirLock::new(file))
}

fn read_pid(file: &OwnedFd) -> String {
    let mut text = [0; 16];
    let len = retry(|| rustix::io::pread(file, &mut text, 0)).unwrap_or(0);
    match std::str::from_utf8(&text[..len]).map(str::trim) {
        Ok(pid) if !pid.is_empty() => pid.to_owned(),
        _ => "(unknown)".to_owned(),
    }
}
