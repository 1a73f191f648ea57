//! Tickets of direct writes: they have a place in the queue, and their bytes are on the way. Pure.
//!
//! A ticket lives for a few seconds. Later writes that overlap it wait, and its client may be gone.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::SessionId;
use ebb_wire::pb;

use crate::requests::RequestName;

/// Lifetime of a ticket. A call to members has four seconds.
const LIFE: Duration = Duration::from_secs(6);
/// Most tickets of one file at a time. No session has more than it leaves for all others. Further writes go through the
/// proxy.
const TICKETS_MAX: usize = 256;

/// A direct write. `T` is its place in the queue, kept as long as the ticket lives.
#[derive(Debug)]
pub struct Ticket<T> {
    /// Bytes of the file.
    pub range: Range<u64>,
    /// Where the client puts its bytes.
    pub parts: Vec<pb::DirectPart>,
    /// Its place in the queue.
    pub place: T,
    until: Moment,
}

/// All tickets of a file, by request.
#[derive(Debug)]
pub struct Tickets<T>(BTreeMap<RequestName, Ticket<T>>);

impl<T> Default for Tickets<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> Tickets<T> {
    /// Whether this session may have a further ticket.
    #[must_use]
    pub fn has_room(&self, session: SessionId) -> bool {
        let held = self.0.range(RequestName::all_of(session)).count();
        assert!(self.0.len() <= TICKETS_MAX, "{} tickets of one file are more than its bound", self.0.len());
        // I-100: a session gets no more than it leaves for all others.
        held < TICKETS_MAX - self.0.len()
    }

    /// Gives a ticket to a request.
    pub fn give(&mut self, name: RequestName, range: Range<u64>, parts: Vec<pb::DirectPart>, place: T, now: Moment) {
        let before = self.0.insert(name, Ticket { range, parts, place, until: now.after(LIFE) });
        assert!(before.is_none(), "{name:?} has a ticket already, whose bytes would be written under two versions");
    }

    /// Redeems a ticket. None if it was redeemed before, or is too old: the write must not be executed then.
    pub fn redeem(&mut self, name: RequestName, now: Moment) -> Option<Ticket<T>> {
        // I-58: an old ticket is never redeemed. A later write that overlaps it may be done by now.
        self.0.remove(&name).filter(|ticket| now < ticket.until)
    }

    /// Removes the tickets that are too old, and returns them. The bytes that were put for them can be dropped.
    pub fn take_old(&mut self, now: Moment) -> Vec<(RequestName, Ticket<T>)> {
        let old: Vec<_> = self.0.iter().filter(|(_, ticket)| ticket.until <= now).map(|(name, _)| *name).collect();
        old.into_iter().filter_map(|name| Some((name, self.0.remove(&name)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionId = SessionId::new(1);

    fn name(request: u64) -> RequestName {
        RequestName::new(ONE, request)
    }

    fn at(seconds: u64) -> Moment {
        Moment::default().after(Duration::from_secs(seconds))
    }

    #[test]
    fn one_is_taken_once_and_not_when_it_is_old() {
        let mut tickets = Tickets::default();
        tickets.give(name(5), 0..10, Vec::new(), (), at(0));
        assert!(tickets.redeem(name(6), at(1)).is_none());
        assert!(tickets.redeem(name(5), at(5)).is_some());
        assert!(tickets.redeem(name(5), at(5)).is_none());
        tickets.give(name(5), 0..10, Vec::new(), (), at(0));
        assert!(tickets.redeem(name(5), at(6)).is_none(), "others may have gone before it by now");
    }

    #[test]
    fn old_ones_go_and_there_are_not_too_many() {
        let mut tickets = Tickets::default();
        let half = TICKETS_MAX as u64 / 2;
        for request in 0..half {
            assert!(tickets.has_room(ONE));
            tickets.give(name(request), 0..10, Vec::new(), (), at(request % 2));
        }
        assert!(!tickets.has_room(ONE));
        assert_eq!(tickets.take_old(at(6)).len() as u64, half / 2);
        assert!(tickets.has_room(ONE));
        assert!(tickets.redeem(name(1), at(6)).is_some() && tickets.redeem(name(0), at(6)).is_none());
    }

    #[test]
    fn a_greedy_session_leaves_tickets_for_others() {
        let mut tickets = Tickets::default();
        let mut given = |session: u64| {
            let session = SessionId::new(session);
            (0..)
                .take_while(|request| {
                    let has_room = tickets.has_room(session);
                    if has_room {
                        tickets.give(RequestName::new(session, *request), 0..10, Vec::new(), (), at(0));
                    }
                    has_room
                })
                .count()
        };
        assert_eq!([given(1), given(2), given(3)], [128, 64, 32]);
        assert!((4..10).all(|session| given(session) > 0), "there is something left for each that comes");
    }
}
