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

/// How a mount behaves.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Nothing can be changed through it.
    pub read_only: bool,
    /// Other users may use it. Root always may; others need `user_allow_other` in `/etc/fuse.conf`.
    pub allow_other: bool,
    /// Programs on the mount may run with their owner's rights (set-user-id, set-group-id, capabilities). Otherwise these bits
    /// are kept and shown, and the kernel ignores them: a peer that can set modes would be root on every host that mounts.
    pub allow_suid: bool,
    /// Device files on the mount open devices of this host. Otherwise they can be made and seen, and not opened.
    pub allow_devices: bool,
    /// How long the kernel may believe a name without asking, whatever happens. Zero: for as long as the client may keep
    /// it, so that mounts on all hosts see a change at once.
    pub entry_timeout: Duration,
    /// The same for attributes.
    pub attr_timeout: Duration,
    /// Threads that read requests; work beyond their first step runs on the runtime's threads.
    pub threads: usize,
    /// Bytes of one write request, at most 1 MiB unless the kernel's limit on pages was raised.
    pub max_write: u32,
    /// Bytes that the kernel reads ahead; it takes more than 128 KiB only from root.
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

/// A mounted file system. Dropping it does not unmount; a process that ends leaves a stale mount behind, which the
/// next [`mount`] at the same place, or [`unmount`], clears.
#[derive(Debug)]
pub struct Mount {
    path: PathBuf,
    runtime: Runtime,
    outcome: watch::Receiver<Option<Result<()>>>,
}

/// Mounts what `client` sees at `mountpoint`. The mount owns the session: it disconnects the client when it ends.
///
/// # Errors
/// A mount point that does not exist, is no directory or is a mount of Ebb already; no FUSE here, or not permitted.
pub async fn mount(runtime: &Runtime, client: Client, options: MountOptions, mountpoint: &Path) -> Result<Mount> {
    let listening = client.clone();
    mount_vfs(runtime, Arc::new(ClientVfs::new(client)), options, mountpoint, |caches| {
        listening.set_listener(Arc::new(caches));
    })
    .await
}

/// Mounts any [`Vfs`]. `listen` is handed what must hear of changes by others, before the first request comes.
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
            // What cannot be served must not stay in sight.
            kernel::unmount(&path, Unmount::Forcibly)?;
            return Err(error);
        }
    };
    let (tell, outcome) = watch::channel(None);
    let watched = path.clone();
    drop(runtime.spawn("fuse mount", async move {
        let served = wait_for_readers(ended, &watched).await;
        let finished = session.finish().await;
        invalidator.close();
        // Everybody who held the mount may be gone.
        let _ = tell.send(Some(served.and(finished)));
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

/// Makes the mount point ready, mounts, shakes hands. Blocks shortly.
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

/// The resolved mount point, freed of a mount whose process is gone.
fn make_ready(mountpoint: &Path) -> Result<PathBuf> {
    /// Mounts of dead processes may lie on top of each other.
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

/// Returns when the kernel has ended the connection. If it is we who can no longer read, the mount is taken out of
/// sight, for nobody would answer there.
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
    /// Where.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns when the file system is unmounted, by whomever, and everything is flushed, committed and given back.
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
    /// `Busy`, naming who uses it: then it is still mounted.
    pub async fn unmount(&self) -> Result<()> {
        self.end(Unmount::IfUnused).await
    }

    /// For a process that was told to end: unmounts if nobody uses the mount. If somebody does, takes it out of sight,
    /// writes back what mappings have changed, and cuts open files off: their users get errors, but nothing that was
    /// written is lost. Waits as [`Mount::wait`] does.
    pub async fn stop(&self) -> Result<()> {
        let path = self.path.clone();
        // Flushing mappings makes requests to ourselves, hence on a thread of its own.
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

/// syncfs(2) on the mount.
fn flush_mappings(path: &Path) {
    if let Ok(root) = std::fs::File::open(path)
        && let Err(error) = rustix::fs::syncfs(&root)
    {
        tracing::warn!(path = %path.display(), %error, "unmount although not all mappings are written back");
    }
}

/// Ends the mount at `path` that another process serves, and returns when that process has given everything back and
/// ended, so that the cluster may be stopped next. A mount whose process is gone is cleared. Blocks its thread.
///
/// # Errors
/// `Invalid`: nothing of Ebb is mounted there. `Busy`: in use; the error names by whom. `Timeout`: unmounted, but the
/// process has not ended within two minutes.
pub fn unmount(path: &Path) -> Result<()> {
    unmount_how(path, Unmount::IfUnused)
}

/// As [`unmount`], but takes a mount in use out of sight; the process ends when its last file is closed, which is not
/// waited for.
pub fn unmount_lazily(path: &Path) -> Result<()> {
    unmount_how(path, Unmount::Lazily)
}

fn unmount_how(path: &Path, how: Unmount) -> Result<()> {
    let path = mountinfo::resolve(path)?;
    match mountinfo::read_state(&path)? {
        PointState::Stale => kernel::unmount(&path, Unmount::Lazily),
        PointState::Free => Err(err!(Invalid, "{} is not a mount of Ebb", path.display())),
        PointState::Serving { pid } => {
            // Opened while it is known to live, so that its number cannot mean another process. Our own cannot be
            // waited for.
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
