//! The interface that each world implements.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use ebb_types::{Result, WallTime};

use crate::{Disk, Listener, LocalListener, LocalStream, Moment, SeededBug, Stream, Words};

/// A boxed future that tasks can carry between threads.
pub type Work<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One world, as one process in it sees it.
pub trait Backend: Send + Sync + 'static {
    /// For debug output.
    fn name(&self) -> &str;
    /// The lease clock.
    fn now(&self) -> Moment;
    /// The wall clock.
    fn wall(&self) -> WallTime;
    /// Completes after `span`.
    fn sleep(&self, span: Duration) -> Work<'static, ()>;
    /// Starts a task; the returned closure stops it.
    fn spawn(&self, name: &'static str, work: Work<'static, ()>) -> Box<dyn Fn() + Send + Sync>;
    /// Polls `work` here. If it is not ready, the rest becomes a task, at the latest when it is woken.
    fn run_or_spawn(&self, name: &'static str, mut work: Work<'static, ()>) {
        // The task polls again at once, so nothing that this poll did not wait to hear of is lost.
        if work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            drop(self.spawn(name, work));
        }
    }
    /// Runs a long computation off the tasks' threads, if there are others.
    fn compute(&self, work: Box<dyn FnOnce() + Send>);
    /// Random bytes.
    fn fill_random(&self, out: &mut [u8]);
    /// See [`crate::Runtime::listen`].
    fn listen<'a>(&'a self, address: &'a str) -> Work<'a, Result<Listener>>;
    /// See [`crate::Runtime::connect`].
    fn connect<'a>(&'a self, address: &'a str) -> Work<'a, Result<Stream>>;
    /// See [`crate::Runtime::listen_local`].
    fn listen_local<'a>(&'a self, path: &'a Path) -> Work<'a, Result<LocalListener>>;
    /// See [`crate::Runtime::connect_local`].
    fn connect_local<'a>(&'a self, path: &'a Path) -> Work<'a, Result<LocalStream>>;
    /// See [`crate::Runtime::make_words`].
    fn make_words(&self, count: usize) -> Result<Words>;
    /// See [`crate::Runtime::disk`].
    fn disk(&self) -> Disk;
    /// See [`crate::Runtime::is_virtual`].
    fn is_virtual(&self) -> bool {
        false
    }
    /// See [`crate::Runtime::has_bug`]. Only a virtual world has one.
    fn bug(&self) -> Option<SeededBug> {
        None
    }
}
