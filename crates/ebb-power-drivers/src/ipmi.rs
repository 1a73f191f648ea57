//! Switches a node through its baseboard management controller by IPMI, with ipmitool.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use ebb_runtime::Runtime;
use ebb_types::{NodeId, Result, bail, err};

use crate::{PowerDriver, Powered, Work};

/// A controller, and the account that may use it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Controller {
    /// Name or address.
    pub host: String,
    /// UDP port; 623 as a rule.
    pub port: u16,
    /// User.
    pub user: String,
    /// File with the password: every user of the machine can read a command line.
    pub password_file: PathBuf,
    /// Number of its cipher suite (IPMI 2.0, table 22-20). None: it is asked for those it has, and a controller that does not
    /// know the question costs ten seconds a call.
    pub cipher_suite: Option<u8>,
}

/// How a node goes off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Off {
    /// The operating system is asked (ACPI), and shuts down or suspends as it is set up to.
    Soft,
    /// The power is cut. Unsynced data are lost.
    Hard,
}

/// Nodes behind controllers.
#[derive(Debug)]
pub struct Ipmi {
    runtime: Runtime,
    program: PathBuf,
    controllers: BTreeMap<NodeId, Controller>,
    off: Off,
    call: Duration,
    deadline: Duration,
}

/// How often a controller is asked whether it has carried a call out.
const LOOK: Duration = Duration::from_millis(200);

impl Ipmi {
    /// `program` is ipmitool; each call of it may take `call`, and a node up to `deadline` to go on or off.
    #[must_use]
    pub fn new(
        runtime: Runtime,
        program: PathBuf,
        controllers: BTreeMap<NodeId, Controller>,
        off: Off,
        call: Duration,
        deadline: Duration,
    ) -> Self {
        Self { runtime, program, controllers, off, call, deadline }
    }

    async fn run(&self, node: NodeId, words: &[&str]) -> Result<String> {
        let Some(controller) = self.controllers.get(&node) else {
            bail!(NotFound, "nothing is known of the controller of {node}");
        };
        let mut command = tokio::process::Command::new(&self.program);
        command.args(["-I", "lanplus", "-H", &controller.host, "-p", &controller.port.to_string()]);
        command.args(controller.cipher_suite.iter().flat_map(|suite| ["-C".to_owned(), suite.to_string()]));
        command.args(["-U", &controller.user]).arg("-f").arg(&controller.password_file).args(words);
        // Cancel-safety: a call that is given up takes its process with it.
        command.stdin(std::process::Stdio::null()).kill_on_drop(true);
        let shown = format!("ipmitool {} for {node} at {}", words.join(" "), controller.host);
        let ran = async {
            let start = |error| err!(Unsupported, "starting {}: {error}", self.program.display());
            command.output().await.map_err(start)
        };
        let output = self.runtime.timeout(self.call, &shown, ran).await?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!(Unreachable, "{shown}: {}", stderr.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    async fn status(&self, node: NodeId) -> Result<Powered> {
        parse_status(&self.run(node, &["chassis", "power", "status"]).await?)
    }

    async fn switch(&self, node: NodeId, word: &str, wanted: Powered) -> Result<()> {
        if self.status(node).await? == wanted {
            return Ok(());
        }
        self.run(node, &["chassis", "power", word]).await?;
        let seen = async {
            while self.status(node).await? != wanted {
                self.runtime.sleep(LOOK).await;
            }
            Ok(())
        };
        self.runtime.timeout(self.deadline, &format!("{node} after power {word}"), seen).await
    }
}

/// The output of `chassis power status`.
pub(crate) fn parse_status(text: &str) -> Result<Powered> {
    match text.trim().rsplit(' ').next() {
        Some("on") => Ok(Powered::On),
        Some("off") => Ok(Powered::Off),
        _ => bail!(Protocol, "ipmitool says {:?}, which is no power status", text.trim()),
    }
}

impl PowerDriver for Ipmi {
    fn name(&self) -> &'static str {
        "ipmi"
    }

    fn sleep(&self, node: NodeId, _wake_ms: Option<u64>) -> Work<'_, Result<()>> {
        let word = match self.off {
            Off::Soft => "soft",
            Off::Hard => "off",
        };
        Box::pin(self.switch(node, word, Powered::Off))
    }

    fn wake(&self, node: NodeId) -> Work<'_, Result<()>> {
        Box::pin(self.switch(node, "on", Powered::On))
    }

    fn powered(&self, node: NodeId) -> Work<'_, Result<Powered>> {
        Box::pin(self.status(node))
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a script stands for ipmitool")]
mod tests {
    use ebb_types::ErrorKind;

    use super::*;

    const NODE: NodeId = NodeId::new(4);

    /// A script in ipmitool's place, which keeps the power in a file and its command lines in another.
    fn client(directory: &std::path::Path, script: &str) -> Ipmi {
        let program = directory.join("ipmitool");
        let text = format!("#!/bin/sh\ncd {}\necho \"$@\" >>calls\n{script}\n", directory.display());
        // Written by another process: a file that this one writes could be open in a child that is just being started,
        // and a program that is open for writing does not start.
        let mut writer = std::process::Command::new("/bin/sh");
        writer.args(["-c", "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\""]).arg(&program).arg(text);
        assert!(writer.status().unwrap().success());
        let controller = Controller {
            host: "bmc4".into(),
            port: 623,
            user: "ebb".into(),
            password_file: "/etc/ebb/bmc".into(),
            cipher_suite: Some(17),
        };
        let minute = Duration::from_secs(60);
        Ipmi::new(Runtime::real(), program, BTreeMap::from([(NODE, controller)]), Off::Soft, minute, minute)
    }

    const CHASSIS: &str = "for word; do :; done
case $word in
    status) echo \"Chassis Power is $(cat power)\";;
    soft) echo off >power;;
    on) echo on >power;;
esac";

    #[tokio::test]
    async fn a_node_goes_off_and_on_and_the_password_is_on_no_command_line() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("power"), "on\n").unwrap();
        let client = client(directory.path(), CHASSIS);
        assert_eq!(client.powered(NODE).await.unwrap(), Powered::On);
        client.sleep(NODE, None).await.unwrap();
        assert_eq!(client.powered(NODE).await.unwrap(), Powered::Off);
        client.sleep(NODE, None).await.expect("it is off already");
        client.wake(NODE).await.unwrap();
        let calls = std::fs::read_to_string(directory.path().join("calls")).unwrap();
        assert_eq!(calls.matches("power soft").count(), 1, "{calls}");
        assert!(
            calls
                .lines()
                .all(|line| line.starts_with("-I lanplus -H bmc4 -p 623 -C 17 -U ebb -f /etc/ebb/bmc chassis power"))
        );
    }

    #[tokio::test]
    async fn a_controller_that_does_not_answer_or_talks_nonsense_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let silent = client(directory.path(), "echo 'Unable to establish IPMI v2 session' >&2; exit 1");
        let error = silent.wake(NODE).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Unreachable && error.to_string().contains("bmc4: Unable"), "{error}");
        let odd = client(directory.path(), "echo Chassis Power is purple");
        assert_eq!(odd.powered(NODE).await.unwrap_err().kind(), ErrorKind::Protocol);
        assert_eq!(odd.powered(NodeId::new(5)).await.unwrap_err().kind(), ErrorKind::NotFound);
        let missing = Ipmi { program: "/nonexistent/ipmitool".into(), ..odd };
        assert_eq!(missing.powered(NODE).await.unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
