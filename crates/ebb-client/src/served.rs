//! What programs were served by this process: the bytes of the energy account's joules per GiB.
//!
//! Counted where a program's call is answered ([`crate::Client::read`] and its like), so each byte counts once: not for each
//! copy, not for what is read ahead or fetched again, not for repairs. What a proxy carries out for others is counted where
//! they asked.

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
    told: u64,
}

impl Served {
    /// Nothing yet; `boot` tells this process from all others.
    pub fn new(boot: u64) -> Self {
        Self { boot, bytes: Mutex::default() }
    }

    /// So many bytes of an open file were read or written for a program.
    pub fn count(&self, file: &OpenFile, bytes: usize) {
        if file.pinned.is_none() {
            self.add(bytes);
        }
    }

    /// So many bytes were read beside open files.
    pub fn add(&self, bytes: usize) {
        self.bytes.lock().all += bytes as u64;
    }

    /// What the master is told. Whether a message arrives is never certain: from now on it counts as told.
    pub fn to_message(&self) -> pb::Served {
        let mut bytes = self.bytes.lock();
        let all = bytes.all;
        pb::Served { boot: self.boot, bytes: all, told_bytes: std::mem::replace(&mut bytes.told, all) }
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
