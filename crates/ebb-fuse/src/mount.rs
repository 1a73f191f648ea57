//! Mounting and unmounting, as the program sees it.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ebb_client::Client;
use ebb_runtime::Runtime;
use ebb_types::{Error, Result, err};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::sync::{mpsc, watch};

use crate::abi::init::KernelAbilities;
use crate::abi::reply::Validity;
use crate::client_vfs::ClientVfs;
use crate::device::Device;
use crate::invalidate::Invalidator;
use crate::kernel::{self, Flags, Unmount};
use crate::kernel_cache::KernelCache;
use crate::mountinfo::{self, PointState};
use crate::server::Server;
use crate::session::{Session, handshake};
use crate::vfs::{EntryDetail, Vfs};

/// Options of a mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The mount refuses every change.
    pub read_only: bool,
    /// Other users may use the mount. Root may always set this option.
    /// A mount made by another user needs `user_allow_other` in `/etc/fuse.conf`.
    pub allow_other: bool,
    /// Programs on the mount may run with their owner's rights (set-user-id, set-group-id,
    /// capabilities).
    ///
    /// Without this option these bits are stored and shown, but the kernel ignores them. Otherwise
    /// a peer that can set modes would be root on every host with a mount.
    pub allow_suid: bool,
    /// Device files on the mount open devices of this host. Without this option they can be made
    /// and listed, but not opened.
    pub allow_devices: bool,
    /// Minimum time for which the kernel may use a name without a request, even if it changes.
    ///
    /// Zero: the kernel uses a name only for as long as the client may cache it. Then mounts on all
    /// hosts see a change at once.
    pub entry_timeout: Duration,
    /// The same minimum time for attributes.
    pub attr_timeout: Duration,
    /// Number of threads that read requests. After its first waiting point, a request runs on the
    /// runtime's threads.
    pub threads: usize,
    /// Maximum size of one write request in bytes. It is at most 1 MiB unless the kernel's limit on
    /// pages was raised.
    pub max_write: u32,
    /// Bytes that the kernel reads ahead. Only root can set more than 128 KiB.
    pub readahead_bytes: u64,
}

impl Default for MountOptions {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            read_only: false,
            allow_other: rustix::process::geteuid().is_root(),
            allow_suid: false,
            allow_devices: false,
            entry_timeout: Duration::ZERO,
            attr_timeout: Duration::ZERO,
            threads: cores.clamp(2, 8),
            max_write: 1 << 20,
            readahead_bytes: 4 << 20,
        }
    }
}

/// A mounted file system. A drop of this value does not unmount.
///
/// A process that ends without an unmount leaves a stale mount behind. The next [`mount`] at the
/// same place, or [`unmount`], clears the stale mount.
#[derive(Debug)]
pub struct Mount {
    path: PathBuf,
    runtime: Runtime,
    outcome: watch::Receiver<Option<Result<()>>>,
}

/// Mounts the file system of `client` at `mountpoint`.
///
/// The mount owns the session: it disconnects the client at its end.
///
/// # Errors
/// - The mount point does not exist, is no directory, or is a mount of Ebb already.
/// - This host has no FUSE.
/// - The user may not mount.
pub async fn mount(runtime: &Runtime, client: Client, options: MountOptions, mountpoint: &Path) -> Result<Mount> {
    let listening = client.clone();
    mount_vfs(runtime, Arc::new(ClientVfs::new(client)), options, mountpoint, |caches| {
        listening.set_listener(Arc::new(caches));
    })
    .await
}

