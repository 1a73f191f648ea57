//! Starts a role of this program in the background, and waits until it serves.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ebb_cli::directory::ClusterDir;
use ebb_cli::process::{self, ProcessFile};
use ebb_cli::{private, program};
use ebb_types::{Error, Result, bail};

/// A process that was started and may not serve yet.
#[derive(Debug)]
pub struct Started {
    name: String,
    child: Child,
    log: PathBuf,
    /// Where its own output begins in the log.
    log_from: u64,
}

/// Starts a role of this very binary in the background, its output to its log.
pub fn start(cluster: &ClusterDir, name: &str, arguments: &[OsString]) -> Result<Started> {
    let program = std::env::current_exe().map_err(|error| Error::from_io(&error, "finding the ebb program"))?;
    let path = process::log_path(cluster, name);
    let failed = |error: std::io::Error| Error::from_io(&error, path.display());
    private::make_dir(&cluster.log_dir()).map_err(failed)?;
    let log = private::file().create(true).append(true).open(&path).map_err(failed)?;
    let log_from = log.metadata().map_err(failed)?.len();
    let errors = log.try_clone().map_err(failed)?;
    let child = Command::new(&program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        // A process group of its own: ctrl-C at the terminal is for the command in front, not for the cluster.
        .process_group(0)
        .spawn()
        .map_err(|error| Error::from_io(&error, format!("starting {}", program.display())))?;
    Ok(Started { name: name.to_owned(), child, log: path, log_from })
}

impl Started {
    /// Waits until the process has registered; an error with the end of its output if it ended or never did.
    pub fn wait_registered(mut self, cluster: &ClusterDir, span: Duration) -> Result<ProcessFile> {
        let start = Instant::now();
        let path = cluster.run_dir().join(format!("{}.json", self.name));
        loop {
            let registered = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<ProcessFile>(&bytes).ok());
            if let Some(process) = registered.filter(|process| process.pid == self.child.id()) {
                return Ok(process);
            }
            if let Some(status) = self.child.try_wait().map_err(|error| Error::from_io(&error, &self.name))? {
                let kind = program::kind_of_exit(status.code());
                return Err(Error::new(kind, format!("{} ended before it served:\n{}", self.name, self.log_end())));
            }
            if start.elapsed() > span {
                bail!(Timeout, "{} does not serve after {} s:\n{}", self.name, span.as_secs(), self.log_end());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The last lines that it printed, indented, for an error message.
    fn log_end(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let own = usize::try_from(self.log_from).ok().and_then(|from| bytes.get(from..)).unwrap_or_default();
        let text = String::from_utf8_lossy(own);
        let lines: Vec<&str> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(6)..];
        let mut tail: Vec<String> = last.iter().map(|line| format!("    {line}")).collect();
        tail.push(format!("    (whole log: {})", self.log.display()));
        tail.join("\n")
    }
}
