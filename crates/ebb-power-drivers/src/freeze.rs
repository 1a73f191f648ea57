//! Freezes the processes that stand for a node: block server, workers, mounts, and programs of others that run there, with all
//! that these start.
//!
//! The default of a development cluster. A stopped process's kernel still accepts connections and acknowledges bytes:
//! peers see a node that hangs, which is harder than one that is silent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebb_runtime::Runtime;
use ebb_types::{NodeId, Result, bail};
use parking_lot::Mutex;
use rustix::process::Signal;

use crate::{PowerDriver, Powered, Process, Work};

/// Stops and continues processes (SIGSTOP, SIGCONT), and sees that they did.
#[derive(Debug)]
pub struct Freeze {
    runtime: Runtime,
    nodes: Mutex<BTreeMap<NodeId, Own>>,
    deadline: Duration,
}

/// What stands for a node.
#[derive(Clone, Debug, Default)]
struct Own {
    processes: BTreeSet<Process>,
    /// Programs of others: with every process that they have started, such as a YARN NodeManager with its containers.
    programs: BTreeSet<Process>,
}

impl Own {
    /// All processes as they are now.
    fn all(&self) -> Result<BTreeSet<Process>> {
        let mut all = &self.processes | &self.programs;
        for program in &self.programs {
            all.extend(program.descendants()?);
        }
        Ok(all)
    }
}

/// How often states are looked at.
const LOOK: Duration = Duration::from_millis(1);

impl Freeze {
    /// No nodes yet. A process that waits for a disk stops only when the disk has answered, so a freeze may take up to
    /// `deadline`.
    #[must_use]
    pub fn new(runtime: Runtime, deadline: Duration) -> Self {
        Self { runtime, nodes: Mutex::default(), deadline }
    }

    /// The processes of a node, in place of those before. A process whose number was taken over by another one is not
    /// followed.
    pub fn set(&self, node: NodeId, processes: impl IntoIterator<Item = Process>) {
        self.nodes.lock().entry(node).or_default().processes = processes.into_iter().collect();
    }

    /// Programs of others on a node, in place of those before. Each sleeps with all processes that it has started by then. One
    /// that leaves a node which sleeps is woken: nobody else would wake it.
    pub fn set_programs(&self, node: NodeId, programs: impl IntoIterator<Item = Process>) -> Result<()> {
        let programs: BTreeSet<Process> = programs.into_iter().collect();
        let (processes, left) = {
            let mut nodes = self.nodes.lock();
            let own = nodes.entry(node).or_default();
            let left = &own.programs - &programs;
            own.programs = programs;
            (own.processes.clone(), left)
        };
        // The lock is not held while the system is asked. A program of a node that is awake may have been stopped by its user.
        if !left.is_empty() && read_power_state(&processes)? == Powered::Off {
            let leaving = Own { processes: BTreeSet::new(), programs: left }.all()?;
            leaving.iter().try_for_each(|process| process.signal(Signal::CONT))?;
        }
        Ok(())
    }

    /// A process more of a node.
    pub fn add(&self, node: NodeId, process: Process) {
        self.nodes.lock().entry(node).or_default().processes.insert(process);
    }

    /// Numbers of a node's processes that are still there.
    pub fn pids(&self, node: NodeId) -> Result<Vec<u32>> {
        let mut pids = Vec::new();
        for process in self.processes(node)? {
            if process.state()?.is_some() {
                pids.push(process.pid());
            }
        }
        Ok(pids)
    }

    fn processes(&self, node: NodeId) -> Result<BTreeSet<Process>> {
        // The lock is not held while the system is asked.
        let own = self.nodes.lock().get(&node).cloned();
        match own {
            Some(own) => own.all(),
            None => bail!(NotFound, "nothing is known of the processes of {node}"),
        }
    }

    async fn freeze(&self, node: NodeId) -> Result<()> {
        if let Err(error) = self.freeze_all(node).await {
            // Half a node asleep is neither asleep nor awake: let it run.
            self.send_and_see(&self.processes(node)?, Signal::CONT, Powered::On).await?;
            return Err(error.context(format_args!("freezing {node}")));
        }
        Ok(())
    }

    /// A program may start a process while it is being stopped. Once all are stopped, none can: then it is looked again.
    async fn freeze_all(&self, node: NodeId) -> Result<()> {
        let mut stopped = BTreeSet::new();
        loop {
            let processes = self.processes(node)?;
            if processes.is_subset(&stopped) {
                return Ok(());
            }
            self.send_and_see(&processes, Signal::STOP, Powered::Off).await?;
            stopped = processes;
        }
    }

    async fn send_and_see(&self, processes: &BTreeSet<Process>, signal: Signal, wanted: Powered) -> Result<()> {
        processes.iter().try_for_each(|process| process.signal(signal))?;
        let seen = async {
            loop {
                match read_power_state(processes)? {
                    Powered::Gone => return Ok(()),
                    seen if seen == wanted => return Ok(()),
                    _ => self.runtime.sleep(LOOK).await,
                }
            }
        };
        self.runtime.timeout(self.deadline, "the processes of a node", seen).await
    }
}

/// The state of the processes together.
fn read_power_state(processes: &BTreeSet<Process>) -> Result<Powered> {
    let mut states = Vec::new();
    for process in processes {
        states.extend(process.state()?);
    }
    let stopped = states.iter().filter(|state| "Tt".contains(**state)).count();
    Ok(match stopped {
        _ if states.is_empty() => Powered::Gone,
        0 => Powered::On,
        _ if stopped == states.len() => Powered::Off,
        _ => Powered::Changing,
    })
}