/// Mounts any [`Vfs`].
///
/// `listen` gets the kernel's caches before the first request arrives. It must pass on changes by
/// other clients to them.
pub async fn mount_vfs<V: Vfs>(
    runtime: &Runtime,
    vfs: Arc<V>,
    options: MountOptions,
    mountpoint: &Path,
    listen: impl FnOnce(KernelCache),
) -> Result<Mount> {
    let (path, settings) = (mountpoint.to_owned(), options.clone());
    let (path, connection) = runtime.compute(move || connect(&path, &settings)).await?;

    let invalidator = Invalidator::new();
    let caches = KernelCache::new(runtime.clone(), Arc::clone(&invalidator));
    listen(caches.clone());
    let validity = Validity { entry: options.entry_timeout, attr: options.attr_timeout };
    let server = Arc::new(Server::new(vfs, validity, connection.kernel, caches));
    let session = Session::new(runtime.clone(), server, connection.max_write);
    invalidator.start(&connection.devices[0], connection.kernel.keeps_names);
    let ended = match session.start(connection.devices) {
        Ok(ended) => ended,
        Err(error) => {
            // A mount that no thread serves must not stay visible.
            kernel::unmount(&path, Unmount::Forcibly)?;
            return Err(error);
        }
    };
    let (outcome_sender, outcome) = watch::channel(None);
    let watched = path.clone();
    drop(runtime.spawn("fuse mount", async move {
        let served = wait_for_readers(ended, &watched).await;
        let finished = session.finish().await;
        invalidator.close();
        // Every receiver may be gone.
        let _ = outcome_sender.send(Some(served.and(finished)));
    }));
    let (tuned, readahead) = (path.clone(), options.readahead_bytes);
    runtime.compute(move || kernel::set_readahead(&tuned, readahead)).await;
    tracing::info!(path = %path.display(), "mounted");
    Ok(Mount { path, runtime: runtime.clone(), outcome })
}

struct Connection {
    devices: Vec<Arc<Device>>,
    max_write: u32,
    kernel: KernelAbilities,
}

/// Prepares the mount point, mounts, and does the handshake. Blocks for a short time.
fn connect(mountpoint: &Path, options: &MountOptions) -> Result<(PathBuf, Connection)> {
    let path = make_ready(mountpoint)?;
    let flags = Flags {
        read_only: options.read_only,
        allow_other: options.allow_other,
        allow_suid: options.allow_suid,
        allow_devices: options.allow_devices,
    };
    let device = kernel::mount(&path, flags)?;
    let keeps_both = !options.entry_timeout.is_zero() && !options.attr_timeout.is_zero();
    let listings = if keeps_both { EntryDetail::Attributes } else { EntryDetail::Names };
    let connection = handshake(&device, options.max_write, listings).and_then(|agreement| {
        let device = Arc::new(device);
        let mut devices = vec![Arc::clone(&device)];
        for _ in 1..options.threads.max(1) {
            devices.push(Arc::new(device.another()?));
        }
        Ok(Connection { devices, max_write: agreement.max_write, kernel: agreement.kernel })
    });
    match connection {
        Ok(connection) => Ok((path, connection)),
        Err(error) => {
            let _ = kernel::unmount(&path, Unmount::Lazily);
            Err(error.context(format!("mounting at {}", path.display())))
        }
    }
}

/// Resolves the mount point, and unmounts stale mounts there.
fn make_ready(mountpoint: &Path) -> Result<PathBuf> {
    /// Maximum number of stale mounts on top of each other.
    const STACKED_MAX: usize = 16;
    let path = mountinfo::resolve(mountpoint)?;
    for _ in 0..STACKED_MAX {
        match mountinfo::read_state(&path)? {
            PointState::Free => return Ok(path),
            PointState::Serving { .. } => {
                return Err(err!(Busy, "{0} is a mount of Ebb already: `ebb umount {0}` ends it", path.display()));
            }
            PointState::Stale => {
                tracing::info!(path = %path.display(), "clear a mount whose process is gone");
                kernel::unmount(&path, Unmount::Lazily)?;
            }
        }
    }
    Err(err!(Busy, "{} is still not connected after {STACKED_MAX} unmounts", path.display()))
}

/// Returns when the kernel has ended the connection.
///
/// If a reader fails instead, the mount is detached by force: no thread would answer its requests.
async fn wait_for_readers(mut ended: mpsc::UnboundedReceiver<Error>, path: &Path) -> Result<()> {
    let mut outcome = Ok(());
    while let Some(error) = ended.recv().await {
        tracing::error!(path = %path.display(), %error, "stop serving the mount");
        let _ = kernel::unmount(path, Unmount::Forcibly);
        outcome = outcome.and(Err(error));
    }
    outcome
}

