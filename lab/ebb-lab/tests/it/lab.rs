//! `ebb-lab`, run without a cluster.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

/// The program, and a directory for its files that goes with the test.
pub struct Lab(TempDir);

/// Result of a run.
pub struct Run {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Lab {
    /// With an empty directory.
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The program with these arguments, not yet started.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ebb-lab"));
        command.args(arguments).current_dir(self.0.path()).env_remove("EBB_DIR");
        command
    }

    /// Runs it.
    pub fn run(&self, arguments: &[&str]) -> Run {
        let output = self.command(arguments).output().expect("the program runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Run { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// Runs it, requires success, and returns its output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments);
        assert_eq!(run.code, 0, "ebb-lab {arguments:?}: {}{}", run.out, run.err);
        run.out
    }

    /// Runs it with `--json` and returns its output.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let run = self.run(&[arguments, &["--json"]].concat());
        serde_json::from_str(&run.out)
            .unwrap_or_else(|error| panic!("ebb-lab {arguments:?}: {error}: {}{}", run.out, run.err))
    }
}
