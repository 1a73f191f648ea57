//! Which nodes sleep, by their processes on this machine: a node sleeps when all of its processes are stopped.

use ebb_figures::compliance::Seen;
use ebb_power_drivers::Process;
use ebb_types::{Result, bail};
use ebb_wire::pb;

/// The processes of each node.
pub struct Frozen {
    nodes: Vec<Vec<Process>>,
}

impl Frozen {
    /// Those that the power manager knows of. `Unsupported` if a node has none, as under drivers that switch machines;
    /// `NotFound` if one has ended.
    pub fn of(status: &pb::PowerStatusReply) -> Result<Self> {
        if let Some(node) = status.nodes.iter().find(|node| node.pids.is_empty()) {
            bail!(
                Unsupported,
                "no process on this machine stands for n{}: only nodes that are frozen can be seen",
                node.id
            );
        }
        let processes = |node: &pb::PowerNode| node.pids.iter().map(|pid| Process::find(*pid)).collect();
        Ok(Self { nodes: status.nodes.iter().map(processes).collect::<Result<_>>()? })
    }

    /// The nodes now. A node draws until all of its processes are stopped, and serves while none is. A process that has
    /// ended is not stopped.
    pub fn see(&self) -> Seen {
        let mut seen = Seen { drawing: 0, serving: 0 };
        for processes in &self.nodes {
            let stopped = processes.iter().filter(|process| process.is_frozen()).count();
            seen.drawing += usize::from(stopped < processes.len());
            seen.serving += usize::from(stopped == 0);
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(pids: &[&[u32]]) -> pb::PowerStatusReply {
        let node = |pids: &&[u32]| pb::PowerNode { id: 4, pids: pids.to_vec(), ..Default::default() };
        pb::PowerStatusReply { nodes: pids.iter().map(node).collect(), ..Default::default() }
    }

    #[test]
    fn a_node_draws_while_one_of_its_processes_runs() {
        let own = std::process::id();
        let frozen = Frozen::of(&status(&[&[own], &[own, own]])).unwrap();
        assert_eq!(frozen.see(), Seen { drawing: 2, serving: 2 });
        let refused = Frozen::of(&status(&[&[own], &[]])).err().unwrap();
        assert!(refused.to_string().contains("n4"), "{refused}");
    }

    #[test]
    fn a_node_sleeps_when_all_of_its_processes_are_stopped() {
        let mut sleeper = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = rustix::process::Pid::from_raw(sleeper.id() as i32).unwrap();
        let (own, other) = (std::process::id(), sleeper.id());
        let frozen = Frozen::of(&status(&[&[own], &[own, other], &[other]])).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        // A signal of this process to its child may take a moment.
        while !Process::find(other).unwrap().is_frozen() {
            std::thread::yield_now();
        }
        let seen = frozen.see();
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert_eq!(seen, Seen { drawing: 2, serving: 1 });
    }
}
