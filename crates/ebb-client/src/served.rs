//! Bytes that this process served to programs: the GiB in the energy account's joules per GiB.
//!
//! Bytes are counted where a program's call is answered ([`crate::Client::read`] and its like). So
//! each byte counts once. Further copies, prefetch, repeated fetches and repairs do not count. A
//! proxy's operations for other clients are counted at those clients.

use ebb_wire::pb;
use parking_lot::Mutex;

use crate::handles::OpenFile;

/// A counter that only grows.
#[derive(Debug)]
pub(crate) struct Served {
    boot: u64,
    bytes: Mutex<Bytes>,
}

#[derive(Debug, Default)]
struct Bytes {
    all: u64,
    reported: u64,
}

impl Served {
    /// A counter at zero. `boot` distinguishes this process from all others.
    pub fn new(boot: u64) -> Self {
        Self { boot, bytes: Mutex::default() }
    }

    /// Counts `bytes` of an open file that were read or written for a program.
    pub fn count(&self, file: &OpenFile, bytes: usize) {
        if file.pinned.is_none() {
            self.add(bytes);
        }
    }

    /// Counts `bytes` that were read without an open file.
    pub fn add(&self, bytes: usize) {
        self.bytes.lock().all += bytes as u64;
    }

    /// The report to the master. Its bytes count as reported from now on, because it is never certain whether a
    /// message arrives.
    pub fn to_message(&self) -> pb::Served {
        let mut bytes = self.bytes.lock();
        let all = bytes.all;
        pb::Served { boot: self.boot, bytes: all, told_bytes: std::mem::replace(&mut bytes.reported, all) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_says_what_those_before_it_said() {
        let served = Served::new(7);
        served.add(100);
        assert_eq!(served.to_message(), pb::Served { boot: 7, bytes: 100, told_bytes: 0 });
        served.add(20);
        assert_eq!(served.to_message(), pb::Served { boot: 7, bytes: 120, told_bytes: 100 });
        assert_eq!(served.to_message(), pb::Served { boot: 7, bytes: 120, told_bytes: 120 });
    }
}
