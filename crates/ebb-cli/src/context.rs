//! Options of every command.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ebb_types::{Result, err};

use crate::directory::ClusterDir;
use crate::host;
use crate::output::Output;
use crate::units::Span;

/// Options that every command takes, before or after its name.
#[derive(Clone, Debug, Args)]
pub struct Globals {
    /// Cluster directory [default: /var/lib/ebb, on a host that is in a cluster].
    #[arg(long, global = true, env = "EBB_DIR", value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print only JSON on stdout.
    #[arg(long, global = true)]
    json: bool,
}

/// The time limit that every command of `ebb` takes.
#[derive(Clone, Copy, Debug, Args)]
pub struct TimeLimit {
    /// Give up after this time: 10s, 500ms, 2min.
    #[arg(long, global = true, value_name = "TIME")]
    timeout: Option<Span>,
}

impl Globals {
    /// How to print.
    #[must_use]
    pub const fn output(&self) -> Output {
        Output::new(self.json)
    }

    /// The same options as arguments of another program.
    #[must_use]
    pub fn arguments(&self) -> Vec<OsString> {
        let dir = self.dir.as_ref().map(|dir| ["--dir".into(), dir.clone().into_os_string()]);
        let json = self.json.then(|| "--json".into());
        dir.into_iter().flatten().chain(json).collect()
    }
}

/// The surroundings of a command.
#[derive(Clone, Debug)]
pub struct Context {
    dir: Option<PathBuf>,
    /// How to print.
    pub output: Output,
    /// Time limit of the command.
    pub timeout: Option<Duration>,
}

impl From<Globals> for Context {
    fn from(globals: Globals) -> Self {
        Self { dir: globals.dir, output: Output::new(globals.json), timeout: None }
    }
}

impl Context {
    /// With a time limit.
    #[must_use]
    pub fn with_limit(self, limit: TimeLimit) -> Self {
        Self { timeout: limit.timeout.map(|span| span.0), ..self }
    }

    /// The cluster's directory as given, or that of this host.
    ///
    /// # Errors
    /// `Invalid` if none was given, and this host is in no cluster.
    pub fn dir(&self) -> Result<PathBuf> {
        let of_host = || Some(PathBuf::from(host::DIR)).filter(|dir| dir.join("cluster.toml").exists());
        let dir = self.dir.clone().or_else(of_host);
        dir.ok_or_else(|| err!(Invalid, "which cluster? give --dir DIR or set EBB_DIR"))
    }

    /// The directory as given, or the one that this host has once it is in a cluster.
    #[must_use]
    pub fn dir_of_host(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(|| host::DIR.into())
    }

    /// The cluster's directory, read.
    ///
    /// # Errors
    /// See [`Context::dir`] and [`ClusterDir::open`].
    pub fn cluster(&self) -> Result<ClusterDir> {
        ClusterDir::open(&self.dir()?)
    }
}
