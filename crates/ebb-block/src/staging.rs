//! Bytes of direct writes, between the client that puts them and the proxy that says when they are written. Pure.
//!
//! They are in memory alone. Bytes lost in a crash the proxy fetches from another member, or the client gets an
//! error. Bounded in bytes and in time, because a client that lost its proxy, or never had an answer, does not come
//! back for them. No session has more than is left for all others.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use ebb_runtime::Moment;
use ebb_types::{Epoch, MetablockId, Result, bail};
use ebb_wire::pb;

/// Bytes that were not dropped for this time are dropped. A ticket lives for seconds. A write that some members have
/// not synced lives as long as the replacement of its member takes; a later need copies the replica instead.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// Counted for each beyond its bytes.
const OVERHEAD: usize = 512;

/// What a ticket is for here: session and request, and the metablock.
pub(crate) type Name = (u64, u64, MetablockId);

/// The name in a message.
pub(crate) fn name_of(ticket: pb::Ticket, metablock: u64) -> Name {
    (ticket.session, ticket.request, MetablockId::new(metablock))
}

/// Bytes that were put.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Put {
    /// Under which the proxy held the file then.
    pub epoch: Epoch,
    /// In the metablock.
    pub offset: u64,
    /// They.
    pub bytes: Bytes,
    /// As the client made them.
    pub checksums: Vec<u32>,
}

/// All that is kept.
#[derive(Debug)]
pub(crate) struct Staging {
    bytes_max: usize,
    bytes: usize,
    kept: BTreeMap<Name, (Put, Moment)>,
    /// Of the bytes, those of each session.
    of_session: BTreeMap<u64, usize>,
}

impl Staging {
    /// Nothing, and at most so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: 0, kept: BTreeMap::new(), of_session: BTreeMap::new() }
    }

    /// Keeps bytes. What came before under this name stays: it is the same, sent again.
    ///
    /// Errors: `Overloaded` if there is no room, or the session has its share; `Invalid` if it is not the same.
    pub fn put(&mut self, name: Name, put: Put, now: Moment) -> Result<()> {
        self.sweep(now);
        if let Some((before, _)) = self.kept.get(&name) {
            if (before.offset, &before.checksums) != (put.offset, &put.checksums) {
                bail!(Invalid, "request {} of s{} has put other bytes for {}", name.1, name.0, name.2);
            }
            return Ok(());
        }
        let weight = weight(&put);
        let (held, free) = (self.of_session.get(&name.0).copied().unwrap_or(0), self.bytes_max - self.bytes);
        // The first one of a session has whatever is left.
        if weight > free || held > 0 && held + weight > free {
            bail!(
                Overloaded,
                "{} bytes of direct writes wait here already, {held} of them of s{}, {} may",
                self.bytes,
                name.0,
                self.bytes_max
            );
        }
        self.bytes += weight;
        *self.of_session.entry(name.0).or_default() += weight;
        self.kept.insert(name, (put, now.after(KEPT_FOR)));
        // I-100: whatever was put, no more memory is taken than was declared.
        assert!(self.bytes <= self.bytes_max, "{} bytes of {}", self.bytes, self.bytes_max);
        debug_assert_eq!(self.of_session.values().sum::<usize>(), self.bytes, "every byte is some session's");
        Ok(())
    }

    /// What was put under a name.
    pub fn get(&self, name: &Name) -> Option<Put> {
        self.kept.get(name).map(|(put, _)| put.clone())
    }

    /// It is not needed any more.
    pub fn drop_one(&mut self, name: &Name) {
        if let Some((put, _)) = self.kept.remove(name) {
            self.give_back(name.0, weight(&put));
        }
    }

    /// Drops the bytes that were put for a metablock under lower epochs.
    pub fn drop_below(&mut self, metablock: MetablockId, epoch: Epoch) {
        let is_fenced = |name: &Name, put: &Put| name.2 == metablock && put.epoch < epoch;
        self.drop_if(|name, put, _| is_fenced(name, put));
        debug_assert!(
            !self.kept.iter().any(|(name, (put, _))| is_fenced(name, put)),
            "bytes of an epoch that is over are kept for {metablock}"
        );
    }

    /// Drops bytes that are too old.
    pub fn sweep(&mut self, now: Moment) {
        self.drop_if(|_, _, until| until <= now);
    }

    fn drop_if(&mut self, is_over: impl Fn(&Name, &Put, Moment) -> bool) {
        let over = self.kept.extract_if(.., |name, (put, until)| is_over(name, put, *until));
        let over: Vec<(u64, usize)> = over.map(|(name, (put, _))| (name.0, weight(&put))).collect();
        over.into_iter().for_each(|(session, weight)| self.give_back(session, weight));
    }

    fn give_back(&mut self, session: u64, weight: usize) {
        let held = self.of_session.get_mut(&session).expect("a session that has bytes here is counted");
        assert!(weight <= *held && *held <= self.bytes, "{weight} bytes of {held} of s{session}, of {}", self.bytes);
        *held -= weight;
        self.bytes -= weight;
        if *held == 0 {
            self.of_session.remove(&session);
        }
    }
}

