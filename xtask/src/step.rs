//! Runs one program of a longer job and reports its result.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::failure::{Causes, Failure};

/// A program with its arguments, and the part of its output that is shown on success.
pub struct Step {
    /// Short name.
    pub name: &'static str,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Variables to set.
    pub variables: Vec<(&'static str, String)>,
    /// Lines of output to show; the others appear only when the step fails.
    pub shows: fn(&str) -> bool,
    /// Exit code by which the program says that it could not be tried here. It says why.
    pub skips: Option<i32>,
}

impl Step {
    /// A cargo command that shows nothing on success.
    pub fn cargo(name: &'static str, arguments: &[&str]) -> Self {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let command = [cargo.as_str()].iter().chain(arguments).map(|word| (*word).to_owned()).collect();
        Self { name, command, variables: Vec::new(), shows: |_| false, skips: None }
    }

    /// Any program.
    pub fn program(name: &'static str, words: &[&str]) -> Self {
        let command = words.iter().map(|word| (*word).to_owned()).collect();
        Self { name, command, variables: Vec::new(), shows: |_| true, skips: None }
    }

    /// Sets an environment variable for the step.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// This exit code means that the program was not run, and that nothing is wrong.
    pub fn skipped_by(mut self, code: i32) -> Self {
        self.skips = Some(code);
        self
    }

    /// Shows these lines of the output.
    pub fn showing(mut self, shows: fn(&str) -> bool) -> Self {
        self.shows = shows;
        self
    }

    /// Runs it in the workspace's root, with both outputs in one stream.
    ///
    /// # Errors
    /// The program fails, or cannot be run.
    pub fn run(&self) -> Result<(), Failure> {
        println!("== {}", self.name);
        let started = Instant::now();
        let mut kept = Vec::new();
        let mut causes = Causes::default();
        let code = self.pass_lines(&mut kept, &mut causes);
        let is_skipped = code.is_some() && code == self.skips;
        let good = code == Some(0) || is_skipped;
        if !good {
            kept.iter().for_each(|line| println!("{line}"));
        }
        let verdict = match good {
            _ if is_skipped => "skipped",
            true => "ok",
            false => "FAILED",
        };
        println!("== {}: {verdict} ({:.0} s)", self.name, started.elapsed().as_secs_f64());
        if good { Ok(()) } else { Err(Failure::new(self.command_name(), causes.into_lines())) }
    }

    /// The step's name; for a script, which one.
    fn command_name(&self) -> String {
        match std::path::Path::new(&self.command[0]).file_name() {
            Some(script) if self.command[0].ends_with(".sh") => format!("{} {}", self.name, script.display()),
            _ => self.name.to_owned(),
        }
    }

    /// Shows lines as they come and keeps those held back. Returns the exit code; none if a signal ended the program, or it could not
    /// be run.
    fn pass_lines(&self, kept: &mut Vec<String>, causes: &mut Causes) -> Option<i32> {
        let Ok((reader, writer)) = std::io::pipe() else {
            kept.push("cannot make a pipe".to_owned());
            return None;
        };
        let Ok(second) = writer.try_clone() else {
            kept.push("cannot duplicate a pipe".to_owned());
            return None;
        };
        let mut command = Command::new(&self.command[0]);
        command
            .args(&self.command[1..])
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(crate::tree::root());
        let spawned = command.stdin(Stdio::null()).stdout(writer).stderr(second).spawn();
        // The command holds the pipe's writing ends; reading ends only when they are closed.
        drop(command);
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => {
                kept.push(format!("cannot run {}: {error}", self.command[0]));
                return None;
            }
        };
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            causes.see(&line);
            if (self.shows)(&line) {
                println!("{line}");
            } else {
                kept.push(line);
            }
        }
        child.wait().ok().and_then(|status| status.code())
    }
}

/// Runs all steps, even after a failure, because a person wants every finding of one run.
pub fn run_all(steps: &[Step]) -> Vec<Failure> {
    steps.iter().filter_map(|step| step.run().err()).collect()
}