impl PowerDriver for Freeze {
    fn name(&self) -> &'static str {
        "freeze"
    }

    fn sleep(&self, node: NodeId, _wake_ms: Option<u64>) -> Work<'_, Result<()>> {
        Box::pin(self.freeze(node))
    }

    fn wake(&self, node: NodeId) -> Work<'_, Result<()>> {
        Box::pin(async move { self.send_and_see(&self.processes(node)?, Signal::CONT, Powered::On).await })
    }

    fn powered(&self, node: NodeId) -> Work<'_, Result<Powered>> {
        Box::pin(async move { read_power_state(&self.processes(node)?) })
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    const NODE: NodeId = NodeId::new(3);

    /// A process that waits until it is killed.
    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Self {
            Self(Command::new("sleep").arg("1000").spawn().unwrap())
        }

        fn process(&self) -> Process {
            Process::find(self.0.id()).unwrap()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn client() -> Freeze {
        Freeze::new(Runtime::real(), Duration::from_secs(60))
    }

    #[tokio::test]
    async fn all_processes_of_a_node_stop_and_go_on() {
        let (one, other, bystander) = (Sleeper::start(), Sleeper::start(), Sleeper::start());
        let client = client();
        client.set(NODE, [one.process()]);
        client.add(NODE, other.process());
        assert_eq!(client.powered(NODE).await.unwrap(), Powered::On);
        client.sleep(NODE, None).await.unwrap();
        assert_eq!(one.process().state().unwrap(), Some('T'));
        assert_eq!(other.process().state().unwrap(), Some('T'));
        assert_ne!(bystander.process().state().unwrap(), Some('T'));
        assert_eq!(client.powered(NODE).await.unwrap(), Powered::Off);
        client.sleep(NODE, None).await.expect("it sleeps already");
        client.wake(NODE).await.unwrap();
        assert_eq!(client.powered(NODE).await.unwrap(), Powered::On);
        assert_eq!(client.pids(NODE).unwrap().len(), 2);
    }

    #[tokio::test]
    async fn a_program_sleeps_with_all_that_it_started() {
        // A shell with a child in a session of its own, as YARN starts containers, and a grandchild.
        let mut shell = Command::new("sh");
        shell.args(["-c", "setsid sh -c 'sleep 1000 & wait' & wait"]);
        let shell = Sleeper(shell.spawn().unwrap());
        let started = loop {
            match shell.process().descendants().unwrap() {
                found if found.len() >= 2 => break found,
                _ => tokio::task::yield_now().await,
            }
        };
        let client = client();
        client.set(NODE, []);
        client.set_programs(NODE, [shell.process()]).unwrap();
        client.sleep(NODE, None).await.unwrap();
        assert!(started.iter().all(|process| process.state().unwrap() == Some('T')), "{started:?}");
        assert_eq!(client.pids(NODE).unwrap().len(), 1 + started.len());
        client.wake(NODE).await.unwrap();
        assert!(started.iter().all(|process| process.state().unwrap() != Some('T')), "{started:?}");
        started.iter().for_each(|process| process.signal(Signal::KILL).unwrap());
    }

    #[tokio::test]
    async fn a_program_that_leaves_a_sleeping_node_goes_on() {
        let (own, program, stays) = (Sleeper::start(), Sleeper::start(), Sleeper::start());
        let client = client();
        client.set(NODE, [own.process()]);
        client.set_programs(NODE, [program.process(), stays.process()]).unwrap();
        client.sleep(NODE, None).await.unwrap();
        client.set_programs(NODE, [stays.process()]).unwrap();
        while program.process().state().unwrap() == Some('T') {
            tokio::task::yield_now().await;
        }
        assert_eq!(stays.process().state().unwrap(), Some('T'));
        assert_eq!(client.powered(NODE).await.unwrap(), Powered::Off);
    }

    #[tokio::test]
    async fn a_program_that_its_user_stopped_stays_so_when_it_leaves_a_node_that_is_awake() {
        let (own, program) = (Sleeper::start(), Sleeper::start());
        let client = client();
        client.set(NODE, [own.process()]);
        client.set_programs(NODE, [program.process()]).unwrap();
        program.process().signal(Signal::STOP).unwrap();
        while program.process().state().unwrap() != Some('T') {
            tokio::task::yield_now().await;
        }
        client.set_programs(NODE, []).unwrap();
        client.set_programs(NODE, []).unwrap();
        assert_eq!(program.process().state().unwrap(), Some('T'));
    }

    #[tokio::test]
    async fn vanished_processes_are_left_out() {
        let (mut one, other) = (Sleeper::start(), Sleeper::start());
        let client = client();
        client.set(NODE, [one.process(), other.process()]);
        one.0.kill().unwrap();
        one.0.wait().unwrap();
        client.sleep(NODE, None).await.unwrap();
        assert_eq!(client.pids(NODE).unwrap(), [other.0.id()]);
        drop(other);
        assert_eq!(client.powered(NODE).await.unwrap(), Powered::Gone);
        client.wake(NODE).await.expect("there is nothing to wake");
        let unknown = client.sleep(NodeId::new(9), None).await.unwrap_err();
        assert!(unknown.to_string().contains("n9"), "{unknown}");
    }

    #[tokio::test]
    async fn a_process_that_died_and_was_not_reaped_is_gone() {
        let mut one = Sleeper::start();
        let client = client();
        client.set(NODE, [one.process()]);
        one.0.kill().unwrap();
        // Not waited for: a zombie stands in the process table, and will never stop.
        while client.powered(NODE).await.unwrap() != Powered::Gone {
            tokio::task::yield_now().await;
        }
        client.sleep(NODE, None).await.unwrap();
    }
}