impl Mount {
    /// Path of the mount point.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the file system is unmounted, by any process, and the client has ended.
    ///
    /// By then all data are flushed and committed, and all leases are given back.
    pub async fn wait(&self) -> Result<()> {
        let mut outcome = self.outcome.clone();
        match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or(Ok(())),
            Err(_) => Err(err!(ShuttingDown, "the tasks of the mount at {} were stopped", self.path.display())),
        }
    }

    /// Unmounts and waits as [`Mount::wait`] does.
    ///
    /// # Errors
    /// `Busy`: the mount is in use and stays mounted. The error names the processes that use it.
    pub async fn unmount(&self) -> Result<()> {
        self.end(Unmount::IfUnused).await
    }

    /// Unmounts even if the mount is in use, for a process that must end.
    ///
    /// First it writes back the changes of mappings. Then it unmounts. If the mount is in use, it
    /// detaches the mount and cuts off open files. Programs get errors from these files, but no
    /// written byte is lost. It waits as [`Mount::wait`] does.
    pub async fn stop(&self) -> Result<()> {
        let path = self.path.clone();
        // The flush makes requests to this same process, so it needs a thread of its own.
        self.runtime.compute(move || flush_mappings(&path)).await;
        match self.end(Unmount::IfUnused).await {
            Err(error) if error.kind() == ebb_types::ErrorKind::Busy && self.outcome.borrow().is_none() => {
                tracing::warn!(path = %self.path.display(), %error, "unmount regardless");
                self.end(Unmount::Forcibly).await
            }
            outcome => outcome,
        }
    }

    async fn end(&self, how: Unmount) -> Result<()> {
        if self.outcome.borrow().is_none() {
            let path = self.path.clone();
            self.runtime.compute(move || kernel::unmount(&path, how)).await?;
        }
        self.wait().await
    }
}

/// Writes back changed mappings with syncfs(2).
fn flush_mappings(path: &Path) {
    if let Ok(root) = std::fs::File::open(path)
        && let Err(error) = rustix::fs::syncfs(&root)
    {
        tracing::warn!(path = %path.display(), %error, "unmount although not all mappings are written back");
    }
}

/// Unmounts the mount at `path` that another process serves, and waits for the end of the process.
///
/// When this returns, the process has given everything back, so the cluster may be stopped next. A
/// stale mount is cleared. Blocks the calling thread.
///
/// # Errors
/// - `Invalid`: the path is not a mount of Ebb.
/// - `Busy`: the mount is in use. The error names the processes that use it.
/// - `Timeout`: it is unmounted, but the process has not ended within two minutes.
pub fn unmount(path: &Path) -> Result<()> {
    unmount_how(path, Unmount::IfUnused)
}

/// Detaches the mount at `path` even if it is in use, and does not wait.
///
/// The process ends when its last file is closed.
pub fn unmount_lazily(path: &Path) -> Result<()> {
    unmount_how(path, Unmount::Lazily)
}

fn unmount_how(path: &Path, how: Unmount) -> Result<()> {
    let path = mountinfo::resolve(path)?;
    match mountinfo::read_state(&path)? {
        PointState::Stale => kernel::unmount(&path, Unmount::Lazily),
        PointState::Free => Err(err!(Invalid, "{} is not a mount of Ebb", path.display())),
        PointState::Serving { pid } => {
            // The descriptor is opened before the unmount, while the process lives.
            // So its number cannot mean another process. We cannot wait for our own process.
            let process = Pid::from_raw(pid as i32).filter(|_| how == Unmount::IfUnused && pid != std::process::id());
            let process = process.and_then(|process| pidfd_open(process, PidfdFlags::empty()).ok());
            kernel::unmount(&path, how)?;
            process.map_or(Ok(()), |process| wait_for_end(&process, pid, &path))
        }
    }
}

fn wait_for_end(process: &OwnedFd, pid: u32, path: &Path) -> Result<()> {
    const WAIT_MAX_SECONDS: i64 = 120;
    let mut ends = [PollFd::new(process, PollFlags::IN)];
    match poll(&mut ends, Some(&Timespec { tv_sec: WAIT_MAX_SECONDS, tv_nsec: 0 })) {
        Ok(0) => Err(err!(
            Timeout,
            "{} is unmounted, but its process {pid} still writes back after {WAIT_MAX_SECONDS} s",
            path.display()
        )),
        Ok(_) => Ok(()),
        Err(error) => Err(Error::from_io(&error.into(), "waiting for the mount's process")),
    }
}
