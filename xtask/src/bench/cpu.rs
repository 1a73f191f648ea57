//! Processor time of the processes that serve a place: the figure for comparisons on a shared machine.

use std::collections::BTreeMap;

use super::cluster::Daemon;

/// Ticks of proc_pid_stat(5) in a second (`USER_HZ`, 100 on Linux everywhere).
const TICKS: f64 = 100.0;

/// Seconds by role.
pub type Cpu = BTreeMap<String, f64>;

/// Processor time of processes since their start.
pub fn used(daemons: &[Daemon]) -> Cpu {
    let mut sum = Cpu::new();
    for daemon in daemons {
        *sum.entry(daemon.role.clone()).or_default() += of(daemon.pid);
    }
    sum
}

/// Processor time since `before`, for each of `count` units.
pub fn since(daemons: &[Daemon], before: &Cpu, count: f64) -> Cpu {
    let each = |(role, now): (String, f64)| {
        // A process that was restarted in the meantime has a lower count, and all of it is new.
        let earlier = before.get(&role).copied().filter(|earlier| *earlier <= now).unwrap_or(0.0);
        (role, (now - earlier) / count)
    };
    used(daemons).into_iter().map(each).filter(|(_, seconds)| *seconds > 0.0).collect()
}

fn of(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in parentheses, may have any letter in it.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / TICKS
}
