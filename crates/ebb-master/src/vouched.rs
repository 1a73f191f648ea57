//! What proxies in processes of their own were told of sessions: that one lives, for a while.
//!
//! A proxy carries an operation out only while its session lives, and whoever gets the session's locks must find that done
//! or not done (docs/protocol.md, Shared files, 7). A proxy in the master's process asks each time. One elsewhere asks
//! beforehand: the answer is good for [`BELIEF`], counted by the proxy from asking and here from answering, on clocks that
//! go on in sleep. So a session ends in two steps: nobody is told any more that it lives, and when the last answer is not
//! good any more, it is over. A plain state machine; moments come in as arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ebb_runtime::Moment;
use ebb_types::SessionId;

/// How long an answer is good. Long enough that proxies do not ask all the time, and short beside the life of a session.
pub const BELIEF: Duration = Duration::from_secs(3);

/// Who was vouched for.
#[derive(Debug)]
pub struct Vouched {
    /// When this began: what an earlier process of the master said may be good for a while after that.
    since: Moment,
    told: BTreeMap<SessionId, Moment>,
    ending: BTreeSet<SessionId>,
}

impl Vouched {
    /// This process has told nobody yet.
    #[must_use]
    pub fn new(since: Moment) -> Self {
        Self { since, told: BTreeMap::new(), ending: BTreeSet::new() }
    }

    /// A proxy asks about a session that is there. True: it is told that it lives. False: it is about to end.
    pub fn vouch(&mut self, session: SessionId, now: Moment) -> bool {
        if self.ending.contains(&session) {
            return false;
        }
        self.told.insert(session, now);
        true
    }

    /// Nobody is told any more that it lives. Returns when nobody can believe it any more.
    pub fn begin_end(&mut self, session: SessionId) -> Moment {
        self.ending.insert(session);
        self.told.get(&session).copied().unwrap_or(self.since).after(BELIEF)
    }

    /// Sessions whose end has begun, and in which nobody can believe any more: one that is heard of again meanwhile ends
    /// all the same, for proxies were told so.
    #[must_use]
    pub fn due(&self, now: Moment) -> Vec<SessionId> {
        let until = |session: &SessionId| self.told.get(session).copied().unwrap_or(self.since).after(BELIEF);
        self.ending.iter().copied().filter(|session| until(session) <= now).collect()
    }

    /// It is over.
    pub fn forget(&mut self, session: SessionId) {
        self.told.remove(&session);
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
    fn what_an_earlier_process_said_is_waited_for() {
        let mut vouched = Vouched::new(at(50_000));
        assert_eq!(vouched.begin_end(ONE), at(50_000).after(BELIEF));
    }
}
