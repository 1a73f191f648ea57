//! The real world: Linux.
//!
//! Sockets are tokio's; files are plain descriptors. Calls that can wait for a disk run on tokio's blocking pool, with
//! two exceptions. A read of cached bytes asks the kernel not to wait (`preadv2` with `RWF_NOWAIT`): it costs one
//! system call and no change of thread. Syncs of a file run in place while they have been short of late. Every
//! descriptor is opened close-on-exec.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod begun;
mod compress;
mod disk;
mod file;
mod local;
pub mod memory;
mod net;
mod pace;
mod private;
mod words;

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ebb_types::{Result, WallTime};
use rustix::time::{ClockId, Timespec, clock_gettime};
use tokio::runtime::Handle;

use crate::backend::{Backend, Work};
use crate::{Disk, Listener, LocalListener, LocalStream, Moment, Stream, Words};

/// Linux.
#[derive(Debug)]
pub struct RealBackend {
    /// The tokio runtime that this was made in, for callers on threads of their own (a mount's, for example).
    home: Option<Handle>,
}

impl Default for RealBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl RealBackend {
    /// A door to Linux.
    #[must_use]
    pub fn new() -> Self {
        Self { home: Handle::try_current().ok() }
    }

    /// The tokio runtime of the caller, or else the one that this was made in.
    fn tokio(&self) -> Handle {
        Handle::try_current()
            .ok()
            .or_else(|| self.home.clone())
            .expect("Runtime::real() is made, or used, within a tokio runtime")
    }
}

impl Backend for RealBackend {
    fn name(&self) -> &str {
        "real"
    }

    fn now(&self) -> Moment {
        let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Boottime);
        Moment(Duration::new(tv_sec.unsigned_abs(), tv_nsec.unsigned_abs() as u32))
    }

    fn wall(&self) -> WallTime {
        // Through the C library, so that a test can have one process see another time.
        let nanos = |span: Duration| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
        WallTime(SystemTime::now().duration_since(UNIX_EPOCH).map_or_else(|error| -nanos(error.duration()), nanos))
    }

    fn sleep(&self, span: Duration) -> Work<'static, ()> {
        Box::pin(tokio::time::sleep(span))
    }

    fn spawn(&self, name: &'static str, work: Work<'static, ()>) -> Box<dyn Fn() + Send + Sync> {
        tracing::trace!(name, "start a task");
        let stop = self.tokio().spawn(work).abort_handle();
        Box::new(move || stop.abort())
    }

    fn run_or_spawn(&self, name: &'static str, work: Work<'static, ()>) {
        tracing::trace!(name, "begin a task");
        begun::run_or_spawn(self.tokio(), work);
    }

    fn compute(&self, work: Box<dyn FnOnce() + Send>) {
        self.tokio().spawn_blocking(work);
    }

    fn fill_random(&self, out: &mut [u8]) {
        getrandom::fill(out).expect("Linux's generator does not fail once the system has booted");
    }

    fn listen<'a>(&'a self, address: &'a str) -> Work<'a, Result<Listener>> {
        Box::pin(net::listen(address))
    }

    fn connect<'a>(&'a self, address: &'a str) -> Work<'a, Result<Stream>> {
        Box::pin(net::connect(address))
    }

    fn listen_local<'a>(&'a self, path: &'a Path) -> Work<'a, Result<LocalListener>> {
        Box::pin(local::listen(path))
    }

    fn connect_local<'a>(&'a self, path: &'a Path) -> Work<'a, Result<LocalStream>> {
        Box::pin(local::connect(path))
    }

    fn make_words(&self, count: usize) -> Result<Words> {
        words::RealWords::make(count).map(Words::new)
    }

    fn disk(&self) -> Disk {
        Disk::new(disk::RealDisk)
    }
}

/// Runs a system call that may wait for a disk on tokio's blocking pool.
///
/// Cancel-safety: dropping the future does not stop the call; it is carried out, and its result is forgotten.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        // The pool is torn down with the runtime: work that is still queued is cancelled.
        Err(error) if error.is_cancelled() => Err(ebb_types::err!(ShuttingDown, "the process is shutting down")),
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
