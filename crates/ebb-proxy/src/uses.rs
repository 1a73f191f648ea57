//! Who uses a shared file, and when it has become quiet. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::SessionId;

/// When each session last used a file.
#[derive(Debug)]
pub struct Uses {
    since: Moment,
    last: BTreeMap<SessionId, Moment>,
}

impl Uses {
    /// Of a file that is held from now on.
    #[must_use]
    pub fn new(now: Moment) -> Self {
        Self { since: now, last: BTreeMap::new() }
    }

    /// A session uses it.
    pub fn note(&mut self, session: SessionId, now: Moment) {
        self.last.insert(session, now);
    }

    /// Sessions that have not used it for `span`; they are counted no more.
    pub fn take_idle(&mut self, now: Moment, span: Duration) -> Vec<SessionId> {
        let idle: Vec<SessionId> =
            self.last.iter().filter(|(_, last)| now.since(**last) >= span).map(|(session, _)| *session).collect();
        self.last.retain(|_, last| now.since(*last) < span);
        idle
    }

    /// Whether no more than one session has used it for `span`.
    #[must_use]
    pub fn is_quiet(&self, now: Moment, span: Duration) -> bool {
        let users = self.last.values().filter(|last| now.since(**last) < span).count();
        users <= 1 && now.since(self.since) >= span
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
            uses.note(one, at(second));
        }
        uses.note(two, at(7));
        assert!(!uses.is_quiet(at(9), span));
        assert!(uses.is_quiet(at(10), span));
        assert_eq!(uses.take_idle(at(10), span), [two]);
    }
}
