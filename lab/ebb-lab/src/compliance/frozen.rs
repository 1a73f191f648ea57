//! Which nodes sleep, by their processes on this machine: a node sleeps when all of its processes are stopped.

use ebb_figures::compliance::Seen;
use ebb_types::{Result, bail};
use ebb_wire::pb;

/// The processes of each node.
pub struct Frozen {
    nodes: Vec<Vec<u32>>,
}

impl Frozen {
    /// Those that the power manager knows of. `Unsupported` if a node has none, as under drivers that switch machines.
    pub fn of(status: &pb::PowerStatusReply) -> Result<Self> {
        if let Some(node) = status.nodes.iter().find(|node| node.pids.is_empty()) {
            bail!(
                Unsupported,
                "no process on this machine stands for n{}: only nodes that are frozen can be seen",
                node.id
            );
        }
        Ok(Self { nodes: status.nodes.iter().map(|node| node.pids.clone()).collect() })
    }

    /// The nodes now. A node draws until all of its processes are stopped, and serves while none is. A process that has
    /// ended is not stopped.
    pub fn see(&self) -> Seen {
        let mut seen = Seen { drawing: 0, serving: 0 };
        for pids in &self.nodes {
            let stopped = pids.iter().filter(|pid| is_stopped(**pid)).count();
            seen.drawing += usize::from(stopped < pids.len());
            seen.serving += usize::from(stopped == 0);
        }
        seen
    }
}

fn is_stopped(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/stat")).is_ok_and(|stat| state(&stat) == Some(b'T'))
}

/// State of a process in its `stat` (proc(5)). The name before it may have any characters in it, also brackets.
fn state(stat: &[u8]) -> Option<u8> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(end + 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(pids: &[&[u32]]) -> pb::PowerStatusReply {
        let node = |pids: &&[u32]| pb::PowerNode { id: 4, pids: pids.to_vec(), ..Default::default() };
        pb::PowerStatusReply { nodes: pids.iter().map(node).collect(), ..Default::default() }
    }

    #[test]
    fn the_state_follows_the_last_bracket() {
        assert_eq!(state(b"17 (a) T (b) S 1 17"), Some(b'S'));
        assert_eq!(state(b"17 (ebb) T 1"), Some(b'T'));
        assert_eq!((state(b""), state(b"17 (ebb)")), (None, None));
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
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        // A signal of this process to its child may take a moment.
        while !is_stopped(other) {
            std::thread::yield_now();
        }
        let seen = Frozen::of(&status(&[&[own], &[own, other], &[other]])).unwrap().see();
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert_eq!(seen, Seen { drawing: 2, serving: 1 });
    }
}
