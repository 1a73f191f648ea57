//! The operator's command for a node that goes for long: what runs there may have data to move first.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ebb_types::{Error, Result};

/// A command that takes longer than the node stays is ended so much later.
const GRACE: Duration = Duration::from_secs(10);

/// The commands under way.
#[derive(Debug, Default)]
pub struct Leaving {
    /// A shell's command line; none: nothing is run.
    command: Option<String>,
    running: Vec<Running>,
}

#[derive(Debug)]
struct Running {
    host: String,
    child: Child,
    until: Instant,
}

impl Leaving {
    /// Runs this command line for each node that goes.
    pub fn new(command: Option<String>) -> Self {
        Self { command, running: Vec::new() }
    }

    /// Begins it for a host that goes in `left`. It is not waited for.
    pub fn start_command(&mut self, host: &str, left: Duration) -> Result<()> {
        let Some(command) = &self.command else { return Ok(()) };
        let child = Command::new("sh")
            .args(["-c", command])
            .env("EBB_HOST", host)
            .env("EBB_LEFT_SECONDS", left.as_secs().to_string())
            .stdin(Stdio::null())
            .spawn()
            .map_err(|error| Error::from_io(&error, format_args!("starting --leaving for {host}")))?;
        self.running.push(Running { host: host.to_owned(), child, until: Instant::now() + left + GRACE });
        Ok(())
    }

    /// Takes out those that have ended, and ends those that take too long. Returns what went wrong, in sentences.
    pub fn take_ended(&mut self) -> Vec<String> {
        let mut wrong = Vec::new();
        self.running.retain_mut(|running| match running.child.try_wait() {
            Ok(None) if Instant::now() < running.until => true,
            Ok(None) => {
                let _ = running.child.kill();
                let _ = running.child.wait();
                wrong.push(format!("--leaving for {} took longer than the node stays: killed", running.host));
                false
            }
            Ok(Some(status)) if status.success() => false,
            Ok(Some(status)) => {
                wrong.push(format!("--leaving for {} ended with {status}", running.host));
                false
            }
            Err(error) => {
                wrong.push(format!("--leaving for {}: {error}", running.host));
                false
            }
        });
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits for the commands to end, as long as they may take.
    fn settled(leaving: &mut Leaving) -> Vec<String> {
        let begun = Instant::now();
        let mut wrong = Vec::new();
        while !leaving.running.is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{leaving:?}");
            wrong.extend(leaving.take_ended());
            std::thread::sleep(Duration::from_millis(5));
        }
        wrong
    }

    #[test]
    fn the_command_knows_the_host_and_the_time_and_its_failure_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let seen = dir.path().join("seen");
        let command = format!("echo \"$EBB_HOST $EBB_LEFT_SECONDS\" >>{}; test $EBB_HOST = h1", seen.display());
        let mut leaving = Leaving::new(Some(command));
        leaving.start_command("h1", Duration::from_secs(60)).unwrap();
        assert_eq!(settled(&mut leaving), Vec::<String>::new());
        leaving.start_command("h2", Duration::from_millis(2500)).unwrap();
        let wrong = settled(&mut leaving);
        assert!(wrong.len() == 1 && wrong[0].contains("h2") && wrong[0].contains("exit status: 1"), "{wrong:?}");
        assert_eq!(std::fs::read_to_string(seen).unwrap(), "h1 60\nh2 2\n");
    }

    #[test]
    fn one_that_takes_too_long_is_ended() {
        let mut leaving = Leaving::new(Some("exec sleep 1000".to_owned()));
        leaving.start_command("h1", Duration::ZERO).unwrap();
        leaving.running[0].until = Instant::now();
        let wrong = settled(&mut leaving);
        assert!(wrong[0].contains("longer than the node stays"), "{wrong:?}");
    }

    #[test]
    fn without_a_command_nothing_is_run() {
        let mut leaving = Leaving::default();
        leaving.start_command("h1", Duration::ZERO).unwrap();
        assert!(leaving.running.is_empty());
    }
}
