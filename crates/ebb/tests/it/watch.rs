//! Watchdogs for tests that would go on forever: such a test takes the whole run with it, and it is not known which it
//! was.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Asks the workers of a scope to stop when it is dropped, also because the thread that leads them panics: the scope
/// waits for them before it passes the panic on.
pub struct StopAtEnd<'a>(pub &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How many minutes a test may have its cluster; more with this variable.
const MINUTES: &str = "EBB_TEST_MINUTES";
/// For a test to fail after its cluster has ended under it.
const GRACE: Duration = Duration::from_secs(60);

/// Ends a cluster whose test goes on for too long, and then, if that does not make it fail, all tests.
pub struct Watch(#[expect(dead_code, reason = "dropping it ends the watch")] Sender<()>);

impl Watch {
    /// Over the cluster in `dir`, for the test that runs in this thread.
    pub fn new(dir: PathBuf) -> Self {
        let minutes = std::env::var(MINUTES).map_or(10, |text| text.parse().expect("a number of minutes"));
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        let (sender, ended) = channel();
        std::thread::spawn(move || {
            if ended.recv_timeout(Duration::from_secs(minutes * 60)) == Err(RecvTimeoutError::Timeout) {
                say(&format!("{test} has not ended after {minutes} min: its cluster ends"));
                // The result does not matter, as long as the test's operations fail. In a thread of its own, for no
                // process can be started while a file here is open on a mount that is frozen: it is closed, and so
                // flushed, first.
                std::thread::spawn(|| {
                    Command::new(env!("CARGO_BIN_EXE_ebb")).args(["cluster", "down"]).env("EBB_DIR", dir).status()
                });
                if ended.recv_timeout(GRACE) == Err(RecvTimeoutError::Timeout) {
                    say(&format!("{test} goes on without its cluster: all tests end"));
                    std::process::exit(101);
                }
            }
        });
        Self(sender)
    }
}

/// Past the test runner's capture, which it shows only when a test has ended.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
