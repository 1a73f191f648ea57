//! The only access to the outside world: time, tasks, randomness, network and disk.
//!
//! No other crate reads a clock, opens a socket or a file, or draws a random number. Clippy's list of disallowed
//! methods enforces this. The programs at the rim (command line, mount, power drivers, lab) are exceptions, and allow
//! these methods by name.
//!
//! All code above this crate is written once and runs on two back ends:
//! - [`real`] is Linux.
//! - [`virt`] is a seeded world on virtual time, with modelled links and disks. A crash there loses what was not
//!   synced.
//!
//! Reading order: [`Runtime`], [`net`], [`disk`], [`local`], then the back ends.

mod backend;
#[cfg(test)]
mod conformance;
pub mod disk;
pub mod local;
pub mod net;
mod owned;
pub mod real;
pub mod seeded_bug;
mod task;
pub mod virt;

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use backend::{Backend, Work};
pub use disk::{ALIGNMENT, Compression, DirLock, Disk, File, FileSystem, OpenMode, Space, transfer_buffer};
use ebb_types::{Result, WallTime, err};
pub use local::{LocalListener, LocalPeer, LocalStream, Parcel, Thing, Words};
pub use net::{Listener, ReadHalf, Stream, WriteHalf};
pub use owned::Owned;
pub use seeded_bug::SeededBug;
pub use task::Task;

/// A moment on a clock that goes on while the host is suspended (CLOCK_BOOTTIME), counted from an arbitrary start.
/// Leases and deadlines are measured on it, never on wall time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Moment(pub Duration);

impl Moment {
    /// This moment, `span` later.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0 + span)
    }

    /// How long ago `earlier` was; zero if it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// The world as one process sees it. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    backend: Arc<dyn Backend>,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Runtime({})", self.backend.name())
    }
}

impl Runtime {
    /// A runtime on this back end.
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self { backend }
    }

    /// The real world. Needs a running tokio runtime for everything that waits.
    #[must_use]
    pub fn real() -> Self {
        Self::new(Arc::new(real::RealBackend::new()))
    }

    /// The moment on the lease clock.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.backend.now()
    }

    /// Wall-clock time: for timestamps that people see and for power plans.
    #[must_use]
    pub fn wall(&self) -> WallTime {
        self.backend.wall()
    }

    /// Waits for `span`.
    pub async fn sleep(&self, span: Duration) {
        self.backend.sleep(span).await;
    }

    /// Runs `work` for at most `span`; then drops it and fails with kind `Timeout`. The sentence names `purpose`.
    pub async fn timeout<T>(&self, span: Duration, purpose: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            done = work => done,
            () = self.backend.sleep(span) => Err(err!(Timeout, "{purpose}: no answer within {} ms", span.as_millis())),
        }
    }

    /// Starts a task of this process. It ends with the process; dropping the [`Task`] does not stop it.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Task<T> {
        task::spawn(&*self.backend, name, work)
    }

    /// Does `work` here and now up to its first waiting point, and the rest as a task that cannot be stopped. So work
    /// that never waits costs no change of thread. The caller holds no lock that `work` takes. A panic ends the work
    /// alone.
    pub fn run_or_spawn(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let work = Box::pin(work);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.backend.run_or_spawn(name, work))) {
            // In a task it is reported as that of any task is.
            drop(self.spawn(name, async move { resume_unwind(panic) }));
        }
    }

    /// Runs a computation that takes long (milliseconds) without holding up other tasks.
    pub async fn compute<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        task::compute(&*self.backend, work).await
    }

    /// 64 random bits (seeded in the virtual world).
    #[must_use]
    pub fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill_random(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Fills `out` with random bytes good enough for nonces and secrets (in the real world).
    pub fn fill_random(&self, out: &mut [u8]) {
        self.backend.fill_random(out);
    }

    /// Listens on `address` (`ip:port`, port 0 for any).
    pub async fn listen(&self, address: &str) -> Result<Listener> {
        self.backend.listen(address).await
    }

    /// Connects to `address`. The caller sets the deadline with [`Runtime::timeout`].
    pub async fn connect(&self, address: &str) -> Result<Stream> {
        self.backend.connect(address).await
    }

    /// Listens for processes of this host by a name in the file system. A file of that name is removed.
    pub async fn listen_local(&self, path: &Path) -> Result<LocalListener> {
        self.backend.listen_local(path).await
    }

    /// Connects to the process of this host that listens by this name. Kind `Unreachable` if none does.
    pub async fn connect_local(&self, path: &Path) -> Result<LocalStream> {
        self.backend.connect_local(path).await
    }

    /// So many numbers, all zero, in memory that can be passed to other processes of this host.
    pub fn make_words(&self, count: usize) -> Result<Words> {
        self.backend.make_words(count)
    }

    /// Whether this bug is seeded in the world. Never in the real one; see [`seeded_bug`].
    #[must_use]
    pub fn has_bug(&self, bug: SeededBug) -> bool {
        self.backend.bug() == Some(bug)
    }

    /// Whether this is a virtual world, where a process is what it says that it is.
    #[must_use]
    pub fn is_virtual(&self) -> bool {
        self.backend.is_virtual()
    }

    /// The disks of this process.
    #[must_use]
    pub fn disk(&self) -> Disk {
        self.backend.disk()
    }
}
