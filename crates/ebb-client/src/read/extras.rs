//! The metablocks that this client reads most, and their extra copies (docs/protocol.md, Extra copies).
//!
//! A read counts if a member served a part of a metablock, one block at most, read-ahead included: that is the load that
//! an extra copy takes off the others. It counts as its part of the metablock's bytes. A read that the cache serves needs no copy. A read by a map without a lease is
//! counted, and never sent to an extra copy: a writer may have come since.

use std::collections::BTreeMap;

use ebb_power::popularity::tally::{Tally, parts};
use ebb_types::{Error, ErrorKind, MetablockId};
use ebb_wire::pb;
use parking_lot::Mutex;

/// Metablocks that are counted between two polls.
const COUNTED_MAX: usize = 512;
/// Metablocks whose extra copies are remembered.
const KNOWN_MAX: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct Extras(Mutex<State>);

#[derive(Debug)]
struct State {
    tally: Tally,
    known: BTreeMap<u64, Vec<pb::Member>>,
}

impl Default for Extras {
    fn default() -> Self {
        Self(Mutex::new(State { tally: Tally::new(COUNTED_MAX), known: BTreeMap::new() }))
    }
}

impl State {
    fn know(&mut self, metablock: u64, extras: Vec<pb::Member>) {
        if extras.is_empty() {
            self.known.remove(&metablock);
            return;
        }
        self.known.insert(metablock, extras);
        if self.known.len() > KNOWN_MAX {
            // Any one will do: the master reports copies of metablocks in use again.
            self.known.pop_first();
        }
    }
}

impl Extras {
    /// A record with its extra copies behind its members: for reads under a lease, and for nothing else. None: it has none.
    pub fn readable(&self, record: &pb::Metablock) -> Option<pb::Metablock> {
        let mut extra = {
            let mut state = self.0.lock();
            if !state.known.contains_key(&record.id) && !record.extra.is_empty() {
                state.know(record.id, record.extra.clone());
            }
            state.known.get(&record.id)?.clone()
        };
        extra.retain(|extra| record.members.iter().all(|member| member.node != extra.node));
        let members = [&record.members[..], &extra[..]].concat();
        Some(pb::Metablock { members, extra, ..record.clone() })
    }

    /// A member, or a node with an extra copy, served a read of so many bytes.
    pub fn on_read(&self, record: &pb::Metablock, len: u64) {
        self.0.lock().tally.count(record.metablock_id(), parts(len, record.length));
    }

    /// The node that should have an extra copy has none that serves.
    pub fn on_failed(&self, record: &pb::Metablock, member: &pb::Member, error: &Error) {
        let lacks_copy = matches!(error.kind(), ErrorKind::NoReplica | ErrorKind::StaleVersion | ErrorKind::Corrupt);
        if lacks_copy && record.extra.contains(member) {
            let mut state = self.0.lock();
            let left = state.known.get(&record.id).into_iter().flatten().filter(|extra| *extra != member);
            let left = left.copied().collect();
            state.know(record.id, left);
        }
    }

    /// The master tells of extra copies.
    pub fn on_extra_copies(&self, newest: Vec<pb::ExtraCopies>) {
        let mut state = self.0.lock();
        for copies in newest {
            state.know(copies.metablock, copies.members);
        }
    }

    /// What was read since the last call.
    pub fn take_reads(&self) -> Vec<pb::BlockReads> {
        let mut state = self.0.lock();
        let reads = state.tally.take_counts();
        let message = |(metablock, reads): (MetablockId, u32)| {
            let extras = state.known.get(&metablock.raw()).map_or(0, Vec::len);
            pb::BlockReads { metablock: metablock.raw(), reads, extras: u32::try_from(extras).unwrap_or(u32::MAX) }
        };
        reads.into_iter().map(message).collect()
    }
}

#[cfg(test)]
mod tests {
    use ebb_types::err;

    use super::*;

    fn member(node: u64) -> pb::Member {
        pb::Member { node, volume: node, incarnation: 1, home: 0 }
    }

    fn record(members: &[u64], extra: &[u64]) -> pb::Metablock {
        let of = |nodes: &[u64]| nodes.iter().copied().map(member).collect();
        pb::Metablock { id: 7, members: of(members), extra: of(extra), ..Default::default() }
    }

    fn nodes(record: &pb::Metablock) -> Vec<u64> {
        record.members.iter().map(|member| member.node).collect()
    }

    #[test]
    fn extra_copies_are_read_until_they_fail_or_the_master_says_otherwise() {
        let extras = Extras::default();
        let readable = extras.readable(&record(&[1, 2], &[4, 5])).unwrap();
        assert_eq!(nodes(&readable), [1, 2, 4, 5]);
        extras.on_failed(&readable, &member(4), &err!(Timeout, "says nothing of the copy"));
        assert_eq!(nodes(&extras.readable(&record(&[1, 2], &[])).unwrap()), [1, 2, 4, 5]);
        extras.on_failed(&readable, &member(4), &err!(NoReplica, "gone"));
        extras.on_failed(&readable, &member(1), &err!(NoReplica, "a member is the set's business"));
        assert_eq!(nodes(&extras.readable(&record(&[1, 2], &[])).unwrap()), [1, 2, 5]);
        assert_eq!(nodes(&extras.readable(&record(&[1, 5], &[])).unwrap()), [1, 5], "it has become a member");
        extras.on_extra_copies(vec![pb::ExtraCopies { metablock: 7, members: vec![] }]);
        assert_eq!(extras.readable(&record(&[1, 2], &[])), None, "the members are all that there is");
    }

    #[test]
    fn the_report_has_the_number_of_known_extra_copies() {
        let extras = Extras::default();
        extras.on_extra_copies(vec![pb::ExtraCopies { metablock: 7, members: vec![member(4)] }]);
        let read = |id| pb::Metablock { id, length: 640, ..Default::default() };
        (0..3).for_each(|_| extras.on_read(&read(7), 10));
        extras.on_read(&read(8), 640);
        let expected =
            [(7, 3, 1), (8, 64, 0)].map(|(metablock, reads, extras)| pb::BlockReads { metablock, reads, extras });
        assert_eq!(extras.take_reads(), expected);
        assert_eq!(extras.take_reads(), []);
        let copies = |metablock| pb::ExtraCopies { metablock, members: vec![member(4)] };
        extras.on_extra_copies((0..2 * KNOWN_MAX as u64).map(copies).collect());
        assert_eq!(extras.0.lock().known.len(), KNOWN_MAX);
    }
}
