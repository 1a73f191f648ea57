//! Direct writes that have their place, and whose bytes are on their way. Pure.
//!
//! Each lives for a few seconds: later ones that overlap wait for it, and whoever was to come back may be gone.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::SessionId;
use ebb_wire::pb;

/// How long the bytes may take: a call to members has four seconds.
const LIFE: Duration = Duration::from_secs(6);
/// Of one file at a time, and no session has more than are left for all others; further writes go by way of the proxy.
const TICKETS_MAX: usize = 256;

/// A direct write; `T` is its place in the queue, which it has as long as this lives.
#[derive(Debug)]
pub struct Ticket<T> {
    /// Where in the file.
    pub range: Range<u64>,
    /// Where its bytes are put.
    pub parts: Vec<pb::DirectPart>,
    /// Its place among others.
    pub place: T,
    until: Moment,
}

/// All of a file, by session and request.
#[derive(Debug)]
pub struct Tickets<T>(BTreeMap<(SessionId, u64), Ticket<T>>);

impl<T> Default for Tickets<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> Tickets<T> {
    /// Whether there may be another one of this session.
    #[must_use]
    pub fn has_room(&self, session: SessionId) -> bool {
        let held = self.0.range((session, 0)..=(session, u64::MAX)).count();
        held < TICKETS_MAX - self.0.len()
    }

    /// Gives one to the request of a session.
    pub fn give(
        &mut self,
        name: (SessionId, u64),
        range: Range<u64>,
        parts: Vec<pb::DirectPart>,
        place: T,
        now: Moment,
    ) {
        self.0.insert(name, Ticket { range, parts, place, until: now.after(LIFE) });
    }

    /// Its owner comes back. None: it was taken already, or is too old, and never to be carried out.
    pub fn redeem(&mut self, name: (SessionId, u64), now: Moment) -> Option<Ticket<T>> {
        self.0.remove(&name).filter(|ticket| now < ticket.until)
    }

    /// Those that are too old; what was put for them can be dropped.
    pub fn take_old(&mut self, now: Moment) -> Vec<((SessionId, u64), Ticket<T>)> {
        let old: Vec<_> = self.0.iter().filter(|(_, ticket)| ticket.until <= now).map(|(name, _)| *name).collect();
        old.into_iter().filter_map(|name| Some((name, self.0.remove(&name)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: (SessionId, u64) = (SessionId::new(1), 5);

    fn at(seconds: u64) -> Moment {
        Moment::default().after(Duration::from_secs(seconds))
    }

    #[test]
    fn one_is_taken_once_and_not_when_it_is_old() {
        let mut tickets = Tickets::default();
        tickets.give(ONE, 0..10, Vec::new(), (), at(0));
        assert!(tickets.redeem((ONE.0, 6), at(1)).is_none());
        assert!(tickets.redeem(ONE, at(5)).is_some());
        assert!(tickets.redeem(ONE, at(5)).is_none());
        tickets.give(ONE, 0..10, Vec::new(), (), at(0));
        assert!(tickets.redeem(ONE, at(6)).is_none(), "others may have gone before it by now");
    }

    #[test]
    fn old_ones_go_and_there_are_not_too_many() {
        let mut tickets = Tickets::default();
        let half = TICKETS_MAX as u64 / 2;
        for request in 0..half {
            assert!(tickets.has_room(ONE.0));
            tickets.give((ONE.0, request), 0..10, Vec::new(), (), at(request % 2));
        }
        assert!(!tickets.has_room(ONE.0));
        assert_eq!(tickets.take_old(at(6)).len() as u64, half / 2);
        assert!(tickets.has_room(ONE.0));
        assert!(tickets.redeem((ONE.0, 1), at(6)).is_some() && tickets.redeem((ONE.0, 0), at(6)).is_none());
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
                        tickets.give((session, *request), 0..10, Vec::new(), (), at(0));
                    }
                    has_room
                })
                .count()
        };
        assert_eq!([given(1), given(2), given(3)], [128, 64, 32]);
        assert!((4..10).all(|session| given(session) > 0), "there is something left for each that comes");
    }
}
