//! What a process has once.

use std::future::Future;
use std::sync::{Arc, OnceLock};

use ebb_api::{Caller, File};
use ebb_types::{Error, ErrorKind, Result, bail};
use tokio::runtime::{Builder, Runtime};

use crate::reads::Reads;
use crate::sessions::{Session, Sessions, Use};
use crate::table::Table;

/// Threads that carry calls on. A call itself runs on the thread of Java that makes it.
const THREADS: usize = 2;

/// A user of a session.
pub(crate) struct SessionCaller {
    pub(crate) caller: Caller,
    pub(crate) session: Arc<Session>,
}

/// The sessions, callers and open files of a process.
pub(crate) struct Library {
    runtime: Runtime,
    process: u32,
    pub(crate) sessions: Sessions,
    pub(crate) uses: Table<Use>,
    pub(crate) callers: Table<SessionCaller>,
    pub(crate) files: Table<File>,
    pub(crate) reads: Reads,
}

static LIBRARY: OnceLock<std::result::Result<Library, String>> = OnceLock::new();

/// The library of this process.
///
/// # Errors
/// `Io` if the system gives no threads; `Unsupported` in a process that was forked from one which had used the library: the threads
/// that carry its sessions are in the other one.
pub(crate) fn library() -> Result<&'static Library> {
    let library = LIBRARY.get_or_init(Library::new).as_ref();
    let library = library.map_err(|why| Error::new(ErrorKind::Io, format!("starting threads: {why}")))?;
    if library.process != std::process::id() {
        bail!(Unsupported, "this process was forked from {}, which uses Ebb: start it as a program", library.process);
    }
    Ok(library)
}

impl Library {
    fn new() -> std::result::Result<Self, String> {
        if std::env::var_os("EBB_LOG").is_some() {
            let filter = tracing_subscriber::EnvFilter::from_env("EBB_LOG");
            let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
            // Another copy of the library, of another class loader, may have started it.
            let _ = log.try_init();
        }
        let threads = Builder::new_multi_thread().worker_threads(THREADS).thread_name("ebb").enable_all().build();
        Ok(Self {
            runtime: threads.map_err(|error| error.to_string())?,
            process: std::process::id(),
            sessions: Sessions::default(),
            uses: Table::new("session"),
            callers: Table::new("file system"),
            files: Table::new("file"),
            reads: Reads::new(),
        })
    }

    /// Runs a call to its end on this thread.
    pub(crate) fn wait<T>(&self, call: impl Future<Output = T>) -> T {
        self.runtime.block_on(call)
    }

    /// Starts work that goes on by itself.
    pub(crate) fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        let _entered = self.runtime.enter();
        drop(ebb_runtime::Runtime::real().spawn("a read for Java", work));
    }
}
