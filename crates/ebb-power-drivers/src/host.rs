//! The parts of this machine that drivers use: processes and files of the kernel.
#![allow(clippy::disallowed_methods, reason = "a rim of the program: these are this machine's own processes and sysfs")]

use std::path::Path;

use ebb_types::{Result, bail, err};
use rustix::process::{Pid, Signal, kill_process};

/// A process. Its start time distinguishes it from a later one with the same number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Process {
    pid: i32,
    /// Clock ticks after boot: field 22 of `/proc/PID/stat` (proc(5)).
    started: u64,
}

impl Process {
    /// The process that has this number now. `NotFound` if none has.
    pub fn find(pid: u32) -> Result<Self> {
        let number = i32::try_from(pid).map_err(|_| err!(Invalid, "{pid} is no number of a process"))?;
        let stat = stat(number)?.ok_or_else(|| err!(NotFound, "there is no process {pid}"))?;
        Ok(Self { pid: number, started: stat.started })
    }

    /// The processes that it started, and those that they started, as far as their parents still run: children of one that has
    /// ended belong to init. The process itself is not among them.
    pub fn descendants(&self) -> Result<Vec<Self>> {
        let mut children = std::collections::BTreeMap::<i32, Vec<Self>>::new();
        let all = std::fs::read_dir("/proc").map_err(|error| ebb_types::Error::from_io(&error, "/proc"))?;
        for entry in all.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if let Some(stat) = stat(pid)?.filter(|stat| !stat.is_gone()) {
                children.entry(stat.parent).or_default().push(Self { pid, started: stat.started });
            }
        }
        let (mut found, mut pending) = (Vec::new(), vec![self.pid]);
        while let Some(parent) = pending.pop() {
            let of_parent = children.remove(&parent).unwrap_or_default();
            pending.extend(of_parent.iter().map(|process| process.pid));
            found.extend(of_parent);
        }
        Ok(found)
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }

    /// When it started, in clock ticks after boot.
    #[must_use]
    pub fn started(&self) -> u64 {
        self.started
    }

    /// Whether it is still there, and no zombie.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state().is_ok_and(|state| state.is_some())
    }

    /// Whether it is stopped, as the processes of a node are that sleeps.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.state().is_ok_and(|state| state == Some('T'))
    }

    /// Whether it still runs, but not for long: it was killed, or exits. Its disk operations end first, which may take
    /// a while.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.stat().is_ok_and(|stat| stat.is_some_and(|stat| !stat.is_gone() && stat.ends))
    }

    /// State letter of `/proc/PID/stat`: `T` is stopped; none if the process is gone, dead or only waits to be reaped.
    pub(crate) fn state(&self) -> Result<Option<char>> {
        Ok(self.stat()?.filter(|stat| !stat.is_gone()).map(|stat| stat.state))
    }

    fn stat(&self) -> Result<Option<Stat>> {
        Ok(stat(self.pid)?.filter(|stat| stat.started == self.started))
    }

    /// Sends a signal, unless the process is gone.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        // Between the look and the signal the number could be given anew only after the process had ended and every other
        // number had been used.
        if self.state()?.is_none() {
            return Ok(());
        }
        let pid = Pid::from_raw(self.pid).ok_or_else(|| err!(Invalid, "{} is no number of a process", self.pid))?;
        match kill_process(pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => bail!(NotPermitted, "sending {signal:?} to process {}: {error}", self.pid),
        }
    }
}

struct Stat {
    state: char,
    parent: i32,
    /// Threads that have not ended, the first one among them as long as others live.
    threads: u64,
    started: u64,
    /// It exits, or has a SIGKILL pending.
    ends: bool,
}

impl Stat {
    /// Whether no thread of it does anything any more. The first may be a zombie while another is still in a system call:
    /// then files and locks are still held.
    fn is_gone(&self) -> bool {
        "ZXx".contains(self.state) && self.threads <= 1
    }
}

/// `PF_EXITING` of linux/include/linux/sched.h.
const EXITING: u64 = 0x4;
/// The bit of SIGKILL in a set of signals.
const KILL_PENDING: u64 = 1 << 8;

fn stat(pid: i32) -> Result<Option<Stat>> {
    let path = format!("/proc/{pid}/stat");
    match std::fs::read_to_string(&path) {
        Ok(text) => match parse(&text) {
            Some(stat) => Ok(Some(stat)),
            None => bail!(Io, "{path} is not as proc(5) describes it: {text:?}"),
        },
        // A process that ends while its file is read gives ESRCH.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound || error.raw_os_error() == Some(3) => Ok(None),
        Err(error) => bail!(Io, "reading {path}: {error}"),
    }
}

/// The name of a program may hold anything, parentheses and spaces too: the other fields come after the last one.
fn parse(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    // Counted as in proc(5), where the name is the second.
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let state = fields.first()?.chars().next()?;
    let ends = "ZXx".contains(state) || number(9)? & EXITING != 0 || number(31)? & KILL_PENDING != 0;
    let parent = fields.get(1)?.parse().ok()?;
    Some(Stat { state, parent, threads: number(20)?, started: number(22)?, ends })
}

/// A small file of the kernel as text.
pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|error| ebb_types::Error::from_io(&error, path.display()))
}

/// Writes a small file of the kernel; returns when the kernel has carried the request out.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| ebb_types::Error::from_io(&error, path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let stat = parse(&text('S', &[])).unwrap();
        assert_eq!((stat.state, stat.threads, stat.started), ('S', 20, 22));
        assert!(parse("17 (cut off").is_none() && parse("17 (a) S 1 2").is_none());
    }

    #[test]
    fn a_process_ends_before_it_is_gone() {
        let parsed =
            |state, fields: &[(usize, u64)]| parse(&text(state, fields)).map(|stat| (stat.ends, stat.is_gone()));
        assert_eq!(parsed('S', &[(9, 0x40_0000), (31, 0)]), Some((false, false)));
        assert_eq!(parsed('D', &[(9, 0), (31, 256)]), Some((true, false)), "killed in the middle of disk work");
        assert_eq!(parsed('R', &[(9, 0x40_0004), (31, 0)]), Some((true, false)));
        assert_eq!(parsed('Z', &[(20, 3)]), Some((true, false)), "another thread still does something");
        assert_eq!(parsed('Z', &[(20, 1)]), Some((true, true)));
    }

    /// A line of `/proc/PID/stat` whose fields hold their own numbers, but for these.
    fn text(state: char, fields: &[(usize, u64)]) -> String {
        let value =
            |field: usize| fields.iter().find(|(number, _)| *number == field).map_or(field as u64, |found| found.1);
        let values: Vec<String> = (4..=52).map(|field| value(field).to_string()).collect();
        format!("17 (a) T (b) {state} {}", values.join(" "))
    }

    #[test]
    fn the_own_process_runs_and_another_with_its_number_is_another() {
        let own = Process::find(std::process::id()).unwrap();
        assert!(own.state().unwrap().is_some());
        let later = Process { started: own.started + 1, ..own };
        assert_eq!(later.state().unwrap(), None, "the one that was meant is gone");
        later.signal(Signal::STOP).expect("nothing is sent");
        assert!(Process::find(u32::MAX).is_err());
    }
}
