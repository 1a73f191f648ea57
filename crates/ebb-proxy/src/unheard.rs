//! Sessions that wrote to a file and have not heard since that it is synced. Pure.
//!
//! Such a client counts what it wrote as lost if the file's stay ends without a word. So a proxy that ends in good order
//! waits until each of them has asked once more, and been answered that everything was kept.

use std::collections::BTreeMap;

use ebb_types::SessionId;

/// Writes are numbered in their order, as in [`crate::unsynced`].
#[derive(Debug, Default)]
pub struct Unheard {
    last: u64,
    /// The last write of each session.
    written: BTreeMap<SessionId, u64>,
}

impl Unheard {
    /// A write of a session was carried out.
    pub fn on_written(&mut self, session: SessionId) {
        self.last += 1;
        self.written.insert(session, self.last);
    }

    /// The number up to which a sync that begins now goes.
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.last
    }

    /// A sync that began at this mark is answered to the session that asked for it.
    pub fn on_heard(&mut self, session: SessionId, mark: u64) {
        if self.written.get(&session).is_some_and(|last| *last <= mark) {
            self.written.remove(&session);
        }
    }

    /// A session is told that everything is synced, or is over.
    pub fn forget(&mut self, session: SessionId) {
        self.written.remove(&session);
    }

    /// Sessions that wrote and have not heard.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.written.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionId = SessionId::new(1);
    const TWO: SessionId = SessionId::new(2);

    fn sessions(unheard: &Unheard) -> Vec<SessionId> {
        unheard.sessions().collect()
    }

    #[test]
    fn a_session_hears_of_what_it_wrote_before_the_sync_and_of_no_more() {
        let mut unheard = Unheard::default();
        unheard.on_written(ONE);
        unheard.on_written(TWO);
        let mark = unheard.mark();
        unheard.on_heard(ONE, mark);
        assert_eq!(sessions(&unheard), [TWO], "another one's sync is not told to it");
        unheard.on_written(ONE);
        let mark = unheard.mark();
        unheard.on_written(ONE);
        unheard.on_heard(ONE, mark);
        assert_eq!(sessions(&unheard), [ONE, TWO], "it wrote again while the sync was under way");
        unheard.forget(TWO);
        unheard.on_heard(ONE, unheard.mark());
        assert_eq!(sessions(&unheard), []);
    }

    #[test]
    fn of_two_syncs_at_a_time_the_later_answer_says_nothing_of_what_came_between() {
        let mut unheard = Unheard::default();
        unheard.on_written(ONE);
        let mark = unheard.mark();
        unheard.on_heard(ONE, mark);
        unheard.on_written(ONE);
        unheard.on_heard(ONE, mark);
        assert_eq!(sessions(&unheard), [ONE]);
    }
}
