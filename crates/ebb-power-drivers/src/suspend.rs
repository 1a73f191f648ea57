//! Suspends this host, with an alarm of its real-time clock to wake it.

use std::path::{Path, PathBuf};

use ebb_power::wall_ms;
use ebb_runtime::Runtime;
use ebb_types::{NodeId, Result, bail};

use crate::{PowerDriver, Powered, Work, host};

/// Sleep states by the kernel's names (Documentation/admin-guide/pm/sleep-states.rst), the deepest that keeps memory first.
const STATES: [&str; 3] = ["mem", "standby", "freeze"];
/// A sleep shorter than this is not worth its transitions, and a clock of whole seconds could miss it.
const LEAST_MS: u64 = 2_000;

/// The host that it runs on, for its own node only.
#[derive(Debug)]
pub struct Suspend {
    runtime: Runtime,
    node: NodeId,
    state: PathBuf,
    alarm: PathBuf,
    word: &'static str,
}

impl Suspend {
    /// This host, standing for `node`. `sysfs` is `/sys`.
    ///
    /// `Unsupported`, with the name of the missing part, if the kernel offers no sleep state, or the clock no alarm
    /// that this process may set: a host that cannot wake by itself is never put to sleep.
    pub fn new(runtime: Runtime, node: NodeId, sysfs: &Path) -> Result<Self> {
        let state = sysfs.join("power/state");
        let alarm = sysfs.join("class/rtc/rtc0/wakealarm");
        let offered = match host::read(&state) {
            Ok(offered) => offered,
            Err(error) => bail!(Unsupported, "this host cannot sleep: its kernel has no sleep states ({error})"),
        };
        let has = |word: &&&str| offered.split_whitespace().any(|offered| offered == **word);
        let Some(word) = STATES.iter().find(has) else {
            bail!(
                Unsupported,
                "this host cannot sleep: its kernel offers {:?}, and not {}",
                offered.trim(),
                STATES.join(", ")
            )
        };
        // An alarm that is cleared is none: this only shows that one could be set.
        if let Err(error) = host::write(&alarm, "0\n") {
            bail!(Unsupported, "this host could not wake by itself: no alarm of its clock can be set ({error})");
        }
        Ok(Self { runtime, node, state, alarm, word })
    }

    async fn suspend(&self, node: NodeId, wake_ms: Option<u64>) -> Result<()> {
        self.check(node)?;
        let Some(wake_ms) = wake_ms else {
            bail!(
                Unsupported,
                "{node} does not know when to wake: a host that suspends itself needs a time, or another \
                 power client to wake it"
            );
        };
        let left_ms = wake_ms.saturating_sub(wall_ms(self.runtime.wall()));
        if left_ms < LEAST_MS {
            bail!(Unsupported, "{node} is to wake in {left_ms} ms: below {LEAST_MS} ms a host stays awake");
        }
        // The alarm counts whole seconds: rounded down, so that the host is back in time.
        let seconds = left_ms / 1_000;
        let (state, alarm, word) = (self.state.clone(), self.alarm.clone(), self.word);
        let slept = self.runtime.compute(move || {
            // Ordering: the alarm before the sleep, or nothing would end it. An old one must be cleared first.
            host::write(&alarm, "0\n")?;
            host::write(&alarm, &format!("+{seconds}\n"))?;
            // Returns when the host is awake again.
            let slept = host::write(&state, &format!("{word}\n"));
            let cleared = host::write(&alarm, "0\n");
            slept.and(cleared)
        });
        slept.await.map_err(|error| error.context(format_args!("suspending the host of {node}")))
    }

    fn check(&self, node: NodeId) -> Result<()> {
        if node != self.node {
            bail!(Invalid, "the host of {} cannot suspend {node}", self.node);
        }
        Ok(())
    }
}

impl PowerDriver for Suspend {
    fn name(&self) -> &'static str {
        "suspend"
    }

    fn sleep(&self, node: NodeId, wake_ms: Option<u64>) -> Work<'_, Result<()>> {
        Box::pin(self.suspend(node, wake_ms))
    }

    /// A host that can be asked is awake.
    fn wake(&self, node: NodeId) -> Work<'_, Result<()>> {
        Box::pin(async move { self.check(node) })
    }

    fn powered(&self, node: NodeId) -> Work<'_, Result<Powered>> {
        Box::pin(async move { self.check(node).map(|()| Powered::On) })
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a directory stands for sysfs")]
mod tests {
    use ebb_types::ErrorKind;

    use super::*;

    const NODE: NodeId = NodeId::new(1);

    fn sysfs(states: Option<&str>, has_alarm: bool) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        if let Some(states) = states {
            write("power/state", states);
        }
        if has_alarm {
            write("class/rtc/rtc0/wakealarm", "");
        }
        root
    }

    #[tokio::test]
    async fn a_host_that_cannot_sleep_or_wake_says_so() {
        let refusal = |states, has_alarm| {
            let root = sysfs(states, has_alarm);
            let error = Suspend::new(Runtime::real(), NODE, root.path()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            error.to_string()
        };
        assert!(refusal(None, true).contains("no sleep states"));
        assert!(refusal(Some("disk\n"), true).contains("\"disk\""));
        assert!(refusal(Some("freeze mem\n"), false).contains("no alarm"));
    }

    #[tokio::test]
    async fn the_alarm_is_set_before_the_sleep_and_cleared_after() {
        let root = sysfs(Some("freeze mem disk\n"), true);
        let runtime = Runtime::real();
        let client = Suspend::new(runtime.clone(), NODE, root.path()).unwrap();
        let now = wall_ms(runtime.wall());
        client.sleep(NODE, Some(now + 90_000)).await.unwrap();
        assert_eq!(host::read(&root.path().join("power/state")).unwrap(), "mem\n");
        assert_eq!(host::read(&root.path().join("class/rtc/rtc0/wakealarm")).unwrap(), "0\n");
        let refused = |wake_ms| client.sleep(NODE, wake_ms);
        assert_eq!(refused(None).await.unwrap_err().kind(), ErrorKind::Unsupported);
        assert!(refused(Some(now)).await.unwrap_err().to_string().contains("stays awake"));
        assert!(client.sleep(NodeId::new(2), Some(now + 90_000)).await.is_err());
    }

    #[tokio::test]
    async fn a_sleep_that_the_kernel_refuses_is_reported() {
        let root = sysfs(Some("mem\n"), true);
        let runtime = Runtime::real();
        let client = Suspend::new(runtime.clone(), NODE, root.path()).unwrap();
        let state = root.path().join("power/state");
        std::fs::remove_file(&state).unwrap();
        std::fs::create_dir(&state).unwrap();
        let error = client.sleep(NODE, Some(wall_ms(runtime.wall()) + 90_000)).await.unwrap_err();
        assert!(error.to_string().starts_with("suspending the host of n1"), "{error}");
    }
}
