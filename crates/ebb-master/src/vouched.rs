//! Vouching for sessions to proxies in processes of their own: an answer says that a session lives, for a while.
//!
//! A proxy carries out an operation only while its session lives. The next owner of the session's locks must find the
//! operation done or not done (docs/protocol.md, Shared files, 7). A proxy in the master's process asks each time. A
//! separate proxy asks in advance. The answer holds for [`BELIEF`], which the proxy counts from its question and the
//! master from its answer. Both clocks run during sleep.
//!
//! So a session ends in two steps. First no proxy gets a new answer that it lives. Then, when the last answer has
//! expired, it is over. A plain state machine; moments come in as arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::SessionId;

/// Validity of an answer: long enough that proxies seldom ask, and short beside the life of a session.
pub const BELIEF: Duration = Duration::from_secs(3);

/// The answers to proxies, and the sessions that are ending.
#[derive(Debug)]
pub struct Vouched {
    /// Start of this process. Answers of an earlier process may be valid for a while after it.
    since: Moment,
    /// The last positive answer about each session.
    vouched: BTreeMap<SessionId, Moment>,
    ending: BTreeSet<SessionId>,
}

impl Vouched {
    /// An empty table of a process that started at `since`.
    #[must_use]
    pub fn new(since: Moment) -> Self {
        Self { since, vouched: BTreeMap::new(), ending: BTreeSet::new() }
    }

    /// Answers whether a known session lives. Returns false once its end has begun.
    pub fn vouch(&mut self, session: SessionId, now: Moment) -> bool {
        if self.ending.contains(&session) {
            return false;
        }
        self.vouched.insert(session, now);
        true
    }

    /// Stops positive answers about the session. Returns the moment when the last one expires.
    pub fn begin_end(&mut self, session: SessionId) -> Moment {
        self.ending.insert(session);
        self.expires(session)
    }

    /// Sessions whose end has begun and whose last answer has expired. A session that is heard again meanwhile ends all
    /// the same, because proxies have already been refused.
    // I-48: a proxy may act for the session until the last answer has expired.
    #[must_use]
    pub fn due(&self, now: Moment) -> Vec<SessionId> {
        self.ending.iter().copied().filter(|session| self.expires(*session) <= now).collect()
    }

    fn expires(&self, session: SessionId) -> Moment {
        self.vouched.get(&session).copied().unwrap_or(self.since).after(BELIEF)
    }

    /// Removes a session that is over.
    pub fn forget(&mut self, session: SessionId) {
        self.vouched.remove(&session);
        self.ending.remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionId = SessionId::new(1);
    const TWO: SessionId = SessionId::new(2);

    fn at(ms: u64) -> Moment {
        Moment::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn an_end_waits_for_the_last_answer_and_there_is_none_after_it_began() {
        let mut vouched = Vouched::new(at(0));
        assert!(vouched.vouch(ONE, at(10_000)) && vouched.vouch(ONE, at(12_000)));
        assert_eq!(vouched.begin_end(ONE), at(12_000).after(BELIEF));
        assert!(!vouched.vouch(ONE, at(12_500)));
        assert_eq!(vouched.begin_end(ONE), at(12_000).after(BELIEF), "asked again it does not move");
        assert!(vouched.vouch(TWO, at(12_500)), "others are not concerned");
        assert_eq!(vouched.due(at(14_999)), []);
        assert_eq!(vouched.due(at(15_000)), [ONE]);
        vouched.forget(ONE);
        assert_eq!(vouched.due(at(99_000)), []);
    }

    #[test]
    fn an_earlier_processs_answers_are_waited_for() {
        let mut vouched = Vouched::new(at(50_000));
        assert_eq!(vouched.begin_end(ONE), at(50_000).after(BELIEF));
    }
}
