//! The record of a run: a hash that two runs of one seed must agree on, and the faults that took effect.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

/// A fault that took effect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Virtual time since the start.
    pub at: Duration,
    /// The counter that it is in.
    pub kind: &'static str,
    /// The object that it happened to.
    pub detail: String,
}

/// An event, as far as it is kept: for finding where two runs of one seed part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Virtual time since the start.
    pub at: Duration,
    /// The kind of the event.
    pub kind: &'static str,
    /// Its object: a connection, an operation.
    pub numbers: Vec<u64>,
    /// Bytes that belong to it.
    pub len: usize,
    /// The trace's hash after it.
    pub hash: u64,
}

/// Entries that the log of faults keeps; the counters go on.
const LOG_MAX: usize = 10_000;

pub(super) struct Trace(Mutex<Record>);

#[derive(Default)]
struct Record {
    hash: u64,
    events: u64,
    faults: BTreeMap<&'static str, u64>,
    log: Vec<Fault>,
    kept: Vec<Event>,
    kept_max: usize,
}

impl Trace {
    /// A trace that keeps its first events.
    pub(super) fn new(kept_max: usize) -> Self {
        Self(Mutex::new(Record { kept_max, ..Record::default() }))
    }

    /// Adds an event to the hash.
    pub(super) fn event(&self, at_ns: u64, kind: &'static str, numbers: &[u64], data: &[u8]) {
        let mut record = self.0.lock();
        record.events += 1;
        record.mix(at_ns);
        record.mix_bytes(kind.as_bytes());
        for number in numbers {
            record.mix(*number);
        }
        record.mix_bytes(data);
        if record.kept.len() < record.kept_max {
            let (at, numbers) = (Duration::from_nanos(at_ns), numbers.to_vec());
            let event = Event { at, kind, numbers, len: data.len(), hash: record.hash };
            record.kept.push(event);
        }
    }

    /// Counts a fault that took effect, and adds it to the hash.
    pub(super) fn fault(&self, at_ns: u64, kind: &'static str, detail: String) {
        self.event(at_ns, kind, &[], detail.as_bytes());
        let mut record = self.0.lock();
        *record.faults.entry(kind).or_default() += 1;
        if record.log.len() < LOG_MAX {
            record.log.push(Fault { at: Duration::from_nanos(at_ns), kind, detail });
        }
    }

    pub(super) fn hash(&self) -> u64 {
        let record = self.0.lock();
        // The end is mixed again so that the last event's low bits reach all of the hash.
        mixed(mixed(record.hash, record.events), 0)
    }

    pub(super) fn faults(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().faults.clone()
    }

    pub(super) fn kept(&self) -> Vec<Event> {
        self.0.lock().kept.clone()
    }

    pub(super) fn log(&self) -> Vec<Fault> {
        self.0.lock().log.clone()
    }
}

impl Record {
    fn mix(&mut self, word: u64) {
        self.hash = mixed(self.hash, word);
    }

    fn mix_bytes(&mut self, data: &[u8]) {
        self.mix(data.len() as u64);
        let mut words = data.chunks_exact(8);
        for word in &mut words {
            self.mix(u64::from_le_bytes(word.try_into().expect("chunks of eight bytes")));
        }
        let mut last = [0; 8];
        last[..words.remainder().len()].copy_from_slice(words.remainder());
        self.mix(u64::from_le_bytes(last));
    }
}

/// Multiply and rotate: fast, the same everywhere, and good enough where no input is chosen to collide.
fn mixed(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
