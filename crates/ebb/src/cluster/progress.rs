//! How long to wait for a process that was asked to end: as long as it gets on, within reason.
//!
//! A block server syncs all that it has before it ends; on a slow disk that takes minutes. One that hangs does nothing.
//! A counter of the kernel distinguishes the two: calls that write (`syscw` of `/proc/PID/io`, proc(5)). Syncs are not
//! among them, but a volume that is being closed writes to the log how far it is.

use std::time::Duration;

use ebb_cli::process::ProcessFile;

/// Without any write for so long a process hangs.
pub const QUIET_MAX: Duration = Duration::from_secs(30);
/// No process gets more.
pub const ALL_MAX: Duration = Duration::from_secs(300);

/// The observed progress of a process that is to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    writes: Option<u64>,
    /// When it was seen to write last, since it was asked to end.
    last: Duration,
}

/// The next action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Wait on.
    Wait,
    /// It has written nothing for this long.
    Hangs(Duration),
    /// It had this long.
    TooLong(Duration),
}

impl Progress {
    /// So long after it was asked to end, the kernel has counted so many writes; none: not known.
    pub fn decide_next(&mut self, writes: Option<u64>, passed: Duration) -> Next {
        if writes.is_some() && writes != self.writes {
            // Its writes before it was asked to end are no progress.
            let is_first = self.writes.is_none();
            self.writes = writes;
            self.last = if is_first { self.last } else { passed };
        }
        match passed.saturating_sub(self.last) {
            _ if passed >= ALL_MAX => Next::TooLong(passed),
            quiet if quiet >= QUIET_MAX => Next::Hangs(quiet),
            _ => Next::Wait,
        }
    }
}

/// Calls of a process that wrote since its start; none: not known.
pub fn writes(process: &ProcessFile) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{}/io", process.pid)).ok()?;
    writes_of(&text).filter(|_| process.is_running())
}

/// Calls that write, from the text of `/proc/PID/io`.
fn writes_of(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("syscw:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn one_that_writes_is_waited_for_and_one_that_hangs_is_not() {
        let (mut slow, mut hangs, mut unknown) = (Progress::default(), Progress::default(), Progress::default());
        for second in 0..30 {
            assert_eq!(hangs.decide_next(Some(7), at(second)), Next::Wait);
            assert_eq!(unknown.decide_next(None, at(second)), Next::Wait);
        }
        assert_eq!(hangs.decide_next(Some(7), at(30)), Next::Hangs(at(30)));
        assert_eq!(unknown.decide_next(None, at(30)), Next::Hangs(at(30)));
        for second in 0..300 {
            assert_eq!(slow.decide_next(Some(second / 20), at(second)), Next::Wait, "a write each 20 s");
        }
        assert_eq!(slow.decide_next(Some(99), at(300)), Next::TooLong(at(300)));
    }

    #[test]
    fn writes_are_counted_by_the_kernel() {
        assert_eq!(writes_of("rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 42\nread_bytes: 0\n"), Some(42));
        assert_eq!(writes_of("syscw: many"), None);
        let own = std::fs::read_to_string("/proc/self/io").expect("a process may read its own");
        assert!(writes_of(&own).is_some(), "{own}");
    }
}
