//! Sessions that use a shared file, and the moment when it is quiet. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::SessionId;

/// The last use of a file by each session.
#[derive(Debug)]
pub struct Uses {
    since: Moment,
    sessions: BTreeMap<SessionId, Session>,
}

/// One session's use.
#[derive(Debug)]
struct Session {
    /// When an operation started or ended.
    last: Moment,
    /// Operations that have not ended. If members sleep, an operation takes as long as they do.
    under_way: u32,
}

impl Uses {
    /// No uses yet, for a file that is held from now on.
    #[must_use]
    pub fn new(now: Moment) -> Self {
        Self { since: now, sessions: BTreeMap::new() }
    }

    /// Records the start of a session's operation.
    pub fn begin_operation(&mut self, session: SessionId, now: Moment) {
        let known = self.sessions.entry(session).or_insert(Session { last: now, under_way: 0 });
        known.last = now;
        known.under_way += 1;
    }

    /// Records the end of a session's operation. It counts as a use, so a slow operation does not make the file quiet.
    pub fn end(&mut self, session: SessionId, now: Moment) {
        assert!(self.sessions.contains_key(&session), "{session} was forgotten while it used the file");
        if let Some(known) = self.sessions.get_mut(&session) {
            known.last = now;
            assert!(known.under_way > 0, "{session} ends an operation that it has not started");
            known.under_way -= 1;
        }
    }

    /// Removes the sessions that have not used the file for `span`, and returns them.
    pub fn take_idle(&mut self, now: Moment, span: Duration) -> Vec<SessionId> {
        let is_idle = |known: &Session| known.under_way == 0 && now.since(known.last) >= span;
        let idle = self.sessions.iter().filter(|(_, known)| is_idle(known)).map(|(session, _)| *session).collect();
        self.sessions.retain(|_, known| !is_idle(known));
        idle
    }

    /// Whether at most one session has used the file for `span`.
    #[must_use]
    pub fn is_quiet(&self, now: Moment, span: Duration) -> bool {
        let is_user = |known: &&Session| known.under_way > 0 || now.since(known.last) < span;
        self.sessions.values().filter(is_user).count() <= 1 && now.since(self.since) >= span
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::default().after(Duration::from_secs(seconds))
    }

    #[test]
    fn one_user_alone_is_quiet_and_two_are_not() {
        let (one, two, span) = (SessionId::new(1), SessionId::new(2), Duration::from_secs(3));
        let mut uses = Uses::new(at(0));
        assert!(!uses.is_quiet(at(2), span), "it was shared for a reason a moment ago");
        assert!(uses.is_quiet(at(3), span));
        for second in 1..9 {
            uses.begin_operation(one, at(second));
            uses.end(one, at(second));
        }
        uses.begin_operation(two, at(7));
        uses.end(two, at(7));
        assert!(!uses.is_quiet(at(9), span));
        assert!(uses.is_quiet(at(10), span));
        assert_eq!(uses.take_idle(at(10), span), [two]);
    }

    #[test]
    fn a_session_that_waits_for_long_uses_the_file() {
        let (one, two, span) = (SessionId::new(1), SessionId::new(2), Duration::from_secs(3));
        let mut uses = Uses::new(at(0));
        uses.begin_operation(one, at(1));
        uses.begin_operation(two, at(1));
        uses.begin_operation(two, at(2));
        uses.end(two, at(3));
        assert_eq!(uses.take_idle(at(100), span), []);
        assert!(!uses.is_quiet(at(100), span));
        uses.end(two, at(100));
        assert_eq!(uses.take_idle(at(103), span), [two]);
        assert!(uses.is_quiet(at(103), span), "one is there alone");
    }
}