fn weight(put: &Put) -> usize {
    put.bytes.len() + OVERHEAD
}

#[cfg(test)]
mod tests {
    use ebb_types::ErrorKind;

    use super::*;

    const ONE: usize = 1000 + OVERHEAD;
    /// For three of one session: that many more are left for others.
    const ROOM: usize = 5 * ONE;

    fn at(seconds: u64) -> Moment {
        Moment::default().after(Duration::from_secs(seconds))
    }

    fn put(epoch: u64, byte: u8) -> Put {
        let (epoch, bytes) = (Epoch::new(epoch), Bytes::from(vec![byte; 1000]));
        Put { epoch, offset: 0, bytes, checksums: vec![u32::from(byte)] }
    }

    fn name(request: u64, metablock: u64) -> Name {
        (7, request, MetablockId::new(metablock))
    }

    #[test]
    fn a_repeated_write_changes_nothing_and_takes_no_room() {
        let mut staging = Staging::new(ROOM);
        staging.put(name(1, 1), put(3, 5), at(0)).unwrap();
        staging.put(name(1, 1), put(3, 5), at(1)).unwrap();
        assert_eq!(staging.put(name(1, 1), put(3, 6), at(1)).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(staging.get(&name(1, 1)), Some(put(3, 5)));
        staging.put(name(1, 2), put(3, 6), at(0)).unwrap();
        staging.put(name(2, 1), put(3, 7), at(0)).unwrap();
        assert_eq!(staging.put(name(3, 1), put(3, 8), at(0)).unwrap_err().kind(), ErrorKind::Overloaded);
        staging.drop_one(&name(1, 2));
        staging.drop_one(&name(1, 2));
        staging.put(name(3, 1), put(3, 8), at(0)).unwrap();
        assert_eq!(staging.get(&name(1, 2)), None);
    }

    #[test]
    fn bytes_of_a_client_that_does_not_return_leave_their_room_to_others() {
        let mut staging = Staging::new(ROOM);
        for request in 0..3 {
            staging.put(name(request, 1), put(3, 1), at(request)).unwrap();
        }
        assert!(staging.put(name(9, 1), put(3, 1), at(59)).is_err());
        staging.put(name(9, 1), put(3, 1), at(60)).unwrap();
        assert_eq!(staging.get(&name(0, 1)), None);
        staging.sweep(at(500));
        assert_eq!((staging.bytes, staging.kept.len(), staging.of_session.len()), (0, 0, 0));
    }

    #[test]
    fn a_greedy_session_leaves_room_for_others() {
        let mut staging = Staging::new(16 * ONE);
        let mut kept = |session: u64| {
            let put = |request| staging.put((session, request, MetablockId::new(1)), put(3, 1), at(0)).is_ok();
            (0..100).map(put).filter(|is_kept| *is_kept).count()
        };
        assert_eq!([kept(1), kept(2), kept(3)], [8, 4, 2]);
        assert_eq!([kept(4), kept(5), kept(6)], [1, 1, 0], "the first one of a session has whatever is left");
    }

    #[test]
    fn a_promise_ends_what_was_put_under_lower_epochs() {
        let mut staging = Staging::new(ROOM);
        staging.put(name(1, 1), put(3, 1), at(0)).unwrap();
        staging.put(name(2, 1), put(4, 1), at(0)).unwrap();
        staging.put(name(1, 2), put(3, 1), at(0)).unwrap();
        staging.drop_below(MetablockId::new(1), Epoch::new(4));
        let left: Vec<Name> = staging.kept.keys().copied().collect();
        assert_eq!(left, [name(1, 2), name(2, 1)]);
        assert_eq!((staging.bytes, staging.of_session[&7]), (2 * ONE, 2 * ONE));
    }
}
