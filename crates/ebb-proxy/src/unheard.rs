//! Sessions that changed a file, and do not know yet that their changes are synced. Pure.
//!
//! If the file's stay ends without a word, such a client treats its writes as lost. So a proxy that ends in good order
//! waits until each of them has asked once more, and has learnt that everything was kept.
//!
//! The client's knowledge counts. A sync may leave the client before the answer to an earlier change arrives. The
//! change is then on disks, and its client does not know. So clients send with a sync how many answers they have.

use std::collections::BTreeMap;

use ebb_types::SessionId;

/// Changes of one file, numbered in order, as in [`crate::unsynced`].
#[derive(Debug, Default)]
pub struct Unheard {
    last: u64,
    changed: BTreeMap<SessionId, Changes>,
}

/// Changes of one session.
#[derive(Debug, Default)]
struct Changes {
    count: u64,
    /// Number of the last change.
    last: u64,
    /// The session knows that all of them are synced.
    is_heard: bool,
}

impl Unheard {
    /// Records a change of a session.
    pub fn on_changed(&mut self, session: SessionId) {
        self.last += 1;
        let changes = self.changed.entry(session).or_default();
        *changes = Changes { count: changes.count + 1, last: self.last, is_heard: false };
    }

    /// Number of the last change that a sync covers if it starts now.
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.last
    }

    /// Records the answer to a session's sync that started at this mark. `answered` is the number of answers that the
    /// session had when it asked. It is `None` for clients of an earlier release.
    pub fn on_heard(&mut self, session: SessionId, mark: u64, answered: Option<u64>) {
        let Some(changes) = self.changed.get_mut(&session) else { return };
        assert!(mark <= self.last, "a sync goes up to change {mark}, and there were {} changes", self.last);
        // A later change of this session may be missing from the sync, and one without an answer is unknown to its
        // client.
        changes.is_heard |= changes.last <= mark && answered.is_none_or(|answered| answered >= changes.count);
    }

    /// Forgets a session: it learns that everything is synced, or it is over.
    pub fn forget(&mut self, session: SessionId) {
        if let Some(changes) = self.changed.get_mut(&session) {
            changes.is_heard = true;
        }
    }

    /// Sessions with changes of which they do not know that they are synced.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.changed.iter().filter(|(_, changes)| !changes.is_heard).map(|(session, _)| *session)
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
    fn a_session_is_answered_for_its_writes_before_the_sync_and_for_no_more() {
        let mut unheard = Unheard::default();
        unheard.on_changed(ONE);
        unheard.on_changed(TWO);
        let mark = unheard.mark();
        unheard.on_heard(ONE, mark, Some(1));
        assert_eq!(sessions(&unheard), [TWO], "another one's sync is not told to it");
        unheard.on_changed(ONE);
        let mark = unheard.mark();
        unheard.on_changed(ONE);
        unheard.on_heard(ONE, mark, Some(3));
        assert_eq!(sessions(&unheard), [ONE, TWO], "it wrote again while the sync was under way");
        unheard.forget(TWO);
        unheard.on_heard(ONE, unheard.mark(), Some(3));
        assert_eq!(sessions(&unheard), []);
        unheard.on_changed(TWO);
        assert_eq!(sessions(&unheard), [TWO]);
    }

    #[test]
    fn of_two_concurrent_syncs_the_later_answer_does_not_cover_writes_in_between() {
        let mut unheard = Unheard::default();
        unheard.on_changed(ONE);
        let mark = unheard.mark();
        unheard.on_heard(ONE, mark, Some(1));
        unheard.on_changed(ONE);
        unheard.on_heard(ONE, mark, Some(1));
        assert_eq!(sessions(&unheard), [ONE]);
    }

    /// The client counts that change as not synced, whatever the disks have.
    #[test]
    fn a_change_whose_answer_crosses_the_sync_is_not_heard_of() {
        let mut unheard = Unheard::default();
        unheard.on_changed(ONE);
        unheard.on_changed(ONE);
        let mark = unheard.mark();
        unheard.on_heard(ONE, mark, Some(1));
        assert_eq!(sessions(&unheard), [ONE], "it had one answer when it asked");
        unheard.on_heard(ONE, mark, None);
        assert_eq!(sessions(&unheard), [], "an earlier release does not say");
    }
}
