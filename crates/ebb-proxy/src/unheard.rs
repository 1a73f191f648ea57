//! Sessions that changed a file and have not heard since that it is synced. Pure.
//!
//! Such a client counts what it wrote as lost if the file's stay ends without a word. So a proxy that ends in good order
//! waits until each of them has asked once more, and been answered that everything was kept.
//!
//! What counts is what the client knows. A sync may have left it before the answer to a change came that was carried out before
//! the sync: it is on disks then, and its client does not know. So clients tell with a sync how many answers they have.

use std::collections::BTreeMap;

use ebb_types::SessionId;

/// Changes are numbered in their order, as in [`crate::unsynced`].
#[derive(Debug, Default)]
pub struct Unheard {
    last: u64,
    changed: BTreeMap<SessionId, Changes>,
}

/// Those of one session.
#[derive(Debug, Default)]
struct Changes {
    count: u64,
    /// The number of the last one.
    last: u64,
    /// The session knows that all are synced.
    is_heard: bool,
}

impl Unheard {
    /// A change of a session was carried out.
    pub fn on_changed(&mut self, session: SessionId) {
        self.last += 1;
        let changes = self.changed.entry(session).or_default();
        *changes = Changes { count: changes.count + 1, last: self.last, is_heard: false };
    }

    /// The number up to which a sync that begins now goes.
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.last
    }

    /// A sync that began at this mark is answered to the session that asked for it, when it had so many answers. `None`: an
    /// earlier release, which does not say.
    pub fn on_heard(&mut self, session: SessionId, mark: u64, answered: Option<u64>) {
        let Some(changes) = self.changed.get_mut(&session) else { return };
        changes.is_heard |= changes.last <= mark && answered.is_none_or(|answered| answered >= changes.count);
    }

    /// A session is told that everything is synced, or is over.
    pub fn forget(&mut self, session: SessionId) {
        if let Some(changes) = self.changed.get_mut(&session) {
            changes.is_heard = true;
        }
    }

    /// Sessions that changed something and have not heard.
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
    fn a_session_hears_of_what_it_wrote_before_the_sync_and_of_no_more() {
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
    fn of_two_syncs_at_a_time_the_later_answer_says_nothing_of_what_came_between() {
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
